//! What the two halves of an exchange share.

use crate::client::ClientHalf;
use crate::fields::Fields;
use crate::guest::GuestHalf;
use crate::head::{RequestHead, ResponseHead};
use crate::limits::ExchangeLimits;
use crate::timing::Clock;
use leasehold_crossing::{WakerSlot, ring};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// What both halves see. Each cell of it is written by one side, once.
pub(crate) struct Shared {
    pub(crate) id: u64,
    pub(crate) limits: ExchangeLimits,
    pub(crate) request: RequestHead,
    /// Set before the request's ring is finished.
    pub(crate) request_trailers: OnceLock<Fields>,
    pub(crate) response: OnceLock<ResponseHead>,
    /// Set before the response's ring is finished.
    pub(crate) response_trailers: OnceLock<Fields>,
    /// The client's side waits for the head of the response.
    pub(crate) head: WakerSlot,
    abandoned: AtomicBool,
    /// The guest's side waits for the end of the client's.
    pub(crate) abandonment: WakerSlot,
    pub(crate) clock: Clock,
}

impl Shared {
    pub(crate) fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Acquire)
    }

    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
        self.abandonment.wake();
    }
}

/// An exchange with this request, whose body is still to come, and its two halves. It holds at
/// most [`ExchangeLimits::held_bytes`], provided that the head of the request is within the limits;
/// the I/O thread has checked that.
pub fn exchange(limits: ExchangeLimits, request: RequestHead, id: u64) -> (ClientHalf, GuestHalf) {
    let window = limits.window_bytes as usize;
    let (request_writer, request_reader) = ring(window);
    let (response_writer, response_reader) = ring(window);
    let shared = Arc::new(Shared {
        id,
        limits,
        request,
        request_trailers: OnceLock::new(),
        response: OnceLock::new(),
        response_trailers: OnceLock::new(),
        head: WakerSlot::new(),
        abandoned: AtomicBool::new(false),
        abandonment: WakerSlot::new(),
        clock: Clock::start(),
    });
    (
        ClientHalf::new(shared.clone(), request_writer, response_reader),
        GuestHalf::new(shared, request_reader, response_writer),
    )
}
