//! Tests of memory reservations on the command line: `up --memory`, `advise`, and `run --paging`.

mod calibrated;

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
    let profile = directory.path().join("profile.json");
    std::fs::write(&profile, calibrated::profile()).expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command
        .current_dir(directory.path())
        .env("LEASEHOLD_PROFILE", profile)
        .args(arguments)
        .stdin(Stdio::null());
    command
}

fn output(directory: &TempDir, arguments: &[&str]) -> Output {
    leasehold(directory, arguments).output().expect("runs")
}

/// Reads the first `bytes` of 1 MiB of initial memory, `rounds` times (0: for ever).
fn table(bytes: u32, rounds: u32) -> String {
    let mask = bytes - 1;
    let table = "0123456789abcdef".repeat(1 << 16);
    format!(
        r#"(module (memory (export "memory") 32) (data (i32.const 0) "{table}")
          (func (export "_start") (local $at i32) (local $round i32)
            (loop $more
              (if (i32.ne (i32.load8_u (local.get $at)) (i32.const 0x30)) (then unreachable))
              (local.set $at
                (i32.and (i32.add (local.get $at) (i32.const 4096)) (i32.const {mask})))
              (br_if $more (local.get $at))
              (local.set $round (i32.add (local.get $round) (i32.const 1)))
              (br_if $more (i32.ne (local.get $round) (i32.const {rounds}))))))"#
    )
}

#[test]
fn every_reservation_is_shown_with_what_its_tenant_did_and_shares() {
    let tenant = |name: &str, program: &str, memory: &str| {
        format!(
            "[tenant.{name}]\ncomponent = \"{program}\"\nreclaim.budget = \"1s\"\n\
             memory = {{ {memory} }}\n"
        )
    };
    let paging = "limit = \"4MiB\", swap = \"swap\"";
    let leases = [
        "[cell]\nmemory = \"12MiB\"\n".to_owned(),
        tenant(
            "small",
            "sweep.wat",
            &format!("reserve = \"1MiB\", {paging}"),
        ),
        tenant("fits", "sweep.wat", "reserve = \"4MiB\""),
        tenant("one", "table.wat", &format!("reserve = \"2MiB\", {paging}")),
        tenant(
            "two",
            "table.wat",
            &format!("reserve = \"512KiB\", {paging}"),
        ),
        tenant(
            "locked",
            "table.wat",
            &format!("reserve = \"2MiB\", shared = \"spel\", {paging}"),
        ),
    ]
    .concat();
    let programs = [
        ("sweep.wat", sweep(3)),
        ("table.wat", table(1 << 20, 0)),
        ("leases.toml", leases),
    ];
    let directory = directory(&programs);
    let shown = output(
        &directory,
        &["up", "leases.toml", "--memory", "--json", "--for", "10s"],
    );
    assert_eq!(shown.status.code(), Some(0), "{shown:?}");
    let json: Value = serde_json::from_slice(&shown.stdout).expect("JSON");
    let memory = |name: &str| {
        let tenants = json["tenants"].as_array().expect("tenants");
        let found = tenants.iter().find(|tenant| tenant["name"] == name);
        found.expect("every tenant is reported")["memory"].clone()
    };
    let small = memory("small");
    assert_eq!(small["reserved_bytes"], 1 << 20);
    assert_eq!(small["linear_bytes"], 4 << 20);
    assert_eq!(small["paging"]["resident_bytes"], 1 << 20);
    assert_eq!(small["paging"]["private_bytes"], 1 << 20);
    assert!(
        small["paging"]["major_faults"].as_u64() > Some(1000),
        "{small}"
    );
    assert!(
        small["paging"]["swapped_bytes"].as_u64() > Some(1 << 20),
        "{small}"
    );
    assert_eq!(memory("fits")["paging"], Value::Null);
    let two = memory("two");
    assert_eq!(two["paging"]["shared_bytes"], 512 << 10);
    let locked = memory("locked");
    assert_eq!(locked["paging"]["locked_bytes"], 1 << 20);
    let areas = json["shared"].as_array().expect("areas");
    let technique = |name: &str| {
        let found = areas.iter().find(|area| area["shared"] == name);
        found.expect("it is shared").clone()
    };
    assert_eq!(technique("spc")["max_bytes"], 1 << 20);
    assert_eq!(technique("spel")["locked"], true);
    assert_eq!(technique("spel")["name"], "table.wat");
    assert!(
        !directory.path().join("swap").exists(),
        "nothing is left of it"
    );

    let table = output(
        &directory,
        &["up", "leases.toml", "--memory", "--for", "1s"],
    );
    let text = String::from_utf8_lossy(&table.stderr);
    for word in ["small", "conserved", "4MiB", "shared area", "n·Avg", "spel"] {
        assert!(text.contains(word), "no {word:?} in {text}");
    }
    let up = output(&directory, &["up", "leases.toml", "--for", "1s"]);
    let text = String::from_utf8_lossy(&up.stderr);
    for word in ["missed", "predicted", "conserved", "shared area"] {
        assert!(text.contains(word), "no {word:?} in {text}");
    }
}

/// The same once the cells of other tests, which run beside this one, have left a core to it.
fn with_a_core(directory: &TempDir, arguments: &[&str]) -> Output {
    let began = std::time::Instant::now();
    loop {
        let output = output(directory, arguments);
        let is_crowded = String::from_utf8_lossy(&output.stderr)
            .contains("each processor that the cell may run on is that of another cell");
        if !is_crowded || began.elapsed() > std::time::Duration::from_secs(60) {
            return output;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

#[test]
fn admission_counts_what_locks_save() {
    let memory = |shared: &str| {
        format!(
            "component = \"table.wat\"\nreclaim.budget = \"1s\"\nmemory = {{ reserve = \"2MiB\", \
             limit = \"4MiB\", swap = \"swap\", shared = \"{shared}\" }}\n"
        )
    };
    let leases = |shared: &str| {
        let tenant = |name: &str| format!("[tenant.{name}]\n{}", memory(shared));
        let tenants = ["a", "b", "c"].map(tenant).concat();
        format!("[cell]\nmemory = \"5MiB\"\n{tenants}")
    };
    let programs = [
        ("table.wat", table(1 << 20, 1)),
        ("spc.toml", leases("spc")),
        ("spel.toml", leases("spel")),
    ];
    let directory = directory(&programs);
    let without = output(&directory, &["admit", "spc.toml"]);
    let text = String::from_utf8_lossy(&without.stdout);
    assert_eq!(without.status.code(), Some(1), "{text}");
    assert!(
        text.contains("6MiB reserved, the cell holds 5MiB"),
        "{text}"
    );
    let with = output(&directory, &["admit", "spel.toml"]);
    let text = String::from_utf8_lossy(&with.stdout);
    assert_eq!(with.status.code(), Some(0), "{text}");
    assert!(text.contains("eviction locks save 2MiB"), "{text}");
    // The memory that was admitted is there, with a control socket and without.
    let operated = ["up", "--quiet", "--socket", "control", "spel.toml"];
    for command in [&["up", "--quiet", "spel.toml"][..], &operated] {
        let up = with_a_core(&directory, command);
        assert_eq!(up.status.code(), Some(0), "{up:?}");
    }
    let up = with_a_core(&directory, &["up", "--quiet", "spc.toml"]);
    assert_eq!(up.status.code(), Some(77), "{up:?}");
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
        "advise", "--json", "--keep", "0.1", "--runs", "1", "--points", "4", "--svg", "a.svg",
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

    assert_eq!(json["shared"], Value::Array(vec![]), "it has no data");

    let late = [
        "advise",
        "--deadline",
        "1us",
        // A slow machine needs more than what follows from the deadline.
        "--longest",
        "60s",
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
fn what_all_tenants_use_most_of_is_to_be_locked_and_what_few_use_conserved() {
    // Reads all of its table, or a page of it, for some tenths of a second.
    let (all, some) = (table(1 << 20, 200_000), table(4096, 50_000_000));
    let directory = directory(&[("all.wat", all), ("some.wat", some)]);
    for (program, rule) in [("all.wat", "spel"), ("some.wat", "spc")] {
        let arguments = ["advise", "--json", "--runs", "1", "--points", "2", program];
        let advised = output(&directory, &arguments);
        assert_eq!(advised.status.code(), Some(0), "{advised:?}");
        let json: Value = serde_json::from_slice(&advised.stdout).expect("JSON");
        let area = &json["shared"][0];
        assert_eq!(
            (&area["name"], &area["rule"]),
            (&program.into(), &rule.into()),
            "{json}"
        );
        assert_eq!(
            (&area["tenants"], &area["max_bytes"]),
            (&3.into(), &(1 << 20).into())
        );
    }
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
            78,
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
