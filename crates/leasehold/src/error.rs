//! The errors, by their origin.

use leasehold_cell::{CallError, FunctionError, ProgramError, StartError};
use thiserror::Error;

/// Why a call failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The host: it refuses a thread or memory, or cannot be measured.
    #[error("the host: {0:#}")]
    Host(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The program cannot be run here.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The tenant was not started: mostly, its lease does not pay for it.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The program has no such function, or one that cannot be called.
    #[error(transparent)]
    Function(#[from] FunctionError),
    /// The call was not made, or ended the tenant.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The results of a function are not those that were asked for.
    #[error("{function} returns something else than {asked}")]
    Results {
        /// The function.
        function: String,
        /// The type of Rust that was asked for.
        asked: &'static str,
    },
    /// Text that is no call, or no call of this function.
    #[error("{0}")]
    Text(String),
}
