//! A one-shot timer of the kernel that signals one thread.
//!
//! A timer of its own for each cell, with an absolute time on the clock that reservations count
//! in, and `SIGEV_THREAD_ID`: the signal goes to the cell's thread and to no other. So there is no
//! ticker thread that competes with the cell for the processor, and nothing happens between two
//! deadlines.

use leasehold_door::{Call, pass};
use std::io;
use std::ptr;

/// The signal that a cell's timer sends. A real-time signal, which libraries and runtimes use less
/// often than the classic ones.
pub(super) fn signal() -> libc::c_int {
    libc::SIGRTMIN() + 7
}

/// A timer for the thread that made it.
#[derive(Debug)]
pub(super) struct Timer {
    number: Number,
}

/// The kernel's number of a timer, by which other threads of the process set it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Number(libc::timer_t);

// SAFETY: the kernel's numbers are only passed to it; the type is a pointer for the C library's sake.
unsafe impl Send for Number {}
// SAFETY: as above.
unsafe impl Sync for Number {}

impl Timer {
    /// A timer that is not set.
    ///
    /// # Errors
    /// The system's, when it refuses another timer.
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: all-zero is a valid value of this structure of integers and pointers.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = signal();
        event.sigev_notify_thread_id = this_thread();
        let mut id = ptr::null_mut();
        pass(Call::MakeTimer)?;
        // SAFETY: both pointers are valid for the call.
        let result = unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut id) };
        if result == 0 {
            Ok(Self { number: Number(id) })
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// Its number. A timer that is gone cannot be set.
    pub(super) fn number(&self) -> Number {
        self.number
    }

    /// Sets it, as [`Number::set`] does.
    pub(super) fn set(&self, at_ns: u64) {
        self.number.set(at_ns);
    }
}

impl Number {
    /// Has the signal sent at this time, ns of the monotonic clock, instead of when it was set to
    /// before; at once if that has passed. One system call; may be called from a signal handler.
    pub(super) fn set(&self, at_ns: u64) {
        self.set_to(libc::timespec {
            tv_sec: (at_ns / 1_000_000_000) as libc::time_t,
            // Zero would switch it off.
            tv_nsec: (at_ns % 1_000_000_000).max(1) as libc::c_long,
        });
    }

    /// Switches it off. One system call.
    pub(super) fn unset(&self) {
        self.set_to(libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        });
    }

    fn set_to(&self, at: libc::timespec) {
        let once = libc::itimerspec {
            it_interval: libc::timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: at,
        };
        // SAFETY: `once` is valid for the call, which fails for no other reason than that the timer is gone.
        unsafe { libc::timer_settime(self.0, libc::TIMER_ABSTIME, &once, ptr::null_mut()) };
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: made by `new` and deleted once.
        unsafe { libc::timer_delete(self.number.0) };
    }
}

/// The kernel's identifier of the calling thread.
pub(super) fn this_thread() -> libc::pid_t {
    rustix::thread::gettid().as_raw_nonzero().get()
}

/// Sends the timer's signal to a thread of this process now. No effect if it has ended.
pub(super) fn send(thread: libc::pid_t) {
    // SAFETY: plain integers; the handler was installed before the thread's number is published.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, signal()) };
}

/// Installs `handler` for the timer's signal, on the alternate stack if the thread has one.
///
/// The signal is masked while the handler runs: with `SA_NODEFER`, a deadline in the past would
/// pile up frames until the alternate stack overflows.
///
/// # Errors
/// The system's.
pub(super) fn install(
    handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void),
) -> io::Result<()> {
    // SAFETY: all-zero is a valid value: an empty mask and no flags.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: the action is valid for the call, and the handler has the signature that
    // `SA_SIGINFO` promises.
    if unsafe { libc::sigaction(signal(), &action, ptr::null_mut()) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
