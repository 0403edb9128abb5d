//! What a program was built to, for an engine and a purpose: the tenants that run the same share it.
//!
//! A language engine has tens of megabytes of machine code and of initial memory. To map, read and resolve them takes
//! some milliseconds, and they are the same for every tenant. So a program that a tenant has is not built again
//! for another one ([`InUse`]). What is shared cannot be written to: code is mapped for reading and executing, and of an image
//! each memory has a private mapping.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use leasehold_preempt::{Bodies, GuestProgram};
use leasehold_wasm::artifact::Digest;
use leasehold_wasm::code::{Code, Entry, Form, Purpose};
use leasehold_wasm::compiled::Compiled;
use leasehold_wasm::entry_pages::EntryPages;
use leasehold_wasm::error::ProgramError;
use leasehold_wasm::image::Image;
use leasehold_wasm::inventory::Inventory;
use leasehold_wasm::toolchain::Toolchain;
use wasmtime::Engine;

use crate::linkers::{Linkers, Prepared};
use crate::reaches::Look;
use crate::steps::{Missing, Reach};

impl From<Missing> for ProgramError {
    fn from(Missing(imports): Missing) -> ProgramError {
        ProgramError::World { imports }
    }
}

/// What a program was built to. It does not change.
pub(crate) struct Built {
    pub(crate) code: Code,
    /// The pages of that, given back when the last user has let it go.
    #[expect(dead_code, reason = "held to be dropped")]
    pages: Option<EntryPages>,
    /// Bytes of memory that the code takes, with what the engine knows of it.
    pub(crate) code_bytes: u64,
    pub(crate) form: Form,
    pub(crate) entry: Entry,
    bodies: Bodies,
    pub(crate) inventory: Inventory,
    pub(crate) reach: Reach,
    pub(crate) image: Option<Image>,
    /// Of the file that it was loaded from, if it was.
    pub(crate) digest: Option<Digest>,
    /// With its imports resolved, for the cells of its engine.
    pub(crate) prepared: Option<Prepared>,
}

impl fmt::Debug for Built {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Built {
            bodies,
            inventory,
            image,
            ..
        } = self;
        f.debug_struct("Built")
            .field("bodies", bodies)
            .field("inventory", inventory)
            .field("image", image)
            .finish_non_exhaustive()
    }
}

impl Built {
    /// Reads, checks and compiles a file, as [`Program::load`](crate::Program::load) does, for any purpose.
    ///
    /// # Errors
    /// Any [`ProgramError`].
    pub(crate) fn load(
        purpose: Purpose,
        tools: &Toolchain<'_>,
        path: &Path,
    ) -> Result<Self, ProgramError> {
        let look = Look::at(path);
        let reach = |program: &Compiled| reach_of(tools.engine, program);
        let (compiled, reach) = tools.load(purpose, path, reach)?;
        look.remember(&reach, tools.cache);
        Ok(Self::of(compiled, reach, purpose.entry))
    }

    /// Checks and compiles a module, a component, or the text of either.
    ///
    /// # Errors
    /// Any [`ProgramError`] but `Read`.
    pub(crate) fn from_bytes(
        purpose: Purpose,
        engine: &Engine,
        bytes: &[u8],
    ) -> Result<Self, ProgramError> {
        let compiled = Compiled::from_bytes(purpose, engine, bytes)?;
        let reach = reach_of(engine, &compiled)?;
        Ok(Self::of(compiled, reach, purpose.entry))
    }

    fn of(compiled: Compiled, reach: Reach, entry: Entry) -> Self {
        let Compiled {
            code,
            pages,
            code_bytes,
            form,
            inventory,
            image,
            digest,
        } = compiled;
        let bodies = match &code {
            Code::Module(module) => Bodies::of(module.text(), module.functions()),
            Code::Component(component) => Bodies::of(component.text(), component.functions()),
        };
        Self {
            bodies,
            code,
            pages,
            code_bytes,
            form,
            entry,
            inventory,
            reach: match entry {
                Entry::Command => reach,
                Entry::Exports => reach.with_calls(),
                Entry::Handler => reach.with_requests(),
            },
            image,
            digest,
            prepared: None,
        }
    }

    /// The same with its imports resolved, so that a cell of its engine can start it.
    ///
    /// # Errors
    /// [`Link`](ProgramError::Link).
    pub(crate) fn prepared(self, linkers: &Linkers) -> Result<Self, ProgramError> {
        let prepared = linkers.prepare(&self.code, self.entry);
        Ok(Self {
            prepared: Some(prepared.map_err(ProgramError::Link)?),
            ..self
        })
    }

    /// The engine that compiled it.
    pub(crate) fn engine(&self) -> &Engine {
        self.code.engine()
    }
}

fn reach_of(engine: &Engine, program: &Compiled) -> Result<Reach, ProgramError> {
    Ok(Reach::of(engine, &program.code, &program.inventory)?)
}

impl GuestProgram for Built {
    fn bodies(&self) -> &Bodies {
        &self.bodies
    }
}

/// The programs of an engine that are in use. Their users alone keep them: with the last one, a program is gone.
#[derive(Default)]
pub(crate) struct InUse(Mutex<HashMap<(Digest, Purpose), Weak<Built>>>);

impl InUse {
    /// The program in a file with this digest, built for this purpose: the one that is in use, or else the one that
    /// `build` returns. Of two threads that build it at a time, each has its own.
    ///
    /// # Errors
    /// Those of `build`.
    pub(crate) fn get_or_build(
        &self,
        digest: Digest,
        purpose: Purpose,
        build: impl FnOnce() -> Result<Built, ProgramError>,
    ) -> Result<Arc<Built>, ProgramError> {
        if let Some(built) = self.get(digest, purpose) {
            return Ok(built);
        }
        let built = Arc::new(build()?);
        // The file may have become another one meanwhile.
        if let Some(digest) = built.digest {
            let mut programs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            programs.retain(|_, program| program.strong_count() > 0);
            programs.insert((digest, purpose), Arc::downgrade(&built));
        }
        Ok(built)
    }

    fn get(&self, digest: Digest, purpose: Purpose) -> Option<Arc<Built>> {
        let programs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        programs.get(&(digest, purpose))?.upgrade()
    }
}
