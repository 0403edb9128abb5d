//! How a tenant ended, and what that cost.

use crate::clock::Elapsed;
use crate::exit::Exit;
use crate::memory::MemoryUse;
use crate::refusals::Refusal;
use leasehold_reclaim::Statement;
use leasehold_reserve::Supply;

/// Which part of ending a tenant a measurement covers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reclaimed {
    /// The bound that was charged: what ending this tenant may cost, ns of processor time. If the
    /// end reports the account by class, it is the sum of what the tenant and its descendants were
    /// charged. Otherwise it is what the tenant was charged plus the budgets of its children, which
    /// is no less.
    pub predicted_ns: u64,
    /// Wall time from the kill until no instruction of the tenant could run, ns; close to zero if
    /// the tenant ended by itself. The wall times below start at the kill as well.
    pub effect_ns: u64,
    /// Until everything was severed and the tenant's slots could be used again.
    pub reusable: Elapsed,
    /// Until its pages were given back too.
    pub returned: Elapsed,
    /// Scrub entries severed.
    pub scrubbed: u64,
    /// Groups ended, the tenant's own included (only those that had to be visited).
    pub groups: u64,
    /// Steps of work taken.
    pub steps: u64,
    /// Pages given back: of linear memories, stacks, and the arena.
    pub pages: u64,
    /// Pages of the arena among them.
    pub arena_pages: u64,
    /// Pauses between slices of giving pages back, which other programs of the host need; none with
    /// a reservation.
    pub pauses: u64,
    /// Calls that threads for calls had begun and not finished when everything else was returned. Each keeps its thread
    /// and its file until the file system answers, and no bound says when.
    pub calls_under_way: u32,
}

/// How a tenant ended.
#[derive(Debug, Clone)]
pub struct Ended {
    /// How its program ended.
    pub exit: Exit,
    /// The instant of the end, on the clock of [`crate::clock::monotonic_ns`]: the program had
    /// stopped, and nothing had been taken back.
    pub at_ns: u64,
    /// Its account at the moment it ended, by class.
    pub statement: Statement,
    /// How it used its memory, until it ended.
    pub memory: MemoryUse,
    /// Requests of the tenant and its descendants that its lease refused.
    pub refusals: Vec<Refusal>,
    /// The cost of its end.
    pub reclaimed: Reclaimed,
    /// Processor time that it received, its end included.
    pub supply: Supply,
}
