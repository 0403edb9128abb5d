//! Compiled programs on disk, so that a program is compiled once and not at every start.
//!
//! Compiled code is trusted: loading it is as good as running a native program. So an entry is
//! read only if nobody but this user could have written it, and only if its checksum holds;
//! otherwise it is as if it were not there. Its name is a digest of the program and of everything
//! that the result of compiling depends on, so that no entry is ever out of date.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::hash::{Hash, Hasher};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::process::{geteuid, getpid};
use sha2::{Digest, Sha256};
use wasmtime::{Engine, Module, component::Component};

use crate::engine_config::CONFIG_VERSION;
use crate::inventory::Inventory;
use crate::program::{Code, Form};

/// Most entries that are kept; the ones written longest ago go first.
const MAX_ENTRIES: usize = 128;

/// Starts every entry; the checksum of the rest follows.
const MAGIC: &[u8; 16] = b"leasehold code 1";

const CHECKSUM_BYTES: usize = 32;
const HEADER_BYTES: usize = MAGIC.len() + CHECKSUM_BYTES;

/// After the header: whether it is a component, and the inventory.
const FACTS_BYTES: usize = 1 + Inventory::WORDS * 8;

/// The directory for compiled programs that users expect: `$XDG_CACHE_HOME/leasehold`, or
/// `~/.cache/leasehold`. `None` if neither variable is set.
pub fn user_cache() -> Option<PathBuf> {
    let variable = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|p| p.is_absolute())
    };
    let cache = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")))?;
    Some(cache.join("leasehold"))
}

/// A directory of compiled programs.
#[derive(Clone, Debug)]
pub(crate) struct ArtifactCache {
    directory: PathBuf,
}

/// Name of an entry.
pub(crate) struct Key(String);

impl Key {
    /// The key of a program in one of its forms, given as the file's bytes, for `engine`.
    pub(crate) fn new(engine: &Engine, program: &[u8], form: Form) -> Key {
        /// Feeds what the engine says about itself into the digest.
        struct Feed(Sha256);
        impl Hasher for Feed {
            fn write(&mut self, bytes: &[u8]) {
                self.0.update(bytes);
            }
            fn finish(&self) -> u64 {
                0
            }
        }
        let mut feed = Feed(Sha256::new());
        // The engine's version, the processor's features and all settings that matter to it.
        engine.precompile_compatibility_hash().hash(&mut feed);
        feed.0.update(env!("CARGO_PKG_VERSION"));
        feed.0.update(CONFIG_VERSION.to_le_bytes());
        if form == Form::ImageApart {
            feed.0.update(b"image apart");
        }
        feed.0.update(program);
        let digits = feed
            .0
            .finalize()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Key(digits)
    }
}

impl ArtifactCache {
    /// Opens the directory, and makes it if it is not there.
    ///
    /// # Errors
    ///
    /// The system's; `PermissionDenied` if others could write to the directory.
    pub(crate) fn open(directory: &Path) -> io::Result<ArtifactCache> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)?;
        if !only_ours(&fs::metadata(directory)?) {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "the directory belongs to, or can be written by, somebody else",
            ));
        }
        Ok(ArtifactCache {
            directory: directory.to_owned(),
        })
    }

    /// The compiled program, if there is an entry that can be trusted.
    pub(crate) fn get(&self, engine: &Engine, key: &Key) -> Option<(Code, Inventory)> {
        let entry = self.read(key).ok()?;
        let (header, body) = entry.split_at_checked(HEADER_BYTES)?;
        let (magic, checksum) = header.split_at(MAGIC.len());
        if magic != MAGIC || checksum != Sha256::digest(body).as_slice() {
            tracing::warn!(entry = key.0, "a compiled program is damaged and not used");
            return None;
        }
        let (facts, code) = body.split_at_checked(FACTS_BYTES)?;
        let (component, words) = facts.split_first()?;
        // SAFETY: `put` wrote these bytes, which the engine had serialised: the checksum holds,
        // and nobody but this user can write the file.
        let code = unsafe {
            if *component == 1 {
                Component::deserialize(engine, code).map(Code::Component)
            } else {
                Module::deserialize(engine, code).map(Code::Module)
            }
        };
        Some((code.ok()?, Inventory::from_bytes(words)?))
    }

    fn read(&self, key: &Key) -> io::Result<Vec<u8>> {
        let mut file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(self.directory.join(&key.0))?;
        let metadata = file.metadata()?;
        if !metadata.is_file() || !only_ours(&metadata) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or(0));
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Stores a compiled program.
    ///
    /// # Errors
    ///
    /// The engine's or the system's; nothing is left behind then.
    pub(crate) fn put(
        &self,
        key: &Key,
        code: &Code,
        inventory: &Inventory,
    ) -> wasmtime::Result<()> {
        let (component, code) = match code {
            Code::Module(module) => (0, module.serialize()?),
            Code::Component(component) => (1, component.serialize()?),
        };
        let facts = inventory.to_bytes();
        let checksum = Sha256::new()
            .chain_update([component])
            .chain_update(&facts)
            .chain_update(&code);
        // Readers see all of an entry or nothing, and two writers do not meet.
        let partial = self
            .directory
            .join(format!("{}.{}", key.0, getpid().as_raw_nonzero()));
        let written = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&partial)
            .and_then(|mut file| {
                file.write_all(MAGIC)?;
                file.write_all(&checksum.finalize())?;
                file.write_all(&[component])?;
                file.write_all(&facts)?;
                file.write_all(&code)?;
                fs::rename(&partial, self.directory.join(&key.0))
            });
        if written.is_err() {
            // The first error is the one to report.
            let _ = fs::remove_file(&partial);
        }
        written?;
        self.prune()?;
        Ok(())
    }

    /// Removes the oldest entries beyond the limit.
    fn prune(&self) -> io::Result<()> {
        let mut entries: Vec<(SystemTime, PathBuf)> = fs::read_dir(&self.directory)?
            .filter_map(|entry| {
                let entry = entry.ok()?;
                Some((entry.metadata().ok()?.modified().ok()?, entry.path()))
            })
            .collect();
        entries.sort_unstable();
        let beyond = entries.len().saturating_sub(MAX_ENTRIES);
        for (_, path) in entries.into_iter().take(beyond) {
            fs::remove_file(path)?;
        }
        Ok(())
    }
}

/// Whether this user owns it and nobody else may write to it.
fn only_ours(metadata: &Metadata) -> bool {
    metadata.uid() == geteuid().as_raw() && metadata.mode() & 0o022 == 0
}
