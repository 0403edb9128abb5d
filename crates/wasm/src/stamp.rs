//! Whether a file is the one that it was.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long a file has been left alone before it has a stamp: far longer than a tick of the kernel's clock.
const SETTLED: Duration = Duration::from_secs(2);

/// What the kernel says of a file: its number, its length, and the instants of its last changes, which no program can set.
///
/// A file that was changed a moment ago has none: a further change could have the same instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp([u64; 7]);

impl Stamp {
    /// The stamp of a file with this status; `None` if it was changed a moment ago.
    pub fn of(status: &Metadata) -> Option<Stamp> {
        let changed = u64::try_from(status.ctime()).ok()?;
        let settled = UNIX_EPOCH.checked_add(Duration::from_secs(changed) + SETTLED)?;
        (SystemTime::now() > settled).then_some(Stamp([
            status.dev(),
            status.ino(),
            status.size(),
            status.mtime() as u64,
            status.mtime_nsec() as u64,
            changed,
            status.ctime_nsec() as u64,
        ]))
    }

    /// For a digest.
    pub(crate) const fn words(&self) -> [u64; 7] {
        self.0
    }
}
