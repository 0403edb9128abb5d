//! The scheduler keeps the promises of the admission test: in virtual time, beside tenants that
//! run, sleep and split their budgets arbitrarily.

use leasehold_reserve::admission::{Overhead, admit, reclaimed_within, while_ending};
use leasehold_reserve::simulate::SplitMix;
use leasehold_reserve::{
    Config, Contract, Decision, Nanos, Order, Policy, Priority, Scheduler, ServerId, Shielding,
    State, TaskId,
};
use proptest::prelude::{
    Just, ProptestConfig, Strategy, any, prop_assert, prop_assert_eq, prop_assume, prop_oneof,
    proptest,
};

/// How a tenant behaves.
#[derive(Debug, Clone, Copy)]
enum Behaviour {
    /// Runs whenever it may.
    Busy,
    /// Runs for up to `run` nanoseconds, then sleeps for up to `sleep`.
    Bursts { run: Nanos, sleep: Nanos },
}

impl Behaviour {
    fn run(self, random: &mut SplitMix) -> Nanos {
        match self {
            Self::Busy => Nanos::MAX,
            Self::Bursts { run, .. } => 1 + random.below(run),
        }
    }

    fn sleep(self, random: &mut SplitMix) -> Nanos {
        match self {
            Self::Busy => 1,
            Self::Bursts { sleep, .. } => 1 + random.below(sleep),
        }
    }
}

struct Tenant {
    server: ServerId,
    task: TaskId,
    behaviour: Behaviour,
    /// What its task still runs before it sleeps.
    left: Nanos,
}

/// A scheduler whose timer fires exactly when it is set, and its tenants, all awake at first.
struct World {
    scheduler: Scheduler,
    tenants: Vec<Tenant>,
    random: SplitMix,
    now: Nanos,
    last: Decision,
    order: Order,
    /// How late the timer fires.
    latency: Nanos,
    /// The instants at which the first tenant was preempted.
    preempted: Vec<Nanos>,
    stalls: Option<Stalls>,
}

/// The host stops the processor from time to time.
#[derive(Debug, Clone, Copy)]
struct Stalls {
    /// For how long.
    time: Nanos,
    /// The least time from the beginning of one to that of the next.
    gap: Nanos,
    /// When the next one begins.
    next: Nanos,
}

impl World {
    fn new(order: Order, set: &[(Contract, Behaviour)], seed: u64) -> Self {
        let mut random = SplitMix::new(seed);
        let mut scheduler = Scheduler::new(Config {
            order,
            shielding: Shielding::Shielded,
            servers: set.len() as u32,
            tasks: set.len() as u32 + 1,
            seed: 0,
        });
        let mut tenant = |(contract, behaviour): &(Contract, Behaviour)| {
            let server = scheduler.add_server(contract, 0).expect("there is room");
            let task = scheduler.add_task(server).expect("there is room");
            Tenant {
                server,
                task,
                behaviour: *behaviour,
                left: behaviour.run(&mut random),
            }
        };
        let tenants: Vec<_> = set.iter().map(&mut tenant).collect();
        for tenant in &tenants {
            scheduler.wake(tenant.task, 0).expect("it is there");
        }
        let last = scheduler.schedule(0);
        Self {
            scheduler,
            tenants,
            random,
            now: 0,
            last,
            order,
            latency: 0,
            preempted: Vec::new(),
            stalls: None,
        }
    }

    /// The same with stalls of `time` every `gap` nanoseconds at the most.
    fn with_stalls(mut self, time: Nanos, gap: Nanos) -> Self {
        let next = self.random.below(gap);
        self.stalls = Some(Stalls { time, gap, next });
        self
    }

    /// Stops the processor if it is time to.
    fn stall(&mut self) {
        let Some(stalls) = &mut self.stalls else {
            return;
        };
        if self.now < stalls.next {
            return;
        }
        stalls.next = self.now + stalls.gap + self.random.below(4) * self.random.below(stalls.gap);
        self.scheduler.pause(self.now);
        self.now += stalls.time;
        self.scheduler.resume(self.now);
        self.last = self.scheduler.schedule(self.now);
    }

    /// The same with interrupts of `latency`, which are charged to the servers that they are for.
    fn with_latency(mut self, latency: Nanos) -> Self {
        self.scheduler = self.scheduler.with_interrupt(latency);
        Self { latency, ..self }
    }

    /// Returns the running tenant.
    fn running(&self) -> Option<usize> {
        let task = self.last.run?;
        self.tenants.iter().position(|tenant| tenant.task == task)
    }

    /// Lets time pass up to `limit`, or to the end of what the tenant `until` has left to run.
    fn run(&mut self, limit: Nanos, until: Option<usize>) {
        while self.now < limit {
            let running = self.running();
            let end = running.map_or(Nanos::MAX, |i| {
                self.now.saturating_add(self.tenants[i].left)
            });
            let timer = self.last.timer.map(|timer| timer + self.latency);
            let stall = self
                .stalls
                .map_or(Nanos::MAX, |stalls| stalls.next.max(self.now));
            let to = limit.min(end).min(timer.unwrap_or(Nanos::MAX)).min(stall);
            if let Some(index) = running {
                self.tenants[index].left -= to - self.now;
            }
            self.now = to;
            if let Some(index) = running
                && self.tenants[index].left == 0
            {
                if until == running {
                    return;
                }
                let tenant = &mut self.tenants[index];
                let wake = to + tenant.behaviour.sleep(&mut self.random);
                tenant.left = tenant.behaviour.run(&mut self.random);
                self.scheduler
                    .block(tenant.task, to, Some(wake))
                    .expect("it is there");
            }
            self.last = self.scheduler.schedule(to);
            self.stall();
            if running == Some(0) && self.running() != Some(0) {
                let state = self.scheduler.state(self.tenants[0].server);
                if state.expect("it is there") == State::Ready {
                    self.preempted.push(to);
                }
            }
        }
    }

    /// Kills a tenant, whose server then has `reclaim` nanoseconds of work to do; returns how long
    /// that took, or `None` if it took longer than `limit`.
    fn kill(&mut self, index: usize, reclaim: Nanos, limit: Nanos) -> Option<Nanos> {
        let killed = self.now;
        let tenant = &mut self.tenants[index];
        self.scheduler
            .remove_task(tenant.task, killed)
            .expect("it is there");
        tenant.task = self
            .scheduler
            .add_task(tenant.server)
            .expect("there is room");
        tenant.left = reclaim;
        if self.order == Order::FixedPriority {
            let contract = self.scheduler.contract(tenant.server);
            let most = while_ending(&contract.expect("it is there")).replenishments();
            self.scheduler
                .join_replenishments(tenant.server, most, killed)
                .expect("it is there");
        }
        self.scheduler
            .wake(tenant.task, killed)
            .expect("it is there");
        self.last = self.scheduler.schedule(killed);
        self.run(killed + limit, Some(index));
        (self.tenants[index].left == 0).then_some(self.now - killed)
    }
}

fn contracts() -> impl Strategy<Value = Contract> {
    let policies = prop_oneof![Just(Policy::Sporadic), Just(Policy::Deferrable)];
    (
        1..30_u64,
        0..150_u64,
        0..4_u8,
        policies,
        0..20_u64,
        0..4_u32,
    )
        .prop_map(|(budget, more, priority, policy, region, places)| {
            Contract::new(budget, budget + more)
                .and_then(|contract| contract.with_nonpreemptive(region.min(budget)))
                .and_then(|contract| contract.with_replenishments(1 << places))
                .expect("a contract")
                .with_priority(Priority(priority))
                .with_policy(policy)
        })
}

fn behaviours() -> impl Strategy<Value = Behaviour> {
    prop_oneof![
        Just(Behaviour::Busy),
        (1..40_u64, 1..150_u64).prop_map(|(run, sleep)| Behaviour::Bursts { run, sleep }),
        // Splits its budget as finely as it can.
        (1..4_u64, 1..3_u64).prop_map(|(run, sleep)| Behaviour::Bursts { run, sleep }),
    ]
}

/// Tenants of which the first, at least, gets its budget in every period.
fn sets() -> impl Strategy<Value = Vec<(Contract, Behaviour)>> {
    sets_in(Order::FixedPriority)
}

fn sets_in(order: Order) -> impl Strategy<Value = Vec<(Contract, Behaviour)>> {
    let sets = proptest::collection::vec((contracts(), behaviours()), 1..6);
    sets.prop_filter("the first does not fit", move |set| {
        response(set, order).is_some()
    })
}

/// The admitted response time of the first.
fn response(set: &[(Contract, Behaviour)], order: Order) -> Option<Nanos> {
    let contracts: Vec<_> = set.iter().map(|(contract, _)| *contract).collect();
    admit(&contracts, order, Overhead::default()).servers[0].response
}

/// Every third set that is drawn does not fit.
fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        max_local_rejects: 10 * cases,
        ..ProptestConfig::with_cases(cases)
    }
}

proptest! {
    #![proptest_config(config(4_000))]

    #[test]
    fn a_killed_tenant_is_reclaimed_within_the_bound(
        set in sets(),
        seed in any::<u64>(),
        kill in 0..2_000_u64,
        reclaim in 1..120_u64,
    ) {
        let (contract, order) = (set[0].0, Order::FixedPriority);
        let response = response(&set, order).expect("admitted");
        let bound = reclaimed_within(&contract, order, response, reclaim).expect("small numbers");
        let mut world = World::new(order, &set, seed);
        world.run(kill, None);
        let took = world.kill(0, reclaim, bound);
        prop_assert!(took.is_some(), "more than {bound}");
    }

    #[test]
    fn a_constant_bandwidth_server_is_reclaimed_within_the_bound(
        set in sets_in(Order::EarliestDeadline),
        seed in any::<u64>(),
        kill in 0..2_000_u64,
        reclaim in 1..120_u64,
    ) {
        let (contract, order) = (set[0].0, Order::EarliestDeadline);
        let response = response(&set, order).expect("admitted");
        let bound = reclaimed_within(&contract, order, response, reclaim).expect("small numbers");
        let mut world = World::new(order, &set, seed);
        world.run(kill, None);
        let took = world.kill(0, reclaim, bound);
        prop_assert!(took.is_some(), "more than {bound}");
    }

    #[test]
    fn a_constant_bandwidth_server_that_wakes_meets_its_deadline(
        set in sets_in(Order::EarliestDeadline),
        seed in any::<u64>(),
        start in 0..500_u64,
    ) {
        let contract = set[0].0;
        let mut world = World::new(Order::EarliestDeadline, &set, seed);
        let task = world.tenants[0].task;
        world.scheduler.block(task, 0, None).expect("it is there");
        world.last = world.scheduler.schedule(0);
        world.run(start, None);
        let took = world.kill(0, contract.budget(), contract.period());
        prop_assert!(took.is_some(), "later than its deadline");
    }

    #[test]
    fn a_tenant_that_wakes_with_its_whole_budget_gets_it_within_its_response_time(
        set in sets(),
        seed in any::<u64>(),
        start in 0..500_u64,
    ) {
        let order = Order::FixedPriority;
        let response = response(&set, order).expect("admitted");
        let contract = set[0].0;
        let mut set = set;
        // Nothing of its budget is used before.
        set[0].1 = Behaviour::Bursts { run: 1, sleep: 1 };
        let mut world = World::new(order, &set, seed);
        let task = world.tenants[0].task;
        world.scheduler.block(task, 0, None).expect("it is there");
        world.last = world.scheduler.schedule(0);
        // A deferrable budget that ends before it is used up is no promise: begin with a period.
        let start = start.next_multiple_of(contract.period());
        world.run(start, None);
        let took = world.kill(0, contract.budget(), response);
        prop_assert!(took.is_some(), "more than {response}");
    }
}

proptest! {
    #[test]
    fn an_admitted_server_misses_nothing(set in sets(), seed in any::<u64>()) {
        let mut world = World::new(Order::FixedPriority, &set, seed);
        for _ in 0..20 {
            world.run(world.now + 100, None);
            let supply = world.scheduler.supply(world.tenants[0].server).expect("it is there");
            prop_assert_eq!(supply.misses, 0);
        }
    }
}

/// The same with a first tenant that always runs, and cannot be preempted for some time.
fn sets_with_a_region() -> impl Strategy<Value = Vec<(Contract, Behaviour)>> {
    sets().prop_map(|mut set| {
        let contract = set[0].0;
        let region = contract.nonpreemptive().max(1 + contract.budget() / 4);
        let contract = contract
            .with_nonpreemptive(region)
            .expect("within the budget");
        set[0] = (contract, Behaviour::Busy);
        set
    })
}

/// Sporadic tenants that are admitted beside stalls of the host, which are the second of the set: a server that is
/// more urgent than all others and uses its budget at once.
fn sets_with_stalls() -> impl Strategy<Value = Vec<(Contract, Behaviour)>> {
    let sets = proptest::collection::vec((contracts(), behaviours()), 2..6);
    let stalls = (1..60_u64, 1..400_u64).prop_map(|(time, more)| {
        let contract = Contract::new(time, time + more).expect("a contract");
        (contract.with_priority(Priority(9)), Behaviour::Busy)
    });
    let with_stalls = (sets, stalls).prop_map(|(mut set, stalls)| {
        for (contract, _) in &mut set {
            *contract = contract.with_policy(Policy::Sporadic);
        }
        set.insert(1, stalls);
        set
    });
    with_stalls.prop_filter("the first does not fit", |set| {
        response(set, Order::FixedPriority).is_some()
    })
}

proptest! {
    #![proptest_config(config(100_000))]

    /// What a stall put off is given back at the expense of no reservation.
    #[test]
    fn stalls_of_the_host_delay_a_tenant_as_an_urgent_server_would(
        set in sets_with_stalls(),
        seed in any::<u64>(),
        start in 0..2_000_u64,
    ) {
        let order = Order::FixedPriority;
        let response = response(&set, order).expect("admitted");
        let mut set = set;
        let (stalls, _) = set.remove(1);
        let budget = set[0].0.budget();
        // Nothing of its budget is used before.
        set[0].1 = Behaviour::Bursts { run: 1, sleep: 1 };
        let mut world = World::new(order, &set, seed);
        let task = world.tenants[0].task;
        world.scheduler.block(task, 0, None).expect("it is there");
        world.last = world.scheduler.schedule(0);
        let mut world = world.with_stalls(stalls.budget(), stalls.period());
        world.run(start, None);
        let took = world.kill(0, budget, response);
        prop_assert!(took.is_some(), "more than {response}");
    }
}

proptest! {
    #![proptest_config(config(20_000))]

    /// A stall is over at the first instant after it at which no reservation has both a task and budget.
    #[test]
    fn a_stall_that_is_over_delays_nobody(
        set in sets(),
        seed in any::<u64>(),
        (stall, gap) in (1..100_u64, 1..400_u64),
        stalls in 1..2_000_u64,
        start in 0..200_u64,
    ) {
        let order = Order::FixedPriority;
        let response = response(&set, order).expect("admitted");
        let mut set = set;
        for (contract, _) in &mut set {
            *contract = contract.with_policy(Policy::Sporadic);
        }
        let budget = set[0].0.budget();
        set[0].1 = Behaviour::Bursts { run: 1, sleep: 1 };
        let mut world = World::new(order, &set, seed);
        let task = world.tenants[0].task;
        world.scheduler.block(task, 0, None).expect("it is there");
        world.last = world.scheduler.schedule(0);
        let mut world = world.with_stalls(stall, gap);
        world.run(stalls, None);
        world.stalls = None;
        for _ in 0..10_000 {
            if world.running().is_none() {
                break;
            }
            world.run(world.now + 1, None);
        }
        prop_assume!(world.running().is_none());
        world.run(world.now + start, None);
        let took = world.kill(0, budget, response);
        prop_assert!(took.is_some(), "more than {response}");
    }
}

/// A tenant of 800 in every 1,600 that always runs was stopped once; one of 1,600 in 3,200 below it then has exactly
/// the time that admission gives it.
#[test]
fn a_tenant_that_was_stopped_once_leaves_those_below_their_time() {
    let contract = |budget, period, priority| {
        let contract = Contract::new(budget, period).expect("a contract");
        contract.with_priority(Priority(priority))
    };
    let sleeps = Behaviour::Bursts { run: 1, sleep: 1 };
    let low = contract(1_600, 3_200, 1);
    let set = [(low, sleeps), (contract(800, 1_600, 2), Behaviour::Busy)];
    let response = response(&set, Order::FixedPriority).expect("admitted");
    assert_eq!(response, 3_200);
    for wakes in 0..8_000 {
        let mut world = World::new(Order::FixedPriority, &set, 1);
        let task = world.tenants[0].task;
        world.scheduler.block(task, 0, None).expect("it is there");
        world.last = world.scheduler.schedule(0);
        world.run(400, None);
        world.stalls = Some(Stalls {
            time: 1_500,
            gap: 1 << 40,
            next: 400,
        });
        world.stall();
        world.run(4_000 + wakes, None);
        let took = world.kill(0, low.budget(), response);
        assert!(took.is_some(), "woken at {}", 4_000 + wakes);
    }
}

/// The same without any region, where all others track one replenishment and are sporadic.
fn sets_with_one_replenishment() -> impl Strategy<Value = Vec<(Contract, Behaviour)>> {
    sets().prop_map(|mut set| {
        for (contract, _) in &mut set {
            let plain = contract.with_policy(Policy::Sporadic).with_nonpreemptive(0);
            let single = plain.and_then(|contract| contract.with_replenishments(1));
            *contract = single.expect("a contract");
        }
        set[0].1 = Behaviour::Busy;
        set
    })
}

fn admitted_preemptions(set: &[(Contract, Behaviour)]) -> u64 {
    let contracts: Vec<_> = set.iter().map(|(contract, _)| *contract).collect();
    let losses = Overhead::default().losses(&contracts, Order::FixedPriority);
    losses[0].preemptions.expect("bounded")
}

proptest! {
    #![proptest_config(config(2_000))]

    #[test]
    fn a_region_bounds_preemptions_as_in_eq_2(set in sets_with_a_region(), seed in any::<u64>()) {
        let contract = set[0].0;
        let mut world = World::new(Order::FixedPriority, &set, seed);
        world.run(5_000, None);
        let used = world.scheduler.supply(world.tenants[0].server).expect("it is there").used;
        let regions = contract.budget().div_ceil(contract.nonpreemptive());
        let most = used.div_ceil(contract.budget()) * (regions - 1);
        let preemptions = world.preempted.len() as u64;
        prop_assert!(preemptions <= most, "{preemptions}, {most} for {used}");
    }

    #[test]
    fn servers_with_one_replenishment_preempt_once_a_period(
        set in sets_with_one_replenishment(),
        seed in any::<u64>(),
    ) {
        let most = admitted_preemptions(&set);
        let period = set[0].0.period();
        let mut world = World::new(Order::FixedPriority, &set, seed);
        world.run(5_000, None);
        for (first, from) in world.preempted.iter().enumerate() {
            let in_period = |at: &&Nanos| **at < from + period;
            let preemptions = world.preempted[first..].iter().take_while(in_period).count() as u64;
            prop_assert!(preemptions <= most, "{preemptions} from {from} on, {most}");
        }
    }
}

/// Returns the longest time in which a tenant of 10 in every 50 did 25, over many instants of its
/// kill, and the bound. Its response time is 3 + 10 + 5 = 18: it runs below a tenant of 5 in every
/// 20, and waits for a region of 3.
fn longest(policy: Policy, places: u32, behaviour: Behaviour) -> (Nanos, Nanos) {
    let contract = |budget, period, priority| {
        let contract = Contract::new(budget, period).expect("a contract");
        contract.with_priority(Priority(priority))
    };
    let killed = contract(10, 50, 2).with_policy(policy);
    let killed = killed.with_replenishments(places).expect("a contract");
    let below = contract(10, 100, 1)
        .with_nonpreemptive(3)
        .expect("a contract");
    let set = [
        (killed, behaviour),
        (contract(5, 20, 3), Behaviour::Busy),
        (below, Behaviour::Busy),
    ];
    let order = Order::FixedPriority;
    let response = response(&set, order).expect("admitted");
    assert_eq!(response, 18);
    let bound = reclaimed_within(&killed, order, response, 25).expect("small numbers");
    let took = (0..2_000_u64).map(|case| {
        let mut world = World::new(order, &set, case / 200);
        world.run(1_000 + case % 200, None);
        world.kill(0, 25, bound).expect("within the bound")
    });
    (took.max().expect("some"), bound)
}

#[test]
fn the_bound_on_reclamation_is_nearly_reached() {
    // Killed when its budget is used up: 40 until there is more, two periods of 50, 18 − 5.
    let (took, bound) = longest(Policy::Deferrable, 1, Behaviour::Busy);
    assert_eq!((took, bound), (150, 153));
    // The same for a sporadic tenant that used its budget in one piece, which the bound does not
    // know: of two pieces the first could be put off until the second.
    let (took, bound) = longest(Policy::Sporadic, 16, Behaviour::Busy);
    assert_eq!((took, bound), (150, 171));
    // In pieces, of which one place is all that is tracked, it all comes back with the last.
    let fine = Behaviour::Bursts { run: 1, sleep: 1 };
    let (took, bound) = longest(Policy::Sporadic, 1, fine);
    assert_eq!((took, bound), (159, 163));
}

/// How long a tenant of 40 in every 200, which has cut its budget into 16 pieces, takes to do 100, and
/// the bound, where every preemption takes 2: one for each piece, since another always runs.
#[test]
fn a_tenant_that_cut_its_budget_is_reclaimed_within_the_bound_whatever_interrupts_take() {
    const LATENCY: Nanos = 2;
    let contract = |budget, period, priority| {
        let contract = Contract::new(budget, period).expect("a contract");
        contract
            .with_priority(Priority(priority))
            .with_longest_step(LATENCY)
    };
    let cut = contract(40, 200, 2).with_replenishments(16);
    let cut = cut.expect("a contract");
    let set = [
        (cut, Behaviour::Bursts { run: 1, sleep: 14 }),
        (contract(100, 200, 1), Behaviour::Busy),
    ];
    let order = Order::FixedPriority;
    let contracts = set.map(|(contract, _)| contract);
    let overhead = Overhead {
        per_preemption: LATENCY,
    };
    let verdict = admit(&contracts, order, overhead).servers[0];
    let bound = verdict.reclaimed_within(&cut, order, 100).expect("bounded");
    let took = (0..2_000_u64).map(|case| {
        let mut world = World::new(order, &set, case / 400).with_latency(LATENCY);
        world.run(1_000 + case % 400, None);
        world.kill(0, 100, 10_000).expect("it ends")
    });
    let longest = took.max().expect("some");
    assert!(
        longest <= bound && longest * 3 > bound * 2,
        "{longest} of {bound}"
    );
}

#[test]
fn the_bounds_on_preemptions_are_reached() {
    let contract = |budget, period, priority| {
        let contract = Contract::new(budget, period).expect("a contract");
        contract.with_priority(Priority(priority))
    };
    // SPR fig. 6: a budget of 10 in regions of 6 is preempted once, however often it could be.
    let low = contract(10, 60, 1)
        .with_nonpreemptive(6)
        .expect("a contract");
    let often = Behaviour::Bursts { run: 1, sleep: 1 };
    let set = [(low, Behaviour::Busy), (contract(20, 40, 2), often)];
    let mut world = World::new(Order::FixedPriority, &set, 1);
    world.run(6_000, None);
    assert_eq!(world.preempted.len(), 100);

    // A server with one replenishment of every 20 preempts one of 60 three times a period.
    let single = contract(5, 20, 2)
        .with_replenishments(1)
        .expect("a contract");
    let set = [(contract(40, 60, 1), Behaviour::Busy), (single, often)];
    assert_eq!(admitted_preemptions(&set), 4);
    let mut world = World::new(Order::FixedPriority, &set, 1);
    world.run(6_000, None);
    assert!(
        (200..=300).contains(&world.preempted.len()),
        "{}",
        world.preempted.len()
    );
}
