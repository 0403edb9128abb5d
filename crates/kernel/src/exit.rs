//! The exit of an execution, and what waits for it.

use leasehold_reclaim::Backing;

use crate::execution::Role;
use crate::id::ExecutionId;
use crate::kernel::Kernel;

impl<B: Backing> Kernel<B> {
    /// Reports that an execution has exited in any way: it leaves its queue, and its waiters are
    /// woken. Does nothing if the execution was stopped because its tenant ended. O(executions
    /// woken).
    pub fn execution_finished(&mut self, id: ExecutionId, exit_code: i32) {
        let Some(link) = self.executions.stop_link(id) else {
            return;
        };
        let group = link.group();
        self.groups.unlink(link);
        self.groups.refund(group, self.classes.execution, 1);
        let Some(execution) = self.executions.remove(&mut self.groups, id) else {
            return;
        };
        match execution.role {
            Role::Task(task) => self.task_exited(task, exit_code),
            Role::Program => self.program_exited(execution.tenant, exit_code),
        }
    }
}
