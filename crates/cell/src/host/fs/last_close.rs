//! What the last close of a file may cost, and what is charged for it.
//!
//! A file without a name is freed when it is closed for the last time: its pages, and on a disk its
//! *extents*, which are runs of blocks. Freeing an extent takes as long as freeing many pages, and how many a
//! file has depends on how it was written. So growth is charged by pages, and counted as an extent more if
//! it does not go on where the descriptor's last growth ended, or if that was written out meanwhile.
//! What a descriptor found in the file when it was opened may be in as many extents as it has pages.
//!
//! A tenant may remove the last name of a file that it has open only if the last close is paid for, and
//! without a name the file grows only as far.

use super::class::Class;
use leasehold_slots::address_range::PAGE;

/// The cost of freeing an extent, in pages. Some 20 µs on ext4 that discards what is freed, where a page is
/// charged 1.5; a stated ceiling.
pub(super) const EXTENT_PAGES: u32 = 16;

/// Pages that are charged for every descriptor: the cost of freeing a file without a name, besides its
/// pages. A stated ceiling: with one page it was 8 µs on ext4 and 4 on tmpfs, where a page is charged
/// 1.5. So it pays for as many pages, too.
pub(super) const OPENED: u32 = 8;

/// A file that a tenant has open, and its charge.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct LastClose {
    /// How many descriptors it has.
    descriptors: u32,
    /// Pages that are charged, for all descriptors.
    paid: u32,
    /// Extents that growth may have made.
    extents: u32,
    /// Whether the file is on a disk.
    has_extents: bool,
}

/// Growth of a file: pages at the most, and whether it may begin an extent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grows {
    pub(super) pages: u32,
    pub(super) begins: bool,
}

impl LastClose {
    /// A descriptor more, of a file in a file system of this class.
    pub(super) fn opened(&mut self, class: Class) {
        self.descriptors += 1;
        self.has_extents |= class != Class::Memory;
    }

    /// A descriptor less, and the pages that were charged for it; whether it was the last.
    pub(super) fn closed(&mut self, paid: u32) -> bool {
        self.descriptors = self.descriptors.saturating_sub(1);
        self.paid = self.paid.saturating_sub(paid);
        self.descriptors == 0
    }

    /// So many pages are charged in addition.
    pub(super) fn pay(&mut self, pages: u32) {
        self.paid = self.paid.saturating_add(pages);
    }

    /// It has grown.
    pub(super) fn grew(&mut self, begins: bool) {
        self.extents = self.extents.saturating_add(u32::from(begins));
    }

    /// It was made empty.
    pub(super) fn emptied(&mut self) {
        self.extents = 0;
    }

    /// Whether the last close is paid for if the file has so many bytes, after this growth. Any of several
    /// descriptors may be the last, and what is charged for the others is gone then.
    pub(super) fn is_paid(self, bytes: u64, grows: Option<Grows>) -> bool {
        let grows = grows.unwrap_or(Grows {
            pages: 0,
            begins: false,
        });
        let pages = bytes.div_ceil(PAGE as u64);
        let charged = u64::from(self.paid) + u64::from(grows.pages);
        let grown = charged.saturating_sub(u64::from(self.descriptors * OPENED));
        let found = pages.saturating_sub(grown);
        let extents = match self.has_extents {
            true => found + u64::from(self.extents) + u64::from(grows.begins),
            false => 0,
        };
        // The charge of a descriptor is for the first extent, too.
        let owed = pages + extents.saturating_sub(1) * u64::from(EXTENT_PAGES);
        let pays = match self.descriptors {
            1 => charged,
            _ => u64::from(OPENED),
        };
        owed <= pays
    }
}

#[cfg(test)]
mod tests {
    use super::{EXTENT_PAGES, Grows, LastClose, OPENED};
    use crate::host::fs::class::Class;
    use leasehold_pager::PAGE;

    fn opened(class: Class, descriptors: u32) -> LastClose {
        let mut file = LastClose::default();
        for _ in 0..descriptors {
            file.opened(class);
            file.pay(OPENED);
        }
        file
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
            let pages = 4 + u32::from(begins) * EXTENT_PAGES;
            bytes += 4 * PAGE;
            assert!(file.is_paid(bytes, Some(Grows { pages, begins })));
            file.pay(pages);
            file.grew(begins);
            assert!(file.is_paid(bytes, None));
        }
        let unpaid = Grows {
            pages: 4,
            begins: true,
        };
        for _ in 0..2 {
            file.pay(unpaid.pages);
            file.grew(unpaid.begins);
        }
        assert!(!file.is_paid(bytes + 8 * PAGE, None), "extents are owed");
        file.emptied();
        assert!(file.is_paid(bytes, None));
    }

    #[test]
    fn of_several_descriptors_any_may_be_the_last() {
        let mut file = opened(Class::Memory, 2);
        file.pay(100);
        assert!(!file.is_paid(100 * PAGE, None));
        assert!(!file.closed(OPENED));
        assert!(file.is_paid(100 * PAGE, None), "the one that pays is left");
        assert!(file.closed(OPENED + 100));
    }
}
