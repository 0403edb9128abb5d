//! Privileges of the process, and its visibility to other processes.

use rustix::process::{DumpableBehavior, Resource, getrlimit, set_dumpable_behavior};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, set_capabilities,
    set_no_new_privs,
};
use std::io;
use std::marker::PhantomData;

/// The capability that a cell's thread needs until it has real-time priority.
const START: CapabilitySet = CapabilitySet::SYS_NICE;

/// The capability that it needs as long as it locks memory, unless the limit on that could be
/// lifted.
const LOCKS: CapabilitySet = CapabilitySet::IPC_LOCK;

/// The capabilities with which permissions of files do not matter.
const IGNORES_PERMISSIONS: CapabilitySet =
    CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::DAC_READ_SEARCH);

/// While this is there, the thread that made it reads and writes what the permissions of files let its user, like a
/// [confined](crate::enter) one; then it has again what it had.
#[derive(Debug)]
pub struct ObeysPermissions {
    had: Option<CapabilitySets>,
    /// Capabilities are a thread's own.
    not_send: PhantomData<*const ()>,
}

impl ObeysPermissions {
    /// Gives up, for a while, the right to ignore permissions. Two system calls, or one if the thread does not have it.
    ///
    /// # Errors
    /// The system's.
    pub fn begin() -> io::Result<Self> {
        let has = capabilities(None)?;
        let ignores = has.effective.intersects(IGNORES_PERMISSIONS);
        if ignores {
            let effective = has.effective - IGNORES_PERMISSIONS;
            set_capabilities(None, CapabilitySets { effective, ..has })?;
        }
        Ok(Self {
            had: ignores.then_some(has),
            not_send: PhantomData,
        })
    }
}

impl Drop for ObeysPermissions {
    fn drop(&mut self) {
        if let Some(had) = self.had {
            // What is permitted can always be made effective.
            let _ = set_capabilities(None, had);
        }
    }
}

/// Whether a thread keeps the right to lock memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Locking {
    /// It locks none.
    Never,
    /// It locks frames of tenants, or their code. It keeps `CAP_IPC_LOCK` if it has it and
    /// `RLIMIT_MEMLOCK` is not unlimited.
    Memory,
}

impl Locking {
    fn kept(self) -> CapabilitySet {
        match self {
            Locking::Memory if !is_unlimited() => LOCKS,
            Locking::Memory | Locking::Never => CapabilitySet::empty(),
        }
    }
}

/// Returns whether the calling thread may lock any amount of memory. Two system calls at the most.
#[must_use]
pub fn locks_without_limit() -> bool {
    is_unlimited() || capabilities(None).is_ok_and(|sets| sets.effective.contains(LOCKS))
}

fn is_unlimited() -> bool {
    getrlimit(Resource::Memlock).current.is_none()
}

/// The highest number that a capability may ever have.
const LAST_CAPABILITY: libc::c_ulong = 63;

/// Permanently gives up possible privileges, and all capabilities but those of the start. From here
/// on no other process of the user can read this one.
pub(crate) fn begin() -> io::Result<()> {
    set_no_new_privs(true)?;
    clear_ambient_capability_set()?;
    empty_bounding_set()?;
    let has = capabilities(None)?;
    keep(has.permitted & (START | Locking::Memory.kept()))?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}

/// The calling thread gives up the rest.
pub(crate) fn drop_all(locking: Locking) -> io::Result<()> {
    let has = capabilities(None)?;
    keep(has.permitted & locking.kept())
}

fn keep(kept: CapabilitySet) -> io::Result<()> {
    let sets = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    Ok(set_capabilities(None, sets)?)
}

/// Empties the bounding set, if the process may. If it may not, it has no privileges to lose, and
/// `no_new_privs` keeps it from getting any.
fn empty_bounding_set() -> io::Result<()> {
    let has = capabilities(None)?;
    if !has.effective.contains(CapabilitySet::SETPCAP) {
        return Ok(());
    }
    for capability in 0..=LAST_CAPABILITY {
        // SAFETY: the call takes numbers only.
        let result = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
        if result != 0 {
            let error = io::Error::last_os_error();
            return match error.raw_os_error() {
                // The kernel has no more.
                Some(libc::EINVAL) => Ok(()),
                _ => Err(error),
            };
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::ObeysPermissions;
    use std::fs::{File, Permissions};
    use std::io;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn permissions_hold_for_a_while_and_then_as_before() -> io::Result<()> {
        let file = tempfile::NamedTempFile::new()?;
        let open = || File::open(file.path()).map_err(|error| error.kind());
        file.as_file()
            .set_permissions(Permissions::from_mode(0o000))?;
        let before = open().err();
        {
            let _obeys = ObeysPermissions::begin()?;
            assert_eq!(open().err(), Some(io::ErrorKind::PermissionDenied));
        }
        assert_eq!(open().err(), before);
        Ok(())
    }
}
