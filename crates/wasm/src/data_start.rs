//! Long initial memory, copied by the guest itself.
//!
//! The engine copies active data segments in a function of its own, where nothing can interrupt the
//! guest: 48 MiB take tens of milliseconds. So before a module with many bytes of them is compiled,
//! its active segments become passive ones, and its start function copies them with `memory.init`,
//! which [`bulk_instructions`](crate::bulk_instructions) splits like any other.
//!
//! 1. *The meaning stays.* The engine copies data after elements and before it calls the start
//!    function; so does the new start function, which then calls the old one. Each segment is
//!    dropped after it was copied, as an active one is.
//! 2. *Nothing else changes.* One type and one function are appended, so that no index shifts.

use crate::core_modules::rewrite_core_modules;
use std::borrow::Cow;
use std::ops::Range;
use wasm_encoder::{DataCountSection, DataSection, Encode, Instruction, RawSection, StartSection};
use wasmparser::{BinaryReaderError, DataKind, Parser, Payload, TypeRef};

/// Rewrites a module, or every core module in a component, if its active segments have more than `most`
/// bytes. Bytes that need no change are returned as they are.
///
/// # Errors
///
/// The parser's, if `wasm` is not well-formed.
pub fn copy_data_at_start(wasm: &[u8], most: usize) -> Result<Cow<'_, [u8]>, BinaryReaderError> {
    rewrite_core_modules(wasm, &mut |module| rewrite_module(module, most))
}

/// A data segment: its bytes, and if it is active, its memory and where its offset is computed.
struct Segment<'a> {
    active: Option<(u32, Range<usize>)>,
    data: &'a [u8],
}

/// The facts about a module that its rewriting needs.
#[derive(Default)]
struct Outline<'a> {
    types: u32,
    functions: u32,
    start: Option<u32>,
    segments: Vec<Segment<'a>>,
}

impl<'a> Outline<'a> {
    fn of(wasm: &'a [u8]) -> Result<Self, BinaryReaderError> {
        let mut outline = Self::default();
        for payload in Parser::new(0).parse_all(wasm) {
            match payload? {
                Payload::TypeSection(section) => {
                    for group in section {
                        outline.types += group?.types().len() as u32;
                    }
                }
                Payload::ImportSection(section) => {
                    for import in section.into_imports() {
                        if let TypeRef::Func(_) | TypeRef::FuncExact(_) = import?.ty {
                            outline.functions += 1;
                        }
                    }
                }
                Payload::FunctionSection(section) => outline.functions += section.count(),
                Payload::StartSection { func, .. } => outline.start = Some(func),
                Payload::DataSection(section) => {
                    for data in section {
                        let data = data?;
                        let active = match &data.kind {
                            DataKind::Passive => None,
                            DataKind::Active {
                                memory_index,
                                offset_expr,
                            } => Some((*memory_index, offset_expr.get_binary_reader().range())),
                        };
                        outline.segments.push(Segment {
                            active,
                            data: data.data,
                        });
                    }
                }
                _ => {}
            }
        }
        Ok(outline)
    }

    fn active_bytes(&self) -> usize {
        let active = self.segments.iter().filter(|s| s.active.is_some());
        active.map(|segment| segment.data.len()).sum()
    }

    /// The new start function.
    fn start_body(&self, wasm: &[u8]) -> Vec<u8> {
        // No locals.
        let mut body = vec![0];
        for (index, segment) in (0..).zip(&self.segments) {
            let Some((memory, offset)) = &segment.active else {
                continue;
            };
            // Without the `end` of the expression.
            body.extend_from_slice(&wasm[offset.start..offset.end - 1]);
            for instruction in [
                Instruction::I32Const(0),
                Instruction::I32Const((segment.data.len() as u32).cast_signed()),
                Instruction::MemoryInit {
                    mem: *memory,
                    data_index: index,
                },
                Instruction::DataDrop(index),
            ] {
                instruction.encode(&mut body);
            }
        }
        if let Some(start) = self.start {
            Instruction::Call(start).encode(&mut body);
        }
        Instruction::End.encode(&mut body);
        body
    }

    fn passive(&self) -> DataSection {
        let mut section = DataSection::new();
        for segment in &self.segments {
            section.passive(segment.data.iter().copied());
        }
        section
    }
}

/// The sections that are written anew.
#[derive(Clone, Copy, PartialEq, Eq)]
enum New {
    Type,
    Function,
    Start,
    DataCount,
    Code,
}

impl New {
    const ALL: [Self; 5] = [
        Self::Type,
        Self::Function,
        Self::Start,
        Self::DataCount,
        Self::Code,
    ];

    const fn id(self) -> u8 {
        match self {
            Self::Type => 1,
            Self::Function => 3,
            Self::Start => 8,
            Self::Code => 10,
            Self::DataCount => 12,
        }
    }
}

/// Where a section stands in a module.
const fn place(id: u8) -> u8 {
    match id {
        13 => 6,
        6..=9 => id + 1,
        12 => 11,
        10 | 11 => id + 2,
        _ => id,
    }
}

fn rewrite_module(wasm: &[u8], most: usize) -> Result<Cow<'_, [u8]>, BinaryReaderError> {
    let outline = Outline::of(wasm)?;
    if outline.active_bytes() <= most {
        return Ok(wasm.into());
    }
    let body = outline.start_body(wasm);
    let mut module = wasm_encoder::Module::new();
    let mut pending = New::ALL.into_iter().peekable();
    for payload in Parser::new(0).parse_all(wasm) {
        let payload = payload?;
        let Some((id, range)) = payload.as_section() else {
            continue;
        };
        // Custom sections stand anywhere.
        while id != 0
            && let Some(new) = pending.next_if(|new| place(new.id()) <= place(id))
        {
            let old = (new.id() == id).then(|| &wasm[range.clone()]);
            emit(&mut module, new, old, &outline, &body)?;
        }
        match id {
            11 => module.section(&outline.passive()),
            _ if New::ALL.iter().any(|new| new.id() == id) => continue,
            _ => module.section(&RawSection {
                id,
                data: &wasm[range],
            }),
        };
    }
    Ok(module.finish().into())
}

/// Writes a section: what was there, and one entry more.
fn emit(
    module: &mut wasm_encoder::Module,
    new: New,
    old: Option<&[u8]>,
    outline: &Outline<'_>,
    body: &[u8],
) -> Result<(), BinaryReaderError> {
    let mut entry = Vec::new();
    match new {
        New::Start => {
            module.section(&StartSection {
                function_index: outline.functions,
            });
            return Ok(());
        }
        New::DataCount => {
            module.section(&DataCountSection {
                count: outline.segments.len() as u32,
            });
            return Ok(());
        }
        // No parameters, no results.
        New::Type => entry.extend([0x60, 0, 0]),
        New::Function => outline.types.encode(&mut entry),
        New::Code => body.encode(&mut entry),
    }
    let mut data = Vec::new();
    match old {
        None => 1_u32.encode(&mut data),
        Some(old) => {
            let mut reader = wasmparser::BinaryReader::new(old, 0);
            (reader.read_var_u32()? + 1).encode(&mut data);
            data.extend_from_slice(&old[reader.original_position()..]);
        }
    }
    data.extend_from_slice(&entry);
    module.section(&RawSection {
        id: new.id(),
        data: &data,
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::copy_data_at_start;
    use wasmparser::{DataKind, Parser, Payload, Validator};

    /// The active and passive segments of a module, and whether it has a start function.
    fn outline(wasm: &[u8]) -> (usize, usize, bool) {
        let (mut active, mut passive, mut start) = (0, 0, false);
        for payload in Parser::new(0).parse_all(wasm) {
            match payload.expect("well-formed") {
                Payload::DataSection(section) => {
                    for data in section {
                        match data.expect("well-formed").kind {
                            DataKind::Active { .. } => active += 1,
                            DataKind::Passive => passive += 1,
                        }
                    }
                }
                Payload::StartSection { .. } => start = true,
                _ => {}
            }
        }
        (active, passive, start)
    }

    #[test]
    fn the_engine_copies_nothing_of_a_module_with_long_data() {
        let long = "x".repeat(70_000);
        for rest in [
            "",
            "(func) (start 0)",
            "(import \"a\" \"b\" (func)) (func (export \"f\") (call 0))",
            "(table 1 funcref) (elem (i32.const 0) func $g) (func $g (data.drop 0))",
        ] {
            // Imports come first.
            let text =
                format!("(module {rest} (memory 2) (data (i32.const 1) \"{long}\") (data \"p\"))");
            let wasm = wat::parse_str(&text).expect("a module");
            let rewritten = copy_data_at_start(&wasm, 64 << 10).expect("well-formed");
            Validator::new().validate_all(&rewritten).expect("valid");
            assert_eq!(outline(&rewritten), (0, 2, true), "{rest}");
        }
    }

    #[test]
    fn what_is_short_is_left_as_it_is() {
        let wasm = wat::parse_str("(module (memory 1) (data (i32.const 0) \"short\"))");
        let wasm = wasm.expect("a module");
        let rewritten = copy_data_at_start(&wasm, 64 << 10).expect("well-formed");
        assert!(matches!(rewritten, std::borrow::Cow::Borrowed(_)));
    }
}
