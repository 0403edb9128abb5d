//! The token with which operators reach a node over TCP.

use leasehold_lease::{RegularFile, RegularFileError};
use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The number of random bytes of a token.
const BYTES: usize = 32;
/// The shortest and the longest token that is taken from a file.
const LENGTHS: std::ops::RangeInclusive<usize> = 32..=256;

/// A secret that stands for the right to operate a node. It is not shown by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Arc<str>);

/// A token cannot be read or made.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read or written.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Others than its owner may read or write the file.
    #[error("{path}: found mode {mode:04o}, which lets others in; allowed: 0600", path = path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The file has something else.
    #[error(
        "{path}: found no token; allowed: {least} to {most} letters, digits, `-`, `_` or `.`",
        path = path.display(), least = LENGTHS.start(), most = LENGTHS.end()
    )]
    Content {
        /// The file.
        path: PathBuf,
    },
}

impl Token {
    /// Makes a token of 32 random bytes, as 64 hexadecimal digits.
    pub fn random() -> Self {
        let bytes: [u8; BYTES] = rand::random();
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Self(digits.into())
    }

    /// Returns the token that a file holds. Without the file, makes a token and writes it there, readable by
    /// its owner alone: so a page that is open stays connected when the node is started again.
    ///
    /// # Errors
    /// When the file cannot be read or made, others than its owner may use it, or it holds no token.
    pub fn kept_at(path: &Path) -> Result<Self, TokenError> {
        let failed = |source| TokenError::File {
            path: path.to_owned(),
            source,
        };
        match RegularFile::open(path) {
            Ok(file) => Self::read(path, file),
            Err(RegularFileError::System(error)) if error.kind() == io::ErrorKind::NotFound => {
                let token = Self::random();
                let mut file = OpenOptions::new()
                    .write(true)
                    .create_new(true)
                    .mode(0o600)
                    .open(path)
                    .map_err(failed)?;
                writeln!(file, "{}", token.0).map_err(failed)?;
                Ok(token)
            }
            Err(error) => Err(failed(error.into())),
        }
    }

    fn read(path: &Path, file: RegularFile) -> Result<Self, TokenError> {
        let mode = file.metadata().permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(TokenError::Open {
                path: path.to_owned(),
                mode,
            });
        }
        let content = || TokenError::Content {
            path: path.to_owned(),
        };
        // The line's end may be two bytes.
        let bytes = file.read(*LENGTHS.end() as u64 + 2);
        let bytes = bytes.map_err(|error| match error {
            RegularFileError::Length { .. } => content(),
            error => TokenError::File {
                path: path.to_owned(),
                source: error.into(),
            },
        })?;
        let text = String::from_utf8_lossy(&bytes);
        let token = text.trim();
        // What an address can carry after `#` without being written otherwise.
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if !LENGTHS.contains(&token.len()) || !token.bytes().all(plain) {
            return Err(content());
        }
        Ok(Self(token.into()))
    }

    /// Returns whether `presented` is this token, in a time that does not depend on where they differ.
    pub fn is(&self, presented: &str) -> bool {
        let (own, other) = (self.0.as_bytes(), presented.as_bytes());
        own.len() == other.len()
            && own
                .iter()
                .zip(other)
                .fold(0, |differing, (a, b)| differing | (a ^ b))
                == 0
    }

    /// Returns the secret itself, for the address that an operator opens.
    pub fn secret(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::{Token, TokenError};
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_token_is_the_same_at_each_start_and_only_its_owner_can_read_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let made = Token::kept_at(&path).unwrap();
        assert_eq!(Token::kept_at(&path).unwrap(), made);
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert_ne!(Token::random(), made);
    }

    #[test]
    fn a_token_that_others_can_read_is_refused_with_its_file_and_mode() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        Token::kept_at(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let error = Token::kept_at(&path).unwrap_err();
        assert!(
            matches!(error, TokenError::Open { mode: 0o640, .. }),
            "{error}"
        );
        assert!(error.to_string().contains("640") && error.to_string().contains("token"));
    }

    #[test]
    fn a_file_that_holds_no_token_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        for content in [
            "",
            "short",
            &"x".repeat(300),
            &format!("{} {}", "a".repeat(32), "b"),
        ] {
            fs::write(&path, content).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            let error = Token::kept_at(&path).unwrap_err();
            assert!(
                matches!(error, TokenError::Content { .. }),
                "{content:?}: {error}"
            );
        }
    }

    #[test]
    fn a_fifo_is_no_token_and_is_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.unwrap().success());
        let error = Token::kept_at(&path).unwrap_err().to_string();
        assert!(
            error.ends_with("found a FIFO; allowed: a regular file"),
            "{error}"
        );
    }

    #[test]
    fn only_the_whole_token_is_the_token() {
        let token = Token::random();
        assert!(token.is(token.secret()));
        for other in ["", &token.secret()[1..], &format!("{}0", token.secret())] {
            assert!(!token.is(other), "{other}");
        }
    }

    #[test]
    fn a_token_is_not_written_to_logs() {
        let token = Token::random();
        assert!(!format!("{token:?}").contains(token.secret()));
    }
}
