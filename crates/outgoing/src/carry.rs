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

/// How what went over a socket ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Both directions are over.
    Whole,
    /// The tenant is over, and more was to be sent.
    GivenUp,
    /// The guest has dropped the socket, and the peer did not take everything, or did not end its side, within a second.
    Stuck,
}

impl End {
    /// What became of the call.
    pub(crate) const fn result(self) -> Result<(), CallError> {
        match self {
            Self::Whole => Ok(()),
            Self::GivenUp | Self::Stuck => Err(CallError::Abandoned),
        }
    }
}

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

/// Sends and receives until both are over, or the guest drops the socket: then what it has written is sent, and the peer's end
/// is waited for. When the tenant is `over`, the kernel is given what it takes at once.
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
) -> Result<End, CallError> {
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
                return tokio::select! {
                    biased;
                    () = &mut over => last_turn(is_sent, sending).await,
                    rest = timeout(LINGER, async {
                        tokio::join!(
                            async {
                                match is_sent {
                                    true => Ok(()),
                                    false => sending.as_mut().await,
                                }
                            },
                            async {
                                if !is_received {
                                    receiving.as_mut().await;
                                }
                            },
                        )
                    }) => match rest {
                        Ok((sent, ())) => sent.map(|()| End::Whole),
                        Err(_) => Ok(End::Stuck),
                    },
                };
            }
            sent = &mut sending, if !is_sent => {
                sent?;
                is_sent = true;
            }
            () = &mut receiving, if !is_received => is_received = true,
        }
    }
    Ok(End::Whole)
}

/// Sends what can be sent in one turn.
async fn last_turn(
    is_sent: bool,
    mut sending: Pin<&mut impl Future<Output = Result<(), CallError>>>,
) -> Result<End, CallError> {
    if is_sent {
        return Ok(End::Whole);
    }
    poll_fn(|context| match sending.as_mut().poll(context) {
        Poll::Ready(sent) => Poll::Ready(sent.map(|()| End::Whole)),
        Poll::Pending => Poll::Ready(Ok(End::GivenUp)),
    })
    .await
}
