//! What is recorded.

use crate::tracer::cgroup::Cgroup;

/// A part of a workload: its processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Every task in a control group or below it.
    Cgroup(Cgroup),
    /// A process, and the processes that it starts from now on.
    Process(u32),
}
