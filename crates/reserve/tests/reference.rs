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
use proptest::prelude::{ProptestConfig, Strategy, prop, proptest};

const HORIZON: Nanos = 2_000;

/// The budget of a server of the reference.
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

    /// The server is looked at, at `now`, after it has had something to run since `since` and has not
    /// run.
    fn resume(&mut self, contract: &Contract, since: Nanos, now: Nanos) {
        match self {
            // What is there becomes one, from the last of it on, or from when the server woke up.
            Budget::Sporadic(units) => {
                let is_due = |unit: &Nanos| *unit <= now;
                let last = units.iter().copied().filter(is_due).max();
                let from = last.unwrap_or(now).max(since);
                let due = units.iter_mut().filter(|unit| is_due(unit));
                due.for_each(|unit| *unit = from);
            }
            Budget::Deferrable { .. } => {}
            // More than its share of the time to its deadline would be too much.
            Budget::Bandwidth { left, deadline } => {
                let share = deadline.saturating_sub(since) * contract.budget();
                if *left > 0 && share <= *left * contract.period() {
                    *left = contract.budget();
                    *deadline = since + contract.period();
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
    shielding: Shielding,
    /// Until when it may not be preempted.
    region_ends: Nanos,
    /// Since when it has waited for being looked at: it woke up, or its budget ended.
    unseen: Option<Nanos>,
}

impl<'a> Reference<'a> {
    fn new(tenant: &'a Tenant, order: Order, shielding: Shielding) -> Self {
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
            shielding,
            region_ends: 0,
            unseen: None,
        };
        server.advance(0);
        server
    }

    /// Continues to the next step.
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
            self.unseen = Some(now);
        }
        // Without a shield at once, and where it decides on the deadline.
        if self.shielding == Shielding::Eager || matches!(self.budget, Budget::Bandwidth { .. }) {
            self.look(now);
        }
    }

    fn look(&mut self, now: Nanos) {
        if let Some(since) = self.unseen.take() {
            self.budget.resume(&self.contract, since, now);
        }
    }

    /// Whether it has something to run and a unit to run it on.
    fn is_ready(&self, now: Nanos) -> bool {
        self.wakes.is_none() && self.budget.is_there(now)
    }

    /// It runs from now on, where another did or none.
    fn dispatch(&mut self, now: Nanos) {
        if self.shielding == Shielding::Shielded {
            self.region_ends = now + self.contract.nonpreemptive();
        }
        self.look(now);
    }

    /// Runs in `now .. now + 1`.
    fn run(&mut self, now: Nanos) {
        self.budget.take(&self.contract, now);
        if matches!(self.budget, Budget::Sporadic(_)) && !self.budget.is_there(now + 1) {
            self.unseen = Some(now + 1);
        }
        self.left -= 1;
        if self.left == 0 {
            self.advance(now + 1);
        }
    }
}

/// Returns the server that runs at `now`: the first ready one, or the one with the earliest
/// deadline. Among equals the last one continues; an error if it is none of several.
fn select(
    servers: &[Reference<'_>],
    last: Option<usize>,
    now: Nanos,
) -> Result<Option<usize>, Tie> {
    let key = |server: &Reference<'_>, index: usize| match server.budget {
        Budget::Bandwidth { deadline, .. } => deadline,
        _ => index as Nanos,
    };
    let is_protected = |&at: &usize| servers[at].is_ready(now) && now < servers[at].region_ends;
    if let Some(protected) = last.filter(is_protected) {
        return Ok(Some(protected));
    }
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

/// Returns the schedule of the reference up to a tie or the horizon, and that instant. Under fixed
/// priorities the first tenants have the higher priorities.
fn by_single_units(tenants: &[Tenant], order: Order, shielding: Shielding) -> (Slices, Nanos) {
    let mut servers: Vec<_> = tenants
        .iter()
        .map(|tenant| Reference::new(tenant, order, shielding))
        .collect();
    let mut slices = Slices::new();
    for now in 0..HORIZON {
        servers.iter_mut().for_each(|server| server.pass(now));
        let last = slices.last().filter(|slice| slice.1 == now);
        let last = last.map(|slice| slice.2);
        let next = match select(&servers, last, now) {
            Ok(Some(next)) => next,
            Ok(None) => continue,
            Err(Tie) => return (slices, now),
        };
        if last != Some(next) {
            servers[next].dispatch(now);
        }
        servers[next].run(now);
        match slices.last_mut() {
            Some(last) if last.1 == now && last.2 == next => last.1 = now + 1,
            _ => slices.push((now, now + 1, next)),
        }
    }
    (slices, HORIZON)
}

/// Returns the schedule of the scheduler up to `until`.
fn by_scheduler(tenants: &[Tenant], order: Order, shielding: Shielding, until: Nanos) -> Slices {
    let load = Load {
        tenants: tenants.to_vec(),
        background: Vec::new(),
        events: Vec::new(),
        joins: Vec::new(),
        stalls: Vec::new(),
        latencies: Vec::new(),
        interrupt: 0,
        redispatch: 0,
    };
    let config = Config {
        order,
        ..world::config(shielding)
    };
    world::run(&load, config, until, |_, _, _| {}).1.slices
}

/// Contracts of decreasing importance. Their queues have a place for every unit of budget: a full queue
/// puts off what comes back, which the reference knows nothing of.
fn contracts() -> impl Strategy<Value = Vec<Contract>> {
    let contract = (10..200u64, 1..70u64, world::policies(), 0..20u64);
    prop::collection::vec(contract, 1..6).prop_map(|parts| {
        parts
            .into_iter()
            .enumerate()
            .map(|(i, (period, percent, policy, region))| {
                let budget = (period * percent / 100).clamp(1, REPLENISHMENTS_MAX.into());
                Contract::new(budget, period)
                    .unwrap()
                    .with_nonpreemptive(region.saturating_sub(8).min(budget))
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

/// An eager scheduler knows of no regions: what is compared with it has none.
fn without_regions(mut tenants: Vec<Tenant>) -> Vec<Tenant> {
    for tenant in &mut tenants {
        tenant.contract = tenant.contract.with_nonpreemptive(0).unwrap();
    }
    tenants
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_schedule_is_that_of_single_units(tenants in tenants()) {
        for order in [Order::FixedPriority, Order::EarliestDeadline] {
            for shielding in [Shielding::Eager, Shielding::Shielded] {
                let (reference, until) = by_single_units(&tenants, order, shielding);
                let schedule = by_scheduler(&tenants, order, shielding, until);
                assert_eq!(schedule, reference, "{order:?}, {shielding:?}");
            }
        }
    }

    #[test]
    fn without_an_attack_the_shield_changes_no_schedule(tenants in modest_tenants()) {
        let (order, tenants) = (Order::FixedPriority, without_regions(tenants));
        let (reference, until) = by_single_units(&tenants, order, Shielding::Eager);
        for shielding in [Shielding::Eager, Shielding::Shielded] {
            assert_eq!(by_scheduler(&tenants, order, shielding, until), reference);
        }
    }

    #[test]
    fn the_shield_changes_nothing_for_the_most_important_server(tenants in tenants()) {
        let of_the_first = |mut slices: Slices| {
            slices.retain(|slice| slice.2 == 0);
            slices
        };
        let (order, tenants) = (Order::FixedPriority, without_regions(tenants));
        let [eager, shielded] = [Shielding::Eager, Shielding::Shielded]
            .map(|shielding| by_scheduler(&tenants, order, shielding, HORIZON));
        assert_eq!(of_the_first(shielded), of_the_first(eager));
    }
}
