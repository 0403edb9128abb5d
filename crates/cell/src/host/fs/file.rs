//! A file of the host's that is open, and how it is closed.
//!
//! One thread closes the files of all tenants ([`reaper`](crate::host::io::reaper)). Closing one that has
//! no name left frees its pages, and closing one that was made smaller may write it out: for a large file
//! that takes long enough to delay the ends of others. So that thread leaves such a file to a thread
//! that closes files of its tenant only.

use super::class::SMALL;
use crate::host::linux;
use rustix::fs::StatxFlags;
use std::cell::RefCell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

thread_local! {
    /// On the thread that closes the files of all tenants: the costly ones of what it drops now.
    static LEFT: RefCell<Option<Vec<Arc<OwnedFd>>>> = const { RefCell::new(None) };
}

/// Drops `what`, with files of one tenant in it, on the thread that closes those of all tenants. Returns those that are
/// costly to close, which are still open.
pub(crate) fn close_but_costly(what: impl Sized) -> Vec<Arc<OwnedFd>> {
    LEFT.set(Some(Vec::new()));
    drop(what);
    LEFT.take().unwrap_or_default()
}

/// An open file.
#[derive(Debug)]
pub(super) struct File {
    fd: Arc<OwnedFd>,
    /// Records that closing the file may write it out.
    is_shrunk: bool,
}

impl File {
    pub(super) fn new(fd: OwnedFd) -> Self {
        Self {
            fd: Arc::new(fd),
            is_shrunk: false,
        }
    }

    /// Records that closing the file may write it out.
    pub(super) fn expect_write_back(&mut self) {
        self.is_shrunk = true;
    }

    /// Whether closing it may take long.
    fn is_costly(&self) -> bool {
        if self.is_shrunk {
            return true;
        }
        let fields = StatxFlags::NLINK | StatxFlags::SIZE | StatxFlags::BLOCKS;
        linux::status(self.as_fd(), fields).is_ok_and(|status| {
            let size = status
                .stx_size
                .max(status.stx_blocks.saturating_mul(linux::BLOCK));
            status.stx_nlink == 0 && size > SMALL
        })
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        LEFT.with_borrow_mut(|left| {
            if let Some(left) = left
                && self.is_costly()
            {
                left.push(self.fd.clone());
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::{File, close_but_costly};
    use crate::host::fs::account::Account;
    use crate::host::io::Io;
    use leasehold_lease::Lease;
    use std::fs;
    use std::os::fd::OwnedFd;
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use std::time::{Duration, Instant};

    fn file(path: &Path, bytes: usize) -> File {
        fs::write(path, vec![1; bytes]).expect("written");
        File::new(OwnedFd::from(fs::File::open(path).expect("opened")))
    }

    #[test]
    fn a_file_is_costly_to_close_if_that_frees_or_writes_much() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("file");
        for (bytes, is_large) in [(1, false), (1 << 20, true)] {
            let mut open = file(&path, bytes);
            assert!(!open.is_costly(), "it has a name");
            fs::remove_file(&path).expect("removed");
            assert_eq!(open.is_costly(), is_large);
            open.expect_write_back();
            assert!(open.is_costly());
        }
    }

    #[test]
    fn what_is_costly_to_close_is_left_open_and_all_else_is_closed() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |number: usize| directory.path().join(number.to_string());
        let large = |number| number % 3 == 0;
        let files: Vec<_> = (0..9)
            .map(|number| {
                let open = file(&path(number), if large(number) { 1 << 20 } else { 1 });
                fs::remove_file(path(number)).expect("removed");
                open
            })
            .collect();
        let left = close_but_costly(files);
        assert_eq!(left.len(), 3);
        assert!(left.iter().all(|file| Arc::strong_count(file) == 1));
        drop(file(&path(0), 1 << 20));
        assert!(close_but_costly(()).is_empty(), "dropped elsewhere");
    }

    #[test]
    fn a_costly_close_of_one_tenant_delays_no_other_tenants_close() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("file");
        let io = Arc::new(Io::start(None).expect("threads"));
        let account = || Arc::new(Account::new(&Lease::default(), None, None, io.clone()));
        let (one, other) = (account(), account());
        // The thread that closes files of this tenant only is kept waiting.
        let (release, waits) = channel::<()>();
        struct Hanging(std::sync::mpsc::Receiver<()>);
        impl Drop for Hanging {
            fn drop(&mut self) {
                let _ = self.0.recv();
            }
        }
        one.close_apart(1, Hanging(waits));
        let large = file(&path, 1 << 20);
        fs::remove_file(&path).expect("removed");
        one.close(1, large);
        other.close(1, file(&path, 1));
        let began = Instant::now();
        let is_closed_soon = |account: &Account| {
            while !account.is_closed() && began.elapsed() < Duration::from_secs(60) {
                std::thread::sleep(Duration::from_millis(1));
            }
            account.is_closed()
        };
        assert!(is_closed_soon(&other));
        assert!(!one.is_closed());
        drop(release);
        assert!(is_closed_soon(&one));
        io.stop();
    }
}
