//! How a cell is set up.

use crate::compiler::Compiler;
use crate::kill_bound::ends_contract;
use crate::memory::HeldMemory;
use crate::profile::Profile;
use crate::realtime::WhenRealtime;
use leasehold_preempt::Mechanism;
use leasehold_reclaim::Mode;
use leasehold_reserve::{Contract, Order, Shielding};
use leasehold_wasm::artifact::CodeCache;
use std::sync::Arc;

/// Linear memories that a cell has places for by default. A tenant takes one at least, so that no more
/// tenants fit.
pub const PLACES: usize = 1024;

/// How a cell is set up.
#[derive(Debug, Clone)]
pub struct CellConfig {
    /// The core to pin the cell's thread to, if any.
    pub cpu: Option<usize>,
    /// The costs of reclaiming on this host.
    pub profile: Profile,
    /// Grouped, or object by object: the baseline of BRR fig. 7 and 8.
    pub mode: Mode,
    /// Most reclamation groups (tenants and their descendants) at a time.
    pub max_groups: u32,
    /// Most linear memories at a time; each is 4 GiB of address space.
    pub max_memories: usize,
    /// Address range of a top-level tenant's arena, bytes.
    pub arena_bytes: usize,
    /// How guests are preempted; by default as the environment variable `LEASEHOLD_PREEMPT` says.
    pub preemption: Mechanism,
    /// Most top-level tenants at a time.
    pub max_tenants: u32,
    /// The order of dispatch: fixed priorities, or the earliest deadline first.
    pub order: Order,
    /// When the cell's thread has real-time priority, so that no other program of the host takes time from
    /// reservations or kills ([`Cell::realtime`](crate::Cell::realtime) tells whether it got it).
    pub realtime: WhenRealtime,
    /// Whether a cell that gets real-time priority, but no [core of its own](crate::Cell::own_core), ends
    /// at once, with the error [`NoOwnCore`](crate::NoOwnCore): before it takes any memory.
    pub needs_own_core: bool,
    /// Whether admission is tested: a tenant is refused if its reservation, or that of any other
    /// tenant, could then not be kept.
    pub admission: bool,
    /// How timeouts are handled: shielded, or eager, the naive way that attacks exploit, as a
    /// baseline.
    pub shielding: Shielding,
    /// The processor reservation for ends of background tenants, which bounds these ends too. It
    /// exists as long as the tenants' reservations leave room for it. `None`: background tenants
    /// end in time that no reservation uses.
    pub ends: Option<Contract>,
    /// The host memory that the cell holds. `None`: the cell holds no memory, memory reservations
    /// are limits only, and no tenant pages.
    pub memory: Option<HeldMemory>,
    /// Whether the cell keeps how long each host step took, for calibration
    /// ([`Cell::take_step_samples`](crate::Cell::take_step_samples)).
    pub sample_steps: bool,
    /// Whether the message of a trap names the functions on the stack. The engine walks the whole
    /// stack for it, in a step of up to 2 ms that no tenant is charged for. Only a cell without
    /// isolation requirements among its tenants sets this.
    pub backtraces: bool,
    /// Most bytes of the host's memory that programs take together: machine code, and initial memory that instances
    /// are shown. `None`: a quarter of it. More programs are refused when they are loaded.
    pub code: Option<u64>,
    /// Where compiled programs are kept between runs; `None` compiles every time.
    pub code_cache: Option<Arc<CodeCache>>,
    /// The process that compiles programs which are loaded from files. `None`: this one does, and while it does, a tenant
    /// that grows its memory may wait for the kernel's lock on its mappings.
    pub compiler: Option<Arc<Compiler>>,
}

impl CellConfig {
    /// Returns a cell with [`PLACES`] places that charges what `profile` says.
    pub fn new(profile: Profile) -> Self {
        Self {
            cpu: None,
            profile,
            mode: Mode::Grouped,
            max_groups: 1 << 16,
            max_memories: PLACES,
            arena_bytes: 1 << 30,
            preemption: Mechanism::from_environment(),
            max_tenants: 4096,
            order: Order::FixedPriority,
            realtime: WhenRealtime::Never,
            needs_own_core: false,
            admission: true,
            shielding: Shielding::Shielded,
            ends: Some(ends_contract()),
            memory: None,
            sample_steps: false,
            backtraces: false,
            code: None,
            code_cache: None,
            compiler: None,
        }
    }
}
