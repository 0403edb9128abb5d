//! The objects of `wasi:sockets` in the arena: one slot each, all of one size, without destructors.

use super::bindings::network::IpAddressFamily;
use leasehold_exchange::KeepAlive;
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
