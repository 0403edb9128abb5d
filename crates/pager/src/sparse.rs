//! Tables with an entry for each page of which most were never touched.
//!
//! A tenant may attach a gibibyte and touch a page of it. The records of pages are made in blocks
//! when the first page of a block is touched, so that the time of attaching is independent of the
//! size.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

use crate::page::PageNumber;

/// Entries of a block.
const BLOCK: usize = 512;

/// A table of fixed length. All entries are the same until they are written to.
#[derive(Debug, Clone)]
pub struct Sparse<T> {
    untouched: T,
    length: u32,
    blocks: Vec<Option<Block<T>>>,
    /// The number behind the last block that was made and not taken.
    made: usize,
}

/// The entries of a block. Its length is known, so that finding an entry takes no look at it.
pub type Block<T> = Box<[T; BLOCK]>;

/// A block of such entries, made where it will be: a fault may have a small stack.
#[cold]
fn block_of<T: Copy>(untouched: T) -> Block<T> {
    let entries = alloc::vec![untouched; BLOCK].into_boxed_slice();
    entries.try_into().ok().expect("as many as a block has")
}

impl<T: Copy> Sparse<T> {
    /// A table of entries for `pages` pages. Takes one step for each 512 of them, of some nanoseconds.
    pub fn new(untouched: T, pages: u32) -> Self {
        let mut blocks = Vec::new();
        blocks.resize_with((pages as usize).div_ceil(BLOCK), || None);
        Self {
            untouched,
            length: pages,
            blocks,
            made: 0,
        }
    }

    /// Its entries.
    pub fn len(&self) -> u32 {
        self.length
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The entry of a page; `None` behind the last one. O(1).
    #[inline]
    pub fn get(&self, page: PageNumber) -> Option<&T> {
        if !page.is_within(self.length) {
            return None;
        }
        Some(&self[page])
    }

    /// Takes the last block of entries that were touched, which are as untouched afterwards; `None` if there is none.
    /// Frees nothing else: a table with many blocks is freed some a step. O(blocks that were never made).
    pub fn take_block(&mut self) -> Option<Block<T>> {
        while self.made > 0 {
            self.made -= 1;
            let block = self.blocks[self.made].take();
            if block.is_some() {
                return block;
            }
        }
        None
    }

    /// Looks for an entry that `is` so in the first block from `page` on that was made: returns the first one there, from
    /// `page` on.
    ///
    /// # Errors
    /// Where to look next, if that block has none; behind the last page if there is no such block.
    ///
    /// O(entries of a block, and blocks in between that were never made).
    pub fn find_in_block(
        &self,
        page: PageNumber,
        is: impl Fn(&T) -> bool,
    ) -> Result<PageNumber, PageNumber> {
        let at = page.index();
        let mut within = at % BLOCK;
        for number in at / BLOCK..self.made {
            let Some(block) = &self.blocks[number] else {
                within = 0;
                continue;
            };
            let found = block[within..].iter().position(is);
            let numbered = |at| PageNumber::new(at as u32);
            return match found {
                Some(found) => Ok(numbered(number * BLOCK + within + found)),
                None => Err(numbered(((number + 1) * BLOCK).min(self.length as usize))),
            };
        }
        Err(PageNumber::new(self.length))
    }

    /// All entries in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries().map(|(_, entry)| entry)
    }

    /// All entries in order, with their pages.
    pub fn entries(&self) -> impl Iterator<Item = (PageNumber, &T)> {
        PageNumber::range(0..self.length).map(|page| (page, &self[page]))
    }

    /// The entries that were written to, and others near them.
    pub fn touched(&self) -> impl Iterator<Item = &T> {
        self.blocks.iter().flatten().flat_map(|block| block.iter())
    }
}

impl<T: Copy> Index<PageNumber> for Sparse<T> {
    type Output = T;

    #[inline]
    fn index(&self, page: PageNumber) -> &T {
        debug_assert!(page.is_within(self.length), "an entry of the table");
        let at = page.index();
        match &self.blocks[at / BLOCK] {
            Some(block) => &block[at % BLOCK],
            None => &self.untouched,
        }
    }
}

/// The first write to a block makes it.
impl<T: Copy> IndexMut<PageNumber> for Sparse<T> {
    #[inline]
    fn index_mut(&mut self, page: PageNumber) -> &mut T {
        debug_assert!(page.is_within(self.length), "an entry of the table");
        let at = page.index();
        let number = at / BLOCK;
        let block = self.blocks[number].get_or_insert_with(|| {
            self.made = self.made.max(number + 1);
            block_of(self.untouched)
        });
        &mut block[at % BLOCK]
    }
}

#[cfg(test)]
mod tests {
    use super::{BLOCK, Sparse};
    use crate::page::PageNumber;
    use proptest::prelude::{Strategy, proptest};

    fn page(number: usize) -> PageNumber {
        PageNumber::new(number as u32)
    }

    proptest! {
        #[test]
        fn it_holds_what_a_vector_would(
            (length, writes) in (1_usize..3 * BLOCK).prop_flat_map(|length| {
                (proptest::strategy::Just(length), proptest::collection::vec((0..length, 0_u32..9), 0..40))
            })
        ) {
            let (mut table, mut model) = (Sparse::new(7, length as u32), alloc::vec![7; length]);
            for (at, value) in writes {
                table[page(at)] = value;
                model[at] = value;
            }
            assert!(table.iter().eq(model.iter()));
            for at in 0..length {
                let next = model.iter().skip(at).position(|&entry| entry > 7);
                let mut found = Err(page(at));
                while let Err(at) = found && at.is_within(table.len()) {
                    found = table.find_in_block(at, |&entry| entry > 7);
                }
                assert_eq!(found.ok(), next.map(|next| page(at + next)));
            }
            assert_eq!((table.len() as usize, table.get(page(length))), (length, None));
        }
    }

    #[test]
    fn a_look_visits_one_block_however_many_were_made() {
        let mut table = Sparse::new(0_u64, 1 << 20);
        for block in 0..100 {
            table[page(block * 10 * BLOCK)] = 1;
        }
        let looked = core::cell::Cell::new(0);
        let mut at = PageNumber::FIRST;
        for _ in 0..100 {
            looked.set(0);
            let found = table.find_in_block(at, |&entry| {
                looked.set(looked.get() + 1);
                entry > 1
            });
            assert!(looked.get() <= BLOCK);
            at = found.expect_err("no such entry");
        }
        assert_eq!(at, page(991 * BLOCK));
        assert_eq!(table.find_in_block(at, |_| true), Err(page(1 << 20)));
    }

    #[test]
    fn blocks_are_taken_one_by_one_and_can_be_made_again() {
        let mut table = Sparse::new(0_u64, 1 << 20);
        (table[page(3)], table[page(1 << 19)]) = (1, 2);
        assert_eq!(table.take_block().map(|block| block[0]), Some(2));
        assert_eq!((table[page(3)], table[page(1 << 19)]), (1, 0));
        assert_eq!(table.take_block().map(|block| block[3]), Some(1));
        assert!(table.take_block().is_none());
        assert_eq!(
            (table.len(), table[page(3)], table.get(page(1 << 20))),
            (1 << 20, 0, None)
        );
        table[page((1 << 20) - 1)] = 4;
        assert_eq!(table[page((1 << 20) - 1)], 4);
    }

    #[test]
    fn what_was_never_written_to_takes_no_block() {
        let mut table = Sparse::new(0_u64, 1 << 20);
        assert_eq!(table[page(1 << 19)], 0);
        assert_eq!(table.touched().count(), 0);
        table[page(1 << 19)] = 1;
        assert_eq!(table.touched().count(), BLOCK);
    }
}
