//! WASI's monotonic clock is the cell's own: guests' readings, their sleeps and the scheduler use
//! the same nanoseconds, and all tenants see the same clock.
//!
//! A subscription is an object of the tenant's arena that holds a deadline.

use super::objects::Source;
use super::poll::subscribe;
use super::view::Wasi;
use crate::clock;
use crate::steps::{mark, step};
use wasmtime::component::Resource;
use wasmtime_wasi::HostMonotonicClock;
use wasmtime_wasi::p2::DynPollable;
use wasmtime_wasi::p2::bindings::clocks::monotonic_clock::{Duration, Host, Instant};

/// The cell's clock, as preview 1 reads it.
pub(crate) struct CellClock;

impl HostMonotonicClock for CellClock {
    fn resolution(&self) -> u64 {
        1
    }

    fn now(&self) -> u64 {
        clock::monotonic_ns()
    }
}

impl Host for Wasi<'_> {
    fn now(&mut self) -> wasmtime::Result<Instant> {
        mark(step!("wasi:clocks/monotonic-clock", "now"));
        Ok(clock::monotonic_ns())
    }

    fn resolution(&mut self) -> wasmtime::Result<Duration> {
        mark(step!("wasi:clocks/monotonic-clock", "resolution"));
        Ok(1)
    }

    fn subscribe_instant(&mut self, when: Instant) -> wasmtime::Result<Resource<DynPollable>> {
        mark(step!("wasi:clocks/monotonic-clock", "subscribe-instant"));
        subscribe(self.0, Source::Deadline(when))
    }

    fn subscribe_duration(&mut self, after: Duration) -> wasmtime::Result<Resource<DynPollable>> {
        mark(step!("wasi:clocks/monotonic-clock", "subscribe-duration"));
        let when = clock::monotonic_ns().saturating_add(after);
        subscribe(self.0, Source::Deadline(when))
    }
}
