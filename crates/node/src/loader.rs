//! The thread that loads programs, so that nothing else waits for a compilation.

use crate::controller::Controller;
use crate::problem::Problem;
use crate::supervisor::{Admission, Admitted, Supervisor};
use crate::view::ErrorKind;
use leasehold_cell::{Cell, Program};
use leasehold_lease::TenantSpec;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

/// What is tested and loaded before a change.
pub struct Job {
    /// All tenants that there will be.
    pub(crate) all: Vec<TenantSpec>,
    /// Those whose programs are loaded.
    pub(crate) loaded: Vec<TenantSpec>,
    /// What the supervisor does then.
    pub(crate) then: Then,
}

/// What the supervisor does with what was prepared, or with why it could not be.
pub(crate) type Then = Box<dyn FnOnce(&mut Supervisor, Result<Prepared, Problem>) + Send>;

/// What a change needs.
pub(crate) struct Prepared {
    pub(crate) admitted: Admitted,
    /// The programs, in the order of the job.
    pub(crate) programs: Vec<Arc<Program>>,
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
            for Job { all, loaded, then } in jobs {
                let prepared = prepare(&cell, &*admission, &all, &loaded);
                controller.put_blocking(Box::new(move |supervisor| then(supervisor, prepared)));
            }
        })?;
        Ok(Self(sender))
    }

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

fn prepare(
    cell: &Cell,
    admission: &dyn Admission,
    all: &[TenantSpec],
    loaded: &[TenantSpec],
) -> Result<Prepared, Problem> {
    let named = |name: &str, mut problem: Problem| {
        problem.message = format!("tenant.{name}: {}", problem.message);
        problem
    };
    for tenant in loaded {
        admission.check(tenant)?;
    }
    let load =
        |tenant: &TenantSpec| load(cell, tenant).map_err(|problem| named(&tenant.name, problem));
    let programs = loaded.iter().map(load).collect::<Result<_, _>>()?;
    let admitted = admission.test(all)?;
    Ok(Prepared { admitted, programs })
}

fn load(cell: &Cell, tenant: &TenantSpec) -> Result<Arc<Program>, Problem> {
    let path: &Path = &tenant.component;
    let program = match &tenant.http {
        Some(_) => cell.load_handler(path, &tenant.lease),
        None => cell.load_for(path, &tenant.lease),
    };
    program.map_err(|error| {
        let mut problem = Problem::from(error);
        problem.message = format!("{}: {}", path.display(), problem.message);
        problem
    })
}
