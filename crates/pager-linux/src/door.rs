//! The door to the kernel: every system call of this crate passes here right before it is made.
//!
//! By default the door is open and costs nothing. With the feature `faults`, for tests, the n-th
//! call from some moment on fails without being made ([`faults`]). A test can so fail every call of
//! an operation in turn and check the resulting state.

#[cfg(not(feature = "faults"))]
use rustix::io::Errno;

/// A kind of system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Call {
    /// `mmap`.
    Map,
    /// `munmap`.
    Unmap,
    /// `mremap`.
    Move,
    /// `madvise`.
    Advise,
    /// `mlock2`.
    Lock,
    /// `memfd_create`.
    MakeFile,
    /// `ftruncate`.
    Truncate,
    /// `fallocate`, to punch a hole.
    Punch,
    /// `pread` of pages in memory, or of the file behind them.
    Load,
    /// `pwrite` of pages in memory.
    Save,
    /// `fstat`.
    Ask,
    /// `userfaultfd` and `UFFDIO_API`.
    Userfault,
    /// `UFFDIO_REGISTER`.
    Register,
    /// `UFFDIO_UNREGISTER`.
    Unregister,
    /// `UFFDIO_CONTINUE`.
    Continue,
    /// `UFFDIO_COPY`.
    Copy,
    /// `UFFDIO_ZEROPAGE`.
    Zero,
    /// `UFFDIO_WRITEPROTECT`.
    Protect,
    /// `open`, `fstatfs`, `unlink` and `fallocate` of a swap file.
    MakeSwap,
    /// `pread` of a swap file.
    ReadSwap,
    /// `pwrite` of a swap file.
    WriteSwap,
    /// `sigaltstack`, `sigaction` and `sigprocmask`.
    Signal,
}

impl Call {
    /// All of them.
    pub const ALL: [Call; 22] = [
        Call::Map,
        Call::Unmap,
        Call::Move,
        Call::Advise,
        Call::Lock,
        Call::MakeFile,
        Call::Truncate,
        Call::Punch,
        Call::Load,
        Call::Save,
        Call::Ask,
        Call::Userfault,
        Call::Register,
        Call::Unregister,
        Call::Continue,
        Call::Copy,
        Call::Zero,
        Call::Protect,
        Call::MakeSwap,
        Call::ReadSwap,
        Call::WriteSwap,
        Call::Signal,
    ];
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
pub(crate) fn pass(_: Call) -> Result<(), Errno> {
    Ok(())
}

#[cfg(feature = "faults")]
pub(crate) use faults::pass;

/// Failing system calls on purpose.
#[cfg(feature = "faults")]
pub mod faults {
    use super::Call;
    use rustix::io::Errno;
    use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::SeqCst};

    /// Calls of the kinds that count since the plan was made.
    static PASSED: AtomicU64 = AtomicU64::new(0);
    /// The first call that fails, from 0, and the one after the last.
    static FROM: AtomicU64 = AtomicU64::new(u64::MAX);
    static TO: AtomicU64 = AtomicU64::new(u64::MAX);
    static ERRNO: AtomicI32 = AtomicI32::new(0);
    /// A bit for each kind that counts.
    static KINDS: AtomicU32 = AtomicU32::new(u32::MAX);

    /// Which calls fail. A plan is of the whole process.
    #[derive(Debug, Clone, Copy)]
    pub struct Plan {
        /// Calls that pass first.
        pub after: u64,
        /// Calls that fail then.
        pub failures: u64,
        /// What they fail with.
        pub errno: i32,
        /// The only kind that counts; `None` for all.
        pub only: Option<Call>,
    }

    /// Makes calls fail from now on.
    pub fn arm(plan: Plan) {
        disarm();
        ERRNO.store(plan.errno, SeqCst);
        KINDS.store(plan.only.map_or(u32::MAX, bit), SeqCst);
        TO.store(plan.after.saturating_add(plan.failures), SeqCst);
        FROM.store(plan.after, SeqCst);
    }

    /// Ends the failures; returns how many calls were counted since the plan was made.
    pub fn disarm() -> u64 {
        FROM.store(u64::MAX, SeqCst);
        TO.store(u64::MAX, SeqCst);
        KINDS.store(u32::MAX, SeqCst);
        PASSED.swap(0, SeqCst)
    }

    fn bit(call: Call) -> u32 {
        1 << call as u32
    }

    /// Announces a call, for stores of tests, which make none.
    ///
    /// # Errors
    /// The error of the plan.
    pub fn pass(call: Call) -> Result<(), Errno> {
        if KINDS.load(SeqCst) & bit(call) == 0 {
            return Ok(());
        }
        let number = PASSED.fetch_add(1, SeqCst);
        if (FROM.load(SeqCst)..TO.load(SeqCst)).contains(&number) {
            return Err(Errno::from_raw_os_error(ERRNO.load(SeqCst)));
        }
        Ok(())
    }
}
