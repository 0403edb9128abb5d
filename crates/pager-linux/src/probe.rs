//! Checks which features the kernel offers to this user.

use leasehold_door::{Call, pass};
use linux_raw_sys::general::{
    UFFD_FEATURE_MINOR_SHMEM, UFFD_FEATURE_MISSING_SHMEM, UFFD_FEATURE_PAGEFAULT_FLAG_WP,
    UFFD_FEATURE_SIGBUS, UFFD_FEATURE_WP_ASYNC, UFFD_FEATURE_WP_HUGETLBFS_SHMEM,
};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;

use crate::span::Span;
use crate::userfault::Userfault;

/// The features of userfaultfd that memory reservations need, with their first Linux versions.
const NEEDED: [(u32, &str); 5] = [
    (
        UFFD_FEATURE_PAGEFAULT_FLAG_WP,
        "write protection by userfaultfd (Linux 5.7, on x86-64 and aarch64)",
    ),
    (
        UFFD_FEATURE_MISSING_SHMEM,
        "userfaultfd on shared memory (Linux 4.11)",
    ),
    (
        UFFD_FEATURE_SIGBUS,
        "userfaultfd faults as signals (Linux 4.14)",
    ),
    (
        UFFD_FEATURE_MINOR_SHMEM,
        "minor faults of shared memory by userfaultfd (Linux 5.14)",
    ),
    (
        UFFD_FEATURE_WP_HUGETLBFS_SHMEM,
        "write protection of shared memory by userfaultfd (Linux 5.19)",
    ),
];

/// The optional features of this kernel for this user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Features {
    /// Writes can be tracked by the kernel alone (`UFFD_FEATURE_WP_ASYNC`, Linux 6.7). Not used:
    /// with it no write traps, and copy on write needs writes to trap.
    pub asynchronous_protection: bool,
    /// The process may lock any amount of memory (`CAP_IPC_LOCK`, or no `RLIMIT_MEMLOCK`).
    pub unlimited_locking: bool,
}

/// Something that memory reservations need is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("memory reservations need {what}, which this kernel or user does not have: {errno}")]
pub struct Unsupported {
    what: &'static str,
    errno: Errno,
}

impl Features {
    /// Probes the kernel's features for this user by trying them.
    ///
    /// # Errors
    /// [`Unsupported`] names what is missing.
    pub fn probe() -> Result<Features, Unsupported> {
        open().map(|(_, features)| features)
    }
}

/// Opens a userfaultfd with all that is needed, and tries it once.
pub(crate) fn open() -> Result<(Userfault, Features), Unsupported> {
    let userfault = Userfault::open().map_err(|errno| Unsupported {
        what: "userfaultfd for faults of user mode (Linux 5.11)",
        errno,
    })?;
    // A descriptor can be enabled once, so another one queries the features.
    let has = Userfault::open()
        .and_then(|asking| asking.enable(0))
        .map_err(|errno| Unsupported {
            what: "the interface of userfaultfd",
            errno,
        })?;
    let mut features = 0;
    for (feature, what) in NEEDED {
        if has & u64::from(feature) == 0 {
            let errno = Errno::NOTSUP;
            return Err(Unsupported { what, errno });
        }
        features |= u64::from(feature);
    }
    userfault.enable(features).map_err(|errno| Unsupported {
        what: "these features of userfaultfd together",
        errno,
    })?;
    try_protected_mapping(&userfault)?;
    let features = Features {
        asynchronous_protection: has & u64::from(UFFD_FEATURE_WP_ASYNC) != 0,
        unlimited_locking: locks_without_limit(),
    };
    Ok((userfault, features))
}

/// Mapping a page protected at once (Linux 6.4) has no feature bit of its own.
fn try_protected_mapping(userfault: &Userfault) -> Result<(), Unsupported> {
    let missing = |errno| Unsupported {
        what: "minor faults resolved with write protection (Linux 6.4)",
        errno,
    };
    let errno = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::INVAL);
    pass(Call::MakeFile).map_err(missing)?;
    let file = memfd_create("leasehold-probe", MemfdFlags::CLOEXEC).map_err(missing)?;
    pass(Call::Save).map_err(missing)?;
    rustix::io::pwrite(&file, &[1; crate::span::BYTES], 0).map_err(missing)?;
    let span = Span::allocate(1).map_err(|error| missing(errno(error)))?;
    let tried = span
        .map(std::os::fd::AsFd::as_fd(&file), 0)
        .and_then(|()| userfault.register(span, true))
        .map_err(errno)
        .and_then(|()| userfault.map_cached(span, true).map_err(|stop| stop.errno));
    let gone = span.unmap().map_err(errno);
    tried.and(gone).map_err(missing)
}

/// Returns whether locking memory is not limited for this process. Two system calls at the most.
pub(crate) fn locks_without_limit() -> bool {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock);
    let capable = rustix::thread::capabilities(None).is_ok_and(|sets| {
        sets.effective
            .contains(rustix::thread::CapabilitySet::IPC_LOCK)
    });
    limit.current.is_none() || capable
}
