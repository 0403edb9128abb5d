//! Exceptions that are unwound frame by frame, by the guest itself.
//!
//! The engine looks for the handler of an exception in its own code, where nothing can interrupt the guest:
//! it walks the frames of the guest's stack up to the one that catches. A stack of 512 KiB has room for
//! 30,000 frames. So before a program that throws is compiled, every function that calls another gets a
//! handler around its body, which catches whatever comes out of a call and throws it again:
//!
//! ```text
//! block $caught (result exnref)
//!   try_table (catch_all_ref $caught)
//!     the body
//!   end
//!   return
//! end
//! throw_ref
//! ```
//!
//! 1. *Every walk is short.* An exception is thrown in a frame, and the frame above it is suspended in a call:
//!    that one has a handler. So the engine looks at two frames at the most, and the guest can be preempted
//!    between two walks. How many handlers it looks at in a frame is
//!    [limited](crate::steps::caps::HANDLERS).
//! 2. *The meaning stays.* The handler stands outside of all others of its function, and passes the same
//!    exception on. A tail call leaves its frame, and the handler with it.
//! 3. *Nothing else changes.* Types are appended, so that no index shifts. A branch out of the body goes to the
//!    end of the handler's block, which has the function's results. Only `metadata.code.*` sections are
//!    dropped, whose offsets into functions would be wrong.
//! 4. *Programs that do not throw are left as they are*: nothing but a guest throws.

use std::borrow::Cow;

use wasm_encoder::{BlockType, Catch, Encode, Instruction, RawSection, RefType, ValType};
use wasmparser::{BinaryReaderError, FunctionBody, Operator, Parser, Payload, TypeRef};

use crate::core_modules::rewrite_core_modules;

/// Whether an instruction throws, in a program in which only guests do.
pub(crate) fn throws(operator: &Operator<'_>) -> bool {
    matches!(operator, Operator::Throw { .. } | Operator::ThrowRef)
}

/// Rewrites a module of a program that throws, or every core module in a component.
///
/// `wasm` must be valid under [`FEATURES`](crate::engine_config::FEATURES). Functions that call nothing but
/// what the host offers to a module, which never throws, are left as they are.
///
/// # Errors
///
/// The parser's, if `wasm` is not well-formed.
pub fn catch_in_every_frame(wasm: &[u8]) -> Result<Cow<'_, [u8]>, BinaryReaderError> {
    // The imports of a module are the host's, those of a component's modules may be other modules'.
    let from_host = !Parser::is_component(wasm);
    rewrite_core_modules(wasm, &mut |module| rewrite_module(module, from_host))
}

/// What the rewriting of a module has to know about it.
#[derive(Default)]
struct Outline {
    /// Parameters' number, and results, of each type.
    types: Vec<(usize, Vec<ValType>)>,
    /// Types that are appended: of a block with several results.
    appended: Vec<Vec<ValType>>,
    /// Functions that no guest defines.
    of_host: u32,
    /// The type of each function that the module defines.
    functions: Vec<u32>,
}

impl Outline {
    fn of(wasm: &[u8], from_host: bool) -> Result<Self, BinaryReaderError> {
        let mut outline = Self::default();
        for payload in Parser::new(0).parse_all(wasm) {
            match payload? {
                Payload::TypeSection(section) => {
                    for group in section {
                        for ty in group?.into_types() {
                            let function = match &ty.composite_type.inner {
                                wasmparser::CompositeInnerType::Func(ty) => {
                                    let results = ty.results().iter().copied();
                                    let results = results.filter_map(|ty| ty.try_into().ok());
                                    (ty.params().len(), results.collect())
                                }
                                // Not on offer.
                                _ => (0, Vec::new()),
                            };
                            outline.types.push(function);
                        }
                    }
                }
                Payload::ImportSection(section) if from_host => {
                    for import in section.into_imports() {
                        if let TypeRef::Func(_) | TypeRef::FuncExact(_) = import?.ty {
                            outline.of_host += 1;
                        }
                    }
                }
                Payload::FunctionSection(section) => {
                    for ty in section {
                        outline.functions.push(ty?);
                    }
                }
                _ => {}
            }
        }
        Ok(outline)
    }

    /// The type of a block that leaves the results of a function, by the function's number among those that the
    /// module defines. A type of several results is appended if there is none.
    fn block_type(&mut self, function: usize) -> BlockType {
        let ty = self.functions.get(function);
        let results = ty.and_then(|ty| self.types.get(*ty as usize));
        let results = results.map_or(&[][..], |(_, results)| results);
        match results {
            [] => return BlockType::Empty,
            [result] => return BlockType::Result(*result),
            _ => {}
        }
        let fits = |(params, other): &(usize, Vec<ValType>)| *params == 0 && other == results;
        if let Some(index) = self.types.iter().position(fits) {
            return BlockType::FunctionType(index as u32);
        }
        let index = self.types.len();
        let results = results.to_vec();
        self.appended.push(results.clone());
        self.types.push((0, results));
        BlockType::FunctionType(index as u32)
    }

    /// Whether an exception can come out of an instruction into its frame from another.
    fn calls(&self, operator: &Operator<'_>) -> bool {
        match operator {
            Operator::Call { function_index } => *function_index >= self.of_host,
            Operator::CallIndirect { .. } | Operator::CallRef { .. } => true,
            _ => false,
        }
    }

    fn any_calls(&self, body: &FunctionBody<'_>) -> Result<bool, BinaryReaderError> {
        let mut operators = body.get_operators_reader()?;
        while !operators.eof() {
            if self.calls(&operators.read()?) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn rewrite_module(wasm: &[u8], from_host: bool) -> Result<Cow<'_, [u8]>, BinaryReaderError> {
    let mut outline = Outline::of(wasm, from_host)?;
    let mut code = Vec::new();
    let mut bodies = 0;
    let mut is_changed = false;
    for payload in Parser::new(0).parse_all(wasm) {
        if let Payload::CodeSectionEntry(body) = payload? {
            if outline.any_calls(&body)? {
                let results = outline.block_type(bodies);
                with_handler(wasm, &body, results)?.encode(&mut code);
                is_changed = true;
            } else {
                wasm[body.range()].encode(&mut code);
            }
            bodies += 1;
        }
    }
    if !is_changed {
        return Ok(wasm.into());
    }
    let mut module = wasm_encoder::Module::new();
    for payload in Parser::new(0).parse_all(wasm) {
        let payload = payload?;
        let Some((id, range)) = payload.as_section() else {
            continue;
        };
        let data = match payload {
            Payload::TypeSection(section) => {
                let mut data = Vec::new();
                let own = &wasm[range];
                (section.count() + outline.appended.len() as u32).encode(&mut data);
                data.extend_from_slice(&own[number_bytes(own)..]);
                for results in &outline.appended {
                    // A function without parameters.
                    data.extend([0x60, 0]);
                    results.encode(&mut data);
                }
                Cow::Owned(data)
            }
            Payload::CodeSectionStart { .. } => {
                let mut data = Vec::new();
                (bodies as u32).encode(&mut data);
                data.extend_from_slice(&code);
                Cow::Owned(data)
            }
            Payload::CustomSection(section) if section.name().starts_with("metadata.code.") => {
                continue;
            }
            _ => Cow::Borrowed(&wasm[range]),
        };
        module.section(&RawSection { id, data: &data });
    }
    Ok(module.finish().into())
}

/// Bytes of the LEB128 number at the start of a section.
fn number_bytes(section: &[u8]) -> usize {
    let more = section.iter().take_while(|byte| *byte & 0x80 != 0).count();
    (more + 1).min(section.len())
}

/// A function's body with a handler around it.
fn with_handler(
    wasm: &[u8],
    body: &FunctionBody<'_>,
    results: BlockType,
) -> Result<Vec<u8>, BinaryReaderError> {
    use Instruction as I;
    let range = body.range();
    let start = body.get_operators_reader()?.original_position();
    let mut handled = Vec::with_capacity(range.len() + 16);
    handled.extend_from_slice(&wasm[range.start..start]);
    I::Block(BlockType::Result(ValType::Ref(RefType::EXNREF))).encode(&mut handled);
    I::TryTable(results, Cow::Borrowed(&[Catch::AllRef { label: 0 }])).encode(&mut handled);
    // With the `end` that closes it.
    handled.extend_from_slice(&wasm[start..range.end]);
    for instruction in [I::Return, I::End, I::ThrowRef, I::End] {
        instruction.encode(&mut handled);
    }
    Ok(handled)
}

#[cfg(test)]
mod tests {
    use super::catch_in_every_frame;
    use crate::engine_config::FEATURES;
    use std::borrow::Cow;
    use wasmparser::{Operator, Parser, Payload, Validator};

    /// For each function whether it has a handler of everything, after the rewriting of a valid program.
    fn handled(text: &str) -> Vec<bool> {
        let wasm = wat::parse_str(text).expect("a program");
        let rewritten = catch_in_every_frame(&wasm).expect("well-formed");
        Validator::new_with_features(FEATURES)
            .validate_all(&rewritten)
            .expect("valid");
        let mut handled = Vec::new();
        for payload in Parser::new(0).parse_all(&rewritten) {
            if let Payload::CodeSectionEntry(body) = payload.expect("well-formed") {
                let mut operators = body.get_operators_reader().expect("well-formed");
                let second = (operators.read(), operators.read()).1;
                handled.push(matches!(second, Ok(Operator::TryTable { .. })));
            }
        }
        handled
    }

    #[test]
    fn functions_that_call_catch_and_those_that_do_not_are_left() {
        let text = r#"(module
            (import "wasi_snapshot_preview1" "sched_yield" (func $host (result i32)))
            (type $two (func (param i32) (result i32 i64)))
            (table 1 funcref) (tag $t (param i32))
            (func $throws (throw $t (i32.const 1)))
            (func $calls (call $throws))
            (func $calls_host (drop (call $host)))
            (func $indirect (type $two) (call_indirect (type $two) (local.get 0) (i32.const 0)))
            (func $branches (param i32) (result i32)
                (br_if 0 (i32.const 5) (local.get 0)) (call $throws))
            (func $tail (return_call $throws))
            (func $never (result f32) (call $throws) unreachable))"#;
        let with = [false, true, false, true, true, false, true];
        assert_eq!(handled(text), with);
    }

    #[test]
    fn what_the_modules_of_a_component_import_may_throw() {
        let module = r#"(core module $m (import "a" "b" (func $f)) (func (call $f)))"#;
        let outer = format!("(component {module} (component {module}))");
        assert_eq!(handled(&outer), [true, true]);
        let alone = r#"(module (import "a" "b" (func $f)) (func (call $f)))"#;
        assert_eq!(handled(alone), [false]);
    }

    #[test]
    fn a_module_without_calls_is_left_as_it_is() {
        let wasm = wat::parse_str("(module (tag $t) (func (throw $t)))").expect("a module");
        let rewritten = catch_in_every_frame(&wasm).expect("well-formed");
        assert!(matches!(rewritten, Cow::Borrowed(_)));
    }
}
