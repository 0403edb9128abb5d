//! Programs that run under a scheduler in virtual time, and the supply of each server.

use leasehold_reserve::{
    Config, Contract, Decision, Nanos, Policy, Scheduler, ServerId, Shielding, TaskId,
};
use proptest::prelude::{Just, Strategy, any, prop, prop_oneof};

/// A step of a task's endless program.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step {
    Run(Nanos),
    Sleep(Nanos),
    /// Blocks until it is woken.
    Wait,
}

/// A server and the programs of its tasks.
#[derive(Debug, Clone)]
pub(crate) struct Tenant {
    pub(crate) contract: Contract,
    pub(crate) programs: Vec<Vec<Step>>,
}

/// A processor's whole load.
#[derive(Debug, Clone)]
pub(crate) struct Load {
    pub(crate) tenants: Vec<Tenant>,
    /// Background servers: the slices, and the programs of their tasks.
    pub(crate) background: Vec<(Nanos, Vec<Vec<Step>>)>,
    /// Wake-ups from outside: when, and the number of the task.
    pub(crate) events: Vec<(Nanos, usize)>,
    /// Joins of replenishments: the instant, the tenant, and how many it may have from then on.
    pub(crate) joins: Vec<(Nanos, usize, u32)>,
    /// Stalls of the host: from when, and for how long no task runs and nothing is decided.
    pub(crate) stalls: Vec<(Nanos, Nanos)>,
    /// How late the timer fires, in turn.
    pub(crate) latencies: Vec<Nanos>,
    /// The part of a latency that is charged to the server that the timer is for, at most.
    pub(crate) interrupt: Nanos,
    /// The cost of a preempted server's dispatch, which is charged to the preempting server.
    pub(crate) redispatch: Nanos,
}

/// The recorded schedule.
#[derive(Debug, Clone, Default)]
pub(crate) struct History {
    /// From when to when each tenant ran, by its number.
    pub(crate) slices: Vec<(Nanos, Nanos, usize)>,
    /// From when to when the host stalled.
    pub(crate) stalls: Vec<(Nanos, Nanos)>,
    /// Timers that fired with nothing else happening then, and whether they switched.
    pub(crate) fired: Vec<(Nanos, bool)>,
    pub(crate) servers: Vec<ServerId>,
    pub(crate) decisions: Vec<Decision>,
    /// The time that is charged for waking the idle processor and for messages, and what may be besides, since an event came while
    /// its timer was late: none if that woke a task.
    pub(crate) woken: Nanos,
    pub(crate) late: Nanos,
    /// How often reservations left the processor to the background, or idle.
    pub(crate) left: u64,
}

impl History {
    /// Returns the supply of a tenant in `from .. to`.
    pub(crate) fn supply(&self, tenant: usize, from: Nanos, to: Nanos) -> Nanos {
        self.slices
            .iter()
            .filter(|slice| slice.2 == tenant)
            .map(|&(start, end, _)| end.min(to).saturating_sub(start.max(from)))
            .sum()
    }

    fn push(&mut self, start: Nanos, end: Nanos, tenant: usize) {
        match self.slices.last_mut() {
            _ if start == end => {}
            Some(last) if last.1 == start && last.2 == tenant => last.1 = end,
            _ => self.slices.push((start, end, tenant)),
        }
    }
}

/// The tenant's number of background slices.
const BACKGROUND: usize = usize::MAX;

struct Actor {
    task: TaskId,
    tenant: usize,
    program: Vec<Step>,
    at: usize,
    /// What is left of the step it runs.
    left: Nanos,
}

impl Actor {
    /// Continues to the next step.
    fn advance(&mut self) -> Step {
        self.at = (self.at + 1) % self.program.len();
        let step = self.program[self.at];
        if let Step::Run(length) = step {
            self.left = length;
        }
        step
    }
}

/// Lets a load run until `horizon`; `check` sees the scheduler after each decision.
pub(crate) fn run(
    load: &Load,
    config: Config,
    horizon: Nanos,
    mut check: impl FnMut(&Scheduler, &[ServerId], Nanos),
) -> (Scheduler, History) {
    let mut scheduler = Scheduler::new(config)
        .with_interrupt(load.interrupt)
        .with_redispatch(load.redispatch);
    let mut history = History::default();
    let mut actors = Vec::new();
    let mut loads = Vec::new();
    for (tenant, Tenant { contract, programs }) in load.tenants.iter().enumerate() {
        let server = scheduler.add_server(contract, 0).unwrap();
        history.servers.push(server);
        loads.push((server, tenant, programs));
    }
    for (slice, programs) in &load.background {
        let server = scheduler.add_background(*slice).unwrap();
        loads.push((server, BACKGROUND, programs));
    }
    for (server, tenant, programs) in loads {
        for program in programs {
            let task = scheduler.add_task(server).unwrap();
            scheduler.wake(task, 0).unwrap();
            let left = match program[0] {
                Step::Run(length) => length,
                _ => panic!("a program starts with running"),
            };
            actors.push(Actor {
                task,
                tenant,
                program: program.clone(),
                at: 0,
                left,
            });
        }
    }
    let mut events = load.events.clone();
    events.sort_unstable();
    let mut events = events.into_iter().peekable();
    let mut joins = load.joins.clone();
    joins.sort_by_key(|join| join.0);
    let mut joins = joins.into_iter().peekable();
    let mut stalls = load.stalls.clone();
    stalls.sort_unstable();
    let mut stalls = stalls.into_iter().peekable();
    let mut latencies = load.latencies.iter().copied().cycle();
    let mut latency = latencies.next().unwrap_or(0);
    let mut now = 0;
    let mut decision = scheduler.schedule(0);
    loop {
        check(&scheduler, &history.servers, now);
        assert!(
            decision.timer.is_none_or(|timer| timer > now),
            "{decision:?} at {now}"
        );
        history.decisions.push(decision);
        assert!(
            history.decisions.len() < 100_000,
            "no end: {decision:?} at {now}"
        );
        let timer = decision.timer.map(|timer| timer + latency);
        let running = decision
            .run
            .map(|task| actors.iter().position(|actor| actor.task == task).unwrap());
        let done = running.map(|running| now + actors[running].left);
        let event = events.peek().map(|&(at, _)| at.max(now));
        let join = joins.peek().map(|join| join.0.max(now));
        // One that would begin in another begins right after it.
        let stall = stalls.peek().map(|stall| stall.0.max(now));
        let next = [timer, done, event, join, stall, Some(horizon)]
            .into_iter()
            .flatten()
            .min()
            .unwrap();
        if let Some(running) = running {
            actors[running].left -= next - now;
            history.push(now, next, actors[running].tenant);
        }
        now = next;
        // The part of a timer's latency that a server pays, which wakes the processor.
        let before = decision;
        let waking = match (before.run, before.timer) {
            (None, Some(timer)) => now.saturating_sub(timer).min(load.interrupt),
            _ => 0,
        };
        if now >= horizon {
            history.woken += waking;
            break;
        }
        if done == Some(now) {
            let actor = &mut actors[running.unwrap()];
            match actor.advance() {
                Step::Run(_) => {
                    decision = scheduler.schedule(now);
                    continue;
                }
                Step::Sleep(length) => scheduler.block(actor.task, now, Some(now + length)),
                Step::Wait => scheduler.block(actor.task, now, None),
            }
            .unwrap();
            // It goes on with what follows when it runs again.
            actor.advance();
            if actor.left == 0 {
                actor.left = 1;
            }
            decision = scheduler.schedule(now);
        } else if stall == Some(now) {
            let (_, length) = stalls.next().unwrap();
            scheduler.pause(now);
            let began = now;
            now = (now + length).min(horizon);
            scheduler.resume(now);
            history.stalls.push((began, now));
            decision = scheduler.schedule(now);
        } else if join == Some(now) {
            let (_, who, most) = joins.next().unwrap();
            let server = history.servers[who % history.servers.len()];
            scheduler.join_replenishments(server, most, now).unwrap();
            decision = scheduler.schedule(now);
        } else if event == Some(now) {
            let (_, who) = events.next().unwrap();
            let who = who % actors.len();
            let server = scheduler.server_of(actors[who].task).unwrap();
            let used = |scheduler: &Scheduler| scheduler.supply(server).unwrap().used;
            // Charges what ran until now.
            scheduler.settle(now);
            let ran = used(&scheduler);
            scheduler
                .wake_by_message(actors[who].task, now, now)
                .unwrap();
            history.woken += used(&scheduler) - ran;
            decision = scheduler.schedule(now);
            history.late += waking;
        } else {
            decision = scheduler.schedule(now);
            history.fired.push((now, decision.switched));
            history.woken += waking;
            latency = latencies.next().unwrap_or(0);
        }
        let is_reserved = |run: Option<TaskId>| {
            let of = |task| actors.iter().find(|actor| actor.task == task);
            run.and_then(of)
                .is_some_and(|actor| actor.tenant != BACKGROUND)
        };
        history.left += u64::from(is_reserved(before.run) && !is_reserved(decision.run));
    }
    (scheduler, history)
}

/// Returns whether SPR eq. (1) holds for every tenant: the least fixed point of its response time
/// is within its period. Servers of equal priority wait for each other, so they count too.
pub(crate) fn is_schedulable(tenants: &[Tenant]) -> bool {
    tenants.iter().enumerate().all(|(i, tenant)| {
        let own = &tenant.contract;
        let others = || tenants.iter().enumerate().filter(move |&(j, _)| j != i);
        let blocking = others()
            .map(|(_, other)| &other.contract)
            .filter(|other| other.priority() < own.priority())
            .map(Contract::nonpreemptive)
            .max()
            .unwrap_or(0);
        let mut response = own.budget() + blocking;
        loop {
            let demand = blocking
                + own.budget()
                + others()
                    .map(|(_, other)| &other.contract)
                    .filter(|other| other.priority() >= own.priority())
                    .map(|other| {
                        let jitter = match other.policy() {
                            Policy::Sporadic => 0,
                            Policy::Deferrable => other.period() - other.budget(),
                        };
                        (response + jitter).div_ceil(other.period()) * other.budget()
                    })
                    .sum::<Nanos>();
            if demand > own.period() {
                return false;
            }
            if demand == response {
                return true;
            }
            response = demand;
        }
    })
}

/// The first tenants that are schedulable together.
pub(crate) fn admit(tenants: Vec<Tenant>) -> Vec<Tenant> {
    let mut admitted = Vec::new();
    for tenant in tenants {
        admitted.push(tenant);
        if !is_schedulable(&admitted) {
            admitted.pop();
        }
    }
    admitted
}

/// A program that never stops.
pub(crate) fn busy() -> Vec<Step> {
    vec![Step::Run(1_000_000)]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let stop = prop_oneof![
        4 => (0..40u64).prop_map(Step::Sleep),
        2 => (40..400u64).prop_map(Step::Sleep),
        2 => Just(Step::Wait),
    ];
    prop::collection::vec((1..30u64, stop), 1..5).prop_map(|pairs| {
        pairs
            .into_iter()
            .flat_map(|(length, stop)| [Step::Run(length), stop])
            .collect()
    })
}

fn program() -> impl Strategy<Value = Vec<Step>> {
    prop_oneof![1 => Just(busy()), 3 => steps()]
}

pub(crate) fn policies() -> impl Strategy<Value = Policy> {
    prop_oneof![Just(Policy::Sporadic), Just(Policy::Deferrable)]
}

pub(crate) fn contracts() -> impl Strategy<Value = Contract> {
    let parts = (10..200u64, 1..60u64, 0..6u8, policies(), 1..9u32, 0..15u64);
    (parts, prop::option::of(1..10u64)).prop_map(
        |((period, budget, priority, policy, replenishments, nonpreemptive), slice)| {
            let budget = (period * budget / 100).max(1);
            Contract::new(budget, period)
                .unwrap()
                .with_priority(leasehold_reserve::Priority(priority))
                .with_policy(policy)
                .with_replenishments(replenishments)
                .unwrap()
                .with_nonpreemptive(nonpreemptive.min(budget))
                .unwrap()
                .with_slice(slice.unwrap_or(0))
        },
    )
}

fn tenant() -> impl Strategy<Value = Tenant> {
    (contracts(), prop::collection::vec(program(), 1..4))
        .prop_map(|(contract, programs)| Tenant { contract, programs })
}

/// Any load, on a host that stalls.
pub(crate) fn stalled_loads() -> impl Strategy<Value = Load> {
    let stalls = prop::collection::vec((0..2_500u64, 1..400u64), 0..4);
    (loads(), stalls).prop_map(|(load, stalls)| Load { stalls, ..load })
}

/// Any load, admitted or not.
pub(crate) fn loads() -> impl Strategy<Value = Load> {
    let events = prop::collection::vec((0..2_000u64, any::<usize>()), 0..40);
    let background = (1..20u64, prop::collection::vec(program(), 1..3));
    let parts = (
        prop::collection::vec(tenant(), 1..7),
        prop::collection::vec(background, 0..4),
        events,
    );
    parts.prop_map(|(tenants, background, events)| Load {
        tenants,
        background,
        events,
        joins: Vec::new(),
        stalls: Vec::new(),
        latencies: Vec::new(),
        interrupt: 0,
        redispatch: 0,
    })
}

pub(crate) fn config(shielding: Shielding) -> Config {
    Config {
        servers: 16,
        tasks: 64,
        ..super::config(shielding)
    }
}
