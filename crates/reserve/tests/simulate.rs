//! Invariants of every simulation, and some simulations with results computed by hand.

use leasehold_reserve::admission::{Overhead, admit};
use leasehold_reserve::simulate::{
    Behaviour, CostModel, Event, ServerIndex, SetUpError, Simulation, Sink, Step, Tally, TaskIndex,
    Trace, write_chrome_trace,
};
use leasehold_reserve::{
    Config, Contract, Nanos, Order, Policy, Priority, REPLENISHMENTS_MAX, Shielding,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::{
    Just, ProptestConfig, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest,
};

/// A machine to simulate: servers with their tasks, and everything else that matters.
#[derive(Debug, Clone)]
struct Scene {
    order: Order,
    shielding: Shielding,
    costs: CostModel,
    servers: Vec<(Option<Contract>, Vec<Behaviour>)>,
}

impl Scene {
    fn simulate<S: Sink>(&self, sink: S, end: Nanos) -> Simulation<S> {
        let config = Config {
            order: self.order,
            shielding: self.shielding,
            servers: self.servers.len() as u32,
            tasks: self
                .servers
                .iter()
                .map(|server| server.1.len())
                .sum::<usize>() as u32,
            seed: 0,
        };
        let mut simulation = Simulation::new(config, self.costs, sink);
        for (contract, tasks) in &self.servers {
            let server = match contract {
                Some(contract) => simulation.server(contract),
                None => simulation.background(1_000),
            };
            for task in tasks {
                let server = server.expect("there is room");
                simulation.task(server, task.clone()).expect("takes time");
            }
        }
        simulation.run_until(end).expect("time passes");
        simulation
    }
}

fn contracts() -> impl Strategy<Value = Contract> {
    (
        100u64..=20_000,
        1u64..=4,
        any::<u8>(),
        any::<bool>(),
        1..=REPLENISHMENTS_MAX,
        0u64..=4,
    )
        .prop_map(|(budget, factor, priority, sporadic, ring, region)| {
            Contract::new(budget, budget * (factor + 1))
                .and_then(|contract| contract.with_replenishments(ring))
                .and_then(|contract| contract.with_nonpreemptive(budget * region / 8))
                .expect("valid by construction")
                .with_slice(2_000)
                .with_priority(Priority(priority))
                .with_policy(match sporadic {
                    true => Policy::Sporadic,
                    false => Policy::Deferrable,
                })
        })
}

fn behaviours() -> impl Strategy<Value = Behaviour> {
    let time = || 100u64..=30_000;
    prop_oneof![
        Just(Behaviour::Busy),
        (time(), time(), time()).prop_map(|(phase, period, execution)| Behaviour::Periodic {
            phase,
            period,
            execution
        }),
        (time(), time()).prop_map(|(run, sleep)| Behaviour::Alternating { run, sleep }),
        (any::<u64>(), time(), time()).prop_map(|(seed, gap, execution)| Behaviour::Sporadic {
            seed,
            least_gap: gap,
            greatest_gap: 2 * gap,
            least_execution: 1,
            greatest_execution: execution,
        }),
        (vec(time(), 1..20), time()).prop_map(|(mut instants, execution)| {
            instants.sort_unstable();
            Behaviour::Events {
                instants,
                execution,
            }
        }),
        // The first task is always there to be woken.
        (time(), time()).prop_map(|(run, until)| Behaviour::Script {
            steps: vec![
                Step::Run(run),
                Step::Wake(TaskIndex::new(0)),
                Step::SleepUntil(until),
                Step::Sleep(run),
            ],
            repeat: true,
        }),
    ]
}

fn costs() -> impl Strategy<Value = CostModel> {
    prop_oneof![
        Just(CostModel::FREE),
        Just(CostModel::BARE_METAL),
        Just(CostModel::VIRTUAL_MACHINE)
    ]
}

fn shieldings() -> impl Strategy<Value = Shielding> {
    prop_oneof![Just(Shielding::Eager), Just(Shielding::Shielded)]
}

fn scenes() -> impl Strategy<Value = Scene> {
    let order = prop_oneof![Just(Order::FixedPriority), Just(Order::EarliestDeadline)];
    let server = (option::weighted(0.9, contracts()), vec(behaviours(), 1..4));
    (order, shieldings(), costs(), vec(server, 1..6)).prop_map(
        |(order, shielding, costs, servers)| Scene {
            order,
            shielding,
            costs,
            servers,
        },
    )
}

const END: Nanos = 1_000_000;

/// Returns the servers that were charged for the processor, in the order of time.
fn stretches(trace: &Trace) -> Vec<(Nanos, Nanos, Option<TaskIndex>)> {
    trace
        .events()
        .iter()
        .filter_map(|event| match *event {
            Event::Ran { task, from, to } => Some((from, to, Some(task))),
            Event::Overhead { task, from, to, .. } => Some((from, to, task)),
            _ => None,
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_same_scene_gives_the_same_trace(scene in scenes()) {
        let trace = || scene.simulate(Trace::new(1 << 20, true), END).into_sink();
        let (first, second) = (trace(), trace());
        prop_assert_eq!(first.events(), second.events());
    }

    #[test]
    fn time_is_spent_once_and_charged_to_the_task_that_spends_it(scene in scenes()) {
        let simulation = scene.simulate((Trace::new(1 << 20, false), Tally::new()), END);
        let (trace, tally) = simulation.sink();
        prop_assert_eq!(trace.dropped(), 0);
        let mut charged = vec![0; scene.servers.len()];
        let mut last = 0;
        for (from, to, task) in stretches(trace) {
            prop_assert!(last <= from && from < to, "{last} {from} {to}");
            last = to;
            if let Some(task) = task {
                charged[trace.tasks()[task.get()].get()] += to - from;
            }
        }
        for (server, charged) in charged.into_iter().enumerate() {
            let server = ServerIndex::new(server as u32);
            prop_assert_eq!(simulation.supply(server).used, charged);
            prop_assert_eq!(tally.server(server).used(), charged);
        }
    }

    #[test]
    fn no_job_starts_before_it_is_activated_or_runs_while_it_sleeps(scene in scenes()) {
        let trace = scene.simulate(Trace::new(1 << 20, false), END).into_sink();
        for event in trace.events() {
            match *event {
                Event::Activated { planned, at, .. } | Event::Completed { planned, at, .. } => {
                    prop_assert!(planned <= at);
                }
                Event::Missed { due, at, .. } => prop_assert!(due < at),
                _ => {}
            }
        }
    }

    #[test]
    fn a_simulation_that_stops_and_goes_on_serves_as_one_that_does_not(scene in scenes()) {
        let mut scene = scene;
        // What a stop costs is the account that is settled; without costs that is nothing.
        scene.costs = CostModel::FREE;
        scene.shielding = Shielding::Shielded;
        let whole = scene.simulate((), END);
        let mut halves = scene.simulate((), END / 3);
        halves.run_until(END).expect("time passes");
        for server in 0..scene.servers.len() {
            let server = ServerIndex::new(server as u32);
            prop_assert_eq!(halves.supply(server).used, whole.supply(server).used);
        }
    }
}

fn contract(budget: Nanos, period: Nanos, priority: u8) -> Contract {
    Contract::new(budget, period)
        .expect("valid")
        .with_priority(Priority(priority))
}

const FREE: Config = Config {
    order: Order::FixedPriority,
    shielding: Shielding::Shielded,
    servers: 8,
    tasks: 8,
    seed: 0,
};

#[test]
fn a_periodic_task_of_high_priority_is_on_time_and_a_starved_one_misses_all() {
    let mut simulation = Simulation::new(FREE, CostModel::FREE, Tally::new());
    let high = simulation.server(&contract(100, 100, 2)).expect("room");
    let low = simulation.server(&contract(50, 100, 1)).expect("room");
    let periodic = |execution| Behaviour::Periodic {
        phase: 0,
        period: 100,
        execution,
    };
    simulation.task(high, periodic(100)).expect("takes time");
    simulation.task(low, periodic(10)).expect("takes time");
    simulation.run_until(1_001).expect("time passes");
    let tally = simulation.sink();
    assert_eq!(tally.server(high).misses(), 0);
    assert_eq!(tally.server(high).worst_response(), Some(100));
    assert_eq!(tally.server(low).misses(), 10);
    assert_eq!(tally.server(low).used(), 0);
    assert_eq!(tally.server(low).least_used(), Some(0));
}

#[test]
fn a_task_that_is_woken_runs_at_once_if_it_is_more_important() {
    let mut simulation = Simulation::new(FREE, CostModel::FREE, Trace::new(100, false));
    let low = simulation.server(&contract(100, 100, 1)).expect("room");
    let high = simulation.server(&contract(100, 100, 2)).expect("room");
    let steps = vec![Step::Run(7), Step::Wake(TaskIndex::new(1)), Step::Run(3)];
    let script = |steps, repeat| Behaviour::Script { steps, repeat };
    simulation
        .task(low, script(steps, false))
        .expect("takes time");
    simulation
        .task(high, script(vec![Step::Await, Step::Run(5)], true))
        .expect("takes time");
    simulation.run_until(50).expect("time passes");
    let ran: Vec<_> = stretches(simulation.sink());
    let (waker, woken) = (Some(TaskIndex::new(0)), Some(TaskIndex::new(1)));
    assert_eq!(ran, [(0, 7, waker), (7, 12, woken), (12, 15, waker)]);
}

#[test]
fn waking_others_takes_the_processor_even_at_the_beginning() {
    let mut simulation = Simulation::new(FREE, CostModel::FREE, Trace::new(100, false));
    let server = |simulation: &mut Simulation<Trace>, priority| {
        simulation
            .server(&contract(100, 100, priority))
            .expect("room")
    };
    let low = server(&mut simulation, 1);
    let high = server(&mut simulation, 2);
    let woken = TaskIndex::new(1);
    let wakes = Behaviour::Script {
        steps: vec![Step::SleepUntil(0), Step::Wake(woken), Step::Wake(woken)],
        repeat: false,
    };
    simulation.task(low, wakes).expect("takes time");
    let steps = vec![Step::Await, Step::Run(5)];
    let script = Behaviour::Script {
        steps,
        repeat: true,
    };
    simulation.task(high, script).expect("takes time");
    simulation.run_until(50).expect("time passes");
    let activations = simulation
        .sink()
        .events()
        .iter()
        .filter_map(|event| match event {
            Event::Activated { task, planned, .. } if *task == woken => Some(*planned),
            _ => None,
        });
    // The second wake-up comes when the first job is done, since it is of higher priority.
    assert_eq!(activations.collect::<Vec<_>>(), [0, 5]);
}

#[test]
fn events_during_a_job_wait_for_it() {
    let mut simulation = Simulation::new(FREE, CostModel::FREE, Tally::new());
    let server = simulation.server(&contract(100, 100, 1)).expect("room");
    let events = Behaviour::Events {
        instants: vec![10, 11, 40],
        execution: 5,
    };
    simulation.task(server, events).expect("takes time");
    simulation.run_until(100).expect("time passes");
    let tally = simulation.sink().server(server);
    assert_eq!((tally.activations(), tally.used()), (3, 15));
    // The second came at 11 and ran from 15 to 20.
    assert_eq!(tally.worst_wakeup(), Some(4));
    assert_eq!(tally.worst_response(), Some(9));
}

#[test]
fn the_preempting_server_pays_for_a_preemption_and_the_caller_for_a_call() {
    let costs = CostModel {
        interrupt: 1_000,
        handler: 100,
        call: 10,
        decision: 7,
        switch: 5,
        ..CostModel::FREE
    };
    // The overhead that low and high pay.
    let paid = |shielding| {
        let config = Config { shielding, ..FREE };
        let mut simulation = Simulation::new(config, costs, Tally::new());
        let [low, high] = [(100_000, 1), (50_000, 2)].map(|(budget, priority)| {
            let server = simulation.server(&contract(budget, 100_000, priority));
            server.expect("room")
        });
        simulation.task(low, Behaviour::Busy).expect("takes time");
        let once = Behaviour::Script {
            steps: vec![Step::SleepUntil(10_000), Step::Run(500)],
            repeat: false,
        };
        simulation.task(high, once).expect("takes time");
        simulation.run_until(20_000).expect("time passes");
        let tally = simulation.sink();
        assert_eq!(tally.server(high).worst_wakeup(), Some(1_000 + 100 + 7 + 5));
        assert_eq!(tally.server(high).work(), 500);
        [low, high].map(|server| tally.server(server).overhead())
    };
    // High pays for its own dispatch and its call, and shielded for all of the preemption.
    let (back, high) = (7 + 5, 7 + 5 + 10);
    assert_eq!(paid(Shielding::Shielded), [0, 1_000 + 100 + high + back]);
    assert_eq!(paid(Shielding::Eager), [1_000 + 100 + back, high]);
}

#[test]
fn a_preempted_task_reloads_what_the_other_evicted() {
    let mut simulation = Simulation::new(FREE, CostModel::FREE, Tally::new());
    let low = simulation.server(&contract(1_000, 1_000, 1)).expect("room");
    let high = simulation.server(&contract(500, 1_000, 2)).expect("room");
    simulation.task(low, Behaviour::Busy).expect("takes time");
    let periodic = Behaviour::Periodic {
        phase: 100,
        period: 100,
        execution: 10,
    };
    let attacker = simulation.task(high, periodic).expect("takes time");
    simulation.set_eviction(attacker, 30);
    simulation.run_until(999).expect("time passes");
    let tally = simulation.sink().server(low);
    assert_eq!(tally.preemptions(), 9);
    assert_eq!(tally.overhead(), 9 * 30);
    assert_eq!(tally.work(), 999 - 9 * (10 + 30));
}

#[test]
fn a_non_preemptive_region_of_6_leaves_one_preemption_of_a_budget_of_10() {
    // SPR fig. 6.
    let preemptions = |region| {
        let mut simulation = Simulation::new(FREE, CostModel::FREE, Tally::new());
        let low = contract(10, 60, 1)
            .with_nonpreemptive(region)
            .expect("fits");
        let low = simulation.server(&low).expect("room");
        let high = simulation.server(&contract(15, 30, 2)).expect("room");
        simulation.task(low, Behaviour::Busy).expect("takes time");
        let storm = Behaviour::Alternating { run: 1, sleep: 2 };
        simulation.task(high, storm).expect("takes time");
        simulation.run_until(60).expect("time passes");
        assert_eq!(simulation.supply(low).used, 10);
        simulation.sink().server(low).preemptions()
    };
    assert_eq!(preemptions(6), 1);
    assert!(preemptions(0) >= 4);
}

#[test]
fn random_scenes_with_another_seed_differ() {
    let trace = |seed| {
        let mut simulation = Simulation::new(FREE, CostModel::FREE, Trace::new(1_000, false));
        let server = simulation.server(&contract(50, 100, 1)).expect("room");
        let random = Behaviour::Sporadic {
            seed,
            least_gap: 10,
            greatest_gap: 100,
            least_execution: 1,
            greatest_execution: 9,
        };
        simulation.task(server, random).expect("takes time");
        simulation.run_until(1_000).expect("time passes");
        simulation.into_sink().events().to_vec()
    };
    assert_eq!(trace(1), trace(1));
    assert_ne!(trace(1), trace(2));
}

#[test]
fn tasks_that_wake_each_other_for_ever_are_noticed() {
    let mut simulation = Simulation::new(FREE, CostModel::FREE, ());
    let server = simulation.server(&contract(50, 100, 1)).expect("room");
    for other in [1, 0] {
        let steps = vec![Step::Wake(TaskIndex::new(other)), Step::Await];
        let script = Behaviour::Script {
            steps,
            repeat: true,
        };
        simulation.task(server, script).expect("takes time");
    }
    assert_eq!(simulation.run_until(10).expect_err("stalls").at, 0);
}

#[test]
fn what_takes_no_time_and_what_has_no_room_are_refused() {
    let config = Config {
        servers: 1,
        tasks: 1,
        ..FREE
    };
    let mut simulation = Simulation::new(config, CostModel::FREE, ());
    let server = simulation.server(&contract(50, 100, 1)).expect("room");
    let nothing = Behaviour::Alternating { run: 0, sleep: 0 };
    assert_eq!(simulation.task(server, nothing), Err(SetUpError::Timeless));
    simulation.task(server, Behaviour::Busy).expect("room");
    assert!(matches!(
        simulation.task(server, Behaviour::Busy),
        Err(SetUpError::Refused(_))
    ));
}

#[test]
fn a_trace_keeps_as_much_as_it_has_room_for_and_counts_the_rest() {
    let run = |capacity| {
        let mut simulation = Simulation::new(FREE, CostModel::FREE, Trace::new(capacity, true));
        let server = simulation.server(&contract(50, 100, 1)).expect("room");
        simulation
            .task(server, Behaviour::Busy)
            .expect("takes time");
        simulation.run_until(10_000).expect("time passes");
        simulation.into_sink()
    };
    let (all, some) = (run(1 << 20), run(100));
    assert_eq!(some.events(), &all.events()[..100]);
    assert_eq!(some.dropped() + 100, all.events().len() as u64);
}

#[test]
fn an_exported_trace_is_json_with_a_track_and_a_counter_per_server() {
    let mut simulation = Simulation::new(FREE, CostModel::BARE_METAL, Trace::new(10_000, true));
    let server = simulation
        .server(&contract(20_000, 100_000, 1))
        .expect("room");
    simulation
        .task(server, Behaviour::Busy)
        .expect("takes time");
    simulation.run_until(1_000_000).expect("time passes");
    let mut text = String::new();
    write_chrome_trace(simulation.sink(), &["the \"first\""], &mut text).expect("to a string");
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let events = json["traceEvents"].as_array().expect("a list");
    let of_kind = |kind: &str| events.iter().filter(|event| event["ph"] == kind).count();
    assert!(events.iter().any(|event| {
        event["name"] == "thread_name" && event["args"]["name"] == "the \"first\""
    }));
    assert!(of_kind("X") >= 10 && of_kind("C") >= 10 && of_kind("i") >= 10);
    let busy: f64 = events
        .iter()
        .filter(|event| event["ph"] == "X" && event["tid"] == 1)
        .map(|event| event["dur"].as_f64().expect("a number"))
        .sum();
    let used = simulation.supply(server).used as f64 / 1_000.0;
    assert!((busy - used).abs() < 0.01, "{busy} µs of {used} µs");
}

/// What one preemption takes at most.
fn overhead(costs: &CostModel) -> Overhead {
    Overhead {
        per_preemption: costs.preemption(REPLENISHMENTS_MAX),
    }
}

/// A tenant that has a job of useful length in every period, and its rivals; how many jobs it missed,
/// its longest response, and the bound.
fn useful_jobs(
    order: Order,
    costs: CostModel,
    contract: &Contract,
    rivals: &[(Option<Contract>, Behaviour)],
    (phase, jobs): (Nanos, u64),
) -> Option<(u64, Option<Nanos>, Nanos)> {
    let contracts = rivals.iter().filter_map(|rival| rival.0);
    let contracts: Vec<_> = [*contract].into_iter().chain(contracts).collect();
    let report = admit(&contracts, order, overhead(&costs));
    if order == Order::EarliestDeadline && !report.schedulable() {
        // By deadlines a set is promised as a whole.
        return None;
    }
    let verdict = report.servers[0];
    let (response, useful) = (verdict.response?, verdict.loss.useful.filter(|it| *it > 0)?);
    let job = Behaviour::Periodic {
        phase,
        period: contract.period(),
        execution: useful,
    };
    let rivals = rivals.iter().map(|rival| (rival.0, vec![rival.1.clone()]));
    let scene = Scene {
        order,
        shielding: Shielding::Shielded,
        costs,
        servers: [(Some(*contract), vec![job])]
            .into_iter()
            .chain(rivals)
            .collect(),
    };
    let simulation = scene.simulate(Tally::new(), phase + jobs * contract.period());
    let tally = simulation.sink().server(ServerIndex::new(0));
    Some((tally.misses(), tally.worst_response(), response))
}

#[test]
fn by_deadlines_a_set_with_a_server_that_does_not_fit_is_not_promised_to_the_others() {
    let contract = |budget, period| Contract::new(budget, period).expect("a contract");
    let victim = contract(3_904_103, 85_890_266);
    let victim = victim.with_nonpreemptive(2_928_075).expect("a region");
    // Half of the processor in periods of a few dispatches: beside it the victim's job was 0.1 ms late.
    let set = [
        victim,
        contract(3_157_680, 97_888_080),
        contract(50_000, 100_000),
    ];
    let costs = overhead(&CostModel::VIRTUAL_MACHINE);
    assert!(!admit(&set, Order::EarliestDeadline, costs).schedulable());
    assert!(admit(&set[..2], Order::EarliestDeadline, costs).schedulable());
}

#[test]
fn a_job_of_useful_length_beside_a_busy_rival_misses_none_of_a_thousand() {
    let contract = |budget, period, priority| {
        let contract = Contract::new(budget, period).expect("a contract");
        contract.with_priority(Priority(priority))
    };
    let victim = contract(2_000_000, 10_000_000, 100);
    for rival in [Some(contract(7_000_000, 10_000_000, 1)), None] {
        let rivals = [(rival, Behaviour::Busy)];
        let costs = CostModel::default();
        let told = useful_jobs(Order::FixedPriority, costs, &victim, &rivals, (0, 1_000));
        let (misses, response, bound) = told.expect("admitted");
        assert_eq!(misses, 0);
        assert!(response <= Some(bound), "{response:?} of {bound}");
        // Nor is the bound far off.
        assert!(
            response >= Some(bound - bound / 10),
            "{response:?} of {bound}"
        );
    }
}

/// Budgets of 50 us to 5 ms.
fn rivals() -> impl Strategy<Value = (Option<Contract>, Behaviour)> {
    let contract = (
        50_000..5_000_000u64,
        1..40u64,
        any::<u8>(),
        any::<bool>(),
        1..=64u32,
        0..=4u64,
    );
    let contract = contract.prop_map(|(budget, times, priority, deferrable, places, quarters)| {
        let policy = if deferrable {
            Policy::Deferrable
        } else {
            Policy::Sporadic
        };
        Contract::new(budget, budget * times)
            .and_then(|contract| contract.with_nonpreemptive(budget / 4 * quarters))
            .and_then(|contract| contract.with_replenishments(places))
            .expect("a contract")
            .with_priority(Priority(priority))
            .with_policy(policy)
    });
    let behaviour = prop_oneof![
        Just(Behaviour::Busy),
        (1_000..100_000u64, 1_000..100_000u64)
            .prop_map(|(run, sleep)| Behaviour::Alternating { run, sleep }),
        (0..5_000_000u64, 100_000..20_000_000u64, 1_000..3_000_000u64).prop_map(
            |(phase, period, execution)| Behaviour::Periodic {
                phase,
                period,
                execution
            }
        ),
        (any::<u64>(), 20_000..400_000u64, 1_000..300_000u64).prop_map(|(seed, gap, execution)| {
            Behaviour::Sporadic {
                seed,
                least_gap: gap / 10,
                greatest_gap: gap,
                least_execution: 1_000,
                greatest_execution: execution,
            }
        }),
    ];
    (option::weighted(0.8, contract), behaviour)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn a_job_of_useful_length_misses_nothing_whatever_scheduling_costs_and_rivals_do(
        victim in rivals(),
        rivals in vec(rivals(), 0..6),
        bare in any::<bool>(),
        by_deadline in any::<bool>(),
        phase in 0..10_000_000u64,
    ) {
        let costs = if bare { CostModel::BARE_METAL } else { CostModel::VIRTUAL_MACHINE };
        let order = if by_deadline { Order::EarliestDeadline } else { Order::FixedPriority };
        if let Some(contract) = victim.0 {
            let aligned = !by_deadline && contract.policy() == Policy::Deferrable;
            let phase = if aligned { 0 } else { phase };
            let told = useful_jobs(order, costs, &contract, &rivals, (phase, 30));
            if let Some((misses, response, bound)) = told {
                prop_assert_eq!(misses, 0);
                prop_assert!(response <= Some(bound), "{response:?} of {bound}");
            }
        }
    }
}

#[test]
fn a_period_of_a_nanosecond_takes_no_time_of_its_own() {
    let contract = Contract::new(1, 1).expect("a contract");
    let scene = Scene {
        order: Order::FixedPriority,
        shielding: Shielding::Shielded,
        costs: CostModel::default(),
        servers: vec![
            (
                Some(contract),
                vec![Behaviour::Script {
                    steps: vec![Step::Run(5)],
                    repeat: false,
                }],
            ),
            (
                Some(contract),
                vec![Behaviour::Periodic {
                    phase: 0,
                    period: 1,
                    execution: 1_000_000_000_000,
                }],
            ),
        ],
    };
    // Half an hour: 1.8 · 10¹² periods and jobs.
    let end = 1_800_000_000_000;
    let simulation = scene.simulate(Tally::new(), end);
    let [first, second] = [0, 1].map(|it| simulation.sink().server(ServerIndex::new(it)));
    assert_eq!((first.windows(), first.least_used()), (end, Some(0)));
    assert_eq!(second.windows(), end);
    assert!(second.misses() > end - 10, "{}", second.misses());
}
