//! Where regions are in linear memories, or were.

use super::grants::Grants;
use leasehold_kernel::{RegionId, RegionMapping, Selector, TenantId};
use leasehold_pager::{AreaId, AttachmentId, PAGE};
use leasehold_pager_linux::Paging;
use leasehold_reclaim::GroupId;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

thread_local! {
    /// The number of places in the memories of the cell: without any, no check is needed.
    pub(super) static PLACES: Cell<usize> = const { Cell::new(0) };
}

/// Returns the region that a capability allows to map, if any.
pub(super) type Allowed<'a> = &'a dyn Fn(TenantId, Selector) -> Option<RegionMapping>;

/// The regions of a cell whose creators have them.
#[derive(Debug, Default)]
pub(super) struct Regions {
    created: BTreeMap<RegionId, Created>,
    /// By the top-level groups of their creators, whose ends abandon them.
    by_home: BTreeMap<GroupId, BTreeSet<RegionId>>,
}

#[derive(Debug)]
pub(super) struct Created {
    pub(super) area: AreaId,
    /// The top-level group of its creator, and where it has it.
    pub(super) home: GroupId,
    pub(super) at: AttachmentId,
}

/// A request to map a region.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    pub(crate) region: RegionId,
    /// Bytes.
    pub(crate) length: u64,
    /// The capability that allows it, and whether to write.
    pub(crate) by: (TenantId, Selector),
    pub(crate) writable: bool,
}

/// A region that is mapped.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mapped {
    pub(super) region: RegionId,
    pub(super) writable: bool,
    pub(super) grants: Grants,
}

/// A place in a linear memory where a region is, or was.
#[derive(Debug)]
pub(super) struct Place {
    /// Where the memory starts, and where the place does in it.
    pub(super) memory: usize,
    pub(super) offset: usize,
    pub(super) pages: u32,
    /// The contents of the place.
    pub(super) at: AttachmentId,
    pub(super) shown: Shown,
}

/// The contents of a place.
#[derive(Debug, Clone, Copy)]
pub(super) enum Shown {
    /// This region, and afterwards these zeros.
    Region(Mapped, AreaId),
    /// The old contents are being removed. The region follows if it may still be mapped, otherwise
    /// the zeros. If there are no zeros yet, they are made in the swap places of the removed pages.
    Nothing(Option<Request>, Option<AreaId>),
    /// Zeros, which are the program's to write to.
    Zeros,
}

impl Request {
    pub(super) fn pages(&self) -> u32 {
        self.length.div_ceil(PAGE) as u32
    }

    /// What is mapped by this request.
    pub(super) fn mapped(&self) -> Mapped {
        Mapped {
            region: self.region,
            writable: self.writable,
            grants: Grants::new(self.by),
        }
    }
}

impl Mapped {
    /// Whether a capability allows as much.
    fn is_within(&self, mapping: &RegionMapping) -> bool {
        mapping.region == self.region && (mapping.writable || !self.writable)
    }

    /// Whether one of its capabilities allows it still.
    pub(super) fn is_allowed(&self, regions: &Regions, allowed: Allowed<'_>) -> bool {
        // Without its creator's memory the region cannot be mapped, even with a valid capability.
        regions.created.contains_key(&self.region)
            && self.grants.any(allowed, |mapping| self.is_within(mapping))
    }

    /// Stands on the capability of a request, too, if that allows as much. Returns false if it stands on as many as
    /// it can.
    pub(super) fn stand_on(&mut self, request: &Request, allowed: Allowed<'_>) -> bool {
        if self.writable && !request.writable {
            return true;
        }
        let this = *self;
        let is_within = |mapping: &RegionMapping| this.is_within(mapping);
        self.grants.add(request.by, allowed, is_within)
    }
}

impl Regions {
    pub(super) fn get(&self, region: RegionId) -> Option<&Created> {
        self.created.get(&region)
    }

    pub(super) fn add(&mut self, region: RegionId, created: Created) {
        self.by_home.entry(created.home).or_default().insert(region);
        self.created.insert(region, created);
    }

    /// Abandons a region that leaves the memory of its creator.
    pub(super) fn leave_home(&mut self, paging: &Paging, region: RegionId, at: AttachmentId) {
        let created = self.get(region).filter(|created| created.at == at);
        let Some(home) = created.map(|created| created.home) else {
            return;
        };
        if let Some(regions) = self.by_home.get_mut(&home) {
            regions.remove(&region);
        }
        self.abandon(paging, region);
    }

    /// Abandons the regions of an ending top-level tenant. Takes a step for each of them, however many others the cell has.
    pub(super) fn end(&mut self, paging: &Paging, root: GroupId) {
        for region in self.by_home.remove(&root).unwrap_or_default() {
            self.abandon(paging, region);
        }
    }

    fn abandon(&mut self, paging: &Paging, region: RegionId) {
        if let Some(created) = self.created.remove(&region) {
            // The area exists as long as a tenant has it.
            let _ = paging.abandon(created.area);
        }
    }
}

impl Place {
    pub(super) fn start(&self) -> *mut u8 {
        (self.memory + self.offset) as *mut u8
    }

    /// The region is there, or is about to be.
    pub(super) fn shows(&self, region: RegionId) -> bool {
        match &self.shown {
            Shown::Region(here, _) => here.region == region,
            Shown::Nothing(Some(next), _) => next.region == region,
            Shown::Nothing(None, _) | Shown::Zeros => false,
        }
    }

    /// The part of it that is shared with others.
    pub(super) fn shared(&self) -> Option<AttachmentId> {
        matches!(self.shown, Shown::Region(..)).then_some(self.at)
    }

    /// Forgets a place that is no longer in any memory.
    pub(super) fn forget(self, paging: &Paging) {
        PLACES.set(PLACES.get() - 1);
        if let Shown::Region(_, zeros) | Shown::Nothing(_, Some(zeros)) = self.shown {
            // They were never used.
            let _ = paging.discard_area(zeros);
        }
    }
}
