//! A connection over TCP that a guest makes: checked, made, and what goes over one.
//!
//! The bytes cross in the windows of the exchange. So neither side is ahead of the other by more than that and the
//! kernel's buffers, and a peer that does not read stops the guest.

use crate::body::Half;
use crate::calling::{Calling, unless_over};
use crate::carry::{End, carry, tell_addresses};
use crate::connect::unreached;
use crate::socket::Socket;
use leasehold_exchange::{CallError, ConnectionOptions, Failure, Read};
use leasehold_io_thread::Sliced;
use leasehold_lease::Protocol;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split};
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
        let made = calling.connecting.sockets.connect(to, Some(options));
        let made = timeout(Duration::from(calling.lease.timeout), made).await;
        made.map_err(|_| CallError::ConnectTimeout)?
    };
    let socket = unless_over(calling, half, making).await?;
    let local = socket.local().map_err(|error| unreached(&error))?;
    tell_addresses(half, local, None)?;
    carry_both(calling, half, socket).await
}

/// Carries what goes over a connection until both directions are over, or the guest drops it.
///
/// # Errors
/// Why it was given up.
pub(crate) async fn carry_both(
    calling: &Calling,
    half: &Half,
    socket: Socket,
) -> Result<(), CallError> {
    let stuck = socket.stuck();
    let (reader, writer) = split(Sliced::new(socket));
    // They own the socket, which has to be there when it is said how it is given up.
    let sending = pin!(send(half, writer));
    let receiving = pin!(receive(half, reader));
    let end = carry(half, (sending, receiving), calling.over.notified()).await;
    // A connection that the guest never had is reset, as one that its peer does not read.
    stuck.set(matches!(end, Ok(End::Stuck) | Err(_)));
    end?.result()
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
            // It has dropped the socket. The peer's end tells that the peer has got everything.
            while matches!(reader.read(&mut part).await, Ok(1..)) {}
            return;
        };
        let most = room.min(PART);
        match reader.read(&mut part[..most]).await {
            Ok(0) => return half.half.borrow_mut().finish(None),
            Ok(read) => {
                half.half.borrow_mut().write(&part[..read]);
            }
            Err(_) => {
                let mut half = half.half.borrow_mut();
                // Nor does it take anything any more.
                half.close_request();
                return half.cut(Failure::Call(CallError::Terminated));
            }
        }
    }
}
