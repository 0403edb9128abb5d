//! Programs as far as they are known without what their functions do: for tests of leases.
//!
//! A node tests leases while tenants run. To read a large program takes and gives back memory, for which the kernel locks the
//! mappings of the process. So there the [process that compiles](Compiler) does it.

use crate::compiler::{self, Compiler};
use crate::linkers::{Link, Linkers};
use crate::program::{Entry, Form, Program, ProgramError, Purpose};
use crate::reaches::Look;
use crate::steps::Reach;
use crate::{abi, program};
use leasehold_wasm::artifact::CodeCache;
use leasehold_wasm::inventory::Inventory;
use leasehold_wasm::stamp::Stamp;
use leasehold_wasm::toolchain::Toolchain;
use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Most programs that are remembered.
const MOST: usize = 1024;

/// What is known of programs: remembered while their files stay as they are.
#[derive(Default)]
pub struct Outlines {
    notes: Option<Arc<CodeCache>>,
    compiler: Option<Arc<Compiler>>,
    /// What programs can import; made for the first one.
    linkers: OnceLock<Linkers>,
    known: Mutex<HashMap<(PathBuf, Purpose), (Stamp, ProgramOutline)>>,
}

/// What is known of a program.
#[derive(Debug, Clone)]
pub(crate) struct ProgramOutline {
    pub(crate) inventory: Inventory,
    pub(crate) is_component: bool,
    reach: Reach,
    pub(crate) memory: Option<InitialMemory>,
}

/// The part of a program's memory that tenants which page can share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InitialMemory {
    /// Of its pages: equal ones are shared.
    pub digest: [u8; 32],
    /// Pages of 4 KiB.
    pub pages: u32,
}

impl fmt::Debug for Outlines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outlines").finish_non_exhaustive()
    }
}

impl Outlines {
    /// Programs are looked at in this process. What `notes` say of one is taken from there.
    pub fn here(notes: Option<Arc<CodeCache>>) -> Self {
        Self {
            notes,
            ..Self::default()
        }
    }

    /// Programs are looked at in processes that `compiler` makes.
    pub fn by(compiler: Arc<Compiler>) -> Self {
        Self {
            compiler: Some(compiler),
            ..Self::default()
        }
    }

    /// The host steps that the program in a file can reach, as [`Program::reach_in`] tells; `None` if it is no such program.
    /// `handles` says that it is to answer requests.
    pub fn reach(&self, path: &Path, handles: bool) -> Option<Reach> {
        if self.compiler.is_none() {
            return Program::reach_in(path, self.notes.as_deref()).ok();
        }
        let look = Look::at(path);
        look.remembered(None).or_else(|| {
            let outline = self.of(path, purpose(handles, Form::Whole)).ok()?;
            look.remember(&outline.reach, None);
            Some(outline.reach)
        })
    }

    /// The initial memory of the program in a file, of which `handles` says the same; `None` if none is worth to be shared.
    pub fn initial_memory(&self, path: &Path, handles: bool) -> Option<InitialMemory> {
        let outline = self.of(path, purpose(handles, Form::ImageApart));
        outline.ok()?.memory
    }

    /// What is known of the program in a file.
    ///
    /// # Errors
    /// `Read`, and what would keep it from being loaded for this purpose, but for what only its function bodies show.
    pub(crate) fn of(&self, path: &Path, purpose: Purpose) -> Result<ProgramOutline, ProgramError> {
        let stamp = std::fs::metadata(path).ok();
        let stamp = stamp.and_then(|status| Stamp::of(&status));
        let key = (path.to_owned(), purpose);
        if let Some((of, outline)) = self.known().get(&key)
            && stamp == Some(*of)
        {
            return Ok(outline.clone());
        }
        let outline = self.look(path, purpose)?;
        if let Some(stamp) = stamp {
            let mut known = self.known();
            if known.len() >= MOST {
                known.clear();
            }
            known.insert(key, (stamp, outline.clone()));
        }
        Ok(outline)
    }

    fn look(&self, path: &Path, purpose: Purpose) -> Result<ProgramOutline, ProgramError> {
        let linkers = self.linkers()?;
        let engine = linkers.engine();
        let tools = Toolchain {
            compiler: self.compiler.as_deref().map(Compiler::for_outlines),
            ..Toolchain::new(engine, None)
        };
        let program = tools.outline(purpose, path)?;
        let reach = Reach::of(engine, &program.code, &program.inventory)?;
        let prepared = linkers.prepare(&program.code, purpose.entry);
        prepared.map_err(ProgramError::Link)?;
        Ok(ProgramOutline {
            inventory: program.inventory,
            is_component: matches!(program.code, program::Code::Component(_)),
            reach,
            memory: program.image.map(|image| InitialMemory {
                digest: image.digest(),
                pages: image.pages(),
            }),
        })
    }

    fn linkers(&self) -> Result<&Linkers, ProgramError> {
        if let Some(made) = self.linkers.get() {
            return Ok(made);
        }
        let engine = compiler::outline_engine().map_err(ProgramError::Engine)?;
        let link = Link {
            module: abi::link_module,
            component: abi::link_component,
        };
        Ok(self.linkers.get_or_init(|| Linkers::new(engine, link)))
    }

    fn known(&self) -> MutexGuard<'_, HashMap<(PathBuf, Purpose), (Stamp, ProgramOutline)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn purpose(handles: bool, form: Form) -> Purpose {
    let entry = match handles {
        true => Entry::Handler,
        false => Entry::Command,
    };
    Purpose { entry, form }
}
