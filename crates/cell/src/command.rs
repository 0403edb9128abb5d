//! What controllers ask of a cell.

use crate::calls::Call;
use crate::control_share::{ControlKind, ControlUse};
use crate::dispatch::{Processor, Promised};
use crate::drift::ClassCosts;
use crate::engine_parts::EngineParts;
use crate::host::fs::limit;
use crate::memory::{MemoryUse, SharedUse};
use crate::program::Program;
use crate::starting::Client;
use crate::steps::{StepSamples, StepUse};
use crate::surroundings::Surroundings;
use leasehold_crossing::Asked;
use leasehold_kernel::Errno;
use leasehold_lease::Lease;
use leasehold_reclaim::Statement;
use std::sync::Arc;
use std::sync::mpsc::Sender;

/// The parameters of a tenant's start.
#[derive(Clone)]
#[allow(missing_debug_implementations)]
pub struct StartRequest {
    /// The program to run.
    pub program: Arc<Program>,
    /// The tenant's contract.
    pub lease: Lease,
    /// The arguments, variables, directories and streams of the program.
    pub surroundings: Surroundings,
}

/// A message from a controller to a cell.
pub(crate) enum Command {
    Start {
        key: u64,
        request: Box<StartRequest>,
        /// The program's engine.
        engine: Arc<EngineParts>,
        /// The processor reservation that it requests.
        promised: Option<Promised>,
        /// The descriptors that it may have, if any.
        files: Option<limit::Promise>,
        client: Client,
    },
    Go(u64),
    Kill {
        key: u64,
        /// When the controller asked for it, ns of [`monotonic_ns`](crate::clock::monotonic_ns).
        asked_ns: u64,
        /// Its request for the priority that kills have.
        urgency: Asked,
    },
    /// A call of one of its exported functions.
    Call(u64, Box<Call>),
    /// No more calls follow.
    FinishCalls(u64),
    Statement(u64, Sender<Option<Statement>>),
    /// Requests the processor time that each of these tenants has received.
    Processors(Vec<u64>, Sender<Vec<Option<Processor>>>),
    Memory(u64, Sender<Option<MemoryUse>>),
    /// Requests the observed host steps.
    Steps(Sender<Vec<StepUse>>),
    /// Requests the costs of ends beside their charges.
    Costs(Sender<Vec<ClassCosts>>),
    /// Requests the durations of host steps, if they are kept.
    Samples(Sender<Vec<StepSamples>>),
    /// Requests the areas that tenants share.
    Shared(Sender<Vec<SharedUse>>),
    Connect(Box<Connect>),
    Control(Sender<Vec<(ControlKind, ControlUse)>>),
    Shutdown,
}

/// A channel between two tenants, made by the controller.
pub(crate) struct Connect {
    pub(crate) client: u64,
    pub(crate) service: u64,
    pub(crate) capacity: u32,
    pub(crate) links: u32,
    pub(crate) reply: Sender<Result<(u32, u32), Errno>>,
}
