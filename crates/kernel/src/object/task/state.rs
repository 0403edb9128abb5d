//! A task.

use crate::id::ExecutionId;
use crate::queue::Queue;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Task {
    pub(super) stage: Stage,
    pub(crate) waiters: Queue,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Stage {
    Created,
    Running(ExecutionId),
    Exited(i32),
}

impl Task {
    pub(crate) const fn exit_code(&self) -> Option<i32> {
        match self.stage {
            Stage::Exited(code) => Some(code),
            _ => None,
        }
    }
}
