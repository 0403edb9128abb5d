//! A connection over TCP that a guest makes: checked, made, and what goes over it.
//!
//! The bytes cross in the windows of the exchange. So neither side is ahead of the other by more than that and the
//! kernel's buffers, and a peer that does not read stops the guest.

use crate::body::Half;
use crate::call::{Calling, unless_over};
use crate::carry::{carry, tell_address};
use crate::connect::unreached;
use leasehold_exchange::{CallError, ConnectionOptions, Failure, Read};
use leasehold_io_thread::Sliced;
use leasehold_lease::Protocol;
use rustix::net::sockopt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

/// The most bytes of one read, and of one write.
const PART: usize = 16 << 10;

/// Makes a connection that the lease allows, and carries what goes over it until both directions are over, or the
/// guest drops it.
///
/// # Errors
/// Why there is none, or none any more.
pub(crate) async fn make_and_carry(
    calling: &Calling,
    half: &Half,
    to: SocketAddr,
    options: ConnectionOptions,
) -> Result<(), CallError> {
    let making = async {
        calling.names.allow(&calling.lease, Protocol::Tcp, to)?;
        let made = timeout(Duration::from(calling.lease.timeout), make(to, options)).await;
        let made = made.map_err(|_| CallError::ConnectTimeout)?;
        made.map_err(|error| unreached(&error))
    };
    let stream = unless_over(calling, half, making).await?;
    let own = stream.local_addr().map_err(|error| unreached(&error))?;
    tell_address(half, own)?;
    let (reader, writer) = split(Sliced::new(stream));
    let both = (send(half, writer), receive(half, reader));
    carry(half, both, calling.over.notified()).await
}

async fn make(to: SocketAddr, options: ConnectionOptions) -> io::Result<TcpStream> {
    let hops = options.hop_limit;
    let socket = match to {
        SocketAddr::V4(_) => {
            let socket = TcpSocket::new_v4()?;
            sockopt::set_ip_ttl(&socket, hops.into())?;
            socket
        }
        SocketAddr::V6(_) => {
            let socket = TcpSocket::new_v6()?;
            sockopt::set_ipv6_unicast_hops(&socket, Some(hops))?;
            socket
        }
    };
    if let Some(keep_alive) = options.keep_alive {
        sockopt::set_socket_keepalive(&socket, true)?;
        sockopt::set_tcp_keepidle(&socket, keep_alive.idle)?;
        sockopt::set_tcp_keepintvl(&socket, keep_alive.interval)?;
        sockopt::set_tcp_keepcnt(&socket, keep_alive.count)?;
    }
    let stream = socket.connect(to).await?;
    // What the guest has written was gathered in its window already.
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Sends what the guest writes, and then that there is no more of it. What is written for a peer that takes nothing any
/// more goes nowhere: whether there is more to be read from it is another matter.
///
/// # Errors
/// When the guest gave it up.
async fn send(half: &Half, mut writer: impl AsyncWrite + Unpin) -> Result<(), CallError> {
    let mut part = vec![0; PART];
    loop {
        let read = poll_fn(|context| {
            let mut half = half.half.borrow_mut();
            match half.poll_readable(context.waker()) {
                true => Poll::Ready(half.read(&mut part)),
                false => Poll::Pending,
            }
        });
        let written = match read.await {
            Read::Bytes(read) => writer.write_all(&part[..read]).await,
            Read::Nothing => Ok(()),
            Read::End => {
                // A peer that is not there any more needs not be told.
                let _ = writer.shutdown().await;
                return Ok(());
            }
            Read::Failed => return Err(CallError::Abandoned),
        };
        if written.is_err() {
            half.half.borrow_mut().close_request();
            return Ok(());
        }
    }
}

/// Hands what comes to the guest as it takes it, and then that there is no more of it, or that it was cut off.
async fn receive(half: &Half, mut reader: impl AsyncRead + Unpin) {
    let mut part = vec![0; PART];
    loop {
        let room = poll_fn(|context| {
            let half = half.half.borrow();
            match half.poll_room(context.waker()) {
                true => Poll::Ready(half.room()),
                false => Poll::Pending,
            }
        });
        let Some(room) = room.await else {
            return;
        };
        let most = room.min(PART);
        match reader.read(&mut part[..most]).await {
            Ok(0) => return half.half.borrow_mut().finish(None),
            Ok(read) => {
                half.half.borrow_mut().write(&part[..read]);
            }
            Err(_) => {
                return half
                    .half
                    .borrow_mut()
                    .cut(Failure::Call(CallError::Terminated));
            }
        }
    }
}
