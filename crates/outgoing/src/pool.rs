//! The idle connections of one tenant: few, and not for long.

use crate::body::RequestBody;
use crate::connect::{Target, response_error};
use hyper::client::conn::http1::SendRequest;
use leasehold_exchange::{CallError, IDLE_CONNECTIONS};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// How long a connection stays idle.
const IDLE: Duration = Duration::from_secs(10);

/// A connection and its task, which ends with it.
pub(crate) struct Connection {
    pub(crate) sender: SendRequest<RequestBody>,
    task: AbortHandle,
    /// What ended its task, if it has failed.
    failure: Rc<Cell<Option<CallError>>>,
}

impl Connection {
    pub(crate) const fn new(
        sender: SendRequest<RequestBody>,
        task: AbortHandle,
        failure: Rc<Cell<Option<CallError>>>,
    ) -> Self {
        Self {
            sender,
            task,
            failure,
        }
    }

    /// Why a request has failed: if the connection was gone before it was sent, for what ended that.
    pub(crate) fn error(&self, error: &hyper::Error) -> CallError {
        match self.failure.get() {
            Some(failure) if error.is_canceled() => failure,
            _ => response_error(error),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Idle {
    target: Target,
    connection: Connection,
    since: Instant,
}

/// The idle connections of one tenant, in the order in which they became idle.
#[derive(Default)]
pub(crate) struct Pool(RefCell<Vec<Idle>>);

impl Pool {
    /// Takes the connection to `target` that was used last.
    pub(crate) fn take(&self, target: &Target) -> Option<Connection> {
        self.expire();
        let mut idle = self.0.borrow_mut();
        let at = idle.iter().rposition(|idle| idle.target == *target)?;
        let idle = idle.remove(at);
        (!idle.connection.sender.is_closed()).then_some(idle.connection)
    }

    /// Keeps a connection that is ready for another request.
    pub(crate) fn put(&self, target: Target, connection: Connection) {
        self.expire();
        let mut idle = self.0.borrow_mut();
        if idle.len() == IDLE_CONNECTIONS as usize {
            idle.remove(0);
        }
        idle.push(Idle {
            target,
            connection,
            since: Instant::now(),
        });
    }

    /// Drops what was idle for too long, or is closed.
    pub(crate) fn expire(&self) {
        let now = Instant::now();
        self.0.borrow_mut().retain(|idle| {
            now.duration_since(idle.since) < IDLE && !idle.connection.sender.is_closed()
        });
    }

    /// When the next connection has been idle for too long.
    pub(crate) fn expires_at(&self) -> Option<Instant> {
        self.0.borrow().first().map(|idle| idle.since + IDLE)
    }
}
