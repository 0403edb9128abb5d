//! A socket for datagrams that a guest binds: what it sends to where its lease allows, and what comes from there.
//!
//! Each datagram is compared with the lease, in both directions. What comes from elsewhere, or finds no room in the window of
//! a guest that does not read, is dropped.

use crate::body::Half;
use crate::calling::Calling;
use crate::carry::{carry, tell_addresses};
use crate::connect::unreached;
use crate::ports::Port;
use leasehold_exchange::{CallError, Frame, Read, datagram_bytes};
use leasehold_lease::Protocol;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendFlags, SocketFlags, SocketType, connect_unspec, sendto, socket_with, sockopt,
};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::task::Poll;
use tokio::net::UdpSocket;
use tokio::task::yield_now;

/// Datagrams of a direction that are handled before others have their turn.
const TURN: u32 = 8;

/// The most bytes of the kernel's buffer in each direction.
const BUFFER: usize = 128 << 10;

/// Binds a socket if the lease has somewhere to send datagrams to, and carries them until the guest drops it.
///
/// # Errors
/// Why there is none, or none any more.
pub(crate) async fn bind_and_carry(
    calling: &Calling,
    half: &Half,
    to: SocketAddr,
    hop_limit: u8,
) -> Result<(), CallError> {
    let mut own = calling.lease.sockets();
    if !own.any(|destination| destination.protocol == Protocol::Udp) {
        return Err(CallError::Denied);
    }
    let window = half.half.borrow().limits().window_bytes as usize;
    let port = calling.connecting.sockets.port_of_datagrams(to)?;
    let socket = bind(to, window.min(BUFFER)).map_err(|error| unbound(&error))?;
    let own = Datagrams {
        calling,
        half,
        local: socket.local_addr().map_err(|error| unreached(&error))?,
        socket,
        most: datagram_bytes(window),
        _port: port,
    };
    own.set_hop_limit(hop_limit)?;
    tell_addresses(half, own.local, None)?;
    let both = (own.send(), own.receive());
    carry(half, both, calling.over.notified()).await?.result()
}

fn bind(to: SocketAddr, buffer: usize) -> io::Result<UdpSocket> {
    let family = match to {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::DGRAM, flags, None)?;
    if to.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    rustix::net::bind(&socket, &to)?;
    sockopt::set_socket_recv_buffer_size(&socket, buffer)?;
    sockopt::set_socket_send_buffer_size(&socket, buffer)?;
    UdpSocket::from_std(socket.into())
}

/// A socket that is bound.
struct Datagrams<'a> {
    calling: &'a Calling,
    half: &'a Half,
    socket: UdpSocket,
    /// What it is bound to.
    local: SocketAddr,
    /// The most bytes of a datagram.
    most: usize,
    /// Its local port, which is free once the socket is closed.
    _port: Port,
}

impl Datagrams<'_> {
    fn allow(&self, address: SocketAddr) -> Result<(), CallError> {
        let Calling { names, lease, .. } = self.calling;
        names.allow(lease, Protocol::Udp, address)
    }

    /// Does what the guest asks for, frame by frame, until it has dropped the socket.
    ///
    /// # Errors
    /// When the guest gave it up.
    async fn send(&self) -> Result<(), CallError> {
        let mut turn = 0;
        loop {
            let frame = poll_fn(|context| {
                let mut half = self.half.half.borrow_mut();
                match half.poll_readable(context.waker()) {
                    true => Poll::Ready(half.read_frame()),
                    false => Poll::Pending,
                }
            });
            let done = match frame.await {
                Ok((Frame::Datagram(to), bytes)) => self.send_one(to, &bytes).await,
                Ok((Frame::Peer(peer), _)) => self.set_peer(peer).await,
                Ok((Frame::HopLimit(hops), _)) => self.set_hop_limit(hops),
                Ok((Frame::Failed(_), _)) | Err(Read::Nothing | Read::Bytes(_)) => Ok(()),
                Err(Read::End) => return Ok(()),
                Err(Read::Failed) => return Err(CallError::Abandoned),
            };
            if let Err(error) = done {
                self.tell(error);
            }
            take_turn(&mut turn).await;
        }
    }

    async fn send_one(&self, to: SocketAddr, bytes: &[u8]) -> Result<(), CallError> {
        self.allow(to)?;
        // The runtime knows a new socket as ready only after a look at the system. There may be none: this can be the last
        // turn of a guest that has exited.
        let sent = match sendto(&self.socket, bytes, SendFlags::DONTWAIT, &to) {
            Err(Errno::AGAIN) => self.socket.send_to(bytes, to).await,
            sent => sent.map_err(io::Error::from),
        };
        sent.map(drop).map_err(|error| unsent(&error))
    }

    /// Associates the socket with a peer, whose refusals it is told then, or with none.
    async fn set_peer(&self, peer: Option<SocketAddr>) -> Result<(), CallError> {
        let set = match peer {
            Some(peer) => {
                self.allow(peer)?;
                self.socket.connect(peer).await
            }
            None => self.forget_peer(),
        };
        set.map_err(|error| unsent(&error))
    }

    /// With its peer Linux forgets the port, which it chose itself.
    fn forget_peer(&self) -> io::Result<()> {
        connect_unspec(&self.socket)?;
        let is_free = self.socket.local_addr()?.port() == 0;
        if is_free {
            rustix::net::bind(&self.socket, &self.local)?;
        }
        Ok(())
    }

    fn set_hop_limit(&self, hops: u8) -> Result<(), CallError> {
        let set = match self.socket.local_addr() {
            Ok(SocketAddr::V6(_)) => sockopt::set_ipv6_unicast_hops(&self.socket, Some(hops)),
            _ => sockopt::set_ip_ttl(&self.socket, hops.into()),
        };
        set.map_err(|error| unsent(&error.into()))
    }

    /// Hands what comes to the guest, as long as it has room.
    async fn receive(&self) {
        // One byte more than a datagram may have tells one that is larger.
        let mut bytes = vec![0; self.most + 1];
        let mut turn = 0;
        loop {
            let room = poll_fn(|context| {
                let half = self.half.half.borrow();
                match half.poll_frame_room(context.waker()) {
                    true => Poll::Ready(half.room()),
                    false => Poll::Pending,
                }
            });
            if room.await.is_none() {
                return;
            }
            match self.socket.recv_from(&mut bytes).await {
                Ok((size, from)) if size <= self.most && self.allow(from).is_ok() => {
                    let mut half = self.half.half.borrow_mut();
                    half.write_frame(Frame::Datagram(from), &bytes[..size]);
                }
                Ok(_) => {}
                Err(error) => self.tell(unsent(&error)),
            }
            take_turn(&mut turn).await;
        }
    }

    /// Tells the guest what it does not find out otherwise, if there is room.
    fn tell(&self, error: CallError) {
        let mut half = self.half.half.borrow_mut();
        half.write_frame(Frame::Failed(error), &[]);
    }
}

/// Lets others have their turn after some datagrams.
async fn take_turn(turn: &mut u32) {
    *turn += 1;
    if turn.is_multiple_of(TURN) {
        yield_now().await;
    }
}

/// Why a socket was not bound.
fn unbound(error: &io::Error) -> CallError {
    match error.kind() {
        io::ErrorKind::AddrInUse => CallError::NoPort,
        _ => CallError::Unreachable,
    }
}

/// Why something was not sent.
fn unsent(error: &io::Error) -> CallError {
    match error.kind() {
        io::ErrorKind::PermissionDenied => CallError::Denied,
        _ => unreached(error),
    }
}
