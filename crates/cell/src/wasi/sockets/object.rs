//! The objects of `wasi:sockets` in the arena: one slot each, all of one size, without destructors.

use super::bindings::network::IpAddressFamily;
use leasehold_exchange::{CallError, ConnectionOptions, KeepAlive};
use leasehold_reclaim::Handle;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// How many connections may wait at a socket that listens, unless the guest says so; the lease may allow less.
const BACKLOG: u32 = 128;

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

/// The event that a socket waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// None: it goes on at once.
    Nothing,
    /// The answer to the call with this number.
    Call(u64),
    /// A point of the monotonic clock, ns.
    Time(u64),
}

impl Object {
    /// The event that a socket waits for.
    pub(crate) const fn awaited(&self) -> Awaited {
        match self {
            Self::Tcp(tcp) => tcp.awaited(),
            Self::Udp(udp) => udp.awaited(),
            Self::Network | Self::LookUp(_) | Self::Incoming(_) | Self::Outgoing(_) => {
                Awaited::Nothing
            }
        }
    }
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

/// A socket for a connection, or one that listens.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tcp {
    pub(super) family: IpAddressFamily,
    pub(super) state: TcpState,
    /// Of its two streams those that the guest has: the socket must not be dropped before them.
    pub(super) streams: u8,
    pub(super) is_keeping_alive: bool,
    pub(super) keep_alive: KeepAlive,
    pub(super) hop_limit: u8,
    /// How many connections may wait while it listens.
    pub(super) backlog: u32,
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
    /// It was told this address, where the lease lets it listen.
    Binding(SocketAddr),
    Bound(SocketAddr),
    /// The call with this number makes it listen.
    Beginning(u64, SocketAddr),
    Listening(Listening),
}

/// A socket that listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Listening {
    /// The number of the call that keeps it so.
    pub(super) call: u64,
    pub(super) at: SocketAddr,
    pub(super) next: Next,
}

/// The next connection of a socket that listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// The call with this number waits for it.
    Call(u64),
    /// There was no place for such a call, or the lease did not pay for it: it is tried again from this point of the monotonic
    /// clock on, ns.
    NotBefore(u64),
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

    const fn awaited(&self) -> Awaited {
        match self.state {
            UdpState::Binding(call) => Awaited::Call(call),
            UdpState::Unbound | UdpState::Bound(_) => Awaited::Nothing,
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
            backlog: BACKLOG,
        }
    }

    /// Whether it has neither connected nor listened yet.
    pub(super) const fn is_new(&self) -> bool {
        matches!(
            self.state,
            TcpState::Unconnected | TcpState::Binding(_) | TcpState::Bound(_)
        )
    }

    /// What it wants of a connection.
    pub(super) fn options(&self) -> ConnectionOptions {
        ConnectionOptions {
            keep_alive: self.is_keeping_alive.then_some(self.keep_alive),
            hop_limit: self.hop_limit,
        }
    }

    /// The call that makes it what it is to be, or keeps it so, and the one that waits for a connection.
    pub(super) const fn calls(&self) -> [Option<u64>; 2] {
        match self.state {
            TcpState::Connecting(call, _)
            | TcpState::Connected(Connection { call, .. })
            | TcpState::Beginning(call, _) => [Some(call), None],
            TcpState::Listening(Listening { call, next, .. }) => match next {
                Next::Call(next) => [Some(call), Some(next)],
                Next::NotBefore(_) => [Some(call), None],
            },
            TcpState::Unconnected
            | TcpState::Closed
            | TcpState::Binding(_)
            | TcpState::Bound(_) => [None, None],
        }
    }

    const fn awaited(&self) -> Awaited {
        match self.state {
            TcpState::Connecting(call, _) | TcpState::Beginning(call, _) => Awaited::Call(call),
            TcpState::Listening(Listening { next, .. }) => match next {
                Next::Call(call) => Awaited::Call(call),
                Next::NotBefore(when) => Awaited::Time(when),
            },
            TcpState::Unconnected
            | TcpState::Connected(_)
            | TcpState::Closed
            | TcpState::Binding(_)
            | TcpState::Bound(_) => Awaited::Nothing,
        }
    }
}
