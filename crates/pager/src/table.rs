//! Tables of things that come and go, named by entry and generation.

use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;

/// No number: ends chains, and stands for what is not there.
pub(crate) const NIL: u32 = u32::MAX;
/// An entry whose generation has come this far is not used again.
const LAST_GENERATION: u32 = u32::MAX - 1;

/// Names an element: an entry, and the generation that the entry had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// The entry of a `T` in its table, as long as the `T` is there.
pub(crate) struct At<T>(u32, PhantomData<fn() -> T>);

impl<T> At<T> {
    /// None: ends chains, and stands for what is not there.
    pub(crate) const NIL: Self = At(NIL, PhantomData);

    pub(crate) const fn new(index: u32) -> Self {
        At(index, PhantomData)
    }

    #[inline]
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }

    /// Itself, unless it is [`NIL`](Self::NIL).
    #[inline]
    pub(crate) fn some(self) -> Option<Self> {
        (self.0 != NIL).then_some(self)
    }

    #[inline]
    pub(crate) const fn is_nil(self) -> bool {
        self.0 == NIL
    }
}

impl<T> Clone for At<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for At<T> {}

impl<T> PartialEq for At<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<T> Eq for At<T> {}

impl<T> fmt::Debug for At<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[derive(Debug, Clone)]
struct Entry<T> {
    generation: u32,
    next_free: u32,
    value: Option<T>,
}

/// Elements at stable entries. Finding, adding and removing take constant time; adding allocates
/// if no entry is free.
#[derive(Debug, Clone)]
pub(crate) struct Table<T> {
    entries: Vec<Entry<T>>,
    free: u32,
}

impl<T> Table<T> {
    pub(crate) const fn new() -> Self {
        Table {
            entries: Vec::new(),
            free: NIL,
        }
    }

    pub(crate) fn add(&mut self, value: T) -> At<T> {
        let index = if self.free == NIL {
            self.entries.push(Entry {
                generation: 0,
                next_free: NIL,
                value: None,
            });
            self.entries.len() as u32 - 1
        } else {
            self.free
        };
        let entry = &mut self.entries[index as usize];
        entry.value = Some(value);
        self.free = core::mem::replace(&mut entry.next_free, NIL);
        At::new(index)
    }

    /// Takes an element that is there.
    pub(crate) fn remove(&mut self, at: At<T>) -> T {
        let entry = &mut self.entries[at.index()];
        let value = entry.value.take().expect("removed what is not there");
        entry.generation += 1;
        if entry.generation < LAST_GENERATION {
            entry.next_free = core::mem::replace(&mut self.free, at.0);
        }
        value
    }

    /// The entry of the element with this name, if it is still there.
    #[inline]
    pub(crate) fn find(&self, key: Key) -> Option<At<T>> {
        let entry = self.entries.get(key.index as usize)?;
        (entry.generation == key.generation && entry.value.is_some()).then_some(At::new(key.index))
    }

    /// Name of an element, which must be there.
    pub(crate) fn key(&self, at: At<T>) -> Key {
        Key {
            index: at.0,
            generation: self.entries[at.index()].generation,
        }
    }

    /// An element, which must be there.
    #[inline]
    pub(crate) fn at(&self, at: At<T>) -> &T {
        self.entries[at.index()]
            .value
            .as_ref()
            .expect("an element at this entry")
    }

    /// An element, which must be there.
    #[inline]
    pub(crate) fn at_mut(&mut self, at: At<T>) -> &mut T {
        self.entries[at.index()]
            .value
            .as_mut()
            .expect("an element at this entry")
    }

    /// All elements with their entries.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (At<T>, &T)> {
        self.entries
            .iter()
            .enumerate()
            .filter_map(|(index, entry)| Some((At::new(index as u32), entry.value.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn a_name_does_not_find_the_next_element_at_its_place() {
        let mut table = Table::new();
        let first = table.add('a');
        let first_key = table.key(first);
        table.remove(first);
        let second = table.add('b');
        assert_eq!(first, second);
        assert_eq!(table.find(first_key), None);
        assert_eq!(table.find(table.key(second)), Some(second));
        assert_eq!(*table.at(second), 'b');
    }
}
