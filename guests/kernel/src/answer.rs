//! The answers of calls, taken apart.

use leasehold_abi::{Errno, decode};

use crate::Selector;

/// The answer of a call that returns a number.
pub(crate) fn result(returned: i64) -> Result<u64, Errno> {
    decode(returned)
}

/// The answer of a call that returns nothing.
pub(crate) fn done(returned: i64) -> Result<(), Errno> {
    decode(returned).map(drop)
}

/// The answer of a call that returns a selector.
pub(crate) fn selector(returned: i64) -> Result<Selector, Errno> {
    // The interface promises a selector: it fits.
    decode(returned).map(|value| Selector::new(value as u32))
}
