//! Files of components: the cell's own functions answer what `wasmtime-wasi`'s answer.

mod common;

use common::{cell, guest};
use leasehold_cell::{Directory, Exit, Lease, Surroundings};
use std::path::Path;
use wasmtime::component::{Component, Linker, ResourceTable};
use wasmtime::{Engine, Store};
use wasmtime_wasi::p2::bindings::sync::Command;
use wasmtime_wasi::p2::pipe::MemoryOutputPipe;
use wasmtime_wasi::{FsPerms, WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};

const TRANSCRIPT: &str = "file-transcript-p2.wasm";

/// A directory in `base` as the guest expects it, and another one that it may only read.
fn directories(base: &Path) -> [tempfile::TempDir; 2] {
    [(); 2].map(|()| {
        let directory = tempfile::tempdir_in(base).expect("a directory");
        let given: Vec<u8> = (0..100_000).map(|at: u32| (at % 251) as u8).collect();
        std::fs::write(directory.path().join("given"), given).expect("written");
        let outside = directory.path().join("outside");
        std::os::unix::fs::symlink("/", outside).expect("linked");
        directory
    })
}

struct Reference {
    wasi: WasiCtx,
    table: ResourceTable,
}

impl WasiView for Reference {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView {
            ctx: &mut self.wasi,
            table: &mut self.table,
        }
    }
}

/// What the guest writes on `wasmtime-wasi`.
fn elsewhere([all, some]: &[tempfile::TempDir; 2]) -> String {
    let engine = Engine::default();
    let component = Component::from_file(&engine, guest(TRANSCRIPT)).expect("compiles");
    let mut linker = Linker::<Reference>::new(&engine);
    wasmtime_wasi::p2::add_to_linker_sync(&mut linker).expect("linked");
    let output = MemoryOutputPipe::new(1 << 20);
    let wasi = WasiCtxBuilder::new()
        .stdout(output.clone())
        .preopened_dir(all.path(), "/all", FsPerms::ReadWrite)
        .expect("opened")
        .preopened_dir(some.path(), "/some", FsPerms::ReadOnly)
        .expect("opened")
        .build();
    let table = ResourceTable::new();
    let mut store = Store::new(&engine, Reference { wasi, table });
    let command = Command::instantiate(&mut store, &component, &linker).expect("instantiated");
    let result = command.wasi_cli_run().call_run(&mut store);
    result.expect("it runs").expect("it succeeds");
    String::from_utf8(output.contents().to_vec()).expect("text")
}

/// What the guest writes on a cell.
fn here([all, some]: &[tempfile::TempDir; 2]) -> String {
    let cell = cell();
    let program = cell.load(&guest(TRANSCRIPT)).expect("loads");
    let directory = |host: &tempfile::TempDir, guest: &str, write| Directory {
        host: host.path().to_owned(),
        guest: guest.to_owned(),
        write,
    };
    let surroundings = Surroundings {
        dirs: vec![
            directory(all, "/all", true),
            directory(some, "/some", false),
        ],
        ..Surroundings::default()
    };
    let (ended, output) = common::run(&cell, program, Lease::default(), surroundings);
    let output = String::from_utf8(output).expect("text");
    assert_eq!(ended.exit, Exit::Code(0), "after {output}");
    output
}

#[test]
fn every_function_of_files_answers_what_wasmtime_wasi_answers() {
    for base in [Path::new("/dev/shm"), &std::env::temp_dir()] {
        let (expected, got) = (elsewhere(&directories(base)), here(&directories(base)));
        assert!(expected.lines().count() > 500, "{expected}");
        let differ = expected.lines().zip(got.lines()).filter(|(a, b)| a != b);
        let differ: Vec<_> = differ.map(|(a, b)| format!("- {a}\n+ {b}\n")).collect();
        assert!(differ.is_empty(), "{}", differ.concat());
        assert_eq!(expected.lines().count(), got.lines().count());
    }
}
