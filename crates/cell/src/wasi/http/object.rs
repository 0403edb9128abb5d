//! The objects of `wasi:http` in the arena: one slot each, all of one size.
//!
//! Nothing in an object has a destructor. What a guest leaves behind goes with the group of its
//! execution, as a whole.

use leasehold_reclaim::{Extent, Handle};

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
    /// `future-incoming-response`.
    Future(FutureResponse),
    /// `incoming-response`.
    IncomingResponse(IncomingResponse),
}

/// What a message that the guest receives is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The exchange with this number, whose request it is.
    Exchange(u64),
    /// The call with this number, whose response it is.
    Call(u64),
}

/// What a message that the guest sends is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sink {
    /// The exchange with the first number, and the response with the second.
    Response(u64, u64),
    /// The call with this number.
    Call(u64),
}

/// The response to a request that a guest has sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FutureResponse {
    pub(super) call: u64,
    /// The guest has got it: it has a handle of its own.
    pub(super) is_taken: bool,
}

/// A response that a guest has got.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IncomingResponse {
    pub(super) call: u64,
    pub(super) status: u16,
    pub(super) fields: Packed,
    pub(super) is_consumed: bool,
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

/// A request that a guest sends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutgoingRequest {
    pub(super) method: Method,
    pub(super) path: Option<Text>,
    pub(super) scheme: Option<Scheme>,
    pub(super) authority: Option<Text>,
    pub(super) fields: Packed,
    pub(super) has_body: bool,
    /// The call that its body is of, once the guest has taken that.
    pub(super) call: Option<u64>,
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
    /// Its body, once the guest has taken that.
    pub(super) body: Option<Handle<Object>>,
}

/// The body of a message that a guest receives.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IncomingBody {
    pub(super) of: Origin,
    pub(super) stream: Child,
}

/// The trailers of such a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FutureTrailers {
    pub(super) of: Origin,
    pub(super) is_consumed: bool,
}

/// The body of a response, or of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutgoingBody {
    /// What it is of; `None` of a request that will not be sent.
    pub(super) of: Option<Sink>,
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

/// A text, in an extent of its own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Text(pub(super) Option<Extent>);

/// Fields in an extent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packed {
    pub(super) extent: Option<Extent>,
    /// Bytes of the extent that are used.
    pub(super) used: u32,
    /// Entries.
    pub(super) count: u32,
    pub(super) is_immutable: bool,
}
