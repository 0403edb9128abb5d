//! What a lock belongs to: the object and the field, and where in the source it is taken
//! (LockScope §4.2, table 4).

use serde::{Deserialize, Serialize};

/// A place where a lock is taken, as an analyzer of the kernel's debug information found it: the
/// innermost frame that is not a wrapper around a lock function.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    /// The function, inlined ones included.
    pub function: String,
    /// Path of the source file below the kernel's source tree, such as `fs/jbd2/transaction.c`.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// The lock.
    pub object: Object,
}

/// The object that a lock is a part of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Object {
    /// A field of a structure: `journal_s.j_list_lock`.
    Member {
        /// The structure's tag, without `struct`.
        structure: String,
        /// The field, with dots where it is nested.
        field: String,
        /// Where in the structure the lock is, in bytes, if it is known: the lock's address less
        /// this is the object's.
        offset: Option<u64>,
    },
    /// A variable of the kernel: `tasklist_lock`.
    Variable {
        /// Its name.
        name: String,
    },
    /// One of an array or a table of locks, which workloads meet in by accident: a hash bucket.
    Element {
        /// The structure or variable that the array is, or is in.
        container: String,
        /// The field of the element, or of the container, that the lock is.
        field: String,
    },
    /// It could not be told.
    Unknown {
        /// Why.
        reason: String,
    },
}

impl Place {
    /// The directory of the kernel's source tree that it is in: `mm`, `fs`, `kernel`, `net`, …
    /// (LockScope §5.2).
    #[must_use]
    pub fn subsystem(&self) -> &str {
        let path = self.file.trim_start_matches("./");
        path.split_once('/').map_or("unknown", |(first, _)| first)
    }
}

impl std::fmt::Display for Object {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Member {
                structure, field, ..
            } => write!(out, "{structure}.{field}"),
            Self::Variable { name } => out.write_str(name),
            Self::Element { container, field } => write!(out, "{container}[].{field}"),
            Self::Unknown { .. } => out.write_str("unknown"),
        }
    }
}
