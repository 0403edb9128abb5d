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
//! An invalid entry is ignored. The name of an entry is a digest of the program and of everything
//! that compilation depends on, including the engine's version and settings. No entry is ever out
//! of date.

use std::ffi::OsStr;
use std::hash::{Hash, Hasher};
use std::path::Path;

use leasehold_confine::owned::{Missing, OwnedDirectory, OwnedError};
use wasmtime::{Engine, Module, component::Component};

use crate::code::{Code, Form};
use crate::features::CONFIG_VERSION;
use crate::inventory::Inventory;

/// Most entries that are kept; the ones written longest ago go first.
const MAX_ENTRIES: usize = 128;

/// Most bytes of an entry that is read.
const MAX_ENTRY_BYTES: u64 = 2 << 30;

/// Starts every entry; the tag of the rest follows.
const MAGIC: &[u8; 16] = b"leasehold code 2";

const TAG_BYTES: usize = 32;
const HEADER_BYTES: usize = MAGIC.len() + TAG_BYTES;

/// After the header: whether it is a component, and the inventory.
const FACTS_BYTES: usize = 1 + Inventory::WORDS * 8;

/// Bytes of the secret.
const SECRET_BYTES: usize = 32;

/// A directory of compiled programs.
pub struct CodeCache {
    directory: OwnedDirectory,
    secret: [u8; SECRET_BYTES],
}

impl std::fmt::Debug for CodeCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let CodeCache { directory, .. } = self;
        f.debug_struct("CodeCache")
            .field("directory", directory)
            .finish_non_exhaustive()
    }
}

/// Name of an entry.
pub(crate) struct Key(String);

impl Key {
    /// The key of a program in one of its forms, given as the file's bytes, for `engine`.
    pub(crate) fn new(engine: &Engine, program: &[u8], form: Form) -> Key {
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
        feed.0.update(match form {
            Form::Whole => b"whole",
            Form::Paged => b"paged",
            Form::ImageApart => b"apart",
        });
        feed.0.update(program);
        Key(feed.0.finalize().to_hex().to_string())
    }

    fn as_name(&self) -> &OsStr {
        self.0.as_ref()
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
        Ok(CodeCache {
            secret: secret_in(secret)?,
            directory: OwnedDirectory::open(directory, Missing::Create)?,
        })
    }

    /// The directory's path.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The compiled program, if there is an entry that can be trusted.
    pub(crate) fn get(&self, engine: &Engine, key: &Key) -> Option<(Code, Inventory)> {
        let entry = match self.directory.read(key.as_name(), MAX_ENTRY_BYTES) {
            Ok(entry) => entry,
            Err(error) if error.is_missing() => return None,
            Err(error) => {
                tracing::warn!(%error, "a compiled program is not used");
                return None;
            }
        };
        let (header, body) = entry.split_at_checked(HEADER_BYTES)?;
        let (magic, tag) = header.split_at(MAGIC.len());
        if magic != MAGIC || !self.is_tag(tag, key, &[body]) {
            tracing::warn!(
                entry = key.0,
                "a compiled program is damaged, or was stored with another state directory, and is not used"
            );
            return None;
        }
        let (facts, code) = body.split_at_checked(FACTS_BYTES)?;
        let (component, words) = facts.split_first()?;
        // SAFETY: `put` wrote these bytes under this name, which the engine had serialised: the tag
        // holds, and no other user can read the secret or write the file.
        let code = unsafe {
            if *component == 1 {
                Component::deserialize(engine, code).map(Code::Component)
            } else {
                Module::deserialize(engine, code).map(Code::Module)
            }
        };
        Some((code.ok()?, Inventory::from_bytes(words)?))
    }

    /// Stores a compiled program.
    ///
    /// # Errors
    ///
    /// The engine's or the system's; nothing is left behind then.
    pub(crate) fn put(&self, key: &Key, code: &Code, inventory: &Inventory) -> anyhow::Result<()> {
        let (component, code) = match code {
            Code::Module(module) => (0, module.serialize()),
            Code::Component(component) => (1, component.serialize()),
        };
        let code = code.map_err(|error| anyhow::anyhow!("{error:#}"))?;
        let facts = inventory.to_bytes();
        let tag = self.tag(key, &[&[component], &facts, &code]);
        let parts: [&[u8]; 5] = [MAGIC, tag.as_bytes(), &[component], &facts, &code];
        self.directory.write(key.as_name(), &parts)?;
        self.prune()?;
        Ok(())
    }

    /// The keyed digest of an entry: of its name, and of its parts one after the other.
    fn tag(&self, key: &Key, parts: &[&[u8]]) -> blake3::Hash {
        // Every name has the same length, so that no part of it can pass for content.
        let mut hasher = blake3::Hasher::new_keyed(&self.secret);
        hasher.update(key.0.as_bytes());
        for part in parts {
            hasher.update(part);
        }
        hasher.finalize()
    }

    /// Compares in constant time.
    fn is_tag(&self, tag: &[u8], key: &Key, parts: &[&[u8]]) -> bool {
        blake3::Hash::from_slice(tag).is_ok_and(|tag| tag == self.tag(key, parts))
    }

    /// Removes the oldest entries beyond the limit.
    fn prune(&self) -> Result<(), OwnedError> {
        let mut entries = self.directory.entries()?;
        entries.sort_unstable();
        let beyond = entries.len().saturating_sub(MAX_ENTRIES);
        for (_, name) in entries.into_iter().take(beyond) {
            self.directory.remove(&name)?;
        }
        Ok(())
    }
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

fn fill_random(bytes: &mut [u8]) -> std::io::Result<()> {
    // SAFETY: the call writes to `bytes`, and no further than they go.
    let filled = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    match usize::try_from(filled) {
        // So few bytes come at once.
        Ok(filled) if filled == bytes.len() => Ok(()),
        Ok(_) => Err(std::io::ErrorKind::UnexpectedEof.into()),
        Err(_) => Err(std::io::Error::last_os_error()),
    }
}
