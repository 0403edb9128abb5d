//! What a process that compiles returns: a compiled program in a file that cannot be changed.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create};
use wasmtime::Engine;

use crate::artifact::Digest;
use crate::code::Form;
use crate::entry::{Content, Entry, FACTS_BYTES, Kept};
use crate::error::ProgramError;

const SEALS: SealFlags = SealFlags::WRITE
    .union(SealFlags::SHRINK)
    .union(SealFlags::GROW);

/// A compiled program.
pub(crate) struct Object {
    file: File,
    length: u64,
    /// Of the program's file, as it was read.
    digest: Digest,
}

impl Object {
    /// Writes one.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn write(content: &Content) -> std::io::Result<OwnedFd> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file: File = memfd_create("leasehold-code", flags)?.into();
        let mut at = 0;
        for part in content.parts() {
            file.write_all_at(part, at)?;
            at += part.len() as u64;
        }
        fcntl_add_seals(&file, SEALS)?;
        Ok(file.into())
    }

    /// The one in a file that a process which compiles has returned.
    ///
    /// # Errors
    /// When the file can be changed.
    pub(super) fn received(file: OwnedFd, digest: Digest) -> Result<Self, ProgramError> {
        let file = File::from(file);
        let sealed = fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(SEALS));
        let length = file.metadata().map(|metadata| metadata.len());
        match length {
            Ok(length) if sealed => Ok(Self {
                file,
                length,
                digest,
            }),
            _ => Err(unusable()),
        }
    }

    /// The digest of the program's file.
    pub(crate) fn digest(&self) -> Digest {
        self.digest
    }

    /// The program, which was compiled in this form.
    ///
    /// # Errors
    /// When it was compiled for another engine.
    pub(crate) fn restore(&self, engine: &Engine, form: Form) -> Result<Kept, ProgramError> {
        let mut facts = [0; FACTS_BYTES];
        let before = self.length.checked_sub(FACTS_BYTES as u64);
        let entry = before.and_then(|before| {
            self.file.read_exact_at(&mut facts, before).ok()?;
            Entry::parse(&facts, before)
        });
        // SAFETY: a process that is a copy of this one has serialised it, and the file is sealed.
        let kept = entry.and_then(|entry| unsafe { entry.restore(engine, &self.file, form) });
        kept.ok_or_else(unusable)
    }

    /// All of it; `None` if it cannot be read.
    pub(crate) fn content(&self) -> Option<Vec<u8>> {
        let mut content = vec![0; usize::try_from(self.length).ok()?];
        self.file.read_exact_at(&mut content, 0).ok()?;
        Some(content)
    }
}

fn unusable() -> ProgramError {
    ProgramError::Elsewhere("the process that compiled the program returned none".to_owned())
}
