//! Growing a linear memory by something else than zeros.
//!
//! A guest maps a [data set](super::data) or a [region](super::region) by growing its memory by its
//! pages. The new pages follow the memory, collide with nothing, and are charged and limited like
//! any other page. The engine's call for growth states only the new size. The contents of the
//! growth are therefore stored here right before the call.

use super::paged::PagedMemory;
use super::state::{CellMemory, with};
use leasehold_pager_linux::Error;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Grows a memory to so many bytes.
type Grow = Box<dyn FnOnce(&mut CellMemory, &mut PagedMemory, usize) -> wasmtime::Result<()>>;

thread_local! {
    /// The contents of the next growth of a linear memory.
    static NEXT: RefCell<Option<Grow>> = const { RefCell::new(None) };
}

/// Makes `grow` grow a linear memory by what `show` attaches, all or nothing. Returns the result of
/// `show`; `None` if `grow` grew no paging memory.
pub(super) fn by<R: 'static>(
    show: impl FnOnce(&mut CellMemory, &mut PagedMemory, usize) -> Result<R, Error> + 'static,
    grow: impl FnOnce(),
) -> Option<Result<R, Error>> {
    let outcome = Rc::new(Cell::new(None));
    let told = outcome.clone();
    NEXT.set(Some(Box::new(move |cell, memory, bytes| {
        let shown = show(cell, memory, bytes);
        let why = shown.as_ref().err().map(told_again);
        told.set(Some(shown));
        why.map_or(Ok(()), Err)
    })));
    grow();
    NEXT.set(None);
    outcome.take()
}

/// An error for the engine, of which the caller has the original: what a share refused is known by it, too.
fn told_again(error: &Error) -> wasmtime::Error {
    match *error {
        Error::Mappings {
            needed,
            left,
            share,
        } => wasmtime::Error::from(Error::Mappings {
            needed,
            left,
            share,
        }),
        _ => wasmtime::format_err!("{error}"),
    }
}

/// The value of `memory.mappings` with which a growth that failed would not have been refused for that.
pub(crate) fn mappings_enough(error: &wasmtime::Error) -> Option<u64> {
    match error.downcast_ref()? {
        Error::Mappings {
            needed,
            left,
            share,
        } => Some(u64::from(*share) + u64::from(needed.saturating_sub(*left))),
        _ => None,
    }
}

/// Grows a memory to `bytes` bytes: by the stored contents, or by zeros.
pub(super) fn grow(memory: &mut PagedMemory, bytes: usize) -> wasmtime::Result<()> {
    let next = NEXT.take();
    let grown = with(|cell| match next {
        Some(show) => show(cell, memory, bytes),
        None => cell.grow(memory, bytes).map_err(wasmtime::Error::from),
    });
    grown.unwrap_or_else(|| Err(wasmtime::format_err!("a memory grows on its cell's thread")))
}
