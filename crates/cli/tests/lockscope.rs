//! `leasehold lockscope`: how it finds the program `lockscope`, and its message where there is
//! none.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// `leasehold` in a directory where nothing else is. A link: it is the place that counts.
fn alone() -> TempDir {
    let program = Path::new(env!("CARGO_BIN_EXE_leasehold"));
    let beside = program.parent().expect("a directory");
    let directory = TempDir::new_in(beside).expect("a directory");
    fs::hard_link(program, directory.path().join("leasehold")).expect("linked");
    directory
}

/// A program `lockscope` that prints its arguments, each on a line.
fn place_lockscope(directory: &Path) {
    let file = directory.join("lockscope");
    fs::write(&file, "#!/bin/sh\nprintf '%s\\n' \"$@\"\nexit 7\n").expect("written");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("executable");
}

#[test]
fn the_program_beside_it_gets_all_arguments_as_they_are() {
    let directory = alone();
    place_lockscope(directory.path());
    let arguments = ["record", "--a", "ls -R /", "--help", "--", "-x"];
    let output = Command::new(directory.path().join("leasehold"))
        .arg("lockscope")
        .args(arguments)
        .output()
        .expect("runs");
    assert_eq!(output.status.code(), Some(7));
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(printed.lines().collect::<Vec<_>>(), arguments);
}

#[test]
fn where_it_is_not_built_one_line_says_how_to_build_it() {
    let directory = alone();
    let output = Command::new(directory.path().join("leasehold"))
        .args(["lockscope", "probe"])
        .env("PATH", directory.path())
        .output()
        .expect("runs");
    assert_eq!(output.status.code(), Some(66));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(
        error.contains("cargo build --release --package leasehold-lockscope --features tracer"),
        "{error}"
    );
}
