//! The end of a tenant: taking everything back, in bounded steps, within what was charged.
//!
//! 1. **Sever**: the kernel marks the group (every handle into it is stale) and severs its scrub
//!    entries; the programs among them are dropped, one a step. Dropping a program frees its
//!    store; linear memories and stacks only go back to their pools, whatever they hold.
//! 2. **Reusable**: the arena is free for the next tenant, as are the addresses of memories that
//!    page, which were made inaccessible 4 pieces a step. Nothing of the tenant can be reached.
//! 3. **Return**: the pages of its memories, stack and arena are given back in slices, with pauses
//!    ([`crate::pace`]) unless the tenant has a reservation.
//!
//! The steps are work of the ending tenant: they run in its own processor time, and every tenant
//! cleans its own pages.

use crate::clock::{Elapsed, monotonic_ns, thread_cpu_ns};
use crate::drift::{CostClass, Price};
use crate::ended::{Ended, Reclaimed};
use crate::execution::StoppedProgram;
use crate::exit::Exit;
use crate::heap::keep_freed;
use crate::host::fs::account::Account;
use crate::local::{self, Holdings};
use crate::memory::{MemoryUse, Tenancy};
use crate::pools::{DirtyRanges, Pools};
use crate::refusals::{Refusal, Reservation};
use crate::steps::{begin, caps, step};
use leasehold_crossing::Asked;
use leasehold_kernel::{End, ExecutionId, TenantId};
use leasehold_reclaim::{Progress, Statement};
use leasehold_reserve::Supply;
use leasehold_slots::range_pool::STEP_PAGES;
use leasehold_slots::warm_room::Keeper;
use std::sync::Arc;
use std::sync::mpsc::Sender;

/// Scrub entries severed in one step.
const SEVER: u32 = caps::SCRUBS.most as u32;

/// Why a tenant ends, and since when.
pub(crate) struct Cause {
    pub(crate) exit: Exit,
    /// The instant of the request; for a kill, the controller's call.
    pub(crate) asked_ns: u64,
    /// Makes the cell's thread urgent until the end is over; of a kill only.
    #[expect(dead_code, reason = "it is dropped")]
    pub(crate) urgency: Option<Asked>,
}

impl Cause {
    /// An end that is requested now.
    pub(crate) fn now(exit: Exit) -> Self {
        Self {
            exit,
            asked_ns: monotonic_ns(),
            urgency: None,
        }
    }
}

/// A tenant that is being ended.
pub(crate) struct Ending {
    cause: Cause,
    reply: Option<Sender<Ended>>,
    statement: Statement,
    class: Option<CostClass>,
    price: Price,
    /// The charge, at the profile's price.
    charged_ns: u64,
    began_wall: u64,
    cpu_ns: u64,
    end: End,
    phase: Phase,
    /// Whether the kernel has severed everything.
    is_severed: bool,
    /// Executions severed in the current step.
    severed: Vec<u64>,
    /// Programs that were severed and are still to be dropped.
    stopped: Vec<StoppedProgram>,
    /// The holdings of the severed executions.
    held: Holdings,
    /// The remains of dropped programs, to be cleaned.
    dirty: DirtyRanges,
    /// The memory reservation of a top-level tenant.
    tenancy: Option<Tenancy>,
    /// The files of a top-level tenant.
    files: Option<Arc<Account>>,
    /// The keeper of memories that no execution uses.
    keeper: Option<Keeper>,
    /// Whether all of its files are closed.
    is_closed: bool,
    /// The refusals of its lease, if it is a top-level tenant.
    refusals: Vec<Refusal>,
    memory: MemoryUse,
    reusable: Elapsed,
    pages: u64,
    steps: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Sever,
    Return,
    Done,
}

/// The price of an ending tenant, and what only a top-level tenant has.
pub(crate) struct Belongings {
    /// The cost class of its end, if it is a top-level tenant. (The end of a single child is
    /// ordinary work of its tenant; its charge is a part of the tenant's end.)
    pub(crate) class: Option<CostClass>,
    /// The price at which it was admitted.
    pub(crate) price: Price,
    /// Its memory reservation.
    pub(crate) tenancy: Option<Tenancy>,
    /// How it used its memory.
    pub(crate) memory: MemoryUse,
    pub(crate) files: Option<Arc<Account>>,
    /// The keeper of memories that no execution uses, of a top-level tenant that answers requests.
    pub(crate) keeper: Option<Keeper>,
}

/// Transfers an execution's holdings to the end of its tenant.
fn taken_over(execution: u64) -> Holdings {
    local::with(|local| local.holdings.remove(&execution)).unwrap_or_default()
}

/// The executor's operations for an ending tenant.
pub(crate) trait Programs {
    /// Takes an execution out of the executor's hands.
    fn remove(&mut self, execution: u64) -> Option<StoppedProgram>;
}

impl Ending {
    /// Marks the tenant as ended: nothing of it can be used from here on. Returns `None` if it has
    /// ended already.
    ///
    /// `program` is the tenant's own execution, if it has ended by itself and is still to be dropped.
    pub(crate) fn begin(
        tenant: TenantId,
        cause: Cause,
        program: Option<(u64, StoppedProgram)>,
        reply: Option<Sender<Ended>>,
        Belongings {
            class,
            price,
            tenancy,
            memory,
            files,
            keeper,
        }: Belongings,
    ) -> Option<Self> {
        let _step = begin(step!("cell", "end: begin"));
        let mut refusals = Vec::new();
        if let Some(files) = &files {
            refusals = files.refusals().take();
            // Earlier work of other threads is no part of its end.
            files.take_cpu_ns();
        }
        let (began_wall, began_cpu) = (monotonic_ns(), thread_cpu_ns());
        let (charged_ns, statement, end) = local::with(|local| {
            let statement = local.kernel.statement(tenant).ok()?;
            let end = local.kernel.begin_end(tenant).ok()?;
            Some((statement.predicted().0.div_ceil(1000), statement, end))
        })?;
        for refusal in &mut refusals {
            if refusal.reservation == Reservation::Budget {
                // A budget is kept at the price of the profile.
                refusal.enough = price.of(refusal.enough);
            }
        }
        Some(Self {
            cause,
            reply,
            statement: price.of_statement(statement),
            class,
            price,
            charged_ns,
            began_wall,
            cpu_ns: thread_cpu_ns() - began_cpu,
            end,
            phase: Phase::Sever,
            is_severed: false,
            severed: Vec::new(),
            held: program
                .as_ref()
                .map(|(id, _)| taken_over(*id))
                .unwrap_or_default(),
            stopped: Vec::from_iter(program.map(|(_, stopped)| stopped)),
            dirty: DirtyRanges::default(),
            tenancy,
            files,
            keeper,
            is_closed: false,
            refusals,
            memory,
            reusable: Elapsed::default(),
            pages: 0,
            steps: 0,
        })
    }

    /// Takes steps, at least one, while `go_on` says so and until the end of the phase, and counts
    /// the processor time they took; true when nothing is left to do.
    pub(crate) fn work(
        &mut self,
        programs: &mut impl Programs,
        pools: &Pools,
        go_on: &mut impl FnMut() -> bool,
    ) -> bool {
        let began = thread_cpu_ns();
        let phase = self.phase;
        loop {
            self.steps += 1;
            match self.phase {
                Phase::Sever => self.sever(programs, pools, began),
                Phase::Return => self.give_back(programs, pools),
                Phase::Done => {}
            }
            // While another thread closes its files there is nothing to do.
            if self.phase != phase || self.waits_for_files() || !go_on() {
                break;
            }
        }
        self.cpu_ns += thread_cpu_ns() - began;
        matches!(self.phase, Phase::Done)
    }

    fn sever(&mut self, programs: &mut impl Programs, pools: &Pools, began_cpu: u64) {
        if let Some(program) = self.stopped.pop() {
            let _step = begin(step!("engine", "store drop"));
            // Outside `local::with`, because dropping runs the destructors of host calls.
            keep_freed(|| drop(program));
            pools.claim(&mut self.dirty);
            return;
        }
        if !self.is_severed {
            let _step = begin(step!("cell", "end: sever"));
            let progress = self.step(programs);
            self.is_severed = progress != Progress::Working;
            return;
        }
        if let Some(tenancy) = &mut self.tenancy {
            let _step = begin(step!("cell", "detach"));
            self.dirty.leave_paged_to(tenancy);
            if !tenancy.retire_step() {
                return;
            }
            let resident = self.memory.paging.map(|(account, _)| account.owned);
            self.pages += u64::from(resident.unwrap_or(0));
        }
        if let Some(keeper) = self.keeper.take() {
            pools.cool(keeper, 0, &mut self.dirty);
        }
        self.reusable = Elapsed {
            wall_ns: self.since_asked(monotonic_ns()),
            cpu_ns: self.cpu_ns + thread_cpu_ns() - began_cpu,
        };
        self.phase = Phase::Return;
    }

    fn give_back(&mut self, programs: &mut impl Programs, pools: &Pools) {
        let _step = begin(step!("cell", "end: give back"));
        if !self.dirty.is_clean() {
            self.pages += pools.clean(&mut self.dirty, STEP_PAGES) as u64;
        } else if let Some(tenancy) = &mut self.tenancy {
            if tenancy.step(STEP_PAGES as u32)
                && let Some(tenancy) = self.tenancy.take()
            {
                tenancy.finish();
            }
        } else if let Some(files) = self.files.as_ref().filter(|_| !self.is_closed) {
            if files.is_closed() {
                // The time of the closing thread belongs to this end.
                self.cpu_ns += files.take_closing_cpu_ns();
                self.is_closed = true;
            }
        } else if self.step(programs) == Progress::Done {
            local::with(|local| local.give_shares(&self.held));
            self.phase = Phase::Done;
        }
    }

    /// Whether nothing can be done before another thread has closed the tenant's files.
    pub(crate) fn waits_for_files(&self) -> bool {
        matches!(self.phase, Phase::Return)
            && self.dirty.is_clean()
            && self.tenancy.is_none()
            && !self.is_closed
            && self.files.as_ref().is_some_and(|files| !files.is_closed())
    }

    fn step(&mut self, programs: &mut impl Programs) -> Progress {
        let severed = &mut self.severed;
        let mut host = |ExecutionId(id)| severed.push(id);
        let progress = local::with(|local| local.kernel.step_end(&mut self.end, &mut host, SEVER));
        for id in self.severed.drain(..) {
            self.held.join(&taken_over(id));
            self.stopped.extend(programs.remove(id));
        }
        progress
    }

    /// The time from the request of the end to an instant.
    fn since_asked(&self, at_ns: u64) -> u64 {
        at_ns.saturating_sub(self.cause.asked_ns)
    }

    /// Whether everything of the tenant can be used again.
    pub(crate) fn is_reusable(&self) -> bool {
        !matches!(self.phase, Phase::Sever)
    }

    /// Compares what the end took with what was charged for it.
    fn observe(&self, class: CostClass, measured_ns: u64) {
        let raised = local::with(|local| {
            let prices = &mut local.prices;
            let drifted = prices.observe(class, measured_ns, self.charged_ns, self.price);
            drifted.then(|| prices.price(class))
        });
        if let Some(price) = raised {
            tracing::warn!(
                class = class.name(),
                price = price.factor(),
                "ends take longer than the profile says: new leases are charged more"
            );
        }
    }

    /// Reports to the controller, if there is one. `supply` is the processor time that the tenant
    /// received; `pauses` is the number of pauses in giving its pages back.
    pub(crate) fn report(self, supply: Supply, pauses: u64) {
        let outcome = self.end.outcome();
        let reclaimed = Reclaimed {
            predicted_ns: self.price.of(self.charged_ns),
            effect_ns: self.since_asked(self.began_wall),
            reusable: self.reusable,
            returned: Elapsed {
                wall_ns: self.since_asked(monotonic_ns()),
                cpu_ns: self.cpu_ns,
            },
            scrubbed: outcome.scrubbed,
            groups: outcome.groups,
            steps: self.steps,
            pages: self.pages + outcome.pages_discarded,
            arena_pages: outcome.pages_discarded,
            pauses,
            calls_under_way: self
                .files
                .as_ref()
                .map_or(0, |files| files.calls_under_way()),
        };
        if reclaimed.returned.cpu_ns > reclaimed.predicted_ns {
            tracing::debug!(?reclaimed, "ending a tenant took longer than its charge");
        }
        if let Some(class) = self.class {
            self.observe(class, reclaimed.returned.cpu_ns);
        }
        if let Some(reply) = self.reply {
            // The controller may have lost interest.
            let _ = reply.send(Ended {
                exit: self.cause.exit,
                at_ns: self.began_wall,
                statement: self.statement,
                memory: self.memory,
                refusals: self.refusals,
                reclaimed,
                supply,
            });
        }
    }
}
