//! Pages that host code is about to visit, touched by the guest before.
//!
//! A guest that pages is suspended where its own code faults, and others run while the disk works. Host code cannot be:
//! it may have changed things already. So in a program for tenants that page, every call of an imported function and
//! every bulk memory instruction goes through a function appended to the module, which first reads a byte of what its
//! operands point to, and of what the elements of some lists point to. An exported function that may be an allocator
//! is exchanged for one that reads a byte of what it has allocated for the host to write to. Where a bulk instruction is
//! about to write much, zero is added to a byte instead: a page that is read first faults once more when it is written to.
//!
//! 1. *The meaning stays.* Only bytes within the memory are read, and nothing is done with them; none is changed. Every
//!    operand of a call that could be an address is taken for one: what was none costs a page that was not needed.
//!    A bulk instruction touches nothing unless all of it is within bounds: a page that is only for reading ends the
//!    program where it is touched, which must not come before the trap.
//! 2. *Nothing else changes.* Functions and types are appended, so that no index shifts, and all bytes but those of the
//!    replaced instructions are copied as they are. Only `metadata.code.*` sections are dropped, whose offsets
//!    into functions would be wrong.
//! 3. *It is no promise.* Only the lists of [`NESTED`] functions are gone through, nothing is touched for a call through a
//!    table, and a small reservation may lose a page again before the host comes to it. Host code then
//!    waits for the disk, as often as admission allows it to.

use std::collections::BTreeMap;

use wasm_encoder::{BlockType, Encode, ExportKind, Function, Instruction as I, MemArg, ValType};
use wasmparser::{
    BinaryReaderError, CompositeInnerType, ExternalKind, Operator, Parser, Payload, TypeRef,
};

use crate::bulk_instructions::{Bound, COUNT, FROM, TO, leave_if_beyond};
use crate::core_modules::{Rewritten, rewrite_core_modules};
use crate::replaced::Replaced;
use crate::sections::{grown, with_sections};

/// Operands of a call that are taken for addresses, at most.
const ADDRESSES: usize = 8;

/// Bytes from an address on of which the first and the last are touched: those that a host step visits.
const VISITED: i32 = 4096;

/// Bytes from which on a bulk instruction's destination is touched as what is written to. An atomic addition takes some
/// 20 cycles, which short copies would feel.
const WRITTEN: i32 = 1024;

/// Imported functions with a parameter that is a list of strings, of lists of bytes, or of pairs of them: the operand that
/// is its address, and the strings and lists in an element. In the canonical ABI each of those is an address and a length.
const NESTED: [(&str, &str, u32, u32); 5] = [
    ("wasi:http/types", "[static]fields.from-list", 0, 2),
    ("wasi:http/types", "[method]fields.set", 3, 1),
    ("wasi:keyvalue/batch", "get-many", 1, 1),
    ("wasi:keyvalue/batch", "set-many", 1, 2),
    ("wasi:keyvalue/batch", "delete-many", 1, 1),
];

/// Strings and lists of such a list that are touched, at most.
const MOST_NESTED: i32 = 1024;

/// Has a module, or every core module in a component, touch what the host is about to visit.
///
/// # Errors
///
/// The parser's, if `wasm` is not well-formed.
pub(crate) fn touch_for_host(wasm: &[u8]) -> Rewritten<'_> {
    rewrite_core_modules(wasm, &mut rewrite_module)
}

/// An instruction that the host carries out, or a function that it calls meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ByHost {
    /// The call of an imported function.
    Call(u32),
    MemoryFill {
        memory: u32,
    },
    MemoryCopy {
        to: u32,
        from: u32,
    },
    MemoryInit {
        memory: u32,
        segment: u32,
    },
    /// An exported function with the type of an allocator, `cabi_realloc`.
    Allocator(u32),
}

/// How a byte is touched.
#[derive(Clone, Copy)]
enum Touch {
    Read,
    /// As an access that writes, from the first fault on: a store after a load would fault twice.
    Write,
}

/// A list in the operands of a call.
#[derive(Clone, Copy)]
struct Nested {
    /// The operand that is its address; the next one is the number of its elements.
    at: u32,
    /// Addresses and lengths in an element.
    pairs: u32,
}

/// The facts about a module that its rewriting needs.
#[derive(Default)]
struct Outline {
    /// The parameters of each type; those of no function have none.
    types: Vec<Vec<ValType>>,
    /// The types that an allocator has.
    of_allocators: Vec<u32>,
    /// The type of each imported function, and the list that it is given.
    imported: Vec<(u32, Option<Nested>)>,
    /// The type of each function of the module's own.
    own: Vec<u32>,
    exported: Vec<u32>,
    memories: u32,
    /// The memory that the host visits.
    memory: u32,
}

impl Outline {
    fn of(wasm: &[u8]) -> Result<Self, BinaryReaderError> {
        let mut outline = Self::default();
        for payload in Parser::new(0).parse_all(wasm) {
            match payload? {
                Payload::TypeSection(section) => {
                    for group in section {
                        for ty in group?.into_types() {
                            let (parameters, results) = match &ty.composite_type.inner {
                                CompositeInnerType::Func(ty) => (ty.params(), ty.results()),
                                _ => (&[][..], &[][..]),
                            };
                            let i32 = wasmparser::ValType::I32;
                            if parameters == [i32; 4] && results == [i32] {
                                outline.of_allocators.push(outline.types.len() as u32);
                            }
                            let known = |ty: &wasmparser::ValType| ValType::try_from(*ty).ok();
                            let parameters = parameters.iter().map_while(known).collect();
                            outline.types.push(parameters);
                        }
                    }
                }
                Payload::ImportSection(section) => {
                    for import in section.into_imports() {
                        let import = import?;
                        match import.ty {
                            TypeRef::Func(ty) | TypeRef::FuncExact(ty) => {
                                let nested = nested(import.module, import.name);
                                outline.imported.push((ty, nested));
                            }
                            TypeRef::Memory(_) => outline.memories += 1,
                            _ => {}
                        }
                    }
                }
                Payload::FunctionSection(section) => {
                    outline.own = section.into_iter().collect::<Result<_, _>>()?;
                }
                Payload::MemorySection(section) => outline.memories += section.count(),
                Payload::ExportSection(section) => {
                    for export in section {
                        let export = export?;
                        match (export.kind, export.name) {
                            (ExternalKind::Memory, "memory") => outline.memory = export.index,
                            (ExternalKind::Func, _) => outline.exported.push(export.index),
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(outline)
    }

    fn functions(&self) -> u32 {
        (self.imported.len() + self.own.len()) as u32
    }

    /// The type of a function.
    fn type_of(&self, function: u32) -> Option<u32> {
        let function = function as usize;
        match self.imported.get(function) {
            Some((ty, _)) => Some(*ty),
            None => self.own.get(function - self.imported.len()).copied(),
        }
    }

    /// Whether an exported function is the module's own, and may be an allocator.
    fn is_allocator(&self, function: u32) -> bool {
        let is_own = function as usize >= self.imported.len();
        let ty = self.type_of(function).filter(|_| is_own);
        ty.is_some_and(|ty| self.of_allocators.contains(&ty))
    }

    fn by_host(&self, operator: &Operator<'_>) -> Option<ByHost> {
        Some(match *operator {
            Operator::Call { function_index } => {
                self.addresses(function_index).next()?;
                ByHost::Call(function_index)
            }
            Operator::MemoryFill { mem: memory } => ByHost::MemoryFill { memory },
            Operator::MemoryCopy {
                dst_mem: to,
                src_mem: from,
            } => ByHost::MemoryCopy { to, from },
            Operator::MemoryInit {
                mem: memory,
                data_index: segment,
            } => ByHost::MemoryInit { memory, segment },
            _ => return None,
        })
    }

    fn parameters(&self, function: u32) -> &[ValType] {
        let imported = self.imported.get(function as usize);
        imported.map_or(&[], |(ty, _)| &self.types[*ty as usize])
    }

    /// Which parameters of an imported function may be addresses; none of another function.
    fn addresses(&self, function: u32) -> impl Iterator<Item = u32> {
        let parameters = self.parameters(function).iter().zip(0..);
        parameters
            .filter(|(ty, _)| **ty == ValType::I32)
            .map(|(_, at)| at)
            .take(ADDRESSES)
    }
}

/// The list that an imported function is given, if it is one of [`NESTED`].
fn nested(module: &str, name: &str) -> Option<Nested> {
    let interface = module.split('@').next().unwrap_or(module);
    let found = NESTED
        .iter()
        .find(|(of, named, _, _)| (*of, *named) == (interface, name));
    found.map(|&(_, _, at, pairs)| Nested { at, pairs })
}

fn rewrite_module(wasm: &[u8]) -> Rewritten<'_> {
    let outline = Outline::of(wasm)?;
    if outline.memories == 0 {
        return Ok(wasm.into());
    }
    let mut replaced = Replaced::find(wasm, outline.functions(), |operator| {
        outline.by_host(operator)
    })?;
    let exported = outline.exported.iter().copied();
    let allocators = exported.filter(|function| outline.is_allocator(*function));
    let allocators: BTreeMap<u32, u32> = allocators
        .map(|function| (function, replaced.append(ByHost::Allocator(function))))
        .collect();
    let appended = replaced.appended();
    if appended.is_empty() {
        return Ok(wasm.into());
    }

    with_sections(wasm, |section, content| match section {
        Payload::TypeSection(section) => {
            let mut data = grown(content, section.count(), 1);
            // That of a bulk instruction.
            data.push(0x60);
            [ValType::I32; 3].encode(&mut data);
            0_u32.encode(&mut data);
            Some(data)
        }
        Payload::FunctionSection(section) => {
            let mut data = grown(content, section.count(), appended.len());
            for by_host in &appended {
                let ty = match by_host {
                    ByHost::Call(function) | ByHost::Allocator(function) => {
                        outline.type_of(*function)
                    }
                    _ => None,
                };
                ty.unwrap_or(outline.types.len() as u32).encode(&mut data);
            }
            Some(data)
        }
        Payload::ExportSection(section) => {
            let mut exports = Vec::new();
            section.count().encode(&mut exports);
            for export in section.clone().into_iter().flatten() {
                let index = match export.kind {
                    ExternalKind::Func => allocators.get(&export.index),
                    _ => None,
                };
                export.name.encode(&mut exports);
                ExportKind::from(export.kind).encode(&mut exports);
                index.unwrap_or(&export.index).encode(&mut exports);
            }
            Some(exports)
        }
        Payload::CodeSectionStart { .. } => {
            Some(replaced.code(wasm, |by_host| touching(&outline, by_host)))
        }
        _ => None,
    })
}

/// The parameter of an allocator that says how many bytes it returns.
const NEW_SIZE: u32 = 3;

/// The function that touches what an instruction visits, and is that instruction; or an allocator, and touches what it returns.
fn touching(outline: &Outline, by_host: ByHost) -> Function {
    const BULK: &[ValType] = &[ValType::I32; 3];
    let (parameters, instruction) = match by_host {
        ByHost::Call(function) => (outline.parameters(function), I::Call(function)),
        ByHost::Allocator(function) => (&[ValType::I32; 4][..], I::Call(function)),
        ByHost::MemoryFill { memory } => (BULK, I::MemoryFill(memory)),
        ByHost::MemoryCopy { to, from } => {
            let (dst_mem, src_mem) = (to, from);
            (BULK, I::MemoryCopy { dst_mem, src_mem })
        }
        ByHost::MemoryInit { memory, segment } => {
            let (mem, data_index) = (memory, segment);
            (BULK, I::MemoryInit { mem, data_index })
        }
    };
    let mut toucher = Toucher {
        function: Function::new([(5, ValType::I32)]),
        end: parameters.len() as u32,
    };
    match by_host {
        ByHost::Call(function) => {
            let addresses: Vec<u32> = outline.addresses(function).collect();
            for &at in &addresses {
                // An address is often followed by a length.
                let length = Some(at + 1).filter(|next| addresses.contains(next));
                toucher.touch(Touch::Read, outline.memory, at, length);
            }
            let (_, nested) = outline.imported[function as usize];
            let nested = nested.filter(|list| addresses.contains(&(list.at + 1)));
            if let Some(list) = nested {
                toucher.touch_elements(outline.memory, list);
            }
        }
        ByHost::Allocator(_) => {}
        ByHost::MemoryFill { memory } => {
            toucher.begin_if_within(memory, None);
            toucher.touch_written(memory);
            toucher.emit(&[I::End]);
        }
        ByHost::MemoryInit { memory, segment } => {
            let longest = Bound::Segment(u32::MAX);
            toucher.begin_if_within(memory, Some(longest));
            toucher.check_segment(memory, segment);
            toucher.touch_written(memory);
            toucher.emit(&[I::End]);
        }
        ByHost::MemoryCopy { to, from } => {
            toucher.begin_if_within(to, Some(Bound::Memory(from)));
            toucher.touch(Touch::Read, from, FROM, Some(COUNT));
            toucher.touch_written(to);
            toucher.emit(&[I::End]);
        }
    }
    for parameter in 0..parameters.len() as u32 {
        toucher.emit(&[I::LocalGet(parameter)]);
    }
    toucher.emit(&[instruction]);
    if let ByHost::Allocator(_) = by_host {
        toucher.touch_allocated(outline.memory);
    }
    toucher.emit(&[I::End]);
    toucher.function
}

/// A function that is being made, with five locals of its own.
struct Toucher {
    function: Function,
    /// The first of them: the last byte that is visited.
    end: u32,
}

impl Toucher {
    /// Begins a block that is left if a bulk instruction's destination or source is out of bounds: the instruction traps
    /// behind it.
    fn begin_if_within(&mut self, memory: u32, source: Option<Bound>) {
        self.emit(&[I::Block(BlockType::Empty)]);
        leave_if_beyond(&mut self.function, TO, Bound::Memory(memory));
        if let Some(source) = source {
            leave_if_beyond(&mut self.function, FROM, source);
        }
    }

    /// Traps if the end of the source is beyond that of a segment, which has no bytes once it was dropped: no
    /// instruction tells, but one that copies nothing from there checks it.
    fn check_segment(&mut self, memory: u32, segment: u32) {
        let (mem, data_index) = (memory, segment);
        self.emit(&[
            I::I32Const(0),
            I::LocalGet(FROM),
            I::LocalGet(COUNT),
            I::I32Add,
            I::I32Const(0),
            I::MemoryInit { mem, data_index },
        ]);
    }

    /// Touches what a bulk instruction is about to write to.
    fn touch_written(&mut self, memory: u32) {
        self.emit(&[
            I::LocalGet(COUNT),
            I::I32Const(WRITTEN),
            I::I32GeU,
            I::If(BlockType::Empty),
        ]);
        self.touch(Touch::Write, memory, TO, Some(COUNT));
        self.emit(&[I::Else]);
        self.touch(Touch::Read, memory, TO, Some(COUNT));
        self.emit(&[I::End]);
    }

    /// Touches the byte at an address, and the last of `length` bytes from there, or of those that are visited.
    fn touch(&mut self, touch: Touch, memory: u32, address: u32, length: Option<u32>) {
        self.touch_byte(touch, memory, address);
        let Some(length) = length else { return };
        let end = self.end;
        // Without a length, this is the byte before the address: it is touched in vain.
        self.emit(&[
            I::LocalGet(length),
            I::I32Const(VISITED),
            I::LocalGet(length),
            I::I32Const(VISITED),
            I::I32LtU,
            I::Select,
            I::LocalGet(address),
            I::I32Add,
            I::I32Const(1),
            I::I32Sub,
            I::LocalSet(end),
        ]);
        self.touch_byte(touch, memory, end);
    }

    /// Touches what the elements of a list point to, as far as they are within the memory.
    fn touch_elements(&mut self, memory: u32, list: Nested) {
        let (left, element, address, length) =
            (self.end + 1, self.end + 2, self.end + 3, self.end + 4);
        let word = |offset| MemArg {
            offset,
            align: 0,
            memory_index: memory,
        };
        let most = MOST_NESTED / list.pairs as i32;
        self.emit(&[
            I::LocalGet(list.at + 1),
            I::I32Const(most),
            I::LocalGet(list.at + 1),
            I::I32Const(most),
            I::I32LtU,
            I::Select,
            I::I32Const(list.pairs as i32),
            I::I32Mul,
            I::LocalSet(left),
            I::LocalGet(list.at),
            I::LocalSet(element),
            I::Block(BlockType::Empty),
            I::Loop(BlockType::Empty),
            I::LocalGet(left),
            I::I32Eqz,
            I::BrIf(1),
            // Behind the end of the memory there is nothing.
            I::LocalGet(element),
            I::I64ExtendI32U,
            I::I64Const(8),
            I::I64Add,
            I::MemorySize(memory),
            I::I64ExtendI32U,
            I::I64Const(16),
            I::I64Shl,
            I::I64GtU,
            I::BrIf(1),
            I::LocalGet(element),
            I::I32Load(word(0)),
            I::LocalSet(address),
            I::LocalGet(element),
            I::I32Load(word(4)),
            I::LocalSet(length),
        ]);
        self.touch(Touch::Read, memory, address, Some(length));
        self.emit(&[
            I::LocalGet(element),
            I::I32Const(8),
            I::I32Add,
            I::LocalSet(element),
            I::LocalGet(left),
            I::I32Const(1),
            I::I32Sub,
            I::LocalSet(left),
            I::Br(0),
            I::End,
            I::End,
        ]);
    }

    /// Touches what an allocator has returned, and returns it as well.
    fn touch_allocated(&mut self, memory: u32) {
        let allocated = self.end + 1;
        self.emit(&[I::LocalSet(allocated)]);
        self.touch(Touch::Read, memory, allocated, Some(NEW_SIZE));
        self.emit(&[I::LocalGet(allocated)]);
    }

    /// Touches the byte, if it is within the memory.
    fn touch_byte(&mut self, touch: Touch, memory: u32, address: u32) {
        let byte = MemArg {
            offset: 0,
            align: 0,
            memory_index: memory,
        };
        self.emit(&[
            I::LocalGet(address),
            I::I64ExtendI32U,
            I::MemorySize(memory),
            I::I64ExtendI32U,
            I::I64Const(16),
            I::I64Shl,
            I::I64LtU,
            I::If(BlockType::Empty),
            I::LocalGet(address),
        ]);
        match touch {
            Touch::Read => self.emit(&[I::I32Load8U(byte)]),
            Touch::Write => self.emit(&[I::I32Const(0), I::I32AtomicRmw8AddU(byte)]),
        }
        self.emit(&[I::Drop, I::End]);
    }

    fn emit(&mut self, instructions: &[I<'_>]) {
        for instruction in instructions {
            self.function.instruction(instruction);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::touch_for_host;
    use crate::features::FEATURES;
    use std::borrow::Cow;
    use wasmtime::{Caller, Config, Engine, Instance, Linker, Module, Store, Trap, Val};

    const PROGRAM: &str = r#"(module
      (import "host" "call" (func $call (param i32 i32 f32 i32 i64 i32 i32 i32 i32 i32 i32) (result i32)))
      (import "host" "plain" (func $plain (param i64 f64) (result i64)))
      (import "wasi:keyvalue/batch@0.2.0" "set-many" (func $many (param i32 i32 i32 i32) (result i32)))
      (memory (export "memory") 1)
      (data $words "passive words")
      (data (i32.const 96) "\ff\ff\ff\ff\ff\ff\ff\ff\00\10\00\00\ff\ff\00\00\01\00\00\00\00\00\00\80")
      (table funcref (elem $call))
      (func (export "call") (param i32 i32) (result i32)
        (call $call (local.get 0) (local.get 1) (f32.const 1.5) (local.get 1) (i64.const -1) (local.get 0)
          (i32.const 6) (i32.const 7) (i32.const 8) (i32.const -9) (i32.const 10)))
      (func (export "many") (param i32 i32) (result i32)
        (call $many (i32.const 3) (local.get 0) (local.get 1) (i32.const 9)))
      (func $allocate (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
        (i32.store8 (i32.const 77) (local.get 1))
        (i32.add (local.get 0) (local.get 3)))
      (func (export "allocate") (param i32 i32) (result i32)
        (call $allocate (local.get 0) (i32.const 5) (i32.const 1) (local.get 1)))
      (func (export "plain") (param i32 i32) (result i32)
        (i32.wrap_i64 (call $plain (i64.extend_i32_u (local.get 0)) (f64.const 0.5))))
      (func (export "fill") (param i32 i32) (result i32)
        (memory.fill (local.get 0) (i32.const 7) (local.get 1)) (i32.const 0))
      (func (export "copy") (param i32 i32) (result i32)
        (memory.copy (local.get 0) (i32.const 100) (local.get 1)) (i32.const 0))
      (func (export "copy_from") (param i32 i32) (result i32)
        (memory.copy (i32.const 5) (local.get 0) (local.get 1)) (i32.const 0))
      (func (export "init") (param i32 i32) (result i32)
        (memory.init $words (local.get 0) (i32.const 3) (local.get 1)) (i32.const 0)))"#;

    /// What the host was called with, and what the guest got, trap and memory included.
    fn run(wasm: &[u8], function: &str, operands: (u32, u32)) -> (String, Vec<String>) {
        let engine = Engine::new(Config::new().wasm_features(FEATURES, true)).expect("an engine");
        let module = Module::new(&engine, wasm).expect("valid");
        let mut linker = Linker::<Vec<String>>::new(&engine);
        for import in module.imports() {
            let ty = import.ty().unwrap_func().clone();
            let call = |mut caller: Caller<'_, Vec<String>>, given: &[Val], got: &mut [Val]| {
                caller.data_mut().push(format!("{given:?}"));
                got[0] = match got[0] {
                    Val::I64(_) => Val::I64(6),
                    _ => Val::I32(5),
                };
                Ok(())
            };
            let linked = linker.func_new(import.module(), import.name(), ty, call);
            linked.expect("linked once");
        }
        let mut store = Store::new(&engine, Vec::new());
        let instance: Instance = linker.instantiate(&mut store, &module).expect("made");
        let (first, second) = (operands.0 as i32, operands.1 as i32);
        let result = match function {
            "cabi_realloc" => instance
                .get_typed_func::<(i32, i32, i32, i32), i32>(&mut store, function)
                .expect("exported")
                .call(&mut store, (first, 1, 2, second)),
            _ => instance
                .get_typed_func::<(i32, i32), i32>(&mut store, function)
                .expect("exported")
                .call(&mut store, (first, second)),
        };
        let memory = instance.get_memory(&mut store, "memory").expect("exported");
        let sum = memory.data(&store).iter().fold(0_u64, |sum, byte| {
            sum.wrapping_mul(31).wrapping_add(u64::from(*byte))
        });
        let result = match result {
            Ok(value) => format!("{value}, memory {sum:x}"),
            Err(error) => format!("{:?}, memory {sum:x}", error.downcast_ref::<Trap>()),
        };
        (result, store.into_data())
    }

    #[test]
    fn a_program_does_the_same_whatever_it_hands_to_the_host() {
        let wasm = wat::parse_str(PROGRAM).expect("valid");
        let touching = touch_for_host(&wasm).expect("well-formed");
        assert!(matches!(touching, Cow::Owned(_)));
        let edges = [0, 1, 10, 100, 4095, 4096, 65_535, 65_536, 1 << 20, u32::MAX];
        let functions = [
            "call",
            "many",
            "cabi_realloc",
            "allocate",
            "plain",
            "fill",
            "copy",
            "copy_from",
            "init",
        ];
        for function in functions {
            for first in edges {
                for second in edges {
                    let operands = (first, second);
                    assert_eq!(
                        run(&touching, function, operands),
                        run(&wasm, function, operands),
                        "{function}{operands:?}"
                    );
                }
            }
        }
    }

    /// The program with a trap in place of each addition of zero: it ends where a page for writing would be touched.
    fn ending_where_it_touches(wasm: &[u8]) -> Vec<u8> {
        const ADDITION: [u8; 4] = [0xfe, 0x20, 0, 0];
        const TRAP: [u8; 4] = [0x00, 0x01, 0x01, 0x01];
        let mut ending = touch_for_host(wasm).expect("well-formed").into_owned();
        let mut found = 0;
        for at in 0..ending.len() - 3 {
            if ending[at..at + 4] == ADDITION {
                ending[at..at + 4].copy_from_slice(&TRAP);
                found += 1;
            }
        }
        assert!(found > 0);
        ending
    }

    #[test]
    fn a_bulk_instruction_touches_nothing_unless_all_of_it_is_within_bounds() {
        let words = "w".repeat(9000);
        let wasm = wat::parse_str(format!(
            r#"(module (memory (export "memory") 2) (memory $small 1) (data $words "{words}") (data $gone "{words}")
              (func (export "fill") (param i32 i32) (result i32)
                (memory.fill (local.get 0) (i32.const 7) (local.get 1)) (i32.const 0))
              (func (export "copy_to") (param i32 i32) (result i32)
                (memory.copy (local.get 0) (i32.const 1) (local.get 1)) (i32.const 0))
              (func (export "copy_from") (param i32 i32) (result i32)
                (memory.copy (i32.const 1) (local.get 0) (local.get 1)) (i32.const 0))
              (func (export "copy_from_small") (param i32 i32) (result i32)
                (memory.copy 0 $small (i32.const 1) (local.get 0) (local.get 1)) (i32.const 0))
              (func (export "init_to") (param i32 i32) (result i32)
                (memory.init $words (local.get 0) (i32.const 0) (local.get 1)) (i32.const 0))
              (func (export "init_from") (param i32 i32) (result i32)
                (memory.init $words (i32.const 1) (local.get 0) (local.get 1)) (i32.const 0))
              (func (export "init_dropped") (param i32 i32) (result i32)
                (data.drop $gone)
                (memory.init $gone (local.get 0) (i32.const 0) (local.get 1)) (i32.const 0)))"#
        ))
        .expect("valid");
        let ending = ending_where_it_touches(&wasm);
        let (memory, small, segment) = (131_072, 65_536, 9_000);
        for (function, most) in [
            ("fill", memory),
            ("copy_to", memory),
            ("copy_from", memory),
            ("copy_from_small", small),
            ("init_to", memory),
            ("init_from", segment),
            ("init_dropped", 0),
        ] {
            for count in [1024, 5000, 9000, 9001, 200_000, u32::MAX] {
                for first in [0, 1, most - most.min(5000), most, u32::MAX - 4000] {
                    let end = u64::from(first) + u64::from(count);
                    let is_of_segment = function.starts_with("init");
                    let is_within = end <= u64::from(most)
                        && u64::from(count) < u64::from(memory)
                        && (!is_of_segment || count <= segment);
                    let (result, _) = run(&ending, function, (first, count));
                    let trap = match is_within {
                        true => "UnreachableCodeReached",
                        false => "MemoryOutOfBounds",
                    };
                    assert!(
                        result.contains(trap),
                        "{function}({first}, {count}): {result}"
                    );
                    // Nothing was written.
                    assert!(result.ends_with("memory 0"), "{function}: {result}");
                    if !is_within {
                        assert_eq!(run(&wasm, function, (first, count)).0, result);
                    }
                }
            }
        }
    }

    #[test]
    fn what_visits_no_memory_is_left_as_it_is() {
        for text in [
            r#"(module (import "a" "b" (func $f (param i64 f32))) (memory 1)
                 (func (call $f (i64.const 1) (f32.const 1))))"#,
            r#"(module (import "a" "b" (func $f (param i32))) (func (call $f (i32.const 1))))"#,
            r#"(module (func $f (param i32)) (memory 1) (func (call $f (i32.const 1))))"#,
        ] {
            let wasm = wat::parse_str(text).expect("valid");
            assert_eq!(touch_for_host(&wasm).expect("well-formed"), wasm);
        }
    }
}
