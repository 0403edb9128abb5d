//! Landlock: which files a thread can reach by name, no network, no signals to other processes.

use crate::calls::Network;
use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, LandlockStatus, NetPort, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// The newest interface that is asked for; an older kernel gives less.
const NEWEST: ABI = ABI::V6;

/// The permitted actions in a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Files are read, directories listed.
    Read,
    /// As well, all is done with files, directories and symbolic links; nothing is executed, and no
    /// devices, pipes or sockets are made.
    Write,
}

/// A file, or a directory with all that is below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    path: PathBuf,
    access: Access,
}

impl Place {
    /// A place to read from.
    pub fn read(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            access: Access::Read,
        }
    }

    /// A place to read from and write to.
    pub fn write(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            access: Access::Write,
        }
    }

    /// The directory's path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The places of a process: which threads reach them until when.
#[derive(Debug, Clone, Default)]
pub struct Places {
    /// Places that tenants may use: reachable for all threads, always.
    pub tenants: Vec<Place>,
    /// Places that the controller needs for longer: programs, the cache.
    pub controller: Vec<Place>,
    /// Places that only the start needs: until a thread is narrowed.
    pub start: Vec<Place>,
    /// Ports of other hosts to which the thread that sends requests may connect. Without one no thread
    /// connects to any.
    pub ports: Vec<u16>,
    /// Whether that thread may also listen, on sockets that are bound before, and accept connections there.
    pub listens: bool,
}

impl Places {
    pub(crate) fn network(&self) -> Network {
        Network {
            connects: !self.ports.is_empty(),
            listens: self.listens,
        }
    }
}

/// How far files are confined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "status")]
pub enum FilesInForce {
    /// All that is asked for.
    Full {
        /// Version of the kernel's interface.
        abi: i32,
    },
    /// The features of this kernel.
    Partial {
        /// Version of the kernel's interface.
        abi: i32,
    },
    /// The kernel has no Landlock, or it is switched off.
    Absent,
}

/// Restricts the calling thread, and those that it is going to start, to these places, and to connections
/// to these ports.
pub(crate) fn restrict<'a>(
    places: impl Iterator<Item = &'a Place>,
    ports: impl Iterator<Item = u16>,
) -> Result<FilesInForce, RulesetError> {
    let mut rules = Ruleset::default()
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?
        .create()?;
    for place in places {
        // A place that does not exist cannot be reached.
        if let Ok(opened) = PathFd::new(&place.path) {
            let allowed = allowed(place.access, place.path.is_dir());
            rules = rules.add_rule(PathBeneath::new(opened, allowed))?;
        }
    }
    for port in ports {
        rules = rules.add_rule(NetPort::new(port, AccessNet::ConnectTcp))?;
    }
    let status = rules.restrict_self()?;
    let abi = match status.landlock {
        LandlockStatus::Available {
            effective_abi,
            kernel_abi,
        } => kernel_abi.unwrap_or(effective_abi as i32),
        _ => 0,
    };
    Ok(match status.ruleset {
        RulesetStatus::FullyEnforced => FilesInForce::Full { abi },
        RulesetStatus::PartiallyEnforced => FilesInForce::Partial { abi },
        RulesetStatus::NotEnforced => FilesInForce::Absent,
    })
}

/// Never execution, devices, or requests to devices. Pipes and sockets may be renamed and linked
/// where writes are allowed. No function of a guest makes one, and the filter of system calls
/// allows no call that does.
fn allowed(access: Access, directory: bool) -> BitFlags<AccessFs> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let allowed = match access {
        Access::Read => read,
        Access::Write => {
            read | AccessFs::WriteFile
                | AccessFs::Truncate
                | AccessFs::RemoveDir
                | AccessFs::RemoveFile
                | AccessFs::MakeDir
                | AccessFs::MakeReg
                | AccessFs::MakeSym
                // To rename or link one is to make one.
                | AccessFs::MakeFifo
                | AccessFs::MakeSock
                | AccessFs::Refer
        }
    };
    match directory {
        true => allowed,
        false => allowed & AccessFs::from_file(NEWEST),
    }
}
