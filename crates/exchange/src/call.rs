//! What a guest asks of other hosts.

use crate::guest::GuestHalf;
use crate::head::RequestHead;
use crate::trace::TraceParent;
use std::net::SocketAddr;
use std::time::Duration;

/// The field of a head with an address: of a socket that of this side, and of [`CallKind::LookUp`] each that was found.
pub const ADDRESS: &str = "address";

/// The field of the head of [`CallKind::Accept`] with the address of the other side.
pub const PEER: &str = "peer";

/// How long the parts of a request may take, if the guest says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallTimeouts {
    /// To connect.
    pub connect: Option<Duration>,
    /// From there to the head of the response.
    pub first_byte: Option<Duration>,
    /// Between two parts of the response's body.
    pub between_bytes: Option<Duration>,
}

/// What a guest wants of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionOptions {
    /// After how long, how often and how many times a silent peer is asked whether it is still there, if it is at all.
    pub keep_alive: Option<KeepAlive>,
    /// Through how many networks a packet may go.
    pub hop_limit: u8,
}

/// How a silent peer is asked whether it is still there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeepAlive {
    /// How long it may be silent.
    pub idle: Duration,
    /// How long an answer is waited for.
    pub interval: Duration,
    /// How often it is asked.
    pub count: u32,
}

/// What a call is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallKind {
    /// A request of HTTP, whose body and whose response are those of the exchange.
    Request {
        /// The request.
        head: RequestHead,
        /// Whether a body follows.
        has_body: bool,
        /// How long its parts may take.
        timeouts: CallTimeouts,
        /// What the guest answers meanwhile, if that is traced.
        answers: Option<TraceParent>,
    },
    /// A connection: the exchange's bodies are what goes over it in each direction. The head of the response comes when
    /// it is made, and has the [`ADDRESS`] of this side.
    Connect {
        /// Where to.
        to: SocketAddr,
        /// What the guest wants of it.
        options: ConnectionOptions,
    },
    /// A socket that listens. The head of the response comes when it does, and has the [`ADDRESS`]. It has no bodies, and
    /// listens until the guest gives it up.
    Listen {
        /// Where.
        at: SocketAddr,
        /// How many connections may wait, at the most.
        backlog: u32,
        /// Through how many networks a packet may go.
        hop_limit: u8,
    },
    /// The next connection to a socket of the tenant that listens. The head of the response comes when it is there, and has
    /// the [`ADDRESS`] of this side and that of the [`PEER`]; then it is as one that was made.
    Accept {
        /// Where the socket listens.
        at: SocketAddr,
        /// What the guest wants of the connection.
        options: ConnectionOptions,
    },
    /// A socket for datagrams: the exchange's bodies are [`Frame`](crate::Frame)s in each direction. The head of the response
    /// comes when it is bound, and has the [`ADDRESS`] of this side.
    Bind {
        /// What it is bound to, which has no port.
        to: SocketAddr,
        /// Through how many networks a datagram may go.
        hop_limit: u8,
    },
    /// A look-up: the head of the response has an [`ADDRESS`] for each that was found. It has no bodies.
    LookUp {
        /// The name, in lower case.
        name: String,
    },
}

/// What a guest asks of another host. The cell has the client's half of its exchange, the I/O thread the
/// other one: it reads there what the guest sends, and gives what it gets.
#[derive(Debug)]
pub struct Call {
    /// The I/O thread's half. Its own head is empty.
    pub half: GuestHalf,
    /// What it is for.
    pub kind: CallKind,
}
