//! Time that the host takes from a cell's thread while it could run.
//!
//! Another thread of the host may have the processor, which Linux gives even a thread with real-time priority no
//! say in (its fair server takes 50 ms in one piece), and a hypervisor may have given it to another machine. No
//! tenant asked for that time. Charged to the tenant that happened to run, a stall of 50 ms would cost a
//! reservation of 2 ms in every 10 the budgets of 25 periods.
//!
//! The kernel tells what the thread has run (`getrusage`), and whether it blocked. A thread that did not block and
//! did not run was stalled. Where it blocked, as a step does that waits for a disk, nothing is known of
//! stalls, and the tenant pays for all of the time.

use crate::clock::monotonic_ns;
use leasehold_reserve::Nanos;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

/// Time between two looks at what the thread has run, at the least: so a look, of some 300 ns, is next to nothing.
const LOOK_NS: Nanos = 1_000_000;

/// What is shorter is no stall: it may be an interrupt, and the kernel tells microseconds.
const LEAST_NS: Nanos = 100_000;

/// What the kernel tells of a thread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Usage {
    /// For how long it ran, ns.
    ran_ns: Nanos,
    /// How often it blocked.
    blocked: i64,
}

impl Usage {
    /// The calling thread's.
    fn of_thread() -> Option<Self> {
        let usage = getrusage(UsageWho::RUSAGE_THREAD).ok()?;
        let ran = usage.user_time() + usage.system_time();
        Some(Self {
            ran_ns: Nanos::try_from(ran.num_microseconds()).ok()? * 1_000,
            blocked: usage.voluntary_context_switches(),
        })
    }
}

/// What is known of the stalls of a cell's thread.
#[derive(Debug, Default)]
pub(crate) struct Stalls {
    /// When the thread was last looked at, on the monotonic clock, and how it was then; `None` after it has slept.
    last: Option<(Nanos, Usage)>,
}

impl Stalls {
    /// The thread sleeps, or has slept: time before the next look is nobody's stall.
    pub(crate) const fn slept(&mut self) {
        self.last = None;
    }

    /// A turn begins. Nothing is asked of the kernel unless the thread has slept.
    pub(crate) fn begin(&mut self) {
        if self.last.is_none() {
            self.look(monotonic_ns());
        }
    }

    /// For how long the thread was stalled since the last look, ns; 0 if that was a moment ago. To be called on the
    /// cell's thread, when a turn is over.
    pub(crate) fn look(&mut self, now: Nanos) -> Nanos {
        self.look_with(now, Usage::of_thread)
    }

    fn look_with(&mut self, now: Nanos, usage: impl FnOnce() -> Option<Usage>) -> Nanos {
        if self.last.is_some_and(|(at, _)| now < at + LOOK_NS) {
            return 0;
        }
        let usage = usage();
        let last = std::mem::replace(&mut self.last, usage.map(|usage| (now, usage)));
        let (Some((at, before)), Some(usage)) = (last, usage) else {
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
    use super::{LEAST_NS, LOOK_NS, Stalls, Usage, monotonic_ns};

    fn look(stalls: &mut Stalls, now: u64, ran_ns: u64, blocked: i64) -> u64 {
        stalls.look_with(now, || Some(Usage { ran_ns, blocked }))
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
    fn a_thread_that_runs_is_not_stalled_and_one_that_sleeps_has_blocked() {
        let mut stalls = Stalls::default();
        stalls.look(monotonic_ns());
        std::thread::sleep(std::time::Duration::from_millis(5));
        assert_eq!(stalls.look(monotonic_ns()), 0);
    }
}
