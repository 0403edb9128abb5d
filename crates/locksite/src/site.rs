//! The result for a place where a lock is taken.

use serde::{Deserialize, Serialize};

/// A place where a lock is taken, and which lock it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Site {
    /// The innermost function that is no wrapper of a lock function, inlined ones included.
    pub function: String,
    /// Its source file, below the kernel's source tree; empty if there is no debug information.
    pub file: String,
    /// The line of the acquisition, from 1; 0 if there is no debug information.
    pub line: u32,
    /// The lock.
    pub lock: Lock,
}

/// A lock, by the object that it is part of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lock {
    /// A member of an object: `struct inode`, `i_rwsem`.
    Member {
        /// The structure that declares the lock: its tag, or its typedef if it has none.
        structure: String,
        /// The member, with dots where it is nested.
        field: String,
        /// Where in the structure it is, in bytes: the lock's address minus this is the object's.
        /// `None` if the object only has a pointer to the lock.
        offset: Option<u64>,
        /// The larger object that the structure was reached in, such as
        /// `pipe_inode_info.rd_wait` for the lock of a wait queue, or the variable.
        within: Option<String>,
        /// One of the elements of an array.
        element: bool,
        /// Each processor has its own.
        per_cpu: bool,
    },
    /// A variable by itself.
    Variable {
        /// Its name.
        name: String,
        /// One of the elements of an array.
        element: bool,
        /// Each processor has its own.
        per_cpu: bool,
    },
    /// A variable on a function's stack.
    OnStack {
        /// Its name.
        name: String,
    },
    /// Not known.
    Unknown {
        /// Why not.
        reason: Reason,
    },
}

/// Why a lock could not be mapped to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// No debug information covers the code: assembly, or a module without a debug file.
    NoDebugInformation,
    /// The function's text was not found in the source tree.
    NoSource,
    /// The text does not call the lock function where the debug information says.
    NoCall,
    /// The lock is an argument of a function whose caller is not in the stack.
    NoCaller,
    /// The expression was not understood.
    Expression,
}

impl Lock {
    /// Whether it is known what the lock belongs to.
    #[must_use]
    pub fn is_known(&self) -> bool {
        !matches!(self, Self::Unknown { .. })
    }
}

impl std::fmt::Display for Lock {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let many = |element: bool| if element { "[]" } else { "" };
        match self {
            Self::Member {
                structure,
                field,
                within,
                element,
                ..
            } => {
                write!(out, "{structure}.{field}{}", many(*element))?;
                within
                    .iter()
                    .try_for_each(|within| write!(out, " in {within}"))
            }
            Self::Variable { name, element, .. } => write!(out, "{name}{}", many(*element)),
            Self::OnStack { name } => write!(out, "{name} on the stack"),
            Self::Unknown { reason } => write!(out, "unknown ({reason})"),
        }
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Self::NoDebugInformation => "no debug information",
            Self::NoSource => "source not found",
            Self::NoCall => "call not found",
            Self::NoCaller => "caller not in the stack",
            Self::Expression => "expression not understood",
        })
    }
}

impl Site {
    /// The directory of the source tree that it is in: `mm`, `fs`, `kernel`, … (LockScope §5.2).
    #[must_use]
    pub fn subsystem(&self) -> &str {
        self.file
            .split_once('/')
            .map_or("unknown", |(first, _)| first)
    }
}
