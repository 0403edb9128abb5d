//! Real programs do what they do elsewhere: output and exit code, byte for byte.

mod common;

use common::{cell, guest, guests};
use leasehold_cell::{Cell, Ended, Exit, Input, Lease, Surroundings};
use std::path::{Path, PathBuf};

fn runs_as_elsewhere(cell: &Cell, artifact: &str, data: &Path) {
    let read = |name: &str| std::fs::read(data.join(name)).expect("test data");
    let arguments = String::from_utf8(read("arguments")).expect("arguments are text");
    let mut args = vec![artifact.to_owned()];
    args.extend(arguments.lines().map(str::to_owned));
    let surroundings = Surroundings {
        args,
        stdin: Input::Bytes(read("input").into()),
        ..Surroundings::default()
    };
    let program = cell.load(&guest(artifact)).expect("loads");
    let (ended, got) = common::run(cell, program, Lease::default(), surroundings);
    assert_eq!(ended.exit, Exit::Code(0), "{artifact}");
    assert!(
        got == read("expected"),
        "{artifact} wrote {:?}",
        String::from_utf8_lossy(&got)
    );
}

#[test]
fn every_built_program_produces_its_expected_output() {
    let cell = cell();
    let data = PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../guests/test-data"
    ));
    let mut ran = Vec::new();
    for entry in std::fs::read_dir(&data).expect("test data").flatten() {
        let name = entry.file_name().into_string().expect("a name");
        for artifact in [format!("{name}.wasm"), format!("{name}-p2.wasm")] {
            // Python and JavaScript are built on request only; the others must be there.
            if guests().join(&artifact).exists() {
                runs_as_elsewhere(&cell, &artifact, &entry.path());
                ran.push(artifact);
            }
        }
    }
    for needed in [
        "hello.wasm",
        "hello-p2.wasm",
        "wordcount.wasm",
        "wordcount-p2.wasm",
    ] {
        assert!(
            ran.iter().any(|artifact| artifact == needed),
            "{needed} was not built"
        );
    }
}

/// Runs a program with arguments and a directory to read; what became of it, and what it wrote.
fn run_in(cell: &Cell, artifact: &str, arg: &str, directory: &Path) -> (Ended, String) {
    let surroundings = Surroundings {
        args: vec![artifact.to_owned(), arg.to_owned()],
        dirs: vec![common::read_only(directory)],
        ..Surroundings::default()
    };
    let program = cell.load(&guest(artifact)).expect("loads");
    let (ended, text) = common::run(cell, program, Lease::default(), surroundings);
    (ended, String::from_utf8(text).expect("text"))
}

#[test]
fn a_program_sees_its_directories_and_sets_its_exit_code() {
    let directory = tempfile::tempdir().expect("directory");
    std::fs::write(directory.path().join("text"), "to be or not to be\n").expect("written");
    let cell = cell();
    for artifact in ["wordcount.wasm", "wordcount-p2.wasm"] {
        let (ended, text) = run_in(&cell, artifact, "/data/text", directory.path());
        assert_eq!(ended.exit, Exit::Code(0));
        assert!(text.contains("words 6"), "{artifact}: {text}");
        let missing = run_in(&cell, artifact, "/data/nothing", directory.path());
        assert!(
            matches!(missing.0.exit, Exit::Code(code) if code != 0),
            "{artifact}: {missing:?}"
        );
    }
}

/// Writes its environment, each variable with a zero byte behind it.
const ENVIRONMENT: &str = r#"(module
  (import "wasi_snapshot_preview1" "environ_sizes_get" (func $sizes (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "environ_get" (func $get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write"
    (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  ;; 0: how many; 12: an iovec, whose length is that of all; 64: pointers; 1024: the variables
  (func (export "_start")
    (drop (call $sizes (i32.const 0) (i32.const 12)))
    (drop (call $get (i32.const 64) (i32.const 1024)))
    (i32.store (i32.const 8) (i32.const 1024))
    (drop (call $write (i32.const 1) (i32.const 8) (i32.const 1) (i32.const 16)))))"#;

#[test]
fn a_program_sees_the_environment_that_it_was_given_and_nothing_of_the_hosts() {
    let cell = cell();
    for given in [&[][..], &[("NAME", "value"), ("EMPTY", "")]] {
        let variable = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let surroundings = Surroundings {
            env: given.iter().map(variable).collect(),
            ..Surroundings::default()
        };
        let program = cell.compile(ENVIRONMENT.as_bytes()).expect("compiles");
        let (ended, seen) = common::run(&cell, program, Lease::default(), surroundings);
        assert_eq!(ended.exit, Exit::Code(0));
        let expected: String = given
            .iter()
            .map(|(name, value)| format!("{name}={value}\0"))
            .collect();
        assert_eq!(String::from_utf8(seen).expect("text"), expected);
    }
}

#[test]
fn a_directory_of_any_size_is_listed_through_a_window_of_one_page() {
    let directory = tempfile::tempdir().expect("directory");
    let files = 3000;
    for file in 0..files {
        let name = format!("a-file-with-a-name-of-some-length-{file}");
        std::fs::write(directory.path().join(name), "word\n").expect("written");
    }
    let cell = cell();
    for artifact in ["wordcount.wasm", "wordcount-p2.wasm"] {
        let (ended, text) = run_in(&cell, artifact, "/data", directory.path());
        assert_eq!(ended.exit, Exit::Code(0), "{artifact}");
        assert!(
            text.contains(&format!("words {files}")),
            "{artifact}: {text}"
        );
        let statement = ended.statement;
        let units = statement
            .rows
            .iter()
            .find(|row| row.name == "memory (16 bytes)");
        let bytes = units.map_or(0, |row| row.count * 16);
        assert!(bytes < 16 << 10, "{artifact}: {bytes} bytes in the arena");
    }
}
