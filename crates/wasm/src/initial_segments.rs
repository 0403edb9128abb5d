//! Long initial contents of memories and tables, copied by the guest itself.
//!
//! The engine copies active segments in a function of its own, where nothing can interrupt the
//! guest: 48 MiB of data take tens of milliseconds, 64,000 bytes on a page each 200, for the pages' faults, 10,000
//! elements some tenths of one, where the compiler could not lay them out, and 1,000 on a page each three. So before a module with much of either is
//! compiled, its active segments become others, and its start function copies them.
//!
//! - Data become one passive segment, since the engine writes a record of each into every instance, and are copied from
//!   there with `memory.init`, which [`bulk_instructions`](crate::bulk_instructions) splits like any other; some segments
//!   in each of several functions.
//! - Elements become declared segments, and are set one by one, some in each of several functions. Passive segments would
//!   be no better: the engine evaluates all of their elements when it makes the instance.
//!
//! 1. *The meaning stays.* The engine copies elements, then data, and then calls the start function; so does the new
//!    start function, which then calls the old one. Before that it drops what it has copied from, as active segments are.
//!    Where elements are copied so, data are too, however few. A segment that does not fit traps before any of it is
//!    copied.
//! 2. *Nothing else changes.* One type and some functions are appended, so that no index shifts but those of segments of data:
//!    instructions that name a passive one have its new index, and those that name an active one name what was dropped.

use crate::core_modules::rewrite_core_modules;
use crate::image::PAGE;
use crate::in_place::replace_in_place;
use crate::inventory::is_laid_out;
use std::borrow::Cow;
use std::ops::Range;
use wasm_encoder::{
    BlockType, DataCountSection, DataSection, Encode, Instruction, RawSection, StartSection,
};
use wasmparser::{
    BinaryReaderError, ConstExpr, DataKind, Element, ElementItems, ElementKind, Operator, Parser,
    Payload, TypeRef,
};

/// What the engine may copy when it makes an instance of a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MostCopied {
    /// Bytes of active data segments.
    pub data_bytes: usize,
    /// Pages of the host that each of them may lie on, one at the least, for all together: the first touch of a page is a
    /// fault.
    pub data_pages: u64,
    /// Elements of active segments that the compiler does not lay out.
    pub elements: u64,
    /// Pages of the host that each of these segments may lie on, for all together.
    pub element_pages: u64,
}

/// Rewrites a module, or every core module in a component, if its active segments have more than the engine may copy.
/// Bytes that need no change are returned as they are.
///
/// # Errors
///
/// The parser's, if `wasm` is not well-formed.
pub fn copy_segments_at_start(
    wasm: &[u8],
    most: MostCopied,
) -> Result<Cow<'_, [u8]>, BinaryReaderError> {
    rewrite_core_modules(wasm, &mut |module| rewrite_module(module, most))
}

/// A data segment.
struct Segment<'a> {
    active: Option<Active>,
    data: &'a [u8],
}

/// Where an active data segment is copied to.
struct Active {
    memory: u32,
    /// Where the offset is computed.
    offset: Range<usize>,
    /// Pages of the host that it may lie on, one at the least.
    pages: u64,
}

impl<'a> Segment<'a> {
    fn of(segment: wasmparser::Data<'a>) -> Result<Self, BinaryReaderError> {
        let data = segment.data;
        let active = match segment.kind {
            DataKind::Passive => None,
            DataKind::Active {
                memory_index,
                offset_expr,
            } => Some(Active {
                memory: memory_index,
                offset: offset_expr.get_binary_reader().range(),
                pages: pages(&offset_expr, data.len() as u64)?,
            }),
        };
        Ok(Self { active, data })
    }
}

/// Pages that so many bytes may lie on.
fn pages(offset: &ConstExpr<'_>, bytes: u64) -> Result<u64, BinaryReaderError> {
    let page = PAGE as u64;
    let mut operators = offset.get_operators_reader();
    let within = match (operators.read()?, operators.read()?) {
        (Operator::I32Const { value }, Operator::End) => u64::from(value.cast_unsigned()) % page,
        _ => page - 1,
    };
    Ok((within + bytes).div_ceil(page).max(1))
}

/// A segment of elements.
struct Elements<'a> {
    /// Its bytes in the module.
    bytes: Range<usize>,
    /// If it is active.
    active: Option<ActiveElements<'a>>,
}

/// Elements that are copied to a table.
struct ActiveElements<'a> {
    table: u32,
    /// Where the offset is computed.
    offset: Range<usize>,
    /// How a declared segment of the same elements begins, and the elements with their number.
    declared: (Vec<u8>, Range<usize>),
    items: ElementItems<'a>,
    is_laid_out: bool,
}

/// Bytes of an element in a table of the engine, at most.
const ELEMENT: u64 = 8;

/// Elements that a function sets.
const SET_AT_ONCE: usize = 256;

/// Segments of data that a function copies. A guest that is preempted by epochs is so where a function begins, and each
/// may fault on two pages.
const COPIED_AT_ONCE: usize = 32;

impl<'a> Elements<'a> {
    fn of(element: Element<'a>, wasm: &[u8], imported_tables: u32) -> Self {
        let bytes = element.range.clone();
        let is_laid_out = is_laid_out(&element, imported_tables);
        let ElementKind::Active {
            table_index,
            offset_expr,
        } = element.kind
        else {
            return Self {
                bytes,
                active: None,
            };
        };
        let offset = offset_expr.get_binary_reader().range();
        let (flag, implicit, items) = match &element.items {
            // Indices of functions; of no kind but functions, if none is said.
            ElementItems::Functions(items) => (3, 0x00, items.range()),
            // Expressions; of references to functions, if no type is said.
            ElementItems::Expressions(_, items) => (7, 0x70, items.range()),
        };
        let mut begin = vec![flag];
        match table_index {
            None => begin.push(implicit),
            Some(_) => begin.extend_from_slice(&wasm[offset.end..items.start]),
        }
        let active = ActiveElements {
            table: table_index.unwrap_or(0),
            offset,
            declared: (begin, items.start..bytes.end),
            items: element.items,
            is_laid_out,
        };
        Self {
            bytes,
            active: Some(active),
        }
    }
}

impl ActiveElements<'_> {
    fn count(&self) -> u32 {
        match &self.items {
            ElementItems::Functions(items) => items.count(),
            ElementItems::Expressions(_, items) => items.count(),
        }
    }

    /// Pages of the host that they may lie on, wherever that is, one at the least.
    fn pages(&self) -> u64 {
        let page = PAGE as u64;
        (page - ELEMENT + u64::from(self.count()) * ELEMENT).div_ceil(page)
    }

    /// Instructions that leave an element on the stack, for each.
    fn values(&self, wasm: &[u8]) -> Result<Vec<Vec<u8>>, BinaryReaderError> {
        match &self.items {
            ElementItems::Functions(items) => {
                let value = |function| {
                    let mut value = Vec::new();
                    Instruction::RefFunc(function).encode(&mut value);
                    value
                };
                let functions = items.clone().into_iter();
                functions.map(|function| function.map(value)).collect()
            }
            ElementItems::Expressions(_, items) => {
                let value = |value: ConstExpr<'_>| {
                    instructions(wasm, value.get_binary_reader().range()).to_vec()
                };
                let expressions = items.clone().into_iter();
                expressions
                    .map(|expression| expression.map(value))
                    .collect()
            }
        }
    }

    /// Bodies of functions that set all of them.
    fn bodies(&self, wasm: &[u8]) -> Result<Vec<Vec<u8>>, BinaryReaderError> {
        let mut at = 0;
        let mut bodies = Vec::new();
        for values in self.values(wasm)?.chunks(SET_AT_ONCE) {
            // No locals.
            let mut body = vec![0];
            for value in values {
                body.extend_from_slice(instructions(wasm, self.offset.clone()));
                Instruction::I32Const(at).encode(&mut body);
                Instruction::I32Add.encode(&mut body);
                body.extend_from_slice(value);
                Instruction::TableSet(self.table).encode(&mut body);
                at += 1;
            }
            Instruction::End.encode(&mut body);
            bodies.push(body);
        }
        Ok(bodies)
    }

    /// Traps if they do not fit into the table, as an access behind its end.
    fn check(&self, wasm: &[u8], body: &mut Vec<u8>) {
        body.extend_from_slice(instructions(wasm, self.offset.clone()));
        for instruction in [
            Instruction::I64ExtendI32U,
            Instruction::I64Const(self.count().into()),
            Instruction::I64Add,
            Instruction::TableSize(self.table),
            Instruction::I64ExtendI32U,
            Instruction::I64GtU,
            Instruction::If(BlockType::Empty),
            Instruction::TableSize(self.table),
            Instruction::TableGet(self.table),
            Instruction::Drop,
            Instruction::End,
        ] {
            instruction.encode(body);
        }
    }
}

/// The instructions of a constant expression, without its `end`.
fn instructions(wasm: &[u8], expression: Range<usize>) -> &[u8] {
    &wasm[expression.start..expression.end - 1]
}

/// The facts about a module that its rewriting needs.
#[derive(Default)]
struct Outline<'a> {
    types: u32,
    functions: u32,
    imported_tables: u32,
    start: Option<u32>,
    /// Whether its elements are copied by the guest.
    moves_elements: bool,
    elements: Vec<Elements<'a>>,
    /// Whether instructions may name segments of data: only where the section that counts them is.
    is_counted: bool,
    segments: Vec<Segment<'a>>,
}

impl<'a> Outline<'a> {
    fn of(wasm: &'a [u8]) -> Result<Self, BinaryReaderError> {
        let mut outline = Self::default();
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
                            TypeRef::Table(_) => outline.imported_tables += 1,
                            _ => {}
                        }
                    }
                }
                Payload::ElementSection(section) => {
                    for element in section {
                        let element = Elements::of(element?, wasm, outline.imported_tables);
                        outline.elements.push(element);
                    }
                }
                Payload::FunctionSection(section) => outline.functions += section.count(),
                Payload::StartSection { func, .. } => outline.start = Some(func),
                Payload::DataCountSection { .. } => outline.is_counted = true,
                Payload::DataSection(section) => {
                    for data in section {
                        outline.segments.push(Segment::of(data?)?);
                    }
                }
                _ => {}
            }
        }
        Ok(outline)
    }

    fn active(&self) -> impl Iterator<Item = (&Active, &'a [u8])> {
        let segments = self.segments.iter();
        segments.filter_map(|segment| Some((segment.active.as_ref()?, segment.data)))
    }

    /// Whether the engine may copy its data.
    fn has_few_data(&self, most: MostCopied) -> bool {
        let bytes: usize = self.active().map(|(_, data)| data.len()).sum();
        let pages: u64 = self.active().map(|(active, _)| active.pages).sum();
        bytes <= most.data_bytes && pages <= most.data_pages
    }

    /// Whether the engine may copy its elements: the compiler lays out those before the first that it cannot.
    fn has_few_elements(&self, most: MostCopied) -> bool {
        let segments = self.elements.iter();
        let active = segments.filter_map(|segment| segment.active.as_ref());
        let (mut elements, mut pages) = (0, 0);
        for active in active.skip_while(|active| active.is_laid_out) {
            elements += u64::from(active.count());
            pages += active.pages();
        }
        elements <= most.elements && pages <= most.element_pages
    }

    /// The new functions: the start function is the last one.
    fn new_bodies(&self, wasm: &[u8]) -> Result<Vec<Vec<u8>>, BinaryReaderError> {
        let mut bodies = Vec::new();
        // No locals.
        let mut body = vec![0];
        let moved = self.elements.iter().filter(|_| self.moves_elements);
        for active in moved.filter_map(|segment| segment.active.as_ref()) {
            active.check(wasm, &mut body);
            for setting in active.bodies(wasm)? {
                let function = self.functions + bodies.len() as u32;
                Instruction::Call(function).encode(&mut body);
                bodies.push(setting);
            }
        }
        let active: Vec<_> = self.active().collect();
        let mut from = 0;
        for copied in active.chunks(COPIED_AT_ONCE) {
            let function = self.functions + bodies.len() as u32;
            Instruction::Call(function).encode(&mut body);
            bodies.push(self.copying(wasm, copied, &mut from));
        }
        if !active.is_empty() {
            Instruction::DataDrop(self.packed()).encode(&mut body);
        }
        if let Some(start) = self.start {
            Instruction::Call(start).encode(&mut body);
        }
        Instruction::End.encode(&mut body);
        bodies.push(body);
        Ok(bodies)
    }

    /// The section of elements, none of them active.
    fn declared_elements(&self, wasm: &[u8]) -> Vec<u8> {
        let mut section = Vec::new();
        (self.elements.len() as u32).encode(&mut section);
        for Elements { bytes, active } in &self.elements {
            match active {
                None => section.extend_from_slice(&wasm[bytes.clone()]),
                Some(active) => {
                    let (begin, items) = &active.declared;
                    section.extend_from_slice(begin);
                    section.extend_from_slice(&wasm[items.clone()]);
                }
            }
        }
        section
    }

    /// The body of a function that copies some segments, the first of them `from` this byte of what is packed.
    fn copying(&self, wasm: &[u8], segments: &[(&Active, &[u8])], from: &mut u32) -> Vec<u8> {
        // No locals.
        let mut body = vec![0];
        for (active, data) in segments {
            let bytes = data.len() as u32;
            body.extend_from_slice(instructions(wasm, active.offset.clone()));
            for instruction in [
                Instruction::I32Const(from.cast_signed()),
                Instruction::I32Const(bytes.cast_signed()),
                Instruction::MemoryInit {
                    mem: active.memory,
                    data_index: self.packed(),
                },
            ] {
                instruction.encode(&mut body);
            }
            *from += bytes;
        }
        Instruction::End.encode(&mut body);
        body
    }

    /// The index of the segment that has all active ones: it follows the passive ones.
    fn packed(&self) -> u32 {
        let passive = self.segments.iter().filter(|it| it.active.is_none());
        passive.count() as u32
    }

    /// The new index of each segment.
    fn new_indices(&self) -> Vec<u32> {
        let (packed, mut next) = (self.packed(), 0..);
        let index = |segment: &Segment<'_>| match segment.active {
            Some(_) => packed,
            None => next.next().unwrap_or(packed),
        };
        self.segments.iter().map(index).collect()
    }

    fn passive(&self) -> DataSection {
        let mut section = DataSection::new();
        for segment in self.segments.iter().filter(|it| it.active.is_none()) {
            section.passive(segment.data.iter().copied());
        }
        if self.active().next().is_some() {
            section.passive(
                self.active()
                    .flat_map(|(_, data)| data.iter().copied())
                    .collect::<Vec<_>>(),
            );
        }
        section
    }

    fn passive_count(&self) -> u32 {
        self.packed() + u32::from(self.active().next().is_some())
    }
}

/// A module whose instructions name segments of data by new indices.
fn with_new_indices<'a>(
    wasm: &'a [u8],
    outline: &Outline<'_>,
) -> Result<Cow<'a, [u8]>, BinaryReaderError> {
    let new = outline.new_indices();
    let renamed = |index: u32| {
        let new = *new.get(index as usize)?;
        (new != index).then_some(new)
    };
    replace_in_place(wasm, |operator| {
        Some(vec![match *operator {
            Operator::MemoryInit { data_index, mem } => Instruction::MemoryInit {
                mem,
                data_index: renamed(data_index)?,
            },
            Operator::DataDrop { data_index } => Instruction::DataDrop(renamed(data_index)?),
            _ => return None,
        }])
    })
}

/// The sections that are written anew.
#[derive(Clone, Copy, PartialEq, Eq)]
enum New {
    Type,
    Function,
    Start,
    DataCount,
    Code,
}

impl New {
    const ALL: [Self; 5] = [
        Self::Type,
        Self::Function,
        Self::Start,
        Self::DataCount,
        Self::Code,
    ];

    const fn id(self) -> u8 {
        match self {
            Self::Type => 1,
            Self::Function => 3,
            Self::Start => 8,
            Self::Code => 10,
            Self::DataCount => 12,
        }
    }
}

/// Where a section stands in a module.
const fn place(id: u8) -> u8 {
    match id {
        13 => 6,
        6..=9 => id + 1,
        12 => 11,
        10 | 11 => id + 2,
        _ => id,
    }
}

fn rewrite_module(wasm: &[u8], most: MostCopied) -> Result<Cow<'_, [u8]>, BinaryReaderError> {
    let mut outline = Outline::of(wasm)?;
    outline.moves_elements = !outline.has_few_elements(most);
    if !outline.moves_elements && outline.has_few_data(most) {
        return Ok(wasm.into());
    }
    let renamed = match outline.is_counted {
        true => with_new_indices(wasm, &outline)?,
        false => wasm.into(),
    };
    let mut again = Outline::of(&renamed)?;
    again.moves_elements = outline.moves_elements;
    Ok(Cow::Owned(moved(&renamed, &again)?))
}

/// The module whose start function copies its segments.
fn moved(wasm: &[u8], outline: &Outline<'_>) -> Result<Vec<u8>, BinaryReaderError> {
    let bodies = outline.new_bodies(wasm)?;
    let mut module = wasm_encoder::Module::new();
    let mut pending = New::ALL.into_iter().peekable();
    for payload in Parser::new(0).parse_all(wasm) {
        let payload = payload?;
        let Some((id, range)) = payload.as_section() else {
            continue;
        };
        // Custom sections stand anywhere.
        while id != 0
            && let Some(new) = pending.next_if(|new| place(new.id()) <= place(id))
        {
            let old = (new.id() == id).then(|| &wasm[range.clone()]);
            emit(&mut module, new, old, outline, &bodies)?;
        }
        match id {
            9 if outline.moves_elements => {
                let data = &outline.declared_elements(wasm);
                module.section(&RawSection { id, data })
            }
            11 => module.section(&outline.passive()),
            _ if New::ALL.iter().any(|new| new.id() == id) => continue,
            _ => module.section(&RawSection {
                id,
                data: &wasm[range],
            }),
        };
    }
    for new in pending {
        emit(&mut module, new, None, outline, &bodies)?;
    }
    Ok(module.finish())
}

/// Writes a section: what was there, and what is new.
fn emit(
    module: &mut wasm_encoder::Module,
    new: New,
    old: Option<&[u8]>,
    outline: &Outline<'_>,
    bodies: &[Vec<u8>],
) -> Result<(), BinaryReaderError> {
    let mut entries = Vec::new();
    let mut count = bodies.len() as u32;
    match new {
        New::Start => {
            module.section(&StartSection {
                function_index: outline.functions + count - 1,
            });
            return Ok(());
        }
        New::DataCount => {
            module.section(&DataCountSection {
                count: outline.passive_count(),
            });
            return Ok(());
        }
        // No parameters, no results.
        New::Type => {
            count = 1;
            entries.extend([0x60, 0, 0]);
        }
        New::Function => bodies
            .iter()
            .for_each(|_| outline.types.encode(&mut entries)),
        New::Code => bodies.iter().for_each(|body| body.encode(&mut entries)),
    }
    let mut data = Vec::new();
    match old {
        None => count.encode(&mut data),
        Some(old) => {
            let mut reader = wasmparser::BinaryReader::new(old, 0);
            (reader.read_var_u32()? + count).encode(&mut data);
            data.extend_from_slice(&old[reader.original_position()..]);
        }
    }
    data.extend_from_slice(&entries);
    module.section(&RawSection {
        id: new.id(),
        data: &data,
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{MostCopied, copy_segments_at_start};
    use wasmparser::{DataKind, ElementKind, Parser, Payload, Validator};

    const MOST: MostCopied = MostCopied {
        data_bytes: 64 << 10,
        data_pages: 17,
        elements: 3,
        element_pages: 4,
    };

    /// The active and passive segments of a module, and whether it has a start function.
    fn outline(wasm: &[u8]) -> (usize, usize, bool) {
        let (mut active, mut passive, mut start) = (0, 0, false);
        for payload in Parser::new(0).parse_all(wasm) {
            match payload.expect("well-formed") {
                Payload::DataSection(section) => {
                    for data in section {
                        match data.expect("well-formed").kind {
                            DataKind::Active { .. } => active += 1,
                            DataKind::Passive => passive += 1,
                        }
                    }
                }
                Payload::StartSection { .. } => start = true,
                _ => {}
            }
        }
        (active, passive, start)
    }

    #[test]
    fn the_engine_copies_nothing_of_a_module_with_long_data() {
        let long = "x".repeat(70_000);
        for rest in [
            "",
            "(func) (start 0)",
            "(import \"a\" \"b\" (func)) (func (export \"f\") (call 0))",
            "(table 1 funcref) (elem (i32.const 0) func $g) (func $g (data.drop 0))",
        ] {
            // Imports come first.
            let text =
                format!("(module {rest} (memory 2) (data (i32.const 1) \"{long}\") (data \"p\"))");
            let wasm = wat::parse_str(&text).expect("a module");
            let rewritten = copy_segments_at_start(&wasm, MOST).expect("well-formed");
            Validator::new().validate_all(&rewritten).expect("valid");
            assert_eq!(outline(&rewritten), (0, 2, true), "{rest}");
        }
    }

    #[test]
    fn the_engine_copies_to_few_pages_however_short_the_data_are() {
        let module = |segments: &str| {
            let text =
                format!("(module (import \"a\" \"g\" (global $g i32)) (memory 100) {segments})");
            let wasm = wat::parse_str(text).expect("a module");
            let rewritten = copy_segments_at_start(&wasm, MOST).expect("well-formed");
            Validator::new().validate_all(&rewritten).expect("valid");
            outline(&rewritten)
        };
        let scattered = |count: usize, data: &str| -> String {
            let place = |at: usize| format!("(data (i32.const {}) \"{data}\")", at * 4096);
            (0..count).map(place).collect()
        };
        assert_eq!(module(&scattered(17, "x")), (17, 0, false));
        assert_eq!(module(&scattered(18, "x")), (0, 1, true));
        // The engine looks at empty ones, too.
        assert_eq!(module(&scattered(18, "")), (0, 1, true));
        // On two pages each.
        let across = "(data (i32.const 4095) \"xy\")";
        assert_eq!(module(&across.repeat(8)), (8, 0, false));
        assert_eq!(module(&across.repeat(9)), (0, 1, true));
        // Wherever they are.
        let computed = "(data (global.get $g) \"xy\")";
        assert_eq!(module(&computed.repeat(9)), (0, 1, true));
    }

    #[test]
    fn what_is_short_is_left_as_it_is() {
        let wasm = wat::parse_str("(module (memory 1) (data (i32.const 0) \"short\"))");
        let wasm = wasm.expect("a module");
        let rewritten = copy_segments_at_start(&wasm, MOST).expect("well-formed");
        assert!(matches!(rewritten, std::borrow::Cow::Borrowed(_)));
    }

    /// The active, passive and declared segments of elements.
    fn elements_of(wasm: &[u8]) -> (usize, usize, usize) {
        let mut found = (0, 0, 0);
        for payload in Parser::new(0).parse_all(wasm) {
            if let Payload::ElementSection(section) = payload.expect("well-formed") {
                for element in section {
                    match element.expect("well-formed").kind {
                        ElementKind::Active { .. } => found.0 += 1,
                        ElementKind::Passive => found.1 += 1,
                        ElementKind::Declared => found.2 += 1,
                    }
                }
            }
        }
        found
    }

    #[test]
    fn the_engine_copies_few_elements_that_the_compiler_cannot_lay_out() {
        for (active, expected) in [
            // Laid out, or few.
            ("(elem (i32.const 0) func $f $f $f $f)", (1, 1, 1)),
            ("(elem (global.get $g) func $f $f $f)", (1, 1, 1)),
            // Many: of every form.
            ("(elem (global.get $g) func $f $f $f $f)", (0, 1, 2)),
            (
                "(elem (global.get $g) funcref (ref.func $f) (ref.null func) (ref.func $f) (ref.func $f))",
                (0, 1, 2),
            ),
            (
                "(elem (table $u) (i32.const 1) func $f $f $f $f) (elem (table $t) (global.get $g) func $f $f $f $f)",
                (0, 1, 3),
            ),
            (
                "(elem (table $u) (i32.const 1) funcref (ref.func $f) (ref.func $f) (ref.func $f) (ref.func $f))",
                (0, 1, 2),
            ),
            (
                "(elem (table $e) (global.get $g) externref (ref.null extern) (ref.null extern) (ref.null extern) (ref.null extern))",
                (0, 1, 2),
            ),
        ] {
            let text = format!(
                "(module (import \"a\" \"g\" (global $g i32)) (table $t 9 funcref) (table $u 9 funcref)
                   (table $e 9 externref) (memory 1) (func $f)
                   {active} (elem func $f) (elem declare func $f) (data (i32.const 0) \"few\"))"
            );
            let wasm = wat::parse_str(&text).expect("a module");
            let rewritten = copy_segments_at_start(&wasm, MOST).expect("well-formed");
            Validator::new().validate_all(&rewritten).expect(active);
            assert_eq!(elements_of(&rewritten), expected, "{active}");
            // Data follow elements, as few as they are.
            let moved = expected.0 == 0;
            let data = (usize::from(!moved), usize::from(moved), moved);
            assert_eq!(outline(&rewritten), data, "{active}");
        }
    }

    #[test]
    fn the_engine_copies_to_few_pages_of_a_table_however_few_the_elements_are() {
        let most = MostCopied {
            elements: 4096,
            element_pages: 17,
            ..MOST
        };
        let module = |count: usize, elements: &str| {
            let segment = |at: usize| {
                let at = at * 512;
                format!("(elem (offset (i32.add (i32.const {at}) (i32.const 7))) func {elements})")
            };
            let segments: String = (0..count).map(segment).collect();
            let wasm = wat::parse_str(format!(
                "(module (table 20000 funcref) (func $f) {segments})"
            ));
            let wasm = wasm.expect("a module");
            let rewritten = copy_segments_at_start(&wasm, most).expect("well-formed");
            Validator::new().validate_all(&rewritten).expect("valid");
            elements_of(&rewritten)
        };
        assert_eq!(module(17, "$f"), (17, 0, 0));
        assert_eq!(module(18, "$f"), (0, 0, 18));
        // Some of them may lie on two.
        assert_eq!(module(8, "$f $f"), (8, 0, 0));
        assert_eq!(module(9, "$f $f"), (0, 0, 9));
    }

    #[test]
    fn a_module_without_code_and_data_gets_what_it_needs() {
        let text = "(module (import \"a\" \"g\" (global $g i32)) (import \"a\" \"f\" (func $f))
                      (import \"a\" \"t\" (table 9 funcref)) (elem (global.get $g) func $f $f $f $f))";
        let wasm = wat::parse_str(text).expect("a module");
        let rewritten = copy_segments_at_start(&wasm, MOST).expect("well-formed");
        Validator::new().validate_all(&rewritten).expect("valid");
        assert_eq!(elements_of(&rewritten), (0, 0, 1));
    }
}
