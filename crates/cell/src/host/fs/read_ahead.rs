//! Reads files ahead of a guest.
//!
//! When a page is not in memory, the kernel reads ahead even in a call that must not wait: it
//! allocates pages for some megabytes in that call, and fills those in holes of the file. The
//! kernel's read-ahead is therefore switched off for files that are read on the cell's thread
//! (`POSIX_FADV_RANDOM`). Instead, the thread that waits for the disk reads ahead if the file is
//! read sequentially.

use crate::host::linux;
use leasehold_crossing::Mutex;
use rustix::fs::Advice;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes that are read ahead at a time.
pub(super) const AHEAD: u64 = 1 << 20;

/// The reading ahead of one open file.
#[derive(Debug, Default)]
pub(super) struct ReadAhead {
    /// Whether the kernel's own read-ahead is off.
    is_own: AtomicBool,
    /// The bytes that were read and read ahead last.
    window: Mutex<Range<u64>>,
}

impl ReadAhead {
    /// Switches the kernel's read-ahead off, and returns whether that succeeded. A system call the
    /// first time.
    pub(super) fn take_over(&self, file: BorrowedFd<'_>) -> bool {
        if self.is_own.load(Ordering::Relaxed) {
            return true;
        }
        let is_own = linux::advise(file, 0, 0, Advice::Random).is_ok();
        self.is_own.store(is_own, Ordering::Relaxed);
        is_own
    }

    /// Continues after a read of `bytes` at `offset` by a thread that may wait: reads ahead if the
    /// read was at the end of the last window, or in its second half.
    pub(super) fn go_on(&self, file: BorrowedFd<'_>, offset: u64, bytes: u64) {
        let mut window = self.window.lock();
        let end = offset.saturating_add(bytes);
        let goes_on = window.contains(&offset) || (window.end == offset && offset > 0);
        if bytes == 0 || !goes_on {
            *window = offset..end;
            return;
        }
        let from = end.max(window.end);
        if from - end <= AHEAD / 2 && from < u64::MAX - AHEAD {
            // On failure the pages are read when they are requested.
            let _ = linux::advise(file, from, AHEAD, Advice::WillNeed);
            *window = offset..from + AHEAD;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{AHEAD, ReadAhead};
    use crate::host::fs::class::Class;
    use crate::host::fs::descriptor::Node;
    use crate::host::fs::transfer::{Tried, read_now};
    use rustix::fs::FileType;
    use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
    use std::path::Path;

    /// Pages of a file that are in memory, of those from its beginning to `end`; `None` if this kernel does not tell.
    fn cached(file: BorrowedFd<'_>, end: u64) -> Option<u64> {
        /// `cachestat`, since Linux 6.5.
        const CACHESTAT: libc::c_long = 451;
        let (range, mut status) = ([0_u64, end], [0_u64; 5]);
        // SAFETY: as the kernel describes the call: a range, and room for five numbers.
        let result = unsafe {
            libc::syscall(
                CACHESTAT,
                file.as_raw_fd(),
                range.as_ptr(),
                status.as_mut_ptr(),
                0,
            )
        };
        (result == 0).then_some(status[0])
    }

    #[test]
    fn a_read_that_must_not_wait_makes_no_more_pages_than_it_asks_for() {
        let _turn = crate::host::linux::faults::Turn::take();
        let bytes = 256 << 20;
        let file = tempfile::tempfile_in(Path::new(env!("CARGO_MANIFEST_DIR"))).expect("a file");
        file.set_len(bytes).expect("a hole");
        let class = Class::of(file.as_fd()).expect("a file system");
        let node = Node::new(file.into(), FileType::RegularFile, class);
        let Some(0) = cached(node.as_fd(), bytes) else {
            println!("skipped: this kernel does not tell what is in memory of a file");
            return;
        };
        let mut buffer = [1; 64 << 10];
        for part in 0..16 {
            let offset = part * buffer.len() as u64;
            let read = read_now(&node, &mut buffer, offset).expect("read");
            let pages = cached(node.as_fd(), bytes).expect("told before");
            assert!(pages <= (part + 1) * 16, "{pages} pages after {read:?}");
            if read == Tried::Blocks {
                crate::host::fs::transfer::read(&node, buffer.len(), offset).expect("read");
                return;
            }
            assert!(buffer.iter().all(|&byte| byte == 0));
        }
    }

    #[test]
    fn a_window_is_read_ahead_when_a_file_is_read_from_front_to_back() {
        let _turn = crate::host::linux::faults::Turn::take();
        let file = tempfile::tempfile().expect("a file");
        let ahead = ReadAhead::default();
        let window = || ahead.window.lock().clone();
        ahead.go_on(file.as_fd(), 0, 1000);
        assert_eq!(window(), 0..1000, "nothing says that it goes on");
        ahead.go_on(file.as_fd(), 1000, 1000);
        assert_eq!(window(), 1000..2000 + AHEAD);
        ahead.go_on(file.as_fd(), 2000, 1000);
        assert_eq!(window(), 1000..2000 + AHEAD, "enough is there");
        ahead.go_on(file.as_fd(), AHEAD, 1000);
        assert_eq!(window(), AHEAD..2000 + 2 * AHEAD);
        ahead.go_on(file.as_fd(), 100 * AHEAD, 10);
        assert_eq!(window(), 100 * AHEAD..100 * AHEAD + 10);
    }
}
