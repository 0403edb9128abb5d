//! `wasi:http` 0.2 on objects of the tenant's arena.
//!
//! Its answers are those of `wasmtime-wasi-http`, except where a bound requires others: fields are
//! at most 16 KiB, and the bytes that wait in a body are those of the exchange's window. A request
//! that a guest sends goes to the I/O thread of outgoing requests ([`outgoing`]), and without a list in the
//! lease none does. What `wasmtime-wasi-http` makes of a request are boxes, maps and channels
//! whose destructors act; here a resource is one slot of the arena, without a destructor
//! ([`object`]), fields are one extent ([`packed`]), and bodies are the rings of the exchange that
//! the I/O thread holds ([`exchange`]).
//!
//! The resources of an execution that answers requests are in a group of its own, so that the end
//! of the execution gives back what the guest left, whatever it was.

mod access;
pub(crate) mod bindings;
mod bodies;
pub(crate) mod current;
pub(crate) mod exchange;
mod fields;
mod kinds;
pub(crate) mod object;
pub(crate) mod outgoing;
mod packed;
mod requests;
mod responses;
pub(crate) mod serve;
pub(crate) mod streams;
mod syntax;

use super::view::{OfGuest, Wasi};
use crate::guest::Guest;
use crate::steps::{mark, step};
use bindings::outgoing_handler;
use bindings::types::{self, ErrorCode};
use wasmtime::Result;
use wasmtime::component::{Linker, Resource};
use wasmtime_wasi::p2::IoError;

impl types::Host for Wasi<'_> {
    fn http_error_code(&mut self, error: Resource<IoError>) -> Result<Option<ErrorCode>> {
        mark(step!("wasi:http/types", "http-error-code"));
        let error = self.0.charged_table().get(&error)?;
        Ok(error.downcast_ref::<ErrorCode>().cloned())
    }
}

/// Links `wasi:http`.
///
/// # Errors
/// When a function is linked twice, which is a defect.
pub(super) fn link(linker: &mut Linker<Guest>) -> Result<()> {
    let options = types::LinkOptions::default();
    types::add_to_linker::<Guest, OfGuest>(linker, &options, |guest| Wasi(guest))?;
    outgoing_handler::add_to_linker::<Guest, OfGuest>(linker, |guest| Wasi(guest))
}
