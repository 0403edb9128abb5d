//! A bit for each page of an area, and for each of its page tables and blocks.

use leasehold_pager::PageNumber;

/// Bits, all clear at first. Never grows, so that signal handlers may use it.
#[derive(Debug, Default)]
pub(crate) struct Bits {
    words: Box<[u64]>,
}

impl Bits {
    pub(crate) fn new(bits: u32) -> Self {
        Bits {
            words: vec![0; bits.div_ceil(64) as usize].into_boxed_slice(),
        }
    }

    #[inline]
    pub(crate) fn get(&self, bit: u32) -> bool {
        self.words[(bit / 64) as usize] >> (bit % 64) & 1 != 0
    }

    /// Sets or clears a bit; returns what it was.
    #[inline]
    pub(crate) fn put(&mut self, bit: u32, value: bool) -> bool {
        let word = &mut self.words[(bit / 64) as usize];
        let mask = 1 << (bit % 64);
        let before = *word & mask != 0;
        *word = if value { *word | mask } else { *word & !mask };
        before
    }

    /// Clears `from .. to`; returns how many were set.
    pub(crate) fn clear(&mut self, from: u32, to: u32) -> u32 {
        let mut cleared = 0;
        let mut at = from;
        while at < to {
            let end = to.min((at / 64 + 1) * 64);
            let mask = mask(at, end);
            let word = &mut self.words[(at / 64) as usize];
            cleared += (*word & mask).count_ones();
            *word &= !mask;
            at = end;
        }
        cleared
    }

    /// Where a walk from `from` that may meet `limit` set bits ends: just after the last of them,
    /// or at `to` if there are no more.
    pub(crate) fn after(&self, from: u32, to: u32, limit: u32) -> u32 {
        let (mut at, mut left) = (from, limit);
        while at < to {
            let end = to.min((at / 64 + 1) * 64);
            let set = self.words[(at / 64) as usize] & mask(at, end);
            if set.count_ones() < left {
                left -= set.count_ones();
                at = end;
                continue;
            }
            let mut rest = set;
            for _ in 1..left {
                rest &= rest - 1;
            }
            return if left == 0 {
                at
            } else {
                at / 64 * 64 + rest.trailing_zeros() + 1
            };
        }
        to
    }

    /// Bits of `from .. to` that are set.
    pub(crate) fn count_in(&self, from: u32, to: u32) -> u32 {
        let mut count = 0;
        let mut at = from;
        while at < to {
            let end = to.min((at / 64 + 1) * 64);
            count += (self.words[(at / 64) as usize] & mask(at, end)).count_ones();
            at = end;
        }
        count
    }

    /// Finds the first bit of `from .. to` that is `value`.
    pub(crate) fn first(&self, from: u32, to: u32, value: bool) -> Option<u32> {
        let mut at = from;
        while at < to {
            let end = to.min((at / 64 + 1) * 64);
            let word = self.words[(at / 64) as usize];
            let found = (if value { word } else { !word }) & mask(at, end);
            if found != 0 {
                return Some(at / 64 * 64 + found.trailing_zeros());
            }
            at = end;
        }
        None
    }

    /// Finds the last bit before `to` that is set.
    pub(crate) fn last(&self, to: u32) -> Option<u32> {
        let mut end = to;
        while end > 0 {
            let start = (end - 1) / 64 * 64;
            let found = self.words[(start / 64) as usize] & mask(start, end);
            if found != 0 {
                return Some(start + found.ilog2());
            }
            end = start;
        }
        None
    }

    /// Returns whether no bit is set.
    pub(crate) fn is_clear(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }

    /// Bits that there are, in whole words.
    pub(crate) fn len(&self) -> u32 {
        self.words.len() as u32 * u64::BITS
    }

    /// Bits that are set.
    pub(crate) fn count(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }
}

/// A bit for each page of an area, all clear at first. Never grows.
#[derive(Debug, Default)]
pub(crate) struct PageBits(Bits);

impl PageBits {
    /// Makes the bits of an area of `pages` pages.
    pub(crate) fn new(pages: u32) -> Self {
        PageBits(Bits::new(pages))
    }

    #[inline]
    pub(crate) fn get(&self, page: PageNumber) -> bool {
        self.0.get(page.get())
    }

    /// Sets or clears a page's bit; returns what it was.
    #[inline]
    pub(crate) fn put(&mut self, page: PageNumber, value: bool) -> bool {
        self.0.put(page.get(), value)
    }

    /// Clears the bits of `from .. to`; returns how many were set.
    pub(crate) fn clear(&mut self, from: PageNumber, to: PageNumber) -> u32 {
        self.0.clear(from.get(), to.get())
    }

    /// The page where a walk from `from` ends, as [`Bits::after`] has it.
    pub(crate) fn after(&self, from: PageNumber, to: PageNumber, limit: u32) -> PageNumber {
        PageNumber::new(self.0.after(from.get(), to.get(), limit))
    }

    /// Finds the first page of `from .. to` whose bit is `value`.
    pub(crate) fn first(
        &self,
        from: PageNumber,
        to: PageNumber,
        value: bool,
    ) -> Option<PageNumber> {
        let first = self.0.first(from.get(), to.get(), value);
        first.map(PageNumber::new)
    }

    /// Pages of `from .. to` whose bits are set.
    pub(crate) fn count_in(&self, from: PageNumber, to: PageNumber) -> u32 {
        self.0.count_in(from.get(), to.get())
    }

    /// Pages that have a bit, in whole words.
    pub(crate) fn len(&self) -> u32 {
        self.0.len()
    }

    /// Pages whose bits are set.
    pub(crate) fn count(&self) -> u32 {
        self.0.count()
    }
}

/// The bits `from .. to` of the word that they are in, of which there is at least one.
fn mask(from: u32, to: u32) -> u64 {
    let ones = u64::MAX >> (64 - (to - from));
    ones << (from % 64)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::{any, prop, proptest};
    use proptest::prop_assert_eq;

    use super::Bits;

    proptest! {
        #[test]
        fn bits_are_a_set_of_numbers(
            puts in prop::collection::vec((0u32..200, any::<bool>()), 0..100),
            clears in prop::collection::vec((0u32..=200, 0u32..=200, 0u32..9), 0..8),
        ) {
            let mut bits = Bits::new(200);
            let mut set = BTreeSet::new();
            for (bit, value) in puts {
                let before = if value { !set.insert(bit) } else { set.remove(&bit) };
                prop_assert_eq!(bits.put(bit, value), before);
            }
            for (from, to, limit) in clears {
                let met: Vec<u32> = set.iter().copied().filter(|&bit| bit >= from && bit < to).collect();
                let expected = match limit {
                    0 => from.min(to),
                    _ => met.get(limit as usize - 1).map_or(to, |&bit| bit + 1),
                };
                let clear = (from..to).find(|bit| !set.contains(bit));
                prop_assert_eq!(bits.first(from, to, true), met.first().copied());
                prop_assert_eq!(bits.first(from, to, false), clear);
                prop_assert_eq!(bits.last(to), set.range(..to).next_back().copied());
                if from < to {
                    prop_assert_eq!(bits.after(from, to, limit), expected);
                    prop_assert_eq!(bits.count_in(from, to) as usize, met.len());
                    prop_assert_eq!(bits.clear(from, to) as usize, met.len());
                    set.retain(|bit| !met.contains(bit));
                }
                prop_assert_eq!(bits.count() as usize, set.len());
                prop_assert_eq!(bits.is_clear(), set.is_empty());
                prop_assert_eq!((0..200).filter(|&bit| bits.get(bit)).collect::<BTreeSet<u32>>(), set.clone());
            }
        }
    }
}
