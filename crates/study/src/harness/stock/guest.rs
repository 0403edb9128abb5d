//! What a store has of its guest.

use wasmtime::StoreLimits;
use wasmtime_wasi::p1::WasiP1Ctx;
use wasmtime_wasi::{WasiCtxView, WasiView};

/// The store's data.
pub(super) struct Guest {
    pub(super) wasi: WasiP1Ctx,
    pub(super) limits: StoreLimits,
}

impl WasiView for Guest {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        self.wasi.ctx()
    }
}
