//! Mapped regions: memory through which tenants communicate without a copy.
//!
//! 1. *It belongs to its creator.* The tenant that creates a region has it in its memory, and its
//!    reservation keeps a frame for each page ([pinned](leasehold_pager_linux::Paging::pin_step)). The pages stay in
//!    memory as long as the creator has them, so that no tenant waits for a disk because of them.
//! 2. *A tenant that maps it sets frames aside.* For every other tenant the pages are foreign, and
//!    each of them conserves one of its own frames (SPC §IV-A). When its reservation is used up,
//!    the tenant loses its view of a page, and maps the page again when it touches it.
//! 3. *A mapping is a use of a capability*, and checked as often as it can be used: whenever its
//!    tenant is about to run ([`withdraw`]). One that was made with several is there as long as one is valid. A
//!    mapping that is no longer allowed, because the creator has ended, the region was dropped or the capability revoked, is removed first. The
//!    removal is charged to the tenant with the mapping. The cost of a creator's end is therefore
//!    independent of the number of tenants that map its regions.
//! 4. *Zeros take its place*: the tenant's own pages, which it was charged for when it mapped the
//!    region, in the frames that were set aside. The contents of the region are never visible
//!    again. The end of a creator does not end the other tenants. The place can be [used
//!    again](replace) for another region.

use super::growth;
use super::paged::{Detached, PagedMemory};
use super::places::{Allowed, Created, PLACES, Place, Request, Shown};
use super::state::{CellMemory, with};
use leasehold_kernel::RegionId;
use leasehold_pager::{AreaId, AttachmentId, Ending, Refused, ReservationId, Sharing};
use leasehold_pager_linux::Error;
use leasehold_reclaim::GroupId;

/// Places for regions that the memories of a top-level tenant and its descendants have at the most:
/// each is looked at before the tenant runs.
const MOST: usize = 16;

/// Pages that are pinned or removed between two checks for preemption.
const STEP: u32 = 32;

/// Why a region was not mapped.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// Its creator has dropped it or ended.
    Gone,
    /// Another memory of the same top-level tenant has it, or it was to be where another region is.
    Busy,
    /// The tenant has as many places as it may.
    TooMany,
    /// The requested place never had a region of as many pages.
    NoPlace,
    /// The reservation is too small, or there is no room in the swap file.
    Memory,
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        match error {
            Error::Refused(Refused::Attached) => Refusal::Busy,
            Error::Refused(Refused::Stale) => Refusal::Gone,
            error => {
                tracing::debug!(%error, "a region is not mapped");
                Refusal::Memory
            }
        }
    }
}

/// Whether any tenant of the cell has mapped a region. A nanosecond.
pub(crate) fn is_any_mapped() -> bool {
    PLACES.get() > 0
}

/// Where a region is in the linear memory of a top-level tenant's that starts at `memory`, if it is
/// there: from now on because of the capability of this request, too, if that allows as much.
///
/// # Errors
/// [`Refusal::TooMany`] if it is not, and the tenant has no place for another one; or if it is, because of as many other
/// capabilities as it can be.
pub(crate) fn find(
    root: GroupId,
    memory: usize,
    request: &Request,
    allowed: Allowed<'_>,
) -> Result<Option<usize>, Refusal> {
    let found = with(|cell| {
        let places = &mut cell.tenancies.get_mut(&root)?.regions;
        let many = places.len() >= MOST;
        for place in places.iter_mut().filter(|place| place.memory == memory) {
            if let Shown::Region(here, _) = &mut place.shown
                && here.region == request.region
            {
                return Some(match here.stand_on(request, allowed) {
                    true => Ok(Some(place.offset)),
                    false => Err(Refusal::TooMany),
                });
            }
        }
        Some(if many {
            Err(Refusal::TooMany)
        } else {
            Ok(None)
        })
    });
    found.flatten().unwrap_or(Ok(None))
}

/// Makes `grow` grow the memory of a new region's creator by the region; returns the offset. `None`
/// if `grow` grew no paging memory.
pub(crate) fn create(request: Request, grow: &mut dyn FnMut()) -> Option<Result<usize, Refusal>> {
    grow_by(request, CellMemory::create_region, grow)
}

/// The same for an existing region.
pub(crate) fn map(request: Request, grow: &mut dyn FnMut()) -> Option<Result<usize, Refusal>> {
    grow_by(request, CellMemory::attach_region, grow)
}

/// A function that attaches a region at an address in the memory of a top-level tenant.
type Attach = fn(&mut CellMemory, GroupId, *mut u8, &Request) -> Result<AttachmentId, Error>;

fn grow_by(
    request: Request,
    attach: Attach,
    grow: &mut dyn FnMut(),
) -> Option<Result<usize, Refusal>> {
    let show = move |cell: &mut CellMemory, memory: &mut PagedMemory, bytes| {
        cell.grow_by_region(memory, &request, bytes, attach)
    };
    let offset = growth::by(show, grow);
    offset.map(|offset| offset.map_err(Refusal::from))
}

/// Continues to pin a new region; returns true when all of it is pinned.
///
/// # Errors
/// Why it cannot be.
pub(crate) fn pin_step(region: RegionId) -> Result<bool, Refusal> {
    let pinned = with(|cell| {
        let created = cell.regions.get(region).ok_or(Refused::Stale)?;
        cell.paging.pin_step(created.at, STEP)
    });
    Ok(pinned.unwrap_or(Err(Refused::Stale.into()))? == Ending::Done)
}

/// Schedules the mapping of a region in place of another one, at this offset of a memory, before
/// the tenant runs again ([`withdraw`]). [`find`] tells whether it succeeded.
///
/// # Errors
/// Why it cannot be; nothing has changed.
pub(crate) fn replace(
    root: GroupId,
    (memory, offset): (usize, usize),
    request: Request,
) -> Result<(), Refusal> {
    let replaced = with(|cell| {
        let places = &mut cell.tenancies.get_mut(&root).ok_or(Refusal::Gone)?.regions;
        if places.iter().any(|place| place.shows(request.region)) {
            return Err(Refusal::Busy);
        }
        let mut here = places.iter_mut();
        let here = here.find(|here| (here.memory, here.offset) == (memory, offset));
        let here = here.filter(|here| here.pages == request.pages());
        let here = here.ok_or(Refusal::NoPlace)?;
        let Shown::Zeros = here.shown else {
            return Err(Refusal::Busy);
        };
        here.shown = Shown::Nothing(Some(request), None);
        Ok(())
    });
    replaced.unwrap_or(Err(Refusal::NoPlace))
}

/// Takes a step towards unmapping the regions that a top-level tenant may no longer access, as
/// `allowed` decides. Returns true if none is left.
///
/// # Errors
/// When no zeros can take the place of a region: the tenant must then not run.
pub(crate) fn withdraw(root: GroupId, allowed: Allowed<'_>) -> Result<bool, String> {
    let withdrawn = with(|cell| cell.withdraw(root, allowed)).unwrap_or(Ok(true));
    withdrawn.map_err(|error| format!("zeros in place of a region that has gone: {error}"))
}

impl CellMemory {
    /// Grows a memory to `bytes` bytes, of which the first new ones are those of a region, or changes
    /// nothing.
    fn grow_by_region(
        &mut self,
        memory: &mut PagedMemory,
        request: &Request,
        bytes: usize,
        attach: Attach,
    ) -> Result<usize, Error> {
        self.seal(memory)?;
        let (root, pages) = (memory.root(), request.pages());
        let (start, offset) = memory.end();
        let rest = self.attach_behind(memory, pages, bytes)?;
        let zeros = self.zeros(root, pages);
        let attached = zeros.and_then(|zeros| match attach(self, root, start, request) {
            Ok(at) => Ok((at, zeros)),
            Err(error) => {
                // They have no attachment, so that this cannot fail.
                let _ = self.paging.discard_area(zeros);
                Err(error)
            }
        });
        let (at, zeros) = match attached {
            Ok(attached) => attached,
            Err(error) => {
                if let Some(rest) = rest {
                    self.undo(&rest);
                }
                return Err(error);
            }
        };
        memory.append(rest, bytes);
        if let Some(tenancy) = self.tenancies.get_mut(&root) {
            tenancy.regions.push(Place {
                memory: start as usize - offset,
                offset,
                pages,
                at,
                shown: Shown::Region(request.mapped(), zeros),
            });
            PLACES.set(PLACES.get() + 1);
        }
        Ok(offset)
    }

    /// Attaches a region at addresses of a tenant's where nothing is.
    fn attach_region(
        &mut self,
        root: GroupId,
        start: *mut u8,
        request: &Request,
    ) -> Result<AttachmentId, Error> {
        let to = self.reservation_of(root)?;
        let created = self.regions.get(request.region).ok_or(Refused::Stale)?;
        let attaching = self.attaching();
        match request.writable {
            true => attaching.writable(to, created.area, start, request.pages()),
            false => attaching.read_only(to, created.area, start),
        }
    }

    /// Makes the area of a region, in the memory of its creator, whose reservation must be large
    /// enough to keep all of it.
    fn create_region(
        &mut self,
        root: GroupId,
        start: *mut u8,
        request: &Request,
    ) -> Result<AttachmentId, Error> {
        let (to, pages) = (self.reservation_of(root)?, request.pages());
        let area = self.paging.create_resident_area(pages, Sharing::Conserve)?;
        let at = match self.attaching().writable(to, area, start, pages) {
            Ok(at) => at,
            Err(error) => {
                // It has no attachment, so that this cannot fail.
                let _ = self.paging.discard_area(area);
                return Err(error);
            }
        };
        // Finds out whether it fits, and maps nothing yet.
        if let Err(error) = self.paging.pin_step(at, 0) {
            // No other tenant has it, so that this frees it.
            self.paging.detach(at)?;
            return Err(error);
        }
        let home = root;
        let created = Created { area, home, at };
        self.regions.add(request.region, created);
        Ok(at)
    }

    /// Makes the zeros that a tenant has in place of a region of so many pages.
    fn zeros(&self, root: GroupId, pages: u32) -> Result<AreaId, Error> {
        let owner = self.reservation_of(root)?;
        self.paging.create_area_for(owner, pages, Sharing::Conserve)
    }

    fn reservation_of(&self, root: GroupId) -> Result<ReservationId, Error> {
        let tenancy = self.tenancies.get(&root).ok_or(Refused::Stale)?;
        Ok(tenancy.reservation)
    }

    fn withdraw(&mut self, root: GroupId, allowed: Allowed<'_>) -> Result<bool, Error> {
        let Some(tenancy) = self.tenancies.get(&root) else {
            return Ok(true);
        };
        let stays = |place: &Place| match &place.shown {
            Shown::Region(here, _) => here.is_allowed(&self.regions, allowed),
            Shown::Nothing(..) => false,
            Shown::Zeros => true,
        };
        let Some(index) = tenancy.regions.iter().position(|place| !stays(place)) else {
            return Ok(true);
        };
        let place = &tenancy.regions[index];
        let (at, start, pages) = (place.at, place.start(), place.pages);
        let (next, zeros) = match place.shown {
            Shown::Region(here, zeros) => {
                self.regions.leave_home(&self.paging, here.region, at);
                (None, Some(zeros))
            }
            Shown::Nothing(next, zeros) => (next, zeros),
            Shown::Zeros => return Ok(true),
        };
        let shown = match self.paging.detach_step(at, STEP)? {
            Ending::More => (at, Shown::Nothing(next, zeros)),
            Ending::Done => self.show(root, start, pages, (next, zeros), allowed)?,
        };
        if let Some(tenancy) = self.tenancies.get_mut(&root) {
            let place = &mut tenancy.regions[index];
            (place.at, place.shown) = shown;
        }
        Ok(false)
    }

    /// Attaches what is next at a place where nothing is.
    fn show(
        &mut self,
        root: GroupId,
        start: *mut u8,
        pages: u32,
        (next, zeros): (Option<Request>, Option<AreaId>),
        allowed: Allowed<'_>,
    ) -> Result<(AttachmentId, Shown), Error> {
        let zeros = match zeros {
            Some(zeros) => zeros,
            None => self.zeros(root, pages)?,
        };
        let next = next.filter(|next| next.mapped().is_allowed(&self.regions, allowed));
        if let Some(next) = next
            && let Ok(at) = self.attach_region(root, start, &next)
        {
            return Ok((at, Shown::Region(next.mapped(), zeros)));
        }
        let to = self.reservation_of(root)?;
        let at = self.attaching().writable(to, zeros, start, pages)?;
        Ok((at, Shown::Zeros))
    }

    /// Goes on taking what is in place of regions from a memory whose program has gone; `None` if
    /// there is nothing.
    pub(super) fn leave_region(
        &mut self,
        root: GroupId,
        memory: usize,
        pages: u32,
    ) -> Option<Detached> {
        let places = &self.tenancies.get(&root)?.regions;
        let index = places.iter().position(|place| place.memory == memory)?;
        let at = places[index].at;
        if let Shown::Region(here, _) = places[index].shown {
            self.regions.leave_home(&self.paging, here.region, at);
        }
        let detached = self.detach_attachment(at, pages);
        if detached == Detached::Done
            && let Some(tenancy) = self.tenancies.get_mut(&root)
        {
            let gone = tenancy.regions.swap_remove(index);
            gone.forget(&self.paging);
        }
        Some(detached)
    }
}
