//! Names of functions, bounded.
//!
//! The engine keeps the names of a module's functions beside its code, and writes those of up to 20
//! frames into the message of a trap: with names of 20 MB a message of 400 MB. So a module with a name
//! longer than [`LONGEST`](crate::limits::NAME) is compiled without its names.

use std::borrow::Cow;

use wasm_encoder::RawSection;
use wasmparser::{BinaryReader, BinaryReaderError, Name, NameSectionReader, Parser, Payload};

use crate::core_modules::rewrite_core_modules;
use crate::limits::NAME;

/// Leaves the names out of every module that has one which is too long. O(n).
///
/// # Errors
/// The parser's, if `wasm` is not well-formed.
pub(crate) fn drop_long_names(wasm: &[u8]) -> Result<Cow<'_, [u8]>, BinaryReaderError> {
    rewrite_core_modules(wasm, &mut |module| {
        if !has_long_name(module)? {
            return Ok(module.into());
        }
        let mut rewritten = wasm_encoder::Module::new();
        for payload in Parser::new(0).parse_all(module) {
            let payload = payload?;
            if let Payload::CustomSection(section) = &payload
                && section.name() == "name"
            {
                continue;
            }
            if let Some((id, range)) = payload.as_section() {
                rewritten.section(&RawSection {
                    id,
                    data: &module[range],
                });
            }
        }
        Ok(rewritten.finish().into())
    })
}

fn has_long_name(module: &[u8]) -> Result<bool, BinaryReaderError> {
    for payload in Parser::new(0).parse_all(module) {
        if let Payload::CustomSection(section) = payload?
            && section.name() == "name"
            && section.data().len() > NAME.size()
        {
            let reader = BinaryReader::new(section.data(), section.data_offset());
            return Ok(is_any_long(NameSectionReader::new(reader)));
        }
    }
    Ok(false)
}

/// Whether a name is too long, or the section is damaged, which the engine would not refuse.
fn is_any_long(names: NameSectionReader<'_>) -> bool {
    let long = |name: &str| name.len() > NAME.size();
    for name in names {
        match name {
            Ok(Name::Module { name, .. }) if long(name) => return true,
            Ok(Name::Function(functions)) => {
                for naming in functions {
                    if naming.map_or(true, |naming| long(naming.name)) {
                        return true;
                    }
                }
            }
            Ok(_) => {}
            Err(_) => return true,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::drop_long_names;
    use std::borrow::Cow;

    fn named(length: usize) -> Vec<u8> {
        let name: String = "n".repeat(length);
        wat::parse_str(format!(
            "(module (func ${name} (export \"_start\") unreachable))"
        ))
        .expect("a module")
    }

    #[test]
    fn a_module_with_a_long_name_is_compiled_without_names() {
        for (length, kept) in [(5, true), (256, true), (257, false), (1 << 20, false)] {
            let module = named(length);
            let rewritten = drop_long_names(&module).expect("well-formed");
            assert_eq!(matches!(rewritten, Cow::Borrowed(_)), kept, "{length}");
            assert!(wasmparser::validate(&rewritten).is_ok());
            assert!(kept || rewritten.len() < 100);
        }
    }
}
