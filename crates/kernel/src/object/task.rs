//! Tasks: executions in the same tenant, seen as objects.

pub(crate) mod state;

use leasehold_abi::{Errno, Rights};
use leasehold_reclaim::{Backing, Handle};

use crate::capability::{ObjectClass, Selector};
use crate::execution::Role;
use crate::id::{ExecutionId, TenantId};
use crate::kernel::{Kernel, Outcome};
use crate::object::task::state::{Stage, Task};
use crate::queue::Queue;
use crate::wait::Side;

impl<B: Backing> Kernel<B> {
    /// Creates a task. It has nothing to run until [`register_task`](Self::register_task).
    ///
    /// # Errors
    /// [`Errno::Budget`], [`Errno::Memory`], [`Errno::TableFull`].
    pub fn task_create(&mut self, caller: TenantId) -> Result<Selector, Errno> {
        let task = Task {
            stage: Stage::Created,
            waiters: Queue::default(),
        };
        self.create(caller, ObjectClass::Task, self.classes.task, task)
    }

    /// Makes the execution known that a task of `tenant` runs. Like
    /// [`register_execution`](Self::register_execution).
    ///
    /// # Errors
    /// Those of `register_execution`, [`Errno::Busy`] if the task has been started before,
    /// [`Errno::Invalid`] if it is another tenant's, and those of using a capability.
    pub fn register_task(
        &mut self,
        tenant: TenantId,
        task: Selector,
        id: ExecutionId,
    ) -> Result<(), Errno> {
        let target = self.resolve(tenant, task, ObjectClass::Task, Rights::END)?;
        if target.object.group() != self.group_of(tenant)? {
            return Err(Errno::Invalid);
        }
        let handle = Handle::<Task>::from_raw(target.object);
        let Stage::Created = self.groups.get(handle).ok_or(Errno::Gone)?.stage else {
            return Err(Errno::Busy);
        };
        self.register(tenant, id, Role::Task(handle))?;
        self.groups.get_mut(handle).ok_or(Errno::Gone)?.stage = Stage::Running(id);
        Ok(())
    }

    /// The exit code of a task, or waits for it. Needs [`Rights::READ`].
    ///
    /// # Errors
    /// Those of using a capability, and of [waiting](Outcome::Blocked).
    pub fn task_wait(
        &mut self,
        caller: TenantId,
        execution: ExecutionId,
        task: Selector,
    ) -> Result<Outcome<i32>, Errno> {
        self.blocking(caller, execution, |kernel, call| {
            let target = kernel.resolve(caller, task, ObjectClass::Task, Rights::READ)?;
            let task = kernel.groups.get(Handle::<Task>::from_raw(target.object));
            match task.ok_or(Errno::Gone)?.stage {
                Stage::Exited(code) => Ok(Outcome::Done(code)),
                _ => kernel.block(caller, execution, call, &target, Side::Task, 0),
            }
        })
    }

    /// Says which execution the caller may stop with this capability; `None` if the task does
    /// not run. The cell stops it and then reports
    /// [`execution_finished`](Self::execution_finished). Needs [`Rights::END`].
    ///
    /// # Errors
    /// Those of using a capability.
    pub fn task_stop(
        &mut self,
        caller: TenantId,
        task: Selector,
    ) -> Result<Option<ExecutionId>, Errno> {
        let target = self.resolve(caller, task, ObjectClass::Task, Rights::END)?;
        let task = self.groups.get(Handle::<Task>::from_raw(target.object));
        match task.ok_or(Errno::Gone)?.stage {
            Stage::Running(id) => Ok(Some(id)),
            _ => Ok(None),
        }
    }

    /// Records the exit of a task's execution, if the task still is there.
    pub(crate) fn task_exited(&mut self, handle: Handle<Task>, exit_code: i32) {
        if let Some(task) = self.groups.get_mut(handle) {
            task.stage = Stage::Exited(exit_code);
            self.executions
                .settle(&mut self.groups, handle.raw(), Side::Task);
        }
    }
}
