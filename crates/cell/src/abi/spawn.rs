//! Starting and stopping programs from inside a guest: tasks and child tenants.
//!
//! The new program is charged for and built inside the host call, so that a lease that does not
//! pay for it is an error of that call. Running and ending programs is the executor's: it acts on
//! the requests left for it as soon as the calling fiber yields.

use super::blocking::{let_executor_act, until_polled_again};
use crate::execution;
use crate::guest::Guest;
use crate::local;
use crate::programs::{self, Request};
use leasehold_abi::{ARGUMENT_BYTES, Errno};
use leasehold_kernel::{ExecutionId, Selector, TenantId};

/// Builds an execution of the caller's own program for `tenant`.
fn build(
    guest: &Guest,
    tenant: TenantId,
    args: Vec<String>,
) -> Result<(u64, execution::Running), Errno> {
    if args.iter().map(|arg| arg.len() + 1).sum::<usize>() > ARGUMENT_BYTES {
        return Err(Errno::TooLarge);
    }
    let id = local::with(|local| {
        let id = local.next_execution;
        local.next_execution += 1;
        id
    });
    let template = programs::with(|programs| programs.templates.get(&guest.tenant).cloned());
    let template = template.ok_or(Errno::Gone)?;
    let template = template.with_arguments(args);
    match template.build(tenant, id) {
        Ok(running) => Ok((id, running)),
        Err(error) => {
            local::with(|local| local.release_all(tenant, id));
            Err(error.errno())
        }
    }
}

/// Starts a task of the caller's tenant.
///
/// # Errors
/// When the lease does not pay for the task.
pub(crate) fn task(guest: &Guest, args: Vec<String>) -> Result<Selector, Errno> {
    let tenant = guest.tenant;
    let (id, running) = build(guest, tenant, args)?;
    local::with(|local| {
        let created = local.kernel.task_create(tenant).and_then(|task| {
            match local.kernel.register_task(tenant, task, ExecutionId(id)) {
                Ok(()) => Ok(task),
                Err(errno) => {
                    local.kernel.capability_drop(tenant, task)?;
                    Err(errno)
                }
            }
        });
        match created {
            Ok(_) => {
                ask(Request::Run {
                    tenant,
                    execution: id,
                    running,
                    main: false,
                });
            }
            Err(_) => local.release_all(tenant, id),
        }
        created
    })
}

/// Starts the program of a child tenant that the caller created: the caller's own program.
///
/// # Errors
/// [`Errno::Busy`] when it was started already, or what the child's lease does not pay for.
pub(crate) fn tenant(guest: &Guest, child: Selector, args: Vec<String>) -> Result<(), Errno> {
    let child = local::with(|local| local.kernel.tenant_of(guest.tenant, child))?;
    let (id, running) = build(guest, child, args)?;
    local::with(|local| {
        let registered = local.kernel.register_execution(child, ExecutionId(id));
        match registered {
            Ok(()) => {
                programs::with(|programs| {
                    if let Some(template) = programs.templates.get(&guest.tenant).cloned() {
                        programs.templates.insert(child, template);
                    }
                });
                ask(Request::Run {
                    tenant: child,
                    execution: id,
                    running,
                    main: true,
                });
            }
            Err(_) => local.release_all(child, id),
        }
        registered
    })
}

/// What was started begins beside its caller, however long that computes: nothing else might make it yield to the executor,
/// which has not set an end of its turn for want of others.
///
/// # Errors
/// As `asked` says.
pub(crate) async fn begun<T>(asked: Result<T, Errno>) -> Result<T, Errno> {
    if asked.is_ok() {
        let_executor_act().await;
    }
    asked
}

/// Leaves a request to the executor.
fn ask(request: Request) {
    programs::with(|programs| programs.requests.push(request));
}

/// Stops a task.
///
/// # Errors
/// The kernel's.
pub(crate) async fn stop(tenant: TenantId, task: Selector) -> Result<(), Errno> {
    let stopped = local::with(|local| {
        let stopped = local.kernel.task_stop(tenant, task)?;
        if let Some(ExecutionId(execution)) = stopped {
            ask(Request::Stop(execution));
        }
        Ok(())
    });
    let_executor_act().await;
    stopped
}

/// Ends a child tenant; returns when everything of it can be used again.
///
/// # Errors
/// The kernel's.
pub(crate) async fn end(tenant: TenantId, caller: u64, child: Selector) -> Result<(), Errno> {
    local::with(|local| {
        let child = local.kernel.tenant_end(tenant, child)?;
        ask(Request::End { child, caller });
        Ok::<_, Errno>(())
    })?;
    until_polled_again().await;
    Ok(())
}
