//! Dispatching on a cell: the processor reservations of its tenants, and their tasks.
//!
//! The decision itself is [`leasehold_reserve`]'s, a state machine that knows tasks only by their
//! identifiers. This module gives them a meaning: a task is an execution of a tenant, or the
//! tenant's *maintenance task*, which fires its timers and takes back what ended. A maintenance
//! task is scheduled like any other, so that a tenant pays for its own timers and for its own end.

use crate::config::CellConfig;
use crate::profile::PreemptionCosts;
use crate::promises::Promise;
use crate::wake_priority::WakePriority;
use leasehold_crossing::{Attention, Owner, Urgency};
use leasehold_lease::{Cpu, Lease};
use leasehold_reserve::admission::{Overhead, while_ending};
use leasehold_reserve::{
    Config, Contract, Nanos, Policy, Priority, Refused, Scheduler, ServerId, State, Supply, TaskId,
};
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

/// The time slice of background tasks.
pub const BACKGROUND_SLICE: Duration = Duration::from_millis(1);

/// The meaning of a task of the scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// Poll this execution.
    Execution(u64),
    /// Fire the timers of the top-level tenant with this key, and take back what of it ended.
    Maintenance(u64),
    /// Take back what ended background tenants left, under the reservation for ends.
    Ends,
}

/// The processor share of a top-level tenant and all its descendants: their reservation, or their
/// time slices in the background.
#[derive(Debug, Clone)]
pub(crate) struct Share {
    server: ServerId,
    reserved: bool,
    wake_priority: WakePriority,
}

/// A tenant's processor request that has passed the admission test.
#[derive(Debug)]
pub(crate) struct Promised {
    /// Its reservation, if it has one.
    pub(crate) contract: Option<Contract>,
    /// `None` without an admission test.
    #[expect(dead_code, reason = "dropped when the reservation is given back")]
    pub(crate) promise: Option<Promise>,
}

impl Share {
    /// The urgency of wake-ups of this tenant, and whether they are deferred.
    pub(crate) const fn wake_priority(&self) -> &WakePriority {
        &self.wake_priority
    }
}

/// The next action of a cell.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Turn {
    pub(crate) task: TaskId,
    pub(crate) work: Work,
    pub(crate) urgency: Urgency,
    /// The messages that preempt the turn.
    pub(crate) attention: Attention,
    /// Whether the reservation starts after other tenants ran: their timers must not interrupt it.
    pub(crate) is_fresh: bool,
}

/// The tasks of a cell and the scheduler that picks one.
pub(crate) struct Dispatcher {
    scheduler: Scheduler,
    /// The kind of each task, by its place in the scheduler: of those places that have been used.
    tasks: Vec<Option<(TaskId, Work, Share)>>,
    /// The task that ran last, unless the cell was idle since.
    last: Option<TaskId>,
}

impl Dispatcher {
    /// A dispatcher without tenants, for at most `executions` at once.
    pub(crate) fn new(config: &CellConfig, executions: u32) -> Self {
        // The reservation for ends needs one more server and one more task.
        let servers = config.max_tenants.saturating_add(1);
        let tasks = servers.saturating_add(executions);
        let scheduler = Scheduler::new(Config {
            order: config.order,
            shielding: config.shielding,
            servers,
            tasks,
            seed: RandomState::new().hash_one(()),
        })
        .with_interrupt(interrupt_ns(config))
        .with_redispatch(redispatch_ns(config));
        Self {
            scheduler,
            tasks: Vec::with_capacity(tasks as usize),
            last: None,
        }
    }

    /// Sets up the reservation of a tenant, or its share of the background if it has none.
    ///
    /// # Errors
    /// When the cell has no place for another tenant.
    pub(crate) fn share(
        &mut self,
        contract: Option<&Contract>,
        now: Nanos,
    ) -> Result<Share, Refused> {
        let Some(contract) = contract else {
            let slice = BACKGROUND_SLICE.as_nanos() as Nanos;
            return Ok(Share {
                server: self.scheduler.add_background(slice)?,
                reserved: false,
                wake_priority: WakePriority::fixed(Urgency::BACKGROUND, Owner::new(0)),
            });
        };
        let server = self.scheduler.add_server(contract, now)?;
        let (owner, urgency) = (owner(server), contract.priority().0.into());
        let wake_priority = match self.scheduler.deadline(server)? {
            None => WakePriority::fixed(Urgency::of_priority(urgency), owner),
            Some(deadline) => WakePriority::by_deadline(deadline, contract.period(), owner),
        };
        Ok(Share {
            server,
            reserved: true,
            wake_priority,
        })
    }

    /// Charges a tenant for processor time that helper threads have spent on its behalf, in nanoseconds:
    /// its reservation or, in the background, its time slices. Call [`decide`](Self::decide)
    /// afterwards.
    pub(crate) fn charge(&mut self, share: &Share, time: Nanos, now: Nanos) {
        // A tenant that has ended is not charged.
        let _ = self.scheduler.charge(share.server, time, now);
    }

    /// Starts the end of a tenant under its own reservation. Its replenishments are joined
    /// ([`while_ending`]), so that earlier fragmentation of its budget does not delay the end.
    /// Changes nothing without a reservation, or for budgets that are replenished as a whole.
    pub(crate) fn begin_end(&mut self, share: &Share, now: Nanos) {
        let Ok(contract) = self.scheduler.contract(share.server) else {
            return;
        };
        let by_priority = self.scheduler.deadline(share.server) == Ok(None);
        if by_priority && contract.policy() == Policy::Sporadic {
            let most = while_ending(&contract).replenishments();
            let joined = self.scheduler.join_replenishments(share.server, most, now);
            debug_assert!(joined.is_ok(), "it has a contract");
        }
    }

    /// Removes a tenant's share and its remaining tasks.
    pub(crate) fn give_back(&mut self, share: &Share, now: Nanos) {
        let removed = self.scheduler.remove_server(share.server, now);
        debug_assert!(removed.is_ok(), "a share is given back once");
    }

    /// Returns the processor time that a tenant has received so far, and its remaining budget.
    pub(crate) fn processor(&self, share: &Share, now: Nanos) -> Option<Processor> {
        let server = share.server;
        let state = match self.scheduler.state(server).ok()? {
            _ if self.running() == Some(server) => ProcessorState::Running,
            State::Ready => ProcessorState::Ready,
            State::Blocked => ProcessorState::Blocked,
            State::Depleted => ProcessorState::Depleted,
        };
        let left = share.reserved.then_some(server);
        Some(Processor {
            state,
            supply: self.scheduler.supply(server).ok()?,
            budget_left_ns: left.and_then(|server| self.scheduler.budget_left(server, now).ok()),
        })
    }

    /// Returns the processor time that a tenant had received at the last decision.
    pub(crate) fn supply(&self, share: &Share) -> Supply {
        self.scheduler.supply(share.server).unwrap_or_default()
    }

    fn running(&self) -> Option<ServerId> {
        let task = self.scheduler.running()?;
        self.scheduler.server_of(task).ok()
    }

    /// Adds a task, which waits until it is [woken](Self::wake).
    ///
    /// # Errors
    /// When the cell has no place for another task.
    pub(crate) fn add(&mut self, share: &Share, work: Work) -> Result<TaskId, Refused> {
        let task = self.scheduler.add_task(share.server)?;
        let place = task.index();
        if place >= self.tasks.len() {
            self.tasks.resize(place + 1, None);
        }
        self.tasks[place] = Some((task, work, share.clone()));
        Ok(task)
    }

    /// Removes a task, even the running one.
    pub(crate) fn remove(&mut self, task: TaskId, now: Nanos) {
        self.tasks[task.index()] = None;
        let removed = self.scheduler.remove_task(task, now);
        debug_assert!(removed.is_ok(), "a task is removed once");
    }

    /// Wakes a task. Idempotent.
    pub(crate) fn wake(&mut self, task: TaskId, now: Nanos) {
        // The task may have been removed.
        let _ = self.scheduler.wake(task, now);
        self.defer_wakes(task);
    }

    /// Wakes a task by a message of another thread that was sent at an instant. Its tenant pays for it if no reservation
    /// runs.
    pub(crate) fn wake_by_message(&mut self, task: TaskId, sent: Nanos, now: Nanos) {
        // The task may have been removed.
        let _ = self.scheduler.wake_by_message(task, sent, now);
        self.defer_wakes(task);
    }

    /// Defers the wake-ups of a task's tenant, if the tenant has a ready task and no budget.
    fn defer_wakes(&self, task: TaskId) {
        if let Some((owner, _, share)) = &self.tasks[task.index()]
            && share.reserved
            && *owner == task
            && self.scheduler.state(share.server) == Ok(State::Depleted)
        {
            share.wake_priority.deferral().begin();
        }
    }

    /// Returns the executions of a turn's tenant whose wake-ups were deferred.
    pub(crate) fn deferred(&self, turn: &Turn) -> Vec<u64> {
        let deferral = match &self.tasks[turn.task.index()] {
            Some((.., share)) => share.wake_priority.deferral(),
            None => return Vec::new(),
        };
        match deferral.is_on() {
            true => deferral.end(),
            false => Vec::new(),
        }
    }

    /// Blocks a task until it is woken or until `until`. For a task that is blocked already,
    /// `until` replaces the earlier instant. Returns the new urgency of its wake-ups, if that has
    /// changed.
    pub(crate) fn block(
        &mut self,
        task: TaskId,
        now: Nanos,
        until: Option<Nanos>,
    ) -> Option<Urgency> {
        let _ = self.scheduler.block(task, now, until);
        let (owner, _, share) = self.tasks[task.index()].as_ref()?;
        let wake_priority = share.wake_priority.deadline()?;
        let deadline = self.scheduler.deadline(share.server).ok().flatten()?;
        if *owner != task {
            return None;
        }
        wake_priority.publish(deadline);
        Some(Urgency::of_deadline(deadline))
    }

    /// Suspends charging while the cell works for no tenant, such as for an admission, or waits for
    /// the processor: until [`resume`](Self::resume).
    pub(crate) fn pause(&mut self, now: Nanos) {
        self.scheduler.pause(now);
    }

    /// Resumes charging.
    pub(crate) fn resume(&mut self, now: Nanos) {
        self.scheduler.resume(now);
    }

    /// Excludes `time` before `now`, for which the thread was stalled, from the running tenant's
    /// charge.
    pub(crate) fn spare(&mut self, time: Nanos, now: Nanos) {
        self.scheduler.pause(now - time.min(now));
        self.scheduler.resume(now);
    }

    /// Decides what runs from `now` on, and when the cell has to decide again at the latest.
    pub(crate) fn decide(&mut self, now: Nanos) -> (Option<Turn>, Option<Nanos>) {
        let decision = self.scheduler.schedule(now);
        let again = self.last.is_some() && self.last == decision.run;
        if let Some(last) = self.last.filter(|_| !again) {
            self.defer_wakes(last);
        }
        let mut timer = decision.timer;
        let turn = decision.run.and_then(|task| {
            let (_, work, share) = self.tasks[task.index()]
                .as_ref()
                .filter(|(owner, ..)| *owner == task)?;
            let urgency = match share.wake_priority.always() {
                Some(urgency) => urgency,
                None => {
                    let deadline = self.scheduler.deadline(share.server).ok().flatten()?;
                    if deadline > now {
                        // After its deadline the server may have a later one, and other messages
                        // must be read.
                        timer = Some(timer.map_or(deadline, |timer| timer.min(deadline)));
                        Urgency::of_deadline(deadline)
                    } else {
                        LATE
                    }
                }
            };
            Some(Turn {
                task,
                work: *work,
                urgency,
                attention: match (share.reserved, again) {
                    (false, _) => Attention::to(Urgency::BACKGROUND),
                    (true, true) => Attention::above(urgency).not_before(decision.region_end),
                    (true, false) => Attention::above_or_of(urgency, owner(share.server))
                        .not_before(decision.region_end),
                },
                is_fresh: share.reserved && !again,
            })
        });
        if turn.is_none() {
            self.last = None;
        }
        (turn, timer)
    }

    /// Records that the task of a turn really runs now.
    pub(crate) const fn entered(&mut self, turn: &Turn) {
        self.last = Some(turn.task);
    }
}

/// The measured costs of scheduling, for the admission test; zero if they were not measured.
pub(crate) fn overhead(config: &CellConfig) -> Overhead {
    let measured = config.profile.preemption.as_ref();
    Overhead {
        per_preemption: measured.map_or(0, PreemptionCosts::per_preemption_ns),
    }
}

/// The measured cost of a timer interrupt, which the server pays that the timer is for; zero if it
/// was not measured.
fn interrupt_ns(config: &CellConfig) -> Nanos {
    let measured = config.profile.preemption.as_ref();
    measured.map_or(0, |costs| costs.interrupt.p50_ns)
}

/// The measured usual time between a decision and the resumption of its guest, which the server
/// pays that preempted the guest; zero if it was not measured.
fn redispatch_ns(config: &CellConfig) -> Nanos {
    let measured = config.profile.preemption.as_ref();
    measured.map_or(0, |costs| costs.decision.p50_ns + costs.switch.p50_ns)
}

/// The urgency from which a tenant is interrupted after its deadline has passed: it continues with
/// a later deadline, so that every tenant with a reservation can preempt it.
const LATE: Urgency = Urgency::of_priority(0);

/// A tenant with a reservation, as a receiver of messages. One for another task of the running tenant interrupts it once,
/// so that its tasks take turns from then on; when the cell has decided and the same task goes on, it does not.
const fn owner(server: ServerId) -> Owner {
    Owner::new(server.index() as u32 + 1)
}

/// The processor time of a tenant.
#[derive(Debug, Clone, Copy)]
pub struct Processor {
    /// Whether it runs, and if not, why.
    pub state: ProcessorState,
    /// Its counters since it was started.
    pub supply: Supply,
    /// The budget that remains before the next replenishment, ns; `None` for a tenant without a
    /// reservation.
    pub budget_left_ns: Option<u64>,
}

/// The processor state of a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessorState {
    /// It runs now.
    Running,
    /// It is ready, but another tenant runs.
    Ready,
    /// It waits for something.
    Blocked,
    /// Its budget is depleted; it waits for a replenishment.
    Depleted,
}

impl fmt::Display for ProcessorState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Running => "running",
            Self::Ready => "ready",
            Self::Blocked => "blocked",
            Self::Depleted => "depleted",
        })
    }
}

/// The contract that a lease's processor reservation is.
///
/// # Panics
/// Never: what a lease accepts, a contract does.
pub fn contract(cpu: &Cpu) -> Contract {
    let policy = match cpu.policy() {
        leasehold_lease::Policy::Sporadic => Policy::Sporadic,
        leasehold_lease::Policy::Deferrable => Policy::Deferrable,
    };
    let nonpreemptive = cpu.nonpreemptive().map_or(0, |length| length.get());
    Contract::new(cpu.budget().get(), cpu.period().get())
        .and_then(|contract| contract.with_nonpreemptive(nonpreemptive))
        .and_then(|contract| contract.with_replenishments(cpu.replenishments().into()))
        .expect("a lease is at least as strict as a contract")
        .with_priority(Priority(cpu.priority()))
        .with_policy(policy)
        .with_slice(cpu.slice().get())
}

/// Returns the claim of a lease for the admission test: its reservation, or none for a background
/// tenant, and host steps of at most `longest_step_ns`
/// ([`Reach::longest_under`](crate::steps::Reach::longest_under)).
pub fn claim(lease: &Lease, longest_step_ns: u64) -> Contract {
    match &lease.cpu {
        Some(cpu) => contract(cpu).with_longest_step(longest_step_ns),
        None => Contract::background(longest_step_ns),
    }
}

#[cfg(test)]
mod tests {
    use super::{Dispatcher, LATE, Work, owner};
    use crate::clock::monotonic_ns;
    use crate::config::CellConfig;
    use crate::profile::{Latency, PreemptionCosts, Profile};
    use leasehold_crossing::{Attention, Urgency, Urgent as _};
    use leasehold_reserve::{Contract, Order, Priority};

    #[test]
    fn work_that_the_controller_asks_for_is_charged_to_no_tenant() {
        let config = CellConfig::new(Profile::free());
        let mut dispatcher = Dispatcher::new(&config, 2);
        let mut share = |now| {
            let contract = Contract::new(20_000, 100_000_000).expect("a contract");
            let share = dispatcher.share(Some(&contract), now).expect("it fits");
            let task = dispatcher.add(&share, Work::Execution(1)).expect("a place");
            (share, task)
        };
        let ((selected, task), (other, _)) = (share(0), share(0));
        dispatcher.wake(task, 0);
        let (turn, _) = dispatcher.decide(0);
        assert_eq!(turn.map(|turn| turn.task), Some(task));

        // Before it is entered, a command comes that takes five milliseconds.
        dispatcher.pause(0);
        dispatcher.give_back(&other, 2_000_000);
        dispatcher.resume(5_000_000);
        let (turn, timer) = dispatcher.decide(5_000_000);
        assert_eq!(turn.map(|turn| turn.task), Some(task));
        assert_eq!(timer, Some(5_020_000));
        let processor = dispatcher.processor(&selected, 5_000_000).expect("there");
        assert_eq!(processor.supply.used, 0);
        assert_eq!(processor.budget_left_ns, Some(20_000));
    }

    #[test]
    fn the_preempting_server_pays_for_the_redispatch_as_it_was_measured() {
        let part = |p50_ns| Latency { p50_ns, p99_ns: 90 };
        let mut config = CellConfig::new(Profile::free());
        config.profile.preemption = Some(PreemptionCosts {
            mechanism: "injected".to_owned(),
            realtime: true,
            interrupt: part(40),
            decision: part(2),
            switch: part(5),
        });
        let mut dispatcher = Dispatcher::new(&config, 2);
        let [(low, busy), (high, brief)] = [1, 2].map(|priority| {
            let contract = Contract::new(500, 1000).expect("a contract");
            let contract = contract.with_priority(Priority(priority));
            let share = dispatcher.share(Some(&contract), 0).expect("it fits");
            let task = dispatcher.add(&share, Work::Execution(1));
            (share, task.expect("a place"))
        });
        dispatcher.wake(busy, 0);
        dispatcher.decide(0);
        dispatcher.wake(brief, 10);
        dispatcher.decide(10);
        dispatcher.block(brief, 30, None);
        let (turn, _) = dispatcher.decide(30);
        assert_eq!(turn.map(|turn| turn.task), Some(busy));
        let used = [&low, &high].map(|share| dispatcher.supply(share).used);
        assert_eq!(used, [10, 20 + 2 + 5]);
    }

    #[test]
    fn the_budget_of_a_tenant_that_ends_comes_back_in_two_pieces_at_most() {
        for (order, pieces) in [(Order::FixedPriority, 2), (Order::EarliestDeadline, 0)] {
            let mut config = CellConfig::new(Profile::free());
            config.order = order;
            let mut dispatcher = Dispatcher::new(&config, 2);
            let contract = Contract::new(100, 1_000).expect("a contract");
            let contract = contract.with_replenishments(16).expect("a contract");
            let share = dispatcher.share(Some(&contract), 0).expect("it fits");
            let task = dispatcher
                .add(&share, Work::Maintenance(1))
                .expect("a place");
            // It cuts its budget into pieces of 2.
            for at in (0..100).step_by(10) {
                dispatcher.wake(task, at);
                dispatcher.decide(at);
                dispatcher.block(task, at + 2, None);
                dispatcher.decide(at + 2);
            }
            dispatcher.begin_end(&share, 100);
            let scheduler = &dispatcher.scheduler;
            let ring = scheduler.replenishments(share.server).expect("a server");
            assert_eq!(ring.count(), pieces, "{order:?}");
            let left = scheduler.budget_left(share.server, 100);
            assert_eq!(left.expect("a server"), 80, "{order:?}");
        }
    }

    #[test]
    fn helper_threads_use_the_budget_of_the_tenant_that_they_work_for() {
        let mut dispatcher = Dispatcher::new(&CellConfig::new(Profile::free()), 2);
        let contract = Contract::new(100, 1_000).expect("a contract");
        let share = dispatcher.share(Some(&contract), 0).expect("it fits");
        let task = dispatcher.add(&share, Work::Execution(1)).expect("a place");
        dispatcher.wake(task, 0);
        dispatcher.decide(0);
        dispatcher.charge(&share, 30, 20);
        let (turn, timer) = dispatcher.decide(20);
        assert_eq!(turn.map(|turn| turn.task), Some(task));
        assert_eq!(timer, Some(70));
        assert_eq!(dispatcher.supply(&share).used, 50);
    }

    #[test]
    fn wake_ups_of_a_depleted_tenant_wait_for_its_next_turn() {
        for order in [Order::FixedPriority, Order::EarliestDeadline] {
            let mut config = CellConfig::new(Profile::free());
            config.order = order;
            let mut dispatcher = Dispatcher::new(&config, 3);
            let contract = Contract::new(50, 100).expect("a contract");
            let share = dispatcher.share(Some(&contract), 0).expect("it fits");
            let [busy, other] = [1, 2].map(|key| {
                dispatcher
                    .add(&share, Work::Execution(key))
                    .expect("a place")
            });
            let defers = |execution| share.wake_priority().defers(execution);
            let turn = |dispatcher: &mut Dispatcher, now| {
                let turn = dispatcher.decide(now).0;
                turn.inspect(|turn| dispatcher.entered(turn))
            };
            dispatcher.wake(busy, 0);
            assert!(turn(&mut dispatcher, 0).is_some());
            assert!(!defers(7), "it runs: {order:?}");
            assert!(turn(&mut dispatcher, 50).is_none(), "nothing is left");
            assert!(defers(8) && defers(9), "{order:?}");
            let next = turn(&mut dispatcher, 100).expect("it is replenished");
            assert_eq!(dispatcher.deferred(&next), [8, 9]);
            assert!(!defers(7) && dispatcher.deferred(&next).is_empty());

            // It blocks when nothing is left, and is woken once.
            dispatcher.block(busy, 150, None);
            assert!(turn(&mut dispatcher, 150).is_none());
            assert!(!defers(7), "no task of it would have a turn: {order:?}");
            dispatcher.wake(other, 160);
            assert!(defers(8), "{order:?}");
            let next = turn(&mut dispatcher, 200).expect("it is replenished");
            assert_eq!((next.task, dispatcher.deferred(&next)), (other, vec![8]));
        }
    }

    #[test]
    fn a_reservation_that_begins_after_others_is_fresh_and_no_other_turn_is() {
        let config = CellConfig::new(Profile::free());
        let mut dispatcher = Dispatcher::new(&config, 2);
        let contract = Contract::new(50, 100).expect("a contract");
        let [reserved, background] = [Some(&contract), None].map(|contract| {
            let share = dispatcher.share(contract, 0).expect("it fits");
            let task = dispatcher.add(&share, Work::Execution(1)).expect("a place");
            dispatcher.wake(task, 0);
            task
        });
        let turn = |dispatcher: &mut Dispatcher, now| {
            let turn = dispatcher.decide(now).0.expect("a task runs");
            dispatcher.entered(&turn);
            (turn.task, turn.is_fresh)
        };
        assert_eq!(turn(&mut dispatcher, 0), (reserved, true));
        assert_eq!(turn(&mut dispatcher, 10), (reserved, false));
        dispatcher.block(reserved, 20, Some(40));
        assert_eq!(turn(&mut dispatcher, 20), (background, false));
        assert_eq!(turn(&mut dispatcher, 40), (reserved, true));
    }

    #[test]
    fn a_wake_up_for_a_later_deadline_interrupts_no_task() {
        let mut config = CellConfig::new(Profile::free());
        config.order = Order::EarliestDeadline;
        let mut dispatcher = Dispatcher::new(&config, 2);
        // Wake-ups read this clock: the deadlines are a minute and an hour from now.
        let now = monotonic_ns();
        let [short, long] = [60, 3_600].map(|seconds: u64| {
            let contract = Contract::new(1_000_000_000, seconds * 1_000_000_000);
            let contract = contract.expect("a contract");
            let share = dispatcher.share(Some(&contract), now).expect("it fits");
            let task = dispatcher.add(&share, Work::Execution(seconds));
            (share, task.expect("a place"))
        });
        for (running, other) in [(&short, &long), (&long, &short)] {
            dispatcher.wake(running.1, now);
            let (turn, timer) = dispatcher.decide(now);
            let turn = turn.expect("it runs");
            assert_eq!(turn.task, running.1);
            assert_eq!(timer, Some(now + 1_000_000_000));
            let is_sooner = other.0.server == short.0.server;
            let message = other.0.wake_priority().urgency();
            let (own, of) = (turn.urgency, owner(running.0.server));
            assert_eq!(message > own, is_sooner);
            // A wake-up of the same tenant preempts once, because it may be for another of its tasks.
            assert_eq!(running.0.wake_priority().urgency(), own);
            assert_eq!(running.0.wake_priority().owner(), of);
            assert_eq!(turn.attention, Attention::above_or_of(own, of));
            dispatcher.entered(&turn);
            let (turn, _) = dispatcher.decide(now);
            let turn = turn.expect("it goes on");
            assert_eq!(turn.attention, Attention::above(own));
            dispatcher.block(running.1, now, None);
            assert_eq!(dispatcher.decide(now).0.map(|turn| turn.task), None);
        }
    }

    #[test]
    fn a_server_past_its_deadline_hears_all_that_have_a_reservation() {
        let mut config = CellConfig::new(Profile::free());
        config.order = Order::EarliestDeadline;
        let mut dispatcher = Dispatcher::new(&config, 2);
        let contract = Contract::new(90, 100).expect("a contract");
        let share = dispatcher.share(Some(&contract), 0).expect("it fits");
        let task = dispatcher.add(&share, Work::Execution(1)).expect("a place");
        dispatcher.wake(task, 0);
        let (turn, _) = dispatcher.decide(0);
        assert_eq!(
            turn.map(|turn| turn.urgency),
            Some(Urgency::of_deadline(100))
        );
        // The cell is paused until the deadline has passed.
        dispatcher.pause(10);
        dispatcher.resume(150);
        let (turn, _) = dispatcher.decide(150);
        let turn = turn.expect("it has 80 left");
        assert_eq!(
            turn.attention,
            Attention::above_or_of(LATE, owner(share.server))
        );
        assert!(Urgency::of_deadline(1 << 61) > LATE && Urgency::BACKGROUND < LATE);
    }

    #[test]
    fn no_message_interrupts_a_region_that_goes_on_for_any_reason() {
        let mut dispatcher = Dispatcher::new(&CellConfig::new(Profile::free()), 2);
        let contract =
            Contract::new(500, 1_000).and_then(|contract| contract.with_nonpreemptive(90));
        let share = dispatcher.share(Some(&contract.expect("a contract")), 0);
        let share = share.expect("it fits");
        let task = dispatcher.add(&share, Work::Execution(1)).expect("a place");
        dispatcher.wake(task, 0);
        // It calls the host, and goes on.
        for now in [0, 10, 95] {
            let (turn, _) = dispatcher.decide(now);
            let turn = turn.expect("it runs");
            let own = Urgency::of_priority(0);
            let attention = match now {
                0 => Attention::above_or_of(own, owner(share.server)),
                _ => Attention::above(own),
            };
            assert_eq!(turn.attention, attention.not_before(90), "at {now}");
            dispatcher.entered(&turn);
        }
    }
}
