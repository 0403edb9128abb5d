//! Time that the host takes from a cell's thread while it could run.
//!
//! Another thread of the host may have the processor: Linux's fair server takes 50 ms in one piece,
//! even from a thread with real-time priority. A hypervisor may have given the processor to another
//! machine. No tenant caused that time. Charged to the tenant that happened to run, a stall of 50
//! ms would cost a reservation of 2 ms in every 10 the budgets of 25 periods.
//!
//! The kernel reports how long the thread ran, and whether it blocked. A thread that neither
//! blocked nor ran was stalled. Where it blocked, as in a step that waits for a disk, stalls cannot
//! be told apart, and the tenant pays for all of the time.

use crate::clock::{monotonic_ns, thread_blocks, thread_cpu_ns};
use crate::dispatch::Dispatcher;
use leasehold_reserve::Nanos;

/// The shortest time between two queries of the kernel, which take less than 1 µs each.
const LOOK_NS: Nanos = 1_000_000;

/// The shortest stall: less may be an interrupt.
const LEAST_NS: Nanos = 100_000;

/// The kernel's account of a thread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Usage {
    /// For how long it ran, ns.
    ran_ns: Nanos,
    /// How often it blocked.
    blocked: i64,
}

impl Usage {
    /// Returns the calling thread's account as of now. (The times of `getrusage` are as old as the
    /// last tick.)
    fn of_thread() -> Self {
        Self {
            ran_ns: thread_cpu_ns(),
            blocked: thread_blocks(),
        }
    }
}

/// The state of stall detection for a cell's thread.
#[derive(Debug, Default)]
pub(crate) struct Stalls {
    /// The instant of the last query, on the monotonic clock, and its answer; `None` after the
    /// thread has slept.
    last: Option<(Nanos, Usage)>,
}

impl Stalls {
    /// Records that the thread sleeps or has slept: the time before the next query is no stall.
    pub(crate) const fn slept(&mut self) {
        self.last = None;
    }

    /// Records the start of a turn. The kernel is queried only if the thread has slept.
    pub(crate) fn begin(&mut self) {
        if self.last.is_none() {
            self.look(monotonic_ns());
        }
    }

    /// Excludes the time that the host has taken until `now` from the running tenant's charge. Called
    /// on the cell's thread, at the end of a turn.
    pub(crate) fn spare(&mut self, dispatcher: &mut Dispatcher, now: Nanos) {
        let stalled = self.look(now);
        if stalled > 0 {
            dispatcher.spare(stalled, now);
        }
    }

    /// Returns how long the thread was stalled since the last query, ns; 0 if that was less than
    /// [`LOOK_NS`] ago.
    fn look(&mut self, now: Nanos) -> Nanos {
        self.look_with(now, Usage::of_thread)
    }

    fn look_with(&mut self, now: Nanos, usage: impl FnOnce() -> Usage) -> Nanos {
        if self.last.is_some_and(|(at, _)| now < at + LOOK_NS) {
            return 0;
        }
        let usage = usage();
        let Some((at, before)) = self.last.replace((now, usage)) else {
            return 0;
        };
        if usage.blocked != before.blocked {
            return 0;
        }
        let stalled = (now - at).saturating_sub(usage.ran_ns.saturating_sub(before.ran_ns));
        match stalled < LEAST_NS {
            true => 0,
            false => stalled,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{LEAST_NS, LOOK_NS, Stalls, Usage, monotonic_ns, thread_cpu_ns};

    fn look(stalls: &mut Stalls, now: u64, ran_ns: u64, blocked: i64) -> u64 {
        stalls.look_with(now, || Usage { ran_ns, blocked })
    }

    #[test]
    fn a_thread_that_neither_ran_nor_blocked_was_stalled() {
        let mut stalls = Stalls::default();
        assert_eq!(look(&mut stalls, LOOK_NS, 7, 1), 0, "the first look");
        assert_eq!(look(&mut stalls, 3 * LOOK_NS, 7 + LOOK_NS, 1), LOOK_NS);
        assert_eq!(
            look(&mut stalls, 4 * LOOK_NS, 8 + 2 * LOOK_NS - LEAST_NS, 1),
            0,
            "next to all of the time it ran"
        );
    }

    #[test]
    fn a_thread_that_blocked_or_slept_is_not_said_to_have_been_stalled() {
        let mut stalls = Stalls::default();
        look(&mut stalls, LOOK_NS, 0, 1);
        assert_eq!(look(&mut stalls, 3 * LOOK_NS, 0, 2), 0, "it blocked");
        assert_eq!(look(&mut stalls, 5 * LOOK_NS, 0, 2), 2 * LOOK_NS);
        stalls.slept();
        assert_eq!(look(&mut stalls, 9 * LOOK_NS, 0, 2), 0, "it slept");
    }

    #[test]
    fn the_kernel_is_asked_once_in_a_millisecond() {
        let mut stalls = Stalls::default();
        look(&mut stalls, LOOK_NS, 0, 0);
        let asked = stalls.look_with(2 * LOOK_NS - 1, || panic!("asked too soon"));
        assert_eq!(asked, 0);
    }

    #[test]
    fn a_thread_is_not_spared_more_than_it_did_not_run() {
        let mut stalls = Stalls::default();
        let (began, ran) = (monotonic_ns(), thread_cpu_ns());
        let (mut now, mut stalled) = (began, stalls.look(began));
        while now < began + 200 * LOOK_NS {
            now = monotonic_ns();
            stalled += stalls.look(now);
        }
        // The time between the readings of the two clocks.
        let waited = (monotonic_ns() - began).saturating_sub(thread_cpu_ns() - ran) + LOOK_NS;
        assert!(stalled <= waited, "{stalled} of {waited} ns");
    }

    #[test]
    fn a_thread_that_runs_is_not_stalled_and_one_that_sleeps_has_blocked() {
        let mut stalls = Stalls::default();
        stalls.look(monotonic_ns());
        std::thread::sleep(std::time::Duration::from_millis(5));
        assert_eq!(stalls.look(monotonic_ns()), 0);
    }
}
