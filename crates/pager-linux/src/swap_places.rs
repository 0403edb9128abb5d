//! Places in secondary storage, in clusters.
//!
//! Pages that are written out together go to places next to each other, in one piece. A cluster
//! whose pages have gone is used again as a whole; if none is left, single free places are used.

use leasehold_pager::CLUSTER;

/// No place.
pub(crate) const NOWHERE: u32 = u32::MAX;
const WHOLE: u8 = u8::MAX;
const _: () = assert!(CLUSTER == u8::BITS as usize);

/// The free places. Allocates nothing after it was made.
#[derive(Debug)]
pub(crate) struct SwapPlaces {
    /// A bit for each free place, a byte for each cluster.
    free: Box<[u8]>,
    /// Clusters that are free as a whole.
    whole: Vec<u32>,
    /// Clusters with some free places, each once; some may have been filled or freed since.
    partial: Vec<u32>,
    is_partial: Box<[bool]>,
    /// Places that areas have a claim on.
    promised: u32,
}

impl SwapPlaces {
    /// As many places as fit in `pages` pages as whole clusters.
    pub(crate) fn new(pages: u32) -> Self {
        let clusters = pages / CLUSTER as u32;
        SwapPlaces {
            free: vec![WHOLE; clusters as usize].into_boxed_slice(),
            whole: (0..clusters).rev().collect(),
            partial: Vec::with_capacity(clusters as usize),
            is_partial: vec![false; clusters as usize].into_boxed_slice(),
            promised: 0,
        }
    }

    /// Returns the unpromised places.
    pub(crate) fn unpromised(&self) -> u32 {
        (self.free.len() * CLUSTER) as u32 - self.promised
    }

    /// Promises `pages` places, which must be there.
    pub(crate) fn promise(&mut self, pages: u32) {
        debug_assert!(pages <= self.unpromised());
        self.promised += pages;
    }

    /// Takes a promise back whose places are free.
    pub(crate) fn forget(&mut self, pages: u32) {
        self.promised -= pages;
    }

    /// Takes the first `pages` places of a free cluster; returns the first.
    pub(crate) fn take_run(&mut self, pages: usize) -> Option<u32> {
        debug_assert!((1..=CLUSTER).contains(&pages));
        let cluster = self.whole.pop()?;
        let rest = u32::from(WHOLE) << pages;
        self.free[cluster as usize] = rest as u8;
        self.note_partial(cluster);
        Some(cluster * CLUSTER as u32)
    }

    /// Takes any place.
    pub(crate) fn take_one(&mut self) -> Option<u32> {
        while let Some(&cluster) = self.partial.last() {
            let free = &mut self.free[cluster as usize];
            if *free != 0 && *free != WHOLE {
                let place = free.trailing_zeros();
                *free &= *free - 1;
                return Some(cluster * CLUSTER as u32 + place);
            }
            self.partial.pop();
            self.is_partial[cluster as usize] = false;
        }
        self.take_run(1)
    }

    /// Frees a place.
    pub(crate) fn give_back(&mut self, place: u32) {
        let cluster = place / CLUSTER as u32;
        let free = &mut self.free[cluster as usize];
        let bit = 1 << (place % CLUSTER as u32);
        debug_assert_eq!(*free & bit, 0, "freed twice");
        *free |= bit;
        if *free == WHOLE {
            self.whole.push(cluster);
        } else {
            self.note_partial(cluster);
        }
    }

    fn note_partial(&mut self, cluster: u32) {
        let is_partial = &mut self.is_partial[cluster as usize];
        if !*is_partial && self.free[cluster as usize] != 0 {
            *is_partial = true;
            self.partial.push(cluster);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::{any, prop, proptest};
    use proptest::{prop_assert, prop_assert_eq};

    use super::SwapPlaces;

    proptest! {
        /// Whatever is taken and freed: no place is given twice, and none is lost.
        #[test]
        fn every_place_can_be_taken_and_none_twice(
            steps in prop::collection::vec((0u8..4, any::<u8>()), 0..300),
        ) {
            let mut places = SwapPlaces::new(5 * 8 + 3);
            let mut taken = BTreeSet::new();
            let before = places.whole.capacity().max(places.partial.capacity());
            for (step, which) in steps {
                match step {
                    0 => {
                        let pages = usize::from(which % 8) + 1;
                        let whole = (0..5u32).any(|c| (c * 8..c * 8 + 8).all(|p| !taken.contains(&p)));
                        let first = places.take_run(pages);
                        prop_assert_eq!(first.is_some(), whole);
                        for place in first.into_iter().flat_map(|first| first..first + pages as u32) {
                            prop_assert!(taken.insert(place));
                        }
                    }
                    1 => match places.take_one() {
                        Some(place) => prop_assert!(place < 40 && taken.insert(place)),
                        None => prop_assert_eq!(taken.len(), 40),
                    },
                    _ if taken.is_empty() => {}
                    _ => {
                        let place = *taken.iter().nth(usize::from(which) % taken.len()).expect("one");
                        taken.remove(&place);
                        places.give_back(place);
                    }
                }
            }
            prop_assert!(places.whole.capacity().max(places.partial.capacity()) == before);
            for _ in taken.len()..40 {
                prop_assert!(places.take_one().is_some());
            }
            prop_assert_eq!(places.take_one(), None);
        }
    }
}
