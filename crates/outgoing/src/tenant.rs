//! The calls of one tenant, until its outbox is closed.

use crate::call::answer;
use crate::calling::Calling;
use leasehold_exchange::Outbox;
use leasehold_io_thread::Metered;
use std::future::{pending, poll_fn};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{sleep_until, timeout};

/// How long the connections of a tenant that is over may take to give the kernel what the tenant wrote last. Each does so
/// in one turn.
pub(crate) const LAST: Duration = Duration::from_millis(100);

/// Takes calls out of the outbox and sends them. When it is closed, requests and look-ups are given up, sockets give the kernel
/// what it takes at once, and everything of the tenant is dropped.
pub(crate) async fn serve(outbox: Arc<Outbox>, calling: Rc<Calling>) {
    let mut calls = JoinSet::new();
    take_and_send(&outbox, &calling, &mut calls).await;
    calling.over.notify_waiters();
    let rest = async { while calls.join_next().await.is_some() {} };
    // What is not over then is dropped.
    let _ = timeout(LAST, rest).await;
}

/// Takes calls out of the outbox and sends them, until it is closed.
async fn take_and_send(outbox: &Outbox, calling: &Rc<Calling>, calls: &mut JoinSet<()>) {
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
