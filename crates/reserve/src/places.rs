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
