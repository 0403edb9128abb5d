//! The thread that reads lease files and loads programs, so that nothing else waits for a compilation.

use crate::controller::{Controller, Request};
use crate::problem::Problem;
use crate::source::{Loaded, Source};
use crate::supervisor::{Admission, Admitted};
use crate::view::ErrorKind;
use leasehold_cell::Cell;
use leasehold_lease::TenantSpec;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

/// A job of the thread; its result is what the supervisor does next.
pub(crate) type Job = Box<dyn FnOnce(&Cell, &dyn Admission) -> Request + Send>;

/// What a change was prepared with.
pub(crate) struct Prepared {
    pub(crate) admitted: Admitted,
    /// The programs, in the order in which they were asked for.
    pub(crate) programs: Vec<Loaded>,
}

/// The thread that loads programs.
pub struct Loader(Sender<Job>);

impl Loader {
    /// Starts the thread, confined as the calling one.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn start(
        cell: Arc<Cell>,
        admission: Arc<dyn Admission>,
        controller: Controller,
    ) -> io::Result<Self> {
        let (sender, jobs) = channel::<Job>();
        let thread = std::thread::Builder::new().name("leasehold-load".to_owned());
        thread.spawn(move || {
            for job in jobs {
                controller.put_blocking(job(&cell, &*admission));
            }
        })?;
        Ok(Self(sender))
    }

    /// Queues a job.
    ///
    /// # Errors
    /// When the thread has ended.
    pub(crate) fn put(&self, job: Job) -> Result<(), Problem> {
        let gone = |_| {
            Problem::new(
                ErrorKind::Internal,
                "the thread that loads programs has ended",
            )
        };
        self.0.send(job).map_err(gone)
    }
}

/// Tests `all` tenants together, and loads the programs of some of them.
pub(crate) fn prepare(
    cell: &Cell,
    admission: &dyn Admission,
    all: &[TenantSpec],
    loaded: &[TenantSpec],
) -> Result<Prepared, Problem> {
    for tenant in loaded {
        admission.check(tenant)?;
    }
    let load = |tenant: &TenantSpec| load(cell, tenant).map_err(|it| it.of_tenant(&tenant.name));
    let programs = loaded.iter().map(load).collect::<Result<_, _>>()?;
    let admitted = admission.test(all)?;
    Ok(Prepared { admitted, programs })
}

fn load(cell: &Cell, tenant: &TenantSpec) -> Result<Loaded, Problem> {
    let path: &Path = &tenant.component;
    let program = match &tenant.http {
        Some(_) => cell.load_handler(path, &tenant.lease),
        None => cell.load_for(path, &tenant.lease),
    };
    let program = program.map_err(|error| {
        let mut problem = Problem::from(error);
        if problem.kind != ErrorKind::MissingProgram {
            problem.message = format!("{}: {}", path.display(), problem.message);
        }
        problem
    })?;
    let source = Source::of(&program);
    Ok(Loaded { program, source })
}
