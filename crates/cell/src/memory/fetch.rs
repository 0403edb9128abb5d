//! A page of a suspended execution, which another thread reads.
//!
//! A fault of guest code that has to read the swap file does not wait for the disk: the guest is suspended at its
//! instruction, as a preemption does it, a thread for calls that may block reads the page for its tenant, and the cell runs others.
//! When the execution goes on, its fault finds the page.

use super::state::with;
use crate::host::fs::account::Account;
use crate::host::io::{self, Pending};
use leasehold_pager_linux::{Fetching, PageBytes, Wanted};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A page that is being read for an execution. Dropping it gives the page up.
pub(crate) struct AwaitedPage {
    fetching: Fetching,
    read: Pending<std::io::Result<Box<PageBytes>>>,
}

impl AwaitedPage {
    /// Has the page read by a thread of the tenant with this account.
    pub(crate) fn begin(wanted: Wanted, account: &Arc<Account>) -> Self {
        let (read, fetching) = wanted.begin();
        let read = io::run(account, move || read.run());
        Self { fetching, read }
    }

    /// Puts the page where the execution's next fault finds it, if it is there; otherwise the context is woken then.
    pub(crate) fn put(mut self, context: &mut Context<'_>) -> Option<Self> {
        match Pin::new(&mut self.read).poll(context) {
            Poll::Pending => Some(self),
            Poll::Ready(read) => {
                let fetched = self.fetching.done(read);
                with(|memory| memory.paging.put_fetched(Some(fetched)));
                None
            }
        }
    }
}

/// An execution is about to be polled: whether it is to be suspended where it would wait for a page.
pub(crate) fn begin_poll(suspends: bool) {
    with(|memory| memory.paging.set_suspends(suspends));
}

/// The execution was polled. Returns the page for which it was suspended. What was put for it is of no use to others.
pub(crate) fn end_poll() -> Option<Wanted> {
    with(|memory| {
        memory.paging.set_suspends(false);
        memory.paging.put_fetched(None);
        memory.paging.take_wanted()
    })
    .flatten()
}
