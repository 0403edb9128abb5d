//! Maps of the cell's thread that never grow: what is looked up for each tenant, or each execution.
//!
//! A map that is full moves all its entries to one of twice the size: a step as long as there are tenants. So each of these is
//! made as large as the cell lets it become; memory is touched only where entries are. Large values are to be boxed, since
//! entries are moved within the table when many were removed.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::ops::{Deref, DerefMut};

/// A map with room for so many entries from the beginning.
#[derive(Debug)]
pub(crate) struct FixedMap<K, V> {
    map: HashMap<K, V>,
    most: usize,
}

impl<K: Eq + Hash, V> FixedMap<K, V> {
    /// An empty map that has at most `most` entries.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            map: HashMap::with_capacity(most),
            most,
        }
    }

    /// Adds an entry, or replaces the value of one, which is returned.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        let before = self.map.insert(key, value);
        check(self.map.len(), self.most);
        before
    }

    /// The value of a key, made if it has none.
    pub(crate) fn or_default(&mut self, key: K) -> &mut V
    where
        V: Default,
    {
        let (known, most) = (self.map.len(), self.most);
        match self.map.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(free) => {
                check(known + 1, most);
                free.insert(V::default())
            }
        }
    }
}

fn check(entries: usize, most: usize) {
    debug_assert!(entries <= most, "{entries} entries of {most}");
}

impl<K, V> Deref for FixedMap<K, V> {
    type Target = HashMap<K, V>;

    fn deref(&self) -> &HashMap<K, V> {
        &self.map
    }
}

impl<K, V> DerefMut for FixedMap<K, V> {
    fn deref_mut(&mut self) -> &mut HashMap<K, V> {
        &mut self.map
    }
}

#[cfg(test)]
mod tests {
    use super::FixedMap;

    #[test]
    fn a_map_never_moves_to_a_larger_table_however_often_all_its_entries_change() {
        let mut map = FixedMap::new(100);
        let room = map.capacity();
        for number in 0..100_000_u64 {
            map.insert(number, number);
            *map.or_default(number) += 1;
            if let Some(old) = number.checked_sub(99) {
                assert_eq!(map.remove(&old), Some(old + 1));
            }
            // Less while removed entries take places: they are freed within the table.
            assert!(map.capacity() <= room);
        }
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "3 entries of 2")]
    fn more_entries_than_it_may_have_are_a_defect() {
        let mut map = FixedMap::new(2);
        for number in 0..3 {
            map.insert(number, ());
        }
    }
}
