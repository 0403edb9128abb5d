//! Compiled programs on disk, so that a program is compiled once and not at every start.
//!
//! Compiled code is trusted: loading it is as good as running a native program. An entry is
//! therefore used only if two conditions hold. First, the entry, its directory and all directories
//! above belong to this user or to root, and no other user may write to them
//! ([`leasehold_confine::owned`]). Second, its tag is valid: a keyed digest (BLAKE3) of its name
//! and content. The key is a secret of this user, kept in the state directory and not beside the
//! entries. A plain checksum only detects damage: any writer of the cache could recompute it, or
//! give an entry the name of another. The secret makes a restored, copied or shared cache directory
//! worthless.
//!
//! The tag of an entry that was checked before is noted (`known_files`), and the digest of a program: a start
//! reads neither again unless the file was changed.
//!
//! An invalid entry is ignored. The name of an entry is a digest of the program and of everything
//! that compilation depends on, including the engine's version and settings. No entry is ever out
//! of date.
//!
//! Code is mapped, not read: the processes that run one program share its pages with the page cache,
//! and a start copies nothing. For that the code is the beginning of its entry, and what else belongs
//! to the entry is behind it. The pages are locked, since a guest that waits for its code to come
//! from the disk holds the processor meanwhile, and no reservation counts that. Where locked memory
//! is limited, which is for the memory of tenants then, and where a file cannot be executed, the code
//! is copied. The image of a [handler](crate::code::Form::ImageShown) is mapped and locked with the code, and instances are
//! shown the pages of the entry itself. Every other one is copied, to a file in memory that is sealed. Finding an image in the
//! program again took ten times as long as that.

use std::ffi::OsStr;
use std::fs::File;
use std::hash::{Hash, Hasher};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use leasehold_confine::owned::{Missing, OwnedDirectory, OwnedError, Room};
use leasehold_lease::RegularFile;
use wasmtime::Engine;

use crate::code::Form;
use crate::entry::{Entry, FACTS_BYTES, Kept};
use crate::error::ProgramError;
use crate::features::CONFIG_VERSION;
use crate::known_files::KnownFiles;
use crate::limits::MAX_PROGRAM_BYTES;
use crate::stamp::Stamp;

/// What is kept; the entries go first that were used longest ago, by days.
const ROOM: Room = Room {
    files: 4096,
    bytes: 4 << 30,
};

/// Most bytes of an entry that is read.
const MAX_ENTRY_BYTES: u64 = 2 << 30;

/// How long ago an entry was noted to be in use when that is noted again, by the time of its last change: its tag is checked
/// again after that.
const USED: Duration = Duration::from_hours(24);

/// Ends every entry.
const MAGIC: &[u8; 16] = b"leasehold code 7";

const TAG_BYTES: usize = 32;

/// All that is behind code and image: the facts, the tag, and what ends the entry.
const TRAILER_BYTES: usize = FACTS_BYTES + TAG_BYTES + MAGIC.len();

/// Bytes of an entry that are read at once to be digested: few enough to stay in the processor's cache.
const BLOCK_BYTES: usize = 256 << 10;

/// Notes of what was read, below the directory of the cache.
const KNOWN: &str = "known";

/// Bytes of the secret.
const SECRET_BYTES: usize = 32;

/// A directory of compiled programs.
pub struct CodeCache {
    directory: OwnedDirectory,
    secret: [u8; SECRET_BYTES],
    known: Option<KnownFiles>,
}

impl std::fmt::Debug for CodeCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let CodeCache { directory, .. } = self;
        f.debug_struct("CodeCache")
            .field("directory", directory)
            .finish_non_exhaustive()
    }
}

/// A digest of a program's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest(blake3::Hash);

impl Digest {
    /// The digest of these bytes.
    pub(crate) fn of(program: &[u8]) -> Digest {
        Digest(blake3::hash(program))
    }

    pub(crate) fn to_bytes(self) -> [u8; 32] {
        *self.0.as_bytes()
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Digest> {
        Some(Digest(blake3::Hash::from_bytes(bytes.try_into().ok()?)))
    }

    /// The digest of the file at a path, which is not held in memory.
    ///
    /// # Errors
    /// `Read`, and `TooLarge`.
    pub fn read(path: &Path) -> Result<Digest, ProgramError> {
        Digest::of_file(opened(path)?, path)
    }

    fn of_file(file: RegularFile, path: &Path) -> Result<Digest, ProgramError> {
        let mut hasher = blake3::Hasher::new();
        let read = file.for_each_block(MAX_PROGRAM_BYTES, |block| {
            hasher.update(block);
        });
        read.map_err(|error| ProgramError::unreadable(path, error))?;
        Ok(Digest(hasher.finalize()))
    }
}

/// What an entry is kept under.
pub(crate) struct Key {
    name: String,
    /// The form that the program of the entry has.
    form: Form,
}

impl Key {
    /// The key of a program in one of its forms, given as the file's bytes, for `engine`.
    pub(crate) fn new(engine: &Engine, program: &Digest, form: Form) -> Key {
        let word: &[u8] = match form {
            Form::Whole => b"whole",
            Form::Paged => b"paged",
            Form::ImageApart => b"apart",
            Form::ImageShown => b"shown",
        };
        Key::of(engine, form, word, program)
    }

    /// The key of a module of the host's own, which is never that of a program with the same text.
    pub(crate) fn of_own(engine: &Engine, text: &str) -> Key {
        let digest = Digest::of(text.as_bytes());
        Key::of(engine, Form::Whole, b"own", &digest)
    }

    fn of(engine: &Engine, form: Form, word: &[u8], program: &Digest) -> Key {
        /// Feeds what the engine says about itself into the digest.
        struct Feed(blake3::Hasher);
        impl Hasher for Feed {
            fn write(&mut self, bytes: &[u8]) {
                self.0.update(bytes);
            }
            fn finish(&self) -> u64 {
                0
            }
        }
        let mut feed = Feed(blake3::Hasher::new());
        // The engine's version, the processor's features and all settings that matter to it.
        engine.precompile_compatibility_hash().hash(&mut feed);
        feed.0.update(env!("CARGO_PKG_VERSION").as_bytes());
        feed.0.update(&CONFIG_VERSION.to_le_bytes());
        feed.0.update(word);
        feed.0.update(program.0.as_bytes());
        let name = feed.0.finalize().to_hex().to_string();
        Key { name, form }
    }

    fn as_name(&self) -> &OsStr {
        self.name.as_ref()
    }
}

impl CodeCache {
    /// Opens a directory, and makes it if it is not there; likewise the file with its secret.
    ///
    /// # Errors
    ///
    /// When the directory or the secret cannot be opened or made, or another user could have
    /// written to it.
    pub fn open(directory: &Path, secret: &Path) -> Result<CodeCache, OwnedError> {
        let secret = secret_in(secret)?;
        Ok(CodeCache {
            secret,
            known: KnownFiles::open(&directory.join(KNOWN), secret)?,
            directory: OwnedDirectory::open(directory, Missing::Create)?,
        })
    }

    /// The directory's path.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The compiled program and its image, if there is an entry that can be trusted.
    pub(crate) fn get(&self, engine: &Engine, key: &Key) -> Option<Kept> {
        let (file, length) = match self.directory.open_file(key.as_name(), MAX_ENTRY_BYTES) {
            Ok(entry) => entry,
            Err(error) if error.is_missing() => return None,
            Err(error) => {
                tracing::warn!(%error, "a compiled program is not used");
                return None;
            }
        };
        let Some(entry) = self.checked(key, &file, length) else {
            tracing::warn!(
                entry = key.name,
                "a compiled program is damaged, or was stored with another state directory, and is not used"
            );
            return None;
        };
        keep_on(&file);
        // SAFETY: `put` wrote these bytes under this name, which the engine had serialised: the tag holds, and no other
        // user can read the secret or write the file. This user's processes replace entries and never change one.
        unsafe { entry.restore(engine, &file, key.form) }
    }

    /// What an entry says of itself, if it was stored under this name by a process that had the secret.
    fn checked(&self, key: &Key, file: &File, length: u64) -> Option<Entry> {
        let body_bytes = length.checked_sub(TRAILER_BYTES as u64)?;
        let mut trailer = [0; TRAILER_BYTES];
        file.read_exact_at(&mut trailer, body_bytes).ok()?;
        let (facts, sealed) = trailer.split_at(FACTS_BYTES);
        let (tag, magic) = sealed.split_at(TAG_BYTES);
        if magic != MAGIC {
            return None;
        }
        let asked = format!("tag of {}", key.name);
        let stamp = || Stamp::of(&file.metadata().ok()?);
        let before = self
            .known
            .as_ref()
            .and_then(|known| Some((known, stamp()?)));
        let is_known = before.is_some_and(|(known, stamp)| {
            known.get(&asked, &stamp).is_some_and(|noted| noted == tag)
        });
        if !is_known {
            self.check_tag(key, file, body_bytes, (facts, tag))?;
            if let Some((known, before)) = before
                && stamp() == Some(before)
            {
                known.put(&asked, &before, tag);
            }
        }
        Entry::parse(facts, body_bytes)
    }

    /// Reads the whole of an entry; `None` if it has another tag.
    fn check_tag(
        &self,
        key: &Key,
        mut file: &File,
        body_bytes: u64,
        (facts, tag): (&[u8], &[u8]),
    ) -> Option<()> {
        let mut hasher = self.hasher(key);
        let mut left = body_bytes;
        let mut block = vec![0; BLOCK_BYTES];
        while left > 0 {
            let next = block.get_mut(..left.min(BLOCK_BYTES as u64) as usize)?;
            file.read_exact(next).ok()?;
            hasher.update(next);
            left -= next.len() as u64;
        }
        hasher.update(facts);
        // Compared in constant time.
        let is_right = blake3::Hash::from_slice(tag).is_ok_and(|tag| tag == hasher.finalize());
        is_right.then_some(())
    }

    /// The digest of the program in a file, which is not held in memory. It is read only if it was changed since it was
    /// read before.
    ///
    /// # Errors
    /// `Read`, and `TooLarge`.
    pub fn digest(&self, path: &Path) -> Result<Digest, ProgramError> {
        let file = opened(path)?;
        let stamp = Stamp::of(file.metadata());
        let before = self.known.as_ref().zip(stamp);
        if let Some((known, before)) = before
            && let Some(noted) = known.get("digest", &before)
            && let Ok(noted) = blake3::Hash::from_slice(&noted)
        {
            return Ok(Digest(noted));
        }
        let digest = Digest::of_file(file, path)?;
        // Whatever has the name now: with the same stamp it is the file that was read.
        if let Some((known, before)) = before
            && std::fs::metadata(path).is_ok_and(|now| Stamp::of(&now) == Some(before))
        {
            known.put("digest", &before, digest.0.as_bytes());
        }
        Ok(digest)
    }

    /// What was noted of a file with this stamp, under a word for what was asked of it, by this user since the machine
    /// was started.
    pub fn noted(&self, asked: &str, stamp: &Stamp) -> Option<Vec<u8>> {
        self.known.as_ref()?.get(asked, stamp)
    }

    /// Notes what was read in a file that had this stamp before and after, 4 KiB at the most.
    pub fn note(&self, asked: &str, stamp: &Stamp, value: &[u8]) {
        if let Some(known) = &self.known {
            known.put(asked, stamp, value);
        }
    }

    /// Stores the [content](crate::entry::Content) of a compiled program, which is given in parts.
    ///
    /// # Errors
    ///
    /// The system's; nothing is left behind then.
    pub(crate) fn put(&self, key: &Key, content: &[&[u8]]) -> Result<(), OwnedError> {
        let mut hasher = self.hasher(key);
        for part in content {
            hasher.update(part);
        }
        let tag = hasher.finalize();
        let parts = [content, &[tag.as_bytes(), &MAGIC[..]]].concat();
        self.directory.write(key.as_name(), &parts)?;
        self.directory.keep_latest(ROOM)
    }

    /// The keyed digest of an entry: its name is fed, and its code and facts follow.
    fn hasher(&self, key: &Key) -> blake3::Hasher {
        // Every name has the same length, so that no part of it can pass for content.
        let mut hasher = blake3::Hasher::new_keyed(&self.secret);
        hasher.update(key.name.as_bytes());
        hasher
    }
}

/// Notes that an entry is in use, so that others go before it when there is no room.
fn keep_on(entry: &File) {
    let now = SystemTime::now();
    let is_noted = entry
        .metadata()
        .and_then(|status| status.modified())
        .is_ok_and(|noted| now < noted + USED);
    if !is_noted && let Err(error) = entry.set_modified(now) {
        tracing::debug!(%error, "that a compiled program is used is not noted");
    }
}

fn opened(path: &Path) -> Result<RegularFile, ProgramError> {
    RegularFile::open(path).map_err(|error| ProgramError::unreadable(path, error))
}

/// The secret in this file; a new one if there is none.
fn secret_in(file: &Path) -> Result<[u8; SECRET_BYTES], OwnedError> {
    let failed = |source: std::io::Error| OwnedError::System {
        path: file.to_owned(),
        source,
    };
    let (Some(directory), Some(name)) = (file.parent(), file.file_name()) else {
        return Err(failed(std::io::ErrorKind::InvalidInput.into()));
    };
    let directory = OwnedDirectory::open(directory, Missing::Create)?;
    let read = || directory.read_secret(name, SECRET_BYTES as u64);
    let secret = match read() {
        Err(error) if error.is_missing() => {
            let mut fresh = [0; SECRET_BYTES];
            fill_random(&mut fresh).map_err(failed)?;
            match directory.create_new(name, &fresh) {
                Ok(()) => fresh.to_vec(),
                // Another process was faster.
                Err(_) => read()?,
            }
        }
        found => found?,
    };
    <[u8; SECRET_BYTES]>::try_from(secret)
        .map_err(|_| failed(std::io::ErrorKind::InvalidData.into()))
}

fn fill_random(bytes: &mut [u8; SECRET_BYTES]) -> std::io::Result<()> {
    // So few bytes come at once.
    match rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty())? {
        SECRET_BYTES => Ok(()),
        _ => Err(std::io::ErrorKind::UnexpectedEof.into()),
    }
}
