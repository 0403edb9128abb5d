//! The platforms of workloads (LockScope §5.1). A platform turns a command into the program that
//! runs it there. A control group with that program contains all of the platform: the sandbox's own
//! kernel, its file server and its monitor count as the workload, as in LockScope §5.2.
//!
//! In a container a command sees the files of the host at their places, read-only, and can write to the
//! directories that it is given; a virtual machine has its own, in its memory. One file for each
//! platform; `bundle` is what the two container runtimes have in common, `guest_image` what the two
//! kinds of virtual machine boot.

mod bundle;
mod firecracker;
mod guest_image;
mod gvisor;
mod host;
mod leasehold;
mod microvm;
mod runc;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use thiserror::Error;

pub use gvisor::Interception;

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

    /// Makes what it takes to run the command here, and runs nothing yet.
    ///
    /// # Errors
    /// Something is not installed or not given, or files cannot be made.
    pub fn prepare(self, request: &Request<'_>) -> Result<Prepared, PlatformError> {
        let no_directory = request.writable.iter().find(|path| !path.is_dir());
        if let Some(path) = no_directory {
            return Err(PlatformError::NotADirectory(path.clone()));
        }
        match self {
            Self::Host => Ok(host::prepare(request)),
            Self::Runc => runc::prepare(request),
            Self::Gvisor(interception) => gvisor::prepare(request, interception),
            Self::Microvm => microvm::prepare(request),
            Self::Firecracker => firecracker::prepare(request),
            Self::Leasehold => leasehold::prepare(request),
        }
    }
}

impl Prepared {
    fn new<Word: Into<OsString>>(
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
fn find(
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
fn directory(platform: &'static str) -> Result<TempDir, PlatformError> {
    let made = tempfile::Builder::new().prefix("lockscope-").tempdir();
    made.map_err(|source| PlatformError::Io {
        platform,
        what: "a directory for its files".into(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_platform_is_found_by_the_name_that_it_has() {
        for name in Platform::NAMES {
            assert_eq!(Platform::named(name).map(Platform::name).ok(), Some(name));
        }
        let refused = Platform::named("lxc")
            .expect_err("no such platform")
            .to_string();
        assert!(
            refused.contains("found \"lxc\"; allowed: host, runc, gvisor"),
            "{refused}"
        );
    }

    #[test]
    fn what_is_no_directory_is_not_made_writable() {
        let writable = [PathBuf::from("/no/such/directory")];
        let request = Request {
            name: "a",
            command: "true",
            writable: &writable,
            cgroup: Path::new("a"),
        };
        for name in Platform::NAMES {
            let refused = Platform::named(name).and_then(|platform| platform.prepare(&request));
            let refused = refused.expect_err("no directory").to_string();
            assert_eq!(refused, "--writable /no/such/directory: not a directory");
        }
    }

    #[test]
    fn what_is_not_installed_is_said_with_how_to_install_it() {
        let refused = find("runc", "no-such-program", "install the package runc");
        let refused = refused.expect_err("no such program").to_string();
        assert_eq!(
            refused,
            "platform runc: found no program no-such-program in $PATH; install the package runc"
        );
    }
}
