//! The objects of `wasi:sockets` in the arena: one slot each, all of one size, without destructors.

use super::bindings::network::IpAddressFamily;
use leasehold_exchange::{CallError, KeepAlive};
use leasehold_reclaim::Handle;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// The host's side of a handle.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Object {
    /// `network`: what it may be used for is in the lease.
    Network,
    /// `resolve-address-stream`.
    LookUp(LookUp),
    /// `tcp-socket`.
    Tcp(Tcp),
    /// `udp-socket`.
    Udp(Udp),
    /// `incoming-datagram-stream`.
    Incoming(Incoming),
    /// `outgoing-datagram-stream`.
    Outgoing(Outgoing),
}

/// The addresses of a name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LookUp {
    pub(super) of: LookedUp,
    /// How many the guest was told.
    pub(super) told: u32,
}

/// Where the addresses of a name come from.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LookedUp {
    /// The name is an address.
    Itself(IpAddr),
    /// The call with this number.
    Call(u64),
}

/// A socket for a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tcp {
    pub(super) family: IpAddressFamily,
    pub(super) state: TcpState,
    /// Of its two streams those that the guest has: the socket must not be dropped before them.
    pub(super) streams: u8,
    pub(super) is_keeping_alive: bool,
    pub(super) keep_alive: KeepAlive,
    pub(super) hop_limit: u8,
}

/// How far a socket is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TcpState {
    Unconnected,
    /// The call with this number connects it.
    Connecting(u64, SocketAddr),
    Connected(Connection),
    /// There was no connection.
    Closed,
}

/// A connection that was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Connection {
    /// The number of its call.
    pub(super) call: u64,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
}

/// A socket for datagrams.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Udp {
    pub(super) family: IpAddressFamily,
    pub(super) state: UdpState,
    /// The only one that it exchanges datagrams with, if the guest said so.
    pub(super) peer: Option<SocketAddr>,
    /// Of its two streams those that the guest has: the socket must not be dropped before them.
    pub(super) streams: u8,
    pub(super) hop_limit: u8,
}

/// How far a socket for datagrams is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UdpState {
    Unbound,
    /// The call with this number binds it.
    Binding(u64),
    Bound(Binding),
}

/// A socket that is bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Binding {
    /// The number of its call.
    pub(super) call: u64,
    pub(super) local: SocketAddr,
}

impl Udp {
    /// A socket with what Linux has for a new one.
    pub(super) const fn new(family: IpAddressFamily) -> Self {
        Self {
            family,
            state: UdpState::Unbound,
            peer: None,
            streams: 0,
            hop_limit: 64,
        }
    }

    /// The call that binds it, or is it.
    pub(super) const fn call(&self) -> Option<u64> {
        match self.state {
            UdpState::Binding(call) | UdpState::Bound(Binding { call, .. }) => Some(call),
            UdpState::Unbound => None,
        }
    }
}

/// What a socket gets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Incoming {
    pub(super) socket: Handle<Object>,
    pub(super) call: u64,
    pub(super) peer: Option<SocketAddr>,
    /// An error that came behind datagrams which the guest has.
    pub(super) failed: Option<CallError>,
}

/// What a socket sends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outgoing {
    pub(super) socket: Handle<Object>,
    pub(super) call: u64,
    pub(super) family: IpAddressFamily,
    pub(super) peer: Option<SocketAddr>,
    /// Datagrams that the next call may send.
    pub(super) permitted: Option<u64>,
}

impl Tcp {
    /// A socket with what Linux has for a new one.
    pub(super) const fn new(family: IpAddressFamily) -> Self {
        Self {
            family,
            state: TcpState::Unconnected,
            streams: 0,
            is_keeping_alive: false,
            keep_alive: KeepAlive {
                idle: Duration::from_secs(7200),
                interval: Duration::from_secs(75),
                count: 9,
            },
            hop_limit: 64,
        }
    }

    /// The call that connects it, or is its connection.
    pub(super) const fn call(&self) -> Option<u64> {
        match self.state {
            TcpState::Connecting(call, _) | TcpState::Connected(Connection { call, .. }) => {
                Some(call)
            }
            TcpState::Unconnected | TcpState::Closed => None,
        }
    }
}
