//! The head of the page file: which of its pages are prepared for the areas that lie there.
//!
//! A page of the head is in one of three states:
//! - *prepared*: in memory, zero, and in no area. The [ballast](crate::hold) consists of these.
//! - *taken*: a cached page of an area.
//! - a *hole*: not in memory.
//!
//! A hole becomes prepared or taken, a prepared page taken, and both become holes when they are punched out. **No taken
//! page becomes prepared**: a page that an area has written to is punched out first, so that a prepared page is zero.
//!
//! This file keeps the states and makes no system call. Pages are searched by units of [`UNIT`]: a bit for each unit says
//! whether there is one of the kind in it, and a cursor where to begin.

use std::ops::Range;

use crate::bits::Bits;

/// Pages that are dropped together, and that the ballast differs by from what it should be.
pub(crate) const UNIT: u32 = u16::BITS;

/// The states of some neighbouring pages; those in neither set are holes.
#[derive(Debug, Clone, Copy, Default)]
struct Unit {
    prepared: u16,
    taken: u16,
}

impl Unit {
    fn holes(self) -> u16 {
        !(self.prepared | self.taken)
    }
}

/// The states of the pages of the head.
#[derive(Debug)]
pub(crate) struct Head {
    /// In the last one, pages beyond the head count as taken.
    units: Box<[Unit]>,
    pages: u32,
    /// Prepared pages.
    prepared: u32,
    /// Units that consist of prepared pages.
    whole: Bits,
    /// Units with a prepared page.
    partial: Bits,
    /// Units with a hole.
    open: Bits,
    /// No unit from here on is whole.
    whole_end: u32,
    /// No unit from here on has a prepared page.
    partial_end: u32,
    /// No unit before this one has a hole.
    open_start: u32,
}

impl Head {
    /// Makes a head of so many holes.
    pub(crate) fn new(pages: u32) -> Self {
        let count = pages.div_ceil(UNIT);
        let mut units = vec![Unit::default(); count as usize].into_boxed_slice();
        if let Some(last) = units.last_mut()
            && !pages.is_multiple_of(UNIT)
        {
            last.taken = !mask(0, pages % UNIT);
        }
        let mut head = Head {
            units,
            pages,
            prepared: 0,
            whole: Bits::new(count),
            partial: Bits::new(count),
            open: Bits::new(count),
            whole_end: 0,
            partial_end: 0,
            open_start: count,
        };
        (0..count).for_each(|unit| head.index(unit));
        head
    }

    /// Returns how many pages are prepared.
    pub(crate) fn prepared(&self) -> u32 {
        self.prepared
    }

    /// Returns how many pages are taken: for tests.
    pub(crate) fn taken(&self) -> u32 {
        let all = parts(0..self.pages);
        let taken = all.map(|(unit, mask)| self.units[unit as usize].taken & mask);
        taken.map(u16::count_ones).sum()
    }

    /// Returns how many of `pages` pages of the file, from `first` on, are in the head.
    pub(crate) fn overlap(&self, first: u64, pages: u32) -> u32 {
        self.clip(first, first + u64::from(pages)).len() as u32
    }

    fn has(&self, page: u64) -> bool {
        page < u64::from(self.pages)
    }

    pub(crate) fn is_prepared(&self, page: u64) -> bool {
        self.unit_of(page)
            .is_some_and(|(unit, bit)| unit.prepared & bit != 0)
    }

    pub(crate) fn is_taken(&self, page: u64) -> bool {
        self.unit_of(page)
            .is_some_and(|(unit, bit)| unit.taken & bit != 0)
    }

    /// Returns whether a page is prepared, and how many pages from it on, up to `most`, are as it is.
    pub(crate) fn stretch(&self, page: u64, most: u32) -> (bool, u32) {
        let is_prepared = self.is_prepared(page);
        let same = |&next: &u64| self.is_prepared(next) == is_prepared;
        let pages = (page..page + u64::from(most)).take_while(same).count();
        (is_prepared, pages as u32)
    }

    /// Returns how many of the pages `from .. to` of the file are prepared.
    pub(crate) fn prepared_in(&self, from: u64, to: u64) -> u32 {
        let parts = parts(self.clip(from, to));
        parts
            .map(|(unit, mask)| (self.units[unit as usize].prepared & mask).count_ones())
            .sum()
    }

    /// Pages of the file become pages of an area: prepared pages and holes.
    pub(crate) fn take(&mut self, from: u64, to: u64) {
        self.change(self.clip(from, to), |unit, mask| {
            debug_assert_eq!(unit.taken & mask, 0, "two areas have a page");
            unit.prepared &= !mask;
            unit.taken |= mask;
        });
    }

    /// Pages of the file were punched out.
    pub(crate) fn punched(&mut self, from: u64, to: u64) {
        self.change(self.clip(from, to), |unit, mask| {
            unit.prepared &= !mask;
            unit.taken &= !mask;
        });
    }

    /// Holes were populated with zeros.
    pub(crate) fn prepare(&mut self, holes: Range<u32>) {
        self.change(holes, |unit, mask| {
            debug_assert_eq!(unit.holes() & mask, mask, "populated twice");
            unit.prepared |= mask;
        });
    }

    /// Finds the lowest hole and those right behind it, `most` pages at the most.
    pub(crate) fn lowest_holes(&mut self, most: u32) -> Option<Range<u32>> {
        let units = self.units.len() as u32;
        let open = self.open.first(self.open_start.min(units), units, true);
        self.open_start = open.unwrap_or(units);
        let first = open? * UNIT + self.units[open? as usize].holes().trailing_zeros();
        let mut end = first;
        while end < self.pages && end - first < most {
            let holes = self.units[(end / UNIT) as usize].holes() >> (end % UNIT);
            let run = holes.trailing_ones();
            end += run;
            if run == 0 || !end.is_multiple_of(UNIT) {
                break;
            }
        }
        Some(first..end.min(first.saturating_add(most)))
    }

    /// Finds the first holes among these pages that are neighbours.
    pub(crate) fn holes_in(&self, pages: Range<u32>) -> Option<Range<u32>> {
        let is_hole = |&page: &u32| {
            let unit = self.units[(page / UNIT) as usize];
            unit.holes() & (1 << (page % UNIT)) != 0
        };
        let first = pages.clone().find(is_hole)?;
        let count = (first..pages.end).take_while(is_hole).count() as u32;
        Some(first..first + count)
    }

    /// Finds prepared pages to be dropped: the highest whole units, of `least` pages or up to a unit more; if no unit is
    /// whole, up to `least` neighbours in the highest one that has prepared pages.
    pub(crate) fn highest_prepared(&mut self, least: u32) -> Option<Range<u32>> {
        let last = self.whole.last(self.whole_end);
        self.whole_end = last.map_or(0, |last| last + 1);
        if let Some(last) = last {
            let most = least.div_ceil(UNIT).max(1);
            let is_whole = |unit: &u32| self.whole.get(*unit);
            let more = (0..last).rev().take(most as usize - 1);
            let more = more.take_while(is_whole).count() as u32;
            return Some((last - more) * UNIT..(last + 1) * UNIT);
        }
        let last = self.partial.last(self.partial_end);
        self.partial_end = last.map_or(0, |last| last + 1);
        let prepared = self.units[last? as usize].prepared;
        let end = UNIT - prepared.leading_zeros();
        let run = (prepared << (UNIT - end)).leading_ones().min(least.max(1));
        let start = last? * UNIT;
        Some(start + end - run..start + end)
    }

    fn unit_of(&self, page: u64) -> Option<(Unit, u16)> {
        let at = self.has(page).then_some(page as u32)?;
        Some((self.units[(at / UNIT) as usize], 1 << (at % UNIT)))
    }

    /// The pages of the head among these.
    fn clip(&self, from: u64, to: u64) -> Range<u32> {
        let within = |page: u64| page.min(u64::from(self.pages)) as u32;
        within(from)..within(to)
    }

    fn change(&mut self, pages: Range<u32>, change: impl Fn(&mut Unit, u16)) {
        for (index, mask) in parts(pages) {
            let unit = &mut self.units[index as usize];
            let before = unit.prepared.count_ones();
            change(unit, mask);
            debug_assert_eq!(unit.prepared & unit.taken, 0, "prepared and taken");
            self.prepared = self.prepared - before + unit.prepared.count_ones();
            self.index(index);
        }
    }

    /// Records what is in a unit, so that it is found.
    fn index(&mut self, index: u32) {
        let unit = self.units[index as usize];
        let (whole, partial) = (unit.prepared == u16::MAX, unit.prepared != 0);
        let open = unit.holes() != 0;
        self.whole.put(index, whole);
        self.partial.put(index, partial);
        self.open.put(index, open);
        if whole {
            self.whole_end = self.whole_end.max(index + 1);
        }
        if partial {
            self.partial_end = self.partial_end.max(index + 1);
        }
        if open {
            self.open_start = self.open_start.min(index);
        }
    }
}

/// The units of these pages, each with the bits of those that are in it.
fn parts(pages: Range<u32>) -> impl Iterator<Item = (u32, u16)> {
    let units = match pages.is_empty() {
        true => 0..0,
        false => pages.start / UNIT..pages.end.div_ceil(UNIT),
    };
    units.map(move |unit| {
        let start = unit * UNIT;
        let from = pages.start.max(start) - start;
        let to = pages.end.min(start + UNIT) - start;
        (unit, mask(from, to))
    })
}

/// The bits `from .. to` of a unit, of which there is at least one.
fn mask(from: u32, to: u32) -> u16 {
    (u16::MAX >> (UNIT - (to - from))) << from
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{prop, proptest};
    use proptest::{prop_assert, prop_assert_eq};

    use super::{Head, UNIT};

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum State {
        Hole,
        Prepared,
        Taken,
    }

    fn runs_to(model: &[State], from: usize, state: State) -> usize {
        let others = model[from..].iter().position(|&other| other != state);
        others.map_or(model.len(), |at| from + at)
    }

    proptest! {
        #[test]
        fn a_page_of_the_head_is_a_hole_or_prepared_or_taken(
            pages in 1u32..150,
            steps in prop::collection::vec((0u8..4, 0u32..170, 1u32..70), 0..60),
        ) {
            let mut head = Head::new(pages);
            let mut model = vec![State::Hole; pages as usize];
            for (step, from, count) in steps {
                let (start, end) = (from.min(pages) as usize, (from + count).min(pages) as usize);
                let (first, last) = (u64::from(from), u64::from(from + count));
                match step {
                    0 if model[start..end].contains(&State::Taken) => {}
                    0 => {
                        head.take(first, last);
                        model[start..end].fill(State::Taken);
                    }
                    1 => {
                        head.punched(first, last);
                        model[start..end].fill(State::Hole);
                    }
                    2 => {
                        let lowest = model.iter().position(|&state| state == State::Hole);
                        let expected = lowest.map(|lowest| {
                            let end = runs_to(&model, lowest, State::Hole);
                            lowest as u32..(end as u32).min(lowest as u32 + count)
                        });
                        let found = head.lowest_holes(count);
                        prop_assert_eq!(&found, &expected);
                        if let Some(holes) = found {
                            head.prepare(holes.clone());
                            model[holes.start as usize..holes.end as usize].fill(State::Prepared);
                        }
                    }
                    _ => {
                        let is_whole = |unit: &usize| {
                            let unit = model.chunks(UNIT as usize).nth(*unit);
                            unit.is_some_and(|unit| unit == [State::Prepared; UNIT as usize])
                        };
                        let highest = (0..pages.div_ceil(UNIT) as usize).rev().find(is_whole);
                        let dropped = head.highest_prepared(count);
                        prop_assert_eq!(dropped.is_some(), model.contains(&State::Prepared));
                        let Some(dropped) = dropped else { continue };
                        let range = dropped.start as usize..dropped.end as usize;
                        let expected = match highest {
                            Some(unit) => (unit + 1) * UNIT as usize,
                            None => model.iter().rposition(|&state| state == State::Prepared).expect("one") + 1,
                        };
                        prop_assert_eq!(range.end, expected);
                        prop_assert!(model[range.clone()].iter().all(|&state| state == State::Prepared));
                        let most = match highest {
                            Some(_) => count.next_multiple_of(UNIT),
                            None => count,
                        };
                        prop_assert!((1..=most as usize).contains(&range.len()));
                        head.punched(u64::from(dropped.start), u64::from(dropped.end));
                        model[range].fill(State::Hole);
                    }
                }
                let is = |page: u64, state| model.get(page as usize) == Some(&state);
                for page in 0..u64::from(pages) + 20 {
                    prop_assert_eq!(head.is_prepared(page), is(page, State::Prepared));
                    prop_assert_eq!(head.is_taken(page), is(page, State::Taken));
                }
                let prepared = (first..last).filter(|&page| is(page, State::Prepared)).count();
                prop_assert_eq!(head.prepared_in(first, last) as usize, prepared);
                let all = model.iter().filter(|&&state| state == State::Prepared).count();
                prop_assert_eq!(head.prepared() as usize, all);
                let holes = (start..end).find(|&page| model[page] == State::Hole);
                let holes = holes.map(|first| first as u32..runs_to(&model, first, State::Hole).min(end) as u32);
                prop_assert_eq!(head.holes_in(start as u32..end as u32), holes);
                let (is_prepared, alike) = head.stretch(first, count);
                let kind = |page| is(page, State::Prepared);
                let expected = (first..last).take_while(|&page| kind(page) == kind(first)).count();
                prop_assert_eq!((is_prepared, alike as usize), (kind(first), expected));
            }
        }
    }
}
