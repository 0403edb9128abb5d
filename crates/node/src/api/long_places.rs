//! The places of what may take long: fewer than connections, so that one is free to kill a tenant whatever others wait for.

use crate::problem::Problem;
use crate::view::ErrorKind;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many requests may take long at a time.
const MOST: usize = 48;

/// The places of requests that may take long, of all clients of a node: answers without an end, bodies that have not
/// come, waits for an end, and programs that are loaded.
#[derive(Debug, Clone)]
pub struct LongPlaces(Arc<Semaphore>);

/// One of them, until it is dropped.
pub(super) type LongPlace = OwnedSemaphorePermit;

impl Default for LongPlaces {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MOST)))
    }
}

impl LongPlaces {
    /// A place.
    pub(super) fn take(&self) -> Result<LongPlace, Problem> {
        let place = self.0.clone().try_acquire_owned();
        place.map_err(|_| {
            let message = format!(
                "{MOST} requests that take long (events, logs that go on, waits, programs that are loaded, bodies that have \
                 not come) are under way, and no more may be; one connection to /v1/events tells of the ends of all tenants"
            );
            Problem::new(ErrorKind::Busy, message)
        })
    }
}
