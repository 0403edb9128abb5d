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
//!    [limited](crate::limits::HANDLERS).
//! 2. *The meaning stays.* The handler stands outside of all others of its function, and passes the same
//!    exception on. A tail call leaves its frame, and the handler with it.
//! 3. *Nothing else changes.* Types are appended, so that no index shifts. A branch out of the body goes to the
//!    end of the handler's block, which has the function's results. Only `metadata.code.*` sections are
//!    dropped, whose offsets into functions would be wrong.
//! 4. *Handlers that are never reached are not compiled.* The compiler notes every handler around
//!    every call, in time that is quadratic in their number. In a function with many handlers, most
//!    of which are never reached, each instruction that throws gets a `try_table` of its own with
//!    the handlers that its exceptions reach (`handlers`), and the others become blocks.
//!    Yosys has a function with 340,516 handlers around its calls, of which 6,256 are reached.
//! 5. *Programs that neither throw nor catch are left as they are*: nothing but a guest throws.

use std::borrow::Cow;
use std::collections::HashMap;

use wasm_encoder::{BlockType, Catch, Encode, Instruction, RefType, ValType};
use wasmparser::{BinaryReaderError, FunctionBody, Operator, Parser, Payload, TypeRef};

use crate::core_modules::rewrite_core_modules;
use crate::handlers::{HandlerCount, Scopes};
use crate::sections::{grown, with_sections};

/// Whether an instruction throws, in a program in which only guests do.
pub(crate) fn throws(operator: &Operator<'_>) -> bool {
    matches!(operator, Operator::Throw { .. } | Operator::ThrowRef)
}

/// Whether an exception may come out of an instruction: the compiler notes all handlers around it.
pub(crate) fn may_throw(operator: &Operator<'_>) -> bool {
    throws(operator)
        || matches!(
            operator,
            Operator::Call { .. } | Operator::CallIndirect { .. } | Operator::CallRef { .. }
        )
}

/// Rewrites a module of a program that throws, or every core module in a component.
///
/// `wasm` must be valid under [`FEATURES`](crate::features::FEATURES). Functions that call nothing but
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

/// How the binary format begins the type of a function.
const FUNCTION_TYPE: u8 = 0x60;

/// The facts about a module that its rewriting needs.
#[derive(Default)]
struct Outline {
    /// The signature of each type, the appended ones last.
    types: Vec<Signature>,
    /// The first of each signature.
    by_signature: HashMap<Signature, u32>,
    /// How many types are appended: those of blocks.
    appended: usize,
    /// The types of the blocks around calls through a table, by the type of the function.
    around_indirect: HashMap<u32, u32>,
    /// Functions that no guest defines.
    of_host: u32,
    /// The type of each function, imported ones first.
    functions: Vec<u32>,
    imported: usize,
    /// The type of each tag, imported ones first.
    tags: Vec<u32>,
}

/// Parameters and results.
type Signature = (Vec<ValType>, Vec<ValType>);

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
                                    (values(ty.params()), values(ty.results()))
                                }
                                // Not on offer.
                                _ => Signature::default(),
                            };
                            outline.add_type(function);
                        }
                    }
                }
                Payload::ImportSection(section) => {
                    for import in section.into_imports() {
                        match import?.ty {
                            TypeRef::Func(ty) | TypeRef::FuncExact(ty) => {
                                outline.functions.push(ty);
                            }
                            TypeRef::Tag(tag) => outline.tags.push(tag.func_type_idx),
                            _ => {}
                        }
                    }
                    outline.imported = outline.functions.len();
                    if from_host {
                        outline.of_host = outline.imported as u32;
                    }
                }
                Payload::TagSection(section) => {
                    for tag in section {
                        outline.tags.push(tag?.func_type_idx);
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
        let ty = self.functions.get(self.imported + function);
        let results = ty.and_then(|ty| self.types.get(*ty as usize));
        let results = results.map_or_else(Vec::new, |(_, results)| results.clone());
        match results[..] {
            [] => BlockType::Empty,
            [result] => BlockType::Result(result),
            _ => BlockType::FunctionType(self.type_of((Vec::new(), results))),
        }
    }

    /// The index of a type, which is appended if there is none.
    fn type_of(&mut self, signature: Signature) -> u32 {
        if let Some(known) = self.by_signature.get(&signature) {
            return *known;
        }
        self.appended += 1;
        self.add_type(signature)
    }

    fn add_type(&mut self, signature: Signature) -> u32 {
        let index = self.types.len() as u32;
        self.by_signature.entry(signature.clone()).or_insert(index);
        self.types.push(signature);
        index
    }

    /// The type of a block around an instruction out of which an exception can come, if it is one.
    fn around(&mut self, operator: &Operator<'_>) -> Option<BlockType> {
        let ty = match *operator {
            Operator::Call { function_index } if self.calls(operator) => {
                *self.functions.get(function_index as usize)?
            }
            Operator::CallIndirect { type_index, .. } => {
                if let Some(known) = self.around_indirect.get(&type_index) {
                    *known
                } else {
                    let (mut params, results) = self.types.get(type_index as usize)?.clone();
                    params.push(ValType::I32);
                    let around = self.type_of((params, results));
                    self.around_indirect.insert(type_index, around);
                    around
                }
            }
            Operator::Throw { tag_index } => *self.tags.get(tag_index as usize)?,
            Operator::ThrowRef => {
                let exception = ValType::Ref(RefType::EXNREF);
                self.type_of((vec![exception], Vec::new()))
            }
            _ => return None,
        };
        Some(BlockType::FunctionType(ty))
    }

    /// Whether an exception can come out of an instruction into its frame from another.
    fn calls(&self, operator: &Operator<'_>) -> bool {
        match operator {
            Operator::Call { function_index } => *function_index >= self.of_host,
            Operator::CallIndirect { .. } | Operator::CallRef { .. } => true,
            _ => false,
        }
    }

    /// How the handlers of a function are to be rewritten.
    fn plan(&self, body: &FunctionBody<'_>) -> Result<Plan, BinaryReaderError> {
        let (mut count, mut scopes) = (HandlerCount::default(), Scopes::of_function());
        let mut any_calls = false;
        let mut operators = body.get_operators_reader()?;
        while !operators.eof() {
            let operator = operators.read()?;
            any_calls |= self.calls(&operator);
            count.add(&operator, &scopes);
            scopes.pass(&operator);
        }
        Ok(match (count.are_parted(), any_calls) {
            (true, _) => Plan::Part,
            (false, true) => Plan::Surround,
            (false, false) => Plan::Leave,
        })
    }
}

/// The treatment of a function's handlers.
enum Plan {
    /// They stay.
    Leave,
    /// They get another one around them.
    Surround,
    /// Each instruction that throws gets its own.
    Part,
}

/// Those that are on offer, which are all in a valid program.
fn values(types: &[wasmparser::ValType]) -> Vec<ValType> {
    let types = types.iter().copied();
    types.filter_map(|ty| ty.try_into().ok()).collect()
}

fn rewrite_module(wasm: &[u8], from_host: bool) -> Result<Cow<'_, [u8]>, BinaryReaderError> {
    let mut outline = Outline::of(wasm, from_host)?;
    let mut code = Vec::new();
    let mut bodies = 0;
    let mut is_changed = false;
    for payload in Parser::new(0).parse_all(wasm) {
        if let Payload::CodeSectionEntry(body) = payload? {
            match outline.plan(&body)? {
                Plan::Leave => wasm[body.range()].encode(&mut code),
                plan => {
                    let results = outline.block_type(bodies);
                    let handled = match plan {
                        Plan::Part => with_parted_handlers(wasm, &body, results, &mut outline)?,
                        _ => with_handler(wasm, &body, results)?,
                    };
                    handled.encode(&mut code);
                    is_changed = true;
                }
            }
            bodies += 1;
        }
    }
    if !is_changed {
        return Ok(wasm.into());
    }
    with_sections(wasm, |section, content| match section {
        Payload::TypeSection(section) => {
            let mut data = grown(content, section.count(), outline.appended);
            let first = outline.types.len() - outline.appended;
            for (params, results) in &outline.types[first..] {
                data.push(FUNCTION_TYPE);
                params.encode(&mut data);
                results.encode(&mut data);
            }
            Some(data)
        }
        Payload::CodeSectionStart { .. } => {
            let mut data = Vec::new();
            (bodies as u32).encode(&mut data);
            data.extend_from_slice(&code);
            Some(data)
        }
        _ => None,
    })
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
    rethrow(&mut handled);
    Ok(handled)
}

/// The end of a function's body with a handler: what was caught is thrown again.
fn rethrow(handled: &mut Vec<u8>) {
    use Instruction as I;
    for instruction in [I::Return, I::End, I::ThrowRef, I::End] {
        instruction.encode(handled);
    }
}

/// A function's body in which each instruction that throws has its own handlers, that of the frame among them.
fn with_parted_handlers(
    wasm: &[u8],
    body: &FunctionBody<'_>,
    results: BlockType,
    outline: &mut Outline,
) -> Result<Vec<u8>, BinaryReaderError> {
    use Instruction as I;
    let range = body.range();
    let mut operators = body.get_operators_reader()?;
    let mut handled = Vec::with_capacity(2 * range.len());
    handled.extend_from_slice(&wasm[range.start..operators.original_position()]);
    I::Block(BlockType::Result(ValType::Ref(RefType::EXNREF))).encode(&mut handled);
    // In the place of the function's block: what leaves the function goes to its end.
    I::Block(results).encode(&mut handled);
    let mut scopes = Scopes::of_function();
    while !operators.eof() {
        let start = operators.original_position();
        let operator = operators.read()?;
        let bytes = &wasm[start..operators.original_position()];
        if let Operator::TryTable { try_table } = &operator {
            I::Block(block_type(try_table.ty)).encode(&mut handled);
        } else if let Some(around) = outline.around(&operator) {
            let height = scopes.height();
            let reachable = scopes.reachable().iter();
            let clauses: Vec<_> = reachable.map(|handler| handler.clause(height)).collect();
            I::TryTable(around, clauses.into()).encode(&mut handled);
            handled.extend_from_slice(bytes);
            I::End.encode(&mut handled);
            if throws(&operator) {
                I::Unreachable.encode(&mut handled);
            }
        } else {
            handled.extend_from_slice(bytes);
        }
        scopes.pass(&operator);
    }
    rethrow(&mut handled);
    Ok(handled)
}

/// The type of a block, of a valid program.
fn block_type(ty: wasmparser::BlockType) -> BlockType {
    match ty {
        wasmparser::BlockType::Empty => BlockType::Empty,
        wasmparser::BlockType::Type(result) => {
            let result = result.try_into();
            result.map_or(BlockType::Empty, BlockType::Result)
        }
        wasmparser::BlockType::FuncType(index) => BlockType::FunctionType(index),
    }
}

#[cfg(test)]
mod tests {
    use super::catch_in_every_frame;
    use crate::features::FEATURES;
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
