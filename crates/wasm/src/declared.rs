//! What a program declares: all of it but the bodies of its functions, which are most of a large one.

use wasmparser::{BinaryReaderError, Chunk, Parser, Payload};

/// The payloads of a module or a component without those of function bodies, which are not looked at. Up to the first
/// error, as [`Parser::parse_all`] has them.
pub(crate) fn declared(
    binary: &[u8],
) -> impl Iterator<Item = Result<Payload<'_>, BinaryReaderError>> {
    let mut rest = binary;
    // The outermost first.
    let mut parsers = vec![Parser::new(0)];
    std::iter::from_fn(move || {
        let parser = parsers.last_mut()?;
        let payload = match parser.parse(rest, true) {
            Ok(Chunk::Parsed { payload, consumed }) => {
                rest = &rest[consumed..];
                payload
            }
            Ok(Chunk::NeedMoreData(_)) => unreachable!("the parser knows that there is no more"),
            Err(error) => {
                parsers.clear();
                return Some(Err(error));
            }
        };
        match &payload {
            Payload::CodeSectionStart { size, .. } => {
                // The parser finds out by itself that a section is cut off.
                if let Some(behind) = rest.get(*size as usize..) {
                    parser.skip_section();
                    rest = behind;
                }
            }
            Payload::ModuleSection { parser, .. } | Payload::ComponentSection { parser, .. } => {
                parsers.push(parser.clone());
            }
            Payload::End(_) => drop(parsers.pop()),
            _ => {}
        }
        Some(Ok(payload))
    })
}

#[cfg(test)]
mod tests {
    use wasmparser::{BinaryReaderError, Parser, Payload};

    use super::declared;

    fn seen<'a>(
        payloads: impl Iterator<Item = Result<Payload<'a>, BinaryReaderError>>,
    ) -> Vec<String> {
        payloads
            .map(|payload| format!("{payload:?}"))
            .filter(|seen| !seen.starts_with("Ok(CodeSectionEntry"))
            .collect()
    }

    #[test]
    fn what_is_declared_is_all_but_the_bodies() {
        let text = r#"(component
            (core module (func) (func (drop (i32.const 1))) (memory 1) (data (i32.const 0) "x"))
            (component (core module (func (export "f"))) (core module))
            (core module (func) (@custom "last" "x")))"#;
        let binary = wat::parse_str(text).expect("a component");
        let declared = seen(declared(&binary));
        assert_eq!(declared, seen(Parser::new(0).parse_all(&binary)));
        let sections = declared
            .iter()
            .filter(|seen| seen.starts_with("Ok(CodeSectionStart"));
        assert_eq!(sections.count(), 3);
    }

    #[test]
    fn a_program_that_is_cut_off_anywhere_is_refused_as_it_is_with_bodies() {
        let text =
            "(component (core module (func) (func (drop (i32.const 1)))) (core module (func)))";
        let binary = wat::parse_str(text).expect("a component");
        for end in 0..binary.len() {
            let cut = &binary[..end];
            let refused = declared(cut).any(|payload| payload.is_err());
            let expected = Parser::new(0)
                .parse_all(cut)
                .any(|payload| payload.is_err());
            assert_eq!(refused, expected, "cut off at {end}");
        }
    }
}
