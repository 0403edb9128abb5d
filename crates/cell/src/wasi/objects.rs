//! What is in the arena of a tenant for WASI.

use super::http::object::Origin;
use super::sockets::object::Object as Socket;
use crate::host::fs::window::DirectoryPosition;
use leasehold_reclaim::{Extent, Handle};

/// What a pollable was made for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Subscription {
    /// An event.
    To(Source),
    /// Whatever this socket is about when it is waited for: one pollable is enough for all that a socket ever does.
    Socket(Handle<Socket>),
}

impl Subscription {
    /// The place of the stream that it waits for.
    pub(super) fn stream(self) -> Option<u32> {
        match self {
            Self::To(source) => source.stream(),
            Self::Socket(_) => None,
        }
    }
}

/// The event that is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// A point of the monotonic clock, ns.
    Deadline(u64),
    /// The input stream at this place of the resource table.
    Input(u32),
    /// The output stream at this place of the resource table.
    Output(u32),
    /// The trailers of a message.
    Trailers(Origin),
    /// The response of the call with this number.
    Response(u64),
    /// What comes to the socket for datagrams that this call is.
    Datagram(u64),
    /// Room for what that socket is to send.
    DatagramRoom(u64),
}

impl Source {
    /// The place of the stream that it waits for.
    fn stream(self) -> Option<u32> {
        match self {
            Self::Deadline(_)
            | Self::Trailers(_)
            | Self::Response(_)
            | Self::Datagram(_)
            | Self::DatagramRoom(_) => None,
            Self::Input(place) | Self::Output(place) => Some(place),
        }
    }
}

/// A listing: entries of (kind, length of the name, name) in `window`, of which `next` is the
/// next, and where in the directory the next window begins.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Listing {
    pub(super) window: Extent,
    pub(super) used: usize,
    pub(super) next: usize,
    pub(super) place: DirectoryPosition,
    /// The directory's number in the guest's table, which no other descriptor has.
    pub(super) directory: u32,
}

/// A bucket of `wasi:keyvalue`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bucket {
    /// Which of the tenant's stores it is: there is one.
    _store: u32,
}

impl Bucket {
    /// The store that a tenant has.
    pub(crate) const ONLY: Self = Self { _store: 0 };
}
