//! Segments that the guest copies mean what they meant when the engine copied them.

use std::fmt::Write as _;

use leasehold_wasm::initial_segments::{MostCopied, copy_segments_at_start};
use wasmtime::{
    Engine, Global, GlobalType, Instance, Module, Mutability, Store, Trap, Val, ValType,
};

const TABLE: usize = 1500;

/// Numbers that look random.
struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % most as u64) as usize
    }
}

/// A module of two tables with segments of elements in all forms, some of which do not fit, and data.
fn module(random: &mut Random) -> String {
    let mut text = format!(
        "(module (import \"a\" \"g\" (global $g i32)) (memory (export \"memory\") 1)
           (table (export \"0\") {TABLE} funcref) (table (export \"1\") {TABLE} funcref)"
    );
    for function in 0..8 {
        write!(
            text,
            "(func $f{function} (result i32) (i32.const {function}))"
        )
        .expect("text");
    }
    for _ in 0..1 + random.below(4) {
        let count = random.below(700);
        // Mostly inside.
        let at = random.below(TABLE - count + TABLE / 20);
        let offset = match random.below(2) {
            0 => format!("(i32.const {at})"),
            _ => "(global.get $g)".to_owned(),
        };
        let named = random.below(2) == 0;
        let items: String = (0..count)
            .map(|_| match (named, random.below(9)) {
                (true, function) => format!("$f{} ", function % 8),
                (false, 8) => "(ref.null func) ".to_owned(),
                (false, function) => format!("(ref.func $f{function}) "),
            })
            .collect();
        let kind = if named { "func" } else { "funcref" };
        match random.below(8) {
            0 => write!(text, "(elem {kind} {items})"),
            1 => write!(text, "(elem declare {kind} {items})"),
            _ => write!(
                text,
                "(elem (table {}) {offset} {kind} {items})",
                random.below(2)
            ),
        }
        .expect("text");
    }
    let at = random.below(65_600);
    write!(text, "(data (i32.const {at}) \"data\"))").expect("text");
    text
}

/// What tables and memory hold after instantiation, or why that traps.
fn contents(engine: &Engine, wasm: &[u8]) -> Result<(Vec<i32>, Vec<u8>), Trap> {
    let module = Module::new(engine, wasm).expect("valid");
    let mut store = Store::new(engine, ());
    let ty = GlobalType::new(ValType::I32, Mutability::Const);
    let global = Global::new(&mut store, ty, Val::I32(77)).expect("a global");
    let instance = Instance::new(&mut store, &module, &[global.into()])
        .map_err(|error| *error.downcast_ref::<Trap>().expect("a trap"))?;
    let mut found = Vec::new();
    for name in ["0", "1"] {
        let table = instance.get_table(&mut store, name).expect("exported");
        for at in 0..TABLE as u64 {
            let element = table.get(&mut store, at).expect("inside");
            let function = element.as_func().expect("a function").copied();
            found.push(function.map_or(-1, |function| {
                let function = function.typed::<(), i32>(&store).expect("its type");
                function.call(&mut store, ()).expect("returned")
            }));
        }
    }
    let memory = instance.get_memory(&mut store, "memory").expect("exported");
    Ok((found, memory.data(&store).to_vec()))
}

#[test]
fn tables_and_memories_begin_with_the_same_or_nothing_does() {
    let engine = Engine::default();
    let mut random = Random(11);
    let most = MostCopied {
        data_bytes: usize::MAX,
        data_pages: u64::MAX,
        elements: 0,
        element_pages: 0,
    };
    let (mut moved, mut trapped) = (0, 0);
    for _ in 0..200 {
        let text = module(&mut random);
        let original = wat::parse_str(&text).expect("a module");
        let rewritten = copy_segments_at_start(&original, most).expect("well-formed");
        moved += usize::from(*rewritten != *original);
        let expected = contents(&engine, &original);
        trapped += usize::from(expected.is_err());
        assert!(contents(&engine, &rewritten) == expected, "{text}");
    }
    assert!(moved > 100 && trapped > 5, "{moved} {trapped}");
}

/// A module with segments of data in all forms, some of which overlap and some of which do not fit, whose exported
/// function `use` copies from one of them and drops another one.
fn module_of_data(random: &mut Random) -> String {
    let mut text =
        "(module (import \"a\" \"g\" (global $g i32)) (memory (export \"memory\") 1) (memory $m 1)
        (table (export \"0\") 1500 funcref) (table (export \"1\") 1500 funcref)"
            .to_owned();
    let segments = 1 + random.below(80);
    for segment in 0..segments {
        let data = format!("{segment:x}").repeat(random.below(4));
        let memory = ["", "(memory $m) "][random.below(2)];
        let at = random.below(65_536 + 20);
        match random.below(12) {
            0..=2 => write!(text, "(data \"{data}\")"),
            3 => write!(text, "(data {memory}(offset (global.get $g)) \"{data}\")"),
            _ => write!(
                text,
                "(data {memory}(i32.const {}) \"{data}\")",
                at.min(65_530)
            ),
        }
        .expect("text");
    }
    if random.below(8) == 0 {
        text += "(data (i32.const 65530) \"does not fit\")";
    }
    if random.below(2) == 0 {
        let (from, dropped) = (random.below(segments), random.below(segments));
        let bytes = random.below(3);
        write!(
            text,
            "(func (export \"use\") (memory.init $m {from} (i32.const 9) (i32.const 0) (i32.const {bytes}))
               (data.drop {dropped}) (memory.init {dropped} (i32.const 5) (i32.const 0) (i32.const 0))
               (memory.copy 0 $m (i32.const 100) (i32.const 0) (i32.const 300)))"
        )
        .expect("text");
    }
    text + ")"
}

/// What the memory holds after instantiation and after each of two calls of `use`; `None` for what traps.
fn memories(engine: &Engine, wasm: &[u8]) -> Vec<Option<Vec<u8>>> {
    let module = Module::new(engine, wasm).expect("valid");
    let mut store = Store::new(engine, ());
    let ty = GlobalType::new(ValType::I32, Mutability::Const);
    let global = Global::new(&mut store, ty, Val::I32(77)).expect("a global");
    let Ok(instance) = Instance::new(&mut store, &module, &[global.into()]) else {
        return vec![None];
    };
    let memory = instance.get_memory(&mut store, "memory").expect("exported");
    let mut found = vec![Some(memory.data(&store).to_vec())];
    if let Ok(used) = instance.get_typed_func::<(), ()>(&mut store, "use") {
        for _ in 0..2 {
            let done = used.call(&mut store, ()).ok();
            found.push(done.map(|()| memory.data(&store).to_vec()));
        }
    }
    found
}

#[test]
fn segments_of_data_hold_the_same_for_the_start_and_for_instructions_that_name_them() {
    let engine = Engine::default();
    let mut random = Random(5);
    let most = MostCopied {
        data_bytes: 0,
        data_pages: 0,
        elements: 0,
        element_pages: 0,
    };
    let (mut moved, mut trapped, mut named) = (0, 0, 0);
    for _ in 0..400 {
        let text = module_of_data(&mut random);
        let original = wat::parse_str(&text).expect("a module");
        let rewritten = copy_segments_at_start(&original, most).expect("well-formed");
        moved += usize::from(*rewritten != *original);
        let expected = memories(&engine, &original);
        trapped += usize::from(expected.contains(&None));
        named += usize::from(expected.len() > 1);
        assert!(memories(&engine, &rewritten) == expected, "{text}");
    }
    assert!(
        moved > 350 && trapped > 50 && named > 100,
        "{moved} {trapped} {named}"
    );
}
