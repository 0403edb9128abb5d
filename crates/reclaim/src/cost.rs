//! The cost model of reclamation on a host, and the configuration of a cell's groups.

/// The page size that costs and discards are counted in, in bytes.
pub const PAGE: usize = 4096;

/// The cost of taking back each thing that this crate hands out, in picoseconds.
///
/// The numbers come from calibration on the host that runs the groups (with its quantile and
/// margin already applied); this crate only adds them up. Costs of object and resource classes
/// are given when the classes are registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CostModel {
    /// Ending a root group: the fixed part, margin included.
    pub root_ps: u64,
    /// Ending one child group.
    pub group_ps: u64,
    /// Severing one scrub entry.
    pub scrub_ps: u64,
    /// One chunk grant: splicing the chunk back, and the partly used page at its end.
    pub chunk_ps: u64,
    /// Giving one 4 KiB page of byte extents or scrub entries back.
    pub page_ps: u64,
}

/// How groups take their memory back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Objects live in the arena of their root group and go with it as a whole (BRR §III).
    Grouped,
    /// Objects of all groups share one slab and are taken back one by one: the baseline of BRR
    /// fig. 7 and fig. 8. Creating an object is not charged.
    Individual,
}

/// The set-up of a [`Groups`](crate::Groups).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Address range of one root group's arena in bytes (in [`Mode::Individual`]: of the shared
    /// slab). Rounded up to pages and clamped to 64 KiB ..= 2 GiB.
    pub arena_bytes: usize,
    /// How many bytes of an arena may stay resident for the next root group. An arena that grew
    /// beyond is switched for a clean one, and its pages are given back afterwards.
    pub keep_resident: usize,
    /// How memory is taken back.
    pub mode: Mode,
    /// Most groups, roots and children, that may exist at once; at most 2^20 - 1. The record
    /// table is allocated for all of them at start, so that opening a group never allocates.
    pub max_groups: u32,
}

pub(crate) const ARENA_MIN: usize = 64 << 10;
pub(crate) const ARENA_MAX: usize = 2 << 30;

impl Config {
    pub(crate) fn arena_size(&self) -> usize {
        self.arena_bytes
            .clamp(ARENA_MIN, ARENA_MAX)
            .next_multiple_of(PAGE)
    }
}
