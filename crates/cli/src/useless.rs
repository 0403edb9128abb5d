//! Reservations of which preemptions may take everything, and what would leave something of them.

use leasehold_lease::{Cpu, Nanoseconds, TenantSpec};
use leasehold_reserve::admission::{Overhead, Report};
use leasehold_reserve::{Contract, Order};

/// A reservation of which preemptions may take everything: it can be kept, and promises nothing. A tenant under it
/// might never start, nor end.
#[derive(Debug)]
pub(crate) struct Useless {
    /// The tenant, in the order of the file.
    pub(crate) tenant: usize,
    /// The key, what was found, and what would be enough.
    pub(crate) text: String,
}

impl Useless {
    /// Returns those of a file, in its order. `report` is of its claims, which are `contracts`, with this overhead.
    pub(crate) fn of(
        tenants: &[TenantSpec],
        contracts: &[Contract],
        report: &Report,
        order: Order,
        overhead: Overhead,
    ) -> Vec<Self> {
        let rivals = without_regions(contracts, order, overhead);
        let reserved = tenants.iter().enumerate();
        let reserved =
            reserved.filter_map(|(at, tenant)| Some((at, &tenant.name, tenant.lease.cpu?)));
        let verdicts = contracts.iter().zip(&report.servers).zip(rivals);
        let useless = reserved
            .zip(verdicts)
            .filter_map(|((at, name, cpu), ((contract, verdict), rivals))| {
                let cost = PreemptionCost {
                    each: overhead.per_preemption,
                    rivals,
                };
                let takes_all = verdict.loss.takes_all_of(contract, overhead);
                takes_all.then(|| Self {
                    tenant: at,
                    text: format!(
                        "tenant.{name}.cpu.budget: found {}, all of which preemptions may take: no time \
                         is promised to be useful; {}",
                        cpu.budget(),
                        cost.remedy(&cpu)
                    ),
                })
            });
        useless.collect()
    }
}

/// Returns how often a period the others may preempt each server, regions of its own aside; `None` where nothing
/// bounds that.
fn without_regions(contracts: &[Contract], order: Order, overhead: Overhead) -> Vec<Option<u64>> {
    let whole = |contract: &Contract| contract.with_nonpreemptive(0).unwrap_or(*contract);
    let contracts: Vec<Contract> = contracts.iter().map(whole).collect();
    let losses = overhead.losses(&contracts, order);
    losses.iter().map(|loss| loss.preemptions).collect()
}

/// What preemptions may take of a reservation.
#[derive(Debug, Clone, Copy)]
struct PreemptionCost {
    /// One of them, a dispatch, or a stop, ns.
    each: u64,
    /// How many the other tenants make in a period, if that is bounded.
    rivals: Option<u64>,
}

impl PreemptionCost {
    /// Returns what a dispatch and a stop take, ns.
    fn least(&self) -> u64 {
        self.each.saturating_mul(2)
    }

    /// Returns the budget above which every budget has useful time, ns; `None` where none has, however large.
    ///
    /// In regions of `R`, a budget of `k` of them loses `(k + 1) · O`, more than all of which it is from the `k` on at
    /// which `(k − 1) · R ≥ (k + 1) · O`.
    fn enough(&self, region: Option<u64>) -> Option<u64> {
        let rivals = self
            .rivals
            .map(|rivals| self.each.saturating_mul(rivals.saturating_add(2)));
        let Some(region) = region else {
            // Where nothing bounds the preemptions, only what is lost without any is counted.
            return Some(rivals.unwrap_or(self.least()));
        };
        let more = region.checked_sub(self.each).filter(|more| *more > 0);
        let regions = more.map(|more| {
            let regions = region.saturating_add(self.each).div_ceil(more);
            self.each.saturating_mul(regions)
        });
        [rivals, regions].into_iter().flatten().min()
    }

    /// Returns the shortest region that leaves something of this budget, ns; `None` if a dispatch and a stop leave
    /// nothing.
    fn region(&self, budget: u64) -> Option<u64> {
        let payments = budget.checked_sub(1)?.checked_div(self.each)?;
        let regions = payments.checked_sub(1).filter(|regions| *regions > 0)?;
        Some(budget.div_ceil(regions))
    }

    /// Says what would leave something of a reservation: a budget if one within the period does, else a region.
    fn remedy(&self, cpu: &Cpu) -> String {
        let period = cpu.period().get();
        let region = cpu.nonpreemptive().map(Nanoseconds::get);
        match self.enough(region) {
            Some(enough) if enough < period => {
                return format!("needed: more than {}", stated(enough));
            }
            _ => {}
        }
        let each = stated(self.each);
        let least = stated(self.least());
        let often = match (cpu.nonpreemptive(), self.rivals) {
            (Some(region), _) => format!("there may be one in every {region}"),
            (None, Some(rivals)) => format!("there may be {rivals} in each"),
            (None, None) => "a dispatch and a stop take as much".to_owned(),
        };
        let needed = match self.region(cpu.budget().get()) {
            Some(region) => format!("a `nonpreemptive` of at least {}", stated(region)),
            None if self.least() < period => {
                format!("more than {least}, and a `nonpreemptive` as long")
            }
            None => format!("a period and a budget of more than {least}"),
        };
        format!(
            "no budget is enough in a period of {}, since a preemption takes {each} and {often}; needed: {needed}",
            cpu.period(),
        )
    }
}

/// A time as a lease states it.
fn stated(ns: u64) -> Nanoseconds {
    Nanoseconds::new(ns).unwrap_or(Nanoseconds::MAX)
}

#[cfg(test)]
mod tests {
    use super::PreemptionCost;

    /// What a budget loses.
    fn lost(cost: PreemptionCost, budget: u64, region: Option<u64>) -> u64 {
        let regions = region.map(|region| budget.div_ceil(region) - 1);
        let preemptions = [cost.rivals, regions].into_iter().flatten().min();
        cost.each * (preemptions.unwrap_or(0) + 2)
    }

    fn all() -> impl Iterator<Item = (PreemptionCost, Option<u64>)> {
        let regions = (1..40).map(Some).chain([None]);
        regions.flat_map(|region| {
            let rivals = (0..12).map(Some).chain([None]);
            rivals.flat_map(move |rivals| {
                (1..12).map(move |each| (PreemptionCost { each, rivals }, region))
            })
        })
    }

    const LARGEST: u64 = 600;

    #[test]
    fn every_budget_above_what_is_said_to_be_enough_is_useful() {
        for (cost, region) in all() {
            let useless = |budget: &u64| *budget <= lost(cost, *budget, region);
            let last = (1..=LARGEST).rev().find(useless);
            let enough = cost
                .enough(region)
                .map_or(LARGEST, |enough| enough.min(LARGEST));
            assert!(last <= Some(enough), "{cost:?} {region:?}");
            // No larger budget than necessary is asked for, where one thing bounds the preemptions.
            if region.is_none() || cost.rivals.is_none() {
                assert_eq!(last, Some(enough), "{cost:?} {region:?}");
            }
        }
    }

    #[test]
    fn the_region_that_is_needed_is_the_shortest_that_leaves_something_of_the_budget() {
        for each in 1..12 {
            let cost = PreemptionCost { each, rivals: None };
            for budget in 1..200 {
                let is_useful = |region: &u64| budget > lost(cost, budget, Some(*region));
                let shortest = (1..=budget).find(is_useful);
                assert_eq!(cost.region(budget), shortest, "{each} {budget}");
            }
        }
    }
}
