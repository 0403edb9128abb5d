//! The host steps that programs reach, remembered while their files stay as they are.
//!
//! A node tests all of its tenants whenever one is put. To read their programs again each time would take some ten
//! milliseconds for each that contains a language engine. A file is as it was while its device, inode, length and the
//! instant of its last change are; one that changed just now is read again, since the clocks of file systems are coarse.
//! Nothing is at stake but what admission counts on: a cell that starts a program looks at it again.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use leasehold_cell::Program;
use leasehold_cell::steps::Reach;

/// The age of a change from which on another one has another instant.
const SETTLED: Duration = Duration::from_secs(2);

/// Most programs that are remembered.
const MOST: usize = 1024;

/// What a file was when it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    /// Its last change, since 1970.
    changed: Duration,
}

impl Stamp {
    /// Of the file at this path; `None` if there is none, or it changed just now.
    fn of(path: &Path) -> Option<Self> {
        let file = fs::metadata(path).ok()?;
        let seconds = Duration::from_secs(u64::try_from(file.ctime()).ok()?);
        let changed = seconds + Duration::from_nanos(u64::try_from(file.ctime_nsec()).ok()?);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let is_settled = now.is_ok_and(|now| now > changed + SETTLED);
        is_settled.then(|| Self {
            device: file.dev(),
            inode: file.ino(),
            bytes: file.len(),
            changed,
        })
    }
}

/// What is remembered.
#[derive(Default)]
struct Known(Option<HashMap<PathBuf, (Stamp, Option<Reach>)>>);

impl Known {
    fn get(
        &mut self,
        path: &Path,
        stamp: Option<Stamp>,
        read: impl FnOnce() -> Option<Reach>,
    ) -> Option<Reach> {
        let known = self.0.get_or_insert_default();
        if let Some((of, reach)) = known.get(path)
            && stamp == Some(*of)
        {
            return reach.clone();
        }
        let reach = read();
        if known.len() >= MOST {
            known.clear();
        }
        match stamp {
            // It was so before it was read: a change meanwhile is seen at the next look.
            Some(stamp) => drop(known.insert(path.to_owned(), (stamp, reach.clone()))),
            None => drop(known.remove(path)),
        }
        reach
    }
}

/// The host steps that the program in a file reaches; `None` if it cannot be read.
pub(crate) fn reach(path: &Path) -> Option<Reach> {
    static KNOWN: Mutex<Known> = Mutex::new(Known(None));
    let stamp = Stamp::of(path);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known.get(path, stamp, || Program::reach_in(path).ok())
}

#[cfg(test)]
mod tests {
    use super::{Known, Stamp};
    use leasehold_cell::steps::Reach;
    use std::path::Path;
    use std::time::Duration;

    #[test]
    fn a_file_is_read_again_when_it_has_changed_or_may_have() {
        let (path, mut known, mut read) = (Path::new("a.wasm"), Known::default(), 0);
        let stamp = Stamp {
            device: 1,
            inode: 2,
            bytes: 3,
            changed: Duration::from_secs(4),
        };
        let longer = Stamp { bytes: 4, ..stamp };
        let later = Stamp {
            changed: Duration::from_nanos(4_000_000_001),
            ..stamp
        };
        let looks = [
            (Some(stamp), 1),
            (Some(stamp), 1),
            (Some(longer), 2),
            (Some(stamp), 3),
            (Some(later), 4),
            (Some(later), 4),
            // It changed just now.
            (None, 5),
            (None, 6),
            (Some(later), 7),
        ];
        for (stamp, reads) in looks {
            let found = known.get(path, stamp, || {
                read += 1;
                Some(Reach::any())
            });
            assert_eq!((found, read), (Some(Reach::any()), reads), "{stamp:?}");
        }
        assert_eq!(known.get(Path::new("b.wasm"), Some(later), || None), None);
    }

    #[test]
    fn a_file_that_was_just_written_has_no_stamp() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        assert_eq!(Stamp::of(file.path()), None);
        assert_eq!(Stamp::of(Path::new("/nowhere")), None);
        assert!(Stamp::of(Path::new("/bin/sh")).is_some());
    }
}
