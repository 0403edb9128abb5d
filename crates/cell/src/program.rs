//! A guest program: checked, compiled, and ready to be instantiated by a cell.
//!
//! Loading is done outside the cell's thread: compiling takes milliseconds to seconds and is not
//! bounded by any lease. What a cell instantiates has passed every check here, so that the only
//! errors left at that point are the lease's.

use std::borrow::Cow;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use leasehold_lease::{Lease, SharedPages};
use thiserror::Error;
use wasmparser::{BinaryReaderError, Parser};
use wasmtime::component::types::{ComponentFunc, ComponentItem, Type};
use wasmtime::{Engine, ExternType, Module, component::Component};

use crate::abi::{Linkers, Prepared};
use crate::artifact::{CodeCache, Key};
use crate::atomics::wait_for_none;
use crate::bulk::{self, chunk_bulk_operations};
use crate::calls::INITIALIZE;
use crate::compile_threads;
use crate::composed::bound_strings;
use crate::data_segments::merge_data_segments;
use crate::data_start::copy_data_at_start;
use crate::exceptions::catch_in_every_frame;
use crate::image::{Image, take_image};
use crate::inventory::{Inventory, Survey, survey};
use crate::load_limits::{
    LoadSize, MAX_ADAPTED_PARTS, MAX_INLINED_BYTES, MAX_TEXT_BYTES, check_load_limits,
    check_outline_limits,
};
use crate::long_names::drop_long_names;
use crate::preempt::Bodies;
use crate::refused::{self, Place, validate, validate_outline};
use crate::steps::{Missing, Reach, caps};
use leasehold_slots::stack_class::StackClass;

/// Largest file that is read as a program, in bytes.
pub const MAX_PROGRAM_BYTES: u64 = 256 << 20;

/// Most core instances that one run of a program may make. wasmtime gives all instances of a
/// store back one by one, so their number must be small; real components have up to about 40.
pub const MAX_INSTANCES: u64 = 100;

/// Most bytes of active data segments that starting a program may copy. More than
/// [`DATA`](crate::steps::caps::DATA) of a module are copied by the guest itself, in steps. A JavaScript or
/// Python engine has 10 to 20 MiB.
pub const MAX_DATA_BYTES: u64 = 64 << 20;

/// Module of WASI preview 1 functions.
const WASI_PREVIEW1: &str = "wasi_snapshot_preview1";

/// Module of the kernel's functions for core modules.
const KERNEL_MODULE: &str = "leasehold_kernel";

/// Start of the name of the interface that a command component exports.
const RUN: &str = "wasi:cli/run@0.2.";

/// Packages whose interfaces a component may import, each with the version prefix that is
/// compatible with ours.
const PACKAGES: [(&str, &str); 7] = [
    ("wasi:cli/", "0.2."),
    ("wasi:clocks/", "0.2."),
    ("wasi:filesystem/", "0.2."),
    ("wasi:io/", "0.2."),
    ("wasi:random/", "0.2."),
    ("wasi:sockets/", "0.2."),
    ("leasehold:kernel/", "0.1."),
];

/// Why a program was refused. Each is one line that says what is wrong with the file.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// More than [`MAX_PROGRAM_BYTES`].
    #[error("the program has more than {MAX_PROGRAM_BYTES} bytes")]
    TooLarge,
    /// More than [`MAX_TEXT_BYTES`] of text.
    #[error("the program's text has more than {MAX_TEXT_BYTES} bytes")]
    TextTooLarge,
    /// Neither the binary format nor its text.
    #[error("not WebAssembly: the file starts neither with the magic number nor with text")]
    NotWasm,
    /// Text that does not parse.
    #[error("invalid WebAssembly text: {0}")]
    Text(String),
    /// Truncated, damaged or invalid.
    #[error("invalid WebAssembly at byte {offset}: {message}")]
    Corrupt {
        /// Where, in bytes from the start of the file (of the translated binary, for text).
        offset: u64,
        /// What the validator said.
        message: String,
    },
    /// Valid, with features that are switched off.
    #[error(
        "uses WebAssembly features that Leasehold does not offer: {}{}{}",
        names.join(", "),
        place.as_ref().map_or_else(String::new, |place| format!(", {place}")),
        refused::advice(names)
    )]
    Features {
        /// Names of the features.
        names: Vec<String>,
        /// Where they are used first.
        place: Option<Place>,
    },
    /// Imports what Leasehold does not offer.
    #[error("made for another world: nothing here offers {}", imports.join(", "))]
    World {
        /// The unknown imports.
        imports: Vec<String>,
    },
    /// Has no entry point.
    #[error("not a command: it does not export {0}")]
    NoEntry(&'static str),
    /// Its entry point cannot be called as one.
    #[error("{0} is not the entry point of a command, which takes nothing and returns {1}")]
    EntryType(&'static str, &'static str),
    /// More core instances than [`MAX_INSTANCES`].
    #[error("makes {count} core instances; the limit is {MAX_INSTANCES}")]
    TooManyInstances {
        /// How many; saturates.
        count: u64,
    },
    /// More bytes of active data segments than [`MAX_DATA_BYTES`].
    #[error("copies {bytes} bytes of data when it starts; the limit is {MAX_DATA_BYTES}")]
    TooMuchData {
        /// How many, over all instances; saturates.
        bytes: u64,
    },
    /// More elements of active segments that the engine copies than it may in one step.
    #[error(
        "copies {count} elements to tables of which the compiler does not know the contents; the limit is {}",
        caps::ELEMENTS.most
    )]
    TooManyElements {
        /// How many, over all instances; saturates.
        count: u64,
    },
    /// More of something than a program may have: of what the engine makes one by one in the step that
    /// makes the instances, or of what takes time to [load](crate::load_limits).
    #[error("has {count} {what}; the limit is {most}")]
    TooManyParts {
        /// What there is too much of.
        what: &'static str,
        /// How many; for loading, at least how many. Saturates.
        count: u64,
        /// How many there may be.
        most: u64,
    },
    /// Instantiates something that the program does not contain.
    #[error("instantiates a module or component that it does not contain")]
    Opaque,
    /// It imports something with a type that is not the one offered.
    #[error("{0:#}")]
    Link(wasmtime::Error),
    /// The engine refused a program that had passed validation.
    #[error("the engine refused the program: {0:#}")]
    Engine(wasmtime::Error),
}

impl From<Missing> for ProgramError {
    fn from(Missing(imports): Missing) -> ProgramError {
        ProgramError::World { imports }
    }
}

impl From<BinaryReaderError> for ProgramError {
    fn from(error: BinaryReaderError) -> ProgramError {
        ProgramError::Corrupt {
            offset: error.offset() as u64,
            message: error.message().to_owned(),
        }
    }
}

/// Compiled code of a program.
#[derive(Clone)]
#[allow(missing_debug_implementations)]
pub enum Code {
    /// A core module for WASI preview 1: entry point `_start`.
    Module(Module),
    /// A command component for WASI preview 2: entry point `run` of `wasi:cli/run`.
    Component(Component),
}

/// Where the initial contents of a program's memory are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// In the code, which copies them when it is started.
    Whole,
    /// The same, for tenants that page: any page may have to be fetched from the disk, so that no
    /// instruction touches many.
    Paged,
    /// In an [image](Image), if they are worth it: for tenants that page, who share it.
    ImageApart,
}

impl Form {
    /// The form in which a tenant with this lease can page, and share what the lease lets it share.
    pub fn under(lease: &Lease) -> Self {
        match lease.memory.paging.map(|paging| paging.shared) {
            None => Self::Whole,
            Some(SharedPages::None) => Self::Paged,
            Some(SharedPages::Conserve | SharedPages::Lock | SharedPages::Auto) => Self::ImageApart,
        }
    }

    /// Bytes of active data segments that the engine may copy when it makes an instance.
    fn data_bytes(self) -> usize {
        match self {
            Self::Whole => caps::DATA.size(),
            Self::Paged | Self::ImageApart => 0,
        }
    }

    /// Bytes of linear memory that an instruction may touch.
    fn bulk_bytes(self) -> u32 {
        match self {
            Self::Whole => bulk::CHUNK,
            Self::Paged | Self::ImageApart => bulk::PAGED_CHUNK,
        }
    }
}

/// How a tenant runs a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// From its entry point, once: `_start`, or `run` of `wasi:cli/run`.
    Command,
    /// Its exported functions are [called](crate::calls), any number of times. A core module that exports
    /// `_initialize` is initialised first.
    Exports,
}

/// A program that can be instantiated any number of times. Cloning is cheap.
#[derive(Clone)]
pub struct Program {
    code: Code,
    form: Form,
    entry: Entry,
    bodies: Bodies,
    inventory: Inventory,
    reach: Reach,
    image: Option<Image>,
    /// With its imports resolved, by the cell that it was loaded for.
    prepared: Option<Prepared>,
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
        Program::load_in(Form::Whole, engine, path, cache)
    }

    /// As [`load`](Program::load), in one of the forms.
    ///
    /// # Errors
    ///
    /// Any [`ProgramError`].
    pub fn load_in(
        form: Form,
        engine: &Engine,
        path: &Path,
        cache: Option<&CodeCache>,
    ) -> Result<Program, ProgramError> {
        Program::load_entry(Entry::Command, form, engine, path, cache)
    }

    /// As [`load_in`](Program::load_in), to be run in one of the two ways.
    ///
    /// # Errors
    ///
    /// Any [`ProgramError`].
    pub fn load_entry(
        entry: Entry,
        form: Form,
        engine: &Engine,
        path: &Path,
        cache: Option<&CodeCache>,
    ) -> Result<Program, ProgramError> {
        let bytes = read(path)?;
        let Some(cache) = cache else {
            return Program::from_bytes_entry(entry, form, engine, &bytes);
        };
        let key = Key::new(engine, &bytes, form);
        // It may have been compiled for the other entry: what it lacks is said by the checks before compilation.
        let cached = cache.get(engine, &key);
        let cached = cached.filter(|(code, _)| check_entry_type(entry, engine, code).is_ok());
        if let Some((code, inventory)) = cached {
            let image = match form {
                Form::Whole | Form::Paged => None,
                Form::ImageApart => separated(&to_binary(&bytes)?, &inventory)?.1,
            };
            let reach = Reach::of(engine, &code, &inventory)?;
            let program = Program::new(code, form, inventory, reach, image);
            return Ok(program.entered_by(entry));
        }
        let program = Program::from_bytes_entry(entry, form, engine, &bytes)?;
        if let Err(error) = cache.put(&key, &program.code, &program.inventory) {
            tracing::warn!(%error, "a compiled program was not kept");
        }
        Ok(program)
    }

    /// Checks and compiles a module, a component, or the text of either.
    ///
    /// # Errors
    ///
    /// Any [`ProgramError`] but `Read`.
    pub fn from_bytes(engine: &Engine, bytes: &[u8]) -> Result<Program, ProgramError> {
        Program::from_bytes_in(Form::Whole, engine, bytes)
    }

    /// As [`from_bytes`](Program::from_bytes), in one of the forms.
    ///
    /// # Errors
    ///
    /// Any [`ProgramError`] but `Read`.
    pub fn from_bytes_in(
        form: Form,
        engine: &Engine,
        bytes: &[u8],
    ) -> Result<Program, ProgramError> {
        Program::from_bytes_entry(Entry::Command, form, engine, bytes)
    }

    /// As [`from_bytes_in`](Program::from_bytes_in), to be run in one of the two ways.
    ///
    /// # Errors
    ///
    /// Any [`ProgramError`] but `Read`.
    pub fn from_bytes_entry(
        entry: Entry,
        form: Form,
        engine: &Engine,
        bytes: &[u8],
    ) -> Result<Program, ProgramError> {
        let _turn = compile_threads::turn();
        let (binary, survey) = checked(bytes)?;
        let component = Parser::is_component(&binary);
        check_imports(component, &survey.imports)?;
        if entry == Entry::Command {
            check_entry(component, &survey.exports)?;
        }
        let count = survey.inventory.instances;
        if count > MAX_INSTANCES {
            return Err(ProgramError::TooManyInstances { count });
        }
        let count = survey.inlined_bytes;
        if count > MAX_INLINED_BYTES {
            let what = "bytes of component sections, as often as they are instantiated";
            let most = MAX_INLINED_BYTES;
            return Err(ProgramError::TooManyParts { what, count, most });
        }
        let count = survey.adapted_parts;
        if count > MAX_ADAPTED_PARTS {
            let what =
                "parts of what components pass each other, as often as they are instantiated";
            let most = MAX_ADAPTED_PARTS;
            return Err(ProgramError::TooManyParts { what, count, most });
        }
        let bytes = survey.inventory.data_bytes;
        if bytes > MAX_DATA_BYTES {
            return Err(ProgramError::TooMuchData { bytes });
        }
        let count = survey.inventory.elements;
        if count > caps::ELEMENTS.most {
            return Err(ProgramError::TooManyElements { count });
        }
        for (cap, count) in [
            (caps::GLOBALS, survey.inventory.globals),
            (caps::SEGMENTS, survey.inventory.segments),
            (caps::COMPONENTS, survey.inventory.components),
        ] {
            if count > cap.most {
                let (what, most) = (cap.what, cap.most);
                return Err(ProgramError::TooManyParts { what, count, most });
            }
        }
        let (binary, image) = match form {
            Form::Whole | Form::Paged => (binary, None),
            Form::ImageApart => {
                let (rest, image) = separated(&binary, &survey.inventory)?;
                (Cow::Owned(rest.into_owned()), image)
            }
        };
        let binary = drop_long_names(&binary)?;
        let binary = match survey.awaits {
            true => wait_for_none(&binary)?,
            false => Cow::Borrowed(&*binary),
        };
        let binary = match survey.throws {
            true => catch_in_every_frame(&binary)?,
            false => Cow::Borrowed(&*binary),
        };
        let binary = merge_data_segments(&binary)?;
        let binary = copy_data_at_start(&binary, form.data_bytes())?;
        let binary = chunk_bulk_operations(&binary, form.bulk_bytes())?;
        let code = if component {
            Code::Component(Component::from_binary(engine, &binary).map_err(ProgramError::Engine)?)
        } else {
            Code::Module(Module::from_binary(engine, &binary).map_err(ProgramError::Engine)?)
        };
        check_entry_type(entry, engine, &code)?;
        let reach = Reach::of(engine, &code, &survey.inventory)?;
        let program = Program::new(code, form, survey.inventory, reach, image);
        Ok(program.entered_by(entry))
    }

    /// The image that the program in a file would have [apart](Form::ImageApart), without compiling
    /// it.
    ///
    /// # Errors
    ///
    /// `Read`, and what keeps the file from being WebAssembly.
    pub fn image_in(path: &Path) -> Result<Option<Image>, ProgramError> {
        let bytes = read(path)?;
        let (binary, survey) = checked(&bytes)?;
        Ok(separated(&binary, &survey.inventory)?.1)
    }

    /// The host steps that the program in a file can reach, without compiling it. Its function bodies are not
    /// looked at: it may be refused for them when it is loaded.
    ///
    /// # Errors
    ///
    /// `Read`, what keeps the file from being WebAssembly, and `World`.
    pub fn reach_in(path: &Path) -> Result<Reach, ProgramError> {
        let bytes = read(path)?;
        let (binary, survey) = outlined(&bytes)?;
        Reach::of_binary(&binary, &survey.inventory)
    }

    /// How much a program has of each thing on which the time to load it depends. It is not validated.
    ///
    /// # Errors
    ///
    /// [`TooManyParts`](ProgramError::TooManyParts), and what keeps the bytes from being parsed.
    pub fn load_size(bytes: &[u8]) -> Result<LoadSize, ProgramError> {
        check_load_limits(&to_binary(bytes)?)
    }

    pub(crate) fn new(
        code: Code,
        form: Form,
        inventory: Inventory,
        reach: Reach,
        image: Option<Image>,
    ) -> Program {
        Program {
            bodies: Bodies::of(&code),
            code,
            form,
            entry: Entry::Command,
            inventory,
            reach,
            image,
            prepared: None,
        }
    }

    /// The same, run in one of the two ways.
    fn entered_by(self, entry: Entry) -> Program {
        let reach = match entry {
            Entry::Command => self.reach,
            Entry::Exports => self.reach.with_calls(),
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

    /// The stack that it runs on.
    pub fn stack(&self) -> StackClass {
        StackClass::of_engine(self.engine())
    }

    /// The engine that compiled it.
    fn engine(&self) -> &Engine {
        match &self.code {
            Code::Module(module) => module.engine(),
            Code::Component(component) => component.engine(),
        }
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

    /// What its memory holds before its first instruction, if that is not in the code.
    pub fn image(&self) -> Option<&Image> {
        self.image.as_ref()
    }

    /// Where its function bodies are.
    pub(crate) fn bodies(&self) -> &Bodies {
        &self.bodies
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
        self.form != Form::Whole
    }

    /// What a run takes before its first instruction.
    pub fn inventory(&self) -> &Inventory {
        &self.inventory
    }
}

fn read(path: &Path) -> Result<Vec<u8>, ProgramError> {
    let failed = |source| ProgramError::Read {
        path: path.to_owned(),
        source,
    };
    // A pipe may never answer, and a device has no end.
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err(failed(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a regular file",
        )));
    }
    let file = File::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    // One byte more than is allowed tells a file that is too large, a device included.
    file.take(MAX_PROGRAM_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() as u64 > MAX_PROGRAM_BYTES {
        return Err(ProgramError::TooLarge);
    }
    Ok(bytes)
}

/// The program without its image, and the image, if it is one that has one memory.
fn separated<'a>(
    binary: &'a [u8],
    inventory: &Inventory,
) -> Result<(Cow<'a, [u8]>, Option<Image>), BinaryReaderError> {
    match inventory.memories {
        1 => take_image(binary),
        _ => Ok((binary.into(), None)),
    }
}

/// The binary form of a program that is within the limits of loading and valid, with bounded strings where
/// its components may call each other, and what it takes.
fn checked(bytes: &[u8]) -> Result<(Cow<'_, [u8]>, Survey), ProgramError> {
    let binary = to_binary(bytes)?;
    let size = check_load_limits(&binary)?;
    validate(&binary)?;
    let (binary, mut survey) = surveyed(binary, &size)?;
    survey.throws = size.throws();
    survey.awaits = size.awaits();
    Ok((binary, survey))
}

/// The same of a program whose function bodies are not looked at: it may be refused for them yet.
fn outlined(bytes: &[u8]) -> Result<(Cow<'_, [u8]>, Survey), ProgramError> {
    let binary = to_binary(bytes)?;
    let size = check_outline_limits(&binary)?;
    validate_outline(&binary)?;
    surveyed(binary, &size)
}

fn surveyed<'a>(
    binary: Cow<'a, [u8]>,
    size: &LoadSize,
) -> Result<(Cow<'a, [u8]>, Survey), ProgramError> {
    let (binary, parts) = match size.is_composed() {
        true => {
            let composed = bound_strings(&binary)?;
            (Cow::Owned(composed.binary), composed.parts)
        }
        false => (binary, Vec::new()),
    };
    let survey = survey(&binary, &parts)?;
    Ok((binary, survey))
}

/// Translates text; passes the binary format through.
fn to_binary(bytes: &[u8]) -> Result<Cow<'_, [u8]>, ProgramError> {
    if bytes.starts_with(b"\0asm") {
        return Ok(bytes.into());
    }
    // `wat` accepts anything that is UTF-8; a file that is not even that is no text of ours.
    let text = std::str::from_utf8(bytes).map_err(|_| ProgramError::NotWasm)?;
    if !text.trim_start().starts_with(['(', ';']) {
        return Err(ProgramError::NotWasm);
    }
    if text.len() as u64 > MAX_TEXT_BYTES {
        return Err(ProgramError::TextTooLarge);
    }
    wat::parse_str(text)
        .map(Into::into)
        .map_err(|error| ProgramError::Text(error.to_string()))
}

fn check_imports(component: bool, imports: &[String]) -> Result<(), ProgramError> {
    let offered = |name: &str| {
        if component {
            PACKAGES.iter().any(|&(package, version)| {
                name.starts_with(package)
                    && name
                        .split_once('@')
                        .is_some_and(|(_, v)| v.starts_with(version))
            })
        } else {
            name.split_once("::")
                .is_some_and(|(module, _)| module == WASI_PREVIEW1 || module == KERNEL_MODULE)
        }
    };
    let imports: Vec<String> = imports
        .iter()
        .filter(|name| !offered(name))
        .cloned()
        .collect();
    if imports.is_empty() {
        Ok(())
    } else {
        Err(ProgramError::World { imports })
    }
}

fn check_entry(component: bool, exports: &[String]) -> Result<(), ProgramError> {
    let (found, entry) = if component {
        (
            exports.iter().any(|name| name.starts_with(RUN)),
            "wasi:cli/run@0.2",
        )
    } else {
        (
            exports.iter().any(|name| name == "_start"),
            "the function _start",
        )
    };
    if found {
        Ok(())
    } else {
        Err(ProgramError::NoEntry(entry))
    }
}

/// Whether the entry point has the type with which a cell calls it.
fn check_entry_type(entry: Entry, engine: &Engine, code: &Code) -> Result<(), ProgramError> {
    let is_entry = |export: Option<ExternType>| {
        let ty = export.as_ref().and_then(ExternType::func);
        ty.is_some_and(|ty| ty.params().len() == 0 && ty.results().len() == 0)
    };
    match (code, entry) {
        (Code::Module(module), Entry::Command) => is_entry(module.get_export("_start"))
            .then_some(())
            .ok_or(ProgramError::EntryType("the function _start", "nothing")),
        (Code::Module(module), Entry::Exports) => module
            .get_export(INITIALIZE)
            .is_none_or(|export| is_entry(Some(export)))
            .then_some(())
            .ok_or(ProgramError::EntryType(
                "the function _initialize",
                "nothing",
            )),
        (Code::Component(_), Entry::Exports) => Ok(()),
        (Code::Component(component), Entry::Command) => {
            let ty = component.component_type();
            let mut commands = ty.exports(engine).filter(|(name, _)| name.starts_with(RUN));
            let is_entry = commands.any(|(_, export)| match export.ty {
                ComponentItem::ComponentInstance(instance) => {
                    let run = instance.get_export(engine, "run");
                    matches!(run.map(|run| run.ty), Some(ComponentItem::ComponentFunc(run)) if is_run(&run))
                }
                _ => false,
            });
            is_entry.then_some(()).ok_or(ProgramError::EntryType(
                "run of wasi:cli/run@0.2",
                "a result",
            ))
        }
    }
}

fn is_run(run: &ComponentFunc) -> bool {
    let results: Vec<Type> = run.results().collect();
    run.params().len() == 0
        && matches!(&results[..], [Type::Result(result)] if result.ok().is_none() && result.err().is_none())
}
