//! Extents: runs of bytes in arenas, for message buffers, shared regions and tables.

use core::ops::Range;

use crate::arena::{Arena, UNIT, chunk_class, pages_of};
use crate::backing::Backing;
use crate::budget::Refused;
use crate::class::{CHUNK, MEMORY};
use crate::cost::PAGE;
use crate::group::{GroupId, Record};
use crate::groups::{Groups, Price};
use crate::handle::Extent;
use crate::object::Found;
use crate::slots::{ExtentHeader, Slot, large_extent, small_extent, units_of};

impl Record {
    /// Charges the pages of `range`, which were admitted at `page_ps` each; those in front of
    /// `touched` are resident and charged already.
    fn spend_pages(
        &mut self,
        arena: &mut Arena,
        page: Price,
        page_ps: Option<u64>,
        range: Range<u32>,
        touched: u32,
    ) {
        let page_ps = page_ps.unwrap_or_default();
        let pages = u64::from(range.end.saturating_sub(range.start));
        let fresh = u64::from(range.end.saturating_sub(range.start.max(touched)));
        self.budget.spend(pages * page_ps);
        self.budget.settle(fresh * page_ps);
        self.count(arena, page.class, pages * page.units);
    }
}

impl<B: Backing, L: Copy> Groups<B, L> {
    /// Makes a run of `len` zero bytes in the group.
    ///
    /// Up to about 4 KiB it takes a slot of the next size of 32, 48, 64, 96, … 4096 bytes, of
    /// which it gets all but 16; beyond, it takes pages of its own and is charged
    /// [`CostModel::page_ps`](crate::CostModel::page_ps) for each that it starts. Work:
    /// proportional to the length.
    ///
    /// # Errors
    /// [`Refused::Stale`], [`Refused::Budget`], and [`Refused::Memory`], also if `len` is beyond
    /// what an arena can hold.
    pub fn alloc_bytes(&mut self, group: GroupId, len: usize) -> Result<Extent, Refused> {
        let index = self.table.alive(group).ok_or(Refused::Stale)?;
        if len > self.config.arena_size() {
            return Err(Refused::Memory);
        }
        let head = self.head_units() + 1;
        let units = head + units_of(len);
        let (slot, pages, zeroed) = match small_extent(units) {
            Some((list, units)) => {
                let price = Self::memory_price(units as usize * UNIT);
                (
                    self.take_slot(index, list, MEMORY, units, price, 0)?,
                    0,
                    false,
                )
            }
            None => self.take_large(index, units)?,
        };
        let header = ExtentHeader {
            len: len as u32,
            pages,
        };
        self.slots_of(index)
            .write_extent(&slot, head - 1, header, zeroed);
        Ok(Extent(slot.handle(group)))
    }

    /// A slot of `units` in a chunk of its own: the slot, how many pages of it are charged, and
    /// whether it is known to read as zero.
    fn take_large(&mut self, index: u32, units: u32) -> Result<(Slot, u32, bool), Refused> {
        let list = large_extent(chunk_class(units).ok_or(Refused::Memory)?);
        let pages = pages_of(units);
        let recycled = self.slots_of(index).charged_pages(list);
        let record = self.table.at_mut(index);
        let arena = &mut self.arenas[record.arena as usize];
        if let Some(slab) = &mut self.slab {
            let (slot, zeroed) = match slab.recycle(list) {
                Some(slot) => (slot, false),
                None => {
                    let grant = slab.grant_large(arena, units).ok_or(Refused::Memory)?;
                    (slab.open_large(&grant, MEMORY), grant.zeroed)
                }
            };
            record.own(&slot);
            return Ok((slot, 0, zeroed));
        }
        let page = Self::memory_price(PAGE);
        let page_ps = self.classes.ps(page.class).checked_mul(page.units);
        let price = |pages: u32| page_ps.and_then(|ps| ps.checked_mul(u64::from(pages)));
        let Some(paid) = recycled else {
            let chunk_ps = self.costs.chunk_ps;
            let whole = price(pages).and_then(|ps| ps.checked_add(chunk_ps));
            record.budget.admit(whole)?;
            let grant = record
                .slots
                .grant_large(arena, units)
                .ok_or(Refused::Memory)?;
            record.budget.spend(chunk_ps);
            record
                .budget
                .settle(if grant.is_fresh() { chunk_ps } else { 0 });
            record.count(arena, CHUNK, 1);
            record.spend_pages(arena, page, page_ps, 0..pages, grant.touched_pages());
            return Ok((record.slots.open_large(&grant, MEMORY), pages, grant.zeroed));
        };
        record.budget.admit(price(pages.saturating_sub(paid)))?;
        let slot = record.slots.recycle(list).ok_or(Refused::Memory)?;
        let touched = record.slots.touch_large(arena, &slot, units);
        record.spend_pages(arena, page, page_ps, paid..pages, pages_of(touched));
        Ok((slot, pages.max(paid), false))
    }

    /// Reads an extent; `None` if it or its group has gone.
    pub fn bytes(&self, extent: Extent) -> Option<&[u8]> {
        let Found { index, slot } = self.find(extent.0)?;
        let slots = &self.table.at(index).slots;
        Some(slots.extent(&slot, self.head_units()))
    }

    /// Reads an extent to change it; `None` if it or its group has gone.
    pub fn bytes_mut(&mut self, extent: Extent) -> Option<&mut [u8]> {
        let Found { index, slot } = self.find(extent.0)?;
        let head = self.head_units();
        Some(self.table.at_mut(index).slots.extent_mut(&slot, head))
    }

    /// Frees an extent; returns whether it was there. Its memory and its charge stay with the
    /// group, as with [`free`](Self::free).
    pub fn free_bytes(&mut self, extent: Extent) -> bool {
        match self.find(extent.0) {
            Some(found) => {
                self.release(found);
                true
            }
            None => false,
        }
    }
}
