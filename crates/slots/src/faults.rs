//! How many pages of a memory can have got memory while a user had it: as many as its thread had page faults.
//!
//! Most memories are touched in few of their pages, and asking the system which ones costs more than giving those few
//! back. A page gets memory by a fault of the thread that uses it, in the guest or in a system call for it; faults
//! elsewhere count too, so that the number is an upper bound.

use std::thread::{self, ThreadId};

use nix::sys::resource::{UsageWho, getrusage};

/// The faults of a thread so far.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Faults {
    thread: ThreadId,
    count: i64,
}

impl Faults {
    /// Those of the calling thread; `None` if the system does not tell. Some 0.3 µs (a system call).
    pub(crate) fn so_far() -> Option<Self> {
        let usage = getrusage(UsageWho::RUSAGE_THREAD).ok()?;
        Some(Self {
            thread: thread::current().id(),
            count: usage.minor_page_faults() + usage.major_page_faults(),
        })
    }

    /// How many more there have been since `earlier`; `None` if that was another thread.
    pub(crate) fn since(self, earlier: Self) -> Option<usize> {
        let more = usize::try_from(self.count - earlier.count).ok()?;
        (self.thread == earlier.thread).then_some(more)
    }
}

#[cfg(test)]
mod tests {
    use super::Faults;
    use crate::address_range::{AddressRange, PAGE};

    #[test]
    fn each_page_that_is_touched_is_counted_and_those_of_other_threads_are_not() {
        const PAGES: usize = 300;
        let range = AddressRange::new(PAGES * PAGE).expect("addresses");
        range.allow(0, PAGES * PAGE).expect("accessible");
        let before = Faults::so_far().expect("told");
        for page in 0..PAGES {
            // SAFETY: an accessible page that nothing else refers to.
            unsafe { range.at(page * PAGE).write_volatile(1) };
        }
        let after = Faults::so_far().expect("told");
        let since = after.since(before).expect("the same thread");
        assert!(since >= PAGES, "{since}");
        let other = std::thread::spawn(|| Faults::so_far().expect("told"));
        assert_eq!(other.join().expect("no panic").since(before), None);
    }
}
