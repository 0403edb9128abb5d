//! A program that was checked and compiled, before it is known what of a cell it reaches.

use std::borrow::Cow;
use std::path::Path;

use leasehold_lease::RegularFile;
use wasmparser::component_types::{ComponentAnyTypeId, ComponentEntityType};
use wasmparser::types::Types;
use wasmparser::{BinaryReaderError, Parser};
use wasmtime::{Engine, Module, component::Component};

use crate::artifact::Digest;
use crate::atomics::wait_for_none;
use crate::bulk_instructions::chunk_bulk_operations;
use crate::code::{Code, Entry, Form, HANDLER, Purpose, RUN, check_entry_type};
use crate::compile_threads;
use crate::composed::bound_strings;
use crate::data_segments::merge_data_segments;
use crate::entry_pages::EntryPages;
use crate::error::ProgramError;
use crate::exceptions::catch_in_every_frame;
use crate::hollow::hollow;
use crate::image::{Image, take_image};
use crate::initial_segments::copy_segments_at_start;
use crate::inventory::{Inventory, Survey, survey};
use crate::limits::{
    COMPONENTS, ELEMENTS, GLOBALS, MAX_DATA_BYTES, MAX_INSTANCES, MAX_PROGRAM_BYTES,
    MAX_SET_ELEMENTS, MAX_TEXT_BYTES, SEGMENTS,
};
use crate::load_limits::{
    LoadSize, MAX_ADAPTED_PARTS, MAX_INLINED_BYTES, check_load_limits, check_outline_limits,
};
use crate::long_names::drop_long_names;
use crate::refused::{validate, validate_outline};
use crate::straight_line::check_straight_lines;
use crate::touches::touch_for_host;

/// Module of WASI preview 1 functions.
const WASI_PREVIEW1: &str = "wasi_snapshot_preview1";

/// Module of the kernel's functions for core modules.
const KERNEL_MODULE: &str = "leasehold_kernel";

/// The version of an interface that states none.
const UNVERSIONED: &str = "none";

/// Packages whose interfaces a component may import, each with the version prefix that is
/// compatible with ours.
const PACKAGES: [(&str, &str); 12] = [
    ("wasi:cli/", "0.2."),
    ("wasi:clocks/", "0.2."),
    ("wasi:config/", "0.2.0-rc.1"),
    ("wasi:filesystem/", "0.2."),
    ("wasi:http/", "0.2."),
    ("wasi:io/", "0.2."),
    ("wasi:keyvalue/", "0.2.0-draft"),
    ("wasi:logging/", "0.1.0-draft"),
    ("wasi:logging/", UNVERSIONED),
    ("wasi:random/", "0.2."),
    ("wasi:sockets/", "0.2."),
    ("leasehold:kernel/", "0.1."),
];

/// A program that was checked and compiled.
#[allow(missing_debug_implementations)]
pub struct Compiled {
    /// Its code.
    pub code: Code,
    /// The pages of that, if it is mapped from a file: they are dropped when nothing executes it any more.
    pub pages: Option<EntryPages>,
    /// Bytes of memory that this takes, wherever it comes from.
    pub code_bytes: u64,
    /// The form in which it was compiled.
    pub form: Form,
    /// What a run takes before its first instruction.
    pub inventory: Inventory,
    /// What its memory holds before its first instruction, if that is not in the code.
    pub image: Option<Image>,
    /// The digest of its file, if it was read from one.
    pub digest: Option<Digest>,
}

impl Compiled {
    /// Checks and compiles a module, a component, or the text of either.
    ///
    /// # Errors
    ///
    /// Any [`ProgramError`] but `Read`.
    pub fn from_bytes(
        purpose: Purpose,
        engine: &Engine,
        bytes: &[u8],
    ) -> Result<Compiled, ProgramError> {
        with_rewritten(purpose, engine, bytes, |rewritten| {
            Self::of(purpose, engine, rewritten)
        })
    }

    /// A program as far as it is known without a look at its function bodies, for which it may be refused yet: its functions
    /// only trap, its imports and exports have the types of the program's. About 20 µs for each function.
    ///
    /// # Errors
    ///
    /// What keeps the file from being WebAssembly, imports that nothing offers, an entry that is missing or of another type,
    /// too many of something, and the engine's.
    pub(crate) fn outline(
        purpose: Purpose,
        engine: &Engine,
        bytes: &[u8],
    ) -> Result<Compiled, ProgramError> {
        with_hollow(purpose, bytes, |hollow| Self::of(purpose, engine, hollow))
    }

    fn of(
        purpose: Purpose,
        engine: &Engine,
        rewritten: Rewritten<'_>,
    ) -> Result<Compiled, ProgramError> {
        let code = compiled(engine, rewritten.binary)?;
        check_entry_type(purpose.entry, engine, &code)?;
        Ok(Compiled {
            code_bytes: code.bytes(),
            code,
            pages: None,
            form: purpose.form,
            inventory: rewritten.inventory,
            image: rewritten.image,
            digest: None,
        })
    }

    /// Counts the parts of a program that determine its loading time. The program is not validated.
    ///
    /// # Errors
    ///
    /// [`TooManyParts`](ProgramError::TooManyParts), and what keeps the bytes from being parsed.
    pub fn load_size(bytes: &[u8]) -> Result<LoadSize, ProgramError> {
        check_load_limits(&to_binary(bytes)?)
    }
}

/// A program as far as it is known without a look at its function bodies: it may be refused for them yet.
#[derive(Debug)]
pub struct Outlined<'a> {
    binary: Cow<'a, [u8]>,
    survey: Survey,
}

impl Outlined<'_> {
    /// Its binary form.
    pub fn binary(&self) -> &[u8] {
        &self.binary
    }

    /// What a run of it takes.
    pub fn inventory(&self) -> Inventory {
        self.survey.inventory
    }
}

/// A program as the engine compiles it.
pub(crate) struct Rewritten<'a> {
    pub(crate) binary: &'a [u8],
    pub(crate) inventory: Inventory,
    pub(crate) image: Option<Image>,
}

/// Checks a module, a component, or the text of either, and passes on what `engine` is to compile for this purpose.
///
/// # Errors
///
/// Those of reading a program, and those of `take`.
pub(crate) fn with_rewritten<T>(
    Purpose { entry, form }: Purpose,
    engine: &Engine,
    bytes: &[u8],
    take: impl FnOnce(Rewritten<'_>) -> Result<T, ProgramError>,
) -> Result<T, ProgramError> {
    let _turn = compile_threads::turn();
    let (binary, survey) = checked(bytes)?;
    check_survey(entry, Parser::is_component(&binary), &survey)?;
    let (binary, image) = separated(binary, &survey.inventory, form)?;
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
    let most = form.most_copied(&survey.inventory);
    let binary = copy_segments_at_start(&binary, most)?;
    let binary = chunk_bulk_operations(&binary, form.bulk_bytes())?;
    let binary = match form.is_for_paging() {
        true => touch_for_host(&binary)?,
        false => Cow::Borrowed(&*binary),
    };
    // The last one: what the others insert is checked, too.
    let binary = match engine.get_epoch_interruption() {
        true => check_straight_lines(&binary)?,
        false => Cow::Borrowed(&*binary),
    };
    compile_threads::make().map_err(ProgramError::Threads)?;
    take(Rewritten {
        binary: &binary,
        inventory: survey.inventory,
        image,
    })
}

/// The same of a program whose functions only trap, without a look at their bodies.
///
/// # Errors
///
/// Those of reading a program, and those of `take`.
pub(crate) fn with_hollow<T>(
    Purpose { entry, form }: Purpose,
    bytes: &[u8],
    take: impl FnOnce(Rewritten<'_>) -> Result<T, ProgramError>,
) -> Result<T, ProgramError> {
    let (binary, survey) = outlined(bytes)?;
    check_survey(entry, Parser::is_component(&binary), &survey)?;
    let (binary, image) = separated(binary, &survey.inventory, form)?;
    take(Rewritten {
        binary: &hollow(&binary)?,
        inventory: survey.inventory,
        image,
    })
}

fn compiled(engine: &Engine, binary: &[u8]) -> Result<Code, ProgramError> {
    Ok(match Parser::is_component(binary) {
        true => {
            Code::Component(Component::from_binary(engine, binary).map_err(ProgramError::Engine)?)
        }
        false => Code::Module(Module::from_binary(engine, binary).map_err(ProgramError::Engine)?),
    })
}

/// Passes on the outline of the program in a file, without compiling it.
///
/// # Errors
///
/// `Read`, what keeps the file from being WebAssembly, and those of `take`.
pub fn with_outline<T>(
    path: &Path,
    take: impl FnOnce(&Outlined<'_>) -> Result<T, ProgramError>,
) -> Result<T, ProgramError> {
    let bytes = read(path)?;
    let (binary, survey) = outlined(&bytes)?;
    take(&Outlined { binary, survey })
}

pub(crate) fn read(path: &Path) -> Result<Vec<u8>, ProgramError> {
    RegularFile::open(path)
        .and_then(|file| file.read(MAX_PROGRAM_BYTES))
        .map_err(|error| ProgramError::unreadable(path, error))
}

/// The program without the image that it has in this form, and the image, if it is one that has one memory.
fn separated<'a>(
    binary: Cow<'a, [u8]>,
    inventory: &Inventory,
    form: Form,
) -> Result<(Cow<'a, [u8]>, Option<Image>), BinaryReaderError> {
    match (inventory.memories, form.worth()) {
        (1, Some(worth)) => {
            let (rest, image) = take_image(&binary, worth)?;
            Ok((Cow::Owned(rest.into_owned()), image))
        }
        _ => Ok((binary, None)),
    }
}

/// The binary form of a program that is within the limits of loading and valid, with bounded strings where
/// its components may call each other, and what it takes.
fn checked(bytes: &[u8]) -> Result<(Cow<'_, [u8]>, Survey), ProgramError> {
    let binary = to_binary(bytes)?;
    // What a program declares says most of why one is refused, without a look at its functions.
    check_outline_limits(&binary)?;
    let types = validate_outline(&binary)?;
    let size = check_load_limits(&binary)?;
    validate(&binary)?;
    let (binary, mut survey) = surveyed(binary, &size, &types)?;
    survey.throws = size.throws();
    survey.awaits = size.awaits();
    Ok((binary, survey))
}

/// The same without a check of function bodies: the program may still be refused for them.
fn outlined(bytes: &[u8]) -> Result<(Cow<'_, [u8]>, Survey), ProgramError> {
    let binary = to_binary(bytes)?;
    let size = check_outline_limits(&binary)?;
    let types = validate_outline(&binary)?;
    surveyed(binary, &size, &types)
}

fn surveyed<'a>(
    binary: Cow<'a, [u8]>,
    size: &LoadSize,
    types: &Types,
) -> Result<(Cow<'a, [u8]>, Survey), ProgramError> {
    let (binary, parts) = match size.is_composed() {
        true => {
            let composed = bound_strings(&binary)?;
            (Cow::Owned(composed.binary), composed.parts)
        }
        false => (binary, Vec::new()),
    };
    let mut survey = survey(&binary, &parts)?;
    survey.imports.retain(|name| is_of_host(types, name));
    Ok((binary, survey))
}

/// Whether an import takes anything of a host: an instance of types alone does not.
fn is_of_host(types: &Types, import: &str) -> bool {
    let item = types.as_ref().component_item_for_import(import);
    item.is_none_or(|item| has_more_than_types(types, item.ty))
}

fn has_more_than_types(types: &Types, entity: ComponentEntityType) -> bool {
    match entity {
        ComponentEntityType::Type { created, .. } => {
            matches!(created, ComponentAnyTypeId::Resource(_))
        }
        ComponentEntityType::Instance(instance) => {
            let mut exports = types[instance].exports.values();
            exports.any(|export| has_more_than_types(types, export.ty))
        }
        ComponentEntityType::Module(_)
        | ComponentEntityType::Func(_)
        | ComponentEntityType::Value(_)
        | ComponentEntityType::Component(_) => true,
    }
}

/// Translates text; passes the binary format through.
fn to_binary(bytes: &[u8]) -> Result<Cow<'_, [u8]>, ProgramError> {
    if bytes.starts_with(b"\0asm") {
        return Ok(bytes.into());
    }
    // `wat` reads UTF-8: a file in another encoding is not WebAssembly text.
    let text = std::str::from_utf8(bytes).map_err(|_| ProgramError::NotWasm)?;
    if !text.trim_start().starts_with(['(', ';']) {
        return Err(ProgramError::NotWasm);
    }
    if text.len() as u64 > MAX_TEXT_BYTES {
        return Err(ProgramError::TextTooLarge);
    }
    wat::parse_str(text)
        .map(Into::into)
        .map_err(|error| ProgramError::of_text(&error.to_string()))
}

/// The checks of a program that need no more than what it declares.
fn check_survey(entry: Entry, component: bool, survey: &Survey) -> Result<(), ProgramError> {
    check_imports(component, &survey.imports)?;
    match entry {
        Entry::Command => check_entry(component, &survey.exports)?,
        Entry::Handler => check_handler(&survey.exports)?,
        Entry::Exports => {}
    }
    let count = survey.inventory.instances;
    if count > MAX_INSTANCES {
        return Err(ProgramError::TooManyInstances { count });
    }
    let bytes = survey.inventory.data_bytes;
    if bytes > MAX_DATA_BYTES {
        return Err(ProgramError::TooMuchData { bytes });
    }
    let count = survey.inventory.elements;
    if count > MAX_SET_ELEMENTS {
        return Err(ProgramError::TooManyElements { count });
    }
    let inlined = (
        "bytes of component sections, as often as they are instantiated",
        MAX_INLINED_BYTES,
        survey.inlined_bytes,
    );
    let adapted = (
        "parts of what components pass each other, as often as they are instantiated",
        MAX_ADAPTED_PARTS,
        survey.adapted_parts,
    );
    let passive = (
        "elements in passive segments",
        ELEMENTS.most,
        survey.inventory.passive_elements,
    );
    let globals = (GLOBALS.what, GLOBALS.most, survey.inventory.globals);
    let segments = (SEGMENTS.what, SEGMENTS.most, survey.inventory.segments);
    let components = (
        COMPONENTS.what,
        COMPONENTS.most,
        survey.inventory.components,
    );
    for (what, most, count) in [inlined, adapted, passive, globals, segments, components] {
        if count > most {
            return Err(ProgramError::TooManyParts { what, count, most });
        }
    }
    Ok(())
}

fn check_imports(component: bool, imports: &[String]) -> Result<(), ProgramError> {
    let offered = |name: &str| {
        if component {
            PACKAGES.iter().any(|&(package, version)| {
                let (interface, stated) = name.split_once('@').unwrap_or((name, UNVERSIONED));
                interface.starts_with(package) && stated.starts_with(version)
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

fn check_handler(exports: &[String]) -> Result<(), ProgramError> {
    let found = exports.iter().any(|name| name.starts_with(HANDLER));
    found.then_some(()).ok_or(ProgramError::NoHandler)
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
