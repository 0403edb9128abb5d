//! The directories that a tenant has open.
//!
//! What a directory takes of a disk is given back when its name has gone and the tenant has closed it everywhere.

use super::class::Site;
use super::status::Identity;
use leasehold_crossing::{Mutex, MutexGuard};
use std::collections::BTreeMap;

/// A directory that the tenant has open.
#[derive(Debug, Default)]
struct Seen {
    descriptors: u32,
    /// Bytes that are given back with the last descriptor: its name has gone.
    owes: u64,
}

/// The directories of one top-level tenant that are open; no more than descriptors.
#[derive(Debug, Default)]
pub(super) struct Directories {
    open: Mutex<BTreeMap<Identity, Seen>>,
    /// Held while a name is made, and its directory measured.
    naming: Mutex<()>,
}

impl Directories {
    /// Begins making a name, waiting for others where that is allowed; `None` on the cell's thread if one is being
    /// made.
    pub(super) fn turn(&self, site: Site) -> Option<MutexGuard<'_, ()>> {
        match site {
            Site::Blocking => Some(self.naming.lock()),
            Site::Cell(_) => self.naming.try_lock(),
        }
    }

    /// Counts one more descriptor of a directory.
    pub(super) fn opened(&self, identity: Identity) {
        self.open.lock().entry(identity).or_default().descriptors += 1;
    }

    /// Counts one descriptor less; returns the bytes that are to be given back for it.
    pub(super) fn closed(&self, identity: Identity) -> u64 {
        let mut open = self.open.lock();
        let Some(seen) = open.get_mut(&identity) else {
            return 0;
        };
        seen.descriptors -= 1;
        match seen.descriptors {
            0 => open.remove(&identity).map_or(0, |seen| seen.owes),
            _ => 0,
        }
    }

    /// Records that the name of a directory of so many bytes has gone; returns the bytes that are to be given back
    /// now.
    pub(super) fn removed(&self, identity: Identity, bytes: u64) -> u64 {
        match self.open.lock().get_mut(&identity) {
            Some(seen) => {
                seen.owes = bytes;
                0
            }
            None => bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Directories;

    #[test]
    fn what_a_removed_directory_took_is_given_back_once_and_when_it_is_closed_everywhere() {
        let directories = Directories::default();
        let (mine, other) = ((1, 1), (1, 2));
        for identity in [mine, mine, other] {
            directories.opened(identity);
        }
        assert_eq!(directories.removed(mine, 4096), 0);
        assert_eq!(directories.closed(other), 0);
        assert_eq!(directories.closed(mine), 0);
        assert_eq!(directories.closed(mine), 4096);
        assert_eq!(directories.closed(mine), 0);
        assert_eq!(directories.removed(other, 8192), 8192);
    }
}
