//! The exchange that a guest answers now, and the requests that it sends.

use super::bindings::types::ErrorCode;
use super::exchange::Exchange;
use super::outgoing::OutgoingCall;
use crate::steps::caps::REQUESTS;
use crate::wasi::imports::Outbound;
use std::sync::Arc;

/// The exchange that an execution answers, and its calls.
#[derive(Default)]
pub(crate) struct Http {
    current: Option<Arc<Exchange>>,
    responses: u64,
    /// Those under way, at most as many as the lease allows.
    calls: Vec<Arc<OutgoingCall>>,
    opened: u64,
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

    /// The number of the current exchange; 0 without one.
    pub(super) fn number(&self) -> u64 {
        self.current.as_ref().map_or(0, |own| own.number())
    }

    /// A call that was not sent yet.
    ///
    /// # Errors
    /// When there is no place for it, or the lease does not pay for it.
    pub(super) fn open_call(&mut self, outbound: &Outbound) -> Result<u64, ErrorCode> {
        if self.calls.len() >= REQUESTS.size() {
            return Err(ErrorCode::ConnectionLimitReached);
        }
        let call = OutgoingCall::open(self.opened + 1, outbound)?;
        self.opened += 1;
        self.calls.push(call);
        Ok(self.opened)
    }

    /// The call with this number, unless it is over.
    pub(crate) fn call(&self, number: u64) -> Option<Arc<OutgoingCall>> {
        let mut calls = self.calls.iter();
        calls.find(|call| call.number() == number).cloned()
    }

    /// The call with this number is over.
    pub(super) fn end_call(&mut self, number: u64) {
        let at = self.calls.iter().position(|call| call.number() == number);
        if let Some(at) = at {
            self.calls.swap_remove(at).end();
        }
    }

    /// A number for another response.
    pub(super) fn next_response(&mut self) -> u64 {
        self.responses += 1;
        self.responses
    }
}
