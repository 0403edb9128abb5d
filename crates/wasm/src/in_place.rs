//! Instructions that are replaced by others where they stand, or get others before them.
//!
//! Nothing else changes: no index shifts, and all bytes but those of the replaced instructions are copied as they are.

use std::borrow::Cow;
use std::ops::Range;

use wasm_encoder::{Encode, Function, Instruction};
use wasmparser::{BinaryReaderError, FunctionBody, Operator, Parser, Payload};

use crate::sections::with_sections;

/// The bytes of an instruction, none of what is inserted, and what replaces it.
pub(crate) type Site = (Range<usize>, Vec<Instruction<'static>>);

/// Replaces the instructions of a module for which there is a `replacement`.
///
/// # Errors
///
/// The parser's, if `wasm` is not well-formed.
pub(crate) fn replace_in_place(
    wasm: &[u8],
    replacement: impl Fn(&Operator<'_>) -> Option<Vec<Instruction<'static>>>,
) -> Result<Cow<'_, [u8]>, BinaryReaderError> {
    let mut bodies = Vec::new();
    for payload in Parser::new(0).parse_all(wasm) {
        if let Payload::CodeSectionEntry(body) = payload? {
            bodies.push((body.range(), sites(&body, &replacement)?));
        }
    }
    if bodies.iter().all(|(_, sites)| sites.is_empty()) {
        return Ok(wasm.into());
    }
    with_sections(wasm, |section, _| match section {
        Payload::CodeSectionStart { .. } => Some(encode_code(wasm, &bodies, None)),
        _ => None,
    })
}

/// The instructions of a function body that are replaced, in order.
fn sites(
    body: &FunctionBody<'_>,
    replacement: impl Fn(&Operator<'_>) -> Option<Vec<Instruction<'static>>>,
) -> Result<Vec<Site>, BinaryReaderError> {
    let mut sites = Vec::new();
    let mut operators = body.get_operators_reader()?;
    while !operators.eof() {
        let start = operators.original_position();
        if let Some(instructions) = replacement(&operators.read()?) {
            sites.push((start..operators.original_position(), instructions));
        }
    }
    Ok(sites)
}

/// The content of the code section: the bodies with what replaces their instructions, and a function that is appended.
pub(crate) fn encode_code(
    wasm: &[u8],
    bodies: &[(Range<usize>, Vec<Site>)],
    appended: Option<&Function>,
) -> Vec<u8> {
    let mut data = Vec::new();
    ((bodies.len() + usize::from(appended.is_some())) as u32).encode(&mut data);
    for (body, sites) in bodies {
        let mut code = Vec::with_capacity(body.len());
        let mut copied = body.start;
        for (site, instructions) in sites {
            code.extend_from_slice(&wasm[copied..site.start]);
            for instruction in instructions {
                instruction.encode(&mut code);
            }
            copied = site.end;
        }
        code.extend_from_slice(&wasm[copied..body.end]);
        code.encode(&mut data);
    }
    if let Some(appended) = appended {
        appended.encode(&mut data);
    }
    data
}
