//! Which locks workloads share (LockScope §3, §5.2).
//!
//! Two workloads share a lock if both took it while both were using it: an address that one used
//! first and the other one afterwards may be two locks, where the kernel does not let their
//! initialisation be seen.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::place::Object;
use crate::separation::Separation;
use crate::trace::{Access, Class, Trace, Use};

/// How workloads come to share a lock (LockScope §3, table 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The lock is a variable of the kernel, common to all workloads.
    Global,
    /// It guards an object that both use: a file system, a directory, a journal.
    Object,
    /// It guards many things, of which each uses its own: a bucket of a hash table.
    Incidental,
}

/// One lock, and its users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lock {
    /// Its address.
    pub address: u64,
    /// Which lock at that address.
    pub generation: u32,
    /// Its class.
    pub class: Class,
    /// What it is, for people: `journal_s.j_list_lock`, `tasklist_lock`; without an analyzer, what
    /// takes it.
    pub name: String,
    /// Whether `name` is that of an object or a variable.
    pub named: bool,
    /// The directory of the kernel's source that takes it: `mm`, `fs`, …; `unknown` without an
    /// analyzer.
    pub subsystem: String,
    /// What sharing it means.
    pub kind: Kind,
    /// What each workload needs for itself so that it is not shared.
    pub separation: Separation,
    /// How each workload used it, in their order; those that did not are absent.
    pub by: BTreeMap<u8, Usage>,
    /// Whether two workloads used it in the same part of the recording.
    pub shared: bool,
}

/// How a workload used a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Acquisitions that exclude all others.
    pub exclusive: Acquisitions,
    /// Acquisitions for reading.
    pub shared: Acquisitions,
    /// Acquisitions after a wait.
    pub contended: u64,
    /// Time waited, in nanoseconds.
    pub wait_ns: u64,
    /// The longest wait.
    pub wait_max_ns: u64,
    /// The longest hold.
    pub hold_max_ns: u64,
    /// When it was used first, in nanoseconds since the recording began.
    pub first_ns: u64,
    /// When it was used last.
    pub last_ns: u64,
}

/// Acquisitions of one kind of access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Acquisitions {
    /// How many.
    pub acquired: u64,
    /// How many of them had their hold measured.
    pub held: u64,
    /// Time that these took.
    pub hold_ns: u64,
}

impl Usage {
    /// All acquisitions.
    #[must_use]
    pub fn acquired(&self) -> u64 {
        self.exclusive.acquired.saturating_add(self.shared.acquired)
    }

    /// Acquisitions whose hold was measured.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.exclusive.held.saturating_add(self.shared.held)
    }

    /// Time that the lock was held, in nanoseconds.
    #[must_use]
    pub fn hold_ns(&self) -> u64 {
        self.exclusive.hold_ns.saturating_add(self.shared.hold_ns)
    }

    fn add(&mut self, used: &Use, access: Access) {
        let first = self.acquired() == 0;
        let part = match access {
            Access::Exclusive => &mut self.exclusive,
            Access::Shared => &mut self.shared,
        };
        part.acquired = part.acquired.saturating_add(used.acquired);
        part.held = part.held.saturating_add(used.held);
        part.hold_ns = part.hold_ns.saturating_add(used.hold_ns);
        self.contended = self.contended.saturating_add(used.contended);
        self.wait_ns = self.wait_ns.saturating_add(used.wait_ns);
        self.wait_max_ns = self.wait_max_ns.max(used.wait_max_ns);
        self.hold_max_ns = self.hold_max_ns.max(used.hold_max_ns);
        self.last_ns = self.last_ns.max(used.last_ns);
        self.first_ns = match first {
            true => used.first_ns,
            false => self.first_ns.min(used.first_ns),
        };
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.first_ns <= other.last_ns && other.first_ns <= self.last_ns
    }
}

/// The locks of `trace`, sorted by how often they were taken, most often first.
#[must_use]
pub fn locks(trace: &Trace) -> Vec<Lock> {
    let mut uses: BTreeMap<(u64, u32), Vec<&Use>> = BTreeMap::new();
    for used in &trace.uses {
        uses.entry((used.lock, used.generation))
            .or_default()
            .push(used);
    }
    let mut locks: Vec<_> = uses.values().map(|uses| lock(trace, uses)).collect();
    let total = |lock: &Lock| -> u64 {
        let acquired = lock.by.values().map(Usage::acquired);
        acquired.fold(0, u64::saturating_add)
    };
    locks.sort_by_key(|lock| std::cmp::Reverse(total(lock)));
    locks
}

/// The lock that all of `uses` are of; there is at least one.
fn lock(trace: &Trace, uses: &[&Use]) -> Lock {
    let primitive = |used: &Use| &trace.primitives[usize::from(used.primitive.0)];
    let mut by: BTreeMap<u8, Usage> = BTreeMap::new();
    for used in uses {
        let usage = by.entry(used.workload.0).or_default();
        usage.add(used, primitive(used).access);
    }
    let all: Vec<_> = by.values().collect();
    let pairs = all.iter().enumerate();
    let shared = pairs
        .flat_map(|(at, one)| all[at + 1..].iter().map(move |two| (one, two)))
        .any(|(one, two)| one.overlaps(two));
    let first = uses[0];
    let (name, named, object) = name(trace, uses);
    Lock {
        address: first.lock,
        generation: first.generation,
        class: primitive(first).class,
        kind: kind(trace, first.lock, &name, object),
        separation: separation(trace, uses, object),
        subsystem: subsystem(trace, uses),
        name,
        named,
        by,
        shared,
    }
}

/// What lies farther behind a symbol is of a variable that the kernel's table does not have.
const LARGEST_VARIABLE: u64 = 64 << 10;

/// Returns the name by the most frequent use that an analyzer could identify; else the symbol of a
/// variable; else the function that takes it.
fn name<'a>(trace: &'a Trace, uses: &[&Use]) -> (String, bool, Option<&'a Object>) {
    let object = |used: &Use| {
        let place = &trace.places[used.place?.0 as usize];
        match &place.object {
            Object::Unknown { .. } => None,
            object => Some(object),
        }
    };
    let known = uses
        .iter()
        .filter_map(|used| Some((used.acquired, object(used)?)));
    if let Some((_, object)) = known.max_by_key(|(acquired, _)| *acquired) {
        return (object.to_string(), true, Some(object));
    }
    let first = uses[0];
    if trace.is_variable(first.lock)
        && let Some(symbol) = trace.symbol(first.lock)
        && symbol.offset < LARGEST_VARIABLE
    {
        let name = match symbol.offset {
            0 => symbol.name.clone(),
            offset => format!("{}+{offset:#x}", symbol.name),
        };
        return (name, true, None);
    }
    let class = trace.primitives[usize::from(first.primitive.0)].class;
    let most = uses.iter().max_by_key(|used| used.acquired);
    let taker = most.and_then(|used| trace.symbol(used.site));
    let taker = taker.map_or_else(|| "unknown code".into(), |symbol| symbol.name.clone());
    (format!("{class} taken by {taker}"), false, None)
}

fn kind(trace: &Trace, lock: u64, name: &str, object: Option<&Object>) -> Kind {
    let of_many = |text: &str| text.contains("hash") || text.contains("bucket");
    match object {
        Some(Object::Element { .. }) => Kind::Incidental,
        _ if of_many(name) => Kind::Incidental,
        Some(Object::Variable { .. }) => Kind::Global,
        _ if trace.is_variable(lock) => Kind::Global,
        _ => Kind::Object,
    }
}

fn separation(trace: &Trace, uses: &[&Use], object: Option<&Object>) -> Separation {
    let Some(object) = object else {
        return Separation::Kernel;
    };
    let most = uses.iter().max_by_key(|used| used.acquired);
    let stack = most.and_then(|used| trace.stacks.get(used.stack?.0 as usize));
    let chain = stack.map_or(&[][..], |stack| &stack.0);
    let names = chain.iter().map(|&address| trace.symbol(address));
    Separation::of(
        object,
        names.map(|symbol| symbol.map_or("", |symbol| &symbol.name)),
    )
}

fn subsystem(trace: &Trace, uses: &[&Use]) -> String {
    let places = uses.iter().filter_map(|used| {
        let place = &trace.places[used.place?.0 as usize];
        Some((used.acquired, place.subsystem()))
    });
    let most = places.max_by_key(|(acquired, _)| *acquired);
    most.map_or_else(|| "unknown".into(), |(_, name)| name.to_owned())
}
