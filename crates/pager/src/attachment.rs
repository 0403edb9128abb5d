//! Attachments: an area in the address space of a tenant.

use crate::area::Area;
use crate::lists::Mapping;
use crate::page::PageNumber;
use crate::reservation::Reservation;
use crate::sparse::Sparse;
use crate::table::{At, Key};

/// Names an attachment: one area under one reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttachmentId(pub(crate) Key);

impl AttachmentId {
    /// A small number that no other living attachment has.
    pub const fn index(self) -> u32 {
        self.0.index
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Attachment {
    pub(crate) reservation: At<Reservation>,
    pub(crate) area: At<Area>,
    /// The mapping of each page, or [`At::NIL`]: finding out whether a page is mapped takes one look.
    pub(crate) table: Sparse<At<Mapping>>,
    /// Pages mapped now.
    pub(crate) mapped: u32,
    /// The number of first pages that stay mapped until it is detached; `None` if it never
    /// [kept](crate::Pager::pin_step) any.
    pub(crate) pinned: Option<u32>,
    /// While it is taken back: the page to look at next.
    pub(crate) swept: PageNumber,
}

impl Attachment {
    pub(crate) fn new(reservation: At<Reservation>, area: At<Area>, pages: u32) -> Self {
        Attachment {
            reservation,
            area,
            table: Sparse::new(At::NIL, pages),
            mapped: 0,
            pinned: None,
            swept: PageNumber::FIRST,
        }
    }

    /// The mapping of the next page that is mapped in the next block of records, in the order of addresses, so that what is
    /// freed lies side by side; `None` if that has none. Begins again after the last. Takes as long as a page.
    pub(crate) fn next_mapped_in_block(&mut self) -> Option<At<Mapping>> {
        let is_mapped = |at: &At<Mapping>| !at.is_nil();
        match self.table.find_in_block(self.swept, is_mapped) {
            Ok(page) => {
                self.swept = page;
                Some(self.table[page])
            }
            Err(next) => {
                self.swept = self.or_first(next);
                None
            }
        }
    }

    /// The mapping of the page to look at next, or [`At::NIL`]; begins again after the last.
    pub(crate) fn sweep(&mut self) -> At<Mapping> {
        let page = self.swept;
        self.swept = self.or_first(page.next());
        self.table[page]
    }

    /// The same page, or the first one behind the last.
    fn or_first(&self, page: PageNumber) -> PageNumber {
        if page.is_within(self.table.len()) {
            page
        } else {
            PageNumber::FIRST
        }
    }
}
