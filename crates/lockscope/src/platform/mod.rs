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
mod request;
mod runc;

pub use request::{Interception, Platform, PlatformError, Prepared, Request};

impl Platform {
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

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::request::find;
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
