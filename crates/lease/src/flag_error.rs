//! What is wrong with the value of a flag.

use std::borrow::Cow;

use thiserror::Error;

use crate::error::excerpt;
use crate::quantity::QuantityError;

/// The value of a flag that is not accepted; displays what was found and what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("found {found}; allowed: {allowed}")]
pub struct FlagError {
    found: String,
    allowed: Cow<'static, str>,
}

impl FlagError {
    pub(crate) fn new(found: &str, allowed: impl Into<Cow<'static, str>>) -> Self {
        Self {
            found: excerpt(found),
            allowed: allowed.into(),
        }
    }
}

/// For the times and sizes inside a flag that has several values.
impl From<QuantityError> for FlagError {
    fn from(error: QuantityError) -> Self {
        Self {
            found: error.found(),
            allowed: error.allowed().into(),
        }
    }
}
