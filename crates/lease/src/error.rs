//! Errors of a lease file.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// The first fault of a lease file. Lines and columns count from 1, columns in characters.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LeaseError {
    /// The file cannot be read.
    #[error("{}: cannot read the lease file: {source}", file.display())]
    Unreadable {
        /// The lease file.
        file: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The file is not TOML, so there is no key to name yet.
    #[error("{}:{line}:{column}: found {found}; allowed: {allowed}", file.display())]
    Malformed {
        /// The lease file.
        file: PathBuf,
        /// Where in it.
        line: usize,
        /// Where in the line.
        column: usize,
        /// What stands there.
        found: String,
        /// What may stand there.
        allowed: &'static str,
    },
    /// A key is missing, unknown, or has a value that is not accepted.
    #[error("{}:{line}:{column}: {key}: found {found}; allowed: {allowed}", file.display())]
    Refused {
        /// The lease file.
        file: PathBuf,
        /// Where in it: the value, or the key if that is unknown, or the table that lacks it.
        line: usize,
        /// Where in the line.
        column: usize,
        /// The whole key, such as `tenant.thumbnailer.reclaim.budget`.
        key: String,
        /// What stands there.
        found: String,
        /// What may stand there.
        allowed: String,
    },
}

/// `text` quoted and escaped for a message of one line, cut so that it stays readable.
pub(crate) fn excerpt(text: &str) -> String {
    const LONGEST: usize = 60;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{:?}...", &text[..end]),
        None => format!("{text:?}"),
    }
}
