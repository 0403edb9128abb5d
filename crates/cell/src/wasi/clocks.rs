//! `wasi:clocks/monotonic-clock` on the cell's own clock: a subscription is an object of the
//! tenant's arena that holds a deadline.

use super::Wasi;
use super::poll::{Source, subscribe};
use crate::clock;
use wasmtime::component::Resource;
use wasmtime_wasi::p2::DynPollable;
use wasmtime_wasi::p2::bindings::clocks::monotonic_clock::{Duration, Host, Instant};

impl Host for Wasi<'_> {
    fn now(&mut self) -> wasmtime::Result<Instant> {
        Ok(clock::monotonic_ns())
    }

    fn resolution(&mut self) -> wasmtime::Result<Duration> {
        Ok(1)
    }

    fn subscribe_instant(&mut self, when: Instant) -> wasmtime::Result<Resource<DynPollable>> {
        subscribe(self.0, Source::Deadline(when))
    }

    fn subscribe_duration(&mut self, after: Duration) -> wasmtime::Result<Resource<DynPollable>> {
        let when = clock::monotonic_ns().saturating_add(after);
        subscribe(self.0, Source::Deadline(when))
    }
}
