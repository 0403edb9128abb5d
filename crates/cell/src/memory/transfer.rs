//! What a suspended execution waits for: a page that another thread reads, or a cluster that it writes.
//!
//! A fault of guest code does not wait for the disk: the guest is suspended at its instruction, as a preemption does it,
//! a thread for calls that may block makes the transfer for its tenant, and the cell runs others. When the execution goes
//! on, its fault finds the page, or room for it.

use super::state::with;
use crate::host::fs::account::Account;
use crate::host::io::{self, Pending};
use crate::host::yield_point::suspended;
use leasehold_pager_linux::{Awaited, Finished, Transferred, Turn, Wait, Wanted};
use leasehold_slots::address_range::PAGE;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A transfer that an execution waits for. Dropping it gives the transfer up.
pub(crate) struct AwaitedTransfer {
    awaited: Awaited,
    job: Job,
}

enum Job {
    /// Its own.
    Own(Pending<Transferred>),
    /// That of another execution of its tenant, which has to be over before its own begins.
    Other(Turn, Arc<Account>),
}

impl Job {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Transferred> {
        match self {
            Self::Own(transfer) => Pin::new(transfer).poll(context),
            Self::Other(turn, account) => {
                account.turns().wait(context);
                match turn.is_over() {
                    true => Poll::Ready(Transferred::default()),
                    false => Poll::Pending,
                }
            }
        }
    }
}

impl AwaitedTransfer {
    /// Has the transfer made by a thread of the tenant with this account.
    pub(crate) fn begin(wanted: Wanted, account: &Arc<Account>) -> Self {
        let (wait, awaited) = wanted.begin();
        let job = match wait {
            Wait::Transfer(mut transfer) => {
                let turns = account.turns().clone();
                transfer.when_over(move || turns.ended());
                Job::Own(io::run(account, move || transfer.run()))
            }
            Wait::Turn(turn) => Job::Other(turn, account.clone()),
        };
        Self { awaited, job }
    }

    /// Puts what was transferred where the execution's next fault finds it, if it is there; otherwise the context is woken
    /// then.
    pub(crate) fn put(mut self, context: &mut Context<'_>) -> Option<Self> {
        match self.job.poll(context) {
            Poll::Pending => Some(self),
            Poll::Ready(transferred) => {
                let finished = self.awaited.done(transferred);
                with(|memory| memory.paging.put_finished(finished));
                None
            }
        }
    }
}

/// Has the pages at these addresses fetched, which host code is about to visit: the execution waits for them as for those
/// of its own faults. Those of a tenant that does not page are there.
pub(crate) async fn fetch_pages(addresses: Range<usize>) {
    let mut page = addresses.start / PAGE * PAGE;
    while page < addresses.end {
        while with(|memory| memory.paging.waits_for(page)) == Some(true) {
            suspended().await;
        }
        page += PAGE;
    }
}

/// An execution is about to be polled: whether it is to be suspended where it would wait for a transfer.
pub(crate) fn begin_poll(suspends: bool) {
    with(|memory| memory.paging.set_suspends(suspends));
}

/// The execution was polled. Returns what it was suspended for. What it has waited for before is of no use to others.
pub(crate) fn end_poll() -> Option<Wanted> {
    with(|memory| {
        memory.paging.set_suspends(false);
        memory.paging.put_finished(Finished::default());
        memory.paging.take_wanted()
    })
    .flatten()
}
