//! Tests of `leasehold simulate`: its output, its files and its exit codes.

use serde_json::Value;
use std::process::{Command, Output};
use tempfile::TempDir;

struct Leases {
    directory: TempDir,
}

const LEASES: &str = r#"
[tenant.control]
component = "control.wasm"
reclaim = { budget = "1ms" }
cpu = { budget = "2ms", period = "10ms", priority = 30 }

[tenant.batch]
component = "batch.wasm"
reclaim = { budget = "1ms" }
cpu = { budget = "6ms", period = "20ms", priority = 10, nonpreemptive = "2ms" }

[tenant.rest]
component = "rest.wasm"
reclaim = { budget = "1ms" }

[simulate.control]
execution = "1ms"
period = "10ms"
"#;

impl Leases {
    fn new(text: &str) -> Self {
        let directory = tempfile::tempdir().expect("directory");
        std::fs::write(directory.path().join("leases.toml"), text).expect("written");
        Self { directory }
    }

    fn simulate(&self, options: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_leasehold"))
            .current_dir(self.directory.path())
            .args(["simulate", "leases.toml"])
            .args(options)
            .output()
            .expect("runs")
    }

    fn succeeds(&self, options: &[&str]) -> String {
        let output = self.simulate(options);
        assert!(output.status.success(), "{output:?}");
        assert!(output.stderr.is_empty(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    fn json(&self, options: &[&str]) -> Value {
        let text = self.succeeds(&[options, &["--json"]].concat());
        assert_eq!(text.lines().count(), 1);
        serde_json::from_str(&text).expect("JSON")
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.directory.path().join(name)).expect(name)
    }

    /// One line on standard error with all `words`, and nothing else.
    fn refuses(&self, options: &[&str], code: i32, words: &[&str]) {
        let output = self.simulate(options);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{error}");
        for word in words {
            assert!(error.contains(word), "no {word:?} in {error}");
        }
        assert!(output.stdout.is_empty());
    }
}

fn tenant<'a>(json: &'a Value, name: &str) -> &'a Value {
    let tenants = json["tenants"].as_array().expect("a list");
    tenants
        .iter()
        .find(|tenant| tenant["name"] == name)
        .expect(name)
}

#[test]
fn without_costs_every_tenant_gets_exactly_what_it_asks_for_and_may_have() {
    let leases = Leases::new(LEASES);
    let json = leases.json(&["--for", "1s", "--costs", "free"]);
    let (control, batch) = (tenant(&json, "control"), tenant(&json, "batch"));
    assert_eq!(control["used_ns"], 100_000_000);
    assert_eq!(control["misses"], 0);
    // It is at most kept waiting by the batch's region.
    let latest = control["wakeup_ns_max"].as_u64().expect("it woke up");
    assert!(latest <= 2_000_000, "{latest}");
    assert_eq!(batch["used_ns"], 300_000_000);
    assert_eq!(batch["period_used_ns_min"], 6_000_000);
    assert_eq!(batch["periods"], 50);
    assert_eq!(tenant(&json, "rest")["used_ns"], 600_000_000);
    let touched = json["touched_max"].as_u64().expect("it decided");
    assert!((1..=2).contains(&touched), "{touched}");
    assert_eq!(json["unnecessary_timer_interrupts"], 0);
    assert_eq!(json["policy"], "shielded");
}

#[test]
fn tenants_use_no_more_time_than_was_simulated_wherever_the_end_is() {
    let leases = Leases::new(LEASES);
    let mut finished = 0;
    // The rest is busy, so that the processor is never idle; some of the ends are within an overhead.
    for end_us in (10_000..10_060).step_by(4) {
        let json = leases.json(&["--for", &format!("{end_us}us")]);
        let tenants = json["tenants"].as_array().expect("a list");
        let used = tenants.iter().map(|tenant| tenant["used_ns"].as_u64());
        let used: u64 = used.map(|used| used.expect("a number")).sum();
        assert_eq!(json["simulated_ns"], used, "{json}");
        assert_eq!(json["for_ns"], end_us * 1000);
        let beyond = used.checked_sub(end_us * 1000).expect("it was simulated");
        assert!(beyond < 100_000, "{beyond}");
        finished += u32::from(beyond > 0);
    }
    assert!(finished > 0, "no end was within an overhead");
}

#[test]
fn more_periods_than_can_be_simulated_are_refused_with_how_many_can() {
    let leases = Leases::new(&LEASES.replace("period = \"10ms\"\n", "period = \"1ns\"\n"));
    leases.refuses(
        &["--for", "1s"],
        78,
        &["control", "has 1000000000 jobs", "at most 10000000"],
    );
    leases.json(&["--for", "10ms"]);
}

#[test]
fn costs_are_charged_and_can_be_replaced() {
    let leases = Leases::new(LEASES);
    let overhead = |options: &[&str]| {
        let json = leases.json(&[&["--for", "1s"], options].concat());
        tenant(&json, "batch")["overhead_ns"]
            .as_u64()
            .expect("a number")
    };
    let (vm, bare) = (overhead(&[]), overhead(&["--costs", "bare"]));
    assert!(0 < bare && bare < vm, "{bare} {vm}");
    let cheap = overhead(&["--cost", "interrupt=0", "--cost", "handler=100ns"]);
    assert!(cheap < vm, "{cheap} {vm}");
    assert_eq!(overhead(&["--costs", "free"]), 0);
}

#[test]
fn eager_takes_interrupts_that_change_nothing_and_no_account_of_regions() {
    let leases = Leases::new(LEASES);
    let options = ["--for", "1s", "--workload", "batch:run=100us,sleep=300us"];
    let shielded = leases.json(&options);
    let eager = leases.json(&[&options[..], &["--eager"]].concat());
    assert_eq!(eager["policy"], "eager");
    assert_eq!(shielded["unnecessary_timer_interrupts"], 0);
    assert!(eager["unnecessary_timer_interrupts"].as_u64() > Some(0));
}

#[test]
fn a_flag_replaces_the_workload_of_the_file() {
    let leases = Leases::new(LEASES);
    let json = leases.json(&[
        "--for",
        "1s",
        "--costs",
        "free",
        "--workload",
        "control:busy",
    ]);
    let control = tenant(&json, "control");
    assert_eq!(control["workload"], "busy");
    assert_eq!(control["used_ns"], 200_000_000);
}

#[test]
fn the_same_seed_gives_the_same_numbers() {
    let leases = Leases::new(LEASES);
    let play = |seed: &str| {
        let workload = format!("rest:execution=1ms,gap=1ms,gap_max=9ms,seed={seed},tasks=2");
        leases.succeeds(&["--for", "1s", "--json", "--workload", &workload])
    };
    assert_eq!(play("1"), play("1"));
    assert_ne!(play("1"), play("2"));
}

#[test]
fn the_table_names_every_tenant_and_what_it_does() {
    let text = Leases::new(LEASES).succeeds(&["--for", "1s"]);
    for word in [
        "control",
        "batch",
        "rest",
        "background",
        "execution=1ms,period=10ms",
        "6ms in 20ms",
        "wake-up",
        "unnecessary",
    ] {
        assert!(text.contains(word), "no {word:?} in\n{text}");
    }
}

#[test]
fn a_picture_has_a_lane_and_a_trace_a_track_for_every_tenant() {
    let leases = Leases::new(LEASES);
    let files = ["--svg", "schedule.svg", "--trace", "schedule.json"];
    leases.succeeds(&[&["--for", "200ms"], &files[..]].concat());
    let (svg, trace) = (leases.read("schedule.svg"), leases.read("schedule.json"));
    let trace: Value = serde_json::from_str(&trace).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("a list");
    for name in ["control", "batch", "rest"] {
        assert!(svg.contains(&format!("\n{name}\n")), "{name}");
        let track =
            |event: &&Value| event["name"] == "thread_name" && event["args"]["name"] == name;
        let id = &events.iter().find(track).expect(name)["tid"];
        let ran = |event: &&Value| event["ph"] == "X" && event["tid"] == *id;
        assert!(events.iter().filter(ran).count() > 5);
    }
}

#[test]
fn what_is_wrong_is_said() {
    let leases = Leases::new(LEASES);
    leases.refuses(
        &["--workload", "nobody:busy"],
        78,
        &["nobody", "leases.toml"],
    );
    leases.refuses(
        &["--workload", "rest:run=1ms"],
        2,
        &["allowed", "run and sleep"],
    );
    leases.refuses(&["--workload", "rest"], 2, &["NAME:WORKLOAD"]);
    leases.refuses(&["--cost", "sleep=1ms"], 2, &["allowed", "interrupt"]);
    leases.refuses(&["--for", "10"], 2, &["no unit"]);
    leases.refuses(&["--window", "10ms"], 2, &["--svg"]);
    leases.refuses(
        &["--svg", "no/such/directory.svg"],
        70,
        &["no/such/directory.svg"],
    );
    let wrong = Leases::new("[tenant.a]\ncomponent = \"a.wasm\"\n");
    wrong.refuses(&[], 78, &["tenant.a.reclaim"]);
    let many = Leases::new("[tenant.a]\ncomponent = \"a.wasm\"\nreclaim = { budget = \"1ms\" }\n");
    let often = "a:execution=1ns,gap=1us,gap_max=2us,tasks=100";
    many.refuses(
        &["--workload", often],
        78,
        &["has 666666600 jobs", "at most 10000000"],
    );
    many.refuses(
        &["--workload", "a:execution=1ns,gap=1ns,tasks=100"],
        78,
        &["jobs"],
    );
    let none = Leases {
        directory: tempfile::tempdir().expect("directory"),
    };
    none.refuses(&[], 66, &["no such lease file"]);
}
