//! The calls of one tenant, until its outbox is closed.

use crate::call::{Calling, answer};
use leasehold_exchange::Outbox;
use leasehold_io_thread::Metered;
use std::future::{pending, poll_fn};
use std::rc::Rc;
use std::sync::Arc;
use tokio::task::JoinSet;
use tokio::time::sleep_until;

/// Takes calls out of the outbox and sends them. When it is closed, everything of the tenant is
/// dropped: calls, connections, sessions.
pub(crate) async fn serve(outbox: Arc<Outbox>, calling: Rc<Calling>) {
    let mut calls = JoinSet::new();
    let most = outbox.concurrency() as usize;
    loop {
        let expires = calling.pool.expires_at();
        let expiring = async {
            match expires {
                Some(at) => sleep_until(at).await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            Some(_) = calls.join_next() => {}
            call = poll_fn(|context| outbox.poll_take(context)), if calls.len() < most => match call {
                Some(call) => {
                    let task = answer(calling.clone(), call);
                    calls.spawn_local(Metered::new(calling.connecting.payer.clone(), task));
                }
                None => return,
            },
            () = poll_fn(|context| outbox.poll_closed(context)), if calls.len() >= most => return,
            () = expiring => calling.pool.expire(),
        }
    }
}
