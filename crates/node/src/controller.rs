//! How other threads ask the supervisor.

use crate::killers::Killers;
use crate::problem::Problem;
use crate::supervisor::Supervisor;
use crate::view::ErrorKind;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;
use tokio::sync::oneshot;

/// Requests that may wait for the supervisor.
const WAITING: usize = 64;

/// How long a thread waits for an answer. The supervisor may be starting tenants.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the supervisor does for another thread.
pub(crate) type Request = Box<dyn FnOnce(&mut Supervisor) + Send>;

/// Asks the supervisor; clones ask the same.
#[derive(Clone)]
pub struct Controller(SyncSender<Request>, Killers);

/// The requests, for the supervisor.
pub struct Requests(pub(crate) Receiver<Request>);

impl Controller {
    /// Creates a channel in which a bounded number of requests wait.
    pub fn new() -> (Self, Requests) {
        let (sender, receiver) = sync_channel(WAITING);
        (Self(sender, Killers::default()), Requests(receiver))
    }

    /// The lives that can be killed without the supervisor.
    pub(crate) const fn killers(&self) -> &Killers {
        &self.1
    }

    /// Has the supervisor do this, and returns its answer.
    ///
    /// # Errors
    /// When too much waits for it already, or it ends, or does not answer for half a minute.
    pub async fn ask<T: Send + 'static>(
        &self,
        request: impl FnOnce(&mut Supervisor) -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let (sender, answer) = oneshot::channel();
        let request = Box::new(move |supervisor: &mut Supervisor| {
            // What asked may have gone.
            let _ = sender.send(request(supervisor));
        });
        self.put(request)?;
        Self::answer(answer, PATIENCE).await
    }

    /// Waits for an answer that was promised.
    ///
    /// # Errors
    /// When the supervisor ends, or the time is over.
    pub(crate) async fn answer<T>(
        answer: oneshot::Receiver<T>,
        patience: Duration,
    ) -> Result<T, Problem> {
        match tokio::time::timeout(patience, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) => Err(Problem::new(ErrorKind::Ending, "the node is ending")),
            Err(_) => Err(Problem::new(
                ErrorKind::Busy,
                "the node is busy: there was no answer in time",
            )),
        }
    }

    /// Queues a request for the supervisor.
    ///
    /// # Errors
    /// When too many requests wait, or the supervisor has ended.
    pub(crate) fn put(&self, request: Request) -> Result<(), Problem> {
        self.0.try_send(request).map_err(|error| match error {
            TrySendError::Full(_) => {
                Problem::new(ErrorKind::Busy, "the node is busy: too many requests wait")
            }
            TrySendError::Disconnected(_) => Problem::new(ErrorKind::Ending, "the node is ending"),
        })
    }

    /// Queues a request as [`put`](Self::put), and waits for room: for the node's own threads.
    pub(crate) fn put_blocking(&self, request: Request) {
        // A supervisor that has ended needs nothing.
        let _ = self.0.send(request);
    }
}
