//! Why a request was not done.

use crate::view::{ErrorBody, ErrorKind, ErrorView};
use leasehold_cell::{ProgramError, StartError};
use leasehold_lease::LeaseError;
use std::io;

/// Why a request was not done. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Problem {
    /// Its kind.
    pub kind: ErrorKind,
    /// What was found, and what is allowed.
    pub message: String,
    at: Option<(u64, u64)>,
}

/// The longest message, bytes: it may quote a program or a lease file, which are not the node's.
pub(crate) const MESSAGE: usize = 4096;

/// Cuts a message to [`MESSAGE`].
pub(crate) fn cut(mut message: String) -> String {
    if message.len() > MESSAGE {
        message.truncate(message.floor_char_boundary(MESSAGE));
        message.push('…');
        message.shrink_to_fit();
    }
    message
}

impl Problem {
    /// Creates a problem of this kind; a message of more than 4,096 bytes is cut.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: cut(message.into()),
            at: None,
        }
    }

    pub(crate) fn no_tenant(name: &str) -> Self {
        Self::new(ErrorKind::NotFound, format!("there is no tenant {name:?}"))
    }

    pub(crate) fn not_running(name: &str) -> Self {
        Self::new(ErrorKind::Conflict, format!("tenant {name} is not running"))
    }

    /// Returns the problem with the name of its tenant.
    #[must_use]
    pub fn of_tenant(mut self, name: &str) -> Self {
        self.message = format!("tenant.{name}: {}", self.message);
        self
    }

    /// Returns the status of an answer with the problem.
    pub(crate) const fn status(&self) -> u16 {
        match self.kind {
            ErrorKind::NotFound => 404,
            ErrorKind::BadRequest | ErrorKind::BadLease => 400,
            ErrorKind::BadProgram | ErrorKind::MissingProgram => 422,
            ErrorKind::Refused | ErrorKind::Conflict => 409,
            ErrorKind::Unauthorized => 401,
            ErrorKind::Busy | ErrorKind::Ending => 503,
            ErrorKind::Internal => 500,
        }
    }

    pub(crate) fn body(&self) -> ErrorBody {
        ErrorBody {
            error: ErrorView {
                kind: self.kind,
                message: self.message.clone(),
                line: self.at.map(|(line, _)| line),
                column: self.at.map(|(_, column)| column),
            },
        }
    }
}

impl From<LeaseError> for Problem {
    fn from(error: LeaseError) -> Self {
        let at = match &error {
            LeaseError::Malformed { line, column, .. }
            | LeaseError::Refused { line, column, .. } => Some((*line as u64, *column as u64)),
            _ => None,
        };
        Self {
            at,
            ..Self::new(ErrorKind::BadLease, error.to_string())
        }
    }
}

impl From<ProgramError> for Problem {
    fn from(error: ProgramError) -> Self {
        match &error {
            ProgramError::Read { path, source } if source.kind() == io::ErrorKind::NotFound => {
                let message = format!("no such program: {}", path.display());
                Self::new(ErrorKind::MissingProgram, message)
            }
            error if error.is_of_host() => Self::new(ErrorKind::Internal, error.to_string()),
            _ => Self::new(ErrorKind::BadProgram, error.to_string()),
        }
    }
}

impl From<&StartError> for Problem {
    fn from(error: &StartError) -> Self {
        let kind = match error {
            StartError::Surroundings(_) | StartError::TooLong(_) => ErrorKind::BadLease,
            StartError::Program(_) => ErrorKind::BadProgram,
            StartError::Killed => ErrorKind::Conflict,
            StartError::CellEnded => ErrorKind::Internal,
            _ => ErrorKind::Refused,
        };
        Self::new(kind, error.to_string())
    }
}
