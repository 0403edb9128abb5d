//! What a program is given.

use crate::call_bytes::call_bytes;
use crate::disk_use::DiskUse;
use crate::start_error::StartError;
use crate::steps::caps::{PATH, STRING_COUNT, STRINGS};
use crate::wasi::stdio::{Input, Output};
use leasehold_exchange::Outlet;
use leasehold_kernel::Errno;
use leasehold_keyvalue::Store;
use leasehold_lease::Lease;
use std::path::PathBuf;
use std::sync::Arc;

/// Most arguments of an execution, and most variables: a program copies either in one step.
const MOST_STRINGS: usize = STRING_COUNT.size();

/// A directory of the host that a tenant may use.
#[derive(Debug, Clone)]
pub struct Directory {
    /// Path on the host.
    pub host: PathBuf,
    /// Path as the guest sees it.
    pub guest: String,
    /// Whether the guest may change it.
    pub write: bool,
}

/// The parts that the embedder gives a program.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// Arguments; the first is by custom the program's name.
    pub args: Vec<String>,
    /// Environment variables.
    pub env: Vec<(String, String)>,
    /// What `wasi:config` says, by key; at most as many and as long as variables. Executions share it.
    pub config: Arc<[(String, String)]>,
    /// The store that `wasi:keyvalue` opens. A tenant with one has threads for it, as with a directory.
    pub keyvalue: Option<Arc<Store>>,
    /// Where its HTTP requests go; without it each is denied. It is for one start: the end of the tenant
    /// closes it.
    pub outgoing: Option<Arc<Outlet>>,
    /// Directories.
    pub dirs: Vec<Directory>,
    /// What earlier lives of the tenant have added to disks: it counts in the lease, as what it adds itself does.
    pub disk_use: DiskUse,
    /// Data sets that it can map, by name; only for tenants that page.
    pub data: Vec<(String, PathBuf)>,
    /// The directory, as the guest sees it, at which a component's relative paths begin by custom
    /// (`wasi:cli/environment` `initial-cwd`); at most 4,096 bytes.
    pub cwd: Option<String>,
    /// Standard input.
    pub stdin: Input,
    /// Standard output.
    pub stdout: Output,
    /// Standard error.
    pub stderr: Output,
}

impl Surroundings {
    /// Whether a tenant that is given this has threads promised before it starts: for its files, its store of keys, or its
    /// pages. The same for a start and for its rehearsal, which opens no store.
    pub(crate) fn need_threads(&self, lease: &Lease, has_store: bool) -> bool {
        has_store || !self.dirs.is_empty() || lease.memory.paging.is_some()
    }

    /// Checks that arguments, variables and names of directories are within the cap: each is copied in one step.
    ///
    /// # Errors
    /// Which of them is too long.
    pub(crate) fn check_lengths(&self) -> Result<(), StartError> {
        let args = self.args.iter().map(|arg| arg.len() + 1);
        let variables = self.env.iter();
        let env = variables.map(|(name, value)| name.len() + value.len() + 2);
        let names = self.dirs.iter().map(|directory| directory.guest.len() + 1);
        for (what, bytes, count) in [
            ("arguments", args.sum::<usize>(), self.args.len()),
            ("environment", env.sum(), self.env.len()),
            ("names of the directories", names.sum(), self.dirs.len()),
        ] {
            if count > STRING_COUNT.size() {
                return Err(StartError::TooLong(format!(
                    "{what}: {count} strings; allowed: at most {}",
                    STRING_COUNT.most
                )));
            }
            if bytes > STRINGS.size() {
                return Err(StartError::TooLong(format!(
                    "{what}: {bytes} bytes; allowed: at most {}",
                    STRINGS.most
                )));
            }
        }
        Ok(())
    }

    /// Checks that a component which pages can be given each string: the canonical ABI copies one in a step.
    ///
    /// # Errors
    /// The length of one that is too long.
    pub(crate) fn check_paged(&self, lease: &Lease) -> Result<(), StartError> {
        let most = call_bytes(lease, true);
        let pairs = self.env.iter().flat_map(|(name, value)| [name, value]);
        let names = self.dirs.iter().map(|directory| &directory.guest);
        let mut strings = self.args.iter().chain(pairs).chain(names);
        match strings.find(|string| string.len() as u64 > most) {
            None => Ok(()),
            Some(string) => Err(StartError::Lease {
                reason: format!(
                    "an argument, variable or name of a directory has {} bytes; `reclaim.call_bytes` of a \
                     component that pages allows {most}",
                    string.len()
                ),
            }),
        }
    }

    /// Checks that arguments, variables and names of directories can be copied in a step.
    pub(crate) fn check_strings(&self) -> Result<(), Errno> {
        let args = self.args.iter().map(|arg| arg.len() + 1);
        let env = self.env.iter();
        let env = env.map(|(name, value)| name.len() + value.len() + 2);
        let dirs = self.dirs.iter().map(|directory| directory.guest.len() + 1);
        let config = self.config.iter();
        let config = config.map(|(key, value)| key.len() + value.len() + 1);
        let fits = |count, bytes: usize| count <= MOST_STRINGS && bytes <= STRINGS.size();
        let is_path = |cwd: &String| cwd.len() <= PATH.size();
        match self.cwd.as_ref().is_none_or(is_path)
            && fits(self.args.len(), args.sum())
            && fits(self.env.len(), env.sum())
            && fits(self.config.len(), config.sum())
            && fits(self.dirs.len(), dirs.sum())
        {
            true => Ok(()),
            false => Err(Errno::Limit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Directory, Surroundings};
    use leasehold_lease::Lease;

    #[test]
    fn threads_are_promised_for_files_and_stores_alone() {
        let lease = Lease::default();
        let nothing = Surroundings::default();
        let directory = Directory {
            host: "/".into(),
            guest: "/".to_owned(),
            write: false,
        };
        let files = Surroundings {
            dirs: vec![directory],
            ..Surroundings::default()
        };
        assert!(!nothing.need_threads(&lease, false));
        assert!(nothing.need_threads(&lease, true) && files.need_threads(&lease, false));
    }
}
