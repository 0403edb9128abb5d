//! Properties of any load: invariants 4 and 5.

mod common;

use common::world::{self, Load, Step, Tenant, busy, loads, stalled_loads};
use leasehold_reserve::{Config, Nanos, Order, Policy, Scheduler, ServerId, Shielding};
use proptest::prelude::{ProptestConfig, Strategy, prop, proptest};

const HORIZON: Nanos = 3_000;
const SHIELDINGS: [Shielding; 2] = [Shielding::Eager, Shielding::Shielded];
const ORDERS: [Order; 2] = [Order::FixedPriority, Order::EarliestDeadline];

fn config(shielding: Shielding, order: Order) -> Config {
    Config {
        order,
        ..world::config(shielding)
    }
}

fn add_up(scheduler: &Scheduler, servers: &[ServerId], _: Nanos) {
    for &server in servers {
        let contract = scheduler.contract(server).unwrap();
        let entries = || scheduler.replenishments(server).unwrap();
        if entries().next().is_some() {
            let total: Nanos = entries().map(|entry| entry.amount).sum();
            assert_eq!(total, contract.budget());
            assert!(entries().count() <= contract.replenishments() as usize);
            assert!(entries().is_sorted_by_key(|entry| entry.at));
        }
    }
}

/// Loads that SPR eq. (1) admits, with non-preemptive regions.
fn admitted() -> impl Strategy<Value = Load> {
    loads().prop_map(|mut load| {
        load.tenants = world::admit(load.tenants);
        load
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn replenishments_always_add_up_to_the_budget(load in stalled_loads(), latency in 0..5u64) {
        for shielding in SHIELDINGS {
            let load = Load { latencies: vec![0, latency, 1], ..load.clone() };
            world::run(&load, config(shielding, Order::FixedPriority), HORIZON, add_up);
        }
    }

    #[test]
    fn shielded_at_most_two_reservations_and_one_timeout_are_touched(
        load in stalled_loads(), latency in 0..400u64,
    ) {
        for order in ORDERS {
            let load = Load { latencies: vec![0, latency, 1], ..load.clone() };
            let config = config(Shielding::Shielded, order);
            let (_, history) = world::run(&load, config, HORIZON, |_, _, _| {});
            for decision in history.decisions {
                assert!(decision.touched.is_some_and(|it| it <= 2), "{decision:?}");
                assert!(decision.timeouts <= 1, "{decision:?}");
            }
        }
    }

    #[test]
    fn shielded_every_timer_that_fires_switches(
        load in stalled_loads(), interrupt in 1..15u64, redispatch in 1..15u64,
    ) {
        let costs = [(0, 0), (0, redispatch), (interrupt, redispatch)];
        for (order, (interrupt, redispatch)) in ORDERS.into_iter().flat_map(|order| costs.map(|costs| (order, costs))) {
            let load = Load { interrupt, redispatch, ..load.clone() };
            let config = config(Shielding::Shielded, order);
            let (_, history) = world::run(&load, config, HORIZON, |_, _, _| {});
            for (at, switched) in history.fired {
                assert!(switched, "the timer at {at} did not switch, {order:?}");
            }
        }
    }

    #[test]
    fn no_server_gets_more_than_a_budget_for_every_period_that_began(load in stalled_loads()) {
        for shielding in SHIELDINGS {
            let config = config(shielding, Order::FixedPriority);
            let (_, history) = world::run(&load, config, HORIZON, |_, _, _| {});
            for (i, tenant) in load.tenants.iter().enumerate() {
                let (budget, period) = (tenant.contract.budget(), tenant.contract.period());
                for to in (0..HORIZON).step_by(7) {
                    // What a stall put off is given back with the whole queue.
                    let stalled: Nanos = history.stalls.iter().map(|(from, until)| until.min(&to) - from.min(&to)).sum();
                    assert!(history.supply(i, 0, to) <= budget * ((to + stalled) / period + 1));
                }
            }
        }
    }

    #[test]
    fn the_most_important_sporadic_server_gets_at_most_its_budget_in_any_period(
        load in loads(), latency in 0..5u64,
    ) {
        let mut load = load;
        let top = leasehold_reserve::Priority(9);
        for tenant in &mut load.tenants {
            tenant.contract = tenant.contract.with_nonpreemptive(0).unwrap();
        }
        let first = &mut load.tenants[0];
        first.contract = first.contract.with_priority(top).with_policy(Policy::Sporadic);
        let (budget, period) = (first.contract.budget(), first.contract.period());
        load.latencies = vec![latency, 0, latency.min(1)];
        for shielding in SHIELDINGS {
            let config = config(shielding, Order::FixedPriority);
            let (scheduler, history) = world::run(&load, config, HORIZON, |_, _, _| {});
            let overrun = scheduler.supply(history.servers[0]).unwrap().overrun_max;
            for from in (0..HORIZON).step_by(3) {
                let supply = history.supply(0, from, from + period);
                // A late timer defers budget that was available before.
                let most = budget + overrun + latency;
                assert!(supply <= most, "{supply} from {from} on");
            }
        }
    }

    #[test]
    fn an_admitted_server_gets_at_most_one_budget_more_than_there_are_periods(load in admitted()) {
        for shielding in SHIELDINGS {
            let config = config(shielding, Order::FixedPriority);
            let (_, history) = world::run(&load, config, HORIZON, |_, _, _| {});
            for (i, tenant) in load.tenants.iter().enumerate() {
                let (budget, period) = (tenant.contract.budget(), tenant.contract.period());
                for periods in 1..4 {
                    for from in (0..HORIZON).step_by(11) {
                        let supply = history.supply(i, from, from + periods * period);
                        assert!(supply <= (periods + 1) * budget);
                    }
                }
            }
        }
    }

    #[test]
    fn an_admitted_server_that_is_always_active_gets_its_budget_every_period(load in admitted()) {
        for shielding in SHIELDINGS {
            for always in 0..load.tenants.len() {
                let mut load = load.clone();
                load.tenants[always].programs = vec![busy()];
                let config = config(shielding, Order::FixedPriority);
                let (_, history) = world::run(&load, config, HORIZON, |_, _, _| {});
                let contract = load.tenants[always].contract;
                for from in (0..HORIZON - contract.period()).step_by(contract.period() as usize) {
                    let supply = history.supply(always, from, from + contract.period());
                    assert!(supply >= contract.budget(), "{supply} from {from} on for {always}");
                }
            }
        }
    }

    #[test]
    fn by_deadlines_an_always_active_server_gets_its_budget_every_period(load in loads()) {
        let mut load = load;
        let mut permille = 0;
        load.tenants.retain_mut(|tenant| {
            tenant.contract = tenant.contract.with_nonpreemptive(0).unwrap();
            let share = (tenant.contract.budget() * 1000).div_ceil(tenant.contract.period());
            let fits = permille + share <= 1000;
            permille += if fits { share } else { 0 };
            fits
        });
        for shielding in SHIELDINGS {
            for always in 0..load.tenants.len() {
                let mut load = load.clone();
                load.tenants[always].programs = vec![busy()];
                let config = config(shielding, Order::EarliestDeadline);
                let (_, history) = world::run(&load, config, HORIZON, |_, _, _| {});
                let contract = load.tenants[always].contract;
                for from in (0..HORIZON - contract.period()).step_by(contract.period() as usize) {
                    let supply = history.supply(always, from, from + contract.period());
                    assert!(supply >= contract.budget(), "{supply} from {from} on for {always}");
                }
                for (i, tenant) in load.tenants.iter().enumerate() {
                    let (budget, period) = (tenant.contract.budget(), tenant.contract.period());
                    for periods in 1..4 {
                        for from in (0..HORIZON).step_by(11) {
                            let supply = history.supply(i, from, from + periods * period);
                            // What is due within it, and what is due or begins around it.
                            assert!(supply <= (periods + 2) * budget);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn busy_servers_run_at_the_same_times_eager_and_shielded(
        contracts in prop::collection::vec(world::contracts(), 1..6),
    ) {
        let tenants = contracts.iter().enumerate().map(|(i, contract)| Tenant {
            contract: contract
                .with_priority(leasehold_reserve::Priority(i as u8))
                .with_nonpreemptive(0)
                .unwrap(),
            programs: vec![busy()],
        });
        let load = Load { tenants: tenants.collect(), background: Vec::new(), events: Vec::new(), joins: Vec::new(), stalls: Vec::new(), latencies: Vec::new(), interrupt: 0, redispatch: 0 };
        let [eager, shielded] = SHIELDINGS.map(|shielding| {
            let config = config(shielding, Order::FixedPriority);
            world::run(&load, config, HORIZON, |_, _, _| {}).1
        });
        assert_eq!(eager.slices, shielded.slices);
    }

    #[test]
    fn every_instant_in_which_a_task_ran_is_charged_once(
        load in loads(), latency in 0..20u64, interrupt in 0..15u64,
    ) {
        let load = Load { latencies: vec![latency, 0, latency / 2], interrupt, ..load };
        for order in ORDERS {
            let load = Load { background: Vec::new(), ..load.clone() };
            let config = config(Shielding::Shielded, order);
            let (mut scheduler, history) = world::run(&load, config, HORIZON, add_up);
            // What an interrupt has left to be charged is, by the second of two invocations.
            scheduler.schedule(HORIZON);
            scheduler.schedule(HORIZON);
            let charged: Nanos = history.servers.iter().map(|&server| scheduler.supply(server).unwrap().used).sum();
            let ran: Nanos = history.slices.iter().map(|&(from, to, _)| to - from).sum();
            let least = ran + history.woken;
            assert!((least..=least + history.late).contains(&charged), "{charged} of {least}");
        }
    }

    #[test]
    fn the_redispatch_is_charged_once_and_in_the_time_that_it_takes(
        load in loads(), latency in 0..20u64, interrupt in 0..15u64, redispatch in 1..15u64,
    ) {
        let load = Load {
            latencies: vec![latency, 0, latency / 2], interrupt, redispatch, background: Vec::new(), ..load
        };
        for order in ORDERS {
            let config = config(Shielding::Shielded, order);
            let (mut scheduler, history) = world::run(&load, config, HORIZON, add_up);
            scheduler.schedule(HORIZON);
            scheduler.schedule(HORIZON);
            let supplies = || history.servers.iter().map(|&server| scheduler.supply(server).unwrap());
            let charged: Nanos = supplies().map(|supply| supply.used).sum();
            let ran: Nanos = history.slices.iter().map(|&(from, to, _)| to - from).sum();
            // A resumed server may stop at once, so that the prepaid dispatch is not used.
            let returns: u64 = supplies().map(|supply| supply.preemptions).sum();
            let most = ran + history.woken + history.late + (returns + history.left + 1) * redispatch;
            assert!((ran..=most).contains(&charged), "{charged} of {ran} to {most}");
        }
    }

    #[test]
    fn no_server_gets_more_than_its_budget_and_the_redispatches(
        load in loads(), redispatch in 1..15u64,
    ) {
        let load = Load { redispatch, ..load };
        let config = config(Shielding::Shielded, Order::FixedPriority);
        let (scheduler, history) = world::run(&load, config, HORIZON, |_, _, _| {});
        let preemptions = |&server: &ServerId| scheduler.supply(server).unwrap().preemptions;
        let returns: u64 = history.servers.iter().map(preemptions).sum();
        for (i, tenant) in load.tenants.iter().enumerate() {
            let budgets = tenant.contract.budget() * (HORIZON / tenant.contract.period() + 1);
            let most = budgets + (returns + history.left + 1) * redispatch;
            assert!(history.supply(i, 0, HORIZON) <= most);
        }
    }

    #[test]
    fn no_server_is_charged_less_than_it_ran_but_for_the_interrupts_of_others(
        load in loads(), latency in 0..20u64, interrupt in 0..15u64,
    ) {
        let load = Load { latencies: vec![latency], interrupt, ..load };
        let config = config(Shielding::Shielded, Order::FixedPriority);
        let (mut scheduler, history) = world::run(&load, config, HORIZON, |_, _, _| {});
        scheduler.schedule(HORIZON);
        scheduler.schedule(HORIZON);
        for (i, &server) in history.servers.iter().enumerate() {
            let supply = scheduler.supply(server).unwrap();
            let ran = history.supply(i, 0, HORIZON);
            // One interrupt may begin a dispatch, and another one end it.
            assert!(supply.used + supply.dispatches * interrupt >= ran);
            assert!(supply.used <= ran + supply.dispatches * interrupt + history.woken);
        }
    }

    /// The number of involuntary preemptions of a server with a region of length η (SPR §III-F).
    ///
    /// Take a stretch: the time from when a server that never blocks has budget until the budget
    /// ends. It is dispatched `k + 1` times in it, `k` of them end with a preemption and the last
    /// with the depletion. A preemption ends a dispatch of η or more, and the last dispatch uses
    /// something, so `k·η < u` where `u` is what was used in the stretch: `k ≤ ⌈u/η⌉ − 1`.
    ///
    /// Where a stretch is one budget, `u = b`, and that is the paper's bound. It is not a bound for
    /// each budget otherwise: early replenishment (SPR §III-B) joins budgets to one stretch, in
    /// which a dispatch may use the end of one budget and the beginning of the next. Two budgets of
    /// 4 with regions of 2 are preempted at most once each alone, but three times joined: after 2,
    /// 4 and 6 of 8, as `⌈8/2⌉ − 1` says. The loss of SPR eq. (2), `⌈b/η⌉·O` for each budget, holds
    /// all the same: `k + 1 ≤ ⌈nb/η⌉ ≤ n·⌈b/η⌉` switches to it in a stretch of `n` budgets.
    #[test]
    fn a_stretch_of_budget_is_preempted_at_most_once_for_every_region_but_its_last(
        load in admitted(), length in 1..20u64,
    ) {
        for victim in 0..load.tenants.len() {
            let mut load = load.clone();
            let contract = load.tenants[victim].contract;
            let length = length.min(contract.budget());
            load.tenants[victim] = Tenant {
                contract: contract.with_nonpreemptive(length).unwrap().with_policy(Policy::Sporadic),
                programs: vec![vec![Step::Run(1_000_000)]],
            };
            let config = config(Shielding::Shielded, Order::FixedPriority);
            let mut began = leasehold_reserve::Supply::default();
            world::run(&load, config, HORIZON, |scheduler, servers, _| {
                let supply = scheduler.supply(servers[victim]).unwrap();
                let used = supply.used - began.used;
                let preemptions = supply.preemptions - began.preemptions;
                // Also in the midst of a stretch, where the last dispatch may not have run yet.
                assert!(preemptions <= used / length, "{supply:?}");
                if supply.depletions > began.depletions {
                    assert!(preemptions < used.div_ceil(length), "{preemptions} in {used} of {length}");
                    let budgets = used.div_ceil(contract.budget());
                    assert!(preemptions < budgets * contract.budget().div_ceil(length));
                    began = supply;
                }
            });
        }
    }
}
