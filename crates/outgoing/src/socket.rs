//! A connection of a tenant over TCP, made or accepted, as the kernel has it: nothing of it is left behind that no lease has a limit for.
//!
//! Its buffers are as large as the window, or as the host allows (`net.core.wmem_max`, `rmem_max`) if that is less. Its port is counted for as long as the kernel keeps it. What it has not sent when it
//! is dropped, the kernel gives up after a second, or at once if the peer has had its second before.

use crate::connect::unreached;
use crate::ports::{Family, Port, Ports, Space};
use leasehold_exchange::{CallError, ConnectionOptions};
use rustix::net::sockopt;
use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpSocket, TcpStream};

/// How long the kernel tries to send what is left of a connection that was dropped, ms.
const LAST_MS: u32 = 1000;

/// What a tenant's sockets are made with.
pub(crate) struct Sockets {
    pub(crate) ports: Rc<Ports>,
    pub(crate) tenant: Rc<str>,
    /// Bytes that are on their way in each direction at the most.
    pub(crate) window: u32,
}

impl Sockets {
    /// Connects to an address that the lease allows.
    ///
    /// # Errors
    /// Why there is no connection.
    pub(crate) async fn connect(
        &self,
        to: SocketAddr,
        options: Option<ConnectionOptions>,
    ) -> Result<Socket, CallError> {
        let port = self.ports.take(&self.tenant, Space::Connections(to))?;
        let stream = self.make(to, options).await;
        let stream = stream.map_err(|error| unreached(&error))?;
        let mut socket = Socket {
            stream,
            port: Some(port),
            is_shut: false,
            is_ended: false,
            is_stuck: Rc::default(),
        };
        socket.leave_port(true);
        Ok(socket)
    }

    /// Takes a local port for a socket for datagrams that a guest binds to an address like this.
    ///
    /// # Errors
    /// [`CallError::NoPort`] if the tenant has as many as it may.
    pub(crate) fn port_of_datagrams(&self, own: SocketAddr) -> Result<Port, CallError> {
        let space = Space::Datagrams(Family::of(own));
        self.ports.take(&self.tenant, space)
    }

    /// Takes a local port for a question to a name server.
    ///
    /// # Errors
    /// [`CallError::NoPort`] if the tenant has as many as it may.
    pub(crate) fn port_of_look_up(&self, server: SocketAddr) -> Result<Port, CallError> {
        let space = Space::LookUps(Family::of(server));
        self.ports.take(&self.tenant, space)
    }

    async fn make(
        &self,
        to: SocketAddr,
        options: Option<ConnectionOptions>,
    ) -> io::Result<TcpStream> {
        let socket = match to {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        socket.set_send_buffer_size(self.window)?;
        socket.set_recv_buffer_size(self.window)?;
        if let Some(options) = options {
            set(&socket, to, options)?;
        }
        // What a guest has written was gathered in its window already.
        socket.set_nodelay(true)?;
        socket.connect(to).await
    }
}

fn set(socket: impl AsFd, of: SocketAddr, options: ConnectionOptions) -> io::Result<()> {
    let socket = socket.as_fd();
    set_hop_limit(socket, of, options.hop_limit)?;
    if let Some(keep_alive) = options.keep_alive {
        sockopt::set_socket_keepalive(socket, true)?;
        sockopt::set_tcp_keepidle(socket, keep_alive.idle)?;
        sockopt::set_tcp_keepintvl(socket, keep_alive.interval)?;
        sockopt::set_tcp_keepcnt(socket, keep_alive.count)?;
    }
    Ok(())
}

/// Sets through how many networks packets of a socket with such an address may go.
pub(crate) fn set_hop_limit(socket: impl AsFd, of: SocketAddr, hops: u8) -> io::Result<()> {
    match of {
        SocketAddr::V4(_) => sockopt::set_ip_ttl(socket, hops.into())?,
        SocketAddr::V6(_) => sockopt::set_ipv6_unicast_hops(socket, Some(hops))?,
    }
    Ok(())
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Socket {
    stream: TcpStream,
    /// One that was accepted has that of the socket which listens.
    port: Option<Port>,
    /// This side has ended what it sends.
    is_shut: bool,
    /// The peer has ended the connection.
    is_ended: bool,
    is_stuck: Rc<Cell<bool>>,
}

impl Socket {
    /// A connection that was accepted.
    ///
    /// # Errors
    /// The system's, if it has gone already.
    pub(crate) fn accepted(stream: TcpStream, options: ConnectionOptions) -> io::Result<Self> {
        set(&stream, stream.local_addr()?, options)?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            port: None,
            is_shut: false,
            is_ended: false,
            is_stuck: Rc::default(),
        })
    }

    /// Says whether the kernel keeps the port of a connection that this side has made when it has gone.
    fn leave_port(&mut self, is_left: bool) {
        if let Some(port) = &mut self.port {
            port.set_left(is_left);
        }
    }

    /// The address of this side.
    pub(crate) fn local(&self) -> io::Result<SocketAddr> {
        self.stream.local_addr()
    }

    /// Whether the kernel is to give it up at once when it is dropped, which can be said as long as it is there.
    pub(crate) fn stuck(&self) -> Rc<Cell<bool>> {
        self.is_stuck.clone()
    }

    /// The peer has ended the connection. If it was the first to do so, no port is left behind on this side.
    fn ended(&mut self) {
        if !std::mem::replace(&mut self.is_ended, true) && !self.is_shut {
            self.leave_port(false);
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // An option that cannot be set leaves what any program's connection leaves.
        let _ = match self.is_stuck.get() {
            true => {
                self.leave_port(false);
                sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO))
            }
            false => sockopt::set_tcp_user_timeout(&self.stream, LAST_MS),
        };
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        let is_end = match &read {
            Poll::Ready(Ok(())) => buffer.filled().len() == before && buffer.remaining() > 0,
            Poll::Ready(Err(_)) => true,
            Poll::Pending => false,
        };
        if is_end {
            self.ended();
        }
        read
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.is_shut = true;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
