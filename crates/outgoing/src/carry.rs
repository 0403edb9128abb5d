//! What goes over a socket of a guest in both directions, until the guest or its tenant is done with it.

use crate::body::Half;
use futures_util::future::{MaybeDone, maybe_done};
use leasehold_exchange::{ADDRESS, CallError, Fields, PEER, ResponseHead};
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

/// Gives the guest the head: the socket is there, and has these addresses on this side and, if the peer is not known, on its own.
///
/// # Errors
/// When the head has no room for them.
pub(crate) fn tell_addresses(
    half: &Half,
    own: SocketAddr,
    peer: Option<SocketAddr>,
) -> Result<(), CallError> {
    let mut half = half.half.borrow_mut();
    let mut fields = Fields::new(half.limits().head_bytes);
    for (name, address) in [(ADDRESS, Some(own)), (PEER, peer)] {
        if let Some(address) = address {
            let pushed = fields.push(name, address.to_string().as_bytes());
            pushed.map_err(|_| CallError::HeadSize)?;
        }
    }
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
    // Each may be over long before the other, and is asked again with it.
    let mut sending = pin!(maybe_done(send));
    let mut receiving = pin!(maybe_done(receive));
    let mut abandoned = pin!(half.abandoned());
    let mut over = pin!(over);
    tokio::select! {
        biased;
        () = &mut over => last_turn(sending).await,
        () = &mut abandoned => tokio::select! {
            biased;
            () = &mut over => last_turn(sending).await,
            rest = timeout(LINGER, both(sending.as_mut(), receiving.as_mut())) => match rest {
                Ok(sent) => sent.map(|()| End::Whole),
                Err(_) => Ok(End::Stuck),
            },
        },
        sent = both(sending.as_mut(), receiving.as_mut()) => sent.map(|()| End::Whole),
    }
}

/// Goes on until both are over, or what is sent fails.
async fn both<S, R>(
    mut sending: Pin<&mut MaybeDone<S>>,
    mut receiving: Pin<&mut MaybeDone<R>>,
) -> Result<(), CallError>
where
    S: Future<Output = Result<(), CallError>>,
    R: Future<Output = ()>,
{
    poll_fn(|context| {
        let is_sent = sending.as_mut().poll(context).is_ready();
        let is_received = receiving.as_mut().poll(context).is_ready();
        match sending.as_mut().output_mut() {
            Some(Err(error)) => Poll::Ready(Err(*error)),
            _ if is_sent && is_received => Poll::Ready(Ok(())),
            _ => Poll::Pending,
        }
    })
    .await
}

/// Sends what can be sent in one turn.
async fn last_turn<S>(mut sending: Pin<&mut MaybeDone<S>>) -> Result<End, CallError>
where
    S: Future<Output = Result<(), CallError>>,
{
    poll_fn(|context| {
        let is_sent = sending.as_mut().poll(context).is_ready();
        Poll::Ready(match sending.as_mut().take_output() {
            Some(sent) => sent.map(|()| End::Whole),
            None if is_sent => Ok(End::Whole),
            None => Ok(End::GivenUp),
        })
    })
    .await
}
