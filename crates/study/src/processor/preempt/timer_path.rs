//! Measures the host's time from a timer's expiry to the first instruction of a signal handler.
//!
//! Every mechanism with a timer pays this time: the hardware timer, the hypervisor if there is one,
//! the kernel, and the delivery of the signal. It depends on the running program, whose data evict
//! the kernel's from the caches. So it is measured while the same guest runs undisturbed.

use std::ffi::c_void;
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, anyhow};
use leasehold_cell::clock::monotonic_ns;

use crate::harness::samples::Samples;

/// Latencies that are kept of one stretch.
const MOST: usize = 1 << 12;

// The data of the handler; one stretch is measured at a time.
static ONE: Mutex<()> = Mutex::new(());
static TIMER: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static DUE: AtomicU64 = AtomicU64::new(0);
static PERIOD: AtomicU64 = AtomicU64::new(0);
static COUNT: AtomicUsize = AtomicUsize::new(0);
static LATENCIES: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];

/// Records how late it is, and sets the timer again.
extern "C" fn handle(_signal: libc::c_int) {
    let now = monotonic_ns();
    let (due, period) = (DUE.load(Relaxed), PERIOD.load(Relaxed));
    if period == 0 {
        return;
    }
    if let Some(latency) = LATENCIES.get(COUNT.load(Relaxed)) {
        latency.store(now.saturating_sub(due), Relaxed);
        COUNT.fetch_add(1, Relaxed);
    }
    set(now + period);
}

/// Sets the timer to a time, ns of the monotonic clock; 0 switches it off.
fn set(due: u64) {
    DUE.store(due, Relaxed);
    let zero = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let once = libc::itimerspec {
        it_interval: zero,
        it_value: libc::timespec {
            tv_sec: (due / 1_000_000_000) as libc::time_t,
            tv_nsec: (due % 1_000_000_000) as libc::c_long,
        },
    };
    // SAFETY: the timer exists while `during` runs, and the time is valid for the call.
    unsafe {
        libc::timer_settime(
            TIMER.load(Relaxed),
            libc::TIMER_ABSTIME,
            &raw const once,
            ptr::null_mut(),
        )
    };
}

/// Does something on this thread while a timer signals it every `period_ns`; how late the handler
/// was each time.
///
/// # Errors
/// When the system refuses a timer.
pub(super) fn during<R>(period_ns: u64, work: impl FnOnce() -> R) -> Result<(R, Samples)> {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    // Not the one of a cell.
    let signal = libc::SIGRTMIN() + 6;
    // SAFETY: all-zero is a valid value of both structures.
    let (mut action, mut event): (libc::sigaction, libc::sigevent) =
        unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    action.sa_sigaction = handle as *const () as usize;
    action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
    event.sigev_notify = libc::SIGEV_THREAD_ID;
    event.sigev_signo = signal;
    let mut timer = ptr::null_mut();
    // SAFETY: the pointers are valid for the calls; the handler may run at any time.
    let made = unsafe {
        event.sigev_notify_thread_id = libc::gettid();
        libc::sigaction(signal, &raw const action, ptr::null_mut()) == 0
            && libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) == 0
    };
    if !made {
        let error = io::Error::last_os_error();
        return Err(anyhow!("a timer: {error}"));
    }
    TIMER.store(timer, Relaxed);
    COUNT.store(0, Relaxed);
    PERIOD.store(period_ns, Relaxed);
    set(monotonic_ns() + period_ns);
    let result = work();
    PERIOD.store(0, Relaxed);
    set(0);
    // SAFETY: made above, deleted once; the handler no longer uses it.
    unsafe { libc::timer_delete(timer) };
    let latencies = LATENCIES[..COUNT.load(Relaxed)].iter();
    Ok((result, latencies.map(|ns| ns.load(Relaxed)).collect()))
}
