//! An engine, and what was made for it.

use crate::built::InUse;
use crate::linkers::Linkers;
use crate::mappings::Mappings;
use leasehold_preempt::Companion;
use wasmtime::Engine;

/// An engine, and what its programs need.
pub(crate) struct EngineParts {
    pub(crate) engine: Engine,
    pub(crate) linkers: Linkers,
    pub(crate) in_use: InUse,
    pub(crate) companion: Companion,
    /// The limit on its pool of stacks.
    pub(crate) _mappings: Mappings,
}
