//! A thread's alarm: at its deadline, or on request, it makes the running guest yield.
//!
//! 1. *Set once, fires once.* An alarm that has fired is due until it is taken or set anew.
//! 2. *Never lost.* While it is due it comes again every [`RETRY_NS`], unless the guest is certain
//!    to yield: a deadline that falls between guest and host, or that a guest could not see, must
//!    not let the guest run for ever.
//! 3. *Setting it later costs nothing.* The timer keeps the earlier time; when that comes, the
//!    handler sets it to the time wanted. A cell whose guests block after some microseconds
//!    therefore makes no system call for each. For a guest that must not be interrupted by an
//!    earlier timer of others, the alarm is set [exactly](Alarm::set_exactly).
//!
//! The handler runs on the thread that owns the alarm, between two instructions of it, so that
//! what they share is relaxed atomics; other threads only send the signal, now or at a time
//! ([`Interrupter`]).

use crate::clock::monotonic_ns;
use crate::epoch::Epochs;
use crate::guest_code::GuestCode;
use crate::injected_yield;
use crate::timer::{self, Timer};
use std::cell::Cell;
use std::io;
use std::ptr;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How soon an alarm that is due comes again, ns. A shorter time would let signals consume the time
/// of a guest that makes host calls all the time.
pub const RETRY_NS: u64 = 100_000;

/// A time that does not come.
const NEVER: u64 = u64::MAX;

thread_local! {
    /// The alarm of this thread. Without a destructor, so that the handler may look at any time.
    static ALARM: Cell<*const Alarm> = const { Cell::new(ptr::null()) };
}

/// The way in which a running guest is made to yield.
#[derive(Debug)]
pub(super) enum YieldBy {
    /// By advancing the epoch of these engines.
    Epoch(Epochs),
    /// By changing where it continues, if it is in one of these functions.
    Inject(GuestCode),
}

/// The alarm of one thread.
#[derive(Debug)]
pub(super) struct Alarm {
    timer: Timer,
    /// The timer of other threads.
    _requests: Timer,
    yield_by: YieldBy,
    /// How often its signal has come.
    #[cfg(test)]
    signals: AtomicU64,
    /// When it is to fire.
    wanted: AtomicU64,
    /// When the timer's signal comes next; at most `wanted`.
    armed: AtomicU64,
    /// Whether `armed` is a retry.
    retrying: AtomicBool,
    /// Whether it is due.
    fired: AtomicBool,
    interrupter: Interrupter,
}

/// Makes an alarm due from any thread.
#[derive(Debug, Clone)]
pub struct Interrupter {
    request: Arc<Request>,
    thread: libc::pid_t,
}

/// What other threads ask for.
#[derive(Debug)]
struct Request {
    /// From when on the guest is to yield, ns of the monotonic clock.
    from: AtomicU64,
    /// Whether `timer` may be set.
    is_timed: AtomicBool,
    /// Sends the signal then. The alarm's.
    timer: timer::Number,
}

impl Interrupter {
    /// Makes the guest on the alarm's thread yield as soon as it can. Sends one signal.
    pub fn interrupt(&self) {
        self.request.from.store(0, Ordering::Release);
        timer::send(self.thread);
    }

    /// Makes the guest that runs on the alarm's thread at this time, ns of the monotonic clock, yield then, or as soon as
    /// it can if that has passed, unless the alarm is set anew before. One system call.
    pub fn interrupt_at(&self, at_ns: u64) {
        self.request.from.fetch_min(at_ns, Ordering::AcqRel);
        self.request.is_timed.store(true, Ordering::Release);
        self.request.timer.set(at_ns);
    }
}

impl Request {
    /// Whether it has been asked for what is due now; it is then forgotten.
    fn take(&self, now: u64) -> bool {
        let from = self.from.load(Ordering::Acquire);
        from <= now && {
            self.from.store(NEVER, Ordering::Relaxed);
            true
        }
    }

    /// Forgets what was asked for a time that has not come.
    #[inline]
    fn cancel(&self) {
        if self.is_timed.load(Ordering::Acquire) {
            self.is_timed.store(false, Ordering::Relaxed);
            if self.from.swap(NEVER, Ordering::AcqRel) != NEVER {
                self.timer.unset();
            }
        }
    }
}

impl Alarm {
    /// An alarm for the calling thread, which must have none; not set. The handler reaches it by
    /// its address, hence the box.
    ///
    /// # Errors
    /// When the system refuses a timer or a signal handler.
    pub(super) fn new(yield_by: YieldBy) -> io::Result<Box<Self>> {
        static INSTALLED: OnceLock<Result<(), i32>> = OnceLock::new();
        INSTALLED
            .get_or_init(|| {
                timer::install(on_signal).map_err(|error| error.raw_os_error().unwrap_or(0))
            })
            .map_err(io::Error::from_raw_os_error)?;
        let requests = Timer::new()?;
        let alarm = Box::new(Self {
            timer: Timer::new()?,
            yield_by,
            #[cfg(test)]
            signals: AtomicU64::new(0),
            wanted: AtomicU64::new(NEVER),
            armed: AtomicU64::new(NEVER),
            retrying: AtomicBool::new(false),
            fired: AtomicBool::new(false),
            interrupter: Interrupter {
                request: Arc::new(Request {
                    from: AtomicU64::new(NEVER),
                    is_timed: AtomicBool::new(false),
                    timer: requests.number(),
                }),
                thread: timer::this_thread(),
            },
            _requests: requests,
        });
        ALARM.set(&raw const *alarm);
        Ok(alarm)
    }

    /// Sets it to a time, ns of the monotonic clock, or switches it off; it is then not due. Some
    /// nanoseconds; a system call when the time is earlier than the one before.
    #[inline]
    pub(super) fn set(&self, at: Option<u64>) {
        let at = self.want(at);
        let retrying = self.retrying.load(Ordering::Relaxed) && at != NEVER;
        if at < self.armed.load(Ordering::Relaxed) || retrying {
            self.arm(at, false);
        }
    }

    /// The same, but no signal arrives before that time. Makes a system call whenever the time
    /// differs from the previous one.
    #[inline]
    pub(super) fn set_exactly(&self, at: Option<u64>) {
        let at = self.want(at);
        if at != NEVER && at != self.armed.load(Ordering::Relaxed) {
            self.arm(at, false);
        }
    }

    #[inline]
    fn want(&self, at: Option<u64>) -> u64 {
        let at = at.unwrap_or(NEVER);
        // A request for a later time was for the guest that has left.
        self.interrupter.request.cancel();
        // In this order: a deadline that has passed meanwhile must not count for the new one.
        self.wanted.store(at, Ordering::Relaxed);
        self.fired.store(false, Ordering::Relaxed);
        at
    }

    /// Sets it to an earlier time; a later one changes nothing. Unlike [`set`](Self::set) it keeps
    /// a due alarm due: a request that arrives while a guest's host call determines its next yield
    /// is for that yield.
    fn advance(&self, at: u64) {
        if at < self.wanted.load(Ordering::Relaxed) {
            self.wanted.store(at, Ordering::Relaxed);
            if at < self.armed.load(Ordering::Relaxed) {
                self.arm(at, false);
            }
        }
    }

    /// Whether it is due.
    #[inline]
    pub(super) fn fired(&self) -> bool {
        self.fired.load(Ordering::Relaxed)
    }

    /// Returns whether it was due, and clears and unsets it.
    #[inline]
    pub(super) fn take(&self) -> bool {
        let fired = self.fired();
        if fired {
            self.set(None);
        }
        fired
    }

    /// The way in which guests are made to yield.
    #[inline]
    pub(super) fn yield_by(&self) -> &YieldBy {
        &self.yield_by
    }

    /// Makes it due from other threads.
    pub(super) fn interrupter(&self) -> &Interrupter {
        &self.interrupter
    }

    fn arm(&self, at: u64, retrying: bool) {
        self.retrying.store(retrying, Ordering::Relaxed);
        self.armed.store(at, Ordering::Relaxed);
        if at != NEVER {
            self.timer.set(at);
        }
    }

    /// The signal has come, on this thread. Neither allocates nor locks.
    fn ring(&self, context: *mut libc::c_void) {
        #[cfg(test)]
        self.signals.fetch_add(1, Ordering::Relaxed);
        let now = monotonic_ns();
        let wanted = self.wanted.load(Ordering::Relaxed);
        let requested = self.interrupter.request.take(now);
        if requested || wanted <= now {
            self.fired.store(true, Ordering::Relaxed);
        }
        if !self.fired() {
            self.arm(wanted, false);
            return;
        }
        let certain = match &self.yield_by {
            YieldBy::Epoch(epochs) => epochs.tick(),
            // SAFETY: the context that the signal handler of this thread was given.
            YieldBy::Inject(code) => unsafe { injected_yield::interrupt(context, code) },
        };
        if certain {
            self.arm(NEVER, false);
        } else {
            self.arm(now + RETRY_NS, true);
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        // A signal that is still on its way finds no alarm.
        ALARM.set(ptr::null());
    }
}

/// Does something with this thread's alarm, if it has one.
#[inline]
fn with<R>(act: impl FnOnce(&Alarm) -> R) -> Option<R> {
    // SAFETY: the alarm takes itself out of `ALARM` before it is gone, and is not moved: it is in a box.
    unsafe { ALARM.get().as_ref() }.map(act)
}

/// Makes the guest on this thread yield when its present host call returns.
#[inline]
pub fn request() {
    with(|alarm| alarm.interrupter.interrupt());
}

/// Whether a signal has interrupted the guest on this thread between two of its instructions, so that it can be
/// [suspended](suspend). Neither allocates nor locks.
///
/// # Safety
/// To be called in a signal handler on the thread that it interrupted, with the context that the handler was given.
pub unsafe fn can_suspend(context: *const libc::c_void) -> bool {
    with(|alarm| match &alarm.yield_by {
        YieldBy::Epoch(_) => false,
        // SAFETY: the caller's promise.
        YieldBy::Inject(code) => unsafe { injected_yield::can_suspend(context, code) },
    })
    .unwrap_or(false)
}

/// Makes the guest on this thread yield before it goes on, with the instruction that was interrupted. Neither allocates
/// nor locks.
///
/// # Safety
/// To be called in a signal handler that [`can_suspend`] has said yes to, with the same context.
pub unsafe fn suspend(context: *mut libc::c_void) {
    // SAFETY: the caller's promise.
    unsafe { injected_yield::suspend(context) };
}

/// Takes this thread's alarm, as [`Alarm::take`] does.
#[cfg(test)]
pub(super) fn take_request() -> bool {
    with(Alarm::take).unwrap_or(false)
}

/// Makes the guest on this thread yield at this time, ns of the monotonic clock, or earlier if that
/// was set.
#[inline]
pub fn no_later_than(at: u64) {
    with(|alarm| {
        if !alarm.fired() {
            alarm.advance(at);
        }
    });
}

/// Whether this thread's alarm is due.
#[inline]
pub fn fired() -> bool {
    with(Alarm::fired).unwrap_or(false)
}

extern "C" fn on_signal(
    _signal: libc::c_int,
    _info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    with(|alarm| {
        // SAFETY: the address of this thread's `errno`, which the code that was interrupted may be
        // about to read.
        let errno = unsafe { &mut *libc::__errno_location() };
        let before = *errno;
        alarm.ring(context);
        *errno = before;
    });
}

#[cfg(test)]
mod tests {
    use super::{Alarm, Epochs, Ordering, YieldBy};
    use crate::clock::monotonic_ns;

    const SHORT: u64 = 1_000_000;
    const LONG: u64 = 3_600_000_000_000;

    fn alarm() -> Box<Alarm> {
        Alarm::new(YieldBy::Epoch(Epochs::default())).expect("the system has a timer")
    }

    fn wait_until_due(alarm: &Alarm) {
        while !alarm.fired() {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn an_alarm_is_due_at_its_time_and_not_before() {
        let alarm = alarm();
        let at = monotonic_ns() + SHORT;
        alarm.set(Some(at));
        wait_until_due(&alarm);
        assert!(monotonic_ns() >= at);
        assert!(alarm.take());
        assert!(!alarm.take(), "once");
    }

    #[test]
    fn an_alarm_that_is_due_stays_so_when_it_is_advanced() {
        let alarm = alarm();
        alarm.set(Some(monotonic_ns() + LONG));
        // A request from another thread, just after it was seen that there is none.
        alarm.interrupter().interrupt();
        wait_until_due(&alarm);
        alarm.advance(monotonic_ns() + LONG / 2);
        assert!(alarm.take(), "the request is not forgotten");
    }

    #[test]
    fn a_later_time_replaces_an_earlier_one() {
        let alarm = alarm();
        alarm.set(Some(monotonic_ns() + SHORT));
        let later = monotonic_ns() + 5 * SHORT;
        alarm.set(Some(later));
        wait_until_due(&alarm);
        assert!(monotonic_ns() >= later);
    }

    #[test]
    fn no_signal_comes_before_a_time_that_was_set_exactly() {
        let alarm = alarm();
        let signals = || alarm.signals.load(Ordering::Relaxed);
        let at = monotonic_ns() + 20 * SHORT;
        alarm.set(Some(at - 10 * SHORT));
        alarm.set_exactly(Some(at));
        loop {
            let early = signals();
            if monotonic_ns() >= at {
                break;
            }
            assert_eq!(early, 0);
        }
        wait_until_due(&alarm);
        // After one that was only set, the timer still comes when it was to come before.
        alarm.take();
        let before = signals();
        let at = monotonic_ns() + 10 * SHORT;
        alarm.set_exactly(Some(at));
        alarm.set(Some(at + LONG));
        while signals() == before {
            std::hint::spin_loop();
        }
        assert!(!alarm.fired());
    }

    #[test]
    fn an_earlier_time_replaces_a_later_one() {
        let alarm = alarm();
        alarm.set(Some(monotonic_ns() + LONG));
        alarm.set(Some(monotonic_ns() + SHORT));
        wait_until_due(&alarm);
    }

    #[test]
    fn a_time_that_has_passed_is_due_at_once() {
        let alarm = alarm();
        alarm.set(Some(1));
        wait_until_due(&alarm);
    }

    #[test]
    fn an_alarm_that_was_switched_off_does_not_come() {
        let alarm = alarm();
        alarm.set(Some(monotonic_ns() + SHORT));
        alarm.set(None);
        let end = monotonic_ns() + 5 * SHORT;
        while monotonic_ns() < end {
            assert!(!alarm.fired());
        }
    }

    #[test]
    fn another_thread_makes_it_due() {
        let alarm = alarm();
        alarm.set(Some(monotonic_ns() + LONG));
        let interrupter = alarm.interrupter().clone();
        let other = std::thread::spawn(move || interrupter.interrupt());
        wait_until_due(&alarm);
        other.join().expect("it only sends a signal");
    }

    #[test]
    fn another_thread_makes_it_due_at_a_time_unless_it_is_set_anew_before() {
        let alarm = alarm();
        let interrupter = alarm.interrupter().clone();
        let ask = |at| {
            let interrupter = interrupter.clone();
            let asked = std::thread::spawn(move || interrupter.interrupt_at(at));
            asked.join().expect("it ends");
        };
        alarm.set_exactly(Some(monotonic_ns() + LONG));
        let at = monotonic_ns() + 20 * SHORT;
        ask(at);
        wait_until_due(&alarm);
        assert!(monotonic_ns() >= at);
        let signals = || alarm.signals.load(Ordering::Relaxed);
        // The guest that it was for has left: no signal comes for another one.
        alarm.set_exactly(Some(monotonic_ns() + LONG));
        ask(monotonic_ns() + 20 * SHORT);
        alarm.set_exactly(Some(monotonic_ns() + LONG));
        let before = signals();
        std::thread::sleep(std::time::Duration::from_millis(40));
        assert!(!alarm.fired());
        assert_eq!(signals(), before);
        // A time that has passed is now.
        ask(monotonic_ns() - SHORT);
        wait_until_due(&alarm);
    }

    #[test]
    fn an_interruption_after_the_alarm_is_gone_does_nothing() {
        let interrupter = alarm().interrupter().clone();
        interrupter.interrupt();
    }
}
