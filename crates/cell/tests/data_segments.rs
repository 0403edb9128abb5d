//! Merged data segments: the same memory, and far fewer of them.

use std::borrow::Cow;
use std::fmt::Write as _;

use leasehold_wasm::data_segments::{GAP, merge_data_segments};
use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, Strategy, any, prop_assert, prop_assert_eq, proptest};
use wasm_encoder::{DataCountSection, RawSection};
use wasmparser::{Parser, Payload};
use wasmtime::{Engine, Instance, Module, Store};

const PAGE: usize = 64 * 1024;

/// Data segments of a module, in all its sections.
fn count(wasm: &[u8]) -> u32 {
    Parser::new(0)
        .parse_all(wasm)
        .map(|payload| match payload.expect("well-formed") {
            Payload::DataSection(section) => section.count(),
            _ => 0,
        })
        .sum()
}

/// A module with two memories of a page and these segments: memory, offset, bytes.
fn module(segments: &[(usize, usize, Vec<u8>)]) -> Vec<u8> {
    let mut text = String::from(r#"(module (memory (export "0") 1) (memory (export "1") 1)"#);
    for (memory, offset, bytes) in segments {
        let bytes: String = bytes.iter().map(|byte| format!("\\{byte:02x}")).collect();
        write!(
            text,
            r#"(data (memory {memory}) (i32.const {offset}) "{bytes}")"#
        )
        .expect("writing to a string");
    }
    wat::parse_str(text + ")").expect("valid text")
}

/// What both memories hold after instantiation.
fn contents(engine: &Engine, wasm: &[u8]) -> [Vec<u8>; 2] {
    let module = Module::new(engine, wasm).expect("valid");
    let mut store = Store::new(engine, ());
    let instance = Instance::new(&mut store, &module, &[]).expect("instantiated");
    ["0", "1"].map(|name| {
        let memory = instance.get_memory(&mut store, name).expect("exported");
        memory.data(&store).to_vec()
    })
}

fn segment() -> impl Strategy<Value = (usize, usize, Vec<u8>)> {
    // Few offsets, so that segments overlap, touch, and have gaps shorter and longer than GAP.
    (0..2_usize, 0..6 * GAP, vec(any::<u8>(), 0..GAP))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_merged_module_starts_with_the_same_memory(segments in vec(segment(), 0..24)) {
        let engine = Engine::default();
        let original = module(&segments);
        let merged = merge_data_segments(&original).expect("well-formed");
        prop_assert!(count(&merged) <= count(&original));
        prop_assert_eq!(contents(&engine, &merged), contents(&engine, &original));
        let again = merge_data_segments(&merged).expect("well-formed");
        prop_assert!(matches!(again, Cow::Borrowed(_)), "there is nothing left to merge");
    }
}

#[test]
fn segments_further_apart_than_a_gap_stay_two() {
    let apart = |gap: usize| module(&[(0, 0, vec![1]), (0, 1 + gap, vec![2])]);
    let merged = |wasm: &[u8]| count(&merge_data_segments(wasm).expect("well-formed"));
    assert_eq!(merged(&apart(GAP)), 1);
    assert_eq!(merged(&apart(GAP + 1)), 2);
}

#[test]
fn ten_thousand_small_segments_become_one() {
    let segments: Vec<_> = (0..10_000).map(|i| (0, i * 6, vec![i as u8])).collect();
    let merged = module(&segments);
    let merged = merge_data_segments(&merged).expect("well-formed");
    assert_eq!(count(&merged), 1);
}

/// Modules whose segments do not merely say how a memory begins.
#[test]
fn segments_that_are_computed_named_imported_passive_or_out_of_bounds_are_left_alone() {
    let two = r#"(data (i32.const 0) "a") (data (i32.const 1) "b")"#;
    let beyond = PAGE - 1;
    for text in [
        format!(r#"(module (memory 1) {two} (func (data.drop 0)))"#),
        format!(
            r#"(module (memory 1) {two}
                (func (memory.init 1 (i32.const 0) (i32.const 0) (i32.const 0))))"#
        ),
        format!(r#"(module (memory 1) {two} (data "passive"))"#),
        format!(r#"(module (import "a" "m" (memory 1)) {two})"#),
        format!(
            r#"(module (import "a" "g" (global $g i32)) (memory 1) {two}
                (data (global.get $g) "c"))"#
        ),
        format!(r#"(module (memory 1) {two} (data (i32.const {beyond}) "cc"))"#),
        format!(r#"(module (memory 1) {two} (data (i32.const -1) ""))"#),
    ] {
        let wasm = wat::parse_str(&text).expect("valid text");
        let merged = merge_data_segments(&wasm).expect("well-formed");
        assert!(matches!(merged, Cow::Borrowed(_)), "{text}");
    }
}

#[test]
fn a_count_of_segments_is_corrected() {
    let wasm = wat::parse_str(
        r#"(module (memory (export "0") 1) (memory (export "1") 1)
            (data (i32.const 0) "ab") (data (i32.const 4) "ef") (data (i32.const 1) "B")
            (func (memory.fill (i32.const 0) (i32.const 0) (i32.const 0))))"#,
    )
    .expect("valid text");
    // Compilers write the section that counts segments whether an instruction names one or not.
    let mut counted = wasm_encoder::Module::new();
    for payload in Parser::new(0).parse_all(&wasm) {
        let payload = payload.expect("well-formed");
        if let Payload::CodeSectionStart { .. } = payload {
            counted.section(&DataCountSection { count: 3 });
        }
        if let Some((id, range)) = payload.as_section() {
            let data = &wasm[range];
            counted.section(&RawSection { id, data });
        }
    }
    let counted = counted.finish();
    let merged = merge_data_segments(&counted).expect("well-formed");
    assert_eq!(count(&merged), 1);
    assert_eq!(contents(&Engine::default(), &merged)[0][..6], *b"aB\0\0ef");
}

#[test]
fn modules_inside_components_are_merged() {
    let wasm = wat::parse_str(
        r#"(component
            (core module (memory 1) (data (i32.const 0) "a") (data (i32.const 1) "b"))
            (component (core module (memory 1) (data (i32.const 0) "a") (data (i32.const 1) "b"))))"#,
    )
    .expect("valid text");
    assert_eq!(count(&wasm), 4);
    let merged = merge_data_segments(&wasm).expect("well-formed");
    assert_eq!(count(&merged), 2);
    wasmtime::component::Component::new(&Engine::default(), &merged).expect("still valid");
}
