//! Data segments that lie next to each other, merged into one.
//!
//! The engine starts an instance by a generated function that copies one data segment after the
//! other, at some 20 ns each, in code that is never warm: it runs once. Go's linker makes a segment
//! of every few bytes between zeros: a program of 2 MB has 37,000 of them, and its start spent more
//! time on them than on everything else. The engine's own answer, an image of the memory mapped
//! copy-on-write, is not available to a memory of ours, and [ours](crate::image) is for programs that are started again
//! and again. So before a module is compiled, segments with little between them are replaced by one segment that covers
//! them.
//!
//! 1. *The meaning stays.* Only initial contents of memories that the module defines are merged:
//!    the gap between two segments is zero then, and no code runs in the instance before all
//!    segments are copied. A later segment overwrites an earlier one.
//! 2. *All or nothing.* A module with a segment whose place is computed or out of bounds, with
//!    segments for a memory that it imports, or with instructions that name segments, is left as it
//!    is.
//! 3. *No page more.* A gap that is filled is shorter than a page, so that both of its ends lie in
//!    pages that the segments beside it touch anyway.

use crate::limits::WASM_PAGE;
use std::borrow::Cow;

use wasm_encoder::{ConstExpr, DataCountSection, DataSection, RawSection};
use wasmparser::{BinaryReaderError, Data, DataKind, Operator, Parser, Payload, TypeRef};

use crate::core_modules::rewrite_core_modules;
use crate::limits::MAX_DATA_BYTES;

/// Longest gap that is filled with zeros, in bytes: copying them costs less than another segment.
pub const GAP: usize = 256;

/// Rewrites a module, or every core module in a component.
///
/// `wasm` must be valid under [`FEATURES`](crate::features::FEATURES): with 64-bit memories or
/// other page sizes, which those leave out, segments would be placed wrongly. Bytes that need no
/// change are returned as they are. Takes O(n log n) in the number of segments, and memory for the
/// merged segments of one module, at most [`MAX_DATA_BYTES`].
///
/// # Errors
///
/// The parser's, if `wasm` is not well-formed.
pub fn merge_data_segments(wasm: &[u8]) -> Result<Cow<'_, [u8]>, BinaryReaderError> {
    rewrite_core_modules(wasm, &mut rewrite_module)
}

fn rewrite_module(wasm: &[u8]) -> Result<Cow<'_, [u8]>, BinaryReaderError> {
    let Some(segments) = segments(wasm)? else {
        return Ok(wasm.into());
    };
    let (runs, run_of) = runs(&segments);
    let bytes: usize = runs.iter().map(|run| run.end - run.start).sum();
    if runs.len() == segments.len() || bytes as u64 > MAX_DATA_BYTES {
        return Ok(wasm.into());
    }
    let data = encode(&segments, &runs, &run_of);
    let mut module = wasm_encoder::Module::new();
    for payload in Parser::new(0).parse_all(wasm) {
        let payload = payload?;
        let Some((id, range)) = payload.as_section() else {
            continue;
        };
        match payload {
            Payload::DataSection(_) => module.section(&data),
            Payload::DataCountSection { .. } => module.section(&DataCountSection {
                count: runs.len() as u32,
            }),
            _ => module.section(&RawSection {
                id,
                data: &wasm[range],
            }),
        };
    }
    Ok(module.finish().into())
}

/// A data segment whose place is known.
pub(crate) struct Segment<'a> {
    memory: u32,
    /// Offset in the memory.
    pub(crate) start: usize,
    pub(crate) data: &'a [u8],
}

impl Segment<'_> {
    /// The offset after its last byte.
    pub(crate) fn end(&self) -> usize {
        self.start + self.data.len()
    }
}

/// The part of a memory that one merged segment covers.
struct Run {
    memory: u32,
    start: usize,
    end: usize,
}

/// Returns the segments of a module in their order, if their places are known: they can then be
/// merged or copied by other code.
pub(crate) fn segments(wasm: &[u8]) -> Result<Option<Vec<Segment<'_>>>, BinaryReaderError> {
    let mut memories = Vec::new();
    let mut imported = 0;
    let mut segments = Vec::new();
    // Instructions may name segments only where the section that counts them is.
    let mut counted = false;
    for payload in Parser::new(0).parse_all(wasm) {
        match payload? {
            Payload::ImportSection(section) => {
                for import in section.into_imports() {
                    imported += usize::from(matches!(import?.ty, TypeRef::Memory(_)));
                }
            }
            Payload::MemorySection(section) => {
                for memory in section {
                    memories.push(memory?.initial.saturating_mul(WASM_PAGE));
                }
            }
            Payload::DataCountSection { .. } => counted = true,
            Payload::CodeSectionEntry(body) if counted => {
                for operator in body.get_operators_reader()? {
                    if let Operator::MemoryInit { .. } | Operator::DataDrop { .. } = operator? {
                        return Ok(None);
                    }
                }
            }
            Payload::DataSection(section) => {
                for data in section {
                    let Some(segment) = placed(&data?, imported, &memories)? else {
                        return Ok(None);
                    };
                    segments.push(segment);
                }
            }
            _ => {}
        }
    }
    Ok(Some(segments))
}

/// A segment that lies within the initial size of a memory which the module defines.
fn placed<'a>(
    data: &Data<'a>,
    imported: usize,
    memories: &[u64],
) -> Result<Option<Segment<'a>>, BinaryReaderError> {
    let DataKind::Active {
        memory_index: memory,
        offset_expr,
    } = &data.kind
    else {
        return Ok(None);
    };
    let size = (*memory as usize)
        .checked_sub(imported)
        .and_then(|defined| memories.get(defined));
    let mut operators = offset_expr.get_operators_reader();
    let place = (operators.read()?, operators.read()?);
    let (Some(&size), (Operator::I32Const { value }, Operator::End)) = (size, place) else {
        return Ok(None);
    };
    let start = value.cast_unsigned() as usize;
    Ok(
        ((start + data.data.len()) as u64 <= size).then_some(Segment {
            memory: *memory,
            start,
            data: data.data,
        }),
    )
}

/// The ranges that merged segments cover, and for each segment its run.
fn runs(segments: &[Segment<'_>]) -> (Vec<Run>, Vec<usize>) {
    let mut order: Vec<usize> = (0..segments.len()).collect();
    order.sort_unstable_by_key(|&at| (segments[at].memory, segments[at].start));
    let mut runs: Vec<Run> = Vec::new();
    let mut run_of = vec![0; segments.len()];
    for at in order {
        let &Segment { memory, start, .. } = &segments[at];
        let end = segments[at].end();
        match runs.last_mut() {
            Some(run) if run.memory == memory && start <= run.end + GAP => {
                run.end = run.end.max(end);
            }
            _ => runs.push(Run { memory, start, end }),
        }
        run_of[at] = runs.len() - 1;
    }
    (runs, run_of)
}

fn encode(segments: &[Segment<'_>], runs: &[Run], run_of: &[usize]) -> DataSection {
    let mut images: Vec<Vec<u8>> = runs
        .iter()
        .map(|run| vec![0; run.end - run.start])
        .collect();
    // In the order of the module: where segments overlap, the last one stays.
    for (segment, &run) in segments.iter().zip(run_of) {
        let start = segment.start - runs[run].start;
        images[run][start..start + segment.data.len()].copy_from_slice(segment.data);
    }
    let mut section = DataSection::new();
    for (run, image) in runs.iter().zip(images) {
        let offset = ConstExpr::i32_const((run.start as u32).cast_signed());
        section.active(run.memory, &offset, image);
    }
    section
}
