//! Real programs do what they do elsewhere: output and exit code, byte for byte.

mod common;

use common::{cell, guest, guests};
use leasehold_cell::{Capture, Cell, Exit, Input, Lease, Output, StartRequest, Surroundings};
use std::path::{Path, PathBuf};

fn run(cell: &Cell, artifact: &str, data: &Path) {
    let read = |name: &str| std::fs::read(data.join(name)).expect("test data");
    let arguments = String::from_utf8(read("arguments")).expect("arguments are text");
    let mut args = vec![artifact.to_owned()];
    args.extend(arguments.lines().map(str::to_owned));
    let output = Capture::new(8 << 20);
    let program = cell.load(&guest(artifact)).expect("loads");
    let tenant = cell
        .start_tenant(StartRequest {
            program,
            lease: Lease::default(),
            surroundings: Surroundings {
                args,
                stdin: Input::Bytes(read("input")),
                stdout: Output::Capture(output.clone()),
                ..Surroundings::default()
            },
            detailed: false,
        })
        .expect("starts");
    let ended = tenant.wait().expect("ends");
    assert_eq!(ended.exit, Exit::Code(0), "{artifact}");
    let (got, expected) = (output.bytes(), read("expected"));
    assert!(
        got == expected,
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
                run(&cell, &artifact, &entry.path());
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

#[test]
fn a_program_sees_its_directories_and_environment_and_sets_its_exit_code() {
    let directory = tempfile::tempdir().expect("directory");
    std::fs::write(directory.path().join("text"), "to be or not to be\n").expect("written");
    let cell = cell();
    for artifact in ["wordcount.wasm", "wordcount-p2.wasm"] {
        let output = Capture::new(1 << 20);
        let start = |args: &[&str]| {
            cell.start_tenant(StartRequest {
                program: cell.load(&guest(artifact)).expect("loads"),
                lease: Lease::default(),
                surroundings: Surroundings {
                    args: args.iter().map(|arg| (*arg).to_owned()).collect(),
                    dirs: vec![leasehold_cell::Directory {
                        host: directory.path().to_owned(),
                        guest: "/data".to_owned(),
                        write: false,
                    }],
                    stdout: Output::Capture(output.clone()),
                    ..Surroundings::default()
                },
                detailed: false,
            })
            .expect("starts")
            .wait()
            .expect("ends")
        };
        assert_eq!(start(&[artifact, "/data/text"]).exit, Exit::Code(0));
        let text = String::from_utf8(output.bytes()).expect("text");
        assert!(text.contains("words 6"), "{artifact}: {text}");
        let missing = start(&[artifact, "/data/nothing"]).exit;
        assert!(
            matches!(missing, Exit::Code(code) if code != 0),
            "{artifact}: {missing:?}"
        );
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
        let output = Capture::new(1 << 20);
        let ended = cell
            .start_tenant(StartRequest {
                program: cell.load(&guest(artifact)).expect("loads"),
                lease: Lease::default(),
                surroundings: Surroundings {
                    args: vec![artifact.to_owned(), "/data".to_owned()],
                    dirs: vec![leasehold_cell::Directory {
                        host: directory.path().to_owned(),
                        guest: "/data".to_owned(),
                        write: false,
                    }],
                    stdout: Output::Capture(output.clone()),
                    ..Surroundings::default()
                },
                detailed: true,
            })
            .expect("starts")
            .wait()
            .expect("ends");
        assert_eq!(ended.exit, Exit::Code(0), "{artifact}");
        let text = String::from_utf8(output.bytes()).expect("text");
        assert!(
            text.contains(&format!("words {files}")),
            "{artifact}: {text}"
        );
        let statement = ended.statement.expect("asked for");
        let units = statement
            .rows
            .iter()
            .find(|row| row.name == "memory (16 bytes)");
        let bytes = units.map_or(0, |row| row.count * 16);
        assert!(bytes < 16 << 10, "{artifact}: {bytes} bytes in the arena");
    }
}
