//! The memory of one cell, and of its tenants.

use super::areas::Shared;
use super::attaching::Attaching;
use super::parts::{Left, Prepared};
use super::places::{Place, Regions};
use super::ranges::{Range, Ranges};
use crate::mappings::Mappings;
use leasehold_lease::SharedPages;
use leasehold_pager::{AreaId, AttachmentId, ReservationId};
use leasehold_pager_linux::Paging;
use leasehold_reclaim::GroupId;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// The memory of one cell.
pub(super) struct CellMemory {
    /// Before the ranges, whose addresses it uses until it is dropped.
    pub(super) paging: Paging,
    pub(super) for_all: bool,
    pub(super) ranges: Ranges,
    /// By the group of the top-level tenant.
    pub(super) tenancies: BTreeMap<GroupId, Tenancy>,
    /// Memories of dropped programs that are not claimed yet.
    pub(super) left: Vec<Left>,
    pub(super) shared: Shared,
    pub(super) regions: Regions,
    /// Ended tenancies whose memory the kernel refused to unmap.
    pub(super) aside: Vec<Tenancy>,
}

/// A tenant's part of the cell's memory.
#[derive(Debug)]
pub(crate) struct Tenancy {
    pub(super) reservation: ReservationId,
    pub(super) frames: u32,
    /// Pages that its linear memories may grow to, if it pages.
    pub(super) limit: Option<u32>,
    /// How it keeps pages that it shares.
    pub(super) sharing: SharedPages,
    /// The areas that it shares.
    pub(super) shared: Vec<(AreaId, AttachmentId)>,
    /// Where regions are in its memories, or were.
    pub(super) regions: Vec<Place>,
    /// The image of its program, where its memory will be made.
    pub(super) prepared: Option<Prepared>,
    /// Addresses of memories that could not be detached before it ends, and then of all of them.
    pub(super) kept: Vec<Range>,
    /// The kernel mappings that it may cause; `None` if it does not page.
    #[expect(dead_code, reason = "held to be dropped")]
    pub(super) mappings: Option<Mappings>,
    /// Frames of the cell's that its linear memories have, if it does not page.
    pub(super) lent: u32,
    pub(super) end: End,
}

/// How far the end of a tenancy has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum End {
    /// Its addresses are still to be freed.
    #[default]
    Shown,
    /// The kernel has refused so many steps in a row.
    Refused(u32),
    /// Its addresses are free.
    Retired,
    /// Nothing is left.
    Done,
}

impl CellMemory {
    /// What attaches areas to the addresses of linear memories.
    pub(super) fn attaching(&self) -> Attaching<'_> {
        Attaching::new(&self.paging, &self.ranges)
    }
}

thread_local! {
    pub(super) static MEMORY: RefCell<Option<CellMemory>> = const { RefCell::new(None) };
}

/// Runs `f` on the memory of this thread's cell, if it holds any. `f` must not touch guest memory:
/// serving a fault would need the same state.
pub(super) fn with<R>(f: impl FnOnce(&mut CellMemory) -> R) -> Option<R> {
    MEMORY.with(|cell| cell.borrow_mut().as_mut().map(f))
}
