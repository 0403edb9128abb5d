//! The exchange that a guest answers now.

use super::exchange::Exchange;
use leasehold_exchange::{TRACEPARENT, TraceParent};
use std::sync::Arc;

/// The exchange that an execution answers.
#[derive(Default)]
pub(crate) struct Http {
    current: Option<Arc<Exchange>>,
    responses: u64,
}

impl Http {
    /// Begins with another exchange.
    pub(super) fn begin(&mut self, exchange: Arc<Exchange>) {
        self.current = Some(exchange);
    }

    /// The current exchange, if it has this number.
    pub(super) fn exchange(&self, number: u64) -> Option<Arc<Exchange>> {
        let current = self.current.as_ref();
        current.filter(|own| own.number() == number).cloned()
    }

    /// The trace of the current exchange, if it has one.
    pub(super) fn trace(&self) -> Option<TraceParent> {
        let current = self.current.as_ref()?;
        current.with_half(|half| {
            let value = half.request().fields.get(TRACEPARENT)?;
            TraceParent::parse(value)
        })?
    }

    /// The number of the current exchange; 0 without one.
    pub(super) fn number(&self) -> u64 {
        self.current.as_ref().map_or(0, |own| own.number())
    }

    /// A number for another response.
    pub(super) fn next_response(&mut self) -> u64 {
        self.responses += 1;
        self.responses
    }
}
