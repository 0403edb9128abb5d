//! Compares the time of each step with its row.
//!
//! While an execution is polled, the engine reports where host code begins and ends ([`hook`]), and
//! each host function names its row ([`mark`]). A step that ends with the poll, since its call
//! waits, continues as another step of the same row with the next poll ([`resume`], [`suspend`]).
//! Work of a cell outside of polls is bracketed by [`begin`], and a fault of guest code by [`on_fault`].
//!
//! A step is timed by the wall clock. One that was longer than its row is compared again by the
//! thread's processor time. If the host took the processor from the thread for at least the excess,
//! the step is counted as *disturbed*, otherwise as *exceeded*. The time of a thread that blocked
//! is its own.

use super::bounds::RowBounds;
use super::pages::{visited, waits};
use super::raised::{RowDrift, TRIAL, lowest_bound, raised_from};
use super::table::{CEILING_NS, CELL, ENGINE, RowId, TABLE, step};
use super::ticks::{self, Rate};
use crate::clock::{thread_blocks, thread_cpu_ns};
use leasehold_pager_linux::FaultPhase;
use leasehold_preempt::HostSteps;
use std::cell::{Cell, OnceCell, RefCell};
use std::marker::PhantomData;
use std::sync::Arc;
use wasmtime::CallHook;

/// The observations of one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepUse {
    /// The row.
    pub row: RowId,
    /// How many steps there were.
    pub steps: u64,
    /// The longest that was not disturbed, ns of wall time.
    pub longest_ns: u64,
    /// How long a step may be as calibrated: the row, and what the host itself may add, ns.
    pub limit_ns: u64,
    /// The part of that which the host itself may add, ns: its interrupts, and stops of a virtual machine.
    pub added_ns: u64,
    /// How many were longer, and longer than the raised row from when it was raised.
    pub exceeded: u64,
    /// How long a step may be for tenants that are admitted from now on, ns, if the row was exceeded more often
    /// than is stated. The host may add to it, as to the row.
    pub raised_ns: Option<u64>,
    /// How many were longer on the wall clock, but possibly not without the time for which the host
    /// took the processor from the cell.
    pub disturbed: u64,
}

/// How long the steps of one row took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepSamples {
    /// The row.
    pub row: RowId,
    /// Each step, and of calls of imports the longest of each, ns of wall time, in the order in which they were taken: the
    /// first few thousand since the samples were taken away last. A call of many short steps would hide its long one.
    pub ns: Vec<u64>,
}

/// Samples that are kept of a row.
const SAMPLES: usize = 4096;

/// The counts of a row. Times in ticks.
struct Count {
    steps: Cell<u64>,
    longest: Cell<u64>,
    limit: Cell<u64>,
    /// The calibrated value: the limit, unless the row is raised.
    calibrated: Cell<u64>,
    /// The threshold above which a step is examined: the limit, or the longest until now if that is
    /// less; for a raised row, the longest of its trial.
    notable: Cell<u64>,
    /// Of a raised row: how many steps there were when its trial began, and the longest since.
    trial_from: Cell<u64>,
    trial_longest: Cell<u64>,
    exceeded: Cell<u64>,
    disturbed: Cell<u64>,
    drift: Cell<RowDrift>,
}

impl Count {
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "each use is a row's own counts"
    )]
    const NEW: Self = Self {
        steps: Cell::new(0),
        longest: Cell::new(0),
        limit: Cell::new(u64::MAX),
        calibrated: Cell::new(u64::MAX),
        notable: Cell::new(0),
        trial_from: Cell::new(0),
        trial_longest: Cell::new(0),
        exceeded: Cell::new(0),
        disturbed: Cell::new(0),
        drift: Cell::new(RowDrift::NEW),
    };

    fn is_raised(&self) -> bool {
        self.limit.get() > self.calibrated.get()
    }

    /// The steps from now on say whether a lower bound would do.
    fn begin_trial(&self) {
        self.trial_from.set(self.steps.get());
        self.trial_longest.set(0);
        self.notable.set(0);
    }

    /// The steps to watch from now on.
    fn renew_notable(&self) {
        let longest = match self.is_raised() {
            true => self.trial_longest.get(),
            false => self.longest.get(),
        };
        self.notable.set(longest.min(self.limit.get()));
    }
}

/// Host calls that can be under way around guest code: instantiation, a host function that has the
/// guest's allocator called, and two more.
const NESTED: usize = 4;

const INSTRUCTION: RowId = step!("engine", "instruction");
const STRING: RowId = step!("engine", "string");
const INSTANTIATE: RowId = step!("engine", "instantiate");
const FAULT: RowId = step!("cell", "fault");

/// Where in its host calls an execution is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Position {
    /// The row of the host code that runs.
    row: RowId,
    /// The rows of the host calls around the guest code that runs.
    outer: [RowId; NESTED],
    depth: u8,
    /// Whether host code runs, not the guest's.
    in_host: bool,
    /// The row of what the engine does in the middle of an instruction, if nothing names another: the engine does
    /// not tell a string that one component passes to another from the rest.
    unnamed: RowId,
    /// How much longer than its row the step that makes the execution's instances may be, ns.
    making_ns: u64,
    /// If its tenant pages: the bytes that one of its calls may have. Each page that a step visits may be a
    /// fault then.
    paged: Option<u64>,
}

impl Position {
    pub(crate) const START: Self = Self::start(0, false, None);

    /// The beginning of an execution: the host makes its instances, in a step that may take so much longer
    /// than its row, ns. Its components may pass each other strings or not. If its tenant pages, one of its calls may
    /// have `paged` bytes.
    pub(crate) const fn start(making_ns: u64, is_composed: bool, paged: Option<u64>) -> Self {
        Self {
            unnamed: match is_composed {
                true => STRING,
                false => INSTRUCTION,
            },
            row: INSTANTIATE,
            outer: [INSTANTIATE; NESTED],
            depth: 0,
            in_host: true,
            making_ns,
            paged,
        }
    }
}

/// The watch of one thread.
struct Watch {
    /// Whether an execution is polled.
    polled: Cell<bool>,
    /// Whether a step of the cell's own is under way.
    begun: Cell<bool>,
    at: Cell<Position>,
    /// The row that the next host code is of until it says another.
    next: Cell<RowId>,
    /// When the step began, ticks.
    began: Cell<u64>,
    /// Whether the step goes on with the call of an earlier one.
    continues: Cell<bool>,
    /// Of each row; none on a thread that is no cell's. All threads of the process have a watch, and each would get
    /// its own 30 KB with its stack.
    counts: OnceCell<Box<[Count]>>,
    /// When the thread's processor time was read last, ticks; 0 if the thread slept since.
    base: Cell<u64>,
    base_cpu_ns: Cell<u64>,
    /// How often the thread had blocked then.
    base_blocks: Cell<i64>,
    /// Ticks after which it is read again.
    span: Cell<u64>,
    rate: Cell<Option<Rate>>,
    /// How long a fault may take, ns.
    fault_ns: Cell<u64>,
    /// How often host code has waited for the disk since the guest could be preempted last.
    waits: Cell<u64>,
}

/// The largest age of the reading of the thread's processor time. Time that the host took since
/// then cannot be attributed to one step.
const SPAN_NS: u64 = 1_000_000;

thread_local! {
    static WATCH: Watch = const {
        Watch {
            polled: Cell::new(false),
            begun: Cell::new(false),
            at: Cell::new(Position::START),
            next: Cell::new(INSTRUCTION),
            began: Cell::new(0),
            continues: Cell::new(false),
            counts: OnceCell::new(),
            base: Cell::new(0),
            base_cpu_ns: Cell::new(0),
            base_blocks: Cell::new(0),
            span: Cell::new(u64::MAX),
            rate: Cell::new(None),
            fault_ns: Cell::new(0),
            waits: Cell::new(0),
        }
    };
}

thread_local! {
    /// Each step of each row, ticks, while steps are sampled: for calibration.
    static SAMPLED: RefCell<Option<Vec<Vec<u64>>>> = const { RefCell::new(None) };
}

thread_local! {
    /// Where rows are raised, and what the host itself adds to a step, ns; nowhere while steps are sampled.
    static RAISED: RefCell<Option<(Arc<RowBounds>, u64)>> = const { RefCell::new(None) };
}

impl Watch {
    #[inline]
    fn counts(&self) -> &[Count] {
        self.counts.get().map_or(&[], |counts| counts)
    }

    #[inline]
    fn count(&self, row: RowId) -> Option<&Count> {
        self.counts().get(usize::from(row.0))
    }

    fn update(&self, change: impl FnOnce(&mut Position)) {
        let mut at = self.at.get();
        change(&mut at);
        self.at.set(at);
    }

    #[inline]
    fn begin(&self) {
        self.continues.set(false);
        self.began.set(ticks::now());
    }

    /// Begins a further step of a call.
    #[inline]
    fn begin_again(&self) {
        self.continues.set(true);
        self.began.set(ticks::now());
    }

    #[inline]
    fn end(&self) {
        self.end_of(self.at.get().row);
    }

    /// Ends a step of this row.
    #[inline]
    fn end_of(&self, row: RowId) {
        let took = ticks::now().wrapping_sub(self.began.get());
        let Some(count) = self.count(row) else {
            return;
        };
        count.steps.set(count.steps.get() + 1);
        if took > count.notable.get() {
            self.note(row, count, took);
        }
    }

    /// A step was longer than the longest before it, or than its limit; or steps are sampled.
    #[cold]
    fn note(&self, row: RowId, count: &Count, took: u64) {
        let beyond = self.beyond(row);
        let limit = count.limit.get().saturating_add(beyond);
        if took > limit && self.may_be_disturbed(took - limit) {
            count.disturbed.set(count.disturbed.get() + 1);
            return;
        }
        if took > limit {
            count.exceeded.set(count.exceeded.get() + 1);
            self.observe_exceeded(row, count);
            count.begin_trial();
        }
        let of_row = took.saturating_sub(beyond);
        count
            .trial_longest
            .set(of_row.max(count.trial_longest.get()));
        count.longest.set(took.max(count.longest.get()));
        let is_sampled = SAMPLED.with_borrow_mut(|samples| {
            let samples = samples.as_mut()?.get_mut(row.0 as usize)?;
            let is_import = !matches!(row.row().interface, ENGINE | CELL);
            let goes_on = is_import && self.continues.get();
            let of_call = samples.last_mut().filter(|_| goes_on);
            if let Some(longest) = of_call {
                *longest = took.max(*longest);
            } else if samples.len() < SAMPLES {
                samples.push(took);
            }
            Some(())
        });
        if is_sampled.is_some() {
            // Every step is noted.
            return;
        }
        count.renew_notable();
    }

    /// Raises the row of a step if its steps are too long too often.
    fn observe_exceeded(&self, row: RowId, count: &Count) {
        let mut drift = count.drift.get();
        let is_alarm = drift.exceeded(count.steps.get());
        count.drift.set(drift);
        let Some(rate) = self.rate.get().filter(|_| is_alarm) else {
            return;
        };
        RAISED.with_borrow(|raised| {
            let Some((raised, added_ns)) = raised else {
                return;
            };
            let bound_ns = rate.ns(count.limit.get()).saturating_sub(*added_ns);
            let calibrated_ns = rate.ns(count.calibrated.get()).saturating_sub(*added_ns);
            let bound_ns = raised_from(bound_ns, calibrated_ns);
            raised.raise(row, bound_ns);
            count.limit.set(rate.ticks(bound_ns + added_ns));
        });
    }

    /// Lowers a row if it was raised and the steps of a whole trial would have kept a lower bound.
    fn settle(&self, row: RowId) {
        let Some(count) = self.count(row) else {
            return;
        };
        let steps = count.steps.get() - count.trial_from.get();
        let Some(rate) = self.rate.get().filter(|_| steps >= TRIAL) else {
            return;
        };
        RAISED.with_borrow(|raised| {
            let Some((raised, added_ns)) = raised else {
                return;
            };
            let row_ns = |ticks| rate.ns(ticks).saturating_sub(*added_ns);
            let calibrated_ns = row_ns(count.calibrated.get());
            let bound_ns = lowest_bound(calibrated_ns, row_ns(count.trial_longest.get()));
            if bound_ns < row_ns(count.limit.get()) {
                let is_raised = bound_ns > calibrated_ns;
                raised.lower(row, is_raised.then_some(bound_ns));
                count.limit.set(match is_raised {
                    true => rate.ticks(bound_ns + added_ns),
                    false => count.calibrated.get(),
                });
            }
        });
        count.begin_trial();
    }

    /// How much longer than its row a step may be where the execution is, ticks.
    fn beyond(&self, row: RowId) -> u64 {
        let at = self.at.get();
        let Some(rate) = self.rate.get() else {
            return 0;
        };
        let making_ns = match row == INSTANTIATE {
            true => at.making_ns,
            false => 0,
        };
        let faults = at.paged.map_or(0, |bytes| visited(row.row(), bytes));
        rate.ticks(making_ns.saturating_add(faults.saturating_mul(self.fault_ns.get())))
    }

    /// Whether the host has taken the processor from the thread for so many ticks since that was read last.
    fn may_be_disturbed(&self, excess: u64) -> bool {
        let Some(rate) = self.rate.get() else {
            return true;
        };
        let (base, base_cpu_ns) = (self.base.get(), self.base_cpu_ns.get());
        let base_blocks = self.base_blocks.get();
        self.rebase();
        if base != 0 && self.base_blocks.get() != base_blocks {
            return false;
        }
        let wall_ns = rate.ns(self.base.get().wrapping_sub(base));
        let cpu_ns = self.base_cpu_ns.get() - base_cpu_ns;
        base == 0 || wall_ns.saturating_sub(cpu_ns) >= rate.ns(excess)
    }

    /// Whether the thread has not blocked since that was read last, and the host has taken the processor from it
    /// for so long. `false` where nothing was read.
    fn was_kept_waiting(&self, ns: u64) -> bool {
        let (Some(rate), base) = (self.rate.get(), self.base.get()) else {
            return false;
        };
        if base == 0 || self.base_blocks.get() != thread_blocks() {
            return false;
        }
        let cpu_ns = thread_cpu_ns() - self.base_cpu_ns.get();
        let wall_ns = rate.ns(ticks::now().wrapping_sub(base));
        wall_ns.saturating_sub(cpu_ns) >= ns
    }

    fn rebase(&self) {
        self.base_cpu_ns.set(thread_cpu_ns());
        self.base_blocks.set(thread_blocks());
        self.base.set(ticks::now());
    }

    fn rebase_if_old(&self) {
        if ticks::now().wrapping_sub(self.base.get()) > self.span.get() {
            self.rebase();
        }
    }
}

/// Sets the limits of this thread's steps: what the rows say, and for each what the host itself adds
/// to a piece of work at most, ns. Rows that are exceeded too often are raised in `bounds`.
pub(crate) fn enter(bounds: Arc<RowBounds>, added_ns: u64) {
    let rate = Rate::here();
    WATCH.with(|watch| {
        watch.rate.set(Some(rate));
        watch.fault_ns.set(bounds.fault_ns());
        watch.span.set(rate.ticks(SPAN_NS));
        let counts = || TABLE.iter().map(|_| Count::NEW).collect();
        let counts = watch.counts.get_or_init(counts);
        for (row, count) in RowId::all().zip(counts) {
            let mut row_ns = bounds.calibrated_ns(row);
            if row == STRING {
                // All that is unnamed of a program in which there may be any.
                row_ns = row_ns.max(bounds.calibrated_ns(INSTRUCTION));
            }
            let limit_ns = row_ns + added_ns;
            count.limit.set(rate.ticks(limit_ns));
            count.calibrated.set(rate.ticks(limit_ns));
        }
    });
    RAISED.set(Some((bounds, added_ns)));
}

/// Lowers the rows that were raised and need it no more: for what is admitted next. Some hundred
/// nanoseconds.
pub(crate) fn settle() {
    WATCH.with(|watch| {
        for (row, count) in RowId::all().zip(watch.counts()) {
            if count.is_raised() {
                watch.settle(row);
            }
        }
    });
}

/// From now on this thread keeps how long each step took.
pub(crate) fn sample() {
    WATCH.with(|watch| {
        SAMPLED.set(Some(vec![Vec::new(); TABLE.len()]));
        RAISED.set(None);
        if let Some(rate) = watch.rate.get() {
            // A step that was longer only because the host took the processor is no sample.
            for count in watch.counts() {
                count.limit.set(rate.ticks(CEILING_NS));
                count.calibrated.set(rate.ticks(CEILING_NS));
            }
        }
    });
}

/// Takes away the samples of the rows that have any.
pub(crate) fn take_samples() -> Vec<StepSamples> {
    let rate = WATCH.with(|watch| watch.rate.get());
    SAMPLED.with_borrow_mut(|samples| {
        let (Some(samples), Some(rate)) = (samples, rate) else {
            return Vec::new();
        };
        let rows = RowId::all().zip(samples);
        rows.filter(|(_, ticks)| !ticks.is_empty())
            .map(|(row, ticks)| StepSamples {
                row,
                ns: ticks.drain(..).map(|ticks| rate.ns(ticks)).collect(),
            })
            .collect()
    })
}

/// The engine goes from the guest to the host or back.
#[inline]
pub(crate) fn hook(what: CallHook) {
    WATCH.with(|watch| {
        // A program that is stopped while the host works for it is unwound by the end of its store,
        // which is a step of its own.
        if !watch.polled.get() {
            return;
        }
        match what {
            CallHook::CallingHost => {
                let row = watch.next.replace(watch.at.get().unnamed);
                watch.update(|at| (at.row, at.in_host) = (row, true));
                // An allocator that the host has called in between may be too short to be preempted.
                if watch.at.get().depth <= 1 {
                    watch.waits.set(0);
                }
                watch.begin();
            }
            CallHook::ReturningFromHost => {
                watch.end();
                watch.update(|at| at.in_host = false);
            }
            CallHook::CallingWasm => {
                watch.end();
                watch.update(|at| {
                    if let Some(outer) = at.outer.get_mut(usize::from(at.depth)) {
                        *outer = at.row;
                    }
                    at.depth = at.depth.saturating_add(1);
                    at.in_host = false;
                });
            }
            CallHook::ReturningFromWasm => {
                watch.update(|at| {
                    at.depth = at.depth.saturating_sub(1);
                    at.row = at
                        .outer
                        .get(usize::from(at.depth))
                        .copied()
                        .unwrap_or(at.unnamed);
                    at.in_host = true;
                });
                watch.begin_again();
            }
        }
    });
}

/// A fault of a tenant that pages begins to be served, or has been: a step of its own if guest code met it, and a part of
/// its step if host code did. In a signal handler: neither allocates nor locks, unless steps are sampled.
pub(crate) fn on_fault(phase: FaultPhase) {
    WATCH.with(|watch| {
        let in_host = watch.at.get().in_host;
        match phase {
            _ if !watch.polled.get() => {}
            FaultPhase::Begins if !in_host => watch.begin(),
            FaultPhase::Over if !in_host => watch.end_of(FAULT),
            FaultPhase::Waited if in_host => watch.waits.set(watch.waits.get() + 1),
            FaultPhase::Begins | FaultPhase::Waited | FaultPhase::Over => {}
        }
    });
}

/// Whether what faults may wait for the disk: guest code always, and host code as often as admission counts for a step.
pub(crate) fn may_wait() -> bool {
    WATCH.with(|watch| {
        let at = watch.at.get();
        let most = at.paged.map(|bytes| waits(at.row.row(), bytes));
        !watch.polled.get() || !at.in_host || most.is_none_or(|most| watch.waits.get() < most)
    })
}

/// The steps of preemption.
pub(crate) const PREEMPTION: HostSteps = HostSteps {
    yields: || mark(step!("engine", "yield")),
    throws: || name_next(step!("engine", "throw")),
};

/// Names the row of the step that is under way. About a nanosecond.
#[inline]
pub(crate) fn mark(row: RowId) {
    WATCH.with(|watch| watch.update(|at| at.row = row));
}

/// Names the row of the engine's next host code, which cannot say it itself.
fn name_next(row: RowId) {
    WATCH.with(|watch| watch.next.set(row));
}

/// The same, if the step has no name yet: for what the engine asks of the host in the middle of an
/// instruction, or of something else.
#[inline]
pub(crate) fn mark_instruction(row: RowId) {
    WATCH.with(|watch| {
        watch.update(|at| {
            if at.row == at.unnamed {
                at.row = row;
            }
        });
    });
}

/// An execution is about to be polled, where it was left.
pub(crate) fn resume(at: Position) {
    WATCH.with(|watch| {
        watch.rebase_if_old();
        watch.at.set(at);
        watch.next.set(at.unnamed);
        watch.polled.set(true);
        watch.waits.set(0);
        if at.in_host {
            watch.begin_again();
        }
    });
}

/// The execution was polled; returns where it was left.
pub(crate) fn suspend() -> Position {
    WATCH.with(|watch| {
        let at = watch.at.get();
        if at.in_host {
            watch.end();
        }
        watch.polled.set(false);
        at
    })
}

/// The step that is under way ends, and the next one of its row begins: the guest could be preempted
/// between the two.
pub(crate) fn next() {
    WATCH.with(|watch| {
        if watch.polled.get() && watch.at.get().in_host {
            watch.end();
            watch.waits.set(0);
            watch.begin_again();
        }
    });
}

/// A step of the cell's own, until it is dropped. Within another step it is a part of that.
#[must_use]
pub(crate) struct Begun {
    outermost: bool,
    not_send: PhantomData<*const ()>,
}

/// Begins a step of the cell's own.
pub(crate) fn begin(row: RowId) -> Begun {
    WATCH.with(|watch| {
        let outermost = !watch.polled.get() && !watch.begun.get();
        if outermost {
            watch.rebase_if_old();
            watch.begun.set(true);
            watch.update(|at| at.row = row);
            watch.begin();
        }
        Begun {
            outermost,
            not_send: PhantomData,
        }
    })
}

impl Drop for Begun {
    fn drop(&mut self) {
        if self.outermost {
            WATCH.with(|watch| {
                watch.end();
                watch.begun.set(false);
            });
        }
    }
}

/// Whether the host, rather than the step under way, kept this thread from running for so long: the thread has not
/// blocked in this step. Less than 1 µs.
pub(crate) fn was_kept_waiting(ns: u64) -> bool {
    WATCH.with(|watch| watch.was_kept_waiting(ns))
}

/// The thread has slept: its processor time is not comparable with the wall clock's before.
pub(crate) fn slept() {
    WATCH.with(|watch| watch.base.set(0));
}

/// How long a step of a row may be for tenants from now on, ns, if the row was raised.
fn raised(row: RowId) -> Option<u64> {
    RAISED.with_borrow(|raised| raised.as_ref().and_then(|(raised, _)| raised.raised(row)))
}

/// What the host itself may add to a step, ns; nothing while steps are sampled.
fn added_ns() -> u64 {
    RAISED.with_borrow(|raised| raised.as_ref().map_or(0, |(_, added_ns)| *added_ns))
}

/// Returns the observations of all rows that had steps.
pub(crate) fn uses() -> Vec<StepUse> {
    WATCH.with(|watch| {
        let Some(rate) = watch.rate.get() else {
            return Vec::new();
        };
        let seen = RowId::all().zip(watch.counts());
        seen.filter(|(_, count)| count.steps.get() > 0)
            .map(|(row, count)| StepUse {
                row,
                steps: count.steps.get(),
                longest_ns: rate.ns(count.longest.get()),
                limit_ns: rate.ns(count.calibrated.get()),
                added_ns: added_ns(),
                exceeded: count.exceeded.get(),
                raised_ns: raised(row),
                disturbed: count.disturbed.get(),
            })
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::{
        CEILING_NS, SAMPLED, hook, next, resume, sample, slept, suspend, take_samples, uses,
    };
    use super::{
        INSTANTIATE, INSTRUCTION, Position, RowBounds, STRING, TRIAL, enter, name_next, settle,
    };
    use super::{RowId, was_kept_waiting};
    use crate::profile::Profile;
    use std::sync::Arc;
    use std::time::{Duration, Instant};
    use wasmtime::{CallHook, Engine, Instance, Module, Store};

    const CALLS: u32 = 1_000_000;

    /// The least time of a call of an empty host function, ns, of some rounds.
    fn call_ns(is_watched: bool) -> f64 {
        let text = r#"(module (import "" "" (func $f)) (func (export "run") (param $n i32)
          (loop $l (call $f)
            (br_if $l (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))))"#;
        let engine = Engine::default();
        let module = Module::new(&engine, text).expect("a module");
        let mut store = Store::new(&engine, ());
        if is_watched {
            store.call_hook(|_, what| {
                hook(what);
                Ok(())
            });
        }
        let function = wasmtime::Func::wrap(&mut store, || {});
        let instance = Instance::new(&mut store, &module, &[function.into()]).expect("an instance");
        let run = instance.get_typed_func::<i32, ()>(&mut store, "run");
        let run = run.expect("a function");
        let mut round = || {
            let began = Instant::now();
            resume(Position::START);
            run.call(&mut store, CALLS.cast_signed()).expect("returns");
            suspend();
            began.elapsed().as_nanos() as f64 / f64::from(CALLS)
        };
        (0..7).map(|_| round()).fold(f64::MAX, f64::min)
    }

    /// Sets the limits of the test's thread.
    fn watched(profile: &Profile) -> Arc<RowBounds> {
        let bounds = Arc::new(RowBounds::calibrated(profile));
        enter(bounds.clone(), profile.added_ns());
        bounds
    }

    #[test]
    fn watching_a_host_call_takes_less_than_a_microsecond() {
        watched(&Profile::free());
        let (without, with) = (call_ns(false), call_ns(true));
        println!("{without:.1} ns without the watch, {with:.1} ns with it");
        // Two readings of the clock; the margin allows for unoptimised builds and busy hosts.
        assert!(with - without < 1000.0, "{without} ns and {with} ns");
    }

    #[test]
    fn a_thread_that_blocked_was_not_kept_waiting_by_the_host() {
        assert!(!was_kept_waiting(0), "nothing was read yet");
        watched(&Profile::free());
        resume(Position::START);
        assert!(was_kept_waiting(0));
        assert!(!was_kept_waiting(1_000_000_000), "it ran");
        std::thread::sleep(Duration::from_millis(2));
        assert!(!was_kept_waiting(1_000_000), "it blocked");
        suspend();
        slept();
        resume(Position::START);
        assert!(was_kept_waiting(0), "it was read again");
        suspend();
    }

    #[test]
    fn of_each_call_of_an_import_the_longest_step_is_sampled() {
        watched(&Profile::free());
        sample();
        let import = RowId::find("wasi:io/poll", "poll").expect("a row");
        resume(Position::START);
        hook(CallHook::CallingWasm);
        for _ in 0..2 {
            name_next(import);
            hook(CallHook::CallingHost);
            std::thread::sleep(Duration::from_millis(1));
            // The guest's allocator is called in the middle, and the call goes on later.
            for _ in 0..300 {
                hook(CallHook::CallingWasm);
                hook(CallHook::ReturningFromWasm);
                next();
            }
            resume(suspend());
            hook(CallHook::ReturningFromHost);
        }
        suspend();
        let samples = take_samples();
        let called = samples.iter().find(|samples| samples.row == import);
        let called = called.expect("calls");
        assert_eq!(called.ns.len(), 2);
        assert!(called.ns.iter().all(|ns| *ns >= 1_000_000), "{called:?}");
        assert_eq!(take_samples(), []);
        SAMPLED.set(None);
    }

    #[test]
    fn steps_that_are_too_long_too_often_raise_their_row() {
        let profile = Profile::free();
        let bounds = watched(&profile);
        let too_long = Duration::from_nanos(10 * (CEILING_NS + profile.added_ns()));
        // Some may be disturbed.
        for _ in 0..100 {
            resume(Position::START);
            let began = Instant::now();
            while began.elapsed() < too_long {}
            suspend();
        }
        let ns = bounds.raised(INSTANTIATE).expect("raised");
        assert!(ns >= CEILING_NS / 4 * 5, "{ns}");
    }

    #[test]
    fn what_is_counted_as_too_long_was_longer_than_the_limit_that_is_reported() {
        let profile = Profile::free();
        let bounds = watched(&profile);
        let used = || {
            let used = uses().into_iter().find(|used| used.row == INSTANTIATE);
            used.expect("steps")
        };
        let step = |time: Duration| {
            resume(Position::START);
            let began = Instant::now();
            while began.elapsed() < time {}
            suspend();
        };
        step(Duration::ZERO);
        let limit_ns = used().limit_ns;
        let least = Duration::from_nanos(CEILING_NS + profile.added_ns());
        // Each a little longer, so that the row is raised beyond the first ones.
        for nth in 2..100 {
            step(nth * least);
            let used = used();
            assert_eq!(used.limit_ns, limit_ns, "{used:?}");
            assert!(
                used.exceeded == 0 || used.longest_ns > used.limit_ns,
                "{used:?}"
            );
        }
        assert!(bounds.raised(INSTANTIATE).is_some());
        assert!(used().exceeded > 0);
    }

    #[test]
    fn a_raised_row_falls_when_a_trial_of_its_steps_kept_what_was_calibrated() {
        let profile = Profile::free();
        let bounds = watched(&profile);
        let too_long = Duration::from_nanos(10 * (CEILING_NS + profile.added_ns()));
        for _ in 0..100 {
            resume(Position::START);
            let began = Instant::now();
            while began.elapsed() < too_long {}
            suspend();
        }
        settle();
        assert!(bounds.raised(INSTANTIATE).is_some(), "there was no trial");
        // A disturbed step restarts the trial. Steps that may exceed the row are not counted in it.
        for nth in 0..20 * TRIAL {
            let making_ns = 100 * too_long.as_nanos() as u64;
            resume(Position::start(making_ns, false, None));
            let began = Instant::now();
            while nth % 10_000 == 0 && began.elapsed() < too_long {}
            suspend();
            if bounds.raised(INSTANTIATE).is_none() {
                break;
            }
            settle();
        }
        assert_eq!(bounds.raised(INSTANTIATE), None);
    }

    #[test]
    fn what_is_unnamed_is_a_string_where_components_may_pass_each_other_some() {
        watched(&Profile::free());
        let steps = |is_composed| {
            resume(Position::start(0, is_composed, None));
            hook(CallHook::CallingWasm);
            for _ in 0..3 {
                hook(CallHook::CallingHost);
                hook(CallHook::ReturningFromHost);
            }
            suspend();
            let uses = uses();
            [STRING, INSTRUCTION].map(|row| {
                let used = uses.iter().find(|used| used.row == row);
                used.map_or(0, |used| used.steps)
            })
        };
        assert_eq!(steps(false), [0, 3]);
        assert_eq!(steps(true), [3, 3]);
    }

    #[test]
    fn a_step_that_blocks_is_too_long_itself_and_not_disturbed() {
        let profile = Profile::free();
        watched(&profile);
        for _ in 0..10 {
            resume(Position::START);
            std::thread::sleep(Duration::from_nanos(10 * (CEILING_NS + profile.added_ns())));
            suspend();
        }
        let used = uses().into_iter().find(|used| used.row == INSTANTIATE);
        let used = used.expect("steps");
        assert_eq!((used.exceeded, used.disturbed), (10, 0));
    }
}
