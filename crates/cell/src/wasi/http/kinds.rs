//! The resource types of `wasi:http`. No value of them exists: the host's side of each handle is an
//! [`Object`](super::object::Object) of the arena.

#![allow(
    unreachable_pub,
    reason = "the engine's bindings re-export them in a private module"
)]

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        $($(#[$doc])* #[derive(Debug)] pub enum $name {})*
    };
}

kinds! {
    /// `fields`, under all its names: headers, trailers.
    Fields,
    /// `incoming-request`.
    IncomingRequest,
    /// `outgoing-request`.
    OutgoingRequest,
    /// `request-options`.
    RequestOptions,
    /// `response-outparam`.
    ResponseOutparam,
    /// `incoming-response`.
    IncomingResponse,
    /// `incoming-body`.
    IncomingBody,
    /// `future-trailers`.
    FutureTrailers,
    /// `outgoing-response`.
    OutgoingResponse,
    /// `outgoing-body`.
    OutgoingBody,
    /// `future-incoming-response`.
    FutureIncomingResponse,
}
