//! What a trace says: shared and private locks, how often they are taken, by object, by subsystem
//! and by kind of sharing (LockScope §5.2).

use std::collections::BTreeMap;

use serde::Serialize;

use crate::replay::{Cheapest, Replay};
use crate::score::Score;
use crate::separation::Separation;
use crate::sharing::{Kind, Lock, Usage, locks};
use crate::trace::{Class, Losses, Mode, Trace};

/// The report on one trace. Rates are acquisitions per second of the recording, of all workloads
/// together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// What the workloads are called.
    pub name: String,
    /// What they ran on.
    pub platform: String,
    /// What the recording could see.
    pub mode: Mode,
    /// The kernel's release.
    pub kernel: String,
    /// The classes of locks that were recorded.
    pub classes: Vec<Class>,
    /// Length of the recording in seconds.
    pub seconds: f64,
    /// Each workload.
    pub workloads: Vec<WorkloadRow>,
    /// Locks that workloads took in the same part of the recording.
    pub shared: Total,
    /// Of the shared ones, those of each kind.
    pub kinds: BTreeMap<Kind, Total>,
    /// Addresses that several workloads used one after the other: not counted as shared.
    pub successive: u64,
    /// By object and field, those that are shared first, most frequent first.
    pub objects: Vec<ObjectRow>,
    /// By directory of the kernel's source: what is shared.
    pub subsystems: BTreeMap<String, Total>,
    /// What would separate the workloads, the cheapest first.
    pub replays: Vec<Replay>,
    /// The cheapest of these that takes half of what is lost away.
    pub cheapest: Option<Cheapest>,
    /// How much of it is mapped to an object and a field, or a variable.
    pub mapped: Mapped,
    /// What was not seen or not kept.
    pub losses: Losses,
}

/// A workload of a report.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorkloadRow {
    /// Its short name.
    pub name: String,
    /// What it was.
    pub what: String,
    /// For how many seconds it ran.
    pub seconds: f64,
    /// The time that it took.
    pub taken: Total,
    /// The part of it that no other workload took.
    pub private: Total,
    /// Share of the recording that it waited for shared locks (above 1 with several threads).
    pub waiting: f64,
}

/// Some locks together.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Total {
    /// How many.
    pub locks: u64,
    /// Acquisitions per second.
    pub per_second: f64,
    /// Of these, after a wait.
    pub contended_per_second: f64,
    /// Of all acquisitions, those per second whose hold was measured.
    pub holds_per_second: f64,
    /// Time held in these, as a share of the recording. It says nothing where there are none.
    pub held: f64,
    /// Time waited, likewise.
    pub waited: f64,
    /// The longest hold in nanoseconds.
    pub hold_max_ns: u64,
    /// The longest wait in nanoseconds.
    pub wait_max_ns: u64,
}

/// The locks that are the same field of the same kind of object.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ObjectRow {
    /// `journal_s.j_list_lock`, `tasklist_lock`, …
    pub object: String,
    /// Their class.
    pub class: Class,
    /// Where in the kernel.
    pub subsystem: String,
    /// What sharing one means.
    pub kind: Kind,
    /// What each workload needs for itself so that it shares none of them.
    pub separation: Separation,
    /// The shared ones.
    pub shared: Total,
    /// The private ones.
    pub private: Total,
}

/// How much is mapped to an object (LockScope §4.2 reports it for locks). `None` of nothing.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Mapped {
    /// Share of all acquisitions.
    pub acquisitions: Option<f64>,
    /// Share of the locks that are told apart by call site.
    pub sites: Option<f64>,
}

impl Total {
    fn add(&mut self, usage: &Usage, seconds: f64) {
        self.per_second += usage.acquired() as f64 / seconds;
        self.contended_per_second += usage.contended as f64 / seconds;
        self.holds_per_second += usage.held() as f64 / seconds;
        self.held += usage.hold_ns() as f64 / 1e9 / seconds;
        self.waited += usage.wait_ns as f64 / 1e9 / seconds;
        self.hold_max_ns = self.hold_max_ns.max(usage.hold_max_ns);
        self.wait_max_ns = self.wait_max_ns.max(usage.wait_max_ns);
    }

    fn add_lock(&mut self, lock: &Lock, seconds: f64) {
        self.locks += 1;
        lock.by.values().for_each(|usage| self.add(usage, seconds));
    }
}

impl Report {
    /// The report on `trace`.
    #[must_use]
    pub fn of(trace: &Trace) -> Self {
        let locks = locks(trace);
        // A recording of no length has no rates.
        let seconds = (trace.duration_ns as f64 / 1e9).max(1e-9);
        let shared = || locks.iter().filter(|lock| lock.shared);
        let mut kinds: BTreeMap<Kind, Total> = BTreeMap::new();
        let mut subsystems: BTreeMap<String, Total> = BTreeMap::new();
        for lock in shared() {
            kinds.entry(lock.kind).or_default().add_lock(lock, seconds);
            let subsystem = subsystems.entry(lock.subsystem.clone()).or_default();
            subsystem.add_lock(lock, seconds);
        }
        let replays = Replay::all(trace);
        let cheapest = Replay::cheapest(&replays, Score::of(trace).score);
        let successive = locks
            .iter()
            .filter(|lock| !lock.shared && lock.by.len() > 1);
        Self {
            name: trace.name.clone(),
            platform: trace.platform.clone(),
            mode: trace.mode,
            kernel: trace.kernel.release.clone(),
            classes: trace.classes.clone(),
            seconds,
            workloads: workloads(trace, &locks, seconds),
            shared: total(shared(), seconds),
            kinds,
            successive: successive.count() as u64,
            objects: objects(&locks, seconds),
            subsystems,
            cheapest,
            replays,
            mapped: mapped(trace, &locks),
            losses: trace.losses,
        }
    }
}

fn total<'a>(locks: impl Iterator<Item = &'a Lock>, seconds: f64) -> Total {
    let mut total = Total::default();
    locks.for_each(|lock| total.add_lock(lock, seconds));
    total
}

fn workloads(trace: &Trace, locks: &[Lock], seconds: f64) -> Vec<WorkloadRow> {
    let row = |(number, workload): (u8, &crate::trace::Workload)| {
        let (mut taken, mut private, mut waiting) = (Total::default(), Total::default(), 0.0);
        for lock in locks {
            let Some(usage) = lock.by.get(&number) else {
                continue;
            };
            taken.locks += 1;
            taken.add(usage, seconds);
            if lock.shared {
                waiting += usage.wait_ns as f64 / 1e9 / seconds;
            } else {
                private.locks += 1;
                private.add(usage, seconds);
            }
        }
        WorkloadRow {
            name: workload.name.clone(),
            what: workload.what.clone(),
            seconds: workload.ran_ns as f64 / 1e9,
            taken,
            private,
            waiting,
        }
    };
    (0u8..=u8::MAX).zip(&trace.workloads).map(row).collect()
}

fn objects(locks: &[Lock], seconds: f64) -> Vec<ObjectRow> {
    let mut rows: BTreeMap<(&str, Class), ObjectRow> = BTreeMap::new();
    for lock in locks {
        let row = rows
            .entry((&lock.name, lock.class))
            .or_insert_with(|| ObjectRow {
                object: lock.name.clone(),
                class: lock.class,
                subsystem: lock.subsystem.clone(),
                kind: lock.kind,
                separation: lock.separation,
                shared: Total::default(),
                private: Total::default(),
            });
        let part = if lock.shared {
            let others = (row.shared.locks > 0).then_some(row.separation);
            row.separation = lock.separation.max(others.unwrap_or(lock.separation));
            &mut row.shared
        } else {
            &mut row.private
        };
        part.add_lock(lock, seconds);
    }
    let mut rows: Vec<_> = rows.into_values().collect();
    let by_rate = |one: &ObjectRow, two: &ObjectRow| {
        let rates = |row: &ObjectRow| (row.shared.per_second, row.private.per_second);
        rates(two)
            .partial_cmp(&rates(one))
            .unwrap_or(std::cmp::Ordering::Equal)
    };
    rows.sort_by(by_rate);
    rows
}

fn mapped(trace: &Trace, locks: &[Lock]) -> Mapped {
    let share = |part: f64, whole: f64| (whole > 0.0).then(|| part / whole);
    let acquired = |lock: &Lock| {
        lock.by
            .values()
            .map(|usage| usage.acquired() as f64)
            .sum::<f64>()
    };
    let named = locks.iter().filter(|lock| lock.named);
    let is_named: BTreeMap<_, _> = locks
        .iter()
        .map(|lock| ((lock.address, lock.generation), lock.named))
        .collect();
    // The paper tells locks apart by name, function and file: here by call site.
    let mut sites: BTreeMap<u64, bool> = BTreeMap::new();
    for used in &trace.uses {
        let named = is_named.get(&(used.lock, used.generation)) == Some(&true);
        *sites.entry(used.site).or_default() |= named;
    }
    let named_sites = sites.values().filter(|named| **named).count();
    Mapped {
        acquisitions: share(named.map(acquired).sum(), locks.iter().map(acquired).sum()),
        sites: share(named_sites as f64, sites.len() as f64),
    }
}
