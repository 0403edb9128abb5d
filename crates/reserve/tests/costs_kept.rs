//! With overhead, too, the scheduler keeps the promises of the admission test: no job of `useful`
//! nanoseconds misses, and no response and no reclamation exceeds its bound.
//!
//! The machine has interrupts, calls and dispatches of up to the stated overhead, of which the
//! scheduler knows the usual cost, and non-preemptible steps. Some tenants are woken by messages. `PROPTEST_CASES` sets how many sets
//! are drawn.

use leasehold_reserve::admission::{Overhead, Verdict, admit, while_ending};
use leasehold_reserve::simulate::SplitMix;
use leasehold_reserve::{
    Config, Contract, Decision, Nanos, Order, Policy, Priority, Scheduler, ServerId, Shielding,
    State, TaskId,
};
use proptest::prelude::{
    Just, ProptestConfig, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest,
};

struct Random(SplitMix);

impl Random {
    /// A number of `0..bound`.
    fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    /// Up to `most`: every second time that much.
    fn up_to(&mut self, most: u64) -> u64 {
        match self.below(2) {
            0 => most,
            _ => self.below(most + 1),
        }
    }
}

/// The machine's largest costs, and the costs that the scheduler assumes.
#[derive(Debug, Clone, Copy)]
struct Costs {
    interrupt: Nanos,
    dispatch: Nanos,
    usual_interrupt: Nanos,
    usual_dispatch: Nanos,
}

impl Costs {
    fn overhead(self) -> Overhead {
        Overhead {
            per_preemption: self.interrupt + self.dispatch,
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Behaviour {
    /// Runs whenever it may.
    Busy,
    /// Runs for up to `run` nanoseconds, then sleeps for up to `sleep`.
    Bursts { run: Nanos, sleep: Nanos },
    /// Runs for `run` nanoseconds whenever the first tenant has a job, `phase` after its release.
    Beside { run: Nanos, phase: Nanos },
}

#[derive(Debug, Clone)]
struct Set {
    order: Order,
    costs: Costs,
    tenants: Vec<(Contract, Behaviour)>,
    /// In the background, with steps that nothing interrupts.
    background: Vec<(Nanos, Behaviour)>,
    background_step: Nanos,
    /// When the first tenant has its first job.
    phase: Nanos,
    /// A bit for each tenant that messages wake instead of its timer.
    hears: u8,
}

impl Set {
    /// The budget of a deferrable server is promised from its return on.
    fn is_aligned(&self) -> bool {
        self.order == Order::FixedPriority && self.tenants[0].0.policy() == Policy::Deferrable
    }

    /// Returns the verdict on the first tenant.
    fn verdict(&self) -> Verdict {
        let mut contracts: Vec<_> = self.tenants.iter().map(|tenant| tenant.0).collect();
        if self.background_step > 0 {
            contracts.push(Contract::background(self.background_step));
        }
        admit(&contracts, self.order, self.costs.overhead()).servers[0]
    }
}

struct Tenant {
    server: ServerId,
    task: TaskId,
    behaviour: Behaviour,
    /// The longest step that nothing interrupts.
    step: Nanos,
    /// What its task still runs before it sleeps.
    left: Nanos,
    /// If messages wake it: its place among those that they interrupt. The background has the last.
    hears: bool,
    priority: Option<Priority>,
    /// When the next of them comes.
    mail: Option<Nanos>,
}

/// Of the first tenant.
#[derive(Debug, Default)]
struct Jobs {
    length: Nanos,
    released: Nanos,
    done: u64,
    worst: Nanos,
}

struct Machine {
    scheduler: Scheduler,
    costs: Costs,
    tenants: Vec<Tenant>,
    random: Random,
    /// Until when everything has happened; from then on the task that was dispatched runs.
    now: Nanos,
    last: Decision,
    /// Period and phase of the first tenant's jobs.
    period: Nanos,
    phase: Nanos,
    /// Whether its jobs are released when its periods begin.
    is_aligned: bool,
    jobs: Option<Jobs>,
}

impl Machine {
    /// All tenants are awake, but for the first if it has `jobs` of that length to do.
    fn new(set: &Set, seed: u64, jobs: Option<Nanos>) -> Self {
        let tenants = set.tenants.len() + set.background.len();
        let mut scheduler = Scheduler::new(Config {
            order: set.order,
            shielding: Shielding::Shielded,
            servers: tenants as u32,
            tasks: tenants as u32 + 1,
            seed: 0,
        })
        .with_interrupt(set.costs.usual_interrupt)
        .with_redispatch(set.costs.usual_dispatch);
        let mut tenants = Vec::new();
        for &(contract, behaviour) in &set.tenants {
            let server = scheduler.add_server(&contract, 0).expect("there is room");
            let priority = Some(contract.priority());
            tenants.push((server, behaviour, contract.longest_step(), priority));
        }
        for &(slice, behaviour) in &set.background {
            let server = scheduler.add_background(slice).expect("there is room");
            tenants.push((server, behaviour, set.background_step, None));
        }
        let tenant = |(index, (server, behaviour, step, priority)): (u32, _)| Tenant {
            server,
            task: scheduler.add_task(server).expect("there is room"),
            behaviour,
            step,
            left: 1,
            hears: set.hears >> index & 1 == 1,
            priority,
            mail: None,
        };
        let tenants = (0..).zip(tenants).map(tenant).collect();
        let mut machine = Self {
            scheduler,
            costs: set.costs,
            tenants,
            random: Random(SplitMix::new(seed)),
            now: 0,
            last: Decision::default(),
            period: set.tenants[0].0.period(),
            phase: set.phase,
            is_aligned: set.is_aligned(),
            jobs: None,
        };
        for tenant in &machine.tenants {
            machine.scheduler.wake(tenant.task, 0).expect("it is there");
        }
        if let Some(length) = jobs {
            machine.begin_jobs(length);
        }
        machine.decide();
        machine
    }

    /// Decides, after reading the messages for all that are at least as urgent as the task that would run.
    fn decide(&mut self) {
        loop {
            self.last = self.scheduler.schedule(self.now);
            let least = self.running().and_then(|i| self.tenants[i].priority);
            let now = self.now;
            let is_read = |tenant: &&mut Tenant| {
                tenant.mail.is_some_and(|mail| mail <= now) && tenant.priority >= least
            };
            let Some(tenant) = self.tenants.iter_mut().find(is_read) else {
                break;
            };
            let sent = tenant.mail.take().unwrap_or(now);
            let heard = self.scheduler.wake_by_message(tenant.task, sent, now);
            heard.expect("it is there");
        }
        self.now += self.random.up_to(self.costs.dispatch);
    }

    /// When the next message interrupts what runs: one for a more urgent tenant, not before the end of the region.
    fn next_mail(&self) -> Nanos {
        let running = self.running();
        let least = running.map(|i| self.tenants[i].priority);
        let interrupts = |tenant: &&Tenant| least.is_none_or(|least| tenant.priority > least);
        let mail = self.tenants.iter().filter(interrupts);
        let first = mail.filter_map(|tenant| tenant.mail).min();
        first.map_or(Nanos::MAX, |first| first.max(self.last.region_end))
    }

    /// Puts the task of a tenant to sleep until `wake`.
    fn sleep(&mut self, index: usize, wake: Nanos) {
        let tenant = &mut self.tenants[index];
        let until = match tenant.hears {
            true => {
                tenant.mail = Some(wake);
                None
            }
            false => Some(wake),
        };
        let blocked = self.scheduler.block(tenant.task, self.now, until);
        blocked.expect("it is there");
    }

    fn running(&self) -> Option<usize> {
        let task = self.last.run?;
        self.tenants.iter().position(|tenant| tenant.task == task)
    }

    /// The first release from `from` on.
    fn release(&self, from: Nanos) -> Nanos {
        self.phase
            + from
                .saturating_sub(self.phase)
                .next_multiple_of(self.period)
    }

    /// Lets time pass up to `limit`, or to the end of what the tenant `until` has left to run.
    fn run(&mut self, limit: Nanos, until: Option<usize>) {
        while self.now < limit {
            let running = self.running();
            let end = running.map_or(Nanos::MAX, |i| {
                self.now.saturating_add(self.tenants[i].left)
            });
            let timer = self.last.timer.unwrap_or(Nanos::MAX).min(self.next_mail());
            let timer = timer.max(self.now);
            // In a step, it runs on.
            let step = running.map_or(0, |i| self.random.up_to(self.tenants[i].step));
            if let Some(index) = running
                && end <= timer.saturating_add(step)
            {
                if end > limit {
                    self.tenants[index].left -= limit - self.now;
                    self.now = limit;
                    return;
                }
                self.now = end;
                self.tenants[index].left = 0;
                if until == running {
                    return;
                }
                self.stop(index);
                continue;
            }
            if timer >= limit {
                if let Some(index) = running {
                    self.tenants[index].left -= limit - self.now;
                }
                self.now = limit;
                return;
            }
            let at = timer + step;
            if let Some(index) = running {
                self.tenants[index].left -= at - self.now;
            }
            self.now = at + self.random.up_to(self.costs.interrupt);
            self.decide();
        }
    }

    /// Puts a task to sleep after its work.
    fn stop(&mut self, index: usize) {
        let done = self.now;
        // What it takes to call the scheduler.
        self.now += self.random.up_to(self.costs.interrupt);
        let now = self.now;
        let (wake, left) = match (index, &mut self.jobs) {
            (0, Some(jobs)) => {
                jobs.done += 1;
                jobs.worst = jobs.worst.max(done - jobs.released);
                jobs.released += self.period;
                if self.random.below(8) == 0 {
                    jobs.released += match self.is_aligned {
                        true => self.period,
                        false => self.random.below(self.period),
                    };
                }
                (jobs.released, jobs.length)
            }
            _ => match self.tenants[index].behaviour {
                Behaviour::Busy => (now + 1, Nanos::MAX / 2),
                Behaviour::Bursts { run, sleep } => (
                    now + 1 + self.random.below(sleep),
                    1 + self.random.below(run),
                ),
                Behaviour::Beside { run, phase } => (
                    self.release(now.saturating_sub(phase) + 1) + phase,
                    1 + self.random.below(run),
                ),
            },
        };
        self.tenants[index].left = left;
        self.sleep(index, wake);
        self.decide();
    }

    /// From now on the first tenant has a job of `length` in every period.
    fn begin_jobs(&mut self, length: Nanos) {
        let released = self.release(self.now);
        self.tenants[0].left = length;
        self.sleep(0, released);
        self.jobs = Some(Jobs {
            length,
            released,
            ..Jobs::default()
        });
    }

    /// Kills the first tenant, whose server then has `reclaim` nanoseconds of work to do; returns how
    /// long that took, or `None` if it took longer than `limit`.
    fn kill(&mut self, order: Order, reclaim: Nanos, limit: Nanos) -> Option<Nanos> {
        let killed = self.now;
        let tenant = &mut self.tenants[0];
        self.scheduler
            .remove_task(tenant.task, killed)
            .expect("it is there");
        tenant.task = self
            .scheduler
            .add_task(tenant.server)
            .expect("there is room");
        // The end is taken in small steps.
        (tenant.left, tenant.step, tenant.mail) = (reclaim, 0, None);
        if order == Order::FixedPriority {
            let contract = self.scheduler.contract(tenant.server);
            let most = while_ending(&contract.expect("it is there")).replenishments();
            self.scheduler
                .join_replenishments(tenant.server, most, killed)
                .expect("it is there");
        }
        self.scheduler
            .wake(tenant.task, killed)
            .expect("it is there");
        self.decide();
        self.run(killed + limit + 1, Some(0));
        (self.tenants[0].left == 0 && self.now <= killed + limit).then_some(self.now - killed)
    }
}

fn contracts() -> impl Strategy<Value = Contract> {
    let policies = prop_oneof![2 => Just(Policy::Sporadic), 1 => Just(Policy::Deferrable)];
    let steps = prop_oneof![3 => Just(0_u64), 1 => 1..12_u64];
    (
        1..60_u64,
        0..500_u64,
        0..4_u8,
        policies,
        0..60_u64,
        0..4_u32,
        steps,
    )
        .prop_map(|(budget, more, priority, policy, region, places, step)| {
            Contract::new(budget, budget + more)
                .and_then(|contract| contract.with_nonpreemptive(region.min(budget)))
                .and_then(|contract| contract.with_replenishments(1 << places))
                .expect("a contract")
                .with_priority(Priority(priority))
                .with_policy(policy)
                .with_longest_step(step)
        })
}

fn behaviours() -> impl Strategy<Value = Behaviour> {
    prop_oneof![
        Just(Behaviour::Busy),
        (1..60_u64, 1..300_u64).prop_map(|(run, sleep)| Behaviour::Bursts { run, sleep }),
        // Splits its budget as finely as it can.
        (1..4_u64, 1..3_u64).prop_map(|(run, sleep)| Behaviour::Bursts { run, sleep }),
        (1..60_u64, 0..20_u64).prop_map(|(run, phase)| Behaviour::Beside { run, phase }),
    ]
}

fn costs() -> impl Strategy<Value = Costs> {
    (0..4_u64, 0..4_u64, any::<bool>()).prop_map(|(interrupt, dispatch, exact)| Costs {
        interrupt,
        dispatch,
        usual_interrupt: if exact { interrupt } else { interrupt / 2 },
        usual_dispatch: if exact { dispatch } else { dispatch / 2 },
    })
}

fn orders() -> impl Strategy<Value = Order> {
    prop_oneof![2 => Just(Order::FixedPriority), 1 => Just(Order::EarliestDeadline)]
}

/// Tenants of which the first, at least, gets its budget in every period, and has some use of it.
fn sets() -> impl Strategy<Value = Set> {
    let tenants = proptest::collection::vec((contracts(), behaviours()), 1..7);
    let background = proptest::collection::vec((1..50_u64, behaviours()), 0..3);
    let steps = prop_oneof![1 => Just(0_u64), 1 => 1..12_u64];
    let hears = prop_oneof![1 => Just(0_u8), 1 => any::<u8>()];
    (
        orders(),
        costs(),
        tenants,
        background,
        steps,
        0..500_u64,
        hears,
    )
        .prop_map(|(order, costs, tenants, background, step, phase, hears)| {
            let set = Set {
                order,
                costs,
                background_step: if background.is_empty() { 0 } else { step },
                tenants,
                background,
                phase,
                // Their urgency is a deadline otherwise, which the machine does not know.
                hears: if order == Order::FixedPriority {
                    hears
                } else {
                    0
                },
            };
            let phase = if set.is_aligned() { 0 } else { phase };
            Set { phase, ..set }
        })
        .prop_filter("the first does not fit", |set| {
            let verdict = set.verdict();
            verdict.response.is_some() && verdict.loss.useful.is_some_and(|useful| useful > 0)
        })
}

fn config() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok();
    let cases = cases.and_then(|cases| cases.parse().ok()).unwrap_or(2_000);
    ProptestConfig {
        cases,
        max_local_rejects: 20 * cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_job_of_useful_length_is_done_within_the_response_time(set in sets(), seed in any::<u64>()) {
        let verdict = set.verdict();
        let (response, useful) = (verdict.response.expect("admitted"), verdict.loss.useful);
        let mut machine = Machine::new(&set, seed, useful);
        let period = set.tenants[0].0.period();
        machine.run(set.phase + 12 * period, None);
        let jobs = machine.jobs.expect("it has some");
        prop_assert!(jobs.worst <= response, "{} of {response}", jobs.worst);
        prop_assert!(jobs.released + response >= machine.now, "a job is late by now");
        prop_assert!(jobs.done > 0);
    }

    #[test]
    fn a_killed_tenant_is_reclaimed_within_the_bound_with_costs(
        set in sets(), seed in any::<u64>(), kill in 0..3_000_u64, reclaim in 1..150_u64,
    ) {
        let (verdict, contract) = (set.verdict(), set.tenants[0].0);
        if let Some(bound) = verdict.reclaimed_within(&contract, set.order, reclaim) {
            let mut machine = Machine::new(&set, seed, None);
            machine.run(kill, None);
            let took = machine.kill(set.order, reclaim, bound);
            prop_assert!(took.is_some(), "more than {bound}");
        }
    }

    #[test]
    fn work_that_is_queued_is_done_within_the_bound(
        set in sets(), seed in any::<u64>(), start in 0..3_000_u64, work in 1..150_u64,
    ) {
        let (verdict, contract) = (set.verdict(), set.tenants[0].0);
        let mut machine = Machine::new(&set, seed, None);
        machine.run(start, None);
        let tenant = &mut machine.tenants[0];
        let state = machine.scheduler.state(tenant.server).expect("it is there");
        // What it is at now, unless that has no end.
        let begun = match state {
            State::Blocked => 0,
            _ => tenant.left.min(50),
        };
        if let Some(bound) = verdict.served_within(&contract, set.order, begun + work) {
            (tenant.left, tenant.step, tenant.mail) = (begun + work, 0, None);
            machine.scheduler.wake(tenant.task, machine.now).expect("it is there");
            let from = machine.now;
            machine.decide();
            machine.run(from + bound + 1, Some(0));
            prop_assert!(machine.tenants[0].left == 0, "more than {bound}");
            prop_assert!(machine.now <= from + bound, "{} of {bound}", machine.now - from);
        }
    }

    #[test]
    fn an_admitted_server_misses_nothing_with_costs(set in sets(), seed in any::<u64>()) {
        let mut machine = Machine::new(&set, seed, None);
        for _ in 0..10 {
            machine.run(machine.now + 300, None);
            let supply = machine.scheduler.supply(machine.tenants[0].server);
            prop_assert_eq!(supply.expect("it is there").misses, 0);
        }
    }
}
