//! Top-level tenants and their maintenance tasks, which build programs, fire timers and take back
//! what has ended.

use super::Executor;
use super::serving::Serving;
use crate::calls::{Calls, with_waiting};
use crate::clock::monotonic_ns;
use crate::discarded::Discarded;
use crate::dispatch::{Promised, Share};
use crate::drift::{CostClass, Price};
use crate::ended::Ended;
use crate::ending::{Belongings, Cause, Ending};
use crate::execution::{Running, StoppedProgram};
use crate::exit::Exit;
use crate::given::Given;
use crate::heap::keep_freed;
use crate::local::{self, Holdings};
use crate::mappings::Mappings;
use crate::memory::{self, MemoryUse};
use crate::pace::Pace;
use crate::pools::DirtyRanges;
use crate::programs;
use crate::start_error::StartError;
use crate::starting::{Starting, Stepped};
use crate::steps::{begin, caps, step};
use leasehold_exchange::Outlet;
use leasehold_kernel::{Errno, ExecutionId, TenantId};
use leasehold_reserve::TaskId;
use leasehold_slots::range_pool::STEP_PAGES;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::Sender;

/// Timers that a maintenance task fires between two readings of the clock.
const TIMERS_PER_STEP: u32 = caps::TIMERS.most as u32;

/// The cost of waking a maintenance task for a timer, besides firing it, ns: an interrupt and two
/// switches.
const WAKE_NS: u64 = 10_000;

/// Time between two checks of files that another thread closes for an end.
const FILES_PAUSE_NS: u64 = 50_000;

/// A top-level tenant, until everything was taken back from it and its descendants.
pub(super) struct Root {
    pub(super) tenant: TenantId,
    /// The cost class of its end, and its price.
    pub(super) class: CostClass,
    pub(super) price: Price,
    pub(super) share: Share,
    /// Its reservation can be kept.
    #[expect(dead_code, reason = "held to be dropped")]
    pub(super) promised: Option<Promised>,
    /// The task that builds its program, fires timers and takes back what ended.
    pub(super) maintenance: TaskId,
    /// Its program, until it is built.
    pub(super) starting: Option<Box<Starting>>,
    /// Whether the tenant itself has ended.
    pub(super) ended: bool,
    /// The ended tenants that are being reclaimed, in the order of their ends.
    pub(super) teardowns: VecDeque<Teardown>,
    /// The remains in the pools of programs that never ran, such as a memory beside a refused one.
    pub(super) dirty: DirtyRanges,
    /// How fast its pages go back; `None` with a reservation, whose budget says so.
    pub(super) pace: Option<Pace>,
    /// The pace of firing timers: at most half of its time, so that its programs and those of its
    /// descendants run however many timers they have.
    pub(super) firing: Pace,
    /// Whether the reservation for ends takes it back now, without pauses.
    pub(super) hurried: bool,
    pub(super) controlled: Option<Controlled>,
    /// How it answers requests, if it does.
    pub(super) serving: Option<Serving>,
    /// Where its requests to other hosts go, if it may send any.
    pub(super) outgoing: Option<Arc<Outlet>>,
    /// The number of the process's mappings that its arena and the code of its program take.
    #[expect(dead_code, reason = "held to be dropped")]
    pub(super) mappings: Mappings,
    /// The objects that it shares with the embedder.
    pub(super) given: Given,
}

/// The controller's side of a top-level tenant.
pub(super) struct Controlled {
    /// The execution of its own program.
    pub(super) program: u64,
    pub(super) ended: Sender<Ended>,
}

/// What is being taken back.
#[expect(
    clippy::large_enum_variant,
    reason = "the end of a task allocates nothing"
)]
pub(super) enum Teardown {
    /// A tenant, and the execution that asked for its end and waits.
    Tenant {
        ending: Box<Ending>,
        caller: Option<u64>,
    },
    /// A task. Until its pages are clean its tenant stays charged for what it held.
    Task {
        tenant: TenantId,
        holdings: Holdings,
        /// Dropped when the task is first in the queue.
        stopped: Option<Box<StoppedProgram>>,
        /// Its remains, once it was dropped.
        dirty: DirtyRanges,
    },
}

impl Teardown {
    /// Whether nothing is left to be taken back of it but pages.
    pub(super) fn gives_back(&self) -> bool {
        match self {
            Self::Tenant { ending, .. } => ending.is_reusable(),
            Self::Task { stopped, .. } => stopped.is_none(),
        }
    }
}

/// An outbox that is closed when this is dropped, whatever else has it. The cell's thread leaves that to
/// another: what waits there is dropped.
struct Closing(Arc<Outlet>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.outbox().close();
    }
}

impl Root {
    /// Drops everything but what it shares with the embedder.
    fn into_given(self) -> Given {
        self.given
    }

    /// Whether something is left to be taken back.
    pub(super) fn is_owed(&self) -> bool {
        !(self.teardowns.is_empty() && self.dirty.is_clean())
    }

    /// The instant of the next check whether the files of an ended tenant are closed, if only they
    /// are waited for.
    fn waits_for_files(&self, now: u64) -> Option<u64> {
        match self.teardowns.front() {
            Some(Teardown::Tenant { ending, .. }) if ending.waits_for_files() => {
                Some(now + FILES_PAUSE_NS)
            }
            _ => None,
        }
    }

    /// The end of the pause in giving its pages back, if only pages are left and a pause is due.
    fn pause(&mut self, now: u64) -> Option<u64> {
        let first = self.teardowns.front();
        let only_pages =
            first.map_or(self.is_owed(), Teardown::gives_back) && self.teardowns.len() <= 1;
        self.pace
            .as_mut()
            .filter(|_| only_pages && !self.hurried)
            .and_then(|pace| pace.pause(now))
    }

    fn gave_back_since(&mut self, began: u64) {
        if let Some(pace) = &mut self.pace {
            pace.gave_back(began, monotonic_ns());
        }
    }
}

impl Executor {
    /// The tenant with this key, if it has not ended.
    pub(super) fn alive(&self, key: u64) -> Option<TenantId> {
        let root = self.roots.get(&key)?;
        (!root.ended).then_some(root.tenant)
    }

    /// Lets a tenant's program run for the first time.
    pub(super) fn go(&mut self, key: u64) {
        let controlled = self
            .roots
            .get(&key)
            .and_then(|root| root.controlled.as_ref());
        if let Some(&Controlled { program, .. }) = controlled {
            self.executions.wake(program, monotonic_ns());
        }
    }

    /// Begins to end a top-level tenant, if it has not ended yet.
    pub(super) fn end_root(&mut self, key: u64, cause: Cause) {
        if let Some(tenant) = self.alive(key) {
            self.end(key, tenant, cause, None, None);
        }
    }

    /// Begins to end a tenant of this root; `program` is its own, if that has ended already, and
    /// `caller` the execution that waits for it.
    pub(super) fn end(
        &mut self,
        key: u64,
        tenant: TenantId,
        cause: Cause,
        program: Option<(u64, StoppedProgram)>,
        caller: Option<u64>,
    ) {
        let memory = memory_use(tenant);
        let (group, files) = local::with(|local| {
            let files = local.forget_shares(tenant);
            (local.kernel.group_of(tenant).ok(), files)
        });
        let tenancy = group.and_then(memory::end);
        let mut controlled = None;
        let mut is_background_root = false;
        let (mut class, mut keeper) = (None, None);
        let price = self.roots.get(&key).map_or(Price::BASE, |root| root.price);
        if let Some(root) = self.roots.get_mut(&key)
            && root.tenant == tenant
        {
            root.ended = true;
            class = Some(root.class);
            is_background_root = root.pace.is_some();
            self.executions
                .dispatcher
                .begin_end(&root.share, monotonic_ns());
            controlled = root.controlled.take();
            self.keys.remove(&tenant);
            if let Some(starting) = root.starting.take() {
                starting.give_up().refuse(StartError::Killed);
            }
            if let Some(outlet) = root.outgoing.take() {
                drop(Discarded::new(Closing(outlet)));
            }
            if let Some(serving) = root.serving.take() {
                keeper = serving.keeper();
                serving.close(&mut self.executions);
                programs::with(|programs| programs.templates.remove(&tenant));
            }
        }
        let reply = controlled.map(|controlled| controlled.ended);
        let belongings = Belongings {
            class,
            price,
            tenancy,
            memory,
            files,
            keeper,
        };
        if let Some(ending) = Ending::begin(tenant, cause, program, reply, belongings) {
            self.bury(
                key,
                Teardown::Tenant {
                    ending: Box::new(ending),
                    caller,
                },
            );
        } else if let Some(caller) = caller {
            self.executions.wake(caller, monotonic_ns());
        }
        if is_background_root {
            let roots = &self.roots;
            let is_there = |key| roots.contains_key(&key);
            self.ends
                .append(key, is_there, &mut self.executions.dispatcher);
        }
    }

    pub(super) fn bury(&mut self, root: u64, teardown: Teardown) {
        if let Some(root) = self.roots.get_mut(&root) {
            root.teardowns.push_back(teardown);
            self.executions
                .dispatcher
                .wake(root.maintenance, monotonic_ns());
        }
    }

    /// Runs the maintenance task of a top-level tenant: builds its program, fires its timers,
    /// cleans what it left, and takes back what has ended. Takes at least one step, and more while
    /// `go_on` returns true and work is left.
    pub(super) fn keep_up(&mut self, key: u64, go_on: &mut impl FnMut() -> bool) {
        let mut wake_ns = WAKE_NS;
        loop {
            let now = monotonic_ns();
            self.stalls.spare(&mut self.executions.dispatcher, now);
            if self.serve(key) {
                if !go_on() {
                    return;
                }
                continue;
            }
            let Some(root) = self.roots.get_mut(&key) else {
                return;
            };
            let deadline = local::with(|local| local.kernel.next_deadline(root.tenant));
            let rests = root.firing.pause(now).unwrap_or(0);
            let deadline = deadline.map(|deadline| deadline.max(rests));
            if deadline.is_some_and(|deadline| deadline <= now) {
                let _step = begin(step!("cell", "timers"));
                local::with(|local| local.kernel.expire(root.tenant, now, TIMERS_PER_STEP));
                root.firing.gave_back(now, monotonic_ns() + wake_ns);
                wake_ns = 0;
                self.pass_on();
            } else if root.starting.is_some() {
                self.step_start(key);
            } else if let Some(pause) = root.waits_for_files(now).or_else(|| root.pause(now)) {
                let serving = root.serving.as_ref();
                let deadline = serving.map_or(deadline, |serving| serving.deadline(deadline));
                let until = deadline.map_or(pause, |deadline| deadline.min(pause));
                self.executions
                    .dispatcher
                    .block(root.maintenance, now, Some(until));
                return;
            } else if !root.dirty.is_clean() {
                let _step = begin(step!("cell", "end: give back"));
                self.pools.clean(&mut root.dirty, STEP_PAGES);
                root.gave_back_since(now);
            } else if !root.teardowns.is_empty() {
                self.take_back(key, go_on);
            } else if root.ended {
                self.close_root(key);
            } else {
                let serving = root.serving.as_ref();
                let deadline = serving.map_or(deadline, |serving| serving.deadline(deadline));
                self.executions
                    .dispatcher
                    .block(root.maintenance, now, deadline);
                return;
            }
            if !go_on() {
                return;
            }
        }
    }

    /// Takes the next step of building a top-level tenant's program, and tells the controller when
    /// that is over.
    fn step_start(&mut self, key: u64) {
        let Some(root) = self.roots.get_mut(&key) else {
            return;
        };
        let Some(mut starting) = root.starting.take() else {
            return;
        };
        let tenant = root.tenant;
        let built = match starting.step() {
            Ok(Stepped::Working) => {
                root.starting = Some(starting);
                return;
            }
            Ok(Stepped::Built(running)) => self
                .take_in(key, tenant, &starting, running)
                .map_err(|errno| starting.not_taken(errno)),
            Ok(Stepped::Serves(service)) => {
                self.begin_serving(key, service, &starting);
                Ok(())
            }
            Err(error) => Err(error),
        };
        match built {
            Ok(()) => {
                let program = starting.execution();
                let client = starting.complete();
                if let Some(root) = self.roots.get_mut(&key) {
                    root.controlled = Some(Controlled {
                        program,
                        ended: client.ended,
                    });
                }
                if !client.held {
                    self.go(key);
                }
                // The controller may have gone; then the tenant is ended with the cell.
                let _ = client.started.send(Ok(()));
            }
            Err(error) => {
                let client = starting.give_up();
                self.end_root(key, Cause::now(Exit::Killed));
                client.refuse(error);
            }
        }
    }

    /// Takes a program that was built as that of a top-level tenant.
    fn take_in(
        &mut self,
        key: u64,
        tenant: TenantId,
        starting: &Starting,
        running: Running,
    ) -> Result<(), Errno> {
        let execution = starting.execution();
        local::with(|local| {
            local
                .kernel
                .register_execution(tenant, ExecutionId(execution))
        })?;
        let template = starting.template();
        if template.program.is_called() {
            with_waiting(|calls| calls.insert(execution, Calls::default()));
        }
        programs::with(|programs| programs.templates.insert(tenant, template));
        self.add_execution(key, tenant, execution, running, true)
    }

    /// Takes back what ended first.
    fn take_back(&mut self, key: u64, go_on: &mut impl FnMut() -> bool) {
        let Some(root) = self.roots.get_mut(&key) else {
            return;
        };
        let Some(teardown) = root.teardowns.front_mut() else {
            return;
        };
        let began = monotonic_ns();
        let gives_back = teardown.gives_back();
        let done = match teardown {
            Teardown::Tenant { ending, caller } => {
                let pace = root.pace.as_ref();
                let pace = pace.filter(|_| gives_back && !root.hurried);
                let pause = pace.map(|pace| pace.pauses_at(began));
                let done = ending.work(&mut self.executions, &self.pools, &mut || {
                    go_on() && pause.is_none_or(|pause| monotonic_ns() < pause)
                });
                if ending.is_reusable()
                    && let Some(caller) = caller.take()
                {
                    self.executions.wake(caller, monotonic_ns());
                }
                done
            }
            Teardown::Task { stopped, dirty, .. } => {
                let _step = begin(step!("cell", "task end"));
                let keeps = !root.ended && root.serving.as_ref().is_some_and(Serving::keeps);
                if let Some(stopped) = stopped.take() {
                    keep_freed(|| drop(stopped));
                    self.pools.claim_keeping(dirty);
                } else {
                    self.pools.clean(dirty, STEP_PAGES);
                }
                if !keeps {
                    self.pools.forgo(dirty);
                }
                dirty.is_clean()
            }
        };
        if gives_back {
            root.gave_back_since(began);
        }
        if done {
            if let Some(serving) = &mut root.serving {
                serving.relieve();
            }
            let teardown = root.teardowns.pop_front();
            let pauses = root.pace.as_mut().map_or(0, Pace::take_pauses);
            let supply = self.executions.dispatcher.supply(&root.share);
            // The receiver of the report may start a tenant in its place at once.
            if root.ended && !root.is_owed() {
                self.close_root(key);
            }
            match teardown {
                Some(Teardown::Tenant { ending, .. }) => ending.report(supply, pauses),
                Some(Teardown::Task {
                    tenant, holdings, ..
                }) => {
                    local::with(|local| local.give_back(tenant, &holdings));
                    self.settle_warm(key);
                }
                None => {}
            }
        }
        self.pass_on();
    }

    /// Removes the tenant's share of the processor after everything was taken back.
    fn close_root(&mut self, key: u64) {
        if let Some(root) = self.roots.remove(&key) {
            let now = monotonic_ns();
            let dispatcher = &mut self.executions.dispatcher;
            dispatcher.remove(root.maintenance, now);
            dispatcher.give_back(&root.share, now);
            let given = root.into_given();
            self.preemption.forget(given.built());
            local::with(|local| local.io.reaper.drop_given(given));
        }
    }
}

/// To report how a tenant uses its memory.
pub(super) fn memory_use(tenant: TenantId) -> MemoryUse {
    let (account, group) = local::with(|local| {
        let account = local.kernel.memory(tenant).unwrap_or_default();
        (account, local.kernel.group_of(tenant).ok())
    });
    let paged = group.and_then(memory::usage);
    MemoryUse {
        linear_bytes: account.used,
        limit_bytes: account.reserved,
        paging: paged.map(|paged| (paged.account, paged.counts)),
        shared_bytes: paged.map_or(0, |paged| paged.shared_bytes),
        swapped_bytes: paged.map_or(0, |paged| paged.swapped_bytes),
    }
}
