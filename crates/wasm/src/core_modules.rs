//! Rewriting the core modules of a program, wherever they are in it.

use std::borrow::Cow;

use wasm_encoder::RawSection;
use wasmparser::{BinaryReaderError, Parser, Payload};

/// Bytes after a rewriting: borrowed if nothing changed.
pub(crate) type Rewritten<'a> = Result<Cow<'a, [u8]>, BinaryReaderError>;

/// The rewriting of one module.
pub(crate) type Rewrite<'r> = dyn for<'m> FnMut(&'m [u8]) -> Rewritten<'m> + 'r;

/// The program with `rewrite` applied to it, if it is a module, or to every core module in it, if
/// it is a component. Everything else is copied byte by byte; a program in which nothing changes
/// is returned as it is.
///
/// # Errors
///
/// Those of `rewrite`, and the parser's if `wasm` is not well-formed.
pub(crate) fn rewrite_core_modules<'a>(wasm: &'a [u8], rewrite: &mut Rewrite<'_>) -> Rewritten<'a> {
    if !Parser::is_component(wasm) {
        return rewrite(wasm);
    }
    let mut component = wasm_encoder::Component::new();
    let mut changed = false;
    let mut depth = 0_u32;
    for payload in Parser::new(0).parse_all(wasm) {
        let payload = payload?;
        let nested = match &payload {
            Payload::ModuleSection {
                unchecked_range, ..
            } if depth == 0 => Some(rewrite(&wasm[unchecked_range.clone()])?),
            Payload::ComponentSection {
                unchecked_range, ..
            } if depth == 0 => Some(rewrite_core_modules(
                &wasm[unchecked_range.clone()],
                rewrite,
            )?),
            _ => None,
        };
        changed |= matches!(nested, Some(Cow::Owned(_)));
        if depth == 0
            && let Some((id, range)) = payload.as_section()
        {
            let data = nested.as_deref().unwrap_or(&wasm[range]);
            component.section(&RawSection { id, data });
        }
        match payload {
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Ok(if changed {
        component.finish().into()
    } else {
        wasm.into()
    })
}
