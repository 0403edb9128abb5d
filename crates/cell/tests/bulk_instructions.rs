//! Bulk instructions in chunks: the same results, and an interruption between any two chunks.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold_cell::engine_config::engine_config;
use leasehold_cell::preempt::Mechanism;
use leasehold_wasm::bulk_instructions::{CHUNK, TABLE_CHUNK, chunk_bulk_operations};
use proptest::collection::vec;
use proptest::prelude::{
    Just, ProptestConfig, Strategy, any, prop_assert_eq, prop_oneof, proptest,
};
use wasmtime::component::{Component, Linker};
use wasmtime::{
    AsContextMut, Engine, Instance, Memory, Module, Store, Table, Trap, TypedFunc, UpdateDeadline,
};

fn engine() -> Engine {
    Engine::new(&engine_config(Mechanism::Epochs)).expect("the configuration is valid")
}

/// Every bulk instruction, each behind an export `(to, from or value, count)`.
fn everything() -> Vec<u8> {
    let data = "xy".repeat(CHUNK as usize + 50);
    let functions = ["$f0", "$f1", "$f2", "null", "$f4"];
    let elements: String = (0..TABLE_CHUNK as usize * 2 + 77)
        .map(|i| match functions[(i * i / 3 + i) % 5] {
            "null" => "(ref.null func)".to_owned(),
            name => format!("(ref.func {name})"),
        })
        .collect();
    let bulk = [
        ("memory.fill 0", "memory.fill $m"),
        ("memory.fill 1", "memory.fill $n"),
        ("memory.copy 0 0", "memory.copy $m $m"),
        ("memory.copy 0 1", "memory.copy $m $n"),
        ("memory.copy 1 0", "memory.copy $n $m"),
        ("memory.init long", "memory.init $m $long"),
        ("memory.init other", "memory.init $n $long"),
        ("memory.init short", "memory.init $m $short"),
        ("table.copy 0 0", "table.copy $t $t"),
        ("table.copy 0 1", "table.copy $t $u"),
        ("table.init long", "table.init $t $elements"),
        ("table.init short", "table.init $u $few"),
    ]
    .map(|(name, instruction)| {
        format!(
            r#"(func (export "{name}") (param i32 i32 i32)
                (local i64) ;; a local of the function, which the call must leave alone
                ({instruction} (local.get 0) (local.get 1) (local.get 2)))"#
        )
    })
    .concat();
    let text = format!(
        r#"(module
            (type $id (func (result i32)))
            (memory $m (export "m") 8 9) (memory $n (export "n") 5)
            (table $t {table} funcref) (table $u 5000 funcref)
            (data $long "{data}") (data $short "short")
            (elem $elements funcref {elements}) (elem $few func $f1 $f2) (elem declare func $f4)
            (func $f0 (type $id) (i32.const 10)) (func $f1 (type $id) (i32.const 11))
            (func $f2 (type $id) (i32.const 12)) (func $f4 (type $id) (i32.const 14))
            {bulk}
            (func (export "table.fill") (param i32 i32 i32)
                (table.fill $t (local.get 0)
                    (select (result funcref) (ref.func $f4) (ref.null func) (local.get 1))
                    (local.get 2)))
            (func (export "data.drop") (param i32 i32 i32) (data.drop $long))
            (func (export "elem.drop") (param i32 i32 i32) (elem.drop $elements))
            (func (export "memory.grow") (param i32 i32 i32) (drop (memory.grow $m (i32.const 1))))
            (func $hash (param $i i32) (param $hash i32) (result i32)
                (i32.mul (i32.const 16777619) (i32.xor (local.get $hash)
                    (if (result i32) (ref.is_null (table.get $t (local.get $i)))
                        (then (i32.const 1))
                        (else (call_indirect $t (type $id) (local.get $i)))))))
            (func (export "tables") (result i32) (local $i i32) (local $hash i32)
                (loop $next
                    (local.set $hash (call $hash (local.get $i) (local.get $hash)))
                    (local.set $i (i32.add (local.get $i) (i32.const 1)))
                    (br_if $next (i32.lt_u (local.get $i) (table.size $t))))
                (local.get $hash)))"#,
        table = TABLE_CHUNK * 3 + 5,
    );
    wat::parse_str(text).expect("valid text")
}

const OPERATIONS: [&str; 16] = [
    "memory.fill 0",
    "memory.fill 1",
    "memory.copy 0 0",
    "elem.drop",
    "memory.copy 0 1",
    "memory.copy 1 0",
    "memory.init long",
    "memory.init other",
    "memory.init short",
    "table.fill",
    "table.copy 0 0",
    "table.copy 0 1",
    "table.init long",
    "table.init short",
    "memory.grow",
    "data.drop",
];

/// An instance to call operations on.
struct Machine {
    store: Store<()>,
    instance: Instance,
}

impl Machine {
    fn new(engine: &Engine, module: &Module) -> Machine {
        let mut store = Store::new(engine, ());
        store.set_epoch_deadline(1);
        let instance = Instance::new(&mut store, module, &[]).expect("no imports");
        let mut machine = Machine { store, instance };
        for memory in ["m", "n"] {
            let memory = machine.memory(memory);
            for (at, byte) in memory.data_mut(&mut machine.store).iter_mut().enumerate() {
                *byte = (at * at / 7 + at / 65536) as u8;
            }
        }
        machine
    }

    fn memory(&mut self, name: &str) -> Memory {
        self.instance
            .get_memory(&mut self.store, name)
            .expect("exported")
    }

    fn run(&mut self, name: &str, operands: (u32, u32, u32)) -> Result<(), Trap> {
        let function: TypedFunc<(u32, u32, u32), ()> = self
            .instance
            .get_typed_func(&mut self.store, name)
            .expect("exported");
        let result = function.call(&mut self.store, operands);
        result.map_err(|error| *error.downcast_ref::<Trap>().expect("only traps"))
    }

    fn tables(&mut self) -> i32 {
        let hash = self
            .instance
            .get_typed_func::<(), i32>(&mut self.store, "tables");
        hash.expect("exported")
            .call(&mut self.store, ())
            .expect("no trap")
    }
}

/// Addresses and counts where chunking could go wrong: around multiples of the chunk, at the
/// ends of memories and tables, and where 32 bits overflow.
fn operand() -> impl Strategy<Value = u32> {
    let near = |unit: u32| {
        (0..6_u32, -3..=3_i32).prop_map(move |(times, off)| (unit * times).wrapping_add_signed(off))
    };
    prop_oneof![
        4 => near(CHUNK),
        2 => near(TABLE_CHUNK),
        1 => Just(0),
        1 => 0..100_u32,
        2 => 0..8 * CHUNK,
        1 => (0..10_u32).prop_map(|off| u32::MAX - off),
        1 => any::<u32>(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_rewritten_module_computes_the_same(
        program in vec((0..OPERATIONS.len(), operand(), operand(), operand()), 1..12),
    ) {
        // Compiled once for all cases.
        thread_local! {
            static MODULES: (Engine, Module, Module) = {
                let engine = engine();
                let original = everything();
                let rewritten = chunk_bulk_operations(&original, CHUNK).expect("well-formed");
                assert!(matches!(rewritten, Cow::Owned(_)));
                let original = Module::new(&engine, &original).expect("valid");
                let rewritten = Module::new(&engine, &rewritten).expect("still valid");
                (engine, original, rewritten)
            };
        }
        let (mut expected, mut actual) = MODULES.with(|(engine, original, rewritten)| {
            (Machine::new(engine, original), Machine::new(engine, rewritten))
        });
        for (operation, to, from, count) in program {
            let name = OPERATIONS[operation];
            let operands = (to, from, count);
            let result = expected.run(name, operands);
            prop_assert_eq!(actual.run(name, operands), result, "{} {:?}", name, operands);
            for memory in ["m", "n"] {
                let (e, a) = (expected.memory(memory), actual.memory(memory));
                // Not `assert_eq`, which would print both memories.
                let same = e.data(&expected.store) == a.data(&actual.store);
                assert!(same, "memory {memory} differs after {name} {operands:?}");
            }
            if name.starts_with("table") {
                prop_assert_eq!(actual.tables(), expected.tables(), "{} {:?}", name, operands);
            }
        }
    }
}

/// Calls `f` in `wasm` and counts the engine's checks for interruption; gives up after `limit`.
fn checks(wasm: &[u8], limit: u64) -> (Result<(), Trap>, u64, Store<()>, Instance) {
    let engine = engine();
    let module = Module::new(&engine, wasm).expect("valid");
    let mut store = Store::new(&engine, ());
    let count = Arc::new(AtomicU64::new(0));
    let counter = count.clone();
    store.epoch_deadline_callback(move |_| {
        if counter.fetch_add(1, Ordering::Relaxed) >= limit {
            return Err(Trap::Interrupt.into());
        }
        Ok(UpdateDeadline::Continue(0))
    });
    // Due at once, and due again at every check.
    store.set_epoch_deadline(0);
    let instance = Instance::new(&mut store, &module, &[]).expect("no imports");
    let function = instance
        .get_typed_func::<(), ()>(&mut store, "f")
        .expect("exported");
    let result = function.call(&mut store, ());
    let result = result.map_err(|error| *error.downcast_ref::<Trap>().expect("only traps"));
    (result, count.load(Ordering::Relaxed), store, instance)
}

const GIBIBYTE_FILL: &str = r#"(module (memory (export "m") 16384)
    (func (export "f")
        (memory.fill (i32.const 0) (i32.const 0x77) (i32.const 0x40000000))))"#;

#[test]
fn a_gibibyte_fill_can_be_interrupted_before_every_chunk() {
    let original = wat::parse_str(GIBIBYTE_FILL).expect("valid text");
    let rewritten = chunk_bulk_operations(&original, CHUNK).expect("well-formed");
    let (result, count, ..) = checks(&rewritten, u64::MAX);
    assert_eq!(result, Ok(()));
    // The last chunk is done after the loop.
    assert!(count >= (1 << 30) / u64::from(CHUNK) - 1, "{count} checks");
    let (_, count, ..) = checks(&original, u64::MAX);
    assert!(count < 10, "without rewriting there are {count}");
}

#[test]
fn an_interrupted_fill_stops_where_it_is() {
    let original = wat::parse_str(GIBIBYTE_FILL).expect("valid text");
    let rewritten = chunk_bulk_operations(&original, CHUNK).expect("well-formed");
    let (result, _, mut store, instance) = checks(&rewritten, 20);
    assert_eq!(result, Err(Trap::Interrupt));
    let memory = instance.get_memory(&mut store, "m").expect("exported");
    let written = memory
        .data(&store)
        .iter()
        .take_while(|&&byte| byte == 0x77)
        .count();
    assert!(
        written > 0 && written <= 20 * CHUNK as usize,
        "{written} bytes"
    );
    assert!(memory.data(&store)[written..].iter().all(|&byte| byte == 0));
}

#[test]
fn long_table_instructions_can_be_interrupted() {
    let elements = "(ref.func $f)".repeat(50_000);
    for instruction in [
        "(table.fill $t (i32.const 0) (ref.func $f) (i32.const 200000))",
        "(table.copy $t $t (i32.const 0) (i32.const 1) (i32.const 50000))",
        "(table.copy $t $t (i32.const 1) (i32.const 0) (i32.const 50000))",
        "(table.init $t $e (i32.const 0) (i32.const 0) (i32.const 50000))",
    ] {
        let text = format!(
            r#"(module (table $t 200000 funcref) (elem $e funcref {elements})
                (func $f (export "f") {instruction}))"#
        );
        let original = wat::parse_str(text).expect("valid text");
        let rewritten = chunk_bulk_operations(&original, CHUNK).expect("well-formed");
        let (result, count, ..) = checks(&rewritten, u64::MAX);
        assert_eq!(result, Ok(()), "{instruction}");
        assert!(
            count >= 50_000 / u64::from(TABLE_CHUNK) - 1,
            "{count} checks: {instruction}"
        );
    }
}

/// The most bytes, or elements, that changed between two instants at which the guest can be
/// interrupted, while it does `instruction` on memories `$m` and `$n` of 1 MiB and tables `$t` and
/// `$u` of 50,000 elements. `$m` and `$t` are full, the others empty.
fn largest_step(instruction: &str) -> (usize, usize) {
    let text = format!(
        r#"(module (memory $m (export "m") 16) (memory $n (export "n") 16)
            (table $t (export "t") 50000 funcref) (table $u (export "u") 50000 funcref)
            (data $d "{data}") (elem $e funcref {elements}) (func $f)
            (func (export "full")
                (memory.fill $m (i32.const 0) (i32.const 1) (i32.const 1048576))
                (table.fill $t (i32.const 0) (ref.func $f) (i32.const 50000)))
            (func (export "f") {instruction}))"#,
        data = "x".repeat(1 << 20),
        elements = "(ref.func $f)".repeat(50_000),
    );
    /// What memories and tables hold.
    #[derive(Clone, PartialEq, Eq)]
    struct Contents {
        bytes: Vec<u8>,
        elements: Vec<bool>,
    }
    #[derive(Default)]
    struct Watched {
        memories: Vec<Memory>,
        tables: Vec<Table>,
        last: Option<Contents>,
        most: (usize, usize),
    }
    fn look(store: &mut impl AsContextMut<Data = Watched>) -> Contents {
        let memories = store.as_context_mut().data().memories.clone();
        let tables = store.as_context_mut().data().tables.clone();
        let bytes = memories
            .iter()
            .flat_map(|m| m.data(&*store).to_vec())
            .collect();
        let mut elements = Vec::new();
        for table in tables {
            for at in 0..table.size(&*store) {
                let element = table.get(&mut *store, at).expect("inside");
                elements.push(element.as_func().flatten().is_some());
            }
        }
        Contents { bytes, elements }
    }
    fn compare(store: &mut impl AsContextMut<Data = Watched>) {
        let now = look(store);
        let mut context = store.as_context_mut();
        let watched = context.data_mut();
        if let Some(last) = &watched.last {
            let bytes = last.bytes.iter().zip(&now.bytes).filter(|(a, b)| a != b);
            let elements = last.elements.iter().zip(&now.elements);
            watched.most.0 = watched.most.0.max(bytes.count());
            watched.most.1 = watched.most.1.max(elements.filter(|(a, b)| a != b).count());
        }
        watched.last = Some(now);
    }
    let engine = engine();
    let rewritten = chunk_bulk_operations(&wat::parse_str(text).expect("valid text"), CHUNK)
        .expect("well-formed")
        .into_owned();
    let module = Module::new(&engine, rewritten).expect("still valid");
    let mut store = Store::new(&engine, Watched::default());
    store.set_epoch_deadline(1 << 40);
    let instance = Instance::new(&mut store, &module, &[]).expect("no imports");
    let run = |store: &mut Store<Watched>, name| {
        let function = instance.get_typed_func::<(), ()>(&mut *store, name);
        function
            .expect("exported")
            .call(store, ())
            .expect("no trap");
    };
    run(&mut store, "full");
    for name in ["m", "n"] {
        let memory = instance.get_memory(&mut store, name).expect("exported");
        store.data_mut().memories.push(memory);
    }
    for name in ["t", "u"] {
        let table = instance.get_table(&mut store, name).expect("exported");
        store.data_mut().tables.push(table);
    }
    compare(&mut store);
    store.epoch_deadline_callback(|mut store| {
        compare(&mut store);
        Ok(UpdateDeadline::Continue(0))
    });
    store.set_epoch_deadline(0);
    run(&mut store, "f");
    compare(&mut store);
    store.data().most
}

#[test]
fn no_bulk_instruction_does_more_than_a_chunk_between_two_interruptions() {
    let (chunk, table_chunk) = (CHUNK as usize, TABLE_CHUNK as usize);
    for instruction in [
        "(memory.fill $n (i32.const 0) (i32.const 7) (i32.const 1048576))",
        "(memory.copy $n $m (i32.const 0) (i32.const 0) (i32.const 1048576))",
        "(memory.init $n $d (i32.const 0) (i32.const 0) (i32.const 1048576))",
    ] {
        assert_eq!(largest_step(instruction), (chunk, 0), "{instruction}");
    }
    for instruction in [
        "(table.fill $u (i32.const 0) (ref.func $f) (i32.const 50000))",
        "(table.copy $u $t (i32.const 0) (i32.const 0) (i32.const 50000))",
        "(table.init $u $e (i32.const 0) (i32.const 0) (i32.const 50000))",
    ] {
        assert_eq!(largest_step(instruction), (0, table_chunk), "{instruction}");
    }
    // Growing does nothing to what there is and touches nothing of what is new.
    assert_eq!(
        largest_step("(drop (memory.grow $n (i32.const 1000)))"),
        (0, 0)
    );
}

#[test]
fn modules_inside_components_are_rewritten() {
    let text = r#"(component
        (component $inner
            (core module $m
                (memory 64)
                (func $f (memory.fill (i32.const 0) (i32.const 1) (i32.const 4194304)))
                (start $f))
            (core instance (instantiate $m)))
        (core module $unchanged (func (export "g")))
        (core instance (instantiate $unchanged))
        (instance (instantiate $inner)))"#;
    let original = wat::parse_str(text).expect("valid text");
    let rewritten = chunk_bulk_operations(&original, CHUNK).expect("well-formed");
    let engine = engine();
    let checks_of = |wasm: &[u8]| {
        let component = Component::new(&engine, wasm).expect("valid");
        let mut store = Store::new(&engine, 0_u64);
        store.epoch_deadline_callback(|mut store| {
            *store.data_mut() += 1;
            Ok(UpdateDeadline::Continue(0))
        });
        store.set_epoch_deadline(0);
        Linker::new(&engine)
            .instantiate(&mut store, &component)
            .expect("no imports");
        *store.data()
    };
    assert!(checks_of(&original) < 10);
    assert!(checks_of(&rewritten) >= 4194304 / u64::from(CHUNK) - 1);
}

#[test]
fn what_has_no_bulk_instruction_is_returned_as_it_is() {
    for text in [
        "(module)",
        r#"(module (memory 1) (data "short") (func (memory.init 0 (i32.const 0) (i32.const 0) (i32.const 1))))"#,
        "(component (core module (func)) (component (core module (memory 1))))",
    ] {
        let original = wat::parse_str(text).expect("valid text");
        let rewritten = chunk_bulk_operations(&original, CHUNK).expect("well-formed");
        assert!(matches!(rewritten, Cow::Borrowed(_)), "{text}");
    }
}

#[test]
fn custom_sections_stay_but_for_those_with_offsets_into_functions() {
    let text = r#"(module $named (memory 1)
        (@custom "keep" "contents")
        (@custom "metadata.code.branch_hint" (after code) "\00")
        (func $fill (memory.fill (i32.const 0) (i32.const 1) (i32.const 2))))"#;
    let original = wat::parse_str(text).expect("valid text");
    let rewritten = chunk_bulk_operations(&original, CHUNK).expect("well-formed");
    let customs: Vec<(String, Vec<u8>)> = wasmparser::Parser::new(0)
        .parse_all(&rewritten)
        .filter_map(|payload| match payload.expect("well-formed") {
            wasmparser::Payload::CustomSection(section) => {
                Some((section.name().to_owned(), section.data().to_owned()))
            }
            _ => None,
        })
        .collect();
    let names: Vec<&str> = customs.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["keep", "name"]);
    assert_eq!(customs[0].1, b"contents");
}
