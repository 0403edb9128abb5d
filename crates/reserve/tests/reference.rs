//! Whole schedules, against a reference written for this test: a processor that goes from one
//! nanosecond to the next, and servers that know of single units of budget only.
//!
//! It has no queue, no timers, no states and no code of the scheduler. A unit of a sporadic server
//! comes back one period after it could first be used; units of a deferrable one are all there
//! again at each multiple of its period; those of a constant-bandwidth server are, with a deadline a
//! period later, when they are used up and the deadline has come.

mod common;

use common::world::{self, Load, Step, Tenant};
use leasehold_reserve::{
    Config, Contract, Nanos, Order, Policy, Priority, REPLENISHMENTS_MAX, Shielding,
};
use proptest::prelude::{ProptestConfig, Strategy, any, prop, proptest};

const HORIZON: Nanos = 2_000;

/// What there is of a server's budget.
enum Budget {
    /// The instants from which its units can be used.
    Sporadic(Vec<Nanos>),
    Deferrable {
        left: Nanos,
    },
    Bandwidth {
        left: Nanos,
        deadline: Nanos,
    },
}

impl Budget {
    fn new(contract: &Contract, order: Order) -> Self {
        let left = contract.budget();
        match (order, contract.policy()) {
            (Order::EarliestDeadline, _) => Budget::Bandwidth {
                left,
                deadline: contract.period(),
            },
            (Order::FixedPriority, Policy::Sporadic) => Budget::Sporadic(vec![0; left as usize]),
            (Order::FixedPriority, Policy::Deferrable) => Budget::Deferrable { left },
        }
    }

    /// What comes back by itself at `now`.
    fn pass(&mut self, contract: &Contract, now: Nanos) {
        match self {
            Budget::Sporadic(_) => {}
            Budget::Deferrable { left } => {
                if now.is_multiple_of(contract.period()) {
                    *left = contract.budget();
                }
            }
            Budget::Bandwidth { left, deadline } => {
                if *left == 0 && *deadline <= now {
                    *left = contract.budget();
                    *deadline += contract.period();
                }
            }
        }
    }

    /// The server becomes active.
    fn resume(&mut self, contract: &Contract, now: Nanos) {
        match self {
            // What was there before counts from now on.
            Budget::Sporadic(units) => units.iter_mut().for_each(|unit| *unit = now.max(*unit)),
            Budget::Deferrable { .. } => {}
            // More than its share of the time to its deadline would be too much.
            Budget::Bandwidth { left, deadline } => {
                let share = deadline.saturating_sub(now) * contract.budget();
                if *left > 0 && share <= *left * contract.period() {
                    *left = contract.budget();
                    *deadline = now + contract.period();
                }
            }
        }
    }

    fn is_there(&self, now: Nanos) -> bool {
        match self {
            Budget::Sporadic(units) => units.iter().any(|&unit| unit <= now),
            Budget::Deferrable { left } | Budget::Bandwidth { left, .. } => *left > 0,
        }
    }

    /// A unit is used in `now .. now + 1`.
    fn take(&mut self, contract: &Contract, now: Nanos) {
        match self {
            Budget::Sporadic(units) => {
                let unit = units.iter_mut().min().unwrap();
                assert!(*unit <= now);
                *unit += contract.period();
            }
            Budget::Deferrable { left } | Budget::Bandwidth { left, .. } => *left -= 1,
        }
    }
}

/// A server of the reference, and the program of its only task.
struct Reference<'a> {
    contract: Contract,
    budget: Budget,
    program: &'a [Step],
    at: usize,
    /// What is left of the step that runs.
    left: Nanos,
    /// When the task wakes up, if it sleeps.
    wakes: Option<Nanos>,
}

impl<'a> Reference<'a> {
    fn new(tenant: &'a Tenant, order: Order) -> Self {
        let [program] = &tenant.programs[..] else {
            panic!("one task");
        };
        let mut server = Reference {
            contract: tenant.contract,
            budget: Budget::new(&tenant.contract, order),
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
        self.budget.pass(&self.contract, now);
        if self.wakes.is_some_and(|wakes| wakes <= now) {
            self.wakes = None;
            self.advance(now);
            self.budget.resume(&self.contract, now);
        }
    }

    /// Whether it has something to run and a unit to run it on.
    fn is_ready(&self, now: Nanos) -> bool {
        self.wakes.is_none() && self.budget.is_there(now)
    }

    /// Runs in `now .. now + 1`.
    fn run(&mut self, now: Nanos) {
        self.budget.take(&self.contract, now);
        self.left -= 1;
        if self.left == 0 {
            self.advance(now + 1);
        }
    }
}

/// The server that runs at `now`: the first that is ready, or that with the earliest deadline. Who ran
/// last goes on among equals; an error if it is none of several.
fn select(
    servers: &[Reference<'_>],
    last: Option<usize>,
    now: Nanos,
) -> Result<Option<usize>, Tie> {
    let key = |server: &Reference<'_>, index: usize| match server.budget {
        Budget::Bandwidth { deadline, .. } => deadline,
        _ => index as Nanos,
    };
    let ready = servers.iter().enumerate();
    let ready = ready.filter(|(_, server)| server.is_ready(now));
    let keys: Vec<_> = ready.map(|(at, server)| (key(server, at), at)).collect();
    let Some(&(least, _)) = keys.iter().min() else {
        return Ok(None);
    };
    let mut first = keys.iter().filter(|&&(key, _)| key == least);
    let (only, is_tie) = (first.next().map(|&(_, at)| at), first.next().is_some());
    let goes_on = last.filter(|&last| keys.contains(&(least, last)));
    match goes_on {
        Some(_) => Ok(goes_on),
        None if is_tie => Err(Tie),
        None => Ok(only),
    }
}

/// Several servers that have waited have the same deadline.
struct Tie;

type Slices = Vec<(Nanos, Nanos, usize)>;

/// Who runs from when to when, up to a tie or the horizon, and when that is. Under fixed priorities
/// the first tenants are the more important ones.
fn by_single_units(tenants: &[Tenant], order: Order) -> (Slices, Nanos) {
    let mut servers: Vec<_> = tenants
        .iter()
        .map(|tenant| Reference::new(tenant, order))
        .collect();
    let mut slices = Slices::new();
    for now in 0..HORIZON {
        servers.iter_mut().for_each(|server| server.pass(now));
        let last = slices.last().filter(|slice| slice.1 == now);
        let next = match select(&servers, last.map(|slice| slice.2), now) {
            Ok(Some(next)) => next,
            Ok(None) => continue,
            Err(Tie) => return (slices, now),
        };
        servers[next].run(now);
        match slices.last_mut() {
            Some(last) if last.1 == now && last.2 == next => last.1 = now + 1,
            _ => slices.push((now, now + 1, next)),
        }
    }
    (slices, HORIZON)
}

/// Who runs from when to when under the scheduler, up to `until`.
fn by_scheduler(tenants: &[Tenant], order: Order, shielding: Shielding, until: Nanos) -> Slices {
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
        order,
        ..world::config(shielding)
    };
    world::run(&load, config, until, |_, _, _| {}).1.slices
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
        let order = Order::FixedPriority;
        let (reference, until) = by_single_units(&tenants, order);
        assert_eq!(by_scheduler(&tenants, order, Shielding::Eager, until), reference);
    }

    #[test]
    fn where_nobody_attacks_eager_and_shielded_schedules_are_those_of_single_units(
        tenants in modest_tenants(),
    ) {
        let order = Order::FixedPriority;
        let (reference, until) = by_single_units(&tenants, order);
        for shielding in [Shielding::Eager, Shielding::Shielded] {
            assert_eq!(by_scheduler(&tenants, order, shielding, until), reference);
        }
    }

    /// A less important server that sleeps is looked at when its turn comes, and what came due
    /// until then is one replenishment (SPR Alg. 3); the most important one never waits.
    #[test]
    fn shielded_the_most_important_server_gets_its_single_units_whatever_others_do(
        tenants in tenants(),
    ) {
        let of_the_first = |mut slices: Slices| {
            slices.retain(|slice| slice.2 == 0);
            slices
        };
        let order = Order::FixedPriority;
        let (reference, until) = by_single_units(&tenants, order);
        let shielded = by_scheduler(&tenants, order, Shielding::Shielded, until);
        assert_eq!(of_the_first(shielded), of_the_first(reference));
    }

    /// Of constant-bandwidth servers nothing is merged: a shielded scheduler is late for none.
    #[test]
    fn by_deadlines_every_schedule_is_that_of_single_units(tenants in tenants()) {
        let order = Order::EarliestDeadline;
        let (reference, until) = by_single_units(&tenants, order);
        for shielding in [Shielding::Eager, Shielding::Shielded] {
            assert_eq!(by_scheduler(&tenants, order, shielding, until), reference);
        }
    }
}
