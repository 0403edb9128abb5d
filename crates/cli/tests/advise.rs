//! Tests of `leasehold advise`: three reservations, and a lease file that works.

mod calibrated;

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Says `done` after so many rounds of a loop that has no call in it, and has so many pages of wasm.
fn program(rounds: u64, pages: u32) -> String {
    format!(
        r#"(module
          (import "wasi_snapshot_preview1" "fd_write"
            (func $write (param i32 i32 i32 i32) (result i32)))
          (memory (export "memory") {pages})
          (data (i32.const 0) "\10\00\00\00\05\00\00\00")
          (data (i32.const 16) "done\n")
          (func (export "_start") (local $round i64)
            (loop $more
              (local.set $round (i64.add (local.get $round) (i64.const 1)))
              (br_if $more (i64.lt_u (local.get $round) (i64.const {rounds}))))
            (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))))"#
    )
}

/// A command in a directory, with a profile there.
fn command_in(directory: &Path) -> Command {
    let profile = directory.join("profile.json");
    std::fs::write(&profile, calibrated::profile()).expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command
        .current_dir(directory)
        .env("LEASEHOLD_PROFILE", profile);
    command
}

fn leasehold(directory: &Path, arguments: &[&str]) -> Output {
    command_in(directory)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("runs")
}

/// The advice for such a program, and the directory with it and its lease file.
fn advised(rounds: u64, pages: u32) -> (Value, tempfile::TempDir) {
    let directory = tempfile::tempdir().expect("directory");
    std::fs::write(directory.path().join("loop.wat"), program(rounds, pages)).expect("written");
    let advise = [
        "advise",
        "--json",
        "--points",
        "2",
        "--lease",
        "lease.toml",
        "loop.wat",
        "a b",
    ];
    let advised = leasehold(directory.path(), &advise);
    assert_eq!(advised.status.code(), Some(0), "{advised:?}");
    (
        serde_json::from_slice(&advised.stdout).expect("JSON"),
        directory,
    )
}

#[test]
fn a_program_does_the_same_under_its_lease_file_however_short_it_is() {
    // Some microseconds, and some ten milliseconds; with memory that it does not need, too.
    for (rounds, pages) in [(1, 1), (1, 4), (50_000_000, 4)] {
        let (json, directory) = advised(rounds, pages);
        let text = std::fs::read_to_string(directory.path().join("lease.toml")).expect("a lease");
        assert_eq!(json["lease"]["file"], *text, "{json}");
        assert!(
            text.contains("[tenant.loop]") && text.contains("args      = [\"a b\"]"),
            "{text}"
        );
        let admitted = leasehold(directory.path(), &["admit", "lease.toml"]);
        assert_eq!(admitted.status.code(), Some(0), "{admitted:?}\n{text}");
        let without = leasehold(directory.path(), &["run", "loop.wat", "a b"]);
        let with = leasehold(directory.path(), &["run", "--lease", "lease.toml"]);
        assert_eq!(without.stdout, b"done\n", "{without:?}");
        assert_eq!(
            (with.status, &with.stdout),
            (without.status, &without.stdout),
            "{with:?}\n{text}"
        );
    }
}

#[test]
fn the_reclamation_budget_has_a_margin_beyond_what_was_charged_and_less_is_refused() {
    let (json, directory) = advised(1, 1);
    let lease = &json["lease"];
    let ns = |key: &str| {
        lease[key]
            .as_u64()
            .unwrap_or_else(|| panic!("{key} in {json}"))
    };
    let (start, peak, budget) = (ns("start_ns"), ns("peak_ns"), ns("reclaim_budget_ns"));
    assert!(0 < start && start <= peak, "{json}");
    assert_eq!(lease["margin_ratio"], 0.25);
    assert!(budget >= peak + peak / 4, "{json}");
    let less = format!("{}ns", start - start / 10);
    let refused = leasehold(directory.path(), &["run", "--budget", &less, "loop.wat"]);
    assert_eq!(refused.status.code(), Some(77), "{refused:?}");
}

#[test]
fn a_program_that_only_computes_is_advised_the_share_of_the_processor_that_keeps_its_speed() {
    let directory = tempfile::tempdir().expect("directory");
    std::fs::write(directory.path().join("loop.wat"), program(200_000_000, 1)).expect("written");
    let advise = [
        "advise", "--json", "--points", "2", "--keep", "0.5", "--period", "20ms", "loop.wat",
    ];
    let advised = leasehold(directory.path(), &advise);
    assert_eq!(advised.status.code(), Some(0), "{advised:?}");
    let json: Value = serde_json::from_slice(&advised.stdout).expect("JSON");
    let ns = |key: &str| {
        json["lease"][key]
            .as_u64()
            .unwrap_or_else(|| panic!("{key} in {json}"))
    };
    assert_eq!(ns("cpu_period_ns"), 20_000_000);
    // It may take twice as long, of which it uses the processor for as long as before; other programs of the
    // host may have made it wait for the rest.
    let (time, used, budget) = (ns("time_ns"), ns("used_ns"), ns("cpu_budget_ns"));
    let share = used as f64 / (time + used) as f64;
    // A dispatch and a stop come on top: 200 us where a timer takes a virtual machine long.
    let lost = 1_000_000;
    let most = (share * 20e6) as u64 + lost;
    assert!(0 < budget && budget <= most, "{budget} of {most}: {json}");
    if used > time / 10 * 9 {
        assert!(budget + lost >= most, "{budget} of {most}: {json}");
        assert!((9_000_000..=11_000_000).contains(&budget), "{json}");
    }
}

/// The advice for a program with these arguments and this on standard input, as `program` in a lease file.
fn advise_for(directory: &Path, program: &Path, arguments: &[&str], input: &Path) -> String {
    let lease = directory.join("lease.toml");
    let advised = command_in(directory)
        .args(["advise", "--points", "2", "--runs", "1", "--lease"])
        .arg(&lease)
        .arg(program)
        .args(arguments)
        .stdin(std::fs::File::open(input).expect("an input"))
        .output()
        .expect("runs");
    assert_eq!(
        advised.status.code(),
        Some(0),
        "{}: {advised:?}",
        program.display()
    );
    std::fs::read_to_string(lease).expect("a lease")
}

#[test]
fn every_real_guest_does_the_same_under_the_lease_that_is_advised_for_it() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let mut advised = Vec::new();
    let data = Path::new(root).join("guests/test-data");
    for entry in std::fs::read_dir(data).expect("test data").flatten() {
        let read = |name: &str| std::fs::read(entry.path().join(name)).expect("test data");
        let arguments = String::from_utf8(read("arguments")).expect("arguments are text");
        let arguments: Vec<&str> = arguments.lines().collect();
        let name = entry.file_name().into_string().expect("a name");
        for artifact in [format!("{name}.wasm"), format!("{name}-p2.wasm")] {
            // Python and JavaScript are built on request only.
            let program = Path::new(root).join("target/guests").join(&artifact);
            if !program.exists() {
                continue;
            }
            let directory = tempfile::tempdir().expect("directory");
            let input = entry.path().join("input");
            let lease = advise_for(directory.path(), &program, &arguments, &input);
            let ran = command_in(directory.path())
                .args(["run", "--lease", "lease.toml"])
                .stdin(std::fs::File::open(input).expect("an input"))
                .output()
                .expect("runs");
            assert_eq!(ran.status.code(), Some(0), "{artifact}: {ran:?}\n{lease}");
            assert!(
                ran.stdout == read("expected"),
                "{artifact}: {ran:?}\n{lease}"
            );
            advised.push(artifact);
        }
    }
    for needed in ["hello", "wordcount", "jsonsort", "mandelbrot", "thumbnail"] {
        let needed = format!("{needed}.wasm");
        assert!(advised.contains(&needed), "{needed} was not built");
    }
}

#[test]
fn no_more_of_the_processor_is_advised_than_the_host_leaves_a_cell() {
    let directory = tempfile::tempdir().expect("directory");
    std::fs::write(directory.path().join("loop.wat"), program(100_000_000, 1)).expect("written");
    let advise = [
        "advise",
        "--points",
        "2",
        "--keep",
        "1",
        "--lease",
        "lease.toml",
        "loop.wat",
    ];
    let advised = leasehold(directory.path(), &advise);
    assert_eq!(advised.status.code(), Some(0), "{advised:?}");
    let admitted = leasehold(directory.path(), &["admit", "--json", "lease.toml"]);
    let json: Value = serde_json::from_slice(&admitted.stdout).expect("JSON");
    let advice = String::from_utf8_lossy(&advised.stdout);
    assert_eq!(admitted.status.code(), Some(0), "{json}\n{advice}");
    let budget = json["tenants"][0]["budget_ns"].as_u64().expect("a budget");
    // As much as there is, in steps of a twentieth.
    assert!((8_800_000..=9_800_000).contains(&budget), "{json}");
}

#[test]
fn a_program_that_does_not_end_is_given_up_and_said_to_be_endless() {
    let directory = tempfile::tempdir().expect("directory");
    let endless = "(module (func (export \"_start\") (loop $l (br $l))))";
    std::fs::write(directory.path().join("endless.wat"), endless).expect("written");
    for more in [["--deadline", "20ms"], ["--longest", "100ms"]] {
        let advise = [&["advise"][..], &more, &["endless.wat"]].concat();
        let given_up = leasehold(directory.path(), &advise);
        assert_eq!(given_up.status.code(), Some(65), "{given_up:?}");
        let said = String::from_utf8(given_up.stderr).expect("text");
        let expected = "it had not ended after 100.00 ms without paging: give it work that ends";
        assert!(said.contains(expected), "{said}");
    }
}
