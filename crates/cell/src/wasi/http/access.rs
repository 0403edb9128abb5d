//! The objects of a guest's handles: made, read, changed and freed.

use super::object::{
    FutureResponse, FutureTrailers, IncomingBody, IncomingRequest, IncomingResponse, Object,
    OutgoingBody, OutgoingRequest, OutgoingResponse, Packed,
};
use crate::guest::Guest;
use crate::local;
use crate::wasi::rep;
use leasehold_kernel::Errno;
use leasehold_reclaim::Handle;
use wasmtime::Result;
use wasmtime::component::Resource;
use wasmtime::error::Context as _;

fn unpaid(errno: Errno) -> wasmtime::Error {
    wasmtime::Error::new(errno).context("the lease does not pay for an object of wasi:http")
}

/// Turns a refusal into a trap: the interface has no way to say it.
pub(super) fn paid<T>(result: Result<T, Errno>) -> Result<T> {
    result.map_err(unpaid)
}

/// Makes an object in the arena of the guest's execution.
///
/// # Errors
/// A trap when the lease does not pay for it.
pub(super) fn make<R: 'static>(guest: &Guest, object: Object) -> Result<Resource<R>> {
    let class = local::with(|local| local.classes.http);
    paid(rep::create(guest, class, object))
}

/// The handle of an object.
pub(super) fn handle<R: 'static>(guest: &Guest, resource: &Resource<R>) -> Result<Handle<Object>> {
    rep::find(guest, resource).context("unknown object of wasi:http")
}

/// A copy of an object.
pub(super) fn read<R: 'static>(guest: &Guest, resource: &Resource<R>) -> Result<Object> {
    rep::get(handle(guest, resource)?).context("unknown object of wasi:http")
}

/// Frees an object and returns it.
pub(super) fn take<R: 'static>(guest: &Guest, resource: &Resource<R>) -> Result<Object> {
    let handle = handle(guest, resource)?;
    rep::free(handle).context("unknown object of wasi:http")
}

/// The error of a handle whose object is of another kind, which is a defect.
pub(super) fn confused() -> wasmtime::Error {
    wasmtime::Error::msg("an object of wasi:http of another kind")
}

macro_rules! kind {
    ($read:ident, $take:ident, $variant:ident, $type:ty) => {
        /// A copy of an object of this kind.
        pub(super) fn $read<R: 'static>(guest: &Guest, resource: &Resource<R>) -> Result<$type> {
            match read(guest, resource)? {
                Object::$variant(object) => Ok(object),
                _ => Err(confused()),
            }
        }

        /// Frees an object of this kind and returns it.
        pub(super) fn $take<R: 'static>(guest: &Guest, resource: &Resource<R>) -> Result<$type> {
            match take(guest, resource)? {
                Object::$variant(object) => Ok(object),
                _ => Err(confused()),
            }
        }
    };
}

kind!(fields, take_fields, Fields, Packed);
kind!(request, take_request, Request, IncomingRequest);
kind!(
    outgoing_request,
    take_outgoing_request,
    OutgoingRequest,
    OutgoingRequest
);
kind!(options, take_options, Options, [Option<u64>; 3]);
kind!(response, take_response, Response, OutgoingResponse);
kind!(
    incoming_body,
    take_incoming_body,
    IncomingBody,
    IncomingBody
);
kind!(trailers, take_trailers, Trailers, FutureTrailers);
kind!(
    outgoing_body,
    take_outgoing_body,
    OutgoingBody,
    OutgoingBody
);

kind!(future, take_future, Future, FutureResponse);
kind!(
    incoming_response,
    take_incoming_response,
    IncomingResponse,
    IncomingResponse
);

/// Frees an outparam and returns the number of its exchange.
pub(super) fn take_outparam<R: 'static>(guest: &Guest, resource: &Resource<R>) -> Result<u64> {
    match take(guest, resource)? {
        Object::Outparam(exchange) => Ok(exchange),
        _ => Err(confused()),
    }
}
