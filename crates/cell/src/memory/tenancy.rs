//! The reservation of a top-level tenant in its cell's memory.

use super::{refused, with};
use crate::cell::StartError;
use crate::meter::Held;
use leasehold_lease::{Memory, MemoryKind};
use leasehold_pager::{Account, Contract, Counts, Ending, Kind, PAGE, ReservationId};
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

/// What a tenant that pages did so far; `None` if it does not.
pub(crate) fn usage(root: GroupId) -> Option<(Account, Counts)> {
    with(|memory| {
        let tenancy = memory.tenancies.get(&root)?;
        tenancy.limit?;
        let account = memory.paging.account(tenancy.reservation).ok()?;
        Some((account, memory.paging.counts(tenancy.reservation).ok()?))
    })
    .flatten()
}

/// The tenant ends: nothing more is made in its reservation, which is the caller's to take back.
pub(crate) fn end(root: GroupId) -> Option<Tenancy> {
    with(|memory| memory.tenancies.remove(&root)).flatten()
}

impl Tenancy {
    /// Makes all its linear memories inaccessible; the caller gives their ranges back. The time
    /// does not depend on what is in them.
    pub(crate) fn retire(&self) {
        if self.limit.is_none() {
            return;
        }
        let retired = with(|memory| memory.paging.retire(self.reservation));
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
