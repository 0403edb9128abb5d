//! Tables whose places come into being when they are used first: a scheduler has room for as many servers and tasks as it
//! was made for, and takes memory for as many as there have been at once.

use alloc::vec::Vec;

use crate::id::Index;

/// The place at `index` of a table with room for it. It and those before it are `new` if they were not used before.
#[inline]
pub(crate) fn at_mut<T: Clone>(table: &mut Vec<T>, index: Index, new: T) -> &mut T {
    let index = index as usize;
    debug_assert!(
        index < table.capacity(),
        "there is no room for place {index}"
    );
    if index >= table.len() {
        table.resize(index + 1, new);
    }
    &mut table[index]
}

#[cfg(test)]
mod tests {
    use super::at_mut;
    use crate::heaps::Heaps;
    use crate::lists::Lists;
    use alloc::vec::Vec;

    #[test]
    fn a_table_has_the_places_up_to_the_last_that_was_used_and_moves_nothing() {
        let mut table = Vec::with_capacity(1000);
        let room = table.as_ptr();
        *at_mut(&mut table, 3, 7) = 1;
        *at_mut(&mut table, 1, 8) = 2;
        assert_eq!(table, [7, 2, 7, 1]);
        *at_mut(&mut table, 999, 9) = 3;
        assert_eq!((table.len(), table.as_ptr()), (1000, room));
    }

    #[test]
    fn what_was_never_used_is_empty_and_in_no_list_and_no_heap() {
        let mut lists = Lists::new(10, 10);
        assert_eq!((lists.first(9), lists.next(9)), (None, None));
        assert!(lists.is_empty(9) && !lists.has_several(9) && !lists.contains(9));
        lists.remove(9);
        lists.push_back(7, 8);
        assert_eq!((lists.pop_front(9), lists.pop_front(7)), (None, Some(8)));
        let mut heaps = Heaps::new(10, 10);
        assert!(heaps.first(9).is_none() && !heaps.contains(9));
        heaps.remove(9, 9);
        heaps.insert(7, 8, 5);
        assert_eq!(heaps.pop_until(9, 5), None);
        assert_eq!(heaps.pop_until(7, 5), Some(8));
    }
}
