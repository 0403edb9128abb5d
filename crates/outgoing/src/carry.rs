//! What goes over a socket of a guest in both directions, until the guest or its tenant is done with it.

use crate::body::Half;
use leasehold_exchange::{ADDRESS, CallError, Fields, ResponseHead};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;
use tokio::time::timeout;

/// How long the peer may take to get what was sent before the guest dropped the socket. It has its place among
/// the calls that the thread works at until then.
const LINGER: Duration = Duration::from_secs(1);

/// Gives the guest the head: the socket is there, and has this address on this side.
///
/// # Errors
/// When the head has no room for it.
pub(crate) fn tell_address(half: &Half, own: SocketAddr) -> Result<(), CallError> {
    let mut half = half.half.borrow_mut();
    let mut fields = Fields::new(half.limits().head_bytes);
    let pushed = fields.push(ADDRESS, own.to_string().as_bytes());
    pushed.map_err(|_| CallError::HeadSize)?;
    let _ = half.respond(ResponseHead {
        status: 200,
        fields,
    });
    Ok(())
}

/// Sends and receives until both are over, or the guest drops the socket: then what it has written is sent. When the tenant
/// is `over`, the kernel is given what it takes at once.
///
/// # Errors
/// Those of what is sent.
pub(crate) async fn carry(
    half: &Half,
    (send, receive): (
        impl Future<Output = Result<(), CallError>>,
        impl Future<Output = ()>,
    ),
    over: impl Future<Output = ()>,
) -> Result<(), CallError> {
    let mut sending = pin!(send);
    let mut receiving = pin!(receive);
    let mut abandoned = pin!(half.abandoned());
    let mut over = pin!(over);
    let (mut is_sent, mut is_received) = (false, false);
    while !(is_sent && is_received) {
        tokio::select! {
            biased;
            () = &mut over => return last_turn(is_sent, sending).await,
            () = &mut abandoned => {
                if is_sent {
                    return Ok(());
                }
                let rest = async {
                    tokio::select! {
                        biased;
                        () = &mut over => last_turn(false, sending.as_mut()).await,
                        sent = &mut sending => sent,
                    }
                };
                return timeout(LINGER, rest).await.unwrap_or(Err(CallError::Abandoned));
            }
            sent = &mut sending, if !is_sent => {
                sent?;
                is_sent = true;
            }
            () = &mut receiving, if !is_received => is_received = true,
        }
    }
    Ok(())
}

/// Sends what can be sent in one turn.
async fn last_turn(
    is_sent: bool,
    mut sending: Pin<&mut impl Future<Output = Result<(), CallError>>>,
) -> Result<(), CallError> {
    if is_sent {
        return Ok(());
    }
    poll_fn(|context| match sending.as_mut().poll(context) {
        Poll::Ready(sent) => Poll::Ready(sent),
        Poll::Pending => Poll::Ready(Err(CallError::Abandoned)),
    })
    .await
}
