//! Memory reservations as a person meets them: `advise`, and `run --paging`.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// Writes a word to each page of 4 MiB, `rounds` times (0: for ever).
fn sweep(rounds: u32) -> String {
    format!(
        r#"(module (memory (export "memory") 64)
          (func (export "_start") (local $at i32) (local $round i32)
            (loop $more
              (i64.store (local.get $at) (i64.const -1))
              (local.set $at
                (i32.and (i32.add (local.get $at) (i32.const 4096)) (i32.const 0x3fffff)))
              (br_if $more (local.get $at))
              (local.set $round (i32.add (local.get $round) (i32.const 1)))
              (br_if $more (i32.ne (local.get $round) (i32.const {rounds}))))))"#
    )
}

fn directory(programs: &[(&str, String)]) -> TempDir {
    let directory = tempfile::tempdir().expect("directory");
    for (name, text) in programs {
        std::fs::write(directory.path().join(name), text).expect("written");
    }
    directory
}

fn leasehold(directory: &TempDir, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command
        .current_dir(directory.path())
        .args(arguments)
        .stdin(Stdio::null());
    command
}

fn output(directory: &TempDir, arguments: &[&str]) -> Output {
    leasehold(directory, arguments).output().expect("runs")
}

#[test]
fn the_smallest_reservation_that_keeps_the_speed_is_found() {
    // Uses 1 MiB of its 4 all the time, and the rest once: long enough that what the rest costs on
    // a slow disk, once, is little of it.
    let program = r#"(module (memory (export "memory") 64)
      (func (export "_start") (local $at i32) (local $round i32)
        (loop $once
          (i64.store (local.get $at) (i64.const -1))
          (br_if $once (i32.lt_u
            (local.tee $at (i32.add (local.get $at) (i32.const 4096))) (i32.const 0x400000))))
        (local.set $at (i32.const 0))
        (loop $more
          (i64.store (local.get $at) (i64.const -1))
          (local.set $at
            (i32.and (i32.add (local.get $at) (i32.const 8)) (i32.const 0xfffff)))
          (br_if $more (local.get $at))
          (br_if $more (i32.ne (i32.const 1500)
            (local.tee $round (i32.add (local.get $round) (i32.const 1))))))))"#;
    let directory = directory(&[("hot.wat", program.to_owned())]);
    let arguments = [
        "advise", "--json", "--keep", "0.3", "--runs", "1", "--points", "4", "--svg", "a.svg",
        "hot.wat",
    ];
    let advised = output(&directory, &arguments);
    assert_eq!(advised.status.code(), Some(0), "{advised:?}");
    let json: Value = serde_json::from_slice(&advised.stdout).expect("JSON");
    let reserve = json["reserve_bytes"].as_u64().expect("advice");
    // Where the cliff is depends on nothing but the program: below 1 MiB every round faults.
    assert!((768 << 10..=2 << 20).contains(&reserve), "{json}");
    assert_eq!(json["linear_bytes"], 4 << 20);
    let svg = std::fs::read_to_string(directory.path().join("a.svg")).expect("a picture");
    assert!(svg.starts_with("<svg") && svg.contains("major faults"));

    let late = [
        "advise",
        "--deadline",
        "1us",
        "--runs",
        "1",
        "--points",
        "2",
        "hot.wat",
    ];
    let none = output(&directory, &late);
    assert_eq!(none.status.code(), Some(1), "{none:?}");
    assert!(String::from_utf8_lossy(&none.stdout).contains("no reservation is enough"));
}

#[test]
fn a_swap_file_that_fails_ends_the_program_with_a_code_of_its_own() {
    let directory = directory(&[("sweep.wat", sweep(0))]);
    let paging = "limit=4MiB,swap=swap";
    let run = [
        "run",
        "--budget",
        "1s",
        "--memory",
        "1MiB",
        "--paging",
        paging,
        "sweep.wat",
    ];
    let mut child = leasehold(&directory, &run)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("runs");
    let descriptors = Path::new("/proc").join(child.id().to_string()).join("fd");
    let swap = loop {
        let entries = std::fs::read_dir(&descriptors).expect("it runs").flatten();
        let found = entries.map(|entry| entry.path()).find(|path| {
            let name = std::fs::read_link(path).unwrap_or_default();
            name.to_string_lossy().ends_with("swap (deleted)")
        });
        match found {
            Some(path) => break path,
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let swap = std::fs::File::options().write(true).open(swap);
    let swap = swap.expect("ours");
    while child.try_wait().expect("there").is_none() {
        // Reading finds the end of the file, until a page is written beyond it.
        swap.set_len(0).expect("shorter");
        std::thread::sleep(Duration::from_millis(1));
    }
    let output = child.wait_with_output().expect("ends");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(135), "{error}");
    assert!(
        error.contains("a page of its memory cannot be had"),
        "{error}"
    );
}

#[test]
fn paging_that_makes_no_sense_is_refused() {
    let directory = directory(&[("sweep.wat", sweep(1))]);
    for (arguments, code, words) in [
        (
            ["--memory", "4MiB", "--paging", "limit=4MiB,swap=swap"],
            78,
            [
                "found a limit of 4MiB",
                "more than the reserve, which is 4MiB",
            ],
        ),
        (
            ["--memory", "4KiB", "--paging", "limit=4MiB,swap=swap"],
            77,
            ["the memory reservation", "at least 64KiB"],
        ),
        (
            ["--memory", "1MiB", "--paging", "limit=4MiB,swap=none/swap"],
            70,
            ["none/swap", "No such file"],
        ),
    ] {
        let mut run = vec!["run"];
        run.extend(arguments);
        run.push("sweep.wat");
        let output = output(&directory, &run);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{error}");
        for word in words {
            assert!(error.contains(word), "no {word:?} in {error}");
        }
    }
}
