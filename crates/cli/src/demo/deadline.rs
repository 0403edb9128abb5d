//! The deadlines of the demonstration's ends: one tenant is killed at a time.

use crate::overhead::HostTime;
use anyhow::Context;
use leasehold_cell::profile::Profile;
use leasehold_cell::steps::{Reach, RowBounds};
use leasehold_cell::{KillDelay, Program, kill_bound, reservation_for_ends};
use leasehold_reserve::admission::admit;
use leasehold_reserve::{Contract, Order};
use leasehold_study::rogue::{Attack, GuestEnd, lease};
use std::path::Path;
use std::time::Duration;

/// The order in which a cell runs unless it is told otherwise.
const ORDER: Order = Order::FixedPriority;

/// The bound on the ends of a cell's background tenants that are killed one after the other.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadlines {
    delay: KillDelay,
    /// The reservation for ends.
    ends: Option<Contract>,
    overhead: leasehold_reserve::admission::Overhead,
    background: Contract,
}

impl Deadlines {
    /// The deadlines in a cell of these guests.
    ///
    /// # Errors
    /// If no lease can state the budget of a guest.
    pub(super) fn of<'a>(
        guests: impl Iterator<Item = &'a Attack>,
        directory: &Path,
        profile: &Profile,
    ) -> anyhow::Result<Self> {
        let bounds = RowBounds::calibrated(profile);
        let mut longest_step_ns = 0;
        for guest in guests {
            let lease = lease(guest.budget).context(guest.name)?;
            let reach = Program::reach_in(&directory.join(guest.file), None);
            let reach = reach.unwrap_or_else(|_| Reach::any());
            longest_step_ns = longest_step_ns.max(reach.longest_under(&bounds, &lease).1);
        }
        let preemption = HostTime::of_preemption(None, Some(profile));
        let (overhead, background) = (preemption.overhead(), Contract::background(longest_step_ns));
        Ok(Self {
            delay: KillDelay {
                longest_step_ns,
                preemption_ns: preemption.time().get(),
                kills: 1,
                kill_ns: profile.kill_ns(),
                host_ns: profile.added_ns(),
            },
            ends: reservation_for_ends(&[background], longest_step_ns, ORDER, overhead),
            overhead,
            background,
        })
    }

    /// The reservation that the cell needs for ends.
    pub(super) fn ends(&self) -> Option<Contract> {
        self.ends
    }

    /// How long an end with this reclamation budget takes at most from the kill until everything is
    /// returned, ns of wall time; `None` if nothing bounds it.
    pub(super) fn within_ns(&self, budget: Duration) -> Option<u64> {
        let ends = self.ends.as_ref()?;
        let report = admit(&[self.background, *ends], ORDER, self.overhead);
        let supply = (ends, report.servers.last()?);
        let budget_ns = u64::try_from(budget.as_nanos()).ok()?;
        kill_bound(&self.delay, ORDER, supply, budget_ns)
    }

    /// Whether an end kept its budget of processor time and its deadline on the wall's clock; an end in
    /// stock wasmtime has neither.
    pub(super) fn verdict(&self, guest_end: &GuestEnd, budget: Duration) -> Verdict {
        let budget_ns = u64::try_from(budget.as_nanos()).unwrap_or(u64::MAX);
        let Some(cost) = guest_end.reclaimed else {
            return Verdict::Kept;
        };
        let late_ns = self
            .within_ns(budget)
            .map_or(0, |most| cost.returned.wall_ns.saturating_sub(most));
        match (cost.returned.cpu_ns <= budget_ns, late_ns) {
            (true, 0) => Verdict::Kept,
            (true, late_ns) if guest_end.taken.explains(late_ns) => Verdict::HostTook,
            _ => Verdict::Broken,
        }
    }
}

/// The outcome of a deadline.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verdict {
    #[default]
    Kept,
    /// The end was late on the clock, and by no more than the host had taken the processor for: the cell of the
    /// demonstration has no real-time priority, as stock wasmtime's threads have none.
    HostTook,
    Broken,
}

#[cfg(test)]
mod tests {
    use super::{Deadlines, Verdict};
    use leasehold_cell::Reclaimed;
    use leasehold_cell::clock::Elapsed;
    use leasehold_cell::profile::Profile;
    use leasehold_study::neighbour::Interval;
    use leasehold_study::rogue::{Attack, GuestEnd};
    use leasehold_study::taken::Taken;
    use std::path::Path;
    use std::time::Duration;

    const BUDGET: Duration = Duration::from_millis(20);

    fn deadlines() -> Deadlines {
        let guest = Attack::new("spin", "spin.wasm", "").within(BUDGET);
        Deadlines::of([guest].iter(), Path::new("none"), &Profile::free()).expect("deadlines")
    }

    fn guest_end(cpu_ns: u64, wall_ns: u64) -> GuestEnd {
        let reclaimed = Reclaimed {
            returned: Elapsed { cpu_ns, wall_ns },
            ..Reclaimed::default()
        };
        GuestEnd {
            ending: Interval {
                start_ns: 0,
                end_ns: wall_ns,
            },
            end_ns: wall_ns,
            killed: true,
            reclaimed: Some(reclaimed),
            statement: None,
            taken: Taken::default(),
        }
    }

    #[test]
    fn an_end_keeps_its_deadline_if_it_is_within_its_budget_and_within_what_that_takes_on_the_clock()
     {
        let deadlines = deadlines();
        let most_ns = deadlines.within_ns(BUDGET).expect("a bound");
        assert!(most_ns > 20_000_000, "{most_ns}");
        for (cpu_ns, wall_ns, waited_ns, verdict) in [
            (9_000_000, 15_000_000, 0, Verdict::Kept),
            (20_000_000, most_ns, 0, Verdict::Kept),
            (20_000_001, 15_000_000, 0, Verdict::Broken),
            (20_000_001, most_ns + 1, 1, Verdict::Broken),
            (9_000_000, most_ns + 2, 1, Verdict::Broken),
            (9_000_000, most_ns + 1, 1, Verdict::HostTook),
        ] {
            let mut guest_end = guest_end(cpu_ns, wall_ns);
            guest_end.taken.waited_ns = waited_ns;
            assert_eq!(
                deadlines.verdict(&guest_end, BUDGET),
                verdict,
                "{cpu_ns} {wall_ns}"
            );
        }
        // Stock wasmtime promises nothing.
        let stock = GuestEnd {
            reclaimed: None,
            ..guest_end(u64::MAX, u64::MAX)
        };
        assert_eq!(deadlines.verdict(&stock, BUDGET), Verdict::Kept);
    }

    #[test]
    fn a_larger_budget_has_a_later_deadline() {
        let deadlines = deadlines();
        let within = |ms| deadlines.within_ns(Duration::from_millis(ms));
        assert!(within(20) < within(50) && within(50) < within(400));
    }
}
