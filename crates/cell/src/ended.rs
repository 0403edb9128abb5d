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
    /// The bound that was charged: what ending this tenant may cost, ns of processor time. All
    /// that it and those below it were charged, if its end reports the account by class; else what
    /// it was charged and the budgets of its children, which is no less.
    pub predicted_ns: u64,
    /// Wall time from the kill until no instruction of the tenant could run any more, ns; next to
    /// nothing if it ended by itself. What is below counts from the kill, too, on the wall's clock.
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
    /// How many of them were the arena's.
    pub arena_pages: u64,
    /// Pauses in giving them back, for the sake of others on the host; none with a reservation.
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
    /// When, on the clock of [`crate::clock::monotonic_ns`]: its program ran no more, and nothing
    /// had been taken back.
    pub at_ns: u64,
    /// Its account at the moment it ended, by class.
    pub statement: Statement,
    /// How it used its memory, until it ended.
    pub memory: MemoryUse,
    /// What its lease refused to it and its descendants.
    pub refusals: Vec<Refusal>,
    /// What ending it cost.
    pub reclaimed: Reclaimed,
    /// What it got of the processor, its end included.
    pub supply: Supply,
}
