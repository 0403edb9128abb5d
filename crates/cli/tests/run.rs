//! Tests of `leasehold run`: its output and its exit codes.

mod calibrated;

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn guest(name: &str) -> PathBuf {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/guests")).join(name);
    assert!(
        path.exists(),
        "{} is missing: run `make guests`",
        path.display()
    );
    path
}

/// A command with a profile and a code cache of its own.
struct Leasehold {
    directory: tempfile::TempDir,
}

impl Leasehold {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("directory");
        let leasehold = Self { directory };
        leasehold.write("profile.json", calibrated::profile());
        leasehold
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::write(&path, content).expect("written");
        path.display().to_string()
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("runs")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
        command
            .args(args)
            .env("LEASEHOLD_PROFILE", self.path("profile.json"))
            .env("XDG_CACHE_HOME", self.directory.path())
            .stdin(std::process::Stdio::null());
        command
    }

    /// How many programs and modules of the host's own are in the cache of compiled ones.
    fn compiled_programs(&self) -> usize {
        let entries = std::fs::read_dir(self.path("leasehold"));
        let names = entries
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.file_name());
        // Beside the programs there is what is known of files.
        names.filter(|name| name != "known").count()
    }

    /// Runs, and checks the exit code and that standard error is one line that says so.
    fn refuses(&self, args: &[&str], code: i32, words: &[&str]) {
        let output = self.run(args);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {error}");
        assert_eq!(error.trim().lines().count(), 1, "{args:?}: {error}");
        for word in words {
            assert!(error.contains(word), "{args:?}: no {word:?} in {error}");
        }
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn a_program_runs_with_its_output_and_exit_code() {
    let leasehold = Leasehold::new();
    for hello in ["hello.wasm", "hello-p2.wasm"] {
        let path = guest(hello).display().to_string();
        let output = leasehold.run(&["run", &path]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(!output.stdout.is_empty());
        assert!(output.stderr.is_empty(), "{output:?}");
    }
    // All numbers are the program's to use.
    for code in [42, 126, 200] {
        let exit = leasehold.write(
            "exit.wat",
            format!(
                r#"(module
                     (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
                     (memory (export "memory") 1)
                     (func (export "_start") (call $exit (i32.const {code}))))"#
            ),
        );
        assert_eq!(leasehold.run(&["run", &exit]).status.code(), Some(code));
    }
}

#[test]
fn a_report_tells_what_was_charged_predicted_and_measured() {
    let leasehold = Leasehold::new();
    let hello = guest("hello.wasm").display().to_string();
    let text = leasehold.run(&["run", "--report", &hello]);
    let text = String::from_utf8_lossy(&text.stderr).into_owned();
    for word in [
        "charged for",
        "memory_page",
        "reclamation budget",
        "predicted",
        "measured",
    ] {
        assert!(text.contains(word), "no {word:?} in {text}");
    }
    assert_eq!(text.matches("charged for").count(), 1, "once: {text}");
    let json = leasehold.run(&["run", "--json", &hello]);
    let json: serde_json::Value = serde_json::from_slice(&json.stderr).expect("JSON");
    assert_eq!(json["exit_code"], 0);
    assert!(json["realtime"].is_boolean(), "{json}");
    let (predicted, budget) = (&json["predicted_ns"], &json["budget_ns"]);
    assert!(
        predicted.as_u64() > Some(0) && predicted.as_u64() <= budget.as_u64(),
        "{json}"
    );
}

/// A program that grows its memory by so many MiB, and exits with 1 if it is refused.
fn growing_by(mib: u32) -> String {
    format!(
        r#"(module
             (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
             (memory (export "memory") 16)
             (func (export "_start")
               (call $exit (i32.eq (memory.grow (i32.const {})) (i32.const -1)))))"#,
        mib * 16
    )
}

#[test]
fn a_program_that_fails_with_any_code_fails_the_command() {
    let leasehold = Leasehold::new();
    for (code, expected) in [
        (256, 1),
        (65_536, 1),
        (-256, 1),
        (300, 44),
        (-1, 255),
        (0, 0),
    ] {
        let program = leasehold.write(
            "exit.wat",
            format!(
                r#"(module
                     (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
                     (memory (export "memory") 1)
                     (func (export "_start") (call $exit (i32.const {code}))))"#
            ),
        );
        let output = leasehold.run(&["run", &program]);
        assert_eq!(output.status.code(), Some(expected), "{code}: {output:?}");
    }
}

#[test]
fn the_default_budget_pays_for_the_default_memory() {
    let leasehold = Leasehold::new();
    let program = leasehold.write("grow.wat", growing_by(1000));
    let output = leasehold.run(&["run", &program]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
}

#[test]
fn a_reservation_that_promises_no_useful_time_is_refused_as_admission_does() {
    let leasehold = Leasehold::new();
    let program = leasehold.write("grow.wat", growing_by(1));
    // Its program would begin after hours, and so would its end.
    let options = ["run", "--cpu", "budget=1us,period=3600s", &program];
    let output = leasehold.run(&options);
    assert_eq!(output.status.code(), Some(77), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("no time is promised to be useful"), "{said}");
}

#[test]
fn what_a_lease_refused_is_a_line_that_says_what_it_took_at_least() {
    let leasehold = Leasehold::new();
    let program = leasehold.write("grow.wat", growing_by(100));
    let refused = |options: &[&str]| {
        let args = [&["run"], options, &[&program]].concat();
        let output = leasehold.run(&args);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert_eq!(
        refused(&["--memory", "64MiB"]),
        "leasehold: the lease refused the program something: once by --memory 64MiB, \
         where it took at least 101MiB at first\n"
    );
    // What it says of a budget leads to one that is enough: for a start, and for what the program asks for
    // then. How much that is depends on the host.
    let mut budget = "1us".to_owned();
    let mut starts = 0;
    let codes: Vec<_> = std::iter::from_fn(|| {
        let output = leasehold.run(&["run", "--budget", &budget, &program]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        let code = output.status.code();
        let (before, after) = match code {
            Some(0) => return None,
            Some(77) => ("a start takes ", " or more"),
            _ => (", where it took at least ", " at first"),
        };
        starts += 1;
        assert!(starts <= 16, "{budget} is not enough after all: {error}");
        let enough = error
            .split_once(before)
            .and_then(|(_, rest)| rest.split_once(after));
        budget = enough
            .unwrap_or_else(|| panic!("no {before:?} in {error}"))
            .0
            .to_owned();
        Some(code)
    })
    .collect();
    assert_eq!(codes.first(), Some(&Some(77)), "{codes:?}");
    assert_eq!(codes.last(), Some(&Some(1)), "{codes:?}");
}

#[test]
fn a_program_learns_its_directory() {
    let leasehold = Leasehold::new();
    // It exits with the number of its variables and the bytes of them.
    let program = leasehold.write(
        "env.wat",
        r#"(module
             (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
             (import "wasi_snapshot_preview1" "environ_sizes_get"
               (func $sizes (param i32 i32) (result i32)))
             (memory (export "memory") 1)
             (func (export "_start")
               (drop (call $sizes (i32.const 0) (i32.const 4)))
               (call $exit (i32.add (i32.mul (i32.load (i32.const 0)) (i32.const 100))
                                    (i32.load (i32.const 4))))))"#,
    );
    let code = |args: &[&str]| leasehold.run(args).status.code();
    let bytes = "PWD=/work\0".len() as i32;
    assert_eq!(code(&["run", &program]), Some(0));
    assert_eq!(
        code(&["run", "--cwd", "/work", &program]),
        Some(100 + bytes)
    );
    let given = ["run", "--cwd", "/work", "--env", "PWD=/", &program];
    assert_eq!(code(&given), Some(100 + "PWD=/\0".len() as i32));
    assert_eq!(code(&["run", "--cwd", "work", &program]), Some(2));
}

/// Runs a command that must end, whatever its guests do.
fn ends(mut command: Command) -> Output {
    let mut child = command
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("runs");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(120);
    while child.try_wait().expect("a child").is_none() {
        if std::time::Instant::now() > deadline {
            child.kill().expect("killed");
            panic!("it never ended");
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    child.wait_with_output().expect("its output")
}

#[test]
fn a_kill_ends_a_program_that_never_returns_to_the_call_it_made() {
    let leasehold = Leasehold::new();
    let attacks = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guests/attacks");
    for attack in ["realloc-loop.wat", "region-read-loop.wat"] {
        let program = attacks.join(attack).display().to_string();
        for after in ["60ms", "100ms", "150ms", "200ms"] {
            let args = ["run", "--kill-after", after, "--json", &program];
            let output = ends(leasehold.command(&args));
            assert_eq!(output.status.code(), Some(137), "{attack}: {output:?}");
            let json: serde_json::Value =
                serde_json::from_slice(&output.stderr).expect("the report");
            let time = |name: &str| json[name].as_u64().expect("a time");
            let passed = ["effect_wall_ns", "reusable_wall_ns", "returned_wall_ns"].map(time);
            assert!(passed.is_sorted(), "{json}");
            assert!(time("effect_bound_ns") < time("returned_bound_ns"));
        }
    }
}

#[test]
fn a_kill_has_a_deadline_and_an_exit_code() {
    let leasehold = Leasehold::new();
    let spin = guest("spin.wasm").display().to_string();
    let output = leasehold.run(&["run", "--kill-after", "30ms", "--json", &spin]);
    assert_eq!(output.status.code(), Some(137), "{output:?}");
    let json: serde_json::Value = serde_json::from_slice(&output.stderr).expect("JSON");
    assert_eq!(json["exit"], "killed");
}

#[test]
fn an_end_has_a_bound_under_any_reservation_that_is_admitted() {
    let leasehold = Leasehold::new();
    let spin = guest("spin.wasm").display().to_string();
    for (budget, cpu) in [("40ms", 6), ("50ms", 6), ("200ms", 8), ("200ms", 2)] {
        let lease = leasehold.write(
            "lease.toml",
            format!(
                "[tenant.spin]\ncomponent = \"{spin}\"\nreclaim.budget = \"{budget}\"\n\
                 cpu = {{ budget = \"{cpu}ms\", period = \"10ms\", priority = 1 }}\n"
            ),
        );
        let output = leasehold.run(&["run", "--lease", &lease, "--kill-after", "30ms", "--json"]);
        let json: serde_json::Value = serde_json::from_slice(&output.stderr).expect("JSON");
        assert!(json["returned_bound_ns"].is_u64(), "{budget} {cpu}: {json}");
    }
}

#[test]
fn the_exit_code_does_not_depend_on_the_form_of_the_output() {
    let leasehold = Leasehold::new();
    let program = |name: &str, body: &str| {
        let text =
            format!("(module (memory (export \"memory\") 1) (func (export \"_start\") {body}))");
        leasehold.write(name, text)
    };
    let done = program("done.wat", "");
    let trap = program("trap.wat", "unreachable");
    let endless = program("endless.wat", "(loop $l (br $l))");
    let leases = |name: &str, program: &str, budget: &str| {
        let text = format!(
            "[tenant.a]\ncomponent = {program:?}\nreclaim = {{ budget = \"1s\" }}\n\
             cpu = {{ budget = \"{budget}\", period = \"10ms\", priority = 9 }}\n\
             [tenant.b]\ncomponent = {program:?}\nreclaim = {{ budget = \"1s\" }}\n\
             cpu = {{ budget = \"2ms\", period = \"10ms\", priority = 9 }}\n"
        );
        leasehold.write(name, text)
    };
    let (kept, unkept) = (
        leases("kept.toml", &done, "2ms"),
        leases("unkept.toml", &done, "9ms"),
    );
    let wrong = leasehold.write("wrong.toml", "[tenant.a]\n");
    let background = leasehold.write(
        "trap.toml",
        format!("[tenant.a]\ncomponent = {trap:?}\nreclaim = {{ budget = \"1s\" }}\n"),
    );
    let nowhere = leasehold.path("no.sock").display().to_string();
    for (args, code) in [
        (&["run", &done][..], 0),
        (&["run", &trap], 134),
        (&["run", "--kill-after", "10ms", &endless], 137),
        (&["run", "--memory", "1KiB", &done], 77),
        (&["admit", &kept], 0),
        (&["admit", &unkept], 1),
        (&["admit", &wrong], 78),
        (&["up", &background], 1),
        (&["simulate", &unkept], 0),
        (&["simulate", &wrong], 78),
        (&["advise", "--longest", "50ms", &endless], 65),
        (&["advise", &trap], 65),
        (&["ps", "--socket", &nowhere], 66),
        (&["kill", "a", "--socket", &nowhere], 66),
    ] {
        let (command, rest) = args.split_first().expect("a command");
        let text = leasehold.run(args);
        assert_eq!(text.status.code(), Some(code), "{args:?}: {text:?}");
        let json = leasehold.run(&[&[*command, "--json"], rest].concat());
        assert_eq!(json.status.code(), Some(code), "{args:?}: {json:?}");
    }
}

#[test]
fn a_trap_is_told_with_its_reason() {
    let leasehold = Leasehold::new();
    let trap = leasehold.write(
        "trap.wat",
        r#"(module (func (export "_start") unreachable))"#,
    );
    let output = leasehold.run(&["run", &trap]);
    assert_eq!(output.status.code(), Some(134));
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("unreachable"),
        "{output:?}"
    );
}

#[test]
fn what_cannot_run_is_one_clear_error_each() {
    let leasehold = Leasehold::new();
    let hello = guest("hello.wasm").display().to_string();
    let whole = std::fs::read(guest("hello.wasm")).expect("read");

    leasehold.refuses(
        &["run", "nowhere.wasm"],
        66,
        &["no such program", "nowhere.wasm"],
    );
    let truncated = leasehold.write("truncated.wasm", &whole[..whole.len() / 2]);
    leasehold.refuses(&["run", &truncated], 65, &["truncated.wasm", "byte"]);
    let mut corrupt = whole;
    corrupt[20] ^= 0xff;
    let corrupt = leasehold.write("corrupt.wasm", corrupt);
    leasehold.refuses(&["run", &corrupt], 65, &["corrupt.wasm"]);
    let text = leasehold.write("notes.txt", "hello");
    leasehold.refuses(&["run", &text], 65, &["not WebAssembly"]);
    let library = leasehold.write("library.wat", "(module)");
    leasehold.refuses(&["run", &library], 65, &["_start"]);
    let foreign = leasehold.write(
        "foreign.wat",
        r#"(component (import "wasi:keyvalue/store@0.2.0" (instance (export "open" (func)))))"#,
    );
    leasehold.refuses(&["run", &foreign], 65, &["wasi:keyvalue/store"]);
    let flood = guest("instance-flood.wat").display().to_string();
    leasehold.refuses(&["run", &flood], 65, &["parts of component types"]);

    leasehold.refuses(
        &["run", "--dir", "/no/such/place", &hello],
        66,
        &["/no/such/place"],
    );
    leasehold.refuses(
        &["run", "--budget", "10us", &hello],
        77,
        &["budget", "10us"],
    );
}

#[test]
fn a_wrong_lease_names_file_line_key_and_what_is_allowed() {
    let leasehold = Leasehold::new();
    for (lease, words) in [
        (
            "[tenant.a]\ncomponent = \"a.wasm\"\nreclaim = { budget = \"0ns\" }",
            "reclaim.budget",
        ),
        (
            "[tenant.a]\ncomponent = \"a.wasm\"\nreclaim = { budget = \"-1s\" }",
            "reclaim.budget",
        ),
        (
            "[tenant.a]\ncomponent = \"a.wasm\"\nreclaim = { budget = \"9999h\" }",
            "reclaim.budget",
        ),
        (
            "[tenant.a]\ncomponent = \"a.wasm\"\nreclaim = { budget = \"1ms\" }\ncpu = {}",
            "tenant.a.cpu.budget",
        ),
        ("[tenant.a]\ncomponent = ", "lease.toml:2"),
    ] {
        let path = leasehold.write("lease.toml", lease);
        leasehold.refuses(&["run", "--lease", &path], 78, &["lease.toml", words]);
    }
    leasehold.refuses(&["run", "--lease", "nowhere.toml"], 66, &["nowhere.toml"]);
}

#[test]
fn a_damaged_profile_is_measured_again() {
    let leasehold = Leasehold::new();
    leasehold.write("profile.json", "{ damaged");
    let hello = guest("hello.wasm").display().to_string();
    let mut run = leasehold.command(&["run", &hello]);
    let mut run = run.stderr(Stdio::piped()).spawn().expect("runs");
    let said = BufReader::new(run.stderr.take().expect("piped"));
    let mut lines = said.lines().map_while(Result::ok);
    let first = lines.next().expect("the profile is named");
    assert!(first.contains("profile.json"), "{first}");
    // What follows is what any first run does on a host: a minute.
    assert!(lines.any(|line| line.contains("measuring linear memory")));
    run.kill().expect("it measures");
    run.wait().expect("it ends");
}

/// A program that writes to both of its outputs for ever.
const FLOOD: &str = r#"(module
     (import "wasi_snapshot_preview1" "fd_write"
       (func $write (param i32 i32 i32 i32) (result i32)))
     (memory (export "memory") 1)
     (data (i32.const 0) "\10\00\00\00\00\80\00\00")
     (func (export "_start")
       (loop
         (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))
         (drop (call $write (i32.const 2) (i32.const 0) (i32.const 1) (i32.const 8)))
         (br 0))))"#;

/// Waits for the end of a command whose output is not read.
fn end_of(child: &mut std::process::Child) -> std::process::ExitStatus {
    let began = std::time::Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("a child") {
            return status;
        }
        if began.elapsed() > std::time::Duration::from_secs(60) {
            let _ = child.kill();
            panic!("it does not end");
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn a_kill_has_a_deadline_although_what_was_written_is_not_read() {
    let leasehold = Leasehold::new();
    let flood = leasehold.write("flood.wat", FLOOD);
    let mut child = leasehold
        .command(&["run", "--kill-after", "100ms", &flood])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("runs");
    // Nothing reads it meanwhile.
    let stdout = child.stdout.take().expect("a pipe");
    let output = child.wait_with_output().expect("ends");
    drop(stdout);
    assert_eq!(output.status.code(), Some(137), "{:?}", output.status);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("not all output was read"), "no message");
}

#[test]
fn a_command_ends_although_neither_of_its_outputs_is_read() {
    let leasehold = Leasehold::new();
    leasehold.write("flood.wat", FLOOD);
    let lease = "[tenant.a]\ncomponent = \"flood.wat\"\nreclaim = { budget = \"50ms\" }\n";
    let lease = leasehold.write("lease.toml", lease);
    let flood = leasehold.path("flood.wat").display().to_string();
    let up = ["up", "--unadmitted", "--quiet", "--for", "200ms", &lease];
    let json = ["up", "--unadmitted", "--json", "--for", "200ms", &lease];
    let run = ["run", "--kill-after", "200ms", "--report", &flood];
    for (args, code) in [(&run[..], 137), (&up[..], 0), (&json[..], 0)] {
        for is_one in [false, true] {
            let mut command = leasehold.command(args);
            // As with `2>&1 |`: both are the same pipe.
            let (reader, writer) = std::io::pipe().expect("a pipe");
            let (other_reader, other) = std::io::pipe().expect("a pipe");
            let stderr = match is_one {
                true => writer.try_clone().expect("a pipe"),
                false => other,
            };
            let mut child = command.stdout(writer).stderr(stderr).spawn().expect("runs");
            let status = end_of(&mut child);
            assert_eq!(status.code(), Some(code), "{args:?} {is_one}: {status:?}");
            drop((reader, other_reader));
        }
    }
}

#[test]
fn a_signal_ends_a_command_whose_outputs_are_not_read() {
    use rustix::process::{Pid, Signal, kill_process};
    let leasehold = Leasehold::new();
    // It ends by itself, with more than a pipe takes: without a signal it waits for the reader.
    let much = FLOOD
        .replace(
            "(br 0)",
            "(br_if 0 (i32.lt_u (global.get $n) (i32.const 3)))",
        )
        .replace(
            "(loop",
            "(loop (global.set $n (i32.add (global.get $n) (i32.const 1)))",
        )
        .replace(
            "(func (export",
            "(global $n (mut i32) (i32.const 0)) (func (export",
        );
    let much = leasehold.write("much.wat", much);
    for program in [&much, &leasehold.write("flood.wat", FLOOD)] {
        let mut child = leasehold
            .command(&["run", program])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("runs");
        let mut stdout = child.stdout.take().expect("a pipe");
        // The first byte is there when the program runs.
        let mut byte = [0];
        stdout.read_exact(&mut byte).expect("a byte");
        std::thread::sleep(std::time::Duration::from_millis(500));
        assert!(child.try_wait().expect("a child").is_none());
        kill_process(Pid::from_child(&child), Signal::TERM).expect("sent");
        end_of(&mut child);
    }
}

#[test]
fn either_mechanism_preempts_a_program_that_never_returns() {
    let leasehold = Leasehold::new();
    let hello = guest("hello.wasm").display().to_string();
    let spin = guest("spin.wasm").display().to_string();
    // Injection has two modules of its own.
    for (compiled, mechanism) in [(3, "injected"), (4, "epochs")] {
        let output = leasehold.run(&["run", "--preempt", mechanism, &hello, "Ada"]);
        assert_eq!(output.status.code(), Some(0), "{mechanism}: {output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "hello, Ada\n");
        // Checks are compiled in, or are not: it is another program each time.
        assert_eq!(leasehold.compiled_programs(), compiled, "{mechanism}");
    }
    for mechanism in ["injected", "epochs"] {
        let kill = [
            "run",
            "--preempt",
            mechanism,
            "--kill-after",
            "100ms",
            &spin,
        ];
        let output = leasehold.run(&kill);
        assert_eq!(output.status.code(), Some(137), "{mechanism}: {output:?}");
    }
    let wrong = leasehold.run(&["run", "--preempt", "never", &hello]);
    let error = String::from_utf8_lossy(&wrong.stderr);
    assert_eq!(wrong.status.code(), Some(2), "{error}");
    for word in ["--preempt", "never", "injected", "epochs"] {
        assert!(error.contains(word), "no {word:?} in {error}");
    }
    assert!(wrong.stdout.is_empty());
}

#[test]
fn the_environment_does_not_make_traps_parse_a_programs_debug_information() {
    let leasehold = Leasehold::new();
    let hello = guest("hello.wasm").display().to_string();
    let mut compiled = Vec::new();
    for details in ["0", "1"] {
        let mut command = leasehold.command(&["run", &hello, "Ada"]);
        let output = command.env("WASMTIME_BACKTRACE_DETAILS", details).output();
        let output = output.expect("runs");
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        compiled.push(leasehold.compiled_programs());
    }
    // The tables that the engine would parse are part of what is compiled: it would be another program.
    assert_eq!(compiled[0], compiled[1]);
}

#[test]
fn admission_counts_on_what_a_preemption_was_measured_to_take_here() {
    let leasehold = Leasehold::new();
    let lease = leasehold.write(
        "lease.toml",
        "[tenant.a]\ncomponent = \"a.wasm\"\nreclaim = { budget = \"1ms\" }\n\
         cpu = { budget = \"2ms\", period = \"10ms\", nonpreemptive = \"1ms\" }\n",
    );
    let profile = std::fs::read_to_string(leasehold.path("profile.json")).expect("a profile");
    let measured: serde_json::Value = serde_json::from_str(&profile).expect("JSON");
    let preemption = &measured["preemption"];
    let sum: u64 = ["interrupt", "decision", "switch"]
        .iter()
        .map(|part| preemption[part]["p99_ns"].as_u64().expect("a time"))
        .sum();
    assert!(sum > 0, "{preemption}");
    let admit = |options: &[&str]| {
        let output = leasehold.run(&[&["admit", &lease, "--json"], options].concat());
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (json, said)
    };
    let (json, said) = admit(&[]);
    assert_eq!(
        (&json["overhead_source"], said.as_str()),
        (&"calibrated".into(), "")
    );
    assert_eq!(json["overhead_ns"], sum);
    // The only tenant is never preempted: it is dispatched and stops, once a period.
    assert_eq!(json["tenants"][0]["useful_ns"], 2_000_000 - 2 * sum);

    let (json, _) = admit(&["--overhead", "7us"]);
    assert_eq!(
        (&json["overhead_source"], &json["overhead_ns"]),
        (&"given".into(), &7000.into())
    );

    // Of another host it says nothing.
    let mut foreign = measured.clone();
    foreign["host"]["kernel"] = "0.0".into();
    leasehold.write("profile.json", foreign.to_string());
    let (json, said) = admit(&[]);
    assert_eq!(
        (&json["overhead_source"], &json["overhead_ns"]),
        (&"assumed".into(), &50_000.into())
    );
    assert!(
        said.contains("profile.json") && said.contains("calibrate"),
        "{said}"
    );
}

#[test]
fn a_read_of_standard_input_waits_on_when_another_got_the_bytes() {
    let leasehold = Leasehold::new();
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guests/attacks/readers.wat");
    let mut child = leasehold
        .command(&["run", &program.display().to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut input = child.stdin.take().expect("a pipe");
    let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    for _ in 0..3 {
        output.read_line(&mut line).expect("a line");
    }
    assert_eq!(line, "waiting\n".repeat(3));
    input.write_all(b"ab").expect("written");
    drop(input);
    let mut rest = String::new();
    output.read_to_string(&mut rest).expect("read");
    assert_eq!(rest, "", "a read was told of an error");
    assert!(child.wait().expect("ends").success());
}

#[test]
fn input_is_found_by_a_program_that_only_looks_for_it() {
    let leasehold = Leasehold::new();
    let attacks = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guests/attacks");
    let program = attacks.join("poll-input.wat");
    let mut child = leasehold
        .command(&["run", &program.display().to_string()])
        .stdin(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all(b"hello").expect("written");
    assert!(child.wait().expect("ends").success());
}

#[test]
fn a_standard_input_that_is_a_directory_is_told_so() {
    const ISDIR: i32 = 31;
    let leasehold = Leasehold::new();
    let program = leasehold.write(
        "input.wat",
        r#"(module
          (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
          (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
          (memory (export "memory") 1)
          (data (i32.const 0) "\10\00\00\00\01\00\00\00")
          (func (export "_start")
            (call $exit (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))))"#,
    );
    let directory = std::fs::File::open(leasehold.directory.path()).expect("a directory");
    let mut command = leasehold.command(&["run", &program]);
    let output = command.stdin(directory).output().expect("runs");
    assert_eq!(output.status.code(), Some(ISDIR), "{output:?}");
}

#[test]
fn output_that_cannot_be_written_is_a_failure() {
    let leasehold = Leasehold::new();
    let full = std::fs::File::options().write(true).open("/dev/full");
    let mut command = leasehold.command(&["run", &guest("hello.wasm").display().to_string()]);
    let output = command
        .stdout(full.expect("a device"))
        .stderr(Stdio::piped());
    let output = output.output().expect("runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(70), "{error}");
    assert!(
        error.contains("standard output cannot be written"),
        "{error}"
    );
}

#[test]
fn a_report_that_cannot_be_written_is_a_failure_and_other_lines_are_none() {
    let leasehold = Leasehold::new();
    let hello = guest("hello.wasm").display().to_string();
    let lease = leasehold.write(
        "leases.toml",
        format!("[tenant.a]\ncomponent = {hello:?}\nreclaim = {{ budget = \"20ms\" }}\nrestart = \"on-failure\"\n"),
    );
    for (arguments, code) in [
        (&["run", "--json", &hello][..], 70),
        (&["run", "--report", &hello], 70),
        (&["up", "--quiet", "--unadmitted", &lease], 70),
        (&["up", "--memory", "--quiet", "--unadmitted", &lease], 70),
        (&["run", "--lease", &lease], 0),
    ] {
        let full = std::fs::File::options().write(true).open("/dev/full");
        let mut command = leasehold.command(arguments);
        let output = command
            .stdout(Stdio::piped())
            .stderr(full.expect("a device"));
        let output = output.output().expect("runs");
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        assert!(
            !output.stdout.is_empty(),
            "the program has run: {arguments:?}"
        );
    }
}

#[test]
fn output_and_errors_that_go_to_one_file_keep_their_order() {
    let leasehold = Leasehold::new();
    let program = leasehold.write(
        "both.wat",
        r#"(module (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
          (memory (export "memory") 1)
          (data (i32.const 0) "\10\00\00\00\01\00\00\00\11\00\00\00\01\00\00\00oe")
          (func (export "_start") (local $left i32)
            (local.set $left (i32.const 500))
            (loop $again
              (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 32)))
              (drop (call $write (i32.const 2) (i32.const 8) (i32.const 1) (i32.const 32)))
              (br_if $again (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))))"#,
    );
    let path = leasehold.path("both");
    let file = std::fs::File::create(&path).expect("created");
    let mut command = leasehold.command(&["run", &program]);
    let again = file.try_clone().expect("cloned");
    let status = command.stdout(file).stderr(again).status().expect("runs");
    assert!(status.success());
    assert_eq!(
        std::fs::read_to_string(&path).expect("read"),
        "oe".repeat(500)
    );
}

#[test]
fn a_tenant_that_answers_requests_is_not_run() {
    let leasehold = Leasehold::new();
    let lease = leasehold.write(
        "lease.toml",
        "[listener.main]\naddress = \"127.0.0.1:0\"\n[tenant.shop]\ncomponent = \"shop.wasm\"\n\
         reclaim.budget = \"1ms\"\nhttp.routes = [\"/*\"]\n",
    );
    let words = ["tenant.shop.http: only `leasehold serve`"];
    leasehold.refuses(&["run", "--lease", &lease], 78, &words);
}

#[test]
fn a_lease_that_starts_a_program_again_is_told_that_it_is_run_once() {
    let leasehold = Leasehold::new();
    let program = leasehold.write(
        "done.wat",
        "(module (memory (export \"memory\") 1) (func (export \"_start\")))",
    );
    let lease = leasehold.write(
        "lease.toml",
        format!(
            "[tenant.done]\ncomponent = {program:?}\nreclaim.budget = \"20ms\"\nrestart = \"on-failure\"\n"
        ),
    );
    let output = leasehold.run(&["run", "--lease", &lease]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{error}");
    let said = "tenant.done.restart: found \"on-failure\", which `leasehold run` does not do";
    assert!(error.contains(said), "{error}");
}

#[test]
fn what_a_lease_file_says_of_the_cell_holds_for_a_program_that_is_run_alone() {
    let leasehold = Leasehold::new();
    let program = leasehold.write(
        "done.wat",
        "(module (memory (export \"memory\") 1) (func (export \"_start\")))",
    );
    let run = |cell: &str| {
        let tenant = format!("[tenant.done]\ncomponent = {program:?}\nreclaim.budget = \"20ms\"\n");
        let text = format!("[cell]\n{cell}\n{tenant}memory.reserve = \"16MiB\"\n");
        let lease = leasehold.write("lease.toml", text);
        let output = leasehold.run(&["run", "--lease", &lease]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), said)
    };
    let (code, said) = run("code = \"1GiB\"\nmemory = \"32MiB\"");
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = run("code = \"4KiB\"");
    assert_eq!(code, Some(65), "{said}");
    assert!(said.contains("cell.code"), "{said}");
    let (code, said) = run("memory = \"1MiB\"");
    assert_eq!(code, Some(77), "{said}");
}

#[test]
fn a_file_larger_than_the_process_may_write_is_an_errno_for_its_tenant() {
    let leasehold = Leasehold::new();
    let program = leasehold.write(
        "large.wat",
        r#"(module
          (import "wasi_snapshot_preview1" "path_open"
            (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
          (import "wasi_snapshot_preview1" "fd_pwrite" (func $write (param i32 i32 i32 i64 i32) (result i32)))
          (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
          (memory (export "memory") 1)
          (data (i32.const 0) "f") (data (i32.const 16) "\00\00\00\00\01\00\00\00")
          (func (export "_start")
            (drop (call $open (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 1)
              (i64.const 64) (i64.const 0) (i32.const 0) (i32.const 32)))
            (call $exit (call $write (i32.load (i32.const 32)) (i32.const 16) (i32.const 1)
              (i64.const 2000000000) (i32.const 40)))))"#,
    );
    let files = leasehold.path("files");
    std::fs::create_dir(&files).expect("made");
    let own = leasehold.command(&["run", "--dir", &files.display().to_string(), &program]);
    let mut limited = Command::new("sh");
    limited
        .arg("-c")
        .arg("ulimit -f 1000000 && exec \"$@\"")
        .arg("sh");
    limited.arg(own.get_program()).args(own.get_args());
    for (name, value) in own.get_envs() {
        limited.env(name, value.unwrap_or_default());
    }
    // `EFBIG`, and not a signal.
    assert_eq!(limited.output().expect("runs").status.code(), Some(22));
}
