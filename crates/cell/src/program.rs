//! A guest program: checked, compiled, and ready to be instantiated by a cell.
//!
//! Loading is done outside the cell's thread: compiling takes milliseconds to seconds and is not
//! bounded by any lease. What a cell instantiates has passed every check here, so that the only
//! errors left at that point are the lease's.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use leasehold_lease::Lease;
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
use wasmtime::Engine;

use crate::code_space::{CodeRoom, CodeSpace};
use crate::linkers::{Linkers, Prepared};
use crate::outline::Outline;
use crate::reaches::Look;
use crate::steps::{Missing, Reach};
use leasehold_preempt::{Bodies, GuestProgram};

impl From<Missing> for ProgramError {
    fn from(Missing(imports): Missing) -> ProgramError {
        ProgramError::World { imports }
    }
}

/// A program that can be instantiated any number of times. Cloning is cheap.
#[derive(Clone)]
pub struct Program {
    code: Code,
    code_bytes: u64,
    form: Form,
    entry: Entry,
    bodies: Bodies,
    inventory: Inventory,
    reach: Reach,
    image: Option<Image>,
    digest: Option<Digest>,
    /// With its imports resolved, by the cell that it was loaded for.
    prepared: Option<Prepared>,
    /// What it takes of that cell's room for programs.
    _room: Option<Arc<CodeRoom>>,
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Program {
            bodies,
            inventory,
            image,
            ..
        } = self;
        f.debug_struct("Program")
            .field("bodies", bodies)
            .field("inventory", inventory)
            .field("image", image)
            .finish_non_exhaustive()
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
        let look = Look::at(path);
        let reach = |program: &Compiled| Program::reach_of(engine, program);
        let (compiled, reach) = Compiled::load(purpose, engine, path, cache, reach)?;
        look.remember(&reach, cache);
        Ok(Program::of(compiled, reach).entered_by(purpose.entry))
    }

    /// Checks and compiles a module, a component, or the text of either.
    ///
    /// # Errors
    ///
    /// Any [`ProgramError`] but `Read`.
    pub fn from_bytes(engine: &Engine, bytes: &[u8]) -> Result<Program, ProgramError> {
        Program::from_bytes_for(Purpose::COMMAND, engine, bytes)
    }

    /// As [`from_bytes`](Program::from_bytes), for another purpose than running a command.
    ///
    /// # Errors
    ///
    /// Any [`ProgramError`] but `Read`.
    pub(crate) fn from_bytes_for(
        purpose: Purpose,
        engine: &Engine,
        bytes: &[u8],
    ) -> Result<Program, ProgramError> {
        let compiled = Compiled::from_bytes(purpose, engine, bytes)?;
        let reach = Program::reach_of(engine, &compiled)?;
        Ok(Program::of(compiled, reach).entered_by(purpose.entry))
    }

    fn reach_of(engine: &Engine, program: &Compiled) -> Result<Reach, ProgramError> {
        Ok(Reach::of(engine, &program.code, &program.inventory)?)
    }

    fn of(compiled: Compiled, reach: Reach) -> Program {
        let Compiled {
            code,
            code_bytes,
            form,
            inventory,
            image,
            digest,
        } = compiled;
        Program {
            code_bytes,
            digest,
            ..Program::new(code, form, inventory, reach, image)
        }
    }

    /// Bytes of memory that its machine code takes, with what the engine knows of it.
    pub fn code_bytes(&self) -> u64 {
        self.code_bytes
    }

    /// The digest of the file that it was loaded from, if it was.
    pub fn digest(&self) -> Option<Digest> {
        self.digest
    }

    /// The image that the program in a file would have [apart](Form::ImageApart), without compiling
    /// it.
    ///
    /// # Errors
    ///
    /// `Read`, and what keeps the file from being WebAssembly.
    pub fn image_in(path: &Path) -> Result<Option<Image>, ProgramError> {
        Compiled::image_in(path)
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

    pub(crate) fn new(
        code: Code,
        form: Form,
        inventory: Inventory,
        reach: Reach,
        image: Option<Image>,
    ) -> Program {
        Program {
            bodies: bodies_of(&code),
            code,
            code_bytes: 0,
            form,
            entry: Entry::Command,
            inventory,
            reach,
            image,
            digest: None,
            prepared: None,
            _room: None,
        }
    }

    /// The same, which holds its part of a cell's room for programs.
    ///
    /// # Errors
    /// When it takes more than the lease `allows`, in bytes, or than there is.
    pub(crate) fn housed(self, space: &Arc<CodeSpace>, allows: u64) -> Result<Self, ProgramError> {
        let image = self.image.as_ref();
        let shown = image.map_or(0, |image| u64::from(image.pages()) * PAGE as u64);
        let room = space.take(self.code_bytes + shown, allows)?;
        Ok(Self {
            _room: Some(Arc::new(room)),
            ..self
        })
    }

    /// The same, run in one of the ways.
    fn entered_by(self, entry: Entry) -> Program {
        let reach = match entry {
            Entry::Command => self.reach,
            Entry::Exports => self.reach.with_calls(),
            Entry::Handler => self.reach.with_requests(),
        };
        Program {
            entry,
            reach,
            ..self
        }
    }

    /// Whether its exported functions are called; if not, it is run from its entry point.
    pub(crate) fn is_called(&self) -> bool {
        self.entry == Entry::Exports
    }

    /// Whether it answers requests, in executions that are made for them.
    pub(crate) fn is_handler(&self) -> bool {
        self.entry == Entry::Handler
    }

    /// Bytes that one of its host calls may hold under this lease.
    pub(crate) fn call_bytes(&self, lease: &Lease) -> u64 {
        self.outline().call_bytes(lease)
    }

    /// What decides about the beginning of its executions.
    pub(crate) fn outline(&self) -> Outline {
        Outline {
            inventory: self.inventory,
            image_pages: self
                .image
                .as_ref()
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

    /// What the program in a file takes from the beginning, and whether it is a component, without compiling it.
    ///
    /// # Errors
    ///
    /// `Read`, and what would keep it from being compiled for this entry, but for what only its function bodies show.
    pub(crate) fn inventory_in(
        path: &Path,
        entry: Entry,
    ) -> Result<(Inventory, bool), ProgramError> {
        with_outline(path, |outlined| {
            outlined.check(entry)?;
            Ok((outlined.inventory(), outlined.is_component()))
        })
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
        self.code.engine()
    }

    /// The program with its imports resolved, so that a cell of this engine can start it.
    ///
    /// # Errors
    /// [`Link`](ProgramError::Link).
    pub(crate) fn prepare(mut self, linkers: &Linkers) -> Result<Program, ProgramError> {
        self.prepared = Some(
            linkers
                .prepare(&self.code, self.entry)
                .map_err(ProgramError::Link)?,
        );
        Ok(self)
    }

    /// What [`prepare`](Program::prepare) resolved, if that was for a cell of `engine`.
    pub(crate) fn prepared_for(&self, engine: &Engine) -> Option<&Prepared> {
        let own = Engine::same(self.engine(), engine);
        self.prepared.as_ref().filter(|_| own)
    }

    /// The host steps that it can reach.
    pub fn reach(&self) -> &Reach {
        &self.reach
    }

    /// The contents of its memory before its first instruction, if they are not in the code.
    pub fn image(&self) -> Option<&Image> {
        self.image.as_ref()
    }

    /// The compiled code.
    pub fn code(&self) -> &Code {
        &self.code
    }

    /// Whether it is a component.
    pub(crate) fn is_component(&self) -> bool {
        matches!(self.code, Code::Component(_))
    }

    /// Whether it was made for tenants that page.
    pub(crate) fn is_for_paging(&self) -> bool {
        self.form.is_for_paging()
    }

    /// The resources that a run takes before its first instruction.
    pub fn inventory(&self) -> &Inventory {
        &self.inventory
    }
}

impl GuestProgram for Program {
    fn bodies(&self) -> &Bodies {
        &self.bodies
    }
}

fn bodies_of(code: &Code) -> Bodies {
    match code {
        Code::Module(module) => Bodies::of(module.text(), module.functions()),
        Code::Component(component) => Bodies::of(component.text(), component.functions()),
    }
}
