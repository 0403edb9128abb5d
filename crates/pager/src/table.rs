//! Tables of things that come and go, named by place and generation.

use alloc::vec::Vec;

/// No place: ends chains, and stands for what is not there.
pub(crate) const NIL: u32 = u32::MAX;
/// A place whose generation has come this far is not used again.
const LAST_GENERATION: u32 = u32::MAX - 1;

/// Names an element: a place, and the generation that the place had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

#[derive(Debug, Clone)]
struct Place<T> {
    generation: u32,
    next_free: u32,
    value: Option<T>,
}

/// Elements at stable places. Finding, adding and removing take constant time; adding allocates
/// if no place is free.
#[derive(Debug, Clone)]
pub(crate) struct Table<T> {
    places: Vec<Place<T>>,
    free: u32,
}

impl<T> Table<T> {
    pub(crate) const fn new() -> Self {
        Table {
            places: Vec::new(),
            free: NIL,
        }
    }

    pub(crate) fn add(&mut self, value: T) -> Key {
        let index = if self.free == NIL {
            self.places.push(Place {
                generation: 0,
                next_free: NIL,
                value: None,
            });
            self.places.len() as u32 - 1
        } else {
            self.free
        };
        let place = &mut self.places[index as usize];
        place.value = Some(value);
        self.free = core::mem::replace(&mut place.next_free, NIL);
        Key {
            index,
            generation: place.generation,
        }
    }

    /// Takes an element that is there.
    pub(crate) fn remove(&mut self, index: u32) -> T {
        let place = &mut self.places[index as usize];
        let value = place.value.take().expect("removed what is not there");
        place.generation += 1;
        if place.generation < LAST_GENERATION {
            place.next_free = core::mem::replace(&mut self.free, index);
        }
        value
    }

    /// The place of the element with this name, if it is still there.
    #[inline]
    pub(crate) fn find(&self, key: Key) -> Option<u32> {
        let place = self.places.get(key.index as usize)?;
        (place.generation == key.generation && place.value.is_some()).then_some(key.index)
    }

    /// Name of the element at a place; there must be one.
    pub(crate) fn key(&self, index: u32) -> Key {
        Key {
            index,
            generation: self.places[index as usize].generation,
        }
    }

    /// The element at a place; there must be one.
    #[inline]
    pub(crate) fn at(&self, index: u32) -> &T {
        self.places[index as usize]
            .value
            .as_ref()
            .expect("an element at this place")
    }

    /// The element at a place; there must be one.
    #[inline]
    pub(crate) fn at_mut(&mut self, index: u32) -> &mut T {
        self.places[index as usize]
            .value
            .as_mut()
            .expect("an element at this place")
    }

    /// All elements with their places.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.places
            .iter()
            .enumerate()
            .filter_map(|(index, place)| Some((index as u32, place.value.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn a_name_does_not_find_the_next_element_at_its_place() {
        let mut table = Table::new();
        let first = table.add('a');
        table.remove(first.index);
        let second = table.add('b');
        assert_eq!(first.index, second.index);
        assert_eq!(table.find(first), None);
        assert_eq!(table.find(second).map(|at| *table.at(at)), Some('b'));
    }
}
