//! Attachments: an area in the address space of a tenant.

use crate::sparse::Sparse;
use crate::table::{Key, NIL};

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
    pub(crate) reservation: u32,
    pub(crate) area: u32,
    /// The mapping of each page, or `NIL`: finding out whether a page is mapped takes one look.
    pub(crate) table: Sparse<u32>,
    /// Pages mapped now.
    pub(crate) mapped: u32,
    /// The number of first pages that stay mapped until it is detached; `None` if it never
    /// [kept](crate::Pager::pin_step) any.
    pub(crate) pinned: Option<u32>,
    /// While it is taken back: the page to look at next.
    pub(crate) swept: u32,
}

impl Attachment {
    pub(crate) fn new(reservation: u32, area: u32, pages: u32) -> Self {
        Attachment {
            reservation,
            area,
            table: Sparse::new(NIL, pages as usize),
            mapped: 0,
            pinned: None,
            swept: 0,
        }
    }

    /// The mapping of the page to look at next, or `NIL`; begins again after the last.
    pub(crate) fn sweep(&mut self) -> u32 {
        let page = self.swept as usize;
        self.swept = (self.swept + 1) % self.table.len() as u32;
        self.table[page]
    }
}
