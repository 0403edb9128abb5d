//! How a tenant answers HTTP requests.

use crate::start_error::StartError;
use crate::steps::caps::WORKERS;
use leasehold_exchange::{Intake, Lane};
use std::sync::Arc;
use std::time::Duration;

/// What is new for each request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Fresh {
    /// An instance of the program, in an execution of the tenant.
    #[default]
    Instance,
    /// A child tenant with a group of its own: whatever the request makes is taken back as a whole when it is over.
    /// Each has an equal part of the tenant's reclamation budget and memory.
    Tenant,
}

/// How many requests a tenant answers, and in what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Serving {
    /// Requests that it answers at a time, 1 to 64.
    pub concurrency: u32,
    /// Requests that an instance answers, one after the other, at least 1: with 1, each has an
    /// instance of its own. A child tenant answers one.
    pub reuse: u32,
    /// What is new when an instance has answered as many as it may.
    pub fresh: Fresh,
    /// How long the guest has for a request, from when the request was taken on: what goes on after its response is ended
    /// then. (Before its response, the client's side ends it.)
    pub timeout: Duration,
}

impl Default for Serving {
    /// 16 at a time, each in an instance of its own and for 30 s.
    fn default() -> Self {
        Self {
            concurrency: 16,
            reuse: 1,
            fresh: Fresh::Instance,
            timeout: Duration::from_secs(30),
        }
    }
}

impl Serving {
    /// Checks the numbers.
    ///
    /// # Errors
    /// When one is out of range.
    pub(crate) fn check(&self) -> Result<(), StartError> {
        if self.reuse == 0 || self.concurrency == 0 || u64::from(self.concurrency) > WORKERS.most {
            return Err(StartError::Program(format!(
                "a tenant answers 1 to {} requests at a time, and an instance at least 1",
                WORKERS.most
            )));
        }
        if self.fresh == Fresh::Tenant && self.reuse != 1 {
            return Err(StartError::Program(
                "a child tenant answers one request".to_owned(),
            ));
        }
        Ok(())
    }
}

/// The requests of a tenant, and how it answers them.
#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) intake: Intake,
    pub(crate) serving: Serving,
}

impl Service {
    /// The lane through which the requests come.
    pub(crate) fn lane(&self) -> &Arc<Lane> {
        self.intake.lane()
    }
}
