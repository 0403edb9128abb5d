//! Which parts of the page file are no area's: a buddy allocator of blocks of pages.
//!
//! A block has a power of two of pages, and begins at a multiple of that. The lowest place that is free is taken, so that
//! areas lie in the [head](crate::prepared) of the file as far as they fit: blocks that are given back are joined with their
//! buddies, and divided for smaller ones.

use std::collections::BTreeSet;

/// Powers of two that blocks may have, up to that of the largest area.
const SIZES: usize = u32::BITS as usize + 1;

/// The blocks that are free.
#[derive(Debug)]
pub(crate) struct Extents {
    /// By the power of two that they are of: the first pages. Of two buddies, one at the most is free.
    free: [BTreeSet<u64>; SIZES],
    /// Pages from this one on are free, too, and the one before it is not.
    unused: u64,
    pages: u64,
}

impl Extents {
    /// Nothing is taken of so many pages.
    pub(crate) fn new(pages: u64) -> Self {
        Extents {
            free: [const { BTreeSet::new() }; SIZES],
            unused: 0,
            pages,
        }
    }

    /// Takes the lowest free block of `1 << size` pages; returns its first one, if there is one.
    pub(crate) fn take(&mut self, size: usize) -> Option<u64> {
        let lowest = |size: usize| self.free[size].first().map(|&first| (first, size));
        let Some((first, mut large)) = (size..SIZES).filter_map(lowest).min() else {
            return self.take_unused(size);
        };
        self.free[large].remove(&first);
        while large > size {
            large -= 1;
            self.free[large].insert(first + (1 << large));
        }
        Some(first)
    }

    /// Takes a block behind all that were ever taken, and leaves the pages before it free.
    fn take_unused(&mut self, size: usize) -> Option<u64> {
        let first = self.unused.next_multiple_of(1 << size);
        let end = first + (1 << size);
        if end > self.pages {
            return None;
        }
        while self.unused < first {
            let size = self.unused.trailing_zeros() as usize;
            self.join(self.unused, size);
            self.unused += 1 << size;
        }
        self.unused = end;
        Some(first)
    }

    /// Gives a block back.
    pub(crate) fn give_back(&mut self, first: u64, size: usize) {
        self.join(first, size);
        while let Some(first) = self.free_before(self.unused) {
            self.unused = first;
        }
    }

    /// Takes the free block that ends at a page out of the lists; returns its first page, if there is one.
    fn free_before(&mut self, page: u64) -> Option<u64> {
        let mut all = self.free.iter_mut().enumerate();
        all.find_map(|(size, free)| {
            let first = page.checked_sub(1 << size)?;
            free.remove(&first).then_some(first)
        })
    }

    /// Puts a free block into the lists, joined with its buddies.
    fn join(&mut self, mut first: u64, mut size: usize) {
        while size + 1 < SIZES && self.free[size].remove(&(first ^ (1 << size))) {
            first &= !(1 << size);
            size += 1;
        }
        let is_new = self.free[size].insert(first);
        debug_assert!(is_new, "given back twice");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop, proptest};
    use proptest::prop_assert_eq;

    use super::Extents;

    proptest! {
        #[test]
        fn the_lowest_place_that_is_free_is_taken(
            steps in prop::collection::vec((any::<bool>(), 0usize..6, any::<u8>()), 0..80),
        ) {
            const PAGES: u64 = 300;
            let mut extents = Extents::new(PAGES);
            let mut taken: Vec<(u64, usize)> = vec![];
            for (take, size, which) in steps {
                if take || taken.is_empty() {
                    let is_free = |first: &u64| {
                        let apart = |&(other, pages): &(u64, usize)| {
                            other + (1 << pages) <= *first || first + (1 << size) <= other
                        };
                        taken.iter().all(apart) && first + (1 << size) <= PAGES
                    };
                    let expected = (0..PAGES).step_by(1 << size).find(is_free);
                    let found = extents.take(size);
                    prop_assert_eq!(found, expected);
                    taken.extend(found.map(|first| (first, size)));
                } else {
                    let gone = taken.swap_remove(usize::from(which) % taken.len());
                    extents.give_back(gone.0, gone.1);
                }
            }
        }
    }
}
