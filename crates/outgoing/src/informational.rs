//! Informational responses, which a host may send before its answer, and a guest does not see.

use hyper::ext::on_informational;
use leasehold_exchange::CallError;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// The most of them before an answer. No service is known that sends more than two.
pub(crate) const MOST: u32 = 64;

/// The informational responses to one request.
#[derive(Default)]
struct Heads {
    seen: AtomicU32,
    too_many: Notify,
}

/// Waits for the answer to a request.
pub(crate) struct Awaiting(Arc<Heads>);

impl Awaiting {
    /// For a request that is about to be sent.
    pub(crate) fn of<B>(request: &mut hyper::Request<B>) -> Self {
        let heads = Arc::new(Heads::default());
        let counted = Arc::clone(&heads);
        on_informational(request, move |_| {
            if counted.seen.fetch_add(1, Ordering::Relaxed) == MOST {
                counted.too_many.notify_one();
            }
        });
        Self(heads)
    }

    /// The answer.
    ///
    /// # Errors
    /// [`CallError::ResponseTimeout`] if there is none in time; [`CallError::Protocol`] if the host sends more than [`MOST`]
    /// informational responses before. The connection is to be given up then.
    pub(crate) async fn answer<T>(
        self,
        answer: impl Future<Output = T>,
        until: Instant,
    ) -> Result<T, CallError> {
        tokio::select! {
            biased;
            () = self.0.too_many.notified() => Err(CallError::Protocol),
            answer = timeout_at(until, answer) => answer.map_err(|_| CallError::ResponseTimeout),
        }
    }
}
