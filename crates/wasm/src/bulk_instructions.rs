//! Bulk memory and table instructions in bounded chunks.
//!
//! `memory.fill`, `memory.copy`, `memory.init` and their table counterparts run in the engine's
//! own code, where nothing can interrupt the guest: filling 1 GiB takes up to three seconds when
//! every page faults. So before a module is compiled, each such instruction that may be long is
//! replaced by a call of a function appended to the module, which does the same in chunks; the
//! engine checks for interruption at the loop's back edge, as in any loop of the guest.
//!
//! 1. *The meaning stays.* The whole range is checked before the first byte is written; a range
//!    that is out of bounds goes to the original instruction, which traps and writes nothing.
//!    Overlapping copies run in the direction that the specification prescribes.
//! 2. *Short operations stay short*: a call and a compare more.
//! 3. *Nothing else changes.* Functions and types are appended, so that no index shifts, and all
//!    bytes but those of the replaced instructions are copied as they are. Only
//!    `metadata.code.*` sections are dropped, whose offsets into functions would be wrong.
//!
//! Between two chunks another task may run, but none can see the difference: an instance's
//! memories and tables are reachable from its own store only, and they never shrink.

use std::borrow::Cow;

use wasm_encoder::{BlockType, Encode, Function, Instruction, RefType, ValType};
use wasmparser::{
    BinaryReaderError, DataKind, ElementItems, ElementKind, Operator, Parser, Payload, TypeRef,
};

use crate::core_modules::rewrite_core_modules;
use crate::replaced::Replaced;
use crate::sections::{grown, with_sections};

/// Most bytes of linear memory that one instruction touches after rewriting.
pub const CHUNK: u32 = 16 * 1024;

/// The same of a program for tenants that page: wherever it begins, it lies on two pages.
pub const PAGED_CHUNK: u32 = 4 * 1024;

/// Most table elements that one instruction touches after rewriting.
pub const TABLE_CHUNK: u32 = 4 * 1024;

/// A bulk instruction with its immediates: one function is appended per distinct one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Bulk {
    MemoryFill { memory: u32 },
    MemoryCopy { to: u32, from: u32 },
    MemoryInit { memory: u32, segment: u32 },
    TableFill { table: u32 },
    TableCopy { to: u32, from: u32 },
    TableInit { table: u32, segment: u32 },
}

/// Rewrites a module, or every core module in a component, in chunks of `chunk` bytes.
///
/// `wasm` must be valid under [`FEATURES`](crate::features::FEATURES): with 64-bit memories
/// or tables, which those leave out, the result would not validate. Bytes that need no change
/// are returned as they are.
///
/// # Errors
///
/// The parser's, if `wasm` is not well-formed.
pub fn chunk_bulk_operations(wasm: &[u8], chunk: u32) -> Result<Cow<'_, [u8]>, BinaryReaderError> {
    rewrite_core_modules(wasm, &mut |module| rewrite_module(module, chunk))
}

/// The facts about a module that its rewriting needs.
#[derive(Default)]
struct Outline {
    /// Most bytes of linear memory that an instruction may touch.
    chunk: u32,
    types: u32,
    functions: u32,
    /// Element types of all tables, imported ones first.
    tables: Vec<wasmparser::RefType>,
    /// Bytes of each data segment; 0 if the segment cannot be a source.
    data: Vec<u32>,
    /// Elements of each element segment; 0 if the segment cannot be a source.
    elements: Vec<u32>,
}

impl Outline {
    fn of(wasm: &[u8], chunk: u32) -> Result<Outline, BinaryReaderError> {
        let mut outline = Outline {
            chunk,
            ..Outline::default()
        };
        for payload in Parser::new(0).parse_all(wasm) {
            match payload? {
                Payload::TypeSection(section) => {
                    for group in section {
                        outline.types += group?.types().len() as u32;
                    }
                }
                Payload::ImportSection(section) => {
                    for import in section.into_imports() {
                        match import?.ty {
                            TypeRef::Func(_) | TypeRef::FuncExact(_) => outline.functions += 1,
                            TypeRef::Table(table) => outline.tables.push(table.element_type),
                            _ => {}
                        }
                    }
                }
                Payload::FunctionSection(section) => outline.functions += section.count(),
                Payload::TableSection(section) => {
                    for table in section {
                        outline.tables.push(table?.ty.element_type);
                    }
                }
                Payload::ElementSection(section) => {
                    for element in section {
                        let element = element?;
                        let items = match element.items {
                            ElementItems::Functions(items) => items.count(),
                            ElementItems::Expressions(_, items) => items.count(),
                        };
                        let passive = matches!(element.kind, ElementKind::Passive);
                        outline.elements.push(if passive { items } else { 0 });
                    }
                }
                Payload::DataSection(section) => {
                    for data in section {
                        let data = data?;
                        let passive = matches!(data.kind, DataKind::Passive);
                        outline
                            .data
                            .push(if passive { data.data.len() as u32 } else { 0 });
                    }
                }
                _ => {}
            }
        }
        Ok(outline)
    }

    /// The bulk instruction that `operator` is, unless it is short whatever its operands.
    fn bulk(&self, operator: &Operator<'_>) -> Option<Bulk> {
        Some(match *operator {
            Operator::MemoryFill { mem: memory } => Bulk::MemoryFill { memory },
            Operator::MemoryCopy {
                dst_mem: to,
                src_mem: from,
            } => Bulk::MemoryCopy { to, from },
            Operator::MemoryInit {
                mem: memory,
                data_index: segment,
            } if self.data_bytes(segment) > self.chunk => Bulk::MemoryInit { memory, segment },
            Operator::TableFill { table } => Bulk::TableFill { table },
            Operator::TableCopy {
                dst_table: to,
                src_table: from,
            } => Bulk::TableCopy { to, from },
            Operator::TableInit {
                table,
                elem_index: segment,
            } if self.element_count(segment) > TABLE_CHUNK => Bulk::TableInit { table, segment },
            _ => return None,
        })
    }

    fn data_bytes(&self, segment: u32) -> u32 {
        self.data.get(segment as usize).copied().unwrap_or(0)
    }

    fn element_count(&self, segment: u32) -> u32 {
        self.elements.get(segment as usize).copied().unwrap_or(0)
    }

    /// Type of the middle operand: what `table.fill` writes, `i32` for all others.
    fn middle_operand(&self, bulk: Bulk) -> ValType {
        let Bulk::TableFill { table } = bulk else {
            return ValType::I32;
        };
        let element = self.tables.get(table as usize).copied();
        element
            .and_then(|element| RefType::try_from(element).ok())
            .map_or(ValType::FUNCREF, ValType::Ref)
    }
}

fn rewrite_module(wasm: &[u8], chunk: u32) -> Result<Cow<'_, [u8]>, BinaryReaderError> {
    let outline = Outline::of(wasm, chunk)?;
    let replaced = Replaced::find(wasm, outline.functions, |operator| outline.bulk(operator))?;
    let appended = replaced.appended();
    if appended.is_empty() {
        return Ok(wasm.into());
    }

    with_sections(wasm, |section, content| match section {
        Payload::TypeSection(section) => {
            let mut data = grown(content, section.count(), appended.len());
            for &bulk in &appended {
                encode_type(outline.middle_operand(bulk), &mut data);
            }
            Some(data)
        }
        Payload::FunctionSection(section) => {
            let mut data = grown(content, section.count(), appended.len());
            for at in 0..appended.len() as u32 {
                (outline.types + at).encode(&mut data);
            }
            Some(data)
        }
        Payload::CodeSectionStart { .. } => {
            Some(replaced.code(wasm, |bulk| in_chunks(&outline, bulk)))
        }
        _ => None,
    })
}

/// Type of an appended function: `(i32, middle, i32) -> ()`.
fn encode_type(middle: ValType, sink: &mut Vec<u8>) {
    sink.push(0x60);
    [ValType::I32, middle, ValType::I32].encode(sink);
    0_u32.encode(sink);
}

/// Operands, the parameters of an appended function: destination, source or value, count.
pub(crate) const TO: u32 = 0;
pub(crate) const FROM: u32 = 1;
pub(crate) const COUNT: u32 = 2;

impl Bulk {
    /// The instruction itself, its three operands on the stack.
    fn instruction(self) -> Instruction<'static> {
        match self {
            Bulk::MemoryFill { memory } => Instruction::MemoryFill(memory),
            Bulk::MemoryCopy { to, from } => Instruction::MemoryCopy {
                dst_mem: to,
                src_mem: from,
            },
            Bulk::MemoryInit { memory, segment } => Instruction::MemoryInit {
                mem: memory,
                data_index: segment,
            },
            Bulk::TableFill { table } => Instruction::TableFill(table),
            Bulk::TableCopy { to, from } => Instruction::TableCopy {
                dst_table: to,
                src_table: from,
            },
            Bulk::TableInit { table, segment } => Instruction::TableInit {
                elem_index: segment,
                table,
            },
        }
    }

    /// The range that one instruction may touch: bytes, `chunk` at the most, or elements.
    fn most(self, chunk: u32) -> i32 {
        let chunk = match self {
            Bulk::MemoryFill { .. } | Bulk::MemoryCopy { .. } | Bulk::MemoryInit { .. } => chunk,
            Bulk::TableFill { .. } | Bulk::TableCopy { .. } | Bulk::TableInit { .. } => TABLE_CHUNK,
        };
        chunk as i32
    }
}

/// The bound of an operand range.
#[derive(Clone, Copy)]
pub(crate) enum Bound {
    /// Bytes of a memory.
    Memory(u32),
    /// Elements of a table.
    Table(u32),
    /// Bytes or elements of a segment.
    Segment(u32),
}

impl Bulk {
    /// The bounds of the destination and, if there is one, the source.
    fn bounds(self, outline: &Outline) -> (Bound, Option<Bound>) {
        match self {
            Bulk::MemoryFill { memory } => (Bound::Memory(memory), None),
            Bulk::MemoryCopy { to, from } => (Bound::Memory(to), Some(Bound::Memory(from))),
            Bulk::MemoryInit { memory, segment } => (
                Bound::Memory(memory),
                Some(Bound::Segment(outline.data_bytes(segment))),
            ),
            Bulk::TableFill { table } => (Bound::Table(table), None),
            Bulk::TableCopy { to, from } => (Bound::Table(to), Some(Bound::Table(from))),
            Bulk::TableInit { table, segment } => (
                Bound::Table(table),
                Some(Bound::Segment(outline.element_count(segment))),
            ),
        }
    }
}

/// Leaves the innermost block if `start + count` exceeds the bound. In 64 bits, so that nothing
/// wraps.
pub(crate) fn leave_if_beyond(f: &mut Function, start: u32, bound: Bound) {
    use Instruction as I;
    for i in [
        I::LocalGet(start),
        I::I64ExtendI32U,
        I::LocalGet(COUNT),
        I::I64ExtendI32U,
    ] {
        f.instruction(&i);
    }
    f.instruction(&I::I64Add);
    match bound {
        Bound::Memory(memory) => {
            for i in [
                I::MemorySize(memory),
                I::I64ExtendI32U,
                I::I64Const(16),
                I::I64Shl,
            ] {
                f.instruction(&i);
            }
        }
        Bound::Table(table) => {
            f.instruction(&I::TableSize(table));
            f.instruction(&I::I64ExtendI32U);
        }
        Bound::Segment(length) => {
            f.instruction(&I::I64Const(i64::from(length)));
        }
    }
    f.instruction(&I::I64GtU);
    f.instruction(&I::BrIf(0));
}

/// The function that does `bulk` in chunks:
///
/// ```text
/// block $rest
///   (br_if $rest (count <= CHUNK))
///   (br_if $rest (to + count > size))              ; the original instruction traps below
///   (br_if $rest (from + count > size of the source))
///   loop: one chunk; again while count > CHUNK     ; forward, or from the end for a copy upwards
/// end
/// the original instruction: all of it, or the at most CHUNK that are left
/// ```
///
/// A dropped segment needs no check of its own: its length is zero, so that the first chunk traps
/// before anything is written.
fn in_chunks(outline: &Outline, bulk: Bulk) -> Function {
    use Instruction as I;
    let chunk = bulk.most(outline.chunk);
    let mut function = Function::new([]);
    let f = &mut function;
    f.instruction(&I::Block(BlockType::Empty));
    for i in [
        I::LocalGet(COUNT),
        I::I32Const(chunk),
        I::I32LeU,
        I::BrIf(0),
    ] {
        f.instruction(&i);
    }
    let (to, from) = bulk.bounds(outline);
    leave_if_beyond(f, TO, to);
    if let Some(from) = from {
        leave_if_beyond(f, FROM, from);
    }
    if matches!(bulk, Bulk::MemoryCopy { .. } | Bulk::TableCopy { .. }) {
        upwards(f, bulk, chunk);
    }
    f.instruction(&I::Loop(BlockType::Empty));
    for i in [
        I::LocalGet(TO),
        I::LocalGet(FROM),
        I::I32Const(chunk),
        bulk.instruction(),
    ] {
        f.instruction(&i);
    }
    step(f, TO, &I::I32Add, chunk);
    if from.is_some() {
        step(f, FROM, &I::I32Add, chunk);
    }
    step(f, COUNT, &I::I32Sub, chunk);
    again_while_more_than(f, chunk);
    f.instruction(&I::End);
    for i in [
        I::LocalGet(TO),
        I::LocalGet(FROM),
        I::LocalGet(COUNT),
        bulk.instruction(),
    ] {
        f.instruction(&i);
    }
    f.instruction(&I::End);
    function
}

/// The branch of a copy to a higher address, which must start at the end: chunks are cut off
/// there until the head is left to the code after the block.
fn upwards(f: &mut Function, bulk: Bulk, chunk: i32) {
    use Instruction as I;
    for i in [I::LocalGet(TO), I::LocalGet(FROM), I::I32GtU] {
        f.instruction(&i);
    }
    f.instruction(&I::If(BlockType::Empty));
    f.instruction(&I::Loop(BlockType::Empty));
    step(f, COUNT, &I::I32Sub, chunk);
    for operand in [TO, FROM] {
        for i in [I::LocalGet(operand), I::LocalGet(COUNT), I::I32Add] {
            f.instruction(&i);
        }
    }
    for i in [I::I32Const(chunk), bulk.instruction()] {
        f.instruction(&i);
    }
    again_while_more_than(f, chunk);
    // Out of the block, to the head.
    f.instruction(&I::Br(1));
    f.instruction(&I::End);
}

/// The end of a loop that has cut a chunk off: again while more than one is left.
fn again_while_more_than(f: &mut Function, chunk: i32) {
    use Instruction as I;
    for i in [
        I::LocalGet(COUNT),
        I::I32Const(chunk),
        I::I32GtU,
        I::BrIf(0),
        I::End,
    ] {
        f.instruction(&i);
    }
}

/// `local = local op amount`.
fn step(f: &mut Function, local: u32, op: &Instruction<'_>, amount: i32) {
    f.instruction(&Instruction::LocalGet(local));
    f.instruction(&Instruction::I32Const(amount));
    f.instruction(op);
    f.instruction(&Instruction::LocalSet(local));
}
