//! How a program ends.

/// How a program ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exit {
    /// It returned, or called exit, with this code.
    Code(i32),
    /// It trapped; the message says where.
    Trap(String),
    /// It requested something beyond its lease, and the interface has no other way to refuse it.
    Lease(String),
    /// A page of its memory could not be fetched or backed; the message says why.
    Memory(String),
    /// It was ended from outside.
    Killed,
}

impl Exit {
    /// Returns what is said of an end that is a failure: what happened, and the message.
    pub fn reason(&self) -> Option<(&'static str, &str)> {
        match self {
            Exit::Trap(message) => Some(("the program trapped: ", message)),
            Exit::Lease(message) => Some(("the lease does not pay for it: ", message)),
            Exit::Memory(message) => Some(("", message)),
            Exit::Code(_) | Exit::Killed => None,
        }
    }

    /// The code that a waiting tenant receives: the exit code, 134 for a trap, 135 for memory that
    /// failed, 137 for a kill.
    pub fn code(&self) -> i32 {
        match self {
            Exit::Code(code) => *code,
            Exit::Trap(_) | Exit::Lease(_) => 134,
            Exit::Memory(_) => 135,
            Exit::Killed => 137,
        }
    }
}
