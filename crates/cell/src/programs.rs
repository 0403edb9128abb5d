//! The programs of a cell's thread: how more executions of them are built, and what guests asked of the executor.
//!
//! Apart from [`crate::local`], which knows nothing of executions.

use crate::execution::{ExecutionTemplate, Running};
use leasehold_kernel::TenantId;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// A guest's request to the executor, made in a host call.
pub(crate) enum Request {
    /// Run this new execution; `main` is the one whose end ends its tenant.
    Run {
        tenant: TenantId,
        execution: u64,
        running: Running,
        main: bool,
    },
    /// End this descendant of the caller's tenant, and then poll the caller again.
    End { child: TenantId, caller: u64 },
    /// Stop this task.
    Stop(u64),
}

/// The programs of one cell.
#[derive(Default)]
pub(crate) struct Programs {
    /// How to build more executions of a tenant that runs.
    pub(crate) templates: BTreeMap<TenantId, Rc<ExecutionTemplate>>,
    /// Requests of guests to the executor, which acts on them after the current poll.
    pub(crate) requests: Vec<Request>,
}

thread_local! {
    static PROGRAMS: RefCell<Programs> = RefCell::default();
}

/// Runs `f` on the programs of this thread's cell. `f` never calls back into the engine.
pub(crate) fn with<R>(f: impl FnOnce(&mut Programs) -> R) -> R {
    PROGRAMS.with(|programs| f(&mut programs.borrow_mut()))
}

/// Takes the programs away from this thread.
pub(crate) fn leave() {
    drop(PROGRAMS.take());
}
