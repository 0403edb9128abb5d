//! Copies of a process, and what a copy does first.

use crate::process::{ConfineError, check_one_thread, system};
use rustix::fd::{FromRawFd as _, IntoRawFd as _, OwnedFd};
use rustix::process::{Pid, Signal, set_parent_process_death_signal};
use std::io;

/// Which of the two processes this is.
pub(crate) enum Fork {
    /// The one that was there.
    Original(Pid),
    /// The new one.
    Copy,
}

/// What says whether a process has one thread still.
pub(crate) struct OneThread {
    /// Where the kernel shows its threads.
    threads: OwnedFd,
    /// The links of that directory: one more for each thread.
    links: u64,
}

impl OneThread {
    /// Of this process, which may read `/proc` yet.
    ///
    /// # Errors
    /// When it has another thread than the calling one.
    pub(crate) fn of_process() -> Result<Self, ConfineError> {
        let failed = || system("counting threads");
        let threads = std::fs::File::open("/proc/self/task")
            .map_err(failed())?
            .into();
        let links = links(&threads).map_err(failed())?;
        check_one_thread()?;
        Ok(Self { threads, links })
    }

    /// Makes a copy of this process, which ends at once when this thread does.
    ///
    /// # Errors
    /// The system's; `ResourceBusy` if the process has another thread: a lock that it held would be held in the copy for
    /// ever.
    pub(crate) fn fork(&self) -> io::Result<Fork> {
        if links(&self.threads)? != self.links {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        let original = rustix::process::getpid();
        // SAFETY: the process has one thread, so that the copy may do whatever the original may.
        let pid = unsafe { libc::fork() };
        if pid < 0 {
            return Err(io::Error::last_os_error());
        }
        match Pid::from_raw(pid) {
            Some(copy) => Ok(Fork::Original(copy)),
            None => {
                let ends = set_parent_process_death_signal(Some(Signal::KILL));
                // The original may have ended before.
                if ends.is_err() || rustix::process::getppid() != Some(original) {
                    exit(1);
                }
                Ok(Fork::Copy)
            }
        }
    }
}

fn links(directory: &OwnedFd) -> io::Result<u64> {
    Ok(rustix::fs::fstat(directory)?.st_nlink as u64)
}

/// Starts a copy of this process that has no descriptors but this one and standard error, and does `work` with it: it uses
/// no other, and ends when it returns.
///
/// # Errors
/// When the process has another thread, or the system refuses it.
pub(crate) fn start(
    descriptor: OwnedFd,
    work: impl FnOnce(OwnedFd) -> i32,
) -> Result<Pid, ConfineError> {
    let forked = OneThread::of_process()?.fork();
    match forked.map_err(system("a process for jobs"))? {
        Fork::Original(copy) => Ok(copy),
        // SAFETY: nothing that has another descriptor is used or dropped: `exit` does not return.
        Fork::Copy => exit(match unsafe { keep_only(descriptor) } {
            Ok(kept) => work(kept),
            Err(_) => 1,
        }),
    }
}

/// Ends the process without what it would do at its end: a copy would do that a second time.
pub(crate) fn exit(code: i32) -> ! {
    // SAFETY: the call does not return.
    unsafe { libc::_exit(code) }
}

/// Where the only descriptor is that a copy keeps, beside those of standard streams.
const KEPT: i32 = 3;

/// Closes every descriptor but the standard ones and this one, and leaves of the standard ones the errors.
///
/// # Errors
/// The system's.
///
/// # Safety
/// Nothing that has one of the others is used or dropped from here on.
unsafe fn keep_only(descriptor: OwnedFd) -> io::Result<OwnedFd> {
    let nowhere = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    rustix::stdio::dup2_stdin(&nowhere)?;
    rustix::stdio::dup2_stdout(&nowhere)?;
    drop(nowhere);
    let kept = match descriptor.into_raw_fd() {
        // SAFETY: its owner has just given it up.
        KEPT => unsafe { OwnedFd::from_raw_fd(KEPT) },
        other => {
            // SAFETY: as this function's: whatever has the number is used no more.
            if unsafe { libc::dup3(other, KEPT, libc::O_CLOEXEC) } < 0 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: the number is that of the copy just made.
            unsafe { OwnedFd::from_raw_fd(KEPT) }
        }
    };
    // SAFETY: as this function's.
    match unsafe { libc::syscall(libc::SYS_close_range, KEPT + 1, u32::MAX, 0) } {
        0 => Ok(kept),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Ignores the signals by which people and supervisors end the process that started this one, which ends it.
pub(crate) fn outlive_interruptions() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
        // SAFETY: no handler is installed.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}
