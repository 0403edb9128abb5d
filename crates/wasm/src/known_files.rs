//! What was read in a file once, as long as nothing has changed the file.
//!
//! A start digests its program and checks the tag of the compiled code: it reads tens of megabytes to find out what it found
//! out at the start before. A file that nobody has touched since says the same. The kernel tells: it gives each file
//! a number, and notes the instant of its last change, which no program can set. A note is made of a file's number, length and
//! instants, and of the present boot, and has a tag with this user's secret.
//!
//! A file that is written through a mapping may change before its instant does: whoever may write there can choose its
//! contents anyhow, and gets the old ones for a while.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use leasehold_confine::owned::{Missing, OwnedDirectory, OwnedError, Room};

use crate::stamp::Stamp;

/// What is kept: a few notes for each program. The ones made longest ago go first.
const ROOM: Room = Room {
    files: 16_384,
    bytes: 16_384 * MOST_BYTES as u64,
};

/// How many notes are made before others are removed: that takes a look at each.
const BETWEEN: u32 = 64;

/// Names the boot, after which another one has another.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// Most bytes of a note.
const MOST_BYTES: usize = 4096;

const TAG_BYTES: usize = 32;

/// The notes of one user.
pub(crate) struct KnownFiles {
    directory: OwnedDirectory,
    secret: [u8; 32],
    boot: String,
    /// Notes that this process made.
    made: AtomicU32,
}

impl KnownFiles {
    /// Opens a directory of notes, and makes it if it is not there; `None` where the boot has no name.
    ///
    /// # Errors
    /// When another user could have written to the directory, or it cannot be made.
    pub(crate) fn open(
        directory: &Path,
        secret: [u8; 32],
    ) -> Result<Option<KnownFiles>, OwnedError> {
        let directory = OwnedDirectory::open(directory, Missing::Create)?;
        let boot = std::fs::read_to_string(BOOT).ok();
        Ok(boot.map(|boot| KnownFiles {
            directory,
            secret,
            boot,
            made: AtomicU32::new(0),
        }))
    }

    /// What was noted of a file under a word for what was asked of it.
    pub(crate) fn get(&self, asked: &str, stamp: &Stamp) -> Option<Vec<u8>> {
        let name = self.name(asked, stamp);
        let most = MOST_BYTES + TAG_BYTES;
        let mut note = self.directory.read(OsStr::new(&name), most as u64).ok()?;
        let (value, tag) = note.split_last_chunk::<TAG_BYTES>()?;
        // Compared in constant time.
        let is_ours = self.tag(&name, value) == *tag;
        note.truncate(note.len() - TAG_BYTES);
        is_ours.then_some(note)
    }

    /// Notes what was read in a file that had this stamp before and after. Without room for it, and of more than
    /// [`MOST_BYTES`], nothing is noted.
    pub(crate) fn put(&self, asked: &str, stamp: &Stamp, value: &[u8]) {
        if value.len() > MOST_BYTES {
            return;
        }
        let name = self.name(asked, stamp);
        let tag = self.tag(&name, value);
        let noted = self
            .directory
            .write(OsStr::new(&name), &[value, tag.as_bytes()])
            .and_then(|()| self.tidy());
        if let Err(error) = noted {
            tracing::debug!(%error, "what was read in a file is not noted");
        }
    }

    /// The name of a note, from which nothing can be told of the file without the secret.
    fn name(&self, asked: &str, stamp: &Stamp) -> String {
        let mut hasher = blake3::Hasher::new_keyed(&self.secret);
        for part in [self.boot.as_bytes(), asked.as_bytes()] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        for word in stamp.words() {
            hasher.update(&word.to_le_bytes());
        }
        hasher.finalize().to_hex().to_string()
    }

    fn tag(&self, name: &str, value: &[u8]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.secret);
        hasher.update(b"note");
        hasher.update(name.as_bytes());
        hasher.update(value);
        hasher.finalize()
    }

    fn tidy(&self) -> Result<(), OwnedError> {
        match self.made.fetch_add(1, Ordering::Relaxed) % BETWEEN {
            0 => self.directory.keep_latest(ROOM),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::KnownFiles;
    use crate::stamp::Stamp;
    use std::fs::{self, File};
    use std::io::Write as _;
    use std::path::Path;
    use std::time::{Duration, Instant};

    const SECRET: [u8; 32] = [7; 32];

    fn stamp(path: &Path) -> Option<Stamp> {
        Stamp::of(&fs::metadata(path).expect("there"))
    }

    /// The stamp of a file that has been left alone.
    fn settled(path: &Path) -> Stamp {
        let began = Instant::now();
        loop {
            if let Some(stamp) = stamp(path) {
                return stamp;
            }
            assert!(began.elapsed() < Duration::from_secs(20), "it is young");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    #[test]
    fn a_note_is_found_until_the_file_is_changed_in_any_way() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("file");
        fs::write(&path, "one").expect("written");
        assert_eq!(stamp(&path), None, "it was changed a moment ago");
        let first = settled(&path);
        let notes = KnownFiles::open(&directory.path().join("known"), SECRET);
        let notes = notes.expect("trusted").expect("a boot");
        assert_eq!(notes.get("digest", &first), None);
        notes.put("digest", &first, &[1; 32]);
        assert_eq!(notes.get("digest", &first), Some(vec![1; 32]));
        notes.put("long", &first, &[1; 1000]);
        assert_eq!(notes.get("long", &first), Some(vec![1; 1000]));
        notes.put("longer", &first, &[1; 5000]);
        assert_eq!(notes.get("longer", &first), None);
        assert_eq!(notes.get("tag", &first), None, "something else was asked");
        // The same bytes, length and time of modification, as far as a program can make them so.
        let modified = fs::metadata(&path)
            .and_then(|it| it.modified())
            .expect("known");
        let mut file = File::options().write(true).open(&path).expect("opened");
        file.write_all(b"two").expect("written");
        file.set_modified(modified).expect("set");
        drop(file);
        let second = settled(&path);
        assert_ne!(first, second);
        assert_eq!(notes.get("digest", &second), None);
        // Another file with the name, and the contents that are known.
        fs::rename(&path, directory.path().join("away")).expect("moved");
        fs::write(&path, "one").expect("written");
        assert_eq!(notes.get("digest", &settled(&path)), None);
    }

    #[test]
    fn a_note_that_was_made_without_the_secret_is_not_believed() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("file");
        fs::write(&path, "one").expect("written");
        let stamp = settled(&path);
        let known = directory.path().join("known");
        let open = |secret| {
            let notes = KnownFiles::open(&known, secret).expect("trusted");
            notes.expect("a boot")
        };
        let (ours, theirs) = (open(SECRET), open([8; 32]));
        theirs.put("digest", &stamp, &[1; 32]);
        assert_eq!(ours.get("digest", &stamp), None);
        // Theirs under the name of ours; and ours, altered.
        let name = ours.name("digest", &stamp);
        fs::rename(known.join(theirs.name("digest", &stamp)), known.join(&name)).expect("moved");
        assert_eq!(ours.get("digest", &stamp), None);
        ours.put("digest", &stamp, &[1; 32]);
        assert!(ours.get("digest", &stamp).is_some());
        let mut note = fs::read(known.join(&name)).expect("read");
        note[0] ^= 1;
        fs::write(known.join(&name), note).expect("written");
        assert_eq!(ours.get("digest", &stamp), None);
    }
}
