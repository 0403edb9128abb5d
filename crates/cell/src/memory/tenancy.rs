//! The reservation of a top-level tenant in its cell's memory.

use super::parts::{Left, ranges_of};
use super::places::Place;
use super::state::{CellMemory, End, Tenancy, with};
use crate::mappings::Mappings;
use crate::meter::Held;
use crate::start_error::StartError;
use crate::steps::caps;
use leasehold_lease::{ByteSize, Memory, MemoryKind, SharedPages};
use leasehold_pager::{Account, Beginning, CLUSTER, Contract, Counts, Ending, Kind, PAGE};
use leasehold_pager_linux::{Error, Limits, Paging};
use leasehold_reclaim::GroupId;

/// Steps that the kernel may refuse in a row before what is left is put aside.
const PATIENCE: u32 = 4;

/// Resident pages whose addresses are freed in one step, or up to a page table more.
const STEP: u32 = 64;

/// Places in the swap file that a tenant with this limit may come to need: a memory that grows is
/// given places ahead, a quarter more than it has, and what is written out is so in clusters.
fn places(limit: u32) -> u32 {
    let more = limit / 4 + CLUSTER as u32;
    limit.saturating_add(more)
}

/// Bytes of swap file that a tenant with this limit is promised.
pub fn swap_for(limit: ByteSize) -> u64 {
    let pages = u32::try_from(limit.get().div_ceil(PAGE)).unwrap_or(u32::MAX);
    u64::from(places(pages)) * PAGE
}

/// How a tenant uses its memory reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryUse {
    /// Bytes of linear memory that its programs, and those of its descendants, have.
    pub linear_bytes: u64,
    /// The limit on its linear memory, bytes.
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

/// Promises a tenant its reservation of the cell's memory, if the cell holds any for it. It gets its frames in
/// [steps](reserve_step).
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
        memory.retry();
        // Without paging, its frames are the anonymous pages of its slots: those of the ballast until
        // it has grown to them.
        let mut mappings = None;
        let reserved = match (lease.paging, limit) {
            (Some(paging), Some(limit)) => {
                let most = u64::from(paging.mappings) + u64::from(Limits::SPARE);
                mappings = Some(Mappings::claim(most).map_err(refused)?);
                let limits = Limits {
                    mappings: paging.mappings,
                    places: places(limit),
                };
                memory.paging.promise(&contract, Some(limits))
            }
            _ => memory.paging.promise(&contract, None),
        };
        let reservation = reserved.map_err(refused)?;
        let tenancy = Tenancy {
            reservation,
            frames,
            limit,
            sharing: lease
                .paging
                .map_or(SharedPages::None, |paging| paging.shared),
            shared: Vec::new(),
            regions: Vec::new(),
            prepared: None,
            kept: Vec::new(),
            mappings,
            lent: 0,
            end: End::Shown,
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

/// Gives a tenant more of the frames that it was promised: those that others have borrowed have to be written
/// out. Returns true when it has all of them.
///
/// # Errors
/// When a page of a borrower cannot be written out.
pub(crate) fn reserve_step(root: GroupId) -> Result<bool, String> {
    let step = with(|memory| {
        let Some(tenancy) = memory.tenancies.get(&root) else {
            return Ok(Beginning::Done);
        };
        let most = caps::RESERVED.most as u32;
        memory.paging.reserve_step(tenancy.reservation, most)
    });
    match step {
        None | Some(Ok(Beginning::Done)) => Ok(true),
        Some(Ok(Beginning::More)) => Ok(false),
        Some(Err(error)) => Err(error.to_string()),
    }
}

/// The class that a page of linear memory of this top-level tenant is charged as.
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

/// Takes the reservation of an ending tenant out of the cell: nothing more is made in it, and the
/// caller takes it back.
pub(crate) fn end(root: GroupId) -> Option<Tenancy> {
    with(|memory| {
        let tenancy = memory.tenancies.remove(&root)?;
        for &(area, _) in &tenancy.shared {
            // Its use until now counts in the rule for the remaining sharers.
            let _ = memory.paging.observe(area);
        }
        memory.regions.end(&memory.paging, root);
        Some(tenancy)
    })
    .flatten()
}

/// The linear memories of a top-level tenant have grown by so many bytes: what of them is in its
/// reservation is no longer held for it, but the tenant's to touch.
pub(crate) fn lend(root: GroupId, bytes: u64) {
    change_lent(root, |tenancy, paging| {
        let pages = u32::try_from(bytes.div_ceil(PAGE)).unwrap_or(u32::MAX);
        let more = pages.min(tenancy.frames - tenancy.lent);
        tenancy.lent += more;
        paging.lend(more);
    });
}

/// They have become smaller: the cell holds so much for the tenant again.
pub(crate) fn restore(root: GroupId, bytes: u64) {
    change_lent(root, |tenancy, paging| {
        let pages = u32::try_from(bytes.div_ceil(PAGE)).unwrap_or(u32::MAX);
        let less = pages.min(tenancy.lent);
        tenancy.lent -= less;
        paging.restore(less);
    });
}

fn change_lent(root: GroupId, change: impl FnOnce(&mut Tenancy, &Paging)) {
    with(|memory| {
        let CellMemory {
            tenancies, paging, ..
        } = memory;
        if let Some(tenancy) = tenancies.get_mut(&root)
            && tenancy.limit.is_none()
        {
            change(tenancy, paging);
        }
    });
}

impl Tenancy {
    /// Takes over the addresses of memories whose programs have gone.
    pub(crate) fn take_over(&mut self, left: &mut Vec<Left>) {
        self.kept.extend(ranges_of(left));
    }

    /// Makes some of its linear memories inaccessible: at most 4 pieces and [`STEP`] resident
    /// pages. Returns true when their addresses are free, or when the kernel refuses repeatedly:
    /// the addresses then stay unused until it accepts.
    pub(crate) fn retire_step(&mut self) -> bool {
        if self.limit.is_none() {
            return true;
        }
        let (reservation, before) = (self.reservation, self.end);
        let step = with(|memory| memory.paging.retire_step(reservation, STEP));
        self.end = match (step, before) {
            (_, End::Retired | End::Done) | (None, _) => return true,
            (Some(Ok(Ending::More)), _) => End::Shown,
            (Some(Ok(Ending::Done) | Err(Error::Refused(_))), _) => {
                with(|memory| self.give_ranges_back(memory));
                End::Retired
            }
            (Some(Err(error)), End::Refused(times)) => {
                tracing::warn!(%error, times, "the memory of a tenant that ended is still mapped");
                End::Refused(times + 1)
            }
            (Some(Err(_)), End::Shown) => End::Refused(1),
        };
        match self.end {
            End::Shown => false,
            End::Refused(times) => times >= PATIENCE,
            End::Retired | End::Done => true,
        }
    }

    /// Gives back its addresses, at which nothing is mapped.
    fn give_ranges_back(&mut self, memory: &mut CellMemory) {
        let prepared = self.prepared.take().map(|prepared| prepared.range);
        for place in self.regions.drain(..) {
            place.forget(&memory.paging);
        }
        for range in self.kept.drain(..).chain(prepared) {
            memory.ranges.give_back(range, &memory.paging);
        }
    }

    /// Takes back at most `pages` pages; returns whether there is nothing more to do. Then it is to be
    /// [finished](Self::finish).
    pub(crate) fn step(&mut self, pages: u32) -> bool {
        if matches!(self.end, End::Refused(times) if times >= PATIENCE) {
            return true;
        }
        let reservation = self.reservation;
        let step = with(|memory| memory.paging.end_step(reservation, pages));
        let refused = match (step, self.end) {
            (Some(Ok(Ending::More)), end) => {
                self.end = if end == End::Shown { end } else { End::Retired };
                return false;
            }
            (Some(Ok(Ending::Done) | Err(Error::Refused(_))) | None, _) => {
                self.end = End::Done;
                with(|memory| memory.paging.restore(self.lent));
                return true;
            }
            (Some(Err(_)), End::Refused(times)) => times + 1,
            (Some(Err(error)), _) => {
                tracing::warn!(%error, "the memory of a tenant that ended is not taken back yet");
                1
            }
        };
        self.end = End::Refused(refused);
        refused >= PATIENCE
    }

    /// Returns the memory to the cell. What the kernel refuses to unmap is put aside, and tried
    /// again.
    pub(crate) fn finish(self) {
        if self.end != End::Done {
            with(|memory| memory.aside.push(self));
        }
    }

    /// Takes all of it back, of a tenant that never ran.
    pub(crate) fn give_back(mut self) {
        while !self.retire_step() {}
        while !self.step(u32::MAX) {}
        self.finish();
    }
}

impl CellMemory {
    /// Retries one step of a tenancy that was put aside because the kernel refused; returns true if
    /// it took one.
    pub(super) fn retry(&mut self) -> bool {
        let Some(mut tenancy) = self.aside.pop() else {
            return false;
        };
        let stepped = self.retry_one(&mut tenancy);
        if !matches!(stepped, Ok(Ending::Done)) {
            self.aside.push(tenancy);
        }
        stepped.is_ok()
    }

    fn retry_one(&mut self, tenancy: &mut Tenancy) -> Result<Ending, Error> {
        let reservation = tenancy.reservation;
        if self.paging.retire_step(reservation, STEP)? == Ending::More {
            return Ok(Ending::More);
        }
        tenancy.give_ranges_back(self);
        let ending = self.paging.end_step(reservation, STEP)?;
        if ending == Ending::Done {
            self.paging.restore(tenancy.lent);
        }
        Ok(ending)
    }
}

fn refused(error: impl std::fmt::Display) -> StartError {
    StartError::Memory(error.to_string())
}
