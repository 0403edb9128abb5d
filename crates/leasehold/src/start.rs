//! The parameters of a tenant's start.

use leasehold_cell::{Capture, Directory, Input, Output, Surroundings};
use std::path::Path;

/// The surroundings of a tenant: it sees nothing else. Its output is kept in memory unless it is
/// [inherited](Start::inherit_output).
#[derive(Debug, Clone)]
#[must_use]
pub struct Start {
    surroundings: Surroundings,
    /// Bytes of each output that are kept; `None` if they are the process' own.
    captured: Option<usize>,
}

/// The outputs of a tenant that are kept in memory.
#[derive(Debug, Clone)]
pub(crate) struct Captured {
    pub(crate) stdout: Capture,
    pub(crate) stderr: Capture,
}

/// Bytes of each output that are kept, unless it is said otherwise.
const KEPT: usize = 1 << 20;

impl Default for Start {
    fn default() -> Self {
        Self::new()
    }
}

impl Start {
    /// No arguments, variables, directories or input; up to 1 MiB of each output is kept.
    pub fn new() -> Self {
        Self {
            surroundings: Surroundings::default(),
            captured: Some(KEPT),
        }
    }

    /// Adds an argument, after the program's name.
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        self.surroundings.args.push(arg.into());
        self
    }

    /// Sets a variable of the environment.
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.surroundings.env.push((name.into(), value.into()));
        self
    }

    /// Lets it read a directory of the host, as `guest`.
    pub fn read_dir(self, host: &Path, guest: impl Into<String>) -> Self {
        self.dir(host, guest, false)
    }

    /// Lets it read and change a directory of the host, as `guest`.
    pub fn write_dir(self, host: &Path, guest: impl Into<String>) -> Self {
        self.dir(host, guest, true)
    }

    fn dir(mut self, host: &Path, guest: impl Into<String>, write: bool) -> Self {
        self.surroundings.dirs.push(Directory {
            host: host.to_owned(),
            guest: guest.into(),
            write,
        });
        self
    }

    /// Gives it these bytes as its standard input.
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.surroundings.stdin = Input::Bytes(bytes.into().into());
        self
    }

    /// Keeps up to so many bytes of each output; writing more is an error to the tenant.
    pub fn keep_output(mut self, bytes: usize) -> Self {
        self.captured = Some(bytes);
        self
    }

    /// Its output is the process' own.
    pub fn inherit_output(mut self) -> Self {
        self.captured = None;
        self
    }

    pub(crate) fn surroundings(self, name: &str) -> (Surroundings, Option<Captured>) {
        let mut surroundings = self.surroundings;
        surroundings.args.insert(0, name.to_owned());
        let captured = self.captured.map(|bytes| Captured {
            stdout: Capture::new(bytes),
            stderr: Capture::new(bytes),
        });
        match &captured {
            None => (surroundings.stdout, surroundings.stderr) = (Output::Stdout, Output::Stderr),
            Some(Captured { stdout, stderr }) => {
                surroundings.stdout = Output::Capture(stdout.clone());
                surroundings.stderr = Output::Capture(stderr.clone());
            }
        }
        (surroundings, captured)
    }
}
