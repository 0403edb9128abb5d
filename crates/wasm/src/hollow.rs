//! Programs without what their functions do.
//!
//! Whether the imports of a program have the types that are offered, and its entry point that of a command, does not depend on
//! the bodies of its functions, and compiling those is what takes time. So a program that is only looked at is compiled with
//! bodies of one instruction, and then resolved like any other.

use std::borrow::Cow;

use wasm_encoder::Encode;
use wasmparser::{BinaryReaderError, Payload};

use crate::core_modules::rewrite_core_modules;
use crate::sections::with_sections;

/// No locals, `unreachable`, `end`; with the number of these bytes in front.
const BODY: [u8; 4] = [3, 0, 0x00, 0x0b];

/// The program with functions that only trap. O(n).
///
/// # Errors
/// The parser's, if `wasm` is not well-formed.
pub(crate) fn hollow(wasm: &[u8]) -> Result<Cow<'_, [u8]>, BinaryReaderError> {
    rewrite_core_modules(wasm, &mut |module| {
        with_sections(module, |payload, _| match payload {
            Payload::CodeSectionStart { count, .. } => {
                let mut bodies = Vec::new();
                count.encode(&mut bodies);
                bodies.extend(BODY.repeat(*count as usize));
                Some(bodies)
            }
            _ => None,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::hollow;
    use wasmparser::{Parser, Payload, Validator, WasmFeatures};

    fn hollowed(text: &str) -> Vec<u8> {
        let wasm = wat::parse_str(text).expect("a program");
        let hollow = hollow(&wasm).expect("well-formed").into_owned();
        let mut validator = Validator::new_with_features(WasmFeatures::all());
        validator.validate_all(&hollow).expect("valid");
        hollow
    }

    fn bodies(wasm: &[u8]) -> Vec<usize> {
        let payloads = Parser::new(0).parse_all(wasm);
        let sizes = payloads.filter_map(|payload| match payload.expect("well-formed") {
            Payload::CodeSectionEntry(body) => Some(body.range().len()),
            _ => None,
        });
        sizes.collect()
    }

    const MODULE: &str = r#"module $m (import "a" "b" (func (param i32) (result i64)))
        (memory 1) (table 3 funcref) (elem (i32.const 0) func 0 1)
        (func $f (param f64) (result v128 f32) (local i32)
            (local.set 1 (memory.grow (i32.const 1))) unreachable)
        (func (export "_start") (drop (memory.size)))
        (data "passive") (data (i32.const 5) "active")"#;

    #[test]
    fn functions_of_any_type_trap_and_everything_else_is_as_it_was() {
        assert_eq!(bodies(&hollowed(&format!("({MODULE})"))), [3, 3]);
        let component = format!("(component (core {MODULE}) (component (core {MODULE})))");
        assert_eq!(bodies(&hollowed(&component)), [3; 4]);
    }
}
