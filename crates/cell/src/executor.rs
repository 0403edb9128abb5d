//! The loop of a cell's thread: asks the scheduler for the next task, and runs it.
//!
//! One iteration has four parts:
//! 1. It reads the messages of other threads that are more urgent than the task that would run.
//! 2. It decides ([`crate::dispatch`]).
//! 3. It sets the one-shot timer for the next decision.
//! 4. It runs one task until the task blocks, the timer fires, or a more urgent message arrives.
//!
//! A task is an execution, which is polled, or a tenant's maintenance task. Maintenance builds the
//! tenant's program ([`crate::starting`]), fires its timers, and takes back what has ended
//! ([`crate::ending`]), in steps. All time between two decisions is charged to the task that ran,
//! including host calls and maintenance. A tenant therefore pays for its own start, for the tasks
//! that it wakes, and for its own end. The controller's commands are charged to no tenant, and
//! rationed ([`crate::control_share`]).

mod calls;
mod commands;
mod ends;
mod executions;
mod idle;
mod reserved_ends;
mod roots;
mod serving;
mod waiting;
mod warm;

use crate::clock::monotonic_ns;
use crate::command::Command;
use crate::config::CellConfig;
use crate::control_share::ControlShare;
use crate::dispatch::{Dispatcher, Turn, Work};
use crate::host_share::HostShare;
use crate::memory;
use crate::meter::Held;
use crate::pools::Pools;
use crate::stalls::Stalls;
use crate::steps::{begin, step, watch};
use executions::Executions;
use leasehold_crossing::{Inbox, Message, Urgency};
use leasehold_kernel::TenantId;
use leasehold_preempt::Preemption;
use reserved_ends::Ends;
use roots::Root;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use waiting::Commands;

/// The executor of one cell.
///
/// What is looked up for each tenant, or each execution, is in trees, here and in the thread's other state: a hash table that
/// is full, or that many entries were removed from, moves all of them in one step.
pub(crate) struct Executor {
    inbox: Arc<Inbox<Command>>,
    preemption: Rc<Preemption>,
    pools: Pools,
    executions: Executions,
    /// The top-level tenants, by the controller's key.
    roots: BTreeMap<u64, Box<Root>>,
    keys: BTreeMap<TenantId, u64>,
    page_ps: u64,
    /// Commands that wait for their share of the time.
    commands: Commands,
    control_share: ControlShare,
    /// The ends of background tenants.
    ends: Ends,
    /// With real-time priority: the part of the processor that is left to the host.
    host_share: Option<HostShare>,
    stalls: Stalls,
    stop: bool,
}

impl Executor {
    /// Creates an executor without tenants, on a thread with or without real-time priority.
    /// `ends_fit` says whether the reservations of tenants leave room for that of ends.
    ///
    /// # Errors
    /// When the reservation for ends cannot be kept.
    pub(crate) fn new(
        config: &CellConfig,
        inbox: Arc<Inbox<Command>>,
        pools: Pools,
        preemption: Preemption,
        realtime: bool,
        ends_fit: Arc<AtomicBool>,
    ) -> anyhow::Result<Self> {
        let executions = u32::try_from(config.max_memories).unwrap_or(u32::MAX);
        let mut dispatcher = Dispatcher::new(config, executions);
        let ends = Ends::new(config.ends.as_ref(), ends_fit, &mut dispatcher)
            .map_err(|refused| anyhow::anyhow!("the reservation for ends: {refused}"))?;
        let interrupter = preemption.interrupter();
        inbox.interrupt_with(move |at| match at {
            0 => interrupter.interrupt(),
            at => interrupter.interrupt_at(at),
        });
        Ok(Self {
            preemption: Rc::new(preemption),
            inbox,
            pools,
            executions: Executions::new(dispatcher),
            roots: BTreeMap::new(),
            keys: BTreeMap::new(),
            page_ps: config.profile.charge_ps(Held::HostPage),
            commands: Commands::default(),
            control_share: ControlShare::default(),
            ends,
            host_share: realtime.then(HostShare::default),
            stalls: Stalls::default(),
            stop: false,
        })
    }

    /// Runs until the controller has gone and every tenant has been ended.
    pub(crate) fn run(&mut self) {
        while !(self.stop && self.roots.is_empty()) {
            match self.next_turn() {
                (Some(turn), timer) => self.take_turn(turn, timer),
                (None, timer) => self.wait(timer),
            }
        }
    }

    /// Decides what runs, after reading every message that can affect the decision. A message for a
    /// task of lower urgency stays in its queue (SPR §III-E).
    fn next_turn(&mut self) -> (Option<Turn>, Option<u64>) {
        loop {
            let now = monotonic_ns();
            // A stall can also begin where a system call ends, such as the last check for messages.
            self.stalls.spare(&mut self.executions.dispatcher, now);
            let (turn, timer) = self.executions.dispatcher.decide(now);
            let least = turn.map_or(Urgency::BACKGROUND, |turn| turn.urgency);
            match self.inbox.take(least) {
                Some(Message::Wake { execution, sent }) => {
                    let now = monotonic_ns();
                    self.executions.wake_by_message(execution, sent, now);
                }
                Some(Message::Command(command)) => self.commands.push(command),
                None if self.commands.is_empty() => return (turn, timer),
                None => {
                    // Only a reservation is a promise.
                    let reserved = least > Urgency::BACKGROUND;
                    let pause = |kind| self.control_share.pause(kind, now).filter(|_| reserved);
                    let Some(command) = self.commands.pop(|kind| pause(kind).is_none()) else {
                        let until = self.commands.next_kinds().filter_map(pause);
                        return (turn, until.chain(timer).min());
                    };
                    // The selected task is not charged for the controller's commands.
                    self.executions.dispatcher.pause(now);
                    let kind = command.kind();
                    self.obey(command);
                    let done = monotonic_ns();
                    self.executions.dispatcher.resume(done);
                    self.control_share.obeyed(kind, now, done);
                }
            }
        }
    }

    /// Delivers the running tenant's deferred wake-ups.
    fn hear_deferred(&mut self, turn: &Turn) {
        let woken = self.executions.dispatcher.deferred(turn);
        if !woken.is_empty() {
            let _step = begin(step!("cell", "wake"));
            let now = monotonic_ns();
            woken
                .into_iter()
                .for_each(|execution| self.executions.wake(execution, now));
        }
    }

    fn take_turn(&mut self, turn: Turn, mut timer: Option<u64>) {
        if turn.urgency == Urgency::BACKGROUND
            && let Some(share) = &mut self.host_share
        {
            if let Some(until) = share.pause() {
                self.executions.dispatcher.pause(monotonic_ns());
                self.wait(Some(timer.map_or(until, |timer| timer.min(until))));
                self.executions.dispatcher.resume(monotonic_ns());
                return;
            }
            let look = share.next_look();
            timer = Some(timer.map_or(look, |timer| timer.min(look)));
        }
        self.stalls.begin();
        self.hear_deferred(&turn);
        // Before the guest is entered, because setting the timer discards the cause of its
        // interruption.
        if turn.is_fresh {
            self.preemption.set_timer_exactly(timer);
        } else {
            self.preemption.set_timer(timer);
        }
        if !self.inbox.enter_guest(turn.attention) {
            return;
        }
        self.executions.dispatcher.entered(&turn);
        match turn.work {
            Work::Execution(execution) => self.poll(execution, &turn),
            Work::Maintenance(root) => {
                let inbox = self.inbox.clone();
                self.keep_up(root, &mut || {
                    inbox.is_quiet(monotonic_ns) && timer.is_none_or(|timer| monotonic_ns() < timer)
                });
            }
            Work::Ends => {
                let inbox = self.inbox.clone();
                self.hurry_ends(turn.task, &mut || {
                    inbox.is_quiet(monotonic_ns) && timer.is_none_or(|timer| monotonic_ns() < timer)
                });
            }
        }
        self.inbox.leave_guest();
    }

    /// Sleeps until a message arrives or a timer is due.
    fn wait(&mut self, timer: Option<u64>) {
        self.preemption.set_timer(None);
        if self.stop && self.roots.is_empty() {
            return;
        }
        // Filling up the cell's memory is idle work: no tenant waits for it or pays for it.
        let timeout = idle::work_until(
            timer,
            monotonic_ns,
            || self.inbox.is_empty(),
            || memory::hold_again() || self.pools.retry(),
        );
        let now = monotonic_ns();
        if timeout != Some(Duration::ZERO) {
            self.inbox.wait(timeout);
            watch::slept();
            self.stalls.slept();
        }
        if let Some(share) = &mut self.host_share {
            share.slept(now, monotonic_ns());
        }
    }
}
