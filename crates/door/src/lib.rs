//! The door to the kernel: every system call on behalf of tenants passes here right before it is made.
//!
//! By default the door is open and costs nothing. With the feature `faults`, for tests, the n-th
//! call from some moment on fails without being made. A test can so fail every call of an operation
//! in turn and check the resulting state. Calls for tenants that a test [spares](on_behalf_of) pass
//! uncounted: they go on beside the one that the failures concern.
//!
//! # Example
//! ```
//! use leasehold_door::{Call, faults, pass};
//! use rustix::io::Errno;
//!
//! fn map() -> Result<(), Errno> {
//!     pass(Call::Map)
//!     // … and the call itself.
//! }
//!
//! faults::arm(faults::Plan {
//!     after: 1,
//!     failures: 1,
//!     errno: Errno::NOMEM.raw_os_error(),
//!     only: None,
//! });
//! assert_eq!([map(), map(), map()], [Ok(()), Err(Errno::NOMEM), Ok(())]);
//! assert_eq!(faults::disarm(), 3);
//! ```
//!
//! # Map
//!
//! | concept | file |
//! |---|---|
//! | the kinds of calls, with the errors that each can have, and the door | this one |
//! | which calls fail, with what, and for whom they do not; which wait | `faults` |

#[cfg(feature = "faults")]
pub mod faults;

use rustix::io::Errno;

/// Declares the kinds of calls, and the list of all.
macro_rules! calls {
    ($($(#[$about:meta])* $call:ident: [$($errno:ident)*],)*) => {
        /// A kind of system call.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Call {
            $($(#[$about])* $call,)*
        }

        impl Call {
            /// All of them.
            pub const ALL: &[Call] = &[$(Call::$call,)*];

            /// The errors of such calls that tests can ask for: for want of memory, descriptors,
            /// or room on a disk, and those of a device.
            pub const fn errnos(self) -> &'static [Errno] {
                match self {
                    $(Call::$call => &[$(Errno::$errno,)*],)*
                }
            }
        }
    };
}

calls! {
    /// `mmap`.
    Map: [NOMEM MFILE],
    /// `munmap`.
    Unmap: [NOMEM],
    /// `mremap`.
    Move: [NOMEM],
    /// `mprotect`.
    Allow: [NOMEM],
    /// `madvise`.
    Advise: [NOMEM IO],
    /// `mincore`.
    Look: [NOMEM],
    /// `mlock2`.
    Lock: [NOMEM],
    /// `munlock`.
    Unlock: [NOMEM],
    /// `memfd_create`.
    MakeFile: [NOMEM MFILE],
    /// `ftruncate` of pages in memory.
    Truncate: [NOMEM NOSPC IO],
    /// `fallocate`, to punch a hole.
    Punch: [NOMEM NOSPC IO],
    /// `pread` of pages in memory, or of the file behind them.
    Load: [NOMEM IO],
    /// `pwrite` of pages in memory.
    Save: [NOMEM NOSPC IO],
    /// `fstat`.
    Ask: [NOMEM IO],
    /// `userfaultfd` and `UFFDIO_API`.
    Userfault: [NOMEM MFILE],
    /// `UFFDIO_REGISTER`.
    Register: [NOMEM],
    /// `UFFDIO_UNREGISTER`.
    Unregister: [NOMEM],
    /// `UFFDIO_CONTINUE`.
    Continue: [NOMEM],
    /// `UFFDIO_COPY`.
    Copy: [NOMEM NOSPC],
    /// `UFFDIO_ZEROPAGE`.
    Zero: [NOMEM],
    /// `UFFDIO_WRITEPROTECT`.
    Protect: [NOMEM],
    /// `open`, `fstatfs`, `unlink` and `fallocate` of a swap file.
    MakeSwap: [NOMEM MFILE NOSPC IO],
    /// `pread` of a swap file.
    ReadSwap: [NOMEM IO],
    /// `pwrite` of a swap file.
    WriteSwap: [NOMEM NOSPC IO],
    /// `sigaltstack`, `sigaction` and `sigprocmask`.
    Signal: [NOMEM],
    /// `timer_create`.
    MakeTimer: [NOMEM],
    /// `clone`, to start a thread.
    StartThread: [NOMEM],
    /// `openat2` for a tenant.
    Open: [NOMEM MFILE IO],
    /// `statx`, `readlinkat` and `fstatfs` for a tenant.
    Status: [NOMEM IO],
    /// `preadv2` for a tenant.
    Read: [NOMEM IO],
    /// `pwritev2` for a tenant.
    Write: [NOMEM NOSPC IO],
    /// `getdents64` and the seek before it.
    List: [NOMEM IO],
    /// `ftruncate` for a tenant.
    Resize: [NOMEM NOSPC IO],
    /// `fsync` and `fdatasync`.
    Sync: [NOMEM NOSPC IO],
    /// `posix_fadvise`.
    AdviseFile: [NOMEM IO],
    /// A change of a directory for a tenant.
    Change: [NOMEM NOSPC IO],
    /// Reading, writing, resizing and syncing the file of a store.
    Store: [NOMEM NOSPC IO],
}

/// Announces a call.
///
/// # Errors
/// The error that a test requests.
#[cfg(not(feature = "faults"))]
#[inline(always)]
#[allow(
    clippy::unnecessary_wraps,
    clippy::inline_always,
    reason = "the door of tests can be shut"
)]
pub fn pass(_: Call) -> Result<(), Errno> {
    Ok(())
}

#[cfg(feature = "faults")]
pub use faults::pass;

/// Does `work` of this thread on behalf of a tenant, by the number that `tenant` returns: no other tenant of
/// the process has it, and later tenants have greater ones. Only tests ask for it.
#[cfg(not(feature = "faults"))]
#[inline(always)]
#[allow(clippy::inline_always, reason = "the door of tests can be shut")]
pub fn on_behalf_of<R>(_: impl FnOnce() -> u64, work: impl FnOnce() -> R) -> R {
    work()
}

#[cfg(feature = "faults")]
pub use faults::on_behalf_of;
