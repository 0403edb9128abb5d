//! The cost of the last close of a file, and the charge for it.
//!
//! A file without a name is freed when it is closed for the last time: its pages, and on a disk its
//! *extents*, which are runs of blocks. Freeing an extent takes as long as freeing many pages, and how many a
//! file has depends on how it was written. So growth is charged by pages, and counted as an extent more if
//! it does not go on where the descriptor's last growth ended, or if that was written out meanwhile.
//! Pages that the file had before the tenant opened it may be in as many extents. Every page is counted as
//! one of these or as grown, never as both, whichever descriptors are still open.
//!
//! A tenant may remove the last name of a file that it has open only if the last close is paid for, and
//! without a name the file grows only as far. Only a descriptor that the guest has can be the last:
//! all others are being opened or closed, and the removal of a name waits for them.

use super::class::Class;
use leasehold_slots::address_range::PAGE;

/// The cost of freeing an extent, in pages. Some 20 µs on ext4 that discards what is freed, where a page is
/// charged 1.5; a stated ceiling.
pub(super) const EXTENT_PAGES: u32 = 16;

/// Pages that are charged for every descriptor: the cost of freeing a file without a name, besides its
/// pages. A stated ceiling: with one page it was 8 µs on ext4 that had not given it a block yet, and 4 on tmpfs, where
/// a page is charged 1.5. So it pays for as many pages, too.
const OPENED: u32 = 8;

/// The same of a file on a disk, where its first page is an extent: 20 to 30 µs if it was written out.
const OPENED_ON_DISK: u32 = OPENED + EXTENT_PAGES;

/// The most that is charged for a descriptor, before it is known what it is of.
pub(super) const OPENED_MOST: u32 = OPENED_ON_DISK;

/// Pages that are charged for a descriptor of a file in a file system of this class.
pub(super) const fn opened_pages(class: Class) -> u32 {
    match class {
        Class::Memory => OPENED,
        Class::Cached | Class::Layered | Class::Slow => OPENED_ON_DISK,
    }
}

/// A file that a tenant has open, and its charge.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct LastClose {
    /// The number of descriptors.
    descriptors: u32,
    /// The number of descriptors that the guest has. The others are being opened or closed.
    held: u32,
    /// Pages that are charged, for all descriptors.
    paid: u32,
    /// Pages that it has grown by, through any descriptor since the first of these was opened.
    grown: u64,
    /// Extents that growth may have made.
    extents: u32,
    /// Whether the file is on a disk.
    has_extents: bool,
}

/// A growth of a file that is not made yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grows {
    /// Pages that are charged for it.
    pub(super) paid: u32,
    /// Pages that the end of the file moves by.
    pub(super) pages: u64,
    /// Whether it may begin an extent.
    pub(super) begins: bool,
}

impl Grows {
    const NONE: Self = Self {
        paid: 0,
        pages: 0,
        begins: false,
    };
}

/// Returns the number of pages that so many bytes are in.
pub(super) fn pages_of(bytes: u64) -> u64 {
    bytes.div_ceil(PAGE as u64)
}

impl LastClose {
    /// Counts a descriptor more, of a file in a file system of this class.
    pub(super) fn opened(&mut self, class: Class) {
        self.descriptors += 1;
        self.has_extents |= class != Class::Memory;
    }

    /// Records that the guest has one of the descriptors.
    pub(super) fn held(&mut self) {
        self.held += 1;
    }

    /// Records that the guest has one descriptor less.
    pub(super) fn let_go(&mut self) {
        self.held = self.held.saturating_sub(1);
    }

    /// Whether the guest has every descriptor: none is being opened or closed.
    pub(super) fn is_settled(self) -> bool {
        self.held == self.descriptors
    }

    /// Counts a descriptor less, and the pages that were charged for it; returns true if it was the last.
    pub(super) fn closed(&mut self, paid: u32) -> bool {
        self.descriptors = self.descriptors.saturating_sub(1);
        self.paid = self.paid.saturating_sub(paid);
        self.descriptors == 0
    }

    /// Counts so many more charged pages.
    pub(super) fn pay(&mut self, pages: u32) {
        self.paid = self.paid.saturating_add(pages);
    }

    /// Counts so many charged pages less.
    pub(super) fn pay_back(&mut self, pages: u32) {
        self.paid = self.paid.saturating_sub(pages);
    }

    /// Records a growth by so many pages.
    pub(super) fn grew(&mut self, pages: u32, begins: bool) {
        self.grown = self.grown.saturating_add(pages.into());
        self.extents = self.extents.saturating_add(u32::from(begins));
    }

    /// Records that the file had `before` pages, and has `after`. Which of them are left is not known.
    pub(super) fn shrank(&mut self, before: u64, after: u64) {
        let found = before.saturating_sub(self.grown).min(after);
        self.grown = after - found;
        if after == 0 {
            self.extents = 0;
        }
    }

    /// Whether the last close is paid for if the file has so many bytes, after this growth. Any of several
    /// descriptors may be the last, and what is charged for the others is gone then.
    pub(super) fn is_paid(self, bytes: u64, grows: Option<Grows>) -> bool {
        let grows = grows.unwrap_or(Grows::NONE);
        let pays = match self.descriptors {
            1 => u64::from(self.paid) + u64::from(grows.paid),
            _ => u64::from(self.of_descriptor()),
        };
        self.price(bytes, grows) <= pays
    }

    /// Returns the pages that pay for the last close of the file with so many bytes through any of its descriptors;
    /// each is charged [`opened_pages`] at the least.
    pub(super) fn owed(self, bytes: u64) -> u32 {
        let price = self
            .price(bytes, Grows::NONE)
            .max(self.of_descriptor().into());
        u32::try_from(price).unwrap_or(u32::MAX)
    }

    const fn of_descriptor(self) -> u32 {
        match self.has_extents {
            true => OPENED_ON_DISK,
            false => OPENED,
        }
    }

    fn price(self, bytes: u64, grows: Grows) -> u64 {
        let pages = pages_of(bytes);
        let found = pages.saturating_sub(self.grown.saturating_add(grows.pages));
        let made = u64::from(self.extents) + u64::from(grows.begins);
        let extents = match self.has_extents {
            true => (found + made).min(pages),
            false => 0,
        };
        pages + extents * u64::from(EXTENT_PAGES)
    }
}

#[cfg(test)]
mod tests {
    use super::{EXTENT_PAGES, Grows, LastClose, OPENED, OPENED_ON_DISK, opened_pages};
    use crate::host::fs::class::Class;
    use leasehold_pager::PAGE;

    fn opened(class: Class, descriptors: u32) -> LastClose {
        let mut file = LastClose::default();
        for _ in 0..descriptors {
            file.opened(class);
            file.held();
            file.pay(opened_pages(class));
        }
        file
    }

    fn write(file: &mut LastClose, pages: u32, begins: bool) {
        file.pay(pages);
        file.grew(pages, begins);
    }

    #[test]
    fn a_page_that_a_closed_descriptor_wrote_is_not_found_once_more_by_another() {
        // Written through one descriptor while there is another: only that is left.
        for (pages, is_paid) in [(1, true), (OPENED, true), (OPENED + 1, false)] {
            let mut file = opened(Class::Cached, 2);
            write(&mut file, pages, true);
            file.let_go();
            assert!(!file.is_settled(), "one is being closed");
            assert!(!file.closed(OPENED_ON_DISK + pages));
            assert!(file.is_settled());
            let bytes = u64::from(pages) * PAGE;
            assert_eq!(file.is_paid(bytes, None), is_paid, "{pages}");
        }
    }

    #[test]
    fn a_file_has_no_more_extents_than_pages() {
        let mut file = opened(Class::Cached, 1);
        for _ in 0..3 {
            file.grew(0, true);
        }
        assert!(file.is_paid(PAGE, None));
        assert!(!file.is_paid(2 * PAGE, None));
    }

    #[test]
    fn what_is_left_of_a_file_that_was_made_smaller_may_be_what_was_found() {
        let mut file = opened(Class::Cached, 1);
        // Two pages were there, and two are added.
        file.pay(100);
        file.grew(2, true);
        let paid = |file: LastClose, pages: u64| {
            let most = (0..100).take_while(|more| {
                let mut less = file;
                less.paid -= more;
                less.is_paid(pages * PAGE, None)
            });
            100 + OPENED_ON_DISK + 1 - most.count() as u32
        };
        assert_eq!(paid(file, 4), 4 + 3 * EXTENT_PAGES);
        file.shrank(4, 2);
        assert_eq!(paid(file, 2), 2 + 2 * EXTENT_PAGES);
        file.shrank(2, 0);
        file.grew(2, true);
        assert_eq!(paid(file, 2), OPENED_ON_DISK + 1);
    }

    #[test]
    fn what_a_file_had_before_may_be_an_extent_a_page_on_a_disk() {
        for descriptors in [1, 2] {
            let file = opened(Class::Cached, descriptors);
            assert!(file.is_paid(PAGE, None));
            assert!(!file.is_paid(PAGE + 1, None));
            let file = opened(Class::Memory, descriptors);
            assert!(file.is_paid(u64::from(OPENED) * PAGE, None));
            assert!(!file.is_paid(u64::from(OPENED) * PAGE + 1, None));
        }
    }

    #[test]
    fn growth_through_the_only_descriptor_is_paid_extent_by_extent() {
        let mut file = opened(Class::Cached, 1);
        let mut bytes = 0;
        for number in 0..100 {
            let begins = number % 10 == 0;
            let grows = Grows {
                paid: 4 + u32::from(begins) * EXTENT_PAGES,
                pages: 4,
                begins,
            };
            bytes += 4 * PAGE;
            assert!(file.is_paid(bytes, Some(grows)));
            file.pay(grows.paid);
            file.grew(4, begins);
            assert!(file.is_paid(bytes, None));
        }
        for _ in 0..2 {
            write(&mut file, 4, true);
        }
        bytes += 8 * PAGE;
        assert!(!file.is_paid(bytes, None), "extents are owed");
        file.shrank(bytes / PAGE, 0);
        file.grew(400, true);
        assert!(file.is_paid(400 * PAGE, None));
    }

    #[test]
    fn of_several_descriptors_any_may_be_the_last() {
        let mut file = opened(Class::Memory, 2);
        write(&mut file, 100, true);
        assert!(!file.is_paid(100 * PAGE, None));
        assert!(!file.closed(OPENED));
        assert!(file.is_paid(100 * PAGE, None), "the one that pays is left");
        assert!(file.closed(OPENED + 100));
    }
}
