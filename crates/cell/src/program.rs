//! A guest program: checked, compiled, and ready to be instantiated by a cell.
//!
//! Loading is done outside the cell's thread: compiling takes milliseconds to seconds and is not
//! bounded by any lease. What a cell instantiates has passed every check here, so that the only
//! errors left at that point are the lease's.

use std::path::Path;
use std::sync::Arc;

use leasehold_lease::Lease;
use leasehold_preempt::GuestProgram;
use leasehold_slots::stack_class::StackClass;
use leasehold_wasm::artifact::CodeCache;
pub use leasehold_wasm::artifact::Digest;
pub use leasehold_wasm::code::{Code, Entry, Form, Purpose};
use leasehold_wasm::compiled::{Compiled, with_outline};
pub use leasehold_wasm::error::ProgramError;
use leasehold_wasm::image::{Image, PAGE};
use leasehold_wasm::inventory::Inventory;
pub use leasehold_wasm::limits::{MAX_DATA_BYTES, MAX_INSTANCES, MAX_PROGRAM_BYTES};
use leasehold_wasm::load_limits::LoadSize;
use leasehold_wasm::toolchain::Toolchain;
use wasmtime::Engine;

use crate::built::Built;
use crate::code_space::{CodeRoom, CodeSpace};
use crate::linkers::Prepared;
use crate::outline::Outline;
use crate::reaches::Look;
use crate::steps::Reach;

/// A program that can be instantiated any number of times. Cloning is cheap.
#[derive(Debug, Clone)]
pub struct Program {
    built: Arc<Built>,
    /// What it takes of its cell's room for programs: as much as if it had all for itself.
    _room: Option<Arc<CodeRoom>>,
}

impl From<Built> for Program {
    fn from(built: Built) -> Self {
        Self {
            built: Arc::new(built),
            _room: None,
        }
    }
}

impl Program {
    /// Reads, checks and compiles a file: a module, a component, or the text of either. With a
    /// cache, a program that was compiled before is read from there; an entry that cannot be used
    /// costs the time to compile, and is not an error.
    ///
    /// # Errors
    ///
    /// Any [`ProgramError`].
    pub fn load(
        engine: &Engine,
        path: &Path,
        cache: Option<&CodeCache>,
    ) -> Result<Program, ProgramError> {
        Program::load_for(Purpose::COMMAND, engine, path, cache)
    }

    /// As [`load`](Program::load), for another purpose than running a command.
    ///
    /// # Errors
    ///
    /// Any [`ProgramError`].
    pub fn load_for(
        purpose: Purpose,
        engine: &Engine,
        path: &Path,
        cache: Option<&CodeCache>,
    ) -> Result<Program, ProgramError> {
        Built::load(purpose, &Toolchain::new(engine, cache), path).map(Program::from)
    }

    /// Checks and compiles a module, a component, or the text of either.
    ///
    /// # Errors
    ///
    /// Any [`ProgramError`] but `Read`.
    pub fn from_bytes(engine: &Engine, bytes: &[u8]) -> Result<Program, ProgramError> {
        Built::from_bytes(Purpose::COMMAND, engine, bytes).map(Program::from)
    }

    /// A program as it was built, which holds its part of a cell's room for programs, whether others share it or not.
    ///
    /// # Errors
    /// When it takes more than the lease `allows`, in bytes, or than there is.
    pub(crate) fn housed(
        built: Arc<Built>,
        space: &Arc<CodeSpace>,
        allows: u64,
    ) -> Result<Self, ProgramError> {
        let image = built.image.as_ref();
        let shown = image.map_or(0, |image| u64::from(image.pages()) * PAGE as u64);
        let room = space.take(built.code_bytes + shown, allows)?;
        Ok(Self {
            built,
            _room: Some(Arc::new(room)),
        })
    }

    /// What tenants share that run the same.
    pub(crate) const fn built(&self) -> &Arc<Built> {
        &self.built
    }

    /// What a [`Preemption`](leasehold_preempt::Preemption) knows its guests by.
    pub fn guests(&self) -> &Arc<impl GuestProgram + 'static> {
        &self.built
    }

    /// Bytes of memory that its machine code takes, with what the engine knows of it.
    pub fn code_bytes(&self) -> u64 {
        self.built.code_bytes
    }

    /// The digest of the file that it was loaded from, if it was.
    pub fn digest(&self) -> Option<Digest> {
        self.built.digest
    }

    /// The host steps that the program in a file can reach, without compiling it. Function bodies
    /// are not checked: the program may still be refused for them when it is loaded. Some microseconds for a file that was
    /// loaded, or asked about, since it was changed: in this process, or with the same notes.
    ///
    /// # Errors
    ///
    /// `Read`, what keeps the file from being WebAssembly, and `World`.
    pub fn reach_in(path: &Path, notes: Option<&CodeCache>) -> Result<Reach, ProgramError> {
        let look = Look::at(path);
        if let Some(reach) = look.remembered(notes) {
            return Ok(reach);
        }
        let reach = with_outline(path, |outlined| {
            Reach::of_binary(outlined.binary(), &outlined.inventory())
        })?;
        look.remember(&reach, notes);
        Ok(reach)
    }

    /// Counts the parts of a program that determine its loading time. The program is not validated.
    ///
    /// # Errors
    ///
    /// [`TooManyParts`](ProgramError::TooManyParts), and what keeps the bytes from being parsed.
    pub fn load_size(bytes: &[u8]) -> Result<LoadSize, ProgramError> {
        Compiled::load_size(bytes)
    }

    /// Whether its exported functions are called; if not, it is run from its entry point.
    pub(crate) fn is_called(&self) -> bool {
        self.built.entry == Entry::Exports
    }

    /// Whether it answers requests, in executions that are made for them.
    pub(crate) fn is_handler(&self) -> bool {
        self.built.entry == Entry::Handler
    }

    /// Bytes that one of its host calls may hold under this lease.
    pub(crate) fn call_bytes(&self, lease: &Lease) -> u64 {
        self.outline().call_bytes(lease)
    }

    /// What decides about the beginning of its executions.
    pub(crate) fn outline(&self) -> Outline {
        Outline {
            inventory: self.built.inventory,
            image_pages: self
                .image()
                // Where it is shown, the memory is charged for its pages.
                .filter(|_| self.is_for_paging())
                .map_or(0, |image| u64::from(image.pages())),
            stack: self.stack(),
            is_component: self.is_component(),
            is_handler: self.is_handler(),
            is_called: self.is_called(),
            has_backtraces: self.has_backtraces(),
        }
    }

    /// The stack that it runs on.
    pub fn stack(&self) -> StackClass {
        StackClass::of_engine(self.engine())
    }

    /// Whether its engine walks the stack when it traps, or is ended while it waits.
    pub(crate) fn has_backtraces(&self) -> bool {
        self.engine().get_wasm_backtrace_max_frames() > 0
    }

    /// The engine that compiled it.
    fn engine(&self) -> &Engine {
        self.built.engine()
    }

    /// Its resolved imports, if that was for a cell of `engine`.
    pub(crate) fn prepared_for(&self, engine: &Engine) -> Option<&Prepared> {
        let own = Engine::same(self.engine(), engine);
        self.built.prepared.as_ref().filter(|_| own)
    }

    /// The host steps that it can reach.
    pub fn reach(&self) -> &Reach {
        &self.built.reach
    }

    /// The contents of its memory before its first instruction, if they are not in the code.
    pub fn image(&self) -> Option<&Image> {
        self.built.image.as_ref()
    }

    /// The compiled code.
    pub fn code(&self) -> &Code {
        &self.built.code
    }

    /// Whether it is a component.
    pub(crate) fn is_component(&self) -> bool {
        matches!(self.built.code, Code::Component(_))
    }

    /// Whether it was made for tenants that page.
    pub(crate) fn is_for_paging(&self) -> bool {
        self.built.form.is_for_paging()
    }

    /// The resources that a run takes before its first instruction.
    pub fn inventory(&self) -> &Inventory {
        &self.built.inventory
    }
}
