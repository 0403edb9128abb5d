//! The donation of a thread's priority to another one, for as long as it is asked for.
//!
//! The recipient holds a mutex with priority inheritance all its life, and the donor waits for that mutex while the
//! donation is asked for: then the kernel runs the recipient with the priority of the donor. So a process that has
//! given up the right to change priorities can still make one of its threads urgent, and that thread alone.
//!
//! The donor waits in slices, and looks after each of them whether it is still asked for.

use crate::mutex::{Mutex, MutexGuard};
use rustix::thread::futex::{Flags, wait, wake};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// How long the recipient may have the donor's priority after the last one that asked for it has gone.
const SLICE: Duration = Duration::from_millis(1);

/// The recipient has gone.
const GONE: u32 = 1 << 31;

/// A donation, which has one recipient and one donor.
#[derive(Debug, Default)]
pub struct Donation {
    /// How many ask for it now, and [`GONE`].
    asked: AtomicU32,
    held: Mutex<()>,
}

/// The part of the recipient, until this is dropped.
#[derive(Debug)]
pub struct Recipient<'a> {
    donation: &'a Donation,
    _held: MutexGuard<'a, ()>,
}

/// A request for the donation, until it is dropped.
#[derive(Debug)]
pub struct Asked(Arc<Donation>);

impl Donation {
    /// Makes the calling thread the recipient. The donor must not begin before.
    pub fn receive(&self) -> Recipient<'_> {
        Recipient {
            donation: self,
            _held: self.held.lock(),
        }
    }

    /// Asks for the donation, in a message that `send` gives the recipient. Two system calls at the most.
    ///
    /// The donor is woken after the message is sent: the urgent recipient could keep the sender from sending it.
    pub fn ask(self: &Arc<Self>, send: impl FnOnce(Asked)) {
        self.asked.fetch_add(1, Ordering::Relaxed);
        send(Asked(self.clone()));
        let _ = wake(&self.asked, Flags::PRIVATE, 1);
    }

    /// What the donor does: donates its priority whenever it is asked for. Returns when the recipient has gone, or if
    /// the kernel has no inheritance (`FUTEX_LOCK_PI2`, Linux 5.14).
    pub fn donate(&self) {
        loop {
            match self.asked.load(Ordering::Relaxed) {
                // It returns at once if there is more by now.
                0 => {
                    let _ = wait(&self.asked, Flags::PRIVATE, 0, None);
                }
                asked if asked & GONE != 0 => return,
                _ => match self.held.lock_for(SLICE) {
                    Ok(None) => {}
                    Ok(Some(_)) | Err(_) => return,
                },
            }
        }
    }
}

impl Drop for Recipient<'_> {
    fn drop(&mut self) {
        self.donation.asked.fetch_or(GONE, Ordering::Relaxed);
        let _ = wake(&self.donation.asked, Flags::PRIVATE, 1);
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.0.asked.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::Donation;
    use std::sync::{Arc, mpsc};
    use std::thread;

    /// A donation whose recipient has begun, and lives until the sender is dropped.
    fn received() -> (Arc<Donation>, mpsc::Sender<()>, thread::JoinHandle<()>) {
        let donation = Arc::new(Donation::default());
        let (begun, is_begun) = mpsc::channel();
        let (end, is_over) = mpsc::channel::<()>();
        let theirs = donation.clone();
        let recipient = thread::spawn(move || {
            let _recipient = theirs.receive();
            begun.send(()).expect("the test");
            let _ = is_over.recv();
        });
        is_begun.recv().expect("the recipient");
        (donation, end, recipient)
    }

    #[test]
    fn the_donor_ends_with_the_recipient_whether_or_not_it_is_asked() {
        for is_asked in [false, true] {
            let (donation, end, recipient) = received();
            let donor = thread::spawn({
                let donation = donation.clone();
                move || donation.donate()
            });
            let mut requests = Vec::new();
            if is_asked {
                donation.ask(|asked| requests.push(asked));
            }
            drop(end);
            recipient.join().expect("it has ended");
            donor.join().expect("it has ended");
        }
    }

    #[test]
    fn what_is_asked_for_while_there_is_no_donor_is_forgotten_with_the_request() {
        let (donation, end, recipient) = received();
        donation.ask(drop);
        assert_eq!(donation.asked.load(super::Ordering::Relaxed), 0);
        drop(end);
        recipient.join().expect("it has ended");
        donation.donate();
    }
}
