//! Finds the features of WebAssembly that a program uses and that are not offered, and their
//! places.
//!
//! What a program declares is validated first, before any function is looked at. Instructions and the types
//! of locals are seen while the program is [counted](crate::load_limits), before functions are validated.
//! Where the validator stops, the program is validated again up to that place, with each of the other
//! features switched off in turn, and with only the function in which it stopped.

use std::fmt;

use wasmparser::types::Types;
use wasmparser::{
    AbstractHeapType, BinaryReader, BinaryReaderError, BlockType, FuncValidatorAllocations,
    HeapType, Name, NameSectionReader, Operator, Parser, Payload, RefType, ValType, ValidPayload,
    Validator, WasmFeatures,
};

use crate::compile_threads;
use crate::error::ProgramError;
use crate::features::FEATURES;
use crate::limits::NAME;

/// Where a program uses something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourcePosition {
    /// In bytes from the start of the file (of the translated binary, for text).
    pub offset: u64,
    /// The function that contains the place, if any.
    pub function: Option<Function>,
}

/// A function of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Its number in its module, imported functions included.
    pub index: u32,
    /// Its name, if the program says one, cut off where it is long.
    pub name: Option<String>,
}

impl fmt::Display for SourcePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.function {
            Some(Function { index, name }) => {
                write!(f, "in function {index}")?;
                if let Some(name) = name {
                    write!(f, " ({name})")?;
                }
                write!(f, ", at byte {}", self.offset)
            }
            None => write!(f, "at byte {}", self.offset),
        }
    }
}

/// The feature that is needed for the types which an instruction states and is not on offer, if there is one.
#[inline(always)]
pub(crate) fn immediate(operator: &Operator<'_>) -> Option<&'static str> {
    let of_block = |block: &BlockType| match block {
        BlockType::Type(ty) => refused_type(*ty),
        BlockType::Empty | BlockType::FuncType(_) => None,
    };
    match operator {
        Operator::Block { blockty } | Operator::Loop { blockty } | Operator::If { blockty } => {
            of_block(blockty)
        }
        Operator::TryTable { try_table } => of_block(&try_table.ty),
        Operator::TypedSelect { ty } => refused_type(*ty),
        Operator::RefNull { hty } => {
            RefType::new(true, *hty).and_then(|ty| refused_type(ValType::Ref(ty)))
        }
        _ => None,
    }
}

/// The feature that is needed for values of a type and is not on offer, if there is one.
pub(crate) fn refused_type(ty: ValType) -> Option<&'static str> {
    use AbstractHeapType as Heap;
    const FUNCTION_REFERENCES: Option<&str> = Some("function_references");
    let ValType::Ref(reference) = ty else {
        return None;
    };
    match reference.heap_type() {
        HeapType::Concrete(_) => FUNCTION_REFERENCES,
        HeapType::Exact(_) => Some("custom_descriptors"),
        HeapType::Abstract { shared: true, .. } => Some("shared_everything_threads"),
        HeapType::Abstract { shared: false, ty } => match ty {
            Heap::Func | Heap::Extern if reference.is_nullable() => None,
            Heap::Func | Heap::Extern => FUNCTION_REFERENCES,
            Heap::Exn | Heap::NoExn => None,
            Heap::Cont | Heap::NoCont => Some("stack_switching"),
            Heap::Any
            | Heap::None
            | Heap::NoExtern
            | Heap::NoFunc
            | Heap::Eq
            | Heap::Struct
            | Heap::Array
            | Heap::I31 => Some("gc"),
        },
    }
}

/// The name of the proposal that an instruction is of, if it is not on offer.
pub(crate) const fn proposal(proposal: &'static str) -> Option<&'static str> {
    const OFFERED: [&str; 10] = [
        "mvp",
        "sign_extension",
        "saturating_float_to_int",
        "bulk_memory",
        "reference_types",
        "simd",
        "relaxed_simd",
        "tail_call",
        "exceptions",
        "threads",
    ];
    let mut nth = 0;
    while nth < OFFERED.len() {
        if is_same(proposal.as_bytes(), OFFERED[nth].as_bytes()) {
            return None;
        }
        nth += 1;
    }
    Some(proposal)
}

const fn is_same(left: &[u8], right: &[u8]) -> bool {
    let mut nth = 0;
    while nth < left.len() && nth < right.len() && left[nth] == right[nth] {
        nth += 1;
    }
    nth == left.len() && nth == right.len()
}

/// Memories of several threads, of which a program has one.
pub(crate) const SHARED_MEMORY: &str = "shared-memory";

/// Tags of which a value is a reference.
pub(crate) const REFERENCES_IN_EXCEPTIONS: &str = "references-in-exceptions";

/// A feature as it is known.
fn known_as(name: &str) -> String {
    name.to_lowercase().replace('_', "-")
}

/// The refusal of a program for one feature.
pub(crate) fn refusal(feature: &str, place: SourcePosition) -> ProgramError {
    ProgramError::Features {
        names: vec![known_as(feature)],
        place: Some(place),
    }
}

/// Returns advice of one line on how to avoid the features, or nothing.
pub(crate) fn advice(names: &[String]) -> &'static str {
    let refused = |feature: &str| names.iter().any(|name| name == feature);
    if refused("legacy-exceptions") {
        "; standard exceptions are offered: compile with `-mllvm -wasm-use-legacy-eh=false`, or translate \
         with `wasm-opt --translate-to-exnref`"
    } else if refused(SHARED_MEMORY) {
        "; atomic instructions are offered on memories that are not shared: compile for one thread, without \
         `-pthread` and `--shared-memory`"
    } else if refused(REFERENCES_IN_EXCEPTIONS) {
        "; an exception may carry numbers and vectors: keep the reference in a table, and throw its index"
    } else {
        ""
    }
}

/// The name of a function, read from the rest of its module's payloads.
pub(crate) fn name_of<'a>(
    payloads: &mut impl Iterator<Item = Result<Payload<'a>, BinaryReaderError>>,
    function: u32,
) -> Option<String> {
    for payload in payloads {
        match payload.ok()? {
            Payload::CustomSection(section) if section.name() == "name" => {
                let reader = BinaryReader::new(section.data(), section.data_offset());
                return named(NameSectionReader::new(reader), function);
            }
            Payload::End(_) => return None,
            _ => {}
        }
    }
    None
}

fn named(names: NameSectionReader<'_>, function: u32) -> Option<String> {
    for names in names {
        if let Name::Function(functions) = names.ok()? {
            for naming in functions {
                let naming = naming.ok()?;
                if naming.index == function {
                    let end = naming.name.floor_char_boundary(NAME.size());
                    return Some(naming.name[..end].escape_default().to_string());
                }
            }
        }
    }
    None
}

/// Validates a program with the offered features.
///
/// # Errors
/// [`ProgramError::Features`] where another feature is missing, [`ProgramError::Corrupt`] for all else.
pub(crate) fn validate(binary: &[u8]) -> Result<(), ProgramError> {
    validate_all(binary).map_err(|error| explained(binary, error))
}

/// The same of all of a program but its function bodies. Returns its types.
///
/// # Errors
/// Those of [`validate`].
pub(crate) fn validate_outline(binary: &[u8]) -> Result<Types, ProgramError> {
    let mut validator = Validator::new_with_features(FEATURES);
    let mut types = None;
    let outline = Parser::new(0).parse_all(binary).try_for_each(|payload| {
        // The end of the program is the last one.
        if let ValidPayload::End(ended) = validator.payload(&payload?)? {
            types = Some(ended);
        }
        Ok(())
    });
    outline.map_err(|error| explained(binary, error))?;
    types.ok_or(ProgramError::NotWasm)
}

/// The error of a program at which the validator stopped: the features that are missing there, if that is why.
fn explained(binary: &[u8], error: BinaryReaderError) -> ProgramError {
    let offset = error.offset();
    let passes = |features| passes(binary, features, offset).unwrap_or(false);
    if !passes(WasmFeatures::all()) {
        return error.into();
    }
    let missing = WasmFeatures::all().difference(FEATURES).iter_names();
    let names: Vec<String> = missing
        .filter(|&(_, feature)| !passes(WasmFeatures::all().difference(feature)))
        .map(|(name, _)| known_as(name))
        .collect();
    match names.is_empty() {
        true => error.into(),
        false => ProgramError::Features {
            names,
            place: Some(place_of(binary, offset)),
        },
    }
}

/// Validates a program with the offered features. Functions are validated last, on all threads that
/// compile.
fn validate_all(binary: &[u8]) -> Result<(), BinaryReaderError> {
    let mut validator = Validator::new_with_features(FEATURES);
    let mut pieces: Vec<Vec<_>> = Vec::new();
    for payload in Parser::new(0).parse_all(binary) {
        if let ValidPayload::Func(function, body) = validator.payload(&payload?)? {
            match pieces.last_mut() {
                Some(piece) if piece.len() < VALIDATED => piece.push((function, body)),
                _ => pieces.push(vec![(function, body)]),
            }
        }
    }
    compile_threads::try_map(pieces, |piece| {
        let mut allocations = FuncValidatorAllocations::default();
        piece.into_iter().try_for_each(|(function, body)| {
            let mut function = function.into_validator(std::mem::take(&mut allocations));
            function.validate(&body)?;
            allocations = function.into_allocations();
            Ok(())
        })
    })
    .map(drop)
}

/// Functions that a thread validates at once.
const VALIDATED: usize = 64;

/// Whether a program is valid with these features up to the part that lies at an offset, of its functions only
/// that one looked at.
fn passes(binary: &[u8], features: WasmFeatures, offset: usize) -> Result<bool, BinaryReaderError> {
    let mut validator = Validator::new_with_features(features);
    for payload in Parser::new(0).parse_all(binary) {
        let payload = payload?;
        match validator.payload(&payload)? {
            ValidPayload::Func(function, body) if body.range().contains(&offset) => {
                let mut function = function.into_validator(FuncValidatorAllocations::default());
                return Ok(function.validate(&body).is_ok());
            }
            _ => {}
        }
        if is_beyond(&payload, offset) {
            break;
        }
    }
    Ok(true)
}

/// Whether all of a payload lies behind an offset.
fn is_beyond(payload: &Payload<'_>, offset: usize) -> bool {
    let start = match payload {
        Payload::CodeSectionEntry(body) => Some(body.range().start),
        _ => payload.as_section().map(|(_, range)| range.start),
    };
    start.is_some_and(|start| start > offset)
}

/// The place at an offset.
fn place_of(binary: &[u8], offset: usize) -> SourcePosition {
    let mut payloads = Parser::new(0).parse_all(binary);
    let mut index = 0_u32;
    while let Some(Ok(payload)) = payloads.next() {
        match &payload {
            Payload::Version { .. } => index = 0,
            Payload::ImportSection(section) => {
                let imports = section.clone().into_imports();
                let functions = imports.filter(|import| {
                    let ty = import.as_ref().map(|import| import.ty);
                    matches!(ty, Ok(wasmparser::TypeRef::Func(_)))
                });
                index += functions.count() as u32;
            }
            Payload::CodeSectionEntry(body) => {
                if body.range().contains(&offset) {
                    let name = name_of(&mut payloads, index);
                    return SourcePosition {
                        offset: offset as u64,
                        function: Some(Function { index, name }),
                    };
                }
                index += 1;
            }
            _ => {}
        }
    }
    SourcePosition {
        offset: offset as u64,
        function: None,
    }
}
