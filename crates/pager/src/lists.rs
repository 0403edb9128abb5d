//! Mappings of pages, and the lists that they are on.
//!
//! A [`Mapping`] records that one reservation has one page in its page table. It carries two pairs
//! of links (SPC fig. 7): its place in the active or inactive list of the reservation, and its
//! place in the ownership list of the page. Lists are intrusive, so that every move is O(1) and
//! allocates nothing.

use alloc::vec::Vec;
use core::marker::PhantomData;

use crate::attachment::Attachment;
use crate::page::PageNumber;
use crate::table::At;

/// Which list of its reservation a mapping is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listing {
    /// The active list: mapped recently, or referenced at the last check.
    Active,
    /// The inactive list: the next victims.
    Inactive,
    /// No list: under an eviction lock, or charged to another reservation (first touch).
    Unlisted,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Links {
    next: At<Mapping>,
    previous: At<Mapping>,
}

const UNLINKED: Links = Links {
    next: At::NIL,
    previous: At::NIL,
};

/// One page in the page table of one reservation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mapping {
    pub(crate) attachment: At<Attachment>,
    /// Number of the page in its area.
    pub(crate) page: PageNumber,
    pub(crate) listing: Listing,
    age: Links,
    sharers: Links,
}

/// All mappings, used and unused.
#[derive(Debug, Clone)]
pub(crate) struct Mappings {
    slots: Vec<Mapping>,
    /// The unused ones are a stack by their next by age: the one used last is the one most likely in the processor's cache.
    unused: At<Mapping>,
}

impl Mappings {
    /// None, with memory for so many.
    pub(crate) fn with_room_for(mappings: usize) -> Self {
        Mappings {
            slots: Vec::with_capacity(mappings),
            unused: At::NIL,
        }
    }

    /// Makes room for `more` mappings, so that none has to be allocated at a fault.
    pub(crate) fn grow(&mut self, more: u32) {
        self.slots.reserve(more as usize);
        for _ in 0..more {
            let at = At::new(self.slots.len() as u32);
            self.slots.push(Mapping {
                attachment: At::NIL,
                page: PageNumber::new(u32::MAX),
                listing: Listing::Unlisted,
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

    #[inline]
    pub(crate) fn take(&mut self, attachment: At<Attachment>, page: PageNumber) -> At<Mapping> {
        // Room was made for every frame that could be mapped.
        let at = self.unused.some().expect("room for another mapping");
        let taken = &mut self.slots[at.index()];
        self.unused = taken.age.next;
        *taken = Mapping {
            attachment,
            page,
            listing: Listing::Unlisted,
            age: UNLINKED,
            sharers: UNLINKED,
        };
        at
    }

    #[inline]
    pub(crate) fn give_back(&mut self, at: At<Mapping>) {
        let next = core::mem::replace(&mut self.unused, at);
        let mapping = self.at_mut(at);
        mapping.attachment = At::NIL;
        mapping.age.next = next;
    }

    #[inline]
    pub(crate) fn at(&self, at: At<Mapping>) -> &Mapping {
        &self.slots[at.index()]
    }

    #[inline]
    pub(crate) fn at_mut(&mut self, at: At<Mapping>) -> &mut Mapping {
        &mut self.slots[at.index()]
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
    first: At<Mapping>,
    last: At<Mapping>,
    len: u32,
    chain: PhantomData<C>,
}

impl<C: Chain> List<C> {
    pub(crate) const EMPTY: Self = List {
        first: At::NIL,
        last: At::NIL,
        len: 0,
        chain: PhantomData,
    };

    #[inline]
    pub(crate) const fn len(&self) -> u32 {
        self.len
    }

    #[inline]
    pub(crate) fn first(&self) -> Option<At<Mapping>> {
        self.first.some()
    }

    /// Appends a mapping that is on no list of this chain.
    #[inline]
    pub(crate) fn push(&mut self, all: &mut Mappings, at: At<Mapping>) {
        *C::links(all.at_mut(at)) = Links {
            next: At::NIL,
            previous: self.last,
        };
        if self.last.is_nil() {
            self.first = at;
        } else {
            C::links(all.at_mut(self.last)).next = at;
        }
        self.last = at;
        self.len += 1;
    }

    /// Takes a mapping off this list.
    #[inline]
    pub(crate) fn remove(&mut self, all: &mut Mappings, at: At<Mapping>) {
        let Links { next, previous } = core::mem::replace(C::links(all.at_mut(at)), UNLINKED);
        if previous.is_nil() {
            self.first = next;
        } else {
            C::links(all.at_mut(previous)).next = next;
        }
        if next.is_nil() {
            self.last = previous;
        } else {
            C::links(all.at_mut(next)).previous = previous;
        }
        self.len -= 1;
    }

    /// The mapping after `at`.
    #[inline]
    pub(crate) fn after(all: &Mappings, at: At<Mapping>) -> Option<At<Mapping>> {
        C::peek(all.at(at)).next.some()
    }

    /// The mappings of the list, the first first.
    pub(crate) fn iter(self, all: &Mappings) -> impl Iterator<Item = At<Mapping>> {
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
    use crate::page::PageNumber;
    use crate::table::At;

    proptest! {
        /// Both chains at once: a move on one leaves the other as it was.
        #[test]
        fn a_list_does_what_a_queue_does(steps in prop::collection::vec(any::<(bool, u8)>(), 0..200)) {
            let mut all = Mappings::with_room_for(8);
            all.grow(8);
            let mut sharers = List::<BySharer>::EMPTY;
            let taken: Vec<_> = PageNumber::range(0..8).map(|page| all.take(At::NIL, page)).collect();
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
