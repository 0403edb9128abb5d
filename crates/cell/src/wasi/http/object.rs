//! The objects of `wasi:http` in the arena: one slot each, all of one size.
//!
//! Nothing in an object has a destructor. What a guest leaves behind goes with the group of its
//! execution, as a whole.

use super::packed::{Packed, Text};
use crate::guest::Guest;
use crate::local;
use crate::wasi::rep;
use leasehold_kernel::Errno;
use leasehold_reclaim::Handle;
use wasmtime::Result;
use wasmtime::component::Resource;
use wasmtime::error::Context as _;

/// The host's side of a handle.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Object {
    /// `fields`.
    Fields(Packed),
    /// `incoming-request`.
    Request(IncomingRequest),
    /// `outgoing-request`.
    OutgoingRequest(OutgoingRequest),
    /// `request-options`: the times to connect, to the first byte, and between bytes, ns.
    Options([Option<u64>; 3]),
    /// `response-outparam`, of the exchange with this number.
    Outparam(u64),
    /// `outgoing-response`.
    Response(OutgoingResponse),
    /// `incoming-body`.
    IncomingBody(IncomingBody),
    /// `future-trailers`.
    Trailers(FutureTrailers),
    /// `outgoing-body`.
    OutgoingBody(OutgoingBody),
}

/// A request that a guest answers. Its strings are in one text: the method, the authority, and the path.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IncomingRequest {
    /// The exchange that it is of.
    pub(super) exchange: u64,
    pub(super) head: Text,
    pub(super) method: u32,
    pub(super) authority: u32,
    pub(super) is_https: bool,
    pub(super) fields: Packed,
    pub(super) is_consumed: bool,
}

/// A request that a guest would send.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutgoingRequest {
    pub(super) method: Method,
    pub(super) path: Option<Text>,
    pub(super) scheme: Option<Scheme>,
    pub(super) authority: Option<Text>,
    pub(super) fields: Packed,
    pub(super) has_body: bool,
}

/// A method: one that the interface names, by its place there, or another.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Method {
    Named(u8),
    Other(Text),
}

/// A scheme.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Scheme {
    Http,
    Https,
    Other(Text),
}

/// A response that a guest makes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutgoingResponse {
    /// Its number among those of its execution: which response a body belongs to.
    pub(super) number: u64,
    pub(super) status: u16,
    pub(super) fields: Packed,
    pub(super) has_body: bool,
}

/// The body of a request that a guest answers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IncomingBody {
    pub(super) exchange: u64,
    pub(super) stream: Child,
}

/// The trailers of a request that a guest answers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FutureTrailers {
    pub(super) exchange: u64,
    pub(super) is_consumed: bool,
}

/// The body of a response, or of a request that will be denied.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutgoingBody {
    /// The exchange and the response that it is of; `None` of a request.
    pub(super) of: Option<(u64, u64)>,
    /// The bytes that its `content-length` states.
    pub(super) expected: Option<u64>,
    pub(super) written: u64,
    pub(super) stream: Child,
}

/// The stream of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Child {
    /// The guest has not taken it.
    Unborn,
    /// The guest has it: the body must not be dropped before it.
    Alive,
    /// The guest has dropped it.
    Dropped,
}

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
    get(handle(guest, resource)?).context("unknown object of wasi:http")
}

/// A copy of the object that a handle names, if it is there.
pub(super) fn get(handle: Handle<Object>) -> Option<Object> {
    local::with(|local| local.kernel.groups().get(handle).copied())
}

/// Puts `object` in the place of the one that a handle names, if it is there.
pub(super) fn put(handle: Handle<Object>, object: Object) {
    local::with(|local| {
        if let Some(place) = local.kernel.groups_mut().get_mut(handle) {
            *place = object;
        }
    });
}

/// Frees an object and returns it.
pub(super) fn take<R: 'static>(guest: &Guest, resource: &Resource<R>) -> Result<Object> {
    let handle = handle(guest, resource)?;
    let taken = local::with(|local| local.kernel.groups_mut().free(handle));
    taken.context("unknown object of wasi:http")
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

/// Frees an outparam and returns the number of its exchange.
pub(super) fn take_outparam<R: 'static>(guest: &Guest, resource: &Resource<R>) -> Result<u64> {
    match take(guest, resource)? {
        Object::Outparam(exchange) => Ok(exchange),
        _ => Err(confused()),
    }
}
