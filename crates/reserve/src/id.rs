//! Identifiers of servers and tasks that may outlive them, and never refer to another one.

/// A place in one of the scheduler's arrays.
pub(crate) type Index = u32;
/// No place.
pub(crate) const NOWHERE: Index = Index::MAX;
/// No instant: what never happens.
pub(crate) const NEVER: u64 = u64::MAX;

/// A server of one scheduler. When the server is removed its id goes stale: it never names
/// another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId {
    pub(crate) index: Index,
    pub(crate) generation: u32,
}

impl ServerId {
    /// The server's place in the scheduler, below [`Config::servers`](crate::Config): for
    /// tables beside it. Places are used again.
    pub const fn index(self) -> usize {
        self.index as usize
    }
}

/// A task of one scheduler. When the task is removed, or its server, its id goes stale: it never
/// names another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId {
    pub(crate) index: Index,
    pub(crate) generation: u32,
}

impl TaskId {
    /// The task's place in the scheduler, below [`Config::tasks`](crate::Config): for tables
    /// beside it. Places are used again.
    pub const fn index(self) -> usize {
        self.index as usize
    }
}

/// Why the scheduler refused a call; the state is then unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// As many servers as the scheduler was made for.
    #[error("there is no room for another server")]
    Servers,
    /// As many tasks as the scheduler was made for.
    #[error("there is no room for another task")]
    Tasks,
    /// The server or task has been removed.
    #[error("the server or task has been removed")]
    Stale,
    /// A background server has no contract, so it has none to change or report.
    #[error("a background server has no reservation")]
    Background,
}
