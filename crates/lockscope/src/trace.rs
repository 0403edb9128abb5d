//! A trace: which workload took which kernel lock, from where, how often and for how long
//! (LockScope §4.1).
//!
//! A trace is an aggregate, not a log: one [`Use`] for each combination of lock, call chain,
//! function and workload. All addresses are those of the traced kernel while it ran.

use serde::{Deserialize, Serialize};

use crate::place::Place;

/// Everything that one recording found, and what an analyzer added to it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Trace {
    /// What the workloads are called in tables.
    pub name: String,
    /// How the recording was made.
    pub mode: Mode,
    /// The kernel that was traced.
    pub kernel: Kernel,
    /// What the workloads ran on, for tables that compare: `host`, `runc`, …
    pub platform: String,
    /// The classes of locks that were looked at.
    pub classes: Vec<Class>,
    /// Length of the recording in nanoseconds of the traced kernel's monotonic clock.
    pub duration_ns: u64,
    /// The workloads, in the order of [`WorkloadId`].
    pub workloads: Vec<Workload>,
    /// What the tracer could not see or keep.
    pub losses: Losses,
    /// What an empty probe cost, in nanoseconds: subtracted from each hold, and from one that others
    /// are nested in, with what these cost, once for each. `None` where it was not measured.
    pub probe_ns: Option<u64>,
    /// What it costs to write to a cache line that another processor wrote last, in nanoseconds.
    /// `None` where it was not measured.
    pub move_ns: Option<u64>,
    /// The functions (or tracepoints) that locks were taken through, in the order of
    /// [`PrimitiveId`].
    pub primitives: Vec<Primitive>,
    /// Call chains, in the order of [`StackId`].
    pub stacks: Vec<Stack>,
    /// Names of the addresses that occur: code of call chains, and locks that are variables of
    /// the kernel. Sorted by address, each once.
    pub symbols: Vec<Symbol>,
    /// The acquisitions.
    pub uses: Vec<Use>,
    /// What an analyzer found out about the places where locks are taken, in the order of
    /// [`PlaceId`]; empty before that.
    pub places: Vec<Place>,
}

/// Index into [`Trace::workloads`].
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct WorkloadId(pub u8);

/// Index into [`Trace::primitives`].
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct PrimitiveId(pub u16);

/// Index into [`Trace::stacks`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StackId(pub u32);

/// Index into [`Trace::places`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PlaceId(pub u32);

/// What a recording can see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Every acquisition and release, by probes on the lock functions.
    Full,
    /// Acquisitions that had to wait, by the kernel's tracepoints; of `mmap_lock` all of them.
    #[default]
    Contended,
}

/// The kernel of a trace: enough to find its debug information and to relate addresses to it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Kernel {
    /// As `uname -r` prints it.
    pub release: String,
    /// The GNU build id of the kernel image, in hexadecimal; empty if it cannot be read.
    pub build_id: String,
    /// Processors online.
    pub cpus: u32,
    /// Address of the symbol `_text` while it ran: what `nokaslr` moved it by, the debug image
    /// knows.
    pub text: u64,
    /// First address of the kernel's variables, and the first one after them. Zero if unknown.
    pub data: (u64, u64),
    /// Loaded modules, sorted by base address.
    pub modules: Vec<Module>,
}

/// A loaded kernel module.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Module {
    /// Its name.
    pub name: String,
    /// Where it was loaded.
    pub base: u64,
    /// Bytes that it takes.
    pub size: u64,
}

/// One of the workloads that are compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workload {
    /// Its short name: `a`, `b`, …
    pub name: String,
    /// What it was: a command line, a control group, a process.
    pub what: String,
    /// For how much of the recording it ran, in nanoseconds.
    pub ran_ns: u64,
    /// How long what it did in that takes when it is neither traced nor beside another one, in nanoseconds;
    /// 0 if unknown.
    pub own_ns: u64,
}

/// What was not seen or not kept, always reported: a count of zero is a claim too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Losses {
    /// Acquisitions that are in no [`Use`], because the table of uses was full.
    pub acquisitions: u64,
    /// Uses without a call chain, because its slot of the stack table was taken.
    pub stacks: u64,
    /// Acquisitions whose hold or wait time was not measured: too many locks held at once, or too
    /// many tasks.
    pub times: u64,
    /// Times that a program of the tracer was not run by the kernel, which says so. Among them
    /// are the locks that the tracer itself takes, so this is an upper bound on what was missed.
    pub skipped: u64,
    /// Lock initialisations that were not noted: an address may stand for two locks.
    pub births: u64,
}

/// A way to take a lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Primitive {
    /// The kernel function; in the contended mode, the kind of lock as its tracepoint names it.
    pub name: String,
    /// What it takes.
    pub class: Class,
    /// Whether several may hold it at a time.
    pub access: Access,
    /// Whether it may come back without the lock. Of such a function only acquisitions that were
    /// seen to end count.
    pub tries: bool,
}

/// A kind of lock (LockScope table 3).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// `struct mutex`.
    Mutex,
    /// `struct rw_semaphore`: the table's semaphores.
    Rwsem,
    /// `spinlock_t` and `raw_spinlock_t`.
    #[default]
    Spin,
    /// `rwlock_t`.
    Rw,
    /// `struct rt_mutex`.
    #[serde(rename = "rtmutex")]
    RtMutex,
    /// `struct percpu_rw_semaphore`; seen in the contended mode only.
    PercpuRwsem,
}

/// Whether holders exclude each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// One holder.
    #[default]
    Exclusive,
    /// Any number of readers.
    Shared,
}

/// Return addresses, innermost first.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Stack(pub Vec<u64>);

/// The name of an address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Symbol {
    /// The address.
    pub address: u64,
    /// The symbol that it lies in.
    pub name: String,
    /// Distance from the symbol's first byte.
    pub offset: u64,
    /// The module, unless it is of the kernel's image.
    pub module: Option<String>,
}

/// The acquisitions of one lock by one workload, through one function, from one call chain.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Use {
    /// Address of the lock.
    pub lock: u64,
    /// How many times a lock had been initialised at that address before: with the address, what
    /// tells one lock from another.
    pub generation: u32,
    /// The workload.
    pub workload: WorkloadId,
    /// Through which function.
    pub primitive: PrimitiveId,
    /// Return address into the function that takes the lock; 0 if unknown.
    pub site: u64,
    /// A call chain that led there. Other chains that end at the same site with the same lock are
    /// counted here too: what the lock belongs to is the same.
    pub stack: Option<StackId>,
    /// Times that it was taken; in the contended mode, times that it was taken after a wait.
    pub acquired: u64,
    /// Of these, the times after a wait.
    pub contended: u64,
    /// Times that a hold was measured, which is at most `acquired`.
    pub held: u64,
    /// Time that it was held, in nanoseconds, in total.
    pub hold_ns: u64,
    /// The longest hold.
    pub hold_max_ns: u64,
    /// Time that was waited for it, in nanoseconds, in total.
    pub wait_ns: u64,
    /// The longest wait.
    pub wait_max_ns: u64,
    /// When it was taken first, since the recording began, in nanoseconds.
    pub first_ns: u64,
    /// When it was taken last.
    pub last_ns: u64,
    /// What the analyzer says about it.
    pub place: Option<PlaceId>,
}

impl Trace {
    /// The name of `address`, if the trace has one. O(log symbols).
    #[must_use]
    pub fn symbol(&self, address: u64) -> Option<&Symbol> {
        let found = self
            .symbols
            .binary_search_by_key(&address, |symbol| symbol.address);
        found.ok().map(|index| &self.symbols[index])
    }

    /// Whether `lock` is one of the kernel's own variables, rather than part of something
    /// allocated.
    #[must_use]
    pub fn is_variable(&self, lock: u64) -> bool {
        (self.kernel.data.0..self.kernel.data.1).contains(&lock)
    }
}

impl Losses {
    /// Both together.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self {
            acquisitions: self.acquisitions.saturating_add(other.acquisitions),
            stacks: self.stacks.saturating_add(other.stacks),
            times: self.times.saturating_add(other.times),
            skipped: self.skipped.saturating_add(other.skipped),
            births: self.births.saturating_add(other.births),
        }
    }
}

impl Class {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Mutex,
        Self::Rwsem,
        Self::Spin,
        Self::Rw,
        Self::RtMutex,
        Self::PercpuRwsem,
    ];
}

impl std::fmt::Display for Class {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Self::Mutex => "mutex",
            Self::Rwsem => "rwsem",
            Self::Spin => "spin",
            Self::Rw => "rw",
            Self::RtMutex => "rtmutex",
            Self::PercpuRwsem => "percpu-rwsem",
        })
    }
}
