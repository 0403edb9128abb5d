//! What is asked of a platform, and what it answers.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use thiserror::Error;

/// Something that workloads run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Platform {
    /// Processes of the host, nothing around them.
    #[default]
    Host,
    /// A container with its own namespaces, by `runc`.
    Runc,
    /// A sandbox whose kernel is a program: gVisor's `runsc`.
    Gvisor(Interception),
    /// A virtual machine without a board, by QEMU.
    Microvm,
    /// A virtual machine, by Firecracker.
    Firecracker,
    /// A tenant in a Leasehold cell of its own.
    Leasehold,
}

/// How the sentry gets hold of the system calls of what it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Interception {
    /// By seccomp's signals.
    #[default]
    Systrap,
    /// By `ptrace`.
    Ptrace,
    /// By running it as a virtual machine's guest; LockScope's choice (§5.1), and not possible in a
    /// machine that has no `/dev/kvm`.
    Kvm,
}

/// What is to be run.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The workload's name: letters and digits.
    pub name: &'a str,
    /// The command, as `sh` reads it; for Leasehold, a program and its arguments.
    pub command: &'a str,
    /// Directories of the host that it may write to.
    pub writable: &'a [PathBuf],
    /// Its control group, below the mount of cgroup2.
    pub cgroup: &'a Path,
}

/// A command that is ready to be started. What it needs on disk goes with this value, which must
/// outlive it.
#[derive(Debug)]
pub struct Prepared {
    program: Vec<OsString>,
    files: Option<TempDir>,
}

/// Why a platform cannot run anything.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PlatformError {
    /// There is no such platform.
    #[error("--platform: found {found:?}; allowed: {}", Platform::NAMES.join(", "))]
    Unknown {
        /// What was given.
        found: String,
    },
    /// A program that it needs is not installed.
    #[error("platform {platform}: found no program {program} in $PATH; {install}")]
    Missing {
        /// The platform.
        platform: &'static str,
        /// The program.
        program: &'static str,
        /// How to get it.
        install: &'static str,
    },
    /// A file that it needs is not given, or not there.
    #[error("platform {platform}: {what}")]
    Needs {
        /// The platform.
        platform: &'static str,
        /// What it needs, and where that was looked for.
        what: String,
    },
    /// A directory that a workload is to write to is none.
    #[error("--writable {}: not a directory", .0.display())]
    NotADirectory(PathBuf),
    /// What it needs on disk cannot be made.
    #[error("platform {platform}: cannot make {what}: {source}")]
    Io {
        /// The platform.
        platform: &'static str,
        /// What.
        what: String,
        /// Why not.
        source: io::Error,
    },
}

impl Platform {
    /// As they are called on the command line and in tables.
    pub const NAMES: [&'static str; 8] = [
        "host",
        "runc",
        "gvisor",
        "gvisor-ptrace",
        "gvisor-kvm",
        "microvm",
        "firecracker",
        "leasehold",
    ];

    /// The platform of this name.
    ///
    /// # Errors
    /// There is none.
    pub fn named(name: &str) -> Result<Self, PlatformError> {
        Ok(match name {
            "host" => Self::Host,
            "runc" => Self::Runc,
            "gvisor" => Self::Gvisor(Interception::Systrap),
            "gvisor-ptrace" => Self::Gvisor(Interception::Ptrace),
            "gvisor-kvm" => Self::Gvisor(Interception::Kvm),
            "microvm" => Self::Microvm,
            "firecracker" => Self::Firecracker,
            "leasehold" => Self::Leasehold,
            _ => return Err(PlatformError::Unknown { found: name.into() }),
        })
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Runc => "runc",
            Self::Gvisor(Interception::Systrap) => "gvisor",
            Self::Gvisor(Interception::Ptrace) => "gvisor-ptrace",
            Self::Gvisor(Interception::Kvm) => "gvisor-kvm",
            Self::Microvm => "microvm",
            Self::Firecracker => "firecracker",
            Self::Leasehold => "leasehold",
        }
    }
}

impl Prepared {
    pub(super) fn new<Word: Into<OsString>>(
        program: impl IntoIterator<Item = Word>,
        files: Option<TempDir>,
    ) -> Self {
        let program = program.into_iter().map(Into::into).collect();
        Self { program, files }
    }

    /// The program and its arguments.
    #[must_use]
    pub fn program(&self) -> &[OsString] {
        &self.program
    }

    /// Where what it needs on disk is, if it needs something.
    #[must_use]
    pub fn files(&self) -> Option<&Path> {
        self.files.as_ref().map(TempDir::path)
    }
}

/// Where `program` is in `$PATH`.
pub(super) fn find(
    platform: &'static str,
    program: &'static str,
    install: &'static str,
) -> Result<PathBuf, PlatformError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&path).map(|directory| directory.join(program));
    places
        .find(|file| file.is_file())
        .ok_or(PlatformError::Missing {
            platform,
            program,
            install,
        })
}

/// A directory of its own for what a platform needs on disk.
pub(super) fn directory(platform: &'static str) -> Result<TempDir, PlatformError> {
    let made = tempfile::Builder::new().prefix("lockscope-").tempdir();
    made.map_err(|source| PlatformError::Io {
        platform,
        what: "a directory for its files".into(),
        source,
    })
}
