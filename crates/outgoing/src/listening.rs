//! Sockets that listen: bound before the process is confined, one for each address of a lease, and the connections that come
//! there.
//!
//! A guest that listens has the socket of its address until it drops its own. Each connection is a call, which waits for the
//! next one and carries it: so no more are accepted than the lease has places for, and the others wait in the kernel.

use crate::body::Half;
use crate::calling::{Calling, unless_over};
use crate::carry::tell_addresses;
use crate::connection::carry_both;
use crate::error::OutgoingError;
use crate::socket::{Socket, set_hop_limit};
use leasehold_exchange::{CallError, ConnectionOptions};
use leasehold_lease::Outgoing as Lease;
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, socket_with, sockopt};
use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::{sleep, timeout};

/// How long a guest waits for an address that another one has: what ends gives it back.
const IN_USE: Duration = Duration::from_secs(1);

/// The pause after the system had no resources for a connection.
const PAUSE: Duration = Duration::from_millis(50);

/// The sockets of the addresses at which tenants may listen. They are bound, and none listens yet.
#[derive(Debug, Default)]
pub struct Bound(Vec<(SocketAddr, TcpListener)>);

impl Bound {
    /// Binds a socket for each address of these leases.
    ///
    /// # Errors
    /// When another program listens there, or the host has no such address.
    pub fn open<'a>(leases: impl IntoIterator<Item = &'a Lease>) -> Result<Self, OutgoingError> {
        let mut bound = Self::default();
        for lease in leases {
            bound.add(lease)?;
        }
        Ok(bound)
    }

    /// Binds a socket for each address of one more lease that has none yet.
    ///
    /// # Errors
    /// As [`Bound::open`]. Then nothing is added.
    pub fn add(&mut self, lease: &Lease) -> Result<(), OutgoingError> {
        let has = |address: &SocketAddr| self.0.iter().any(|(bound, _)| bound == address);
        let addresses = lease.listen.iter().filter(|address| !has(address));
        let open = |address: &SocketAddr| match bind(*address) {
            Ok(socket) => Ok((*address, socket)),
            Err(source) => Err(OutgoingError::Address {
                address: *address,
                source,
            }),
        };
        let opened: Vec<_> = addresses.map(open).collect::<Result<_, _>>()?;
        self.0.extend(opened);
        Ok(())
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    // What is left of connections of a process before does not keep the address.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    rustix::net::bind(&socket, &address)?;
    // Only a socket that listens is in the way of another one.
    rustix::net::listen(&socket, 0)?;
    rustix::net::shutdown(&socket, Shutdown::Both)?;
    Ok(socket.into())
}

/// The socket of an address; `None` while it listens.
type Address = Option<TcpListener>;

/// The addresses of the thread, each of which one guest has at a time.
pub(crate) struct Addresses(HashMap<SocketAddr, Arc<Mutex<Address>>>);

impl Addresses {
    pub(crate) fn new(bound: Bound) -> Rc<Self> {
        let addresses = bound.0.into_iter();
        let addresses =
            addresses.map(|(address, socket)| (address, Arc::new(Mutex::new(Some(socket)))));
        Rc::new(Self(addresses.collect()))
    }
}

/// A socket that listens. It has its address until no connection is waited for here.
struct Listener {
    /// `None` when it is over.
    socket: Option<tokio::net::TcpListener>,
    address: OwnedMutexGuard<Address>,
}

impl Listener {
    fn begin(
        mut address: OwnedMutexGuard<Address>,
        (backlog, hop_limit): (u32, u8),
        window: u32,
    ) -> io::Result<Self> {
        let socket = address.take().ok_or(io::ErrorKind::NotFound)?;
        if let Err(error) = listen_on(&socket, (backlog, hop_limit), window) {
            *address = Some(socket);
            return Err(error);
        }
        Ok(Self {
            socket: Some(tokio::net::TcpListener::from_std(socket)?),
            address,
        })
    }

    /// Wakes those that wait to accept, and refuses the clients that wait. Once: what the next one accepts at a socket that
    /// is shut down without listening has ended, as Linux has it.
    fn end(&self) {
        if let Some(socket) = &self.socket {
            let _ = rustix::net::shutdown(socket, Shutdown::Both);
        }
    }

    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let socket = self.socket.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        socket.accept().await
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let socket = self.socket.take().map(tokio::net::TcpListener::into_std);
        *self.address = socket.and_then(Result::ok);
    }
}

fn listen_on(socket: &TcpListener, (backlog, hop_limit): (u32, u8), window: u32) -> io::Result<()> {
    // Connections have the buffers of the socket that they came to, and its hop limit until they are accepted.
    sockopt::set_socket_recv_buffer_size(socket, window as usize)?;
    sockopt::set_socket_send_buffer_size(socket, window as usize)?;
    set_hop_limit(socket, socket.local_addr()?, hop_limit)?;
    // A lease allows no more than an `i32` has.
    Ok(rustix::net::listen(socket, backlog as i32)?)
}

/// The sockets of a tenant that listen.
#[derive(Default)]
pub(crate) struct Listeners(RefCell<HashMap<SocketAddr, Rc<Listener>>>);

impl Listeners {
    fn at(&self, address: SocketAddr) -> Option<Rc<Listener>> {
        self.0.borrow().get(&address).cloned()
    }
}

/// A socket of a tenant, which listens until this is dropped.
struct Listens<'a>(&'a Listeners, SocketAddr);

impl<'a> Listens<'a> {
    fn begin(listeners: &'a Listeners, at: SocketAddr, listener: Listener) -> Self {
        listeners.0.borrow_mut().insert(at, Rc::new(listener));
        Self(listeners, at)
    }
}

impl Drop for Listens<'_> {
    fn drop(&mut self) {
        let listener = self.0.0.borrow_mut().remove(&self.1);
        listener.inspect(|listener| listener.end());
    }
}

/// Listens at an address of the lease until the guest gives that up.
///
/// # Errors
/// Why it does not listen.
pub(crate) async fn listen(
    calling: &Calling,
    half: &Half,
    at: SocketAddr,
    (backlog, hop_limit): (u32, u8),
) -> Result<(), CallError> {
    let is_allowed = calling.lease.listen.contains(&at);
    let address = calling.addresses.0.get(&at).filter(|_| is_allowed);
    let address = address.ok_or(CallError::Denied)?;
    let free = async {
        let free = timeout(IN_USE, address.clone().lock_owned()).await;
        free.map_err(|_| CallError::NoPort)
    };
    let address = unless_over(calling, half, free).await?;
    let backlog = backlog.min(calling.lease.concurrency);
    let window = calling.connecting.sockets.window;
    let listener = Listener::begin(address, (backlog, hop_limit), window);
    let listener = listener.map_err(|error| unbound(&error))?;
    let _listens = Listens::begin(&calling.listeners, at, listener);
    tell_addresses(half, at, None)?;
    tokio::select! {
        () = calling.over.notified() => {}
        () = half.abandoned() => {}
    }
    Ok(())
}

/// Waits for the next connection to a socket that listens, and carries what goes over it until both directions are over,
/// or the guest drops it.
///
/// # Errors
/// Why there is none, or none any more.
pub(crate) async fn accept_and_carry(
    calling: &Calling,
    half: &Half,
    at: SocketAddr,
    options: ConnectionOptions,
) -> Result<(), CallError> {
    let accepting = async {
        loop {
            let listener = calling.listeners.at(at).ok_or(CallError::Terminated)?;
            let Ok((stream, peer)) = listener.accept().await else {
                // There are no descriptors, or it listens no more.
                drop(listener);
                sleep(PAUSE).await;
                continue;
            };
            // A client that has gone already is none.
            if let Ok(socket) = Socket::accepted(stream, options)
                && let Ok(local) = socket.local()
            {
                return Ok((socket, local, peer));
            }
        }
    };
    let (socket, local, peer) = unless_over(calling, half, accepting).await?;
    tell_addresses(half, local, Some(peer))?;
    carry_both(calling, half, socket).await
}

/// Why a socket does not listen.
fn unbound(error: &io::Error) -> CallError {
    match error.kind() {
        io::ErrorKind::AddrInUse => CallError::NoPort,
        _ => CallError::Unreachable,
    }
}
