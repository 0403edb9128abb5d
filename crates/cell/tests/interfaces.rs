//! `wasi:config`, `wasi:logging` and `wasi:keyvalue`: what they answer, what they are charged, and what a
//! kill leaves.

mod common;

use common::{cell, guest, lease};
use leasehold_cell::keyvalue::Store as KeyValueStore;
use leasehold_cell::{
    Capture, Cell, Ended, Exit, Lease, Output, StartRequest, Surroundings, TenantHandle,
};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use wasmtime::component::{Component, Linker, ResourceTable};
use wasmtime::{Engine, Store};
use wasmtime_wasi::p2::bindings::sync::Command;
use wasmtime_wasi::p2::pipe::MemoryOutputPipe;
use wasmtime_wasi::{WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};
use wasmtime_wasi_config::{WasiConfig, WasiConfigVariables};
use wasmtime_wasi_keyvalue::{WasiKeyValue, WasiKeyValueCtx, WasiKeyValueCtxBuilder};

const GUEST: &str = "interfaces-p2.wasm";
const CONFIG: [(&str, &str); 2] = [("shop", "open"), ("empty", "")];

/// A program on the engine's own implementation.
struct Reference {
    wasi: WasiCtx,
    table: ResourceTable,
    config: WasiConfigVariables,
    keyvalue: WasiKeyValueCtx,
}

impl WasiView for Reference {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView {
            ctx: &mut self.wasi,
            table: &mut self.table,
        }
    }
}

fn elsewhere() -> String {
    let engine = Engine::default();
    let component = Component::from_file(&engine, guest(GUEST)).expect("compiles");
    let mut linker = Linker::<Reference>::new(&engine);
    wasmtime_wasi::p2::add_to_linker_sync(&mut linker).expect("linked");
    wasmtime_wasi_config::add_to_linker(&mut linker, |reference: &mut Reference| {
        WasiConfig::new(&reference.config)
    })
    .expect("linked");
    wasmtime_wasi_keyvalue::add_to_linker(&mut linker, |reference: &mut Reference| {
        WasiKeyValue::new(&reference.keyvalue, &mut reference.table)
    })
    .expect("linked");
    // It has no implementation of the logging interface, which the transcript does not call.
    for name in ["wasi:logging/logging@0.1.0-draft", "wasi:logging/logging"] {
        let mut instance = linker.instance(name).expect("an instance");
        instance
            .func_new("log", |_, _, _, _| Ok(()))
            .expect("linked");
    }
    let output = MemoryOutputPipe::new(1 << 20);
    let wasi = WasiCtxBuilder::new()
        .args(&["guest", "transcript"])
        .stdout(output.clone())
        .build();
    let reference = Reference {
        wasi,
        table: ResourceTable::new(),
        config: CONFIG.into_iter().collect(),
        keyvalue: WasiKeyValueCtxBuilder::new().build(),
    };
    let mut store = Store::new(&engine, reference);
    let command = Command::instantiate(&mut store, &component, &linker).expect("instantiated");
    let result = command.wasi_cli_run().call_run(&mut store);
    result.expect("it runs").expect("it succeeds");
    String::from_utf8(output.contents().to_vec()).expect("text")
}

/// A tenant that does one thing, and what it writes.
struct Run {
    tenant: TenantHandle,
    output: Capture,
    errors: Capture,
}

fn start(cell: &Cell, what: &str, lease: Lease, store: Option<&Arc<KeyValueStore>>) -> Run {
    let [output, errors] = [(); 2].map(|()| Capture::new(1 << 20));
    let config = CONFIG.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let request = StartRequest {
        program: cell.load_for(&guest(GUEST), &lease).expect("loads"),
        lease,
        surroundings: Surroundings {
            args: vec!["guest".to_owned(), what.to_owned()],
            config: config.into(),
            keyvalue: store.cloned(),
            stdout: Output::Capture(output.clone()),
            stderr: Output::Capture(errors.clone()),
            ..Surroundings::default()
        },
    };
    Run {
        tenant: cell.start_tenant(request).expect("starts"),
        output,
        errors,
    }
}

fn text(capture: &Capture) -> String {
    String::from_utf8_lossy(&capture.bytes()).into_owned()
}

impl Run {
    fn wait(self) -> (Ended, String, String) {
        let ended = self.tenant.wait().expect("the cell is there");
        (ended, text(&self.output), text(&self.errors))
    }

    /// What it wrote, provided that it succeeded.
    fn output(self) -> String {
        let (ended, output, errors) = self.wait();
        assert_eq!(ended.exit, Exit::Code(0), "{output}{errors}");
        output
    }
}

fn open(directory: &Path, quota: u64) -> Arc<KeyValueStore> {
    let store = KeyValueStore::open(&directory.join("a.redb"), quota);
    Arc::new(store.expect("a store"))
}

#[test]
fn every_function_answers_what_the_engines_own_implementation_answers() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = open(directory.path(), 1 << 20);
    let expected = elsewhere();
    assert!(expected.ends_with("over\n"), "{expected}");
    let cell = cell();
    let got = start(&cell, "transcript", Lease::default(), Some(&store)).output();
    let differ = expected.lines().zip(got.lines()).filter(|(a, b)| a != b);
    let differ: Vec<_> = differ.map(|(a, b)| format!("- {a}\n+ {b}\n")).collect();
    assert!(differ.is_empty(), "{}", differ.concat());
    assert_eq!(expected.lines().count(), got.lines().count());
}

#[test]
fn arguments_beyond_the_caps_are_the_interfaces_error() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = open(directory.path(), 4 << 20);
    let got = start(&cell(), "extremes", Lease::default(), Some(&store)).output();
    let expected = "\
set: Ok(())
long key: Err(Error::Other(\"a key has more than 1024 bytes\"))
large value: Err(Error::Other(\"a value has more than 65536 bytes\"))
get long: Err(Error::Other(\"a key has more than 1024 bytes\"))
exists long: Err(Error::Other(\"a key has more than 1024 bytes\"))
delete long: Err(Error::Other(\"a key has more than 1024 bytes\"))
increment long: Err(Error::Other(\"a key has more than 1024 bytes\"))
get: Ok(Some(65536))
twice: Some(Error::Other(\"the values together have more than 65536 bytes\"))
many: Some(Error::Other(\"more than 1024 keys\"))
many: Some(Error::Other(\"more than 1024 keys\"))
many: Some(Error::Other(\"more than 1024 keys\"))
so many: Ok(())
page: 256 true
all: 1025
cursor: []
";
    assert_eq!(got, expected);
}

#[test]
fn an_exhausted_quota_is_the_interfaces_error_and_there_is_room_to_delete() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = open(directory.path(), 1 << 20);
    let got = start(&cell(), "fill", Lease::default(), Some(&store)).output();
    let expected = "\
17 keys: Error::Other(\"the quota of the store is exhausted\")
increment: false
smaller: Ok(())
delete: Ok(())
set: Ok(())
";
    assert_eq!(got, expected);
}

#[test]
fn a_tenant_without_a_store_is_denied_one() {
    let got = start(&cell(), "denied", Lease::default(), None).output();
    assert_eq!(got, "Some(Error::AccessDenied)\n");
}

#[test]
fn buckets_are_charged_and_freed_as_a_whole() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = open(directory.path(), 1 << 20);
    let cell = cell();
    let run = start(&cell, "buckets", Lease::default(), Some(&store));
    let (ended, output, errors) = run.wait();
    // The engine's limit on handles, or the lease's: whichever is lower.
    assert!(
        ended.exit != Exit::Code(101),
        "{:?} {output}{errors}",
        ended.exit
    );
    let reclaimed = ended.reclaimed;
    assert!(reclaimed.steps < 1_000, "{}", reclaimed.steps);
}

#[test]
fn a_store_that_was_written_when_its_tenant_was_killed_is_sound() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = open(directory.path(), 1 << 20);
    let cell = cell();
    for _ in 0..5 {
        let run = start(&cell, "write", lease(50_000, 16 << 10), Some(&store));
        common::until("ready", || !text(&run.output).is_empty());
        std::thread::sleep(Duration::from_millis(20));
        run.tenant.kill();
        let (ended, ..) = run.wait();
        assert_eq!(ended.exit, Exit::Killed);
        // An operation that an I/O thread has begun is made as a whole; another tenant goes on with it.
        let read = |key: &str| store.get(key).expect("read");
        common::until("as a whole", || read("a") == read("b"));
    }
    drop(cell);
    // A thread may still be about to finish what it had begun.
    common::until("given back", || Arc::strong_count(&store) == 1);
    drop(store);
    let again = open(directory.path(), 1 << 20);
    assert_eq!(again.get("a"), again.get("b"));
}

#[test]
fn messages_are_lines_with_a_level_a_context_and_a_bound() {
    let (ended, _, errors) = start(&cell(), "log", Lease::default(), None).wait();
    assert_eq!(ended.exit, Exit::Code(0), "{errors}");
    let lines: Vec<_> = errors.lines().collect();
    assert_eq!(
        lines[..3],
        ["TRACE a: one", "CRITICAL : two\\nlines", "WARN old: three"]
    );
    assert_eq!((lines.len(), lines[3].len()), (4, 4095));
    assert!(lines[3].starts_with("INFO long: xxx") && lines[3].ends_with("x…"));
}

#[test]
fn messages_beyond_the_rate_are_lost_and_the_guest_goes_on() {
    let (ended, _, errors) = start(&cell(), "flood", Lease::default(), None).wait();
    assert_eq!(ended.exit, Exit::Code(0));
    let lines = errors.lines().count();
    assert!((1_000..5_000).contains(&lines), "{lines}");
    assert!(errors.starts_with("INFO flood: 0\nINFO flood: 1\n"));
}
