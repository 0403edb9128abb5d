//! Tests of `leasehold up`: its table, its report and its exit codes.

mod calibrated;
mod terminal;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A lease file, and `leasehold up` on it.
struct Leases {
    directory: TempDir,
}

impl Leases {
    fn new(tenants: &[(&str, &str, &str)]) -> Self {
        let directory = tempfile::tempdir().expect("directory");
        let text: String = tenants
            .iter()
            .map(|(name, guest, rest)| {
                let component = guests().join(guest);
                format!(
                    "[tenant.{name}]\ncomponent = {component:?}\nreclaim = {{ budget = \"20ms\" }}\n{rest}\n"
                )
            })
            .collect();
        std::fs::write(directory.path().join("leases.toml"), text).expect("written");
        Self { directory }
    }

    /// One with a reservation that asks for more, one that shares the rest, and one that ends.
    fn of_three() -> Self {
        Self::new(&[
            (
                "spinner",
                "spin.wasm",
                "cpu = { budget = \"2ms\", period = \"20ms\", priority = 5 }",
            ),
            ("idle", "spin.wasm", ""),
            ("short", "hello.wasm", "args = [\"Ada\"]"),
        ])
    }

    /// One line on standard error with all `words`, and nothing has run.
    fn refuses(&self, options: &[&str], code: i32, words: &[&str]) {
        let output = self.up(options);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{error}");
        assert_eq!(error.trim().lines().count(), 1, "{error}");
        for word in words {
            assert!(error.contains(word), "no {word:?} in {error}");
        }
        assert!(output.stdout.is_empty(), "something has run: {output:?}");
    }

    fn up(&self, options: &[&str]) -> Output {
        self.command(options).output().expect("runs")
    }

    /// Under a profile that was measured once.
    fn command(&self, options: &[&str]) -> Command {
        static PROFILE: OnceLock<TempDir> = OnceLock::new();
        let profile = PROFILE.get_or_init(|| {
            let directory = tempfile::tempdir().expect("directory");
            let path = directory.path().join("profile.json");
            let mut profile: Value = serde_json::from_str(calibrated::profile()).expect("JSON");
            // Where a preemption was measured in a bad moment, it would take all of a budget: then no
            // end has a bound.
            for part in ["interrupt", "decision", "switch"] {
                let p99 = &mut profile["preemption"][part]["p99_ns"];
                *p99 = p99.as_u64().expect("a time").min(40_000).into();
            }
            std::fs::write(path, profile.to_string()).expect("written");
            directory
        });
        let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
        command
            .current_dir(self.directory.path())
            .args(["up", "leases.toml"])
            .args(options)
            .env("LEASEHOLD_PROFILE", profile.path().join("profile.json"));
        command
    }
}

fn guests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/guests")
}

#[test]
fn every_tenant_runs_inside_its_reservation_and_is_reported() {
    let leases = Leases::of_three();
    let output = leases.up(&["--for", "500ms", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let tenant = |name: &str| {
        let tenants = json["tenants"].as_array().expect("tenants");
        let found = tenants.iter().find(|tenant| tenant["name"] == name);
        found.expect("every tenant is reported").clone()
    };
    let spinner = tenant("spinner");
    let elapsed = json["elapsed_ns"].as_u64().expect("a time");
    let used = spinner["used_ns"].as_u64().expect("a time");
    let overrun = spinner["overrun_max_ns"].as_u64().expect("a time");
    assert!(
        used <= (elapsed / 20_000_000 + 2) * 2_000_000 + overrun,
        "{spinner}"
    );
    assert!(spinner["depletions"].as_u64() > Some(0), "{spinner}");
    assert!(spinner["replenishments"].as_u64() > Some(0), "{spinner}");
    assert!(spinner["misses"].is_u64(), "{spinner}");
    let preempted = tenant("idle")["preemptions"].as_u64();
    assert!(preempted > Some(0), "by the spinner: {preempted:?}");
    assert_eq!(spinner["state"], "killed");
    let wall = spinner["reclaim_wall_ns"].as_u64().expect("a time");
    let bound = spinner["reclaim_bound_ns"].as_u64().expect("a time");
    assert!(wall <= bound, "{spinner}");
    assert!(tenant("idle")["used_ns"].as_u64() > Some(0));
    assert_eq!(tenant("idle")["budget_ns"], Value::Null);
    assert!(tenant("idle")["reclaim_bound_ns"].is_u64(), "{json}");
    assert_eq!(tenant("short")["state"], "exit 0");
    assert!(
        tenant("short")["used_ns"].as_u64() > Some(0),
        "however short it was there"
    );
    assert_eq!(json["overhead_source"], "calibrated");
    assert_eq!(json["schedulable"], true);
}

#[test]
fn it_ends_in_time_although_a_tenant_never_returns_to_the_call_it_made() {
    for attack in ["realloc-loop.wat", "region-read-loop.wat"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guests/attacks");
        let path = path.join(attack).canonicalize().expect("an attack");
        let path = path.to_str().expect("a name");
        let leases = Leases::new(&[
            (
                "victim",
                "spin.wasm",
                "cpu = { budget = \"2ms\", period = \"10ms\", priority = 100 }",
            ),
            ("attacker", path, ""),
            ("neighbour", "spin.wasm", ""),
        ]);
        let (done, is_done) = std::sync::mpsc::channel();
        let mut command = leases.command(&["--for", "300ms", "--json"]);
        std::thread::spawn(move || done.send(command.output()));
        let output = is_done.recv_timeout(std::time::Duration::from_secs(120));
        let output = output.expect("it never ended").expect("runs");
        let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        for tenant in json["tenants"].as_array().expect("tenants") {
            assert_eq!(tenant["state"], "killed", "{attack}: {tenant}");
            let time = |name: &str| tenant[name].as_u64().expect("a time");
            assert!(time("effect_wall_ns") <= time("reclaim_wall_ns"));
            assert!(time("effect_bound_ns") < time("reclaim_bound_ns"));
            assert!(time("reclaim_wall_ns") < time("reclaim_bound_ns"));
            assert!(time("used_ns") > 0, "{attack}: {tenant}");
        }
    }
}

/// The words of a tenant's row in a table.
fn row<'a>(screen: &'a str, tenant: &str) -> Option<Vec<&'a str>> {
    let words = |line: &'a str| line.split_whitespace().collect::<Vec<_>>();
    let mut rows = screen.lines().map(words);
    rows.find(|words| words.first() == Some(&tenant))
}

#[test]
fn a_live_table_shows_the_tenants_that_run_stays_in_its_place_and_gives_way_to_the_report() {
    const SUMMARY: &str = "1 of 3 have ended; Ctrl-C kills the others and reports";
    let leases = Leases::of_three();
    let seen = terminal::watch(leases.command(&["--for", "3s"]));
    assert!(seen.status.success(), "{:?}", seen.screens.last());
    let (report, before) = seen.screens.split_last().expect("something is shown");
    let tables = before.iter().filter(|screen| screen.contains(SUMMARY));
    let tables: Vec<&String> = tables.collect();
    // It is drawn twice a second, and on a busy host not that often.
    let [first, .., latest] = tables[..] else {
        panic!("{tables:?}");
    };
    for table in &tables {
        assert_eq!(table.matches("replenished").count(), 1, "{table}");
        assert_eq!(table.matches("Ctrl-C").count(), 1, "{table}");
    }

    // The state of each tenant, its remaining budget, and its counters.
    let spinner = row(latest, "spinner").expect("a row").join(" ");
    assert!(spinner.contains(['█', '░']), "{spinner}");
    assert!(spinner.contains("2ms / 20ms"), "{spinner}");
    assert_ne!(row(first, "spinner"), row(latest, "spinner"), "it goes on");
    let idle = row(latest, "idle").expect("a row");
    assert!(idle.contains(&"background"), "{latest}");
    let short = row(latest, "short").expect("a row");
    assert_eq!(short[1..3], ["exit", "0"], "{latest}");

    // The output of a tenant is above the table, and not lost; the report takes the table's place.
    assert!(latest.find("Ada") < latest.find("replenished"), "{latest}");
    assert!(report.contains("Ada"), "{report}");
    assert!(!report.contains("Ctrl-C"), "{report}");
    let spinner = row(report, "spinner").expect("a row");
    assert!(spinner.contains(&"killed"), "{report}");
}

#[test]
fn a_set_that_cannot_be_kept_is_not_started_unless_told_to() {
    let cpu = "cpu = { budget = \"6ms\", period = \"10ms\" }";
    let leases = Leases::new(&[("a", "hello.wasm", cpu), ("b", "hello.wasm", cpu)]);
    let refused = leases.up(&["--for", "1s"]);
    let error = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(77), "{error}");
    assert!(error.contains("leasehold admit"), "{error}");
    // Of two with the same priority neither is sure of its budget.
    let named = error.contains("leases.toml: tenant.a.cpu: found 6ms in every 10ms");
    assert!(named, "{error}");
    assert!(refused.stdout.is_empty(), "nothing has run");
    let started = leases.up(&["--for", "5s", "--unadmitted"]);
    let said = String::from_utf8_lossy(&started.stdout);
    assert_eq!(started.status.code(), Some(0), "{started:?}");
    assert_eq!(said.lines().count(), 2, "{said}");
}

#[test]
fn memory_that_the_cell_does_not_hold_is_not_promised() {
    let memory = "memory = { reserve = \"48MiB\" }";
    let leases = Leases::new(&[
        ("a", "hello.wasm", memory),
        (
            "b",
            "hello.wasm",
            &format!("{memory}\n[cell]\nmemory = \"64MiB\""),
        ),
    ]);
    let output = leases.up(&["--for", "1s", "--unadmitted"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(77), "{error}");
    assert!(
        error.contains("leases.toml: memory: does NOT fit"),
        "{error}"
    );
    assert!(error.contains("32MiB too little"), "{error}");
    assert!(output.stdout.is_empty(), "nothing has run");
}

#[test]
fn what_fails_is_named_and_nothing_else_is_started() {
    let leases = Leases::new(&[("good", "hello.wasm", ""), ("bad", "none.wasm", "")]);
    let output = leases.up(&["--for", "1s"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(66), "{error}");
    assert!(error.contains("tenant.bad: no such program"), "{error}");
    assert!(output.stdout.is_empty(), "the good one has not run");
}

#[test]
fn what_is_no_lease_is_named_before_anything_starts() {
    for (cpu, words) in [
        (
            "budget = \"0ms\", period = \"4ms\"",
            ["cpu.budget", "found \"0ms\"", "allowed:"],
        ),
        (
            "budget = \"1ms\", period = \"0ms\"",
            ["cpu.period", "found \"0ms\"", "allowed:"],
        ),
        (
            "budget = \"4ms\", period = \"1ms\"",
            ["cpu.budget", "found \"4ms\"", "allowed: at most the period"],
        ),
        (
            "budget = \"1ms\", period = \"4ms\", nonpreemptive = \"2ms\"",
            [
                "cpu.nonpreemptive",
                "found \"2ms\"",
                "allowed: at most the budget",
            ],
        ),
        (
            "budget = \"1ms\", period = \"4ms\", priority = 256",
            ["cpu.priority", "found the number 256", "0 to 255"],
        ),
        (
            "budget = \"1ms\", period = \"4ms\", priority = \"urgent\"",
            ["cpu.priority", "found \"urgent\"", "0 to 255"],
        ),
    ] {
        let cpu = format!("cpu = {{ {cpu} }}");
        let leases = Leases::new(&[("good", "hello.wasm", ""), ("bad", "hello.wasm", &cpu)]);
        leases.refuses(&["--for", "1s"], 78, &["leases.toml:8:"]);
        leases.refuses(&["--for", "1s"], 78, &words);
    }
}

#[test]
fn more_than_the_processor_is_refused_before_anything_starts() {
    let full = "cpu = { budget = \"10ms\", period = \"10ms\", priority = 3 }";
    let leases = Leases::new(&[("a", "hello.wasm", full), ("b", "hello.wasm", full)]);
    leases.refuses(
        &["--for", "1s"],
        77,
        &["leases.toml", "cannot all be kept", "leasehold admit"],
    );
}

#[test]
fn more_tenants_than_a_cell_has_places_for_are_refused_before_any_is_started() {
    let many = |count: usize| {
        let names: Vec<String> = (0..count).map(|n| format!("t{n}")).collect();
        let tenants: Vec<_> = names
            .iter()
            .map(|name| (name.as_str(), "hello.wasm", ""))
            .collect();
        Leases::new(&tenants)
    };
    many(100_000).refuses(
        &["--for", "1s"],
        78,
        &[
            "leases.toml",
            "tenant: found 100000 tables",
            "allowed: at most 10000",
        ],
    );
    many(1025).refuses(
        &["--for", "1s"],
        78,
        &[
            "leases.toml",
            "tenant: found 1025 tables",
            "allowed: at most 1024",
        ],
    );
}

#[test]
fn a_tenant_that_cannot_be_paid_for_keeps_all_others_from_running() {
    let leases = Leases::new(&[("good", "hello.wasm", ""), ("poor", "hello.wasm", "")]);
    let path = leases.directory.path().join("leases.toml");
    let text = std::fs::read_to_string(&path).expect("written");
    let (good, poor) = text.split_at(text.find("[tenant.poor]").expect("there"));
    let poor = poor.replace("20ms", "1us");
    std::fs::write(&path, format!("{good}{poor}")).expect("written");
    leases.refuses(&["--for", "1s"], 77, &["tenant.poor", "budget"]);
}

#[test]
fn tenants_are_preempted_by_either_mechanism() {
    let leases = Leases::new(&[
        (
            "spinner",
            "spin.wasm",
            "cpu = { budget = \"2ms\", period = \"20ms\" }",
        ),
        ("other", "spin.wasm", ""),
    ]);
    for mechanism in ["injected", "epochs"] {
        let output = leases.up(&["--for", "300ms", "--preempt", mechanism, "--json"]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        for tenant in json["tenants"].as_array().expect("tenants") {
            assert!(
                tenant["used_ns"].as_u64() > Some(0),
                "{mechanism}: {tenant}"
            );
            assert_eq!(tenant["state"], "killed");
        }
        assert!(
            json["tenants"][0]["depletions"].as_u64() > Some(0),
            "{mechanism}"
        );
    }
}

#[test]
fn a_swap_file_that_cannot_be_made_is_a_fault_of_the_lease() {
    let leases = Leases::new(&[(
        "a",
        "hello.wasm",
        "memory = { reserve = \"4MiB\", limit = \"8MiB\", swap = \"no/such/place\" }",
    )]);
    leases.refuses(&["--for", "1s"], 78, &["memory.swap", "no/such/place"]);
}

#[test]
fn an_interruption_while_programs_are_started_is_obeyed_at_once() {
    // The microsecond of the hour is gone before anything is started.
    let slow = "cpu = { budget = \"1us\", period = \"3600s\", priority = 3 }";
    let leases = Leases::new(&[("a", "hello.wasm", ""), ("b", "hello.wasm", slow)]);
    let mut child = leases
        .command(&["--unadmitted"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    // Until it waits: the first of the two is started within that, and held.
    std::thread::sleep(Duration::from_secs(2));
    assert!(child.try_wait().expect("asked").is_none(), "it waits");
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::INT).expect("sent");
    let status = child.wait().expect("ends");
    assert_eq!(status.signal(), Some(Signal::INT.as_raw()));
    let mut output = String::new();
    let stdout = child.stdout.as_mut().expect("a pipe");
    stdout.read_to_string(&mut output).expect("read");
    assert_eq!(output, "", "nothing of a guest has run");
}

#[test]
fn a_tenant_that_a_server_starts_again_is_started_once_and_that_is_said() {
    let leases = Leases::new(&[
        ("once", "hello.wasm", "restart = \"on-failure\""),
        ("plain", "hello.wasm", ""),
    ]);
    let output = leases.up(&["--quiet"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{error}");
    let said = "tenant.once.restart: found \"on-failure\", which `leasehold up` does not do";
    assert!(error.contains(said), "{error}");
    assert!(!error.contains("tenant.plain.restart"), "{error}");
}

#[test]
fn a_set_with_a_socket_is_operated_as_a_server_and_starts_a_tenant_again() {
    let leases = Leases::new(&[
        ("spinner", "spin.wasm", ""),
        ("again", "traps.wat", "restart = \"on-failure\""),
    ]);
    let path = leases.directory.path();
    let text = std::fs::read_to_string(path.join("leases.toml")).expect("read");
    let traps = guests().join("traps.wat");
    let text = text.replace(traps.to_str().expect("text"), "traps.wat");
    std::fs::write(path.join("leases.toml"), text).expect("written");
    let traps = "(module (memory (export \"memory\") 1) (func (export \"_start\") unreachable))";
    std::fs::write(path.join("traps.wat"), traps).expect("written");
    let socket = path.join("up.sock");
    let mut command = leases.command(&["--confinement", "trap", "--socket"]);
    let mut node = command
        .arg(&socket)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("runs");
    let ask = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
        let command = command.args(words).arg("--socket").arg(&socket);
        let output = command.output().expect("runs");
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).into_owned(),
        )
    };
    let restarted = || {
        let (code, out) = ask(&["ps", "--json"]);
        let tenants: Option<Value> = serde_json::from_str(&out).ok().filter(|_| code == Some(0));
        tenants.is_some_and(|tenants| tenants["tenants"][1]["restarts"].as_u64() > Some(0))
    };
    let end = Instant::now() + Duration::from_secs(60);
    while !restarted() {
        assert!(Instant::now() < end, "it is not started again: {node:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    let killed = ask(&["kill", "spinner", "--json"]).0;
    assert!(
        matches!(killed, Some(0 | 1)),
        "{killed:?}: 1 is an end that a busy machine made late"
    );
    assert!(ask(&["top"]).1.contains("spinner"));
    assert!(ask(&["logs", "again"]).0 == Some(0));
    let served = "[tenant.web]\ncomponent = \"traps.wat\"\nreclaim.budget = \"20ms\"\nhttp.routes = [\"/*\"]\n";
    std::fs::write(path.join("web.toml"), served).expect("written");
    let put = path.join("web.toml");
    assert_ne!(ask(&["put", "web", put.to_str().expect("text")]).0, Some(0));
    kill_process(Pid::from_child(&node), Signal::TERM).expect("sent");
    let status = node.wait().expect("ended");
    assert!(matches!(status.code(), Some(0 | 1)), "{status:?}");
    assert!(!socket.exists());
}

#[test]
fn operators_may_write_the_places_of_the_start_as_they_like() {
    let places = |base: &str| {
        format!(
            "data = [{{ name = \"set\", file = \"{base}set\" }}]\n\
             memory = {{ reserve = \"5MiB\", limit = \"8MiB\", swap = \"{base}swap\" }}\n"
        )
    };
    let leases = Leases::new(&[("a", "spin.wasm", &places(""))]);
    let path = leases.directory.path();
    std::fs::write(path.join("set"), [1; 8192]).expect("written");
    let own = path.join("up.sock");
    // The lease file is named as the working directory sees it.
    let mut command = leases.command(&["--unadmitted", "--socket"]);
    let mut node = command
        .arg(&own)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("runs");
    let end = Instant::now() + Duration::from_secs(60);
    while !own.exists() {
        assert!(Instant::now() < end, "it does not answer: {node:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    let absolute = format!("{}/", path.display());
    for base in ["", "./", &absolute] {
        let table = path.join("a.toml");
        let text = std::fs::read_to_string(path.join("leases.toml")).expect("read");
        let text = text.replace(&places(""), &places(base));
        std::fs::write(&table, text).expect("written");
        let mut put = Command::new(env!("CARGO_BIN_EXE_leasehold"));
        put.args(["put", "a"]).arg(&table).arg("--socket").arg(&own);
        let put = put.output().expect("runs");
        assert_eq!(put.status.code(), Some(0), "{base:?}: {put:?}");
    }
    kill_process(Pid::from_child(&node), Signal::TERM).expect("sent");
    node.wait().expect("ended");
}

/// A program that writes lines of 15 of these letters without end, `lines` with each call.
fn writer(directory: &Path, letter: char, lines: usize) -> String {
    let line = format!("{}\\n", letter.to_string().repeat(15));
    let text = format!(
        "(module
          (import \"wasi_snapshot_preview1\" \"fd_write\"
            (func $fd_write (param i32 i32 i32 i32) (result i32)))
          (memory (export \"memory\") 2)
          (data (i32.const 0) \"\\10\\00\\00\\00\")
          (data (i32.const 16) \"{}\")
          (func (export \"_start\")
            (i32.store (i32.const 4) (i32.const {}))
            (loop $again
              (drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))
              (br $again))))",
        line.repeat(lines),
        16 * lines
    );
    let path = directory.join(format!("{letter}.wat"));
    std::fs::write(&path, text).expect("written");
    path.to_str().expect("a name").to_owned()
}

#[test]
fn between_two_turns_of_a_tenant_a_slow_reader_gets_one_of_each_other_tenant() {
    /// `leasehold_crossing::TURN`.
    const TURN: usize = 4096;
    const READ: usize = 300_000;
    /// What is in the system's pipe before the tenants have written more than it holds.
    const BEGUN: usize = 150_000;
    let programs = tempfile::tempdir().expect("directory");
    // As much as its pipe holds at once, and a line at a time.
    let flood = writer(programs.path(), 'f', 4096);
    let quiet = writer(programs.path(), 'q', 1);
    let leases = Leases::new(&[("flood", &flood, ""), ("quiet", &quiet, "")]);
    let mut command = leases.command(&["--quiet"]);
    let mut up = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    let mut stdout = up.stdout.take().expect("a pipe");
    let mut text = vec![0; READ];
    for part in text.chunks_mut(TURN) {
        stdout.read_exact(part).expect("output");
        std::thread::sleep(Duration::from_millis(8));
    }
    drop(stdout);
    let pid = Pid::from_raw(up.id().cast_signed()).expect("a process");
    kill_process(pid, Signal::INT).expect("it is there");
    up.wait().expect("it ends");
    let text = String::from_utf8(text).expect("text");
    let begun = text[BEGUN..].find('\n').expect("the end of a line");
    let mut lines = text[BEGUN + begun + 1..].lines();
    // The last line may not be whole.
    lines.next_back();
    let (mut since, mut longest) = (0, 0);
    for line in lines {
        assert!(line == "f".repeat(15) || line == "q".repeat(15), "{line}");
        since = if line.starts_with('f') { since + 16 } else { 0 };
        longest = longest.max(since);
    }
    assert!(
        longest <= TURN,
        "{longest} bytes of the other tenant in between"
    );
}
