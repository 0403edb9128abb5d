//! The reservation of a top-level tenant in its cell's memory.

use super::paged::Prepared;
use super::ranges::Range;
use super::region::Place;
use super::{refused, with};
use crate::cell::StartError;
use crate::meter::Held;
use leasehold_lease::{Memory, MemoryKind, SharedPages};
use leasehold_pager::{
    Account, AreaId, AttachmentId, Contract, Counts, Ending, Kind, PAGE, ReservationId,
};
use leasehold_reclaim::GroupId;

/// A tenant's part of the cell's memory.
#[derive(Debug)]
pub(crate) struct Tenancy {
    pub(super) reservation: ReservationId,
    frames: u32,
    /// Pages that its linear memories may grow to, if it pages.
    pub(super) limit: Option<u32>,
    /// Pages of the areas that it has.
    pub(super) placed: u32,
    /// How it keeps pages that it shares.
    pub(super) sharing: SharedPages,
    /// The areas that it shares.
    pub(super) shared: Vec<(AreaId, AttachmentId)>,
    /// Where regions are in its memories, or were.
    pub(super) regions: Vec<Place>,
    /// The image of its program, where its memory will be made.
    pub(super) prepared: Option<Prepared>,
    /// Addresses of memories that could not be detached before it ends.
    pub(super) kept: Vec<Range>,
}

/// How a tenant uses its memory reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryUse {
    /// Bytes of linear memory that its programs, and those of its descendants, have.
    pub linear_bytes: u64,
    /// What its linear memory may grow to, bytes.
    pub limit_bytes: u64,
    /// Where the frames of its reservation are, and what paging did so far; `None` if it does not
    /// page.
    pub paging: Option<(Account, Counts)>,
    /// Bytes of its memory that it has in common with other tenants, or may have, and that are in
    /// frames: they are owned, conserved for, or locked.
    pub shared_bytes: u64,
    /// Bytes of its memory of which the swap file has a copy.
    pub swapped_bytes: u64,
}

/// The same, of a tenant that pages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PagedUse {
    pub(crate) account: Account,
    pub(crate) counts: Counts,
    pub(crate) shared_bytes: u64,
    pub(crate) swapped_bytes: u64,
}

/// Takes a tenant's reservation out of the cell's memory, if the cell holds any for it.
///
/// # Errors
/// When less is left, or the lease lets the tenant page and the cell cannot.
pub(crate) fn admit(root: GroupId, lease: &Memory) -> Result<(), StartError> {
    let admitted = with(|memory| {
        if lease.paging.is_none() && !memory.for_all {
            return Ok(());
        }
        if lease.paging.is_some() && lease.reserve < Memory::MIN_PAGING_RESERVE {
            let least = Memory::MIN_PAGING_RESERVE;
            return Err(refused(format_args!(
                "a tenant that pages reserves at least {least}"
            )));
        }
        let pages = |bytes: u64| u32::try_from(bytes.div_ceil(PAGE)).map_err(refused);
        let frames = pages(lease.reserve.get())?;
        let limit = lease.paging.map(|paging| pages(paging.limit.get()));
        let limit = limit.transpose()?;
        let contract = Contract {
            frames,
            kind: match lease.paging.map(|paging| paging.kind) {
                Some(MemoryKind::Firm) => Kind::Firm,
                Some(MemoryKind::Hard) | None => Kind::Hard,
            },
            // The cell bounds what is attached, the swap file what has a place in it.
            swap: limit.map_or(0, |_| u32::MAX - frames),
        };
        let reservation = memory.paging.reserve(&contract).map_err(refused)?;
        if limit.is_none() {
            // Its frames are the anonymous pages of its slots.
            memory.paging.lend(frames);
        }
        let tenancy = Tenancy {
            reservation,
            frames,
            limit,
            placed: 0,
            sharing: lease
                .paging
                .map_or(SharedPages::None, |paging| paging.shared),
            shared: Vec::new(),
            regions: Vec::new(),
            prepared: None,
            kept: Vec::new(),
        };
        memory.tenancies.insert(root, tenancy);
        Ok(())
    });
    match admitted {
        Some(admitted) => admitted,
        None if lease.paging.is_some() => Err(refused("the cell holds no memory to page in")),
        None => Ok(()),
    }
}

/// What a page of linear memory of this top-level tenant is charged as.
pub(crate) fn page_class(root: GroupId) -> Held {
    let pages = with(|memory| memory.tenancies.get(&root)?.limit).flatten();
    pages.map_or(Held::MemoryPage, |_| Held::PagedPage)
}

/// How a tenant that pages uses its memory; `None` if it does not page.
pub(crate) fn usage(root: GroupId) -> Option<PagedUse> {
    with(|memory| {
        let tenancy = memory.tenancies.get(&root)?;
        tenancy.limit?;
        let paging = &memory.paging;
        let regions = tenancy.regions.iter().filter_map(Place::shared);
        let shared = tenancy.shared.iter().map(|&(_, at)| at).chain(regions);
        let shared = shared.map(|at| u64::from(paging.mapped(at).unwrap_or(0)));
        Some(PagedUse {
            account: paging.account(tenancy.reservation).ok()?,
            counts: paging.counts(tenancy.reservation).ok()?,
            shared_bytes: shared.sum::<u64>() * PAGE,
            swapped_bytes: u64::from(paging.swapped(tenancy.reservation)) * PAGE,
        })
    })
    .flatten()
}

/// The tenant ends: nothing more is made in its reservation, which is the caller's to take back.
pub(crate) fn end(root: GroupId) -> Option<Tenancy> {
    with(|memory| {
        let tenancy = memory.tenancies.remove(&root)?;
        for &(area, _) in &tenancy.shared {
            // How it was used until now counts for those who go on.
            let _ = memory.paging.observe(area);
        }
        memory.regions.end(&memory.paging, root);
        Some(tenancy)
    })
    .flatten()
}

impl Tenancy {
    /// Makes all its linear memories inaccessible; the caller gives their ranges back. The time
    /// does not depend on what is in them.
    pub(crate) fn retire(&mut self) {
        if self.limit.is_none() {
            return;
        }
        let prepared = self.prepared.take().map(|prepared| prepared.range);
        let kept = std::mem::take(&mut self.kept);
        let regions = std::mem::take(&mut self.regions);
        let retired = with(|memory| {
            let retired = memory.paging.retire(self.reservation);
            for place in regions {
                place.forget(&memory.paging);
            }
            for range in kept.into_iter().chain(prepared) {
                memory.ranges.give_back(range);
            }
            retired
        });
        if let Some(Err(error)) = retired {
            tracing::error!(%error, "the memory of a tenant that ended could not be detached");
        }
    }

    /// Takes back at most `pages` pages; returns whether that was all. Then the reservation is the
    /// cell's again.
    pub(crate) fn step(&mut self, pages: u32) -> bool {
        let done = with(|memory| {
            let ending = memory.paging.end_step(self.reservation, pages);
            if matches!(ending, Ok(Ending::More)) {
                return false;
            }
            if let Err(error) = ending {
                tracing::error!(%error, "a memory reservation could not be taken back");
            }
            if self.limit.is_none() {
                memory.paging.restore(self.frames);
            }
            true
        });
        done.unwrap_or(true)
    }

    /// Takes all of it back, of a tenant that never ran.
    pub(crate) fn give_back(mut self) {
        self.retire();
        while !self.step(u32::MAX) {}
    }
}
