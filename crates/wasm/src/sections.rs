//! Replacing sections of a module.

use std::borrow::Cow;

use wasm_encoder::{Encode, RawSection};
use wasmparser::{Parser, Payload};

use crate::core_modules::Rewritten;

/// The module with the sections for which `replace` returns other content; it is given each section and its present
/// content. Sections `metadata.code.*` are dropped: they contain offsets into functions, which a rewriting shifts.
///
/// # Errors
///
/// The parser's, if `wasm` is not well-formed.
pub(crate) fn with_sections<'a>(
    wasm: &'a [u8],
    mut replace: impl FnMut(&Payload<'a>, &'a [u8]) -> Option<Vec<u8>>,
) -> Rewritten<'a> {
    let mut module = wasm_encoder::Module::new();
    for payload in Parser::new(0).parse_all(wasm) {
        let payload = payload?;
        let Some((id, range)) = payload.as_section() else {
            continue;
        };
        if let Payload::CustomSection(section) = &payload
            && section.name().starts_with("metadata.code.")
        {
            continue;
        }
        let content = &wasm[range];
        let data = replace(&payload, content).map_or(Cow::Borrowed(content), Cow::Owned);
        module.section(&RawSection { id, data: &data });
    }
    Ok(module.finish().into())
}

/// The content of a section of `count` items, announcing `more` that the caller appends.
pub(crate) fn grown(content: &[u8], count: u32, more: usize) -> Vec<u8> {
    let mut data = Vec::new();
    (count + more as u32).encode(&mut data);
    // The old count is a LEB128 number.
    let continued = content.iter().take_while(|byte| *byte & 0x80 != 0).count();
    data.extend_from_slice(&content[(continued + 1).min(content.len())..]);
    data
}
