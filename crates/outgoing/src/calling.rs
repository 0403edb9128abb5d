//! What the calls of a tenant share, and how long each goes on.

use crate::body::Half;
use crate::connect::Connecting;
use crate::listening::{Addresses, Listeners};
use crate::names::Names;
use crate::pool::Pool;
use crate::sent::Observer;
use leasehold_exchange::CallError;
use leasehold_lease::Outgoing as Lease;
use std::rc::Rc;
use tokio::sync::Notify;

/// What the calls of a tenant share.
pub(crate) struct Calling {
    pub(crate) tenant: Rc<str>,
    pub(crate) observer: Option<Observer>,
    pub(crate) lease: Lease,
    pub(crate) connecting: Connecting,
    pub(crate) pool: Pool,
    pub(crate) names: Names,
    pub(crate) addresses: Rc<Addresses>,
    pub(crate) listeners: Listeners,
    /// Told when the tenant is over.
    pub(crate) over: Notify,
}

/// Does `work`, unless the guest gives up the call, or its tenant is over.
pub(crate) async fn unless_over<T>(
    calling: &Calling,
    half: &Half,
    work: impl Future<Output = Result<T, CallError>>,
) -> Result<T, CallError> {
    tokio::select! {
        biased;
        () = calling.over.notified() => Err(CallError::Abandoned),
        () = half.abandoned() => Err(CallError::Abandoned),
        done = work => done,
    }
}
