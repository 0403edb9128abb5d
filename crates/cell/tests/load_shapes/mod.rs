//! Programs with any number of parts of one kind.

use wasm_encoder::{
    BlockType, Catch, CodeSection, ConstExpr, DataSection, ElementSection, Elements, EntityType,
    ExportKind, ExportSection, Function, FunctionSection, GlobalSection, GlobalType, ImportSection,
    Instruction, MemorySection, MemoryType, Module, RefType, TableSection, TableType, TagKind,
    TagSection, TagType, TypeSection, ValType,
};

/// A kind of program.
pub(crate) struct Shape {
    /// The limit that it meets.
    pub(crate) what: &'static str,
    /// Of how much of it one is just within the limit.
    pub(crate) most: usize,
    /// Makes one.
    pub(crate) make: fn(usize) -> Vec<u8>,
}

const fn shape(what: &'static str, most: usize, make: fn(usize) -> Vec<u8>) -> Shape {
    Shape { what, most, make }
}

/// For each limit the known programs that take longest to load.
pub(crate) const SHAPES: &[Shape] = &[
    shape("types", 8_190, types),
    shape("types", 8_190, rec_group),
    shape("parameters and results of all types", 510, wide_types),
    shape("parameters and results of a type", 64, |n| one_type(n * 2)),
    shape("functions", 131_000, functions),
    shape("imports", 4_096, imports),
    shape("exports", 65_000, exports),
    shape("bytes in names of imports and exports", 41, long_exports),
    shape("tables and memories", 99, tables),
    shape("globals", 8_190, |n| computed_globals(n, 3)),
    shape("items of element segments", 1 << 20, elements),
    shape("items of element segments", 1 << 20, declared_elements),
    shape(
        "items of element segments that are set one by one",
        98_300,
        elements_at_a_computed_place,
    ),
    shape(
        "items of element segments that the start of a module sets",
        8_190,
        elements_beyond_a_table,
    ),
    shape(
        "items of element segments that the start of a module sets",
        8_190,
        passive_elements,
    ),
    shape("elements of tables that are laid out", 4, full_tables),
    shape("segments of data", 100_000, data),
    shape("segments of data", 100_000, data_beyond_a_memory),
    shape("instructions of a constant expression", 63, |n| {
        computed_globals(1, n)
    }),
    shape(
        "instructions of constant expressions that are computed",
        1_040,
        |n| computed_globals(n, 63),
    ),
    shape(
        "instructions of constant expressions that are computed",
        65_500,
        data_at_computed_places,
    ),
    shape(
        "instructions of constant expressions that are computed",
        65_500,
        elements_at_computed_places,
    ),
    shape("custom sections", 4_096, customs),
    shape("modules and components", 250, nested),
    shape("components inside each other", 8, deep_components),
    shape("bytes of component sections", 170_000, component_aliases),
    shape("levels of a component type", 60, deep_instances),
    shape(
        "parts of component types, each as often as it is used",
        170_000,
        component_types,
    ),
    shape(
        "parts of component types, each as often as it is used",
        50,
        exported_instances,
    ),
    shape(
        "parts of component types, each as often as it is used",
        120,
        lifted_tuples,
    ),
    shape(
        "resources times parts of component types, each as often as it is used",
        1_800,
        passed_resources,
    ),
    shape("bytes of code in a function", 149_000, one_body),
    shape("bytes of code in a function", 520_000, body_calls),
    shape("bytes of code in a function", 115_000, body_loads),
    shape("locals in a function", 8_190, locals),
    shape("locals of all functions", 512, |n| {
        locals_functions(n, 8_190)
    }),
    shape("targets of branch tables in a function", 65_510, br_table),
    shape(
        "targets of branch tables in a function",
        360,
        br_tables_blocks,
    ),
    shape("targets of branch tables", 160, |n| {
        br_tables_functions(n, 6_500)
    }),
    shape(
        "values that calls and branches carry in a function",
        500,
        |n| wide_blocks(1, n),
    ),
    shape(
        "values that calls and branches carry in a function",
        500,
        |n| call_args(1, n),
    ),
    shape("values that calls and branches carry", 62, |n| {
        wide_blocks(n, 500)
    }),
    shape("values that calls and branches carry", 62, |n| {
        call_args(n, 500)
    }),
    shape("loops inside each other", 64, |n| loops(n, 16, 1, false)),
    shape(
        "locals times loops inside each other in a function",
        250,
        |n| loops(64, n, 1, false),
    ),
    shape(
        "locals times loops inside each other in a function",
        2_000,
        |n| loops(8, n, 1, false),
    ),
    shape(
        "squares of locals times loops inside each other, of all functions",
        16,
        |n| loops(64, 250, n, false),
    ),
    shape("locals times blocks in a function", 8_300, |n| {
        ifs_nested(n, 1_000, 1)
    }),
    shape("locals times blocks of all functions", 15, |n| {
        ifs_nested(8_300, 1_000, n)
    }),
    shape("locals times bytes in a function", 2_450, |n| {
        loops(10, n, 1, true)
    }),
    shape("locals times bytes in a function", 785, |n| {
        loops(100, n, 1, true)
    }),
    shape("locals times bytes of all functions", 7, |n| {
        loops(10, 2_450, n, true)
    }),
    shape("tags of exceptions", 4_090, tags),
    shape("handlers of exceptions around an instruction", 512, |n| {
        handlers(1, n, 1)
    }),
    shape(
        "handlers of exceptions around the calls of a function",
        32_700,
        |n| handlers(n, 0, 1),
    ),
    shape(
        "handlers of exceptions around the calls of a function",
        63,
        |n| handlers(n, 512, 1),
    ),
    shape(
        "handlers of exceptions around the calls of a function",
        255,
        |n| functions_with_handlers(n, 510, 127, 1, 0),
    ),
    shape(
        "handlers of exceptions around the calls of all functions",
        14_000,
        |n| handlers(32, 8, n),
    ),
    shape(
        "squares of handlers of exceptions around calls, of all functions",
        4,
        |n| handlers(63, 512, n),
    ),
    shape(
        "locals times handlers of exceptions that merge them in a function",
        98,
        |n| functions_with_handlers(64, 64, 64, 1, n),
    ),
    shape(
        "locals times handlers of exceptions that merge them, of all functions",
        4,
        |n| functions_with_handlers(64, 64, 64, n, 98),
    ),
    shape(
        "calls through and uses of tables in a function",
        2_040,
        |n| calls_through_a_table(n, 1),
    ),
    shape(
        "squares of calls through and uses of tables, of all functions",
        8,
        |n| calls_through_a_table(2_040, n),
    ),
];

/// So many tags.
fn tags(n: usize) -> Vec<u8> {
    let mut start = Function::new([]);
    start.instruction(&Instruction::End);
    let mut parts = base(start);
    for _ in 0..n {
        parts.tags.tag(TAG);
    }
    finish(&parts)
}

/// A tag of exceptions without values.
const TAG: TagType = TagType {
    kind: TagKind::Exception,
    func_type_idx: 0,
};

/// Functions with so many calls, each inside so many handlers that all may be reached.
pub(crate) fn handlers(calls: usize, around: usize, functions: usize) -> Vec<u8> {
    functions_with_handlers(calls, around, around, functions, 0)
}

/// Functions with so many calls, each inside so many handlers, one inside the other, of so many tags. Before each call
/// all locals change, and they are used in the end.
pub(crate) fn functions_with_handlers(
    calls: usize,
    around: usize,
    tags: usize,
    functions: usize,
    changing: usize,
) -> Vec<u8> {
    let mut start = Function::new([]);
    start.instruction(&Instruction::Throw(0));
    start.instruction(&Instruction::End);
    let mut parts = base(start);
    for _ in 0..tags.max(1) {
        parts.tags.tag(TAG);
    }
    for _ in 0..functions {
        let mut function = Function::new([(changing as u32, ValType::I32)]);
        for nth in 0..around {
            // Each with a place of its own to go to.
            function.instruction(&Instruction::Block(BlockType::Empty));
            let tag = (nth % tags) as u32;
            let catch = [Catch::One { tag, label: 0 }];
            function.instruction(&Instruction::TryTable(BlockType::Empty, catch[..].into()));
        }
        for _ in 0..calls {
            change_locals(&mut function, changing);
            function.instruction(&Instruction::Call(0));
        }
        for _ in 0..2 * around {
            function.instruction(&Instruction::End);
        }
        use_locals(&mut function, changing);
        function.instruction(&Instruction::End);
        parts.functions.function(0);
        parts.code.function(&function);
    }
    finish(&parts)
}

struct Parts {
    tags: TagSection,
    types: TypeSection,
    imports: ImportSection,
    functions: FunctionSection,
    tables: TableSection,
    globals: GlobalSection,
    exports: ExportSection,
    elements: ElementSection,
    code: CodeSection,
}

/// A program with `_start` as function 0 of type 0, of which this is the body.
fn base(start: Function) -> Parts {
    let mut parts = Parts {
        tags: TagSection::new(),
        types: TypeSection::new(),
        imports: ImportSection::new(),
        functions: FunctionSection::new(),
        tables: TableSection::new(),
        globals: GlobalSection::new(),
        exports: ExportSection::new(),
        elements: ElementSection::new(),
        code: CodeSection::new(),
    };
    parts.types.ty().function([], []);
    parts.functions.function(0);
    parts.exports.export("_start", ExportKind::Func, 0);
    parts.code.function(&start);
    parts
}

fn finish(parts: &Parts) -> Vec<u8> {
    let mut memories = MemorySection::new();
    memories.memory(MemoryType {
        minimum: 1,
        maximum: None,
        memory64: false,
        shared: false,
        page_size_log2: None,
    });
    let mut module = Module::new();
    module.section(&parts.types);
    if !parts.imports.is_empty() {
        module.section(&parts.imports);
    }
    module.section(&parts.functions);
    if !parts.tables.is_empty() {
        module.section(&parts.tables);
    }
    module.section(&memories);
    if !parts.tags.is_empty() {
        module.section(&parts.tags);
    }
    if !parts.globals.is_empty() {
        module.section(&parts.globals);
    }
    module.section(&parts.exports);
    if !parts.elements.is_empty() {
        module.section(&parts.elements);
    }
    module.section(&parts.code);
    module.finish()
}

fn empty() -> Function {
    body(0, |_| ())
}

fn body(locals: u32, fill: impl FnOnce(&mut Function)) -> Function {
    let mut function = Function::new([(locals, ValType::I32)]);
    fill(&mut function);
    function.instruction(&Instruction::End);
    function
}

/// Seven value types that are a number's digits, so that types differ.
fn distinct(number: usize) -> Vec<ValType> {
    let types = [ValType::I32, ValType::I64, ValType::F32, ValType::F64];
    (0..7)
        .map(|digit| types[(number >> (2 * digit)) % 4])
        .collect()
}

fn types(n: usize) -> Vec<u8> {
    let mut parts = base(empty());
    for number in 0..n {
        parts.types.ty().function(distinct(number), []);
    }
    finish(&parts)
}

fn rec_group(n: usize) -> Vec<u8> {
    let mut parts = base(empty());
    let sub = wasm_encoder::SubType {
        is_final: true,
        supertype_idx: None,
        composite_type: wasm_encoder::CompositeType {
            inner: wasm_encoder::CompositeInnerType::Func(wasm_encoder::FuncType::new([], [])),
            shared: false,
            descriptor: None,
            describes: None,
        },
    };
    parts.types.ty().rec(vec![sub; n]);
    finish(&parts)
}

fn wide_types(n: usize) -> Vec<u8> {
    let mut parts = base(empty());
    for number in 0..n {
        let mut params = distinct(number);
        params.resize(128, ValType::I32);
        parts.types.ty().function(params, []);
    }
    finish(&parts)
}

fn functions(n: usize) -> Vec<u8> {
    let mut parts = base(empty());
    for _ in 0..n {
        parts.functions.function(0);
        parts.code.function(&empty());
    }
    finish(&parts)
}

fn imports(n: usize) -> Vec<u8> {
    let mut parts = base(empty());
    parts.types.ty().function([ValType::I32], []);
    for _ in 0..n {
        parts.imports.import(
            "wasi_snapshot_preview1",
            "proc_exit",
            EntityType::Function(1),
        );
    }
    parts.exports = ExportSection::new();
    parts.exports.export("_start", ExportKind::Func, n as u32);
    finish(&parts)
}

fn exports(n: usize) -> Vec<u8> {
    let mut parts = base(empty());
    for number in 0..n {
        parts
            .exports
            .export(&format!("f{number}"), ExportKind::Func, 0);
    }
    finish(&parts)
}

fn one_body(n: usize) -> Vec<u8> {
    finish(&base(body(2, |f| {
        for _ in 0..n {
            f.instruction(&Instruction::LocalGet(0));
            f.instruction(&Instruction::LocalGet(1));
            f.instruction(&Instruction::I32Add);
            f.instruction(&Instruction::LocalSet(0));
        }
    })))
}

fn body_calls(n: usize) -> Vec<u8> {
    finish(&base(body(0, |f| {
        for _ in 0..n {
            f.instruction(&Instruction::Call(0));
        }
    })))
}

fn memarg(offset: u64) -> wasm_encoder::MemArg {
    wasm_encoder::MemArg {
        offset,
        align: 0,
        memory_index: 0,
    }
}

fn body_loads(n: usize) -> Vec<u8> {
    finish(&base(body(1, |f| {
        for at in 0..n {
            f.instruction(&Instruction::LocalGet(0));
            f.instruction(&Instruction::I32Load(memarg(at as u64)));
            f.instruction(&Instruction::LocalSet(0));
        }
    })))
}

fn br_table(n: usize) -> Vec<u8> {
    finish(&base(body(1, |f| {
        f.instruction(&Instruction::LocalGet(0));
        f.instruction(&Instruction::BrTable(vec![0; n].into(), 0));
    })))
}

/// Every table goes to every block.
fn br_tables_blocks(n: usize) -> Vec<u8> {
    finish(&base(body(1, |f| {
        for _ in 0..n {
            f.instruction(&Instruction::Block(BlockType::Empty));
        }
        for depth in 0..n {
            let targets: Vec<u32> = (0..(n - depth) as u32).collect();
            f.instruction(&Instruction::LocalGet(0));
            f.instruction(&Instruction::BrTable(targets.into(), 0));
            f.instruction(&Instruction::End);
        }
    })))
}

fn locals(n: usize) -> Vec<u8> {
    finish(&base(body(n as u32, |f| {
        for local in 0..n as u32 {
            f.instruction(&Instruction::LocalGet(local));
            f.instruction(&Instruction::Drop);
        }
    })))
}

fn locals_functions(n: usize, locals: u32) -> Vec<u8> {
    let mut parts = base(empty());
    for _ in 0..n {
        parts.functions.function(0);
        parts.code.function(&body(locals, |_| ()));
    }
    finish(&parts)
}

fn one_type(n: usize) -> Vec<u8> {
    let mut parts = base(empty());
    parts.types.ty().function(vec![ValType::I32; n], []);
    finish(&parts)
}

fn long_exports(n: usize) -> Vec<u8> {
    let mut parts = base(empty());
    let name = "n".repeat(99_990);
    for number in 0..n {
        parts
            .exports
            .export(&format!("{name}{number}"), ExportKind::Func, 0);
    }
    finish(&parts)
}

fn data(n: usize) -> Vec<u8> {
    let mut binary = finish(&base(empty()));
    let mut data = DataSection::new();
    for at in 0..n {
        data.active(0, &ConstExpr::i32_const((at % 60_000) as i32), [1]);
    }
    use wasm_encoder::Encode;
    binary.push(11);
    data.encode(&mut binary);
    binary
}

fn br_tables_functions(n: usize, targets: usize) -> Vec<u8> {
    let mut parts = base(empty());
    for _ in 0..n {
        parts.functions.function(0);
        parts.code.function(&body(1, |f| {
            for _ in 0..100 {
                f.instruction(&Instruction::Block(BlockType::Empty));
            }
            for left in (1..=100_u32).rev() {
                f.instruction(&Instruction::LocalGet(0));
                f.instruction(&Instruction::BrTable(
                    (0..targets as u32 / 100).map(|at| at % left).collect(),
                    0,
                ));
                f.instruction(&Instruction::End);
            }
        }));
    }
    finish(&parts)
}

/// In `functions`, `n` blocks that take and leave 64 values.
fn wide_blocks(functions: usize, n: usize) -> Vec<u8> {
    let mut parts = base(empty());
    parts
        .types
        .ty()
        .function([ValType::I32; 64], [ValType::I32; 64]);
    for _ in 0..functions {
        parts.functions.function(0);
        parts.code.function(&body(0, |f| {
            for value in 0..64 {
                f.instruction(&Instruction::I32Const(value));
            }
            for _ in 0..n {
                f.instruction(&Instruction::Loop(BlockType::FunctionType(1)));
                f.instruction(&Instruction::End);
            }
            for _ in 0..64 {
                f.instruction(&Instruction::Drop);
            }
        }));
    }
    finish(&parts)
}

/// In `functions`, `n` calls that take and give 64 values.
fn call_args(functions: usize, n: usize) -> Vec<u8> {
    let mut parts = base(empty());
    parts
        .types
        .ty()
        .function([ValType::I32; 64], [ValType::I32; 64]);
    for _ in 0..functions {
        parts.functions.function(1);
        parts.code.function(&body(0, |f| {
            for value in 0..64 {
                f.instruction(&Instruction::LocalGet(value));
            }
            for _ in 0..n {
                f.instruction(&Instruction::Call(1));
            }
        }));
    }
    finish(&parts)
}

fn change_locals(f: &mut Function, locals: usize) {
    for local in 0..locals as u32 {
        f.instruction(&Instruction::LocalGet(local));
        f.instruction(&Instruction::I32Const(1));
        f.instruction(&Instruction::I32Add);
        f.instruction(&Instruction::LocalSet(local));
    }
}

fn use_locals(f: &mut Function, locals: usize) {
    for local in 0..locals as u32 {
        f.instruction(&Instruction::I32Const(0));
        f.instruction(&Instruction::LocalGet(local));
        f.instruction(&Instruction::I32Store(memarg(0)));
    }
}

/// Locals that all change in loops, inside each other or one after the other.
fn loops(depth: usize, locals: usize, functions: usize, sequential: bool) -> Vec<u8> {
    let mut parts = base(empty());
    let close = |f: &mut Function| {
        f.instruction(&Instruction::LocalGet(0));
        f.instruction(&Instruction::BrIf(0));
        f.instruction(&Instruction::End);
    };
    for _ in 0..functions {
        parts.functions.function(0);
        parts.code.function(&body(locals as u32, |f| {
            for _ in 0..depth {
                f.instruction(&Instruction::Loop(BlockType::Empty));
                if sequential {
                    change_locals(f, locals);
                    close(f);
                }
            }
            if !sequential {
                change_locals(f, locals);
                for _ in 0..depth {
                    close(f);
                }
            }
        }));
    }
    finish(&parts)
}

/// Locals that all change in the innermost of many `if`s, and are used after them.
fn ifs_nested(depth: usize, locals: usize, functions: usize) -> Vec<u8> {
    let mut parts = base(empty());
    for _ in 0..functions {
        parts.functions.function(0);
        parts.code.function(&body(locals as u32, |f| {
            for _ in 0..depth {
                f.instruction(&Instruction::LocalGet(0));
                f.instruction(&Instruction::If(BlockType::Empty));
            }
            change_locals(f, locals);
            for _ in 0..depth {
                f.instruction(&Instruction::End);
            }
            use_locals(f, locals);
        }));
    }
    finish(&parts)
}

fn tables(n: usize) -> Vec<u8> {
    let mut parts = base(empty());
    for _ in 0..n {
        parts.tables.table(TableType {
            element_type: RefType::FUNCREF,
            minimum: 0,
            maximum: None,
            table64: false,
            shared: false,
        });
    }
    finish(&parts)
}

/// `functions` of `n` calls through a table each.
fn calls_through_a_table(n: usize, functions: usize) -> Vec<u8> {
    let calls = body(0, |f| {
        for _ in 0..n {
            f.instruction(&Instruction::I32Const(0));
            f.instruction(&Instruction::CallIndirect {
                type_index: 0,
                table_index: 0,
            });
        }
    });
    let mut parts = base(empty());
    parts.tables.table(TableType {
        element_type: RefType::FUNCREF,
        minimum: 1,
        maximum: None,
        table64: false,
        shared: false,
    });
    for _ in 0..functions {
        parts.functions.function(0);
        parts.code.function(&calls);
    }
    finish(&parts)
}

fn elements(n: usize) -> Vec<u8> {
    let mut parts = base(empty());
    parts.tables.table(TableType {
        element_type: RefType::FUNCREF,
        minimum: n as u64,
        maximum: None,
        table64: false,
        shared: false,
    });
    parts.elements.active(
        Some(0),
        &ConstExpr::i32_const(0),
        Elements::Functions(vec![0; n].into()),
    );
    finish(&parts)
}

/// So many globals, each computed with so many instructions.
fn computed_globals(n: usize, instructions: usize) -> Vec<u8> {
    let mut parts = base(empty());
    for number in 0..n {
        let mut value = ConstExpr::i32_const(number as i32);
        for addend in 0..instructions / 2 {
            value = value.with_i32_const(addend as i32).with_i32_mul();
        }
        let ty = GlobalType {
            val_type: ValType::I32,
            mutable: false,
            shared: false,
        };
        parts.globals.global(ty, &value);
    }
    finish(&parts)
}

/// Elements of expressions, of a segment that only declares them.
fn declared_elements(n: usize) -> Vec<u8> {
    let mut parts = base(empty());
    let items = vec![ConstExpr::ref_func(0); n];
    let items = Elements::Expressions(RefType::FUNCREF, items.into());
    parts.elements.declared(items);
    finish(&parts)
}

/// Elements of a segment that its table has no room for.
fn elements_beyond_a_table(n: usize) -> Vec<u8> {
    const FUNCTIONS: u32 = 4_096;
    let mut parts = base(empty());
    for _ in 1..FUNCTIONS {
        parts.functions.function(0);
        parts.code.function(&empty());
    }
    parts.tables.table(functions_table(0));
    let items: Vec<u32> = (0..n as u32).map(|at| at % FUNCTIONS).collect();
    parts.elements.active(
        Some(0),
        &ConstExpr::i32_const(0),
        Elements::Functions(items.into()),
    );
    finish(&parts)
}

/// Tables of which the last element is known.
fn full_tables(n: usize) -> Vec<u8> {
    let mut parts = base(empty());
    for table in 0..n {
        parts.tables.table(functions_table(1 << 20));
        parts.elements.active(
            Some(table as u32),
            &ConstExpr::i32_const((1 << 20) - 1),
            Elements::Functions(vec![0].into()),
        );
    }
    finish(&parts)
}

const fn functions_table(minimum: u64) -> TableType {
    TableType {
        element_type: RefType::FUNCREF,
        minimum,
        maximum: None,
        table64: false,
        shared: false,
    }
}

/// Segments of data that are not merged, since the last one does not fit.
fn data_beyond_a_memory(n: usize) -> Vec<u8> {
    let mut binary = finish(&base(empty()));
    let mut data = DataSection::new();
    for at in 1..n {
        data.active(0, &ConstExpr::i32_const((at % 60_000) as i32), []);
    }
    data.active(0, &ConstExpr::i32_const(70_000), []);
    use wasm_encoder::Encode;
    binary.push(11);
    data.encode(&mut binary);
    binary
}

/// A component with a module that is never instantiated, but compiled. It imports a number, and has a memory and a table.
fn in_a_component(fields: &str) -> Vec<u8> {
    text(&format!(
        r#"(component {RUN}
          (core module (import "" "number" (global $number i32)) (memory 1) (table 1000000 funcref)
            (func $f) {fields}))"#
    ))
}

fn data_at_computed_places(n: usize) -> Vec<u8> {
    in_a_component(&r#"(data (global.get 0) "")"#.repeat(n))
}

fn elements_at_computed_places(n: usize) -> Vec<u8> {
    in_a_component(&"(elem (global.get 0) func)".repeat(n))
}

fn elements_at_a_computed_place(n: usize) -> Vec<u8> {
    let offset = format!(
        "(offset global.get 0 {})",
        "global.get 0 i32.mul ".repeat(31)
    );
    in_a_component(&format!("(elem {offset} func {})", "0 ".repeat(n)))
}

fn passive_elements(n: usize) -> Vec<u8> {
    in_a_component(&format!("(elem func {})", "0 ".repeat(n)))
}

fn customs(n: usize) -> Vec<u8> {
    let mut binary = finish(&base(empty()));
    for _ in 0..n {
        binary.extend([0, 2, 1, b'x']);
    }
    binary
}

fn text(text: &str) -> Vec<u8> {
    wat::parse_str(text).expect("text")
}

const RUN: &str = r#"(core module $m (func (export "f") (result i32) i32.const 0))
    (core instance $m (instantiate $m))
    (func $run (result (result)) (canon lift (core func $m "f")))
    (instance $r (export "run" (func $run)))
    (export "wasi:cli/run@0.2.0" (instance $r))"#;

fn component_types(n: usize) -> Vec<u8> {
    let types: String = (0..n)
        .map(|at| format!("(type (tuple u32 u{}))", [8, 16, 32, 64][at % 4]))
        .collect();
    text(&format!("(component {types} {RUN})"))
}

fn component_aliases(n: usize) -> Vec<u8> {
    let aliases = r#"(alias core export $m "f" (core func))"#.repeat(n);
    text(&format!("(component {RUN} {aliases})"))
}

fn nested(n: usize) -> Vec<u8> {
    text(&format!("(component {} {RUN})", "(component)".repeat(n)))
}

fn deep_components(n: usize) -> Vec<u8> {
    text(&format!(
        "(component {RUN} {}{})",
        "(component ".repeat(n - 1),
        ")".repeat(n - 1)
    ))
}

/// So many instances of which each holds the one before.
fn deep_instances(n: usize) -> Vec<u8> {
    let mut out = r#"(instance $i0 (export "f" (func $run)))"#.to_owned();
    for level in 1..=n {
        out += &format!(
            r#"(instance $i{level} (export "a" (instance $i{})))"#,
            level - 1
        );
    }
    text(&format!("(component {RUN} {out})"))
}

/// So many exports of an instance that holds another one twice, which holds a third one twice, and so on.
fn exported_instances(n: usize) -> Vec<u8> {
    let mut out = r#"(instance $i0 (export "f" (func $run)))"#.to_owned();
    for level in 1..=10 {
        let below = level - 1;
        out += &format!(
            r#"(instance $i{level} (export "a" (instance $i{below})) (export "b" (instance $i{below})))"#
        );
    }
    let exports: String = (0..n)
        .map(|at| format!(r#"(export "x{at}" (instance $i10))"#))
        .collect();
    text(&format!("(component {RUN} {out} {exports})"))
}

/// So many functions that take a tuple of two tuples of two tuples, and so on.
fn lifted_tuples(n: usize) -> Vec<u8> {
    let mut out = "(type $t0 (tuple u8 u8))".to_owned();
    for level in 1..=10 {
        let below = level - 1;
        out += &format!("(type $t{level} (tuple $t{below} $t{below}))");
    }
    let functions = r#"(func (type $taking) (canon lift (core func $lifted "take")
        (memory (core memory $lifted "memory")) (realloc (core func $lifted "realloc"))))"#
        .repeat(n);
    text(&format!(
        r#"(component {RUN} {out} (type $taking (func (param "it" $t10)))
          (core module $lifted (memory (export "memory") 1) (func (export "take") (param i32))
            (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 0)))
          (core instance $lifted (instantiate $lifted)) {functions})"#
    ))
}

/// A component that is passed an instance with so many resources, each of which the engine looks up in a copy of it.
fn passed_resources(n: usize) -> Vec<u8> {
    let each = |part: &dyn Fn(usize) -> String| (0..n).map(part).collect::<String>();
    let declared = each(&|at| format!(r#"(export "r{at}" (type (sub resource)))"#));
    let defined = each(&|at| format!("(type $r{at} (resource (rep i32)))"));
    let bundled = each(&|at| format!(r#"(export "r{at}" (type $r{at}))"#));
    text(&format!(
        r#"(component {RUN}
          (component $user (import "i" (instance {declared})))
          {defined} (instance $given {bundled})
          (instance (instantiate $user (with "i" (instance $given)))))"#
    ))
}

/// What components inside of a program may pass each other, which is counted apart.
pub(crate) const ADAPTED: &[Shape] = &[
    shape("parts of what components pass each other", 3_100, |n| {
        adapters(n, "string", "utf8", "utf8")
    }),
    shape("parts of what components pass each other", 3_100, |n| {
        adapters(n, "string", "utf16", "latin1+utf16")
    }),
    shape("parts of what components pass each other", 1_400, |n| {
        adapters(n, TUPLE, "utf8", "utf8")
    }),
    shape("parts of what components pass each other", 1_000, |n| {
        adapters(n, CASES, "utf8", "utf8")
    }),
];

const TUPLE: &str = "(tuple u8 s8 u16 s16 bool char u8 s8 u16 s16 bool char u8 s8 u16)";

const CASES: &str = "(result (tuple u8 u16 u32 u64 f32 f64 char)
  (error (result (tuple u64 u16 u8 f64 u32 char) (error (tuple f64 u64 f32 u32 char)))))";

/// Two components of which one calls so many functions of the other, each with a value of this type.
fn adapters(n: usize, ty: &str, from: &str, to: &str) -> Vec<u8> {
    let each = |part: &dyn Fn(usize) -> String| (0..n).map(part).collect::<String>();
    let lifted = each(&|at| {
        format!(
            r#"(func (export "f{at}") (param "it" $t) (canon lift (core func $i "f")
                 (memory (core memory $i "memory")) (realloc (core func $i "realloc")) string-encoding={to}))"#
        )
    });
    let imported = each(&|at| format!(r#"(import "f{at}" (func $f{at} (param "it" $t)))"#));
    let lowered = each(&|at| {
        format!(
            r#"(core func $l{at} (canon lower (func $f{at}) (memory (core memory $m "memory"))
                 string-encoding={from}))"#
        )
    });
    let exports = each(&|at| format!(r#"(export "f{at}" (func $l{at}))"#));
    let given = each(&|at| format!(r#"(with "f{at}" (func $callee "f{at}"))"#));
    // A string is an address and a length; a value that is not flat is an address.
    let signature = match ty {
        "string" => "i32 i32",
        TUPLE => "i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32",
        _ => "i32 i32 i64 i64 i64 i64 i64 i32",
    };
    let used = each(&|at| format!(r#"(import "" "f{at}" (func (param {signature})))"#));
    text(&format!(
        r#"(component {RUN}
          (component $callee (type $t {ty})
            (core module $m (memory (export "memory") 1)
              (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 0))
              (func (export "f") (param {signature})))
            (core instance $i (instantiate $m)) {lifted})
          (component $caller (type $t {ty}) {imported}
            (core module $m (memory (export "memory") 1))
            (core instance $m (instantiate $m)) {lowered}
            (core module $u {used})
            (core instance (instantiate $u (with "" (instance {exports})))))
          (instance $callee (instantiate $callee))
          (instance (instantiate $caller {given})))"#
    ))
}

/// Components of which each instantiates the one before twice.
pub(crate) fn doubling_components(n: usize) -> Vec<u8> {
    let mut out = String::from("(component (component $c0)");
    for level in 1..=n {
        out += &format!(
            "(component $c{level} (alias outer 1 $c{} (component $i)) (instance (instantiate $i)) (instance (instantiate $i)))",
            level - 1
        );
    }
    out += &format!("(instance (instantiate $c{n})) {RUN})");
    text(&out)
}
