//! Mappings of pages, and the lists that they are on.
//!
//! A [`Mapping`] records that one reservation has one page in its page table. It carries two pairs
//! of links (SPC fig. 7): its place in the active or inactive list of the reservation, and its
//! place in the ownership list of the page. Lists are intrusive, so that every move is O(1) and
//! allocates nothing.

use alloc::vec::Vec;
use core::marker::PhantomData;

use crate::table::NIL;

/// Which list of its reservation a mapping is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// The active list: mapped recently, or referenced at the last check.
    Active,
    /// The inactive list: the next victims.
    Inactive,
    /// No list: under an eviction lock, or charged to another reservation (first touch).
    Unlisted,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Links {
    next: u32,
    previous: u32,
}

const UNLINKED: Links = Links {
    next: NIL,
    previous: NIL,
};

/// One page in the page table of one reservation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mapping {
    pub(crate) attachment: u32,
    /// Number of the page in its area.
    pub(crate) page: u32,
    pub(crate) place: Place,
    age: Links,
    sharers: Links,
}

/// All mappings, used and unused.
#[derive(Debug, Clone)]
pub(crate) struct Mappings {
    slots: Vec<Mapping>,
    unused: List<ByAge>,
}

impl Mappings {
    pub(crate) const fn new() -> Self {
        Mappings {
            slots: Vec::new(),
            unused: List::EMPTY,
        }
    }

    /// Makes room for `more` mappings, so that none has to be allocated at a fault.
    pub(crate) fn grow(&mut self, more: u32) {
        self.slots.reserve(more as usize);
        for _ in 0..more {
            let at = self.slots.len() as u32;
            self.slots.push(Mapping {
                attachment: NIL,
                page: NIL,
                place: Place::Unlisted,
                age: UNLINKED,
                sharers: UNLINKED,
            });
            self.give_back(at);
        }
    }

    /// Places for mappings, used and unused.
    pub(crate) fn capacity(&self) -> u32 {
        self.slots.len() as u32
    }

    pub(crate) fn take(&mut self, attachment: u32, page: u32) -> u32 {
        // Room was made for every frame that could be mapped.
        let at = self.unused.first().expect("room for another mapping");
        let mut unused = self.unused;
        unused.remove(self, at);
        self.unused = unused;
        self.slots[at as usize] = Mapping {
            attachment,
            page,
            place: Place::Unlisted,
            age: UNLINKED,
            sharers: UNLINKED,
        };
        at
    }

    pub(crate) fn give_back(&mut self, at: u32) {
        let mapping = self.at_mut(at);
        mapping.attachment = NIL;
        let mut unused = self.unused;
        unused.push(self, at);
        self.unused = unused;
    }

    #[inline]
    pub(crate) fn at(&self, at: u32) -> &Mapping {
        &self.slots[at as usize]
    }

    #[inline]
    pub(crate) fn at_mut(&mut self, at: u32) -> &mut Mapping {
        &mut self.slots[at as usize]
    }
}

/// Which of a mapping's links a list uses.
pub(crate) trait Chain: Copy {
    fn links(mapping: &mut Mapping) -> &mut Links;
    fn peek(mapping: &Mapping) -> &Links;
}

/// Lists of one reservation: active, inactive.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ByAge;

/// Lists of one page: its sharers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BySharer;

impl Chain for ByAge {
    #[inline]
    fn links(mapping: &mut Mapping) -> &mut Links {
        &mut mapping.age
    }

    #[inline]
    fn peek(mapping: &Mapping) -> &Links {
        &mapping.age
    }
}

impl Chain for BySharer {
    #[inline]
    fn links(mapping: &mut Mapping) -> &mut Links {
        &mut mapping.sharers
    }

    #[inline]
    fn peek(mapping: &Mapping) -> &Links {
        &mapping.sharers
    }
}

/// A first-in, first-out list of mappings.
#[derive(Debug, Clone, Copy)]
pub(crate) struct List<C> {
    first: u32,
    last: u32,
    len: u32,
    chain: PhantomData<C>,
}

impl<C: Chain> List<C> {
    pub(crate) const EMPTY: Self = List {
        first: NIL,
        last: NIL,
        len: 0,
        chain: PhantomData,
    };

    #[inline]
    pub(crate) const fn len(&self) -> u32 {
        self.len
    }

    #[inline]
    pub(crate) fn first(&self) -> Option<u32> {
        (self.first != NIL).then_some(self.first)
    }

    /// Appends a mapping that is on no list of this chain.
    #[inline]
    pub(crate) fn push(&mut self, all: &mut Mappings, at: u32) {
        *C::links(all.at_mut(at)) = Links {
            next: NIL,
            previous: self.last,
        };
        if self.last == NIL {
            self.first = at;
        } else {
            C::links(all.at_mut(self.last)).next = at;
        }
        self.last = at;
        self.len += 1;
    }

    /// Takes a mapping off this list.
    #[inline]
    pub(crate) fn remove(&mut self, all: &mut Mappings, at: u32) {
        let Links { next, previous } = core::mem::replace(C::links(all.at_mut(at)), UNLINKED);
        if previous == NIL {
            self.first = next;
        } else {
            C::links(all.at_mut(previous)).next = next;
        }
        if next == NIL {
            self.last = previous;
        } else {
            C::links(all.at_mut(next)).previous = previous;
        }
        self.len -= 1;
    }

    /// The mapping after `at`.
    #[inline]
    pub(crate) fn after(all: &Mappings, at: u32) -> Option<u32> {
        let next = C::peek(all.at(at)).next;
        (next != NIL).then_some(next)
    }

    /// The mappings of the list, the first first.
    pub(crate) fn iter(self, all: &Mappings) -> impl Iterator<Item = u32> {
        core::iter::successors(self.first(), move |&at| Self::after(all, at))
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::VecDeque;
    use alloc::vec::Vec;

    use proptest::prelude::{any, prop, proptest};
    use proptest::prop_assert_eq;

    use super::{ByAge, BySharer, List, Mappings};

    proptest! {
        /// Both chains at once: a move on one leaves the other as it was.
        #[test]
        fn a_list_does_what_a_queue_does(steps in prop::collection::vec(any::<(bool, u8)>(), 0..200)) {
            let mut all = Mappings::new();
            all.grow(8);
            let mut sharers = List::<BySharer>::EMPTY;
            let taken: Vec<u32> = (0..8).map(|page| all.take(0, page)).collect();
            for &at in &taken {
                sharers.push(&mut all, at);
            }
            let mut list = List::<ByAge>::EMPTY;
            let mut queue = VecDeque::new();
            for (push, which) in steps {
                let at = taken[usize::from(which) % 8];
                match queue.iter().position(|&other| other == at) {
                    None if push => {
                        list.push(&mut all, at);
                        queue.push_back(at);
                    }
                    Some(place) if !push => {
                        list.remove(&mut all, at);
                        queue.remove(place);
                    }
                    _ => {}
                }
                prop_assert_eq!(list.len() as usize, queue.len());
                prop_assert_eq!(list.iter(&all).collect::<Vec<_>>(), queue.iter().copied().collect::<Vec<_>>());
                prop_assert_eq!(sharers.iter(&all).collect::<Vec<_>>(), taken.clone());
            }
        }
    }
}
