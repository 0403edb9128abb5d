//! The thread that gives a cell real-time priority while it kills tenants.
//!
//! A cell without that priority shares the processor with other programs, as is right while its tenants run. But a kill
//! has a deadline, and they could take the processor at any of its steps. So a thread with real-time priority, which
//! otherwise sleeps, [donates](Donation) it to the cell's thread from a kill until everything is taken back. What other
//! tenants of the cell do meanwhile is as urgent.
//!
//! The donor takes the priority when the cell starts; afterwards nothing in the process has the right to.

use crate::realtime::{self, Realtime};
use leasehold_confine::Thread;
use leasehold_crossing::Donation;
use leasehold_door::{Call, pass};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

/// Starts the donor of a donation whose recipient has begun. It ends with the recipient.
///
/// Where the system refuses the priority or the thread there is none: kills then take their turns with other programs.
pub(crate) fn start(donation: &Arc<Donation>) -> (Realtime, Option<JoinHandle<()>>) {
    let donation = donation.clone();
    let (tell, told) = channel();
    let donor = move || {
        let answer = match (realtime::ask(), leasehold_confine::narrow(Thread::Donor)) {
            (Realtime::Granted, Ok(())) => Realtime::ForKills,
            (Realtime::Granted, Err(error)) => Realtime::Refused(error.to_string()),
            (refused, _) => refused,
        };
        let donates = answer == Realtime::ForKills;
        if tell.send(answer).is_ok() && donates {
            donation.donate();
        }
    };
    match spawn(donor) {
        Ok(thread) => {
            let answer = told.recv();
            let answer = answer.unwrap_or_else(|_| Realtime::Refused("its thread ended".into()));
            (answer, Some(thread))
        }
        Err(error) => (Realtime::Refused(error.to_string()), None),
    }
}

fn spawn(donor: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    pass(Call::StartThread)?;
    std::thread::Builder::new()
        .name("leasehold-donor".into())
        .spawn(donor)
}
