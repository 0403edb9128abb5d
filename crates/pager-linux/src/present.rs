//! The page-table entries and page tables of an attachment.
//!
//! A page that is evicted loses its entry, and the table stays: it is freed with the addresses. So how long it takes to
//! give addresses back depends on the tables that were ever filled, not on the pages that are resident.

use crate::bits::{Bits, PageBits};
use leasehold_pager::PageNumber;

/// Pages of a page table.
pub(crate) const TABLE: u32 = 512;

/// The entries and page tables of an attachment.
#[derive(Debug, Default)]
pub(crate) struct Present {
    pages: PageBits,
    /// Page tables, counted from the first page of the attachment: one may be two in the process, of which each
    /// has a part of the pages.
    tables: Bits,
}

impl Present {
    /// None of so many pages.
    pub(crate) fn new(pages: u32) -> Self {
        Present {
            pages: PageBits::new(pages),
            tables: Bits::new(pages.div_ceil(TABLE)),
        }
    }

    #[inline]
    pub(crate) fn get(&self, page: PageNumber) -> bool {
        self.pages.get(page)
    }

    /// A page gets an entry, or loses it; returns whether it had one.
    #[inline]
    pub(crate) fn put(&mut self, page: PageNumber, value: bool) -> bool {
        if value {
            self.tables.put(page.get() / TABLE, true);
        }
        self.pages.put(page, value)
    }

    /// The pages `from .. to` lose their entries; returns how many had one.
    pub(crate) fn clear(&mut self, from: PageNumber, to: PageNumber) -> u32 {
        self.pages.clear(from, to)
    }

    /// The addresses of the pages `from .. to` were given back: they have no entries, and the tables that were
    /// theirs alone are gone.
    pub(crate) fn give_back(&mut self, from: PageNumber, to: PageNumber) -> u32 {
        let whole = match to.is_within(self.len()) {
            true => to.get() / TABLE,
            false => to.get().div_ceil(TABLE),
        };
        self.tables.clear(from.get().div_ceil(TABLE), whole);
        self.pages.clear(from, to)
    }

    /// Pages of `from .. to` with an entry.
    pub(crate) fn count_in(&self, from: PageNumber, to: PageNumber) -> u32 {
        self.pages.count_in(from, to)
    }

    /// Page tables of `from .. to`.
    pub(crate) fn tables_in(&self, from: PageNumber, to: PageNumber) -> u32 {
        match from < to {
            true => self
                .tables
                .count_in(from.get() / TABLE, to.get().div_ceil(TABLE)),
            false => 0,
        }
    }

    /// Where a walk from `from` ends that may meet `pages` entries in `tables` page tables: at `to` if there
    /// are no more.
    pub(crate) fn after(
        &self,
        from: PageNumber,
        to: PageNumber,
        pages: u32,
        tables: u32,
    ) -> PageNumber {
        let to = self.pages.after(from, to, pages);
        self.after_tables(from, to, tables)
    }

    /// The same with any number of entries: just before the next table, or at `to`.
    pub(crate) fn after_tables(&self, from: PageNumber, to: PageNumber, tables: u32) -> PageNumber {
        if from >= to {
            return to;
        }
        let (first, end) = (from.get() / TABLE, to.get().div_ceil(TABLE));
        let beyond = self.tables.after(first, end, tables.saturating_add(1));
        if self.tables.count_in(first, beyond) <= tables {
            return to;
        }
        from.max(PageNumber::new((beyond - 1) * TABLE))
    }

    /// Pages that there are, or some more.
    pub(crate) fn len(&self) -> u32 {
        self.pages.len()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::{any, prop, proptest};
    use proptest::prop_assert_eq;

    use super::{Present, TABLE};
    use leasehold_pager::PageNumber;

    const PAGES: u32 = 8 * TABLE;
    const FIRST: PageNumber = PageNumber::FIRST;
    const END: PageNumber = PageNumber::new(PAGES);

    const fn table(number: u32) -> PageNumber {
        PageNumber::new(number * TABLE)
    }

    #[test]
    fn a_page_table_stays_when_its_pages_lose_their_entries() {
        let mut present = Present::new(PAGES);
        for number in 0..8 {
            present.put(table(number), true);
            present.put(table(number), false);
        }
        assert_eq!(
            (present.count_in(FIRST, END), present.tables_in(FIRST, END)),
            (0, 8)
        );
        assert_eq!(present.after(FIRST, END, 1_000, 3), table(3));
        present.clear(FIRST, END);
        assert_eq!(present.tables_in(FIRST, END), 8);
        present.give_back(FIRST, table(3).next());
        assert_eq!(present.tables_in(FIRST, END), 5);
        present.give_back(table(3).next(), END);
        assert_eq!(
            present.tables_in(FIRST, END),
            1,
            "half of it is the other part's"
        );
    }

    proptest! {
        #[test]
        fn a_walk_meets_no_more_pages_and_tables_than_it_may(
            puts in prop::collection::vec((0..PAGES, any::<bool>()), 0..60),
            (from, to) in (0..PAGES, 0..=PAGES),
            (pages, tables) in (1u32..20, 1u32..6),
        ) {
            let mut present = Present::new(PAGES);
            let (mut set, mut filled) = (BTreeSet::new(), BTreeSet::new());
            for (page, value) in puts {
                let before = if value { !set.insert(page) } else { set.remove(&page) };
                if value {
                    filled.insert(page / TABLE);
                }
                prop_assert_eq!(present.put(PageNumber::new(page), value), before);
            }
            if from < to {
                let met = set.range(from..to).nth(pages as usize - 1).map_or(to, |&page| page + 1);
                let beyond = filled.range(from / TABLE..met.div_ceil(TABLE)).nth(tables as usize);
                let expected = beyond.map_or(met, |table| from.max(table * TABLE));
                let (first, end) = (PageNumber::new(from), PageNumber::new(to));
                prop_assert_eq!(present.after(first, end, pages, tables).get(), expected);
                prop_assert_eq!(present.count_in(first, end) as usize, set.range(from..to).count());
                let here = filled.range(from / TABLE..to.div_ceil(TABLE)).count();
                prop_assert_eq!(present.tables_in(first, end) as usize, here);
            }
        }
    }
}
