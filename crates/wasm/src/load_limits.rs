//! Limits on the parts of a program, so that loading it takes bounded time and memory.
//!
//! Validating and compiling take time for each part of a program, and for some parts much more than
//! their size suggests. A function with 50,000 locals has 8 bytes. One of 4 KB in which 250 locals
//! change inside 250 loops takes 9 s, since the engine's register allocator is quadratic in their
//! product. So everything is counted while the file is parsed, in a pass that stops at the first
//! limit, before it is validated: declarations first, then functions, on all threads that compile. The
//! handlers of a program that throws are counted in another one.
//!
//! The parts of component types are counted as often as they are used (`type_sizes`), since they are walked as
//! often.
//!
//! The engine compiles one function for a module that computes its constant expressions and sets the items of its
//! element segments, whether the module is instantiated or not. What the compiler lays out beforehand is not in that
//! function, and costs little.
//!
//! The limits are a few times what the largest known programs have. `cell/tests/load_costs.rs`
//! measures the loading time at each limit; `docs/reference/program-limits.md` shows the results.

mod instructions;

use wasmparser::{
    BinaryReaderError, BlockType, CanonicalFunction, CompositeInnerType, ConstExpr, DataKind,
    Element, ElementItems, ElementKind, FunctionBody, MemoryType, Operator, Parser, Payload,
    TableInit, TypeRef, ValType,
};

use self::instructions::Instructions;
use crate::compile_threads;
use crate::declared::declared;
use crate::error::ProgramError;
use crate::handlers::{HandlerCount, MOST_TAGS, Scopes};
use crate::inventory::laid_out_top;
use crate::limits::{GLOBALS, HANDLERS};
use crate::refused::{self, Function, SourcePosition};
use crate::type_sizes::{TypeSizes, Uses};

/// Most bytes of component sections, each counted as often as its component is instantiated. The engine
/// compiles what they say as often.
pub(crate) const MAX_INLINED_BYTES: u64 = 4 << 20;

/// Most parts of the types of functions that components inside of a program may call of each other, each
/// counted as often as its component is instantiated. The engine compiles code for each.
pub(crate) const MAX_ADAPTED_PARTS: u64 = 1 << 17;

/// A limit on the number of one thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadLimit {
    /// The counted quantity.
    pub what: &'static str,
    /// How many there may be.
    pub most: u64,
    /// The unit to which the limit applies.
    pub of: Scope,
}

/// The unit to which a [`LoadLimit`] applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The whole file, nested modules and components included.
    Program,
    /// One function, type or constant expression.
    Function,
}

macro_rules! limits {
    ($($name:ident: $scope:ident, $most:expr, $what:literal;)*) => {
        /// The index of a limit.
        #[derive(Clone, Copy)]
        enum Counted { $($name),* }

        /// All limits.
        pub const LOAD_LIMITS: &[LoadLimit] = &[
            $(LoadLimit { what: $what, most: $most, of: Scope::$scope }),*
        ];
    };
}

limits! {
    Types: Program, 8_192, "types";
    SignatureValues: Program, 65_536, "parameters and results of all types";
    Signature: Function, 128, "parameters and results of a type";
    Functions: Program, 131_072, "functions";
    Imports: Program, 4_096, "imports";
    Exports: Program, 65_536, "exports";
    NameBytes: Program, 4 << 20, "bytes in names of imports and exports";
    Tables: Program, 120, "tables and memories";
    Tags: Program, MOST_TAGS as u64, "tags of exceptions";
    Globals: Program, GLOBALS.most, "globals";
    ElementItems: Program, 1 << 20, "items of element segments";
    SetItems: Program, 96 << 10, "items of element segments that are set one by one";
    StartItems: Program, 8 << 10, "items of element segments that the start of a module sets";
    LaidOut: Program, 4 << 20, "elements of tables that are laid out";
    DataSegments: Program, 100_000, "segments of data";
    Expression: Function, 64, "instructions of a constant expression";
    Computed: Program, 64 << 10, "instructions of constant expressions that are computed";
    CustomSections: Program, 4_096, "custom sections";
    Nested: Program, 256, "modules and components";
    Depth: Program, 8, "components inside each other";
    ComponentBytes: Program, 1 << 20, "bytes of component sections";
    TypeDepth: Function, 64, "levels of a component type";
    TypeParts: Program, 1 << 19, "parts of component types, each as often as it is used";
    TypeResources: Program, 1 << 26, "resources times parts of component types, each as often as it is used";
    CodeBytes: Program, 64 << 20, "bytes of code";
    BodyBytes: Function, 1 << 20, "bytes of code in a function";
    Locals: Program, 4 << 20, "locals of all functions";
    BodyLocals: Function, 8_192, "locals in a function";
    BranchTargets: Program, 1 << 20, "targets of branch tables";
    BodyTargets: Function, 65_520, "targets of branch tables in a function";
    Carried: Program, 4 << 20, "values that calls and branches carry";
    BodyCarried: Function, 65_536, "values that calls and branches carry in a function";
    AroundHandlers: Function, HANDLERS.most, "handlers of exceptions around an instruction";
    BodyHandlers: Function, 1 << 15, "handlers of exceptions around the calls of a function";
    Handlers: Program, 4 << 20, "handlers of exceptions around the calls of all functions";
    HandlerSquares: Program, 1 << 32, "squares of handlers of exceptions around calls, of all functions";
    BodyMerging: Function, 1 << 32, "locals times handlers of exceptions that merge them in a function";
    Merging: Program, 1 << 34, "locals times handlers of exceptions that merge them, of all functions";
    LoopDepth: Function, 64, "loops inside each other";
    LoopLocals: Function, 16_384, "locals times loops inside each other in a function";
    LoopSquares: Program, 1 << 32, "squares of locals times loops inside each other, of all functions";
    BodyLocalBlocks: Function, 8 << 20, "locals times blocks in a function";
    LocalBlocks: Program, 128 << 20, "locals times blocks of all functions";
    BodyLocalBytes: Function, 1 << 29, "locals times bytes in a function";
    LocalBytes: Program, 1 << 32, "locals times bytes of all functions";
    BodyTableUses: Function, 2_048, "calls through and uses of tables in a function";
    TableSquares: Program, 1 << 25, "squares of calls through and uses of tables, of all functions";
}

/// The counts of a program so far.
struct Tally([u64; LOAD_LIMITS.len()]);

impl Tally {
    fn add(&mut self, counted: Counted, more: u64) -> Result<(), ProgramError> {
        let count = self.0[counted as usize].saturating_add(more);
        self.0[counted as usize] = count;
        check(counted, count)
    }

    /// Records the count of one function, of which the largest is kept.
    fn note(&mut self, counted: Counted, count: u64) -> Result<(), ProgramError> {
        let most = &mut self.0[counted as usize];
        *most = (*most).max(count);
        check(counted, count)
    }

    /// Records the size of a constant expression, and returns it: its instructions without the `end`. Reads no more
    /// of them than there may be.
    fn note_expression(&mut self, expression: &ConstExpr<'_>) -> Result<u64, ProgramError> {
        let mut instructions = 0;
        let mut operators = expression.get_operators_reader();
        while !operators.is_end_then_eof() {
            operators.read()?;
            instructions += 1;
            self.note(Counted::Expression, instructions)?;
        }
        Ok(instructions)
    }

    /// Records a constant expression that is computed when an instance is made, unless it is a constant.
    fn add_computed(&mut self, expression: &ConstExpr<'_>) -> Result<(), ProgramError> {
        let instructions = self.note_expression(expression)?;
        match instructions == 1 && is_constant(&expression.get_operators_reader().read()?) {
            true => Ok(()),
            false => self.add(Counted::Computed, instructions),
        }
    }

    /// Adds what some functions have.
    fn merge(&mut self, functions: &Tally) -> Result<(), ProgramError> {
        for ((limit, count), more) in LOAD_LIMITS.iter().zip(&mut self.0).zip(functions.0) {
            *count = match limit.of {
                Scope::Program => count.saturating_add(more),
                Scope::Function => (*count).max(more),
            };
            limit.check(*count)?;
        }
        Ok(())
    }
}

impl Uses for Tally {
    fn count(&mut self, parts: u64, lookups: u64) -> Result<(), ProgramError> {
        self.add(Counted::TypeParts, parts)?;
        self.add(Counted::TypeResources, lookups)
    }

    fn count_depth(&mut self, depth: u64) -> Result<(), ProgramError> {
        self.note(Counted::TypeDepth, depth)
    }
}

impl LoadLimit {
    fn check(&self, count: u64) -> Result<(), ProgramError> {
        let &LoadLimit { what, most, .. } = self;
        match count > most {
            true => Err(ProgramError::TooManyParts { what, count, most }),
            false => Ok(()),
        }
    }
}

fn check(counted: Counted, count: u64) -> Result<(), ProgramError> {
    LOAD_LIMITS[counted as usize].check(count)
}

/// The count of each limited part of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadSize {
    counts: [u64; LOAD_LIMITS.len()],
    throws: bool,
    awaits: bool,
    is_composed: bool,
}

impl LoadSize {
    /// The limits, each with the program's count; of a limit on functions, the largest.
    pub fn counts(&self) -> impl Iterator<Item = (&'static LoadLimit, u64)> {
        LOAD_LIMITS.iter().zip(self.counts)
    }

    /// Whether a function of the program throws or catches exceptions.
    pub fn throws(&self) -> bool {
        self.throws
    }

    /// Whether a function of the program waits for other threads or notifies them.
    pub fn awaits(&self) -> bool {
        self.awaits
    }

    /// Whether components inside of the program may call each other.
    pub fn is_composed(&self) -> bool {
        self.is_composed
    }
}

/// Counts what a module or a component has, and stops at the first limit. The bytes need not be
/// valid. O(n) in the bytes up to there.
///
/// # Errors
/// [`ProgramError::TooManyParts`], [`ProgramError::Features`] for an instruction that is not on offer, or
/// [`ProgramError::Corrupt`] if the bytes are not well-formed.
pub(crate) fn check_load_limits(binary: &[u8]) -> Result<LoadSize, ProgramError> {
    count(binary, Parser::new(0).parse_all(binary))
}

/// The same without function bodies: what is in them is not counted, and they need not be well-formed.
///
/// # Errors
/// Those of [`check_load_limits`] but for bodies.
pub(crate) fn check_outline_limits(binary: &[u8]) -> Result<LoadSize, ProgramError> {
    count(binary, declared(binary))
}

fn count<'a>(
    binary: &'a [u8],
    payloads: impl Iterator<Item = Result<Payload<'a>, BinaryReaderError>>,
) -> Result<LoadSize, ProgramError> {
    use Counted as C;
    let mut tally = Tally([0; LOAD_LIMITS.len()]);
    let mut module = ModuleTypes::default();
    let mut depth: u64 = 0;
    let (mut throws, mut awaits, mut is_composed) = (false, false, false);
    let mut bodies: Vec<Body<'_>> = Vec::new();
    // Those of the modules before.
    let mut counted = 0;
    let mut type_sizes = TypeSizes::default();
    let is_component = Parser::is_component(binary);
    let mut payloads = payloads.peekable();
    while let Some(payload) = payloads.next() {
        let payload = payload?;
        if is_component {
            if let Some(section) = component_section(&payload) {
                tally.add(C::ComponentBytes, section.len() as u64)?;
            }
            type_sizes.follow(binary, &payload, &mut tally)?;
        }
        match payload {
            Payload::Version { .. } => {
                module = ModuleTypes::default();
                depth += 1;
                tally.note(C::Depth, depth)?;
                tally.add(C::Nested, 1)?;
            }
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::TypeSection(section) => {
                tally.add(C::Types, section.count().into())?;
                for group in section {
                    for (nth, ty) in group?.into_types().enumerate() {
                        if nth > 0 {
                            tally.add(C::Types, 1)?;
                        }
                        let (params, results) = match &ty.composite_type.inner {
                            CompositeInnerType::Func(ty) => (ty.params(), ty.results()),
                            // Not offered: validation refuses it.
                            _ => (&[][..], &[][..]),
                        };
                        module
                            .takes_references
                            .push(params.iter().any(ValType::is_reference_type));
                        let (params, results) = (params.len(), results.len());
                        let both = params as u64 + results as u64;
                        tally.note(C::Signature, both)?;
                        tally.add(C::SignatureValues, both)?;
                        module.types.push((params as u32, results as u32));
                    }
                }
            }
            Payload::ImportSection(section) => {
                tally.add(C::Imports, section.count().into())?;
                for import in section.into_imports_with_offsets() {
                    let (offset, import) = import?;
                    let names = import.module.len() + import.name.len();
                    tally.add(C::NameBytes, names as u64)?;
                    match import.ty {
                        TypeRef::Func(ty) | TypeRef::FuncExact(ty) => module.functions.push(ty),
                        TypeRef::Tag(tag) => {
                            tally.add(C::Tags, 1)?;
                            module.add_tag(tag.func_type_idx, offset)?;
                        }
                        TypeRef::Memory(memory) => check_memory(&memory, offset)?,
                        TypeRef::Table(_) => module.tables.push(LaidOutTable::NONE),
                        _ => {}
                    }
                }
            }
            Payload::FunctionSection(section) => {
                tally.add(C::Functions, section.count().into())?;
                module.bodies = module.functions.len();
                for ty in section {
                    module.functions.push(ty?);
                }
            }
            Payload::TagSection(section) => {
                tally.add(C::Tags, section.count().into())?;
                for tag in section.into_iter_with_offsets() {
                    let (offset, tag) = tag?;
                    module.add_tag(tag.func_type_idx, offset)?;
                }
            }
            Payload::TableSection(section) => {
                tally.add(C::Tables, section.count().into())?;
                for table in section {
                    let table = table?;
                    module.tables.push(match &table.init {
                        TableInit::RefNull => LaidOutTable::of(table.ty.initial),
                        TableInit::Expr(value) => {
                            tally.add_computed(value)?;
                            LaidOutTable::NONE
                        }
                    });
                }
            }
            Payload::GlobalSection(section) => {
                tally.add(C::Globals, section.count().into())?;
                for global in section {
                    tally.add_computed(&global?.init_expr)?;
                }
            }
            Payload::MemorySection(section) => {
                tally.add(C::Tables, section.count().into())?;
                for memory in section.into_iter_with_offsets() {
                    let (offset, memory) = memory?;
                    check_memory(&memory, offset)?;
                }
            }
            Payload::ExportSection(section) => {
                tally.add(C::Exports, section.count().into())?;
                for export in section {
                    tally.add(C::NameBytes, export?.name.len() as u64)?;
                }
            }
            Payload::ElementSection(section) => {
                for element in section {
                    module.count_element(&mut tally, &element?)?;
                }
            }
            Payload::DataSection(section) => {
                tally.add(C::DataSegments, section.count().into())?;
                for data in section {
                    if let DataKind::Active { offset_expr, .. } = data?.kind {
                        tally.add_computed(&offset_expr)?;
                    }
                }
            }
            Payload::CustomSection(_) | Payload::UnknownSection { .. } => {
                tally.add(C::CustomSections, 1)?;
            }
            Payload::CodeSectionEntry(body) => {
                let bytes = body.range().len() as u64;
                tally.note(C::BodyBytes, bytes)?;
                tally.add(C::CodeBytes, bytes)?;
                bodies.push(module.next_body(body));
                if let Some(Ok(Payload::CodeSectionEntry(_))) = payloads.peek() {
                    continue;
                }
                let of_module = &bodies[counted..];
                counted = bodies.len();
                match count_bodies(&module, of_module) {
                    Ok(parts) => {
                        for part in parts {
                            tally.merge(&part.tally)?;
                            throws |= part.uses_exceptions;
                            awaits |= part.awaits;
                        }
                    }
                    Err(Wrong { index, error }) => {
                        let ProgramError::Features {
                            names,
                            place: Some(mut place),
                        } = error
                        else {
                            return Err(error);
                        };
                        let name = refused::name_of(&mut payloads, index);
                        place.function = Some(Function { index, name });
                        let place = Some(place);
                        return Err(ProgramError::Features { names, place });
                    }
                }
            }
            Payload::ComponentCanonicalSection(functions) if depth > 1 => {
                for function in functions {
                    is_composed |= is_lifted_or_lowered(&function?);
                }
            }
            _ => {}
        }
    }
    // Without exceptions functions get no handlers, and those that they have are none.
    if throws {
        let handlers = count_handlers(&bodies)?;
        tally.note(C::BodyHandlers, handlers.most)?;
        tally.note(C::Handlers, handlers.all)?;
        tally.note(C::HandlerSquares, handlers.squares)?;
        tally.note(C::BodyMerging, handlers.most_merging)?;
        tally.note(C::Merging, handlers.merging)?;
    }
    Ok(LoadSize {
        counts: tally.0,
        throws,
        awaits,
        is_composed,
    })
}

/// The section of a component that this is, unless it is a module, a component or a custom section.
fn component_section(payload: &Payload<'_>) -> Option<std::ops::Range<usize>> {
    let is_one = matches!(
        payload,
        Payload::InstanceSection(_)
            | Payload::CoreTypeSection(_)
            | Payload::ComponentInstanceSection(_)
            | Payload::ComponentAliasSection(_)
            | Payload::ComponentTypeSection(_)
            | Payload::ComponentCanonicalSection(_)
            | Payload::ComponentImportSection(_)
            | Payload::ComponentExportSection(_)
    );
    payload
        .as_section()
        .filter(|_| is_one)
        .map(|(_, range)| range)
}

/// Whether an instruction is a number, which the compiler knows without code.
fn is_constant(operator: &Operator<'_>) -> bool {
    matches!(
        operator,
        Operator::I32Const { .. }
            | Operator::I64Const { .. }
            | Operator::F32Const { .. }
            | Operator::F64Const { .. }
            | Operator::V128Const { .. }
    )
}

/// Whether a function passes values in and out of a component.
fn is_lifted_or_lowered(function: &CanonicalFunction) -> bool {
    matches!(
        function,
        CanonicalFunction::Lift { .. } | CanonicalFunction::Lower { .. }
    )
}

/// Refuses a memory that is made for several threads.
fn check_memory(memory: &MemoryType, offset: usize) -> Result<(), ProgramError> {
    if !memory.shared {
        return Ok(());
    }
    let (offset, function) = (offset as u64, None);
    Err(refused::refusal(
        refused::SHARED_MEMORY,
        SourcePosition { offset, function },
    ))
}

/// Handlers around the calls of all functions, if the program uses exceptions.
#[derive(Default)]
struct Handlers {
    /// Of one function.
    most: u64,
    all: u64,
    squares: u64,
    /// The cost of merging values in one function.
    most_merging: u64,
    /// The same of all functions.
    merging: u64,
}

impl Handlers {
    fn add(&mut self, handlers: &HandlerCount) {
        let count = handlers.compiled();
        self.most = self.most.max(count);
        self.all = self.all.saturating_add(count);
        self.squares = self.squares.saturating_add(count.saturating_mul(count));
        let merging = handlers.merging();
        self.most_merging = self.most_merging.max(merging);
        self.merging = self.merging.saturating_add(merging);
    }

    /// Adds those of other functions.
    fn merge(&mut self, others: &Handlers) {
        self.most = self.most.max(others.most);
        self.all = self.all.saturating_add(others.all);
        self.squares = self.squares.saturating_add(others.squares);
        self.most_merging = self.most_merging.max(others.most_merging);
        self.merging = self.merging.saturating_add(others.merging);
    }
}

/// A function's body.
struct Body<'a> {
    code: FunctionBody<'a>,
    /// The function's number in its module, imported functions included.
    index: u32,
    /// Its parameters and results.
    signature: (u32, u32),
}

impl Body<'_> {
    /// Its locals, parameters included.
    ///
    /// # Errors
    /// [`ProgramError::Features`] for a type that is not on offer.
    fn locals(&self) -> Result<u64, ProgramError> {
        let mut locals = u64::from(self.signature.0);
        let mut groups = self.code.get_locals_reader()?;
        for _ in 0..groups.get_count() {
            let offset = groups.original_position() as u64;
            let (count, ty) = groups.read()?;
            if let Some(feature) = refused::refused_type(ty) {
                let function = None;
                return Err(refused::refusal(
                    feature,
                    SourcePosition { offset, function },
                ));
            }
            locals += u64::from(count);
        }
        Ok(locals)
    }
}

/// The counts of some functions.
struct Part {
    tally: Tally,
    /// Whether one of them throws or catches exceptions.
    uses_exceptions: bool,
    /// Whether one of them waits for other threads or notifies them.
    awaits: bool,
}

/// The defect of a function.
struct Wrong {
    index: u32,
    error: ProgramError,
}

/// Bytes of code that a thread takes at once.
const PIECE_BYTES: usize = 512 << 10;

/// Function bodies in pieces for threads, in order.
fn pieces<'p, 'a>(bodies: &'p [Body<'a>]) -> Vec<&'p [Body<'a>]> {
    let (mut pieces, mut rest) = (Vec::new(), bodies);
    while !rest.is_empty() {
        let mut bytes = 0;
        let full = rest.iter().position(|body| {
            bytes += body.code.range().len();
            bytes >= PIECE_BYTES
        });
        let (piece, behind) = rest.split_at(full.map_or(rest.len(), |at| at + 1));
        pieces.push(piece);
        rest = behind;
    }
    pieces
}

/// Counts what the functions of a module have, on all threads that compile.
///
/// # Errors
/// The fault of the first faulty function.
fn count_bodies(module: &ModuleTypes, bodies: &[Body<'_>]) -> Result<Vec<Part>, Wrong> {
    let count = |piece: &[Body<'_>]| {
        let mut part = Part {
            tally: Tally([0; LOAD_LIMITS.len()]),
            uses_exceptions: false,
            awaits: false,
        };
        for body in piece {
            count_body(&mut part, module, body).map_err(|error| Wrong {
                index: body.index,
                error,
            })?;
        }
        Ok(part)
    };
    compile_threads::try_map(pieces(bodies), count)
}

/// The handlers of functions, on all threads that compile.
fn count_handlers(bodies: &[Body<'_>]) -> Result<Handlers, ProgramError> {
    let count = |piece: &[Body<'_>]| {
        let mut handlers = Handlers::default();
        for body in piece {
            let mut count = HandlerCount::new(body.locals()?);
            let mut scopes = Scopes::of_function();
            let mut operators = body.code.get_operators_reader()?;
            while !operators.eof() {
                let operator = operators.read()?;
                count.add(&operator, &scopes);
                scopes.pass(&operator);
            }
            handlers.add(&count);
        }
        Ok::<_, ProgramError>(handlers)
    };
    let counted = compile_threads::map(pieces(bodies), count);
    let mut all = Handlers::default();
    for handlers in counted {
        all.merge(&handlers?);
    }
    Ok(all)
}

/// The signatures of the module that is being counted.
#[derive(Default)]
struct ModuleTypes {
    /// Parameters and results of each type.
    types: Vec<(u32, u32)>,
    /// Whether a parameter of each type is a reference.
    takes_references: Vec<bool>,
    /// The type of each function, imported ones first.
    functions: Vec<u32>,
    /// The type of each tag, imported ones first.
    tags: Vec<u32>,
    /// The index of the function to which the next body belongs.
    bodies: usize,
    /// What the compiler lays out of each table, imported ones first.
    tables: Vec<LaidOutTable>,
    /// Whether an element segment was not laid out: those that follow are not either.
    sets_elements: bool,
}

/// The elements of a table that the compiler lays out.
struct LaidOutTable {
    /// How many it may lay out.
    most: u64,
    /// How many it does by what is known so far: up to the end of the last segment.
    count: u64,
}

impl LaidOutTable {
    /// A table that the module does not define, or whose elements are computed.
    const NONE: Self = Self::of(0);

    const fn of(most: u64) -> Self {
        Self { most, count: 0 }
    }

    /// Lays out a segment that ends here, and returns how many more elements this makes; `None` if there is no
    /// room for it.
    fn grow_to(&mut self, top: u64) -> Option<u64> {
        let count = self.count.max(top);
        (top <= self.most).then(|| count - std::mem::replace(&mut self.count, count))
    }
}

impl ModuleTypes {
    fn signature(&self, ty: u32) -> (u32, u32) {
        self.types.get(ty as usize).copied().unwrap_or_default()
    }

    fn function(&self, function: u32) -> (u32, u32) {
        let ty = self.functions.get(function as usize);
        ty.map_or((0, 0), |ty| self.signature(*ty))
    }

    /// Adds a tag. Exceptions that carry references are refused: the engine gives each function that one refers
    /// to a number in a table of its own, which no lease pays for, and which it copies as a whole when it
    /// grows.
    fn add_tag(&mut self, ty: u32, offset: usize) -> Result<(), ProgramError> {
        if self.takes_references.get(ty as usize) == Some(&true) {
            let (offset, function) = (offset as u64, None);
            return Err(refused::refusal(
                refused::REFERENCES_IN_EXCEPTIONS,
                SourcePosition { offset, function },
            ));
        }
        self.tags.push(ty);
        Ok(())
    }

    /// Counts an element segment. Its items are set by code, one by one, unless the compiler lays them out or the
    /// segment only declares functions.
    fn count_element(
        &mut self,
        tally: &mut Tally,
        element: &Element<'_>,
    ) -> Result<(), ProgramError> {
        let items = match &element.items {
            ElementItems::Functions(items) => items.count(),
            ElementItems::Expressions(_, items) => items.count(),
        };
        tally.add(Counted::ElementItems, items.into())?;
        if let ElementItems::Expressions(_, items) = &element.items {
            for item in items.clone() {
                tally.note_expression(&item?)?;
            }
        }
        let top = laid_out_top(element);
        let is_set = match &element.kind {
            ElementKind::Declared => false,
            ElementKind::Passive => true,
            ElementKind::Active {
                table_index,
                offset_expr,
            } => {
                tally.add_computed(offset_expr)?;
                let table = self.tables.get_mut(table_index.unwrap_or(0) as usize);
                let more = match (self.sets_elements, table) {
                    (false, Some(table)) => top.and_then(|top| table.grow_to(top)),
                    _ => None,
                };
                self.sets_elements = more.is_none();
                tally.add(Counted::LaidOut, more.unwrap_or(0))?;
                self.sets_elements
            }
        };
        if !is_set {
            return Ok(());
        }
        tally.add(Counted::SetItems, items.into())?;
        // Many items at a computed place are set by functions of their own: see `initial_segments`.
        let is_moved = matches!(element.kind, ElementKind::Active { .. }) && top.is_none();
        match is_moved {
            true => Ok(()),
            false => tally.add(Counted::StartItems, items.into()),
        }
    }

    /// The values of an exception with this tag.
    fn tag(&self, tag: u32) -> u64 {
        let ty = self.tags.get(tag as usize);
        ty.map_or(0, |ty| self.signature(*ty).0.into())
    }

    /// The next body.
    fn next_body<'a>(&mut self, code: FunctionBody<'a>) -> Body<'a> {
        let index = self.bodies as u32;
        self.bodies += 1;
        let signature = self.function(index);
        Body {
            code,
            index,
            signature,
        }
    }

    /// The operands and results of a block.
    fn block(&self, ty: BlockType) -> (u32, u32) {
        match ty {
            BlockType::Empty => (0, 0),
            BlockType::Type(_) => (0, 1),
            BlockType::FuncType(ty) => self.signature(ty),
        }
    }
}

/// Counts what a function has. Its bytes are counted by then, and limit what is done here.
fn count_body(part: &mut Part, module: &ModuleTypes, body: &Body<'_>) -> Result<(), ProgramError> {
    use Counted as C;
    let tally = &mut part.tally;
    let bytes = body.code.range().len() as u64;
    let locals = body.locals()?;
    tally.note(C::BodyLocals, locals)?;
    tally.add(C::Locals, locals)?;
    tally.note(C::BodyLocalBytes, locals * bytes)?;
    tally.add(C::LocalBytes, locals * bytes)?;
    let has = Instructions::of(module, body)?;
    part.uses_exceptions |= has.exceptions;
    part.awaits |= has.waits;
    tally.note(C::AroundHandlers, has.handlers)?;
    tally.note(C::LoopDepth, has.loop_depth)?;
    tally.note(C::BodyTargets, has.targets)?;
    tally.note(C::BodyCarried, has.carried)?;
    tally.note(C::BodyTableUses, has.table_uses)?;
    let across = locals * has.loop_depth;
    tally.note(C::LoopLocals, across)?;
    tally.add(C::LoopSquares, across * across)?;
    tally.add(C::TableSquares, has.table_uses * has.table_uses)?;
    tally.add(C::BranchTargets, has.targets)?;
    tally.add(C::Carried, has.carried)?;
    tally.note(C::BodyLocalBlocks, locals * has.blocks)?;
    tally.add(C::LocalBlocks, locals * has.blocks)?;
    Ok(())
}
