//! A guest, as the WASI interfaces see it.

use crate::guest::Guest;
use wasmtime::component::HasData;
use wasmtime_wasi::{WasiCtxView, WasiView};

/// A guest, seen by the WASI interfaces that are implemented here.
pub(crate) struct Wasi<'a>(pub(crate) &'a mut Guest);

pub(super) struct OfGuest;

impl HasData for OfGuest {
    type Data<'a> = Wasi<'a>;
}

impl WasiView for Guest {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        self.charged_wasi().ctx()
    }
}
