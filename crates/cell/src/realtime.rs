//! Requests real-time priority for a cell's thread.
//!
//! Reservations divide the time that the cell's thread gets. If the system gives that time to
//! another program, every tenant loses it, though none is charged for it ([`crate::stalls`]). So a
//! cell that keeps reservations requests a real-time priority, under which only the kernel itself
//! and other real-time threads precede it. The time that Linux keeps for ordinary threads
//! ([`crate::host_share`]) is taken from background tenants.

use crate::system;

/// The lowest real-time priority: above all ordinary threads, and below every real-time thread with
/// a chosen priority.
const PRIORITY: libc::c_int = 1;

/// When a cell's thread has real-time priority, if the system grants it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WhenRealtime {
    /// Never: it shares the processor with other programs of the host.
    #[default]
    Never,
    /// From a kill until everything that the tenant had is taken back.
    ForKills,
    /// Always, as reservations need it.
    Always,
}

/// Whether a cell's thread runs before all ordinary ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Realtime {
    /// It was not requested.
    NotAsked,
    /// `SCHED_FIFO`.
    Granted,
    /// While it kills tenants.
    ForKills,
    /// The system refused it, for this reason: other programs of the host can delay all tenants.
    Refused(String),
}

/// Asks whether the calling thread may have real-time priority. It is ordinary afterwards: what a cell does until it
/// has guests, like taking its memory, delays no other thread.
pub(crate) fn may_have() -> Realtime {
    let answer = ask();
    if answer == Realtime::Granted {
        // It can always be given up.
        let _ = system::set_scheduler(libc::SCHED_OTHER, 0);
    }
    answer
}

/// Asks for `SCHED_FIFO` for the calling thread.
pub(crate) fn ask() -> Realtime {
    // Threads that this one starts are ordinary again.
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    match system::set_scheduler(policy, PRIORITY) {
        Ok(()) => Realtime::Granted,
        Err(errno) => Realtime::Refused(std::io::Error::from(errno).to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::{Realtime, ask, may_have};

    #[test]
    fn a_thread_that_may_have_it_is_ordinary_until_it_asks() {
        let asked = std::thread::spawn(|| (may_have(), crate::system::scheduler(), ask()));
        let (may, policy, answer) = asked.join().expect("it does not panic");
        assert_eq!(policy, libc::SCHED_OTHER);
        assert_eq!(may, answer);
    }

    #[test]
    fn the_answer_is_what_the_thread_has() {
        let asked = std::thread::spawn(|| {
            let answer = ask();
            let policy = crate::system::scheduler() & !libc::SCHED_RESET_ON_FORK;
            (answer, policy)
        });
        let (answer, policy) = asked.join().expect("it does not panic");
        match answer {
            Realtime::Granted => assert_eq!(policy, libc::SCHED_FIFO),
            Realtime::Refused(_) => assert_eq!(policy, libc::SCHED_OTHER),
            Realtime::NotAsked | Realtime::ForKills => panic!("it was asked"),
        }
    }
}
