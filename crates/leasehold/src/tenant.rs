//! A tenant that runs.

use crate::error::Error;
use crate::start::Captured;
use leasehold_cell::memory::MemoryUse;
use leasehold_cell::{Ended, Exit, Processor, Statement, TenantHandle};
use std::time::Duration;

/// A program that runs under its lease. Dropping this leaves it running until its [`Host`](crate::Host) is dropped.
#[allow(missing_debug_implementations)]
pub struct Tenant {
    handle: TenantHandle,
    captured: Option<Captured>,
}

/// How a tenant ended.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// How its program ended.
    pub exit: Exit,
    /// Its standard output, as far as it was kept.
    pub stdout: Vec<u8>,
    /// Its standard error, as far as it was kept.
    pub stderr: Vec<u8>,
    /// The charge and the cost of its end, the refusals of its lease, and its use of processor and
    /// memory.
    pub report: Ended,
}

impl Outcome {
    /// Whether it ended by itself with code 0.
    pub fn is_success(&self) -> bool {
        self.exit == Exit::Code(0)
    }
}

impl Tenant {
    pub(crate) fn new(handle: TenantHandle, captured: Option<Captured>) -> Self {
        Self { handle, captured }
    }

    pub(crate) fn handle(&self) -> &TenantHandle {
        &self.handle
    }

    /// Ends it, whatever it is doing, within what its lease was charged. Idempotent; does not wait.
    pub fn kill(&self) {
        self.handle.kill();
    }

    /// Waits until it has ended and everything was taken back from it.
    ///
    /// # Errors
    /// When the host was dropped first.
    pub fn wait(self) -> Result<Outcome, Error> {
        let report = self.handle.wait()?;
        Ok(self.outcome(report))
    }

    /// Waits for at most `timeout`; `None` if it is still there. Once it has told the outcome, it tells none again.
    ///
    /// # Errors
    /// When the host was dropped first, or the outcome was told.
    pub fn wait_for(&self, timeout: Duration) -> Result<Option<Outcome>, Error> {
        let report = self.handle.wait_for(timeout)?;
        Ok(report.map(|report| self.outcome(report)))
    }

    /// Its standard output so far, as far as it is kept.
    pub fn stdout(&self) -> Vec<u8> {
        self.captured
            .as_ref()
            .map_or_else(Vec::new, |captured| captured.stdout.bytes())
    }

    /// Its standard error so far, as far as it is kept.
    pub fn stderr(&self) -> Vec<u8> {
        self.captured
            .as_ref()
            .map_or_else(Vec::new, |captured| captured.stderr.bytes())
    }

    /// The present charge on its lease and the rest of its budget; `None` if it has ended.
    pub fn statement(&self) -> Option<Statement> {
        self.handle.statement()
    }

    /// The processor time that it has had; `None` if everything was taken back.
    pub fn processor(&self) -> Option<Processor> {
        self.handle.processor()
    }

    /// How it uses its memory; `None` if it has ended.
    pub fn memory(&self) -> Option<MemoryUse> {
        self.handle.memory()
    }

    fn outcome(&self, report: Ended) -> Outcome {
        Outcome {
            exit: report.exit.clone(),
            stdout: self.stdout(),
            stderr: self.stderr(),
            report,
        }
    }
}
