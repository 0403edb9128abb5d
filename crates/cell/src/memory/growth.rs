//! Growing a linear memory by something else than zeros.
//!
//! A guest has the pages of a [data set](super::data) or of a [region](super::region) in its memory
//! by growing it by them: what it grows by is its own to place, nothing that it has can be in the
//! way, and it is charged and limited as for any other page. The engine grows a memory by a call that
//! says no more than the new size. So what is to be there is left here right before.

use super::paged::PagedMemory;
use super::state::{CellMemory, with};
use leasehold_pager_linux::Error;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Grows a memory to so many bytes.
type Grow = Box<dyn FnOnce(&mut CellMemory, &mut PagedMemory, usize) -> Result<(), String>>;

thread_local! {
    /// What the next growth of a linear memory is.
    static NEXT: RefCell<Option<Grow>> = const { RefCell::new(None) };
}

/// Has `grow` grow a linear memory by what `show` puts there, all or nothing. Returns what `show`
/// did; `None` if `grow` did not come to grow a memory that pages.
pub(super) fn by<R: 'static>(
    show: impl FnOnce(&mut CellMemory, &mut PagedMemory, usize) -> Result<R, Error> + 'static,
    grow: impl FnOnce(),
) -> Option<Result<R, Error>> {
    let outcome = Rc::new(Cell::new(None));
    let told = outcome.clone();
    NEXT.set(Some(Box::new(move |cell, memory, bytes| {
        let shown = show(cell, memory, bytes);
        let why = shown.as_ref().err().map(ToString::to_string);
        told.set(Some(shown));
        why.map_or(Ok(()), Err)
    })));
    grow();
    NEXT.set(None);
    outcome.take()
}

/// Grows a memory to `bytes` bytes: by zeros, unless something else was left here.
pub(super) fn grow(memory: &mut PagedMemory, bytes: usize) -> wasmtime::Result<()> {
    let next = NEXT.take();
    let grown = with(|cell| match next {
        Some(show) => show(cell, memory, bytes).map_err(|why| wasmtime::format_err!("{why}")),
        None => cell.grow(memory, bytes).map_err(wasmtime::Error::from),
    });
    grown.unwrap_or_else(|| Err(wasmtime::format_err!("a memory grows on its cell's thread")))
}
