//! Data segments in pieces, so that copying one is a short step.
//!
//! The engine copies each active segment in one call that cannot be interrupted; between two of them
//! the guest can be. A segment of 48 MiB would hold the cell's thread for 20 ms. So before a module is
//! compiled, each active segment that is longer than [`PIECE`] is cut into several, at offsets that
//! add up, whether the place of the first is a constant or computed.
//!
//! 1. *The meaning stays*, but for one thing: a segment that does not fit its memory traps after its
//!    first pieces were written, and no guest sees a memory whose instance was not made.
//! 2. *Numbers of segments change.* A module whose instructions name segments (`memory.init`,
//!    `data.drop`) cannot have its segments cut, and is refused if one is longer than a piece.

use std::borrow::Cow;

use wasm_encoder::{ConstExpr, DataCountSection, DataSection, Encode, Instruction, RawSection};
use wasmparser::{BinaryReaderError, Data, DataKind, Operator, Parser, Payload};

use crate::core_modules::rewrite_core_modules;

/// Bytes of the longest piece.
pub const PIECE: usize = 64 << 10;

/// Why the segments of a program cannot be cut.
#[derive(Debug, thiserror::Error)]
pub enum Uncut {
    /// It is not well-formed.
    #[error(transparent)]
    Malformed(#[from] BinaryReaderError),
    /// Its instructions name segments, and an active one is longer than a piece.
    #[error(
        "an active data segment of {0} bytes in a module that uses memory.init or data.drop; the limit \
         there is {PIECE}"
    )]
    Named(usize),
}

/// Cuts the long active segments of a module, or of every core module in a component. Bytes that need
/// no change are returned as they are. O(n).
///
/// # Errors
/// When the program is malformed, or has a long segment that cannot be cut.
pub fn cut_data_segments(wasm: &[u8]) -> Result<Cow<'_, [u8]>, Uncut> {
    let mut uncut = None;
    let rewritten = rewrite_core_modules(wasm, &mut |module| {
        let Some(longest) = longest_active(module)? else {
            return Ok(module.into());
        };
        if names_segments(module)? {
            uncut = Some(longest);
            return Ok(module.into());
        }
        rewrite(module)
    })?;
    match uncut {
        Some(longest) => Err(Uncut::Named(longest)),
        None => Ok(rewritten),
    }
}

/// The length of the longest active segment, if it is longer than a piece.
fn longest_active(module: &[u8]) -> Result<Option<usize>, BinaryReaderError> {
    let mut longest = 0;
    for payload in Parser::new(0).parse_all(module) {
        if let Payload::DataSection(section) = payload? {
            for data in section {
                let data = data?;
                if matches!(data.kind, DataKind::Active { .. }) {
                    longest = longest.max(data.data.len());
                }
            }
        }
    }
    Ok((longest > PIECE).then_some(longest))
}

fn names_segments(module: &[u8]) -> Result<bool, BinaryReaderError> {
    // Instructions may name segments only where the section that counts them is.
    let mut counted = false;
    for payload in Parser::new(0).parse_all(module) {
        match payload? {
            Payload::DataCountSection { .. } => counted = true,
            Payload::CodeSectionEntry(body) if counted => {
                for operator in body.get_operators_reader()? {
                    if let Operator::MemoryInit { .. } | Operator::DataDrop { .. } = operator? {
                        return Ok(true);
                    }
                }
            }
            _ => {}
        }
    }
    Ok(false)
}

fn rewrite(wasm: &[u8]) -> Result<Cow<'_, [u8]>, BinaryReaderError> {
    let (mut section, mut count) = (DataSection::new(), 0);
    for payload in Parser::new(0).parse_all(wasm) {
        if let Payload::DataSection(segments) = payload? {
            for data in segments {
                count += encode(&mut section, &data?);
            }
        }
    }
    let mut module = wasm_encoder::Module::new();
    for payload in Parser::new(0).parse_all(wasm) {
        let payload = payload?;
        let Some((id, range)) = payload.as_section() else {
            continue;
        };
        match payload {
            Payload::DataSection(_) => module.section(&section),
            Payload::DataCountSection { .. } => module.section(&DataCountSection { count }),
            _ => module.section(&RawSection {
                id,
                data: &wasm[range],
            }),
        };
    }
    Ok(module.finish().into())
}

/// Adds a segment in pieces; returns how many.
fn encode(section: &mut DataSection, data: &Data<'_>) -> u32 {
    let DataKind::Active {
        memory_index,
        offset_expr,
    } = &data.kind
    else {
        section.passive(data.data.iter().copied());
        return 1;
    };
    let mut reader = offset_expr.get_binary_reader();
    let place = reader.read_bytes(reader.bytes_remaining()).unwrap_or(&[]);
    // Without the instruction that ends it, which is added again.
    let place = place.split_last().map_or(place, |(_, place)| place);
    let mut count = 0;
    for at in (0..data.data.len().max(1)).step_by(PIECE) {
        let mut offset = place.to_vec();
        if at > 0 {
            // A piece begins within 32 bits of its segment's start.
            Instruction::I32Const((at as u32).cast_signed()).encode(&mut offset);
            Instruction::I32Add.encode(&mut offset);
        }
        let end = data.data.len().min(at + PIECE);
        let piece = data.data[at..end].iter().copied();
        section.active(*memory_index, &ConstExpr::raw(offset), piece);
        count += 1;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::{PIECE, Uncut, cut_data_segments};
    use wasmparser::{DataKind, Parser, Payload};

    fn module(text: &str) -> Vec<u8> {
        wat::parse_str(text).expect("a module")
    }

    fn long() -> String {
        (0..200_000)
            .map(|n| char::from(b'a' + (n % 26) as u8))
            .collect()
    }

    /// The lengths of the active segments.
    fn lengths(wasm: &[u8]) -> Vec<usize> {
        let mut lengths = Vec::new();
        for payload in Parser::new(0).parse_all(wasm) {
            if let Payload::DataSection(section) = payload.expect("well-formed") {
                for data in section {
                    let data = data.expect("well-formed");
                    if let DataKind::Active { .. } = data.kind {
                        lengths.push(data.data.len());
                    }
                }
            }
        }
        lengths
    }

    /// What a module's memory holds when it was made.
    fn memory(wasm: &[u8]) -> Vec<u8> {
        let engine = wasmtime::Engine::default();
        let module = wasmtime::Module::new(&engine, wasm).expect("valid");
        let mut store = wasmtime::Store::new(&engine, ());
        let instance = wasmtime::Instance::new(&mut store, &module, &[]).expect("an instance");
        let memory = instance.get_memory(&mut store, "memory").expect("exported");
        memory.data(&store).to_vec()
    }

    #[test]
    fn a_long_segment_is_copied_in_pieces_and_means_the_same() {
        for place in ["(i32.const 70000)", "(offset (global.get $at))"] {
            let text = format!(
                r#"(module (memory (export "memory") 8) (global $at i32 (i32.const 70000))
                (data {place} "{}") (data (i32.const 90000) "over"))"#,
                long()
            );
            let whole = module(&text);
            let cut = cut_data_segments(&whole).expect("cut");
            let lengths = lengths(&cut);
            assert_eq!(lengths.iter().sum::<usize>(), 200_004);
            assert!(lengths.iter().all(|length| *length <= PIECE), "{lengths:?}");
            assert_eq!(memory(&cut), memory(&whole));
        }
    }

    #[test]
    fn what_is_short_is_left_as_it_is() {
        let short = module(r#"(module (memory 1) (data (i32.const 0) "short"))"#);
        let cut = cut_data_segments(&short).expect("cut");
        assert!(matches!(cut, std::borrow::Cow::Borrowed(_)));
    }

    #[test]
    fn a_long_segment_beside_instructions_that_name_segments_is_refused() {
        let text = format!(
            r#"(module (memory 8) (data (i32.const 0) "{}") (data $p "passive")
            (func (memory.init $p (i32.const 0) (i32.const 0) (i32.const 1))))"#,
            long()
        );
        let module = module(&text);
        let refused = cut_data_segments(&module);
        assert!(matches!(refused, Err(Uncut::Named(200_000))));
    }
}
