//! The answer of a host function: success, an errno for the guest, or the end of the guest.

use rustix::io::Errno as HostErrno;
use wasmtime_wasi::p1::types::Errno;

/// Why a host function failed.
#[derive(Debug)]
pub(crate) enum Fail {
    /// The guest is told.
    Errno(Errno),
    /// The guest ends.
    Trap(wasmtime::Error),
}

/// The answer of a host function.
pub(crate) type Answer<T = ()> = Result<T, Fail>;

impl Fail {
    /// Returns the failure of a pointer outside the guest's memory, or not aligned: a trap, as the
    /// specification of preview 1 says.
    #[cold]
    pub(crate) fn pointer(pointer: u32, length: u64) -> Self {
        Self::Trap(wasmtime::Error::msg(format!(
            "a pointer of a host call is misaligned or out of bounds: {length} bytes at {pointer}"
        )))
    }
}

impl From<Errno> for Fail {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

impl From<HostErrno> for Fail {
    fn from(errno: HostErrno) -> Self {
        Self::Errno(errno_of(errno))
    }
}

impl From<wasmtime::Error> for Fail {
    fn from(error: wasmtime::Error) -> Self {
        Self::Trap(error)
    }
}

/// Converts an answer to the guest's result: the number of an errno, 0 for none.
///
/// # Errors
/// When the guest ends.
pub(crate) fn to_guest(answer: Answer) -> wasmtime::Result<i32> {
    match answer {
        Ok(()) => Ok(Errno::Success as i32),
        Err(Fail::Errno(errno)) => Ok(errno as i32),
        Err(Fail::Trap(error)) => Err(error),
    }
}

/// Returns the errno of preview 1 for one of the host's: that of `wasmtime-wasi`, and three more that say that
/// a limit was reached.
pub(crate) fn errno_of(errno: HostErrno) -> Errno {
    match errno {
        HostErrno::PIPE => Errno::Pipe,
        // A path that leads outside the directory.
        HostErrno::PERM | HostErrno::XDEV => Errno::Perm,
        HostErrno::NOENT => Errno::Noent,
        HostErrno::NOMEM => Errno::Nomem,
        HostErrno::BADF => Errno::Badf,
        HostErrno::BUSY => Errno::Busy,
        HostErrno::ACCESS => Errno::Acces,
        HostErrno::NOTDIR => Errno::Notdir,
        HostErrno::ISDIR => Errno::Isdir,
        HostErrno::INVAL => Errno::Inval,
        HostErrno::EXIST => Errno::Exist,
        HostErrno::FBIG => Errno::Fbig,
        HostErrno::NOSPC => Errno::Nospc,
        HostErrno::SPIPE => Errno::Spipe,
        HostErrno::MLINK => Errno::Mlink,
        HostErrno::NAMETOOLONG => Errno::Nametoolong,
        HostErrno::NOTEMPTY => Errno::Notempty,
        HostErrno::LOOP => Errno::Loop,
        HostErrno::OVERFLOW => Errno::Overflow,
        HostErrno::ILSEQ => Errno::Ilseq,
        HostErrno::NOTSUP => Errno::Notsup,
        HostErrno::ALREADY => Errno::Already,
        HostErrno::INPROGRESS => Errno::Inprogress,
        HostErrno::INTR => Errno::Intr,
        HostErrno::DQUOT => Errno::Dquot,
        HostErrno::MFILE => Errno::Mfile,
        HostErrno::NFILE => Errno::Nfile,
        _ => Errno::Io,
    }
}
