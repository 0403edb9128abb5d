//! Whole schedules, against a reference written for this test: a processor that goes from one
//! nanosecond to the next, and servers that know of single units of budget only.
//!
//! It has no queue, no timers, no states and no code of the scheduler. A unit of a sporadic server
//! comes back one period after it could first be used; units of a deferrable one are all there
//! again at each multiple of its period.

mod common;

use common::world::{self, Load, Step, Tenant};
use leasehold_reserve::{
    Config, Contract, Nanos, Order, Policy, Priority, REPLENISHMENTS_MAX, Shielding,
};
use proptest::prelude::{ProptestConfig, Strategy, any, prop, proptest};

const HORIZON: Nanos = 2_000;

/// A server of the reference, and the program of its only task.
struct Reference<'a> {
    contract: Contract,
    /// The instants from which the units of budget can be used.
    units: Vec<Nanos>,
    program: &'a [Step],
    at: usize,
    /// What is left of the step that runs.
    left: Nanos,
    /// When the task wakes up, if it sleeps.
    wakes: Option<Nanos>,
}

impl<'a> Reference<'a> {
    fn new(tenant: &'a Tenant) -> Self {
        let [program] = &tenant.programs[..] else {
            panic!("one task");
        };
        let mut server = Reference {
            contract: tenant.contract,
            units: vec![0; tenant.contract.budget() as usize],
            program,
            at: program.len() - 1,
            left: 0,
            wakes: None,
        };
        server.advance(0);
        server
    }

    /// Goes on to the next step.
    fn advance(&mut self, now: Nanos) {
        self.at = (self.at + 1) % self.program.len();
        match self.program[self.at] {
            Step::Run(length) => self.left = length,
            Step::Sleep(length) => self.wakes = Some(now + length),
            step => panic!("{step:?}"),
        }
    }

    /// What happens by itself at `now`.
    fn pass(&mut self, now: Nanos) {
        if self.contract.policy() == Policy::Deferrable
            && now.is_multiple_of(self.contract.period())
        {
            self.units.fill(now);
        }
        if self.wakes.is_some_and(|wakes| wakes <= now) {
            self.wakes = None;
            self.advance(now);
            // What was there before the server became active counts from then on.
            self.units
                .iter_mut()
                .for_each(|unit| *unit = now.max(*unit));
        }
    }

    /// Whether it has something to run and a unit to run it on.
    fn is_ready(&self, now: Nanos) -> bool {
        self.wakes.is_none() && self.units.iter().any(|&unit| unit <= now)
    }

    /// Runs in `now .. now + 1`.
    fn run(&mut self, now: Nanos) {
        let unit = self.units.iter_mut().min().unwrap();
        assert!(*unit <= now);
        *unit = match self.contract.policy() {
            Policy::Sporadic => *unit + self.contract.period(),
            Policy::Deferrable => Nanos::MAX,
        };
        self.left -= 1;
        if self.left == 0 {
            self.advance(now + 1);
        }
    }
}

/// Who runs from when to when. The first tenants are the more important ones.
fn by_single_units(tenants: &[Tenant]) -> Vec<(Nanos, Nanos, usize)> {
    let mut servers: Vec<_> = tenants.iter().map(Reference::new).collect();
    let mut slices: Vec<(Nanos, Nanos, usize)> = Vec::new();
    for now in 0..HORIZON {
        servers.iter_mut().for_each(|server| server.pass(now));
        let Some(next) = servers.iter().position(|server| server.is_ready(now)) else {
            continue;
        };
        servers[next].run(now);
        match slices.last_mut() {
            Some(last) if last.1 == now && last.2 == next => last.1 = now + 1,
            _ => slices.push((now, now + 1, next)),
        }
    }
    slices
}

/// Who runs from when to when under the scheduler.
fn by_scheduler(tenants: &[Tenant], shielding: Shielding) -> Vec<(Nanos, Nanos, usize)> {
    let load = Load {
        tenants: tenants.to_vec(),
        background: Vec::new(),
        events: Vec::new(),
        changes: Vec::new(),
        latencies: Vec::new(),
        interrupt: 0,
        way_back: 0,
    };
    let config = Config {
        order: Order::FixedPriority,
        ..world::config(shielding)
    };
    world::run(&load, config, HORIZON, |_, _, _| {}).1.slices
}

/// Contracts of decreasing importance, whose queues have room for every suspension below.
fn contracts() -> impl Strategy<Value = Vec<Contract>> {
    let contract = (10..200u64, 1..70u64, any::<bool>());
    prop::collection::vec(contract, 1..6).prop_map(|parts| {
        parts
            .into_iter()
            .enumerate()
            .map(|(i, (period, budget, is_deferrable))| {
                let policy = if is_deferrable {
                    Policy::Deferrable
                } else {
                    Policy::Sporadic
                };
                Contract::new((period * budget / 100).max(1), period)
                    .unwrap()
                    .with_priority(Priority(u8::MAX - i as u8))
                    .with_policy(policy)
                    .with_replenishments(REPLENISHMENTS_MAX)
                    .unwrap()
            })
            .collect()
    })
}

/// A program that runs and sleeps, for lengths that have nothing to do with its reservation.
fn program() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec((4..40u64, 4..150u64), 1..5).prop_map(|pairs| {
        let steps = |(run, sleep)| [Step::Run(run), Step::Sleep(sleep)];
        pairs.into_iter().flat_map(steps).collect()
    })
}

/// Tenants that run as much as they like.
fn tenants() -> impl Strategy<Value = Vec<Tenant>> {
    (contracts(), prop::collection::vec(program(), 6)).prop_map(|(contracts, programs)| {
        contracts
            .into_iter()
            .zip(programs)
            .map(|(contract, program)| Tenant {
                contract,
                programs: vec![program],
            })
            .collect()
    })
}

/// Tenants none of which asks for more than it has reserved: a budget at most, and then a period of
/// sleep at least.
fn modest_tenants() -> impl Strategy<Value = Vec<Tenant>> {
    let demand = (1..=100u64, 0..100u64);
    (contracts(), prop::collection::vec(demand, 6)).prop_map(|(contracts, demands)| {
        contracts
            .into_iter()
            .zip(demands)
            .map(|(contract, (percent, longer))| {
                let run = (contract.budget() * percent / 100).max(1);
                let sleep = contract.period() + longer;
                Tenant {
                    contract,
                    programs: vec![vec![Step::Run(run), Step::Sleep(sleep)]],
                }
            })
            .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn eager_every_schedule_is_that_of_single_units(tenants in tenants()) {
        assert_eq!(by_scheduler(&tenants, Shielding::Eager), by_single_units(&tenants));
    }

    #[test]
    fn where_nobody_attacks_eager_and_shielded_schedules_are_those_of_single_units(
        tenants in modest_tenants(),
    ) {
        let reference = by_single_units(&tenants);
        assert_eq!(by_scheduler(&tenants, Shielding::Eager), reference);
        assert_eq!(by_scheduler(&tenants, Shielding::Shielded), reference);
    }

    /// A less important server that sleeps is looked at when its turn comes, and what came due
    /// until then is one replenishment (SPR Alg. 3); the most important one never waits.
    #[test]
    fn shielded_the_most_important_server_gets_its_single_units_whatever_others_do(
        tenants in tenants(),
    ) {
        let of_the_first = |mut slices: Vec<(Nanos, Nanos, usize)>| {
            slices.retain(|slice| slice.2 == 0);
            slices
        };
        assert_eq!(
            of_the_first(by_scheduler(&tenants, Shielding::Shielded)),
            of_the_first(by_single_units(&tenants)),
        );
    }
}
