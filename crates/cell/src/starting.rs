//! The start of a top-level tenant: its program is built in bounded steps, as work of the tenant.
//!
//! 1. **Reserve** the frames that the lease was promised: others may have borrowed them, and what they
//!    wrote there is written out, a cluster a step.
//! 2. **Charge** the initial holdings of an execution of the program. A lease that does not pay for
//!    them is refused here, before anything is allocated.
//! 3. **Share** the initial memory of the program with other tenants that page, if the lease says
//!    so; if under an eviction lock, it is made resident, some pages a step.
//! 4. **Surround**: arguments and variables are copied, and the tenant's directories and data sets
//!    are opened, one a step.
//! 5. **Assemble**: imports are resolved (once per program) and the store is made, empty.
//!
//! Memories, data segments and start functions come after that, when the program is polled for the
//! first time, and are interrupted like everything that it does.
//!
//! The steps run in the tenant's own processor time, so that a start delays no tenant of higher
//! priority and uses no other tenant's reservation. They are not split: one takes as long as
//! copying the arguments, opening one directory, or resolving the program's imports.

use crate::build_error::BuildError;
use crate::discarded::Discarded;
use crate::drift::Price;
use crate::ended::Ended;
use crate::execution::{EnvBuilder, ExecutionTemplate, Running, Surrounded};
use crate::local;
use crate::memory::{self, Joining};
use crate::serving::Service;
use crate::start_error::{Demands, StartError};
use crate::steps::{begin, step};
use leasehold_kernel::{Errno, TenantId};
use leasehold_lease::Nanoseconds;
use std::rc::Rc;
use std::sync::mpsc::Sender;

/// A top-level tenant whose program is being built.
pub(crate) struct Starting {
    tenant: TenantId,
    execution: u64,
    template: Rc<ExecutionTemplate>,
    budget: Nanoseconds,
    price: Price,
    next: Step,
    /// The last step took descriptors.
    opens_files: bool,
    client: Client,
}

/// The client of a start: the channels to the controller that requested it.
pub(crate) struct Client {
    /// Receives whether the start succeeded.
    pub(crate) started: Sender<Result<(), StartError>>,
    /// Receives how the tenant ended.
    pub(crate) ended: Sender<Ended>,
    /// The program does not run before it is let go.
    pub(crate) held: bool,
    /// The requests that the tenant answers.
    pub(crate) service: Option<Service>,
}

impl Client {
    /// Tells why the start was refused. On the cell's thread, which leaves the requests that wait to another.
    pub(crate) fn refuse(mut self, error: StartError) {
        self.forgo();
        // The controller may have gone.
        let _ = self.started.send(Err(error));
    }

    /// No request will be answered.
    fn forgo(&mut self) {
        if let Some(service) = self.service.take() {
            drop(Discarded::new(service));
        }
    }
}

/// The next step, with the results of the previous ones.
enum Step {
    Reserve,
    Charge,
    Share(Option<Joining>),
    Surround(Box<EnvBuilder>),
    Assemble(Box<Surrounded>),
    /// A step failed, or the last one was taken.
    Nothing,
}

/// The result of a step.
pub(crate) enum Stepped {
    /// There is more to do.
    Working,
    /// The program can run.
    Built(Running),
    /// Executions are built for requests.
    Serves(Service),
}

impl Starting {
    /// Begins the start of `execution` as the program of the newly admitted `tenant`.
    pub(crate) fn new(
        tenant: TenantId,
        execution: u64,
        template: Rc<ExecutionTemplate>,
        (budget, price): (Nanoseconds, Price),
        client: Client,
    ) -> Self {
        Self {
            tenant,
            execution,
            template,
            budget,
            price,
            next: Step::Reserve,
            opens_files: false,
            client,
        }
    }

    /// The execution that is being built.
    pub(crate) const fn execution(&self) -> u64 {
        self.execution
    }

    /// The parameters from which it, its tasks and its children are built.
    pub(crate) fn template(&self) -> Rc<ExecutionTemplate> {
        self.template.clone()
    }

    /// Takes the next step.
    ///
    /// # Errors
    /// When the lease does not pay for it, or a directory is missing. The charges are then [given
    /// up](Self::give_up).
    pub(crate) fn step(&mut self) -> Result<Stepped, StartError> {
        match self.advance() {
            Ok(stepped) => Ok(stepped),
            Err(error) => Err(self.demands().refused(&error)),
        }
    }

    fn advance(&mut self) -> Result<Stepped, BuildError> {
        let (tenant, execution) = (self.tenant, self.execution);
        self.opens_files = matches!(self.next, Step::Surround(_) | Step::Assemble(_));
        self.next = match std::mem::replace(&mut self.next, Step::Nothing) {
            Step::Reserve => {
                let _step = begin(step!("cell", "start: reserve"));
                match self.template.reserve_step(tenant)? {
                    true => Step::Charge,
                    false => Step::Reserve,
                }
            }
            Step::Charge => {
                let _step = begin(step!("cell", "start: charge"));
                let serves = self.client.service.is_some();
                if serves {
                    self.template.charge_area(tenant, execution)?;
                }
                self.template.charge(tenant, execution)?;
                if serves {
                    // The lease pays for an execution beside the area, which is built when there is a request.
                    local::with(|local| local.release_all(tenant, execution));
                    self.template.charge_area(tenant, execution)?;
                }
                Step::Share(self.template.share(tenant)?)
            }
            Step::Share(Some(mut joining)) => {
                let _step = begin(step!("cell", "start: share"));
                let locked = memory::lock_step(&mut joining).map_err(BuildError::Memory)?;
                Step::Share((!locked).then_some(joining))
            }
            Step::Share(None) if let Some(service) = &self.client.service => {
                return Ok(Stepped::Serves(service.clone()));
            }
            Step::Share(None) => {
                let _step = begin(step!("cell", "start: surround"));
                Step::Surround(Box::new(self.template.surround(tenant)?))
            }
            Step::Surround(mut env_builder) => {
                let _step = begin(step!("cell", "start: open a directory"));
                match env_builder.open_next()? {
                    true => Step::Surround(env_builder),
                    false => Step::Assemble(Box::new(env_builder.finish())),
                }
            }
            Step::Assemble(surrounded) => {
                let _step = begin(step!("cell", "start: assemble"));
                let running = self.template.assemble(tenant, execution, *surrounded)?;
                return Ok(Stepped::Built(running));
            }
            Step::Nothing => Step::Nothing,
        };
        Ok(Stepped::Working)
    }

    /// The error for the client when the cell cannot take the program that was built.
    pub(crate) fn not_taken(&self, errno: Errno) -> StartError {
        self.demands().not_taken(errno)
    }

    fn demands(&self) -> Demands {
        let (host_kib, call_bytes) = self.template.host_kib();
        let (enough, host_is_short) = local::with(|local| {
            let enough = local.budget_refused(self.tenant);
            (enough, local.host_is_short(self.tenant))
        });
        Demands {
            budget: self.budget,
            enough_ns: enough.map(|base_ns| self.price.of(base_ns)),
            host_kib,
            call_bytes,
            host_is_short,
            opens_files: self.opens_files,
        }
    }

    /// Ends the start. Unless the program was built, the end of its tenant refunds the execution's
    /// charges.
    pub(crate) fn give_up(self) -> Client {
        local::with(|local| local.holdings.remove(&self.execution));
        self.client
    }

    /// Ends the start after the executor has taken the execution.
    pub(crate) fn complete(self) -> Client {
        self.client
    }
}
