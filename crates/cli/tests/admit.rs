//! Tests of `leasehold admit`: its output and its exit codes.

mod calibrated;

use leasehold_cell::profile::{Profile, StepTime};
use leasehold_cell::steps::RowId;
use serde_json::Value;
use std::fmt::Write;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::OnceLock;
use tempfile::TempDir;

/// A lease file, and `leasehold admit` on it.
struct Leases {
    directory: TempDir,
}

impl Leases {
    fn new(text: &str) -> Self {
        let directory = tempfile::tempdir().expect("directory");
        std::fs::write(directory.path().join("leases.toml"), text).expect("written");
        Self { directory }
    }

    fn admit(&self, options: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_leasehold"))
            .current_dir(self.directory.path())
            .args(["admit", "leases.toml"])
            .args(options)
            .env("LEASEHOLD_PROFILE", self.directory.path().join("none.json"))
            .output()
            .expect("runs")
    }

    /// The JSON, with the exit code that belongs to it.
    fn json(&self, options: &[&str]) -> Value {
        let output = self.admit(&[options, &["--json"]].concat());
        assert!(output.stderr.is_empty(), "{output:?}");
        let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let kept = json["schedulable"] == true && json["host"].is_null();
        let kept = kept && json["memory"]["fits"] == true && json["start"]["fits"] == true;
        let code = i32::from(!kept);
        assert_eq!(output.status.code(), Some(code), "{json}");
        json
    }

    /// Standard error of `leasehold admit`, and of `up`, under a limit (`ulimit`), with their exit codes.
    fn under(&self, limit: &str) -> [(Option<i32>, String); 2] {
        ["admit", "up"].map(|command| {
            let mut limited = Command::new("bash");
            let run = format!("ulimit {limit} && exec \"$@\"");
            limited.args(["-c", &run, "bash", env!("CARGO_BIN_EXE_leasehold")]);
            limited.args([command, "leases.toml"]);
            limited.current_dir(self.directory.path());
            let output = limited.output().expect("runs");
            let error = String::from_utf8_lossy(&output.stderr);
            (output.status.code(), error.into_owned())
        })
    }

    /// One line on standard error with all `words`, and nothing else.
    fn refuses(&self, options: &[&str], code: i32, words: &[&str]) {
        let output = self.admit(options);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{error}");
        assert_eq!(error.trim().lines().count(), 1, "{error}");
        for word in words {
            assert!(error.contains(word), "no {word:?} in {error}");
        }
        assert!(output.stdout.is_empty());
    }
}

fn tenant(name: &str, cpu: &str) -> String {
    format!(
        "[tenant.{name}]\ncomponent = \"{name}.wasm\"\nreclaim = {{ budget = \"1ms\" }}\n{cpu}\n"
    )
}

/// Three reservations and a tenant in the background. The response times, in milliseconds:
/// 1 + 0.5 blocking; 1 + 2 + 0.5; 3 + 2 · 2 + 3 · 1 + 0.1 blocking; and a host step of 0.1 for each server
/// of at least that priority.
fn schedulable() -> String {
    [
        tenant("fast", "cpu = { budget = \"1ms\", period = \"4ms\", priority = 30 }"),
        tenant("middle", "cpu = { budget = \"2ms\", period = \"6ms\", priority = 20 }"),
        tenant(
            "slow",
            "cpu = { budget = \"3ms\", period = \"13ms\", priority = 10, nonpreemptive = \"500us\" }",
        ),
        tenant("idle", ""),
    ]
    .concat()
}

#[test]
fn a_set_that_fits_is_reported_tenant_by_tenant() {
    let json = Leases::new(&schedulable()).json(&["--overhead", "10us"]);
    assert_eq!(json["schedulable"], true);
    assert_eq!(json["order"], "fixed-priority");
    assert_eq!(json["overhead_ns"], 10_000);
    let of = |key: &str| -> Vec<Value> {
        let tenants = json["tenants"].as_array().expect("a list");
        tenants.iter().map(|tenant| tenant[key].clone()).collect()
    };
    assert_eq!(of("name"), ["fast", "middle", "slow", "idle"]);
    assert_eq!(of("schedulable"), [true, true, true, true]);
    // 10 us beside the step for each of the same or a higher priority, and for blocking, where the region
    // ends with a step.
    let responses = [1_720_000, 3_830_000, 10_440_000].map(Value::from);
    assert_eq!(of("response_ns")[..3], responses);
    assert_eq!(of("response_ns")[3], Value::Null);
    // The first is never preempted; nothing bounds how often the second is preempted; the third has
    // six regions.
    assert_eq!(of("useful_ns")[0], 980_000);
    assert_eq!(of("useful_ns")[1], Value::Null);
    assert_eq!(of("useful_ns")[2], 2_930_000);
    // 1 ms of reclamation, a host step of 0.1 ms, an overrun, and what is lost in the one or two periods
    // that it needs, where both pieces of the budget are dispatched and stop: a period until they are
    // back, and how much longer the first may have to wait for the second; a whole budget; and the
    // response time of the rest.
    assert_eq!(
        of("reclaimed_ns")[0],
        (4_000_000 + 720_000) + 4_000_000 + 1_720_000 - (1_000_000 - 190_000)
    );
    assert_eq!(
        of("reclaimed_ns")[2],
        (13_000_000 + 7_440_000) + 10_440_000 - (3_000_000 - 1_200_000)
    );
}

#[test]
fn a_tenant_is_charged_with_the_steps_that_its_program_reaches() {
    let time = |p99_ns| StepTime::of(vec![p99_ns]).expect("a sample");
    let mut profile = Profile::free();
    for row in RowId::all() {
        profile.steps.insert(row.row().title(), time(10_000));
    }
    let random = "wasi_snapshot_preview1 random_get";
    profile.steps.insert(random.to_owned(), time(40_000));
    // No other user can write to it.
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("directory");
    let path = place.path().join("profile.json");
    profile.save(&path).expect("saved");

    let tenants = ["random", "plain", "missing"].map(|name| {
        let text = tenant(name, "cpu = { budget = \"1ms\", period = \"10ms\" }");
        text.replace(".wasm", ".wat")
    });
    let leases = Leases::new(&tenants.concat());
    let program = |name: &str, import: &str| {
        let text = format!("(module {import} (func (export \"_start\")))");
        std::fs::write(leases.directory.path().join(name), text).expect("written");
    };
    program("plain.wat", "");
    program(
        "random.wat",
        "(import \"wasi_snapshot_preview1\" \"random_get\" (func (param i32 i32) (result i32)))",
    );
    let json = leases.json(&["--profile", path.to_str().expect("a name")]);
    let step = |at: usize| {
        let step = &json["tenants"][at]["step"];
        let (row, time) = (step["row"].as_str(), step["longest_ns"].as_u64());
        (row.map(str::to_owned), time, step["program"].clone())
    };
    assert_eq!(
        step(0),
        (Some(random.to_owned()), Some(80_000), "read".into())
    );
    assert_eq!((step(1).1, step(1).2), (Some(20_000), "read".into()));
    assert_eq!((step(2).1, step(2).2), (Some(80_000), "any".into()));
}

#[test]
fn ends_in_the_background_are_bounded_beside_reservations() {
    let cpu = "cpu = { budget = \"2ms\", period = \"10ms\", priority = 10 }";
    let leases = Leases::new(&[tenant("reserved", cpu), tenant("idle", "")].concat());
    for order in ["fixed-priority", "earliest-deadline"] {
        let json = leases.json(&["--order", order]);
        assert!(json["ends"]["budget_ns"].is_u64(), "{json}");
        assert!(json["kill_bounds_ns"][1].is_u64(), "{json}");
    }
}

/// The keys that make a tenant page.
const PAGES: &str = "memory = { reserve = \"1MiB\", limit = \"2MiB\", swap = \"swap\" }";

#[test]
fn faults_of_tenants_that_page_are_in_the_responses_of_the_others() {
    let fast = "cpu = { budget = \"1ms\", period = \"4ms\", priority = 30 }";
    let slow = "cpu = { budget = \"3ms\", period = \"13ms\", priority = 10 }";
    let responses = |slow: &str, idle: &str, fault: &str| {
        let tenants = [
            tenant("fast", fast),
            tenant("slow", slow),
            tenant("idle", idle),
        ];
        let json = Leases::new(&tenants.concat()).json(&["--fault", fault, "--overhead", "10us"]);
        let response = |at: usize| json["tenants"][at]["response_ns"].as_u64();
        let fault = json["fault_source"].as_str().map(|source| {
            assert_eq!(source, "given");
            json["fault_ns"].as_u64()
        });
        (response(0), response(1), fault.flatten())
    };
    // No tenant pages, and host steps take 0.1, what a preemption takes 0.01: 1 + 2 · 0.11;
    // 3 + 3 · 0.11 + 2.
    let none = (Some(1_220_000), Some(5_330_000), None);
    assert_eq!(responses(slow, "", "500us"), none);
    // A step of a component visits six pages at the most: it takes 0.1 and six faults. Blocking above, and
    // an overrun of its own: 1 + 0.71 + 0.11; 3 + 0.11 + 0.82 + 2.
    let paging = (Some(1_820_000), Some(5_930_000), Some(100_000));
    assert_eq!(responses(&format!("{slow}\n{PAGES}"), "", "100us"), paging);
    // Blocking for all.
    assert_eq!(responses(slow, PAGES, "100us"), paging);
    // More than there is room for.
    assert_eq!(responses(slow, PAGES, "600us").0, None);
}

#[test]
fn the_table_says_the_same_to_people() {
    let leases = Leases::new(&schedulable());
    let output = leases.admit(&["--overhead", "10us"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("text");
    for word in [
        "fast",
        "10.44 ms",
        "background",
        "schedulable: 3 reservations",
        "fixed-priority",
    ] {
        assert!(text.contains(word), "no {word:?} in {text}");
    }
    let widths: Vec<_> = text
        .lines()
        .map_while(|line| {
            let table = line.starts_with([' ', '─', '═']);
            table.then(|| line.chars().count())
        })
        .collect();
    assert!(
        widths.len() > 5 && widths.iter().all(|width| *width == widths[0]),
        "{text}"
    );
}

#[test]
fn what_does_not_fit_is_told_what_would() {
    let lease = schedulable().replace("\"3ms\"", "\"5500us\"");
    let leases = Leases::new(&lease);
    let json = leases.json(&[]);
    assert_eq!(json["schedulable"], false);
    assert_eq!(json["tenants"][1]["schedulable"], true);
    assert_eq!(json["tenants"][2]["schedulable"], false);
    assert_eq!(json["tenants"][2]["response_ns"], Value::Null);
    let advice = &json["would_fit"][0];
    assert_eq!(advice["name"], "slow");

    let text = String::from_utf8(leases.admit(&[]).stdout).expect("text");
    assert!(text.contains("NOT schedulable"), "{text}");
    // The advised value suffices, and a nanosecond beyond it does not.
    for (key, written, step) in [
        ("budget_ns", "\"5500us\"", 1),
        ("period_ns", "\"13ms\"", -1),
    ] {
        let value = advice[key].as_i64().expect("a value");
        let with = |value: i64| Leases::new(&lease.replace(written, &format!("\"{value}ns\"")));
        assert_eq!(with(value).json(&[])["schedulable"], true, "{key}");
        assert_eq!(with(value + step).json(&[])["schedulable"], false, "{key}");
    }
}

#[test]
fn headroom_is_as_far_as_the_set_still_fits() {
    let leases = Leases::new(&schedulable());
    let room = &leases.json(&["--headroom", "fast"])["headroom"];
    for (key, written, step) in [
        ("budget_ns", "\"1ms\", period = \"4", 1),
        ("period_ns", "\"4ms\"", -1),
    ] {
        let value = room[key].as_i64().expect("a value");
        let with = |value: i64| {
            let new = match key {
                "budget_ns" => format!("\"{value}ns\", period = \"4"),
                _ => format!("\"{value}ns\""),
            };
            Leases::new(&schedulable().replace(written, &new))
        };
        let fits = |value: i64| {
            let json = with(value).json(&[]);
            json["schedulable"] == true && json["host"].is_null()
        };
        assert!(fits(value) && !fits(value + step), "{key}");
    }
    let text = leases.admit(&["--headroom", "fast"]).stdout;
    let text = String::from_utf8(text).expect("text");
    assert!(
        text.contains("fast, if nothing else changes: largest budget"),
        "{text}"
    );
}

#[test]
fn headroom_is_admitted_on_this_host_and_promises_something() {
    let cpu = |budget: u64, period: u64, more: &str| {
        let cpu = format!("cpu = {{ budget = \"{budget}ns\", period = \"{period}ns\"{more} }}");
        tenant("only", &cpu)
    };
    let is_kept = |lease: &str| {
        let json = Leases::new(lease).json(&["--overhead", "40us"]);
        json["schedulable"] == true && json["host"].is_null()
    };
    for (budget, period) in [(1_000_000, 10_000_000), (30_000_000, 100_000_000)] {
        let leases = Leases::new(&cpu(budget, period, ""));
        let room = &leases.json(&["--headroom", "only", "--overhead", "40us"])["headroom"];
        let of = |key: &str| room[key].as_u64().expect("a value");
        assert!(is_kept(&cpu(of("budget_ns"), period, "")));
        assert!(!is_kept(&cpu(of("budget_ns") + 1, period, "")));
        assert!(is_kept(&cpu(budget, of("period_ns"), "")));
        assert!(!is_kept(&cpu(budget, of("period_ns") - 1, "")));
        let region = format!(", nonpreemptive = \"{}ns\"", of("nonpreemptive_ns"));
        assert!(is_kept(&cpu(budget, period, &region)));
    }
}

#[test]
fn with_epochs_the_frames_of_a_stack_are_a_step_of_their_tenant() {
    let deep = tenant("deep", "memory = { stack = \"64MiB\" }");
    let fast = "cpu = { budget = \"1ms\", period = \"5ms\", priority = 9 }";
    let leases = Leases::new(&[tenant("fast", fast), deep].concat());
    let admitted = |mechanism: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_leasehold"))
            .current_dir(leases.directory.path())
            .args(["admit", "leases.toml", "--json", "--overhead", "10us"])
            .env("LEASEHOLD_PREEMPT", mechanism)
            .env(
                "LEASEHOLD_PROFILE",
                leases.directory.path().join("none.json"),
            )
            .output()
            .expect("runs");
        serde_json::from_slice::<Value>(&output.stdout).expect("JSON")
    };
    let step_ns = |json: &Value| json["tenants"][1]["step"]["longest_ns"].as_u64();
    let (injected, epochs) = (admitted("injected"), admitted("epochs"));
    assert_eq!(injected["schedulable"], true);
    assert!(step_ns(&injected) < Some(5_000_000), "{injected}");
    assert_eq!(epochs["schedulable"], false);
    assert!(step_ns(&epochs) > Some(180_000_000), "{epochs}");
}

#[test]
fn what_would_fit_promises_something() {
    // With a period that is long enough, preemptions may take all of its 80 us.
    let lease = |cpu: &str| {
        let big =
            "cpu = { budget = \"5ms\", period = \"20ms\", priority = 9, nonpreemptive = \"5ms\" }";
        [tenant("big", big), tenant("small", cpu)].concat()
    };
    let small = |budget: &str, region: &str| {
        let cpu = format!(
            "cpu = {{ budget = \"{budget}\", period = \"3ms\", priority = 1, nonpreemptive = \"{region}\" }}"
        );
        let json = Leases::new(&lease(&cpu)).json(&["--overhead", "40us"]);
        json["would_fit"][0].clone()
    };
    assert_eq!(small("400us", "400us")["name"], "small");
    assert!(small("400us", "400us")["period_ns"].is_u64());
    assert_eq!(small("80us", "40us")["name"], "small");
    assert!(small("80us", "40us")["period_ns"].is_null());
}

#[test]
fn reservations_that_the_host_would_stop_are_not_kept() {
    let Some(limit) = leasehold_cell::RealtimeLimit::of_host() else {
        return;
    };
    let thousandths = limit.most_ns() * 1000 / limit.window_ns();
    for (more, stopped) in [(0, false), (1, true)] {
        let budget = (thousandths + more) * 10;
        let cpu = format!("cpu = {{ budget = \"{budget}us\", period = \"10ms\", priority = 1 }}");
        let leases = Leases::new(&tenant("most", &cpu));
        let json = leases.json(&["--overhead", "1us"]);
        assert_eq!(json["schedulable"], true, "among themselves");
        assert_eq!(json["host"].is_object(), stopped, "{json}");
        let text = String::from_utf8(leases.admit(&["--overhead", "1us"]).stdout).expect("text");
        assert_eq!(
            text.contains("NOT schedulable on this host"),
            stopped,
            "{text}"
        );
        assert_eq!(
            text.contains("Linux takes the processor"),
            stopped,
            "{text}"
        );
    }
}

#[test]
fn the_order_of_the_file_or_of_the_flag_decides() {
    // The set of SPR Table I, but for two in the last 10, uses nearly the whole processor: too much for
    // priorities, not for deadlines.
    let table_1 = [
        tenant(
            "hi",
            "cpu = { budget = \"10ms\", period = \"30ms\", priority = 3 }",
        ),
        tenant(
            "mid",
            "cpu = { budget = \"20ms\", period = \"40ms\", priority = 2 }",
        ),
        tenant(
            "lo",
            "cpu = { budget = \"8ms\", period = \"60ms\", priority = 1 }",
        ),
    ]
    .concat();
    let leases = Leases::new(&table_1);
    assert_eq!(leases.json(&[])["schedulable"], false);
    let json = leases.json(&["--order", "earliest-deadline"]);
    assert_eq!(json["schedulable"], true);
    assert_eq!(json["utilisation_millionths"], 966_667);
    assert_eq!(json["tenants"][2]["response_ns"], 60_000_000);

    let in_file = Leases::new(&format!("[cell]\norder = \"earliest-deadline\"\n{table_1}"));
    assert_eq!(in_file.json(&[])["schedulable"], true);
    assert_eq!(
        in_file.json(&["--order", "fixed-priority"])["schedulable"],
        false
    );
}

#[test]
fn more_than_a_processor_is_not_schedulable_in_any_order() {
    let full = "cpu = { budget = \"10ms\", period = \"10ms\", priority = 3 }";
    let leases = Leases::new(&[tenant("a", full), tenant("b", full)].concat());
    for order in ["fixed-priority", "earliest-deadline"] {
        let json = leases.json(&["--order", order]);
        assert_eq!(json["schedulable"], false);
        assert_eq!(json["utilisation_millionths"], 2_000_000);
    }
}

#[test]
fn a_tenant_that_no_change_of_its_own_helps_is_told_what_others_must_give_up() {
    let cpu = |budget: &str, priority: u8| {
        format!("cpu = {{ budget = \"{budget}\", period = \"10ms\", priority = {priority} }}")
    };
    let text = |greedy: &str| {
        let tenants = [
            tenant("greedy", &cpu(greedy, 5)),
            tenant("modest", &cpu("3ms", 3)),
        ];
        let leases = Leases::new(&tenants.concat());
        let output = leases.admit(&["--overhead", "10us"]);
        String::from_utf8(output.stdout).expect("text")
    };
    let told = text("10ms");
    let advice = "no change of its own would be enough; it would if all others had at most 67.7 %";
    assert!(told.contains(advice), "{told}");
    // Then it does.
    assert!(!text("6770us").contains("modest does not fit"));
    assert!(text("6771us").contains("modest does not fit"));
}

#[test]
fn tenants_without_reservations_always_fit() {
    let json = Leases::new(&tenant("a", "")).json(&[]);
    assert_eq!(json["schedulable"], true);
    assert_eq!(json["tenants"][0]["reserved"], false);
}

#[test]
fn memory_reservations_fit_in_what_the_cell_holds_or_the_shortfall_is_told() {
    let tenants = [
        tenant("a", "memory = { reserve = \"48MiB\" }"),
        tenant(
            "b",
            "memory = { reserve = \"16MiB\", limit = \"1GiB\", swap = \"swap\" }",
        ),
        // Reserves whole frames.
        tenant("c", "memory = { reserve = \"1B\" }"),
    ]
    .concat();
    let cell = |memory: &str| Leases::new(&format!("[cell]\nmemory = \"{memory}\"\n{tenants}"));
    let needed = (64 << 20) + 4096;
    let enough = cell(&format!("{needed}B")).json(&[]);
    assert_eq!(enough["memory"]["fits"], true);
    assert_eq!(enough["memory"]["reserved_bytes"], needed);
    let short = cell("64MiB").json(&[]);
    assert_eq!(short["memory"]["fits"], false);
    assert_eq!(short["memory"]["shortfall_bytes"], 4096);
    assert_eq!(short["schedulable"], true, "of the processor");
    let text = String::from_utf8(cell("64MiB").admit(&[]).stdout).expect("text");
    let verdict = "memory: does NOT fit: 65540KiB reserved, the cell holds 64MiB (cell.memory): \
                   4KiB too little";
    assert!(text.contains(verdict), "{text}");

    let unstated = Leases::new(&tenants).json(&[]);
    assert_eq!(unstated["memory"]["fits"], true, "a cell of any size");
    assert_eq!(unstated["memory"]["cell_bytes"], Value::Null);
}

#[test]
fn what_is_not_a_reservation_is_one_clear_error_each() {
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
            ["cpu.budget", "found \"4ms\"", "which is 1ms"],
        ),
        (
            "budget = \"1ms\"",
            ["cpu.period", "found nothing", "allowed:"],
        ),
        (
            "budget = \"1ms\", period = \"4ms\", nonpreemptive = \"2ms\"",
            ["cpu.nonpreemptive", "found \"2ms\"", "which is 1ms"],
        ),
        (
            "budget = \"1ms\", period = \"4ms\", priority = 256",
            ["cpu.priority", "found the number 256", "0 to 255"],
        ),
        (
            "budget = \"1ms\", period = \"4ms\", priority = \"high\"",
            ["cpu.priority", "found \"high\"", "0 to 255"],
        ),
        (
            "budget = \"1ms\", period = \"4ms\", policy = \"fair\"",
            [
                "cpu.policy",
                "found \"fair\"",
                "\"sporadic\" or \"deferrable\"",
            ],
        ),
    ] {
        let leases = Leases::new(&tenant("a", &format!("cpu = {{ {cpu} }}")));
        leases.refuses(&[], 78, &["leases.toml:4:"]);
        leases.refuses(&[], 78, &words);
    }
    let leases = Leases::new(&schedulable());
    leases.refuses(
        &["--headroom", "nobody"],
        78,
        &["leases.toml", "no tenant \"nobody\""],
    );
    leases.refuses(
        &["--headroom", "idle"],
        78,
        &["\"idle\" has no processor reservation"],
    );

    let missing = tempfile::tempdir().expect("directory");
    Leases { directory: missing }.refuses(&[], 66, &["no such lease file: leases.toml"]);
    for usage in [["--overhead", "5"], ["--order", "fair"]] {
        let output = leases.admit(&usage);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(
            String::from_utf8_lossy(&output.stderr).contains("allowed:"),
            "{output:?}"
        );
    }
}

#[test]
fn ten_thousand_tenants_are_tested_and_more_are_refused() {
    let leases = |count: u64| {
        let mut text = String::new();
        for n in 0..count {
            // A host step of each takes 100 us: a second for all of them.
            let cpu = format!(
                "cpu = {{ budget = \"200us\", period = \"{}ms\", priority = {} }}",
                20_000 + n,
                n % 256
            );
            write!(text, "{}", tenant(&format!("t{n}"), &cpu)).expect("a string takes all text");
        }
        Leases::new(&text)
    };
    let json = leases(10_000).json(&[]);
    assert_eq!(json["tenants"].as_array().map(Vec::len), Some(10_000));
    // A cell has fewer places.
    let refusals = json["start"]["refusals"].as_array().expect("a list");
    let reason = refusals[0]["reason"].as_str().expect("a reason");
    assert!(
        reason.contains("allowed: at most 1024 on one cell"),
        "{reason}"
    );
    assert_eq!(json["schedulable"], true);
    let words = [
        "tenant: found 100000 tables",
        "allowed: at most 10000 tables",
    ];
    leases(100_000).refuses(&[], 78, &words);
}

#[test]
fn a_rate_of_requests_is_what_the_useful_budget_pays_for() {
    let http = |name: &str, cpu: &str| {
        tenant(
            name,
            &format!("http = {{ routes = [\"{name}.example/*\"] }}\n{cpu}"),
        )
    };
    let listener = "[listener.main]\naddress = \"127.0.0.1:0\"\n".to_owned();
    let leases = Leases::new(
        &[
            listener,
            http(
                "shop",
                "cpu = { budget = \"4ms\", period = \"20ms\", nonpreemptive = \"4ms\" }",
            ),
            http("blog", ""),
            tenant("job", "cpu = { budget = \"1ms\", period = \"100ms\" }"),
        ]
        .concat(),
    );
    let options = [
        "--overhead",
        "100us",
        "--request-time",
        "250us",
        "--request-time",
        "blog=1ms",
    ];
    let json = leases.json(&options);
    let row = |at: usize| &json["tenants"][at];
    // A dispatch and a stop leave 3.8 ms in every 20 ms: 190 ms in a second.
    assert_eq!(row(0)["useful_ns"], 3_800_000);
    assert_eq!(row(0)["sustained_requests_per_second_thousandths"], 760_000);
    assert_eq!(row(1)["request_ns"], 1_000_000);
    assert!(row(1)["sustained_requests_per_second_thousandths"].is_null());
    assert!(row(2)["request_ns"].is_null(), "it answers none");
    let text = String::from_utf8(leases.admit(&options).stdout).expect("text");
    assert!(
        text.contains("shop sustains 760.0 requests a second"),
        "{text}"
    );
    assert!(text.contains("blog is in the background"), "{text}");
    leases.refuses(
        &["--request-time", "job=1ms"],
        78,
        &["job", "answers no requests"],
    );
    leases.refuses(
        &["--request-time", "none=1ms"],
        78,
        &["none", "not in the file"],
    );
}

#[test]
fn a_reservation_that_promises_no_useful_time_is_refused_with_what_would_be_enough() {
    // Alone, and below another that may preempt it at will. A dispatch and a stop are 10 us each.
    let rival = tenant(
        "b",
        "cpu = { budget = \"1ms\", period = \"10ms\", priority = 200 }",
    );
    let enough = "20us";
    for rival in ["", &*rival] {
        let of = |budget: &str| {
            let cpu = format!("cpu = {{ budget = \"{budget}\", period = \"1s\", priority = 10 }}");
            Leases::new(&format!("{}{rival}", tenant("a", &cpu)))
        };
        let leases = of(enough);
        let json = leases.json(&["--overhead", "10us"]);
        assert_eq!(json["schedulable"], false, "{json}");
        assert_eq!(json["tenants"][0]["schedulable"], false, "{json}");
        let text = String::from_utf8(leases.admit(&["--overhead", "10us"]).stdout).expect("text");
        let said = format!("tenant.a.cpu.budget: found {enough}, all of which");
        assert!(text.contains(&said), "{text}");
        assert!(text.contains("needed: more than 20us"), "{text}");
        assert!(text.contains("NOT schedulable"), "{text}");
        let json = of("21us").json(&["--overhead", "10us"]);
        assert_eq!(json["schedulable"], true, "{json}");
    }
    // Where regions bound the preemptions, a larger budget has more of them: 50 us in two regions lose 30.
    let rival = tenant(
        "b",
        "cpu = { budget = \"1ms\", period = \"10ms\", priority = 200 }",
    );
    let of = |budget: u64| {
        let cpu = format!(
            "cpu = {{ budget = \"{budget}us\", period = \"1s\", priority = 10, nonpreemptive = \"15us\" }}"
        );
        Leases::new(&format!("{}{rival}", tenant("a", &cpu)))
    };
    let text = String::from_utf8(of(16).admit(&["--overhead", "10us"]).stdout).expect("text");
    let enough: u64 = text
        .split("needed: more than ")
        .nth(1)
        .and_then(|rest| rest.split("us").next())
        .and_then(|number| number.parse().ok())
        .unwrap_or_else(|| panic!("{text}"));
    assert_eq!(
        of(enough).json(&["--overhead", "10us"])["schedulable"],
        false
    );
    assert_eq!(
        of(enough + 1).json(&["--overhead", "10us"])["schedulable"],
        true
    );
}

#[test]
fn where_no_budget_in_the_period_is_useful_admit_says_which_region_is_needed() {
    let rival = tenant(
        "b",
        "cpu = { budget = \"1ms\", period = \"5ms\", priority = 200 }",
    );
    let of = |budget: &str, region: &str| {
        let cpu = format!(
            "cpu = {{ budget = \"{budget}\", period = \"10ms\", priority = 10, nonpreemptive = \"{region}\" }}"
        );
        Leases::new(&format!("{}{rival}", tenant("a", &cpu)))
    };
    let said = |budget: &str, region: &str| {
        let text = of(budget, region).admit(&["--overhead", "50us"]).stdout;
        String::from_utf8(text).expect("text")
    };
    // A region as long as a preemption takes, one hardly longer, and a shorter one.
    for region in ["50us", "50100ns", "20us"] {
        let text = said("2ms", region);
        assert!(!text.contains("needed: more than"), "{text}");
        assert!(
            text.contains("no budget is enough in a period of 10ms"),
            "{text}"
        );
        let needed = text.split("needed: a `nonpreemptive` of at least ").nth(1);
        let needed = needed.and_then(|rest| rest.split_whitespace().next());
        let needed = needed.unwrap_or_else(|| panic!("{text}"));
        let json = of("2ms", needed).json(&["--overhead", "50us"]);
        assert_eq!(json["schedulable"], true, "{needed}: {json}");
    }
    // A dispatch and a stop take all of this one.
    let text = said("100us", "50us");
    assert!(
        text.contains("needed: more than 100us, and a `nonpreemptive` as long"),
        "{text}"
    );
    let json = of("101us", "101us").json(&["--overhead", "50us"]);
    assert_eq!(json["schedulable"], true, "{json}");
}

/// What `admit` says of a start, and what `up` refuses, of a file with this cell and tenant.
fn refused_start(cell: &str, rest: &str) -> (Value, String) {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/guests/hello.wasm");
    assert!(program.exists(), "run `make guests`");
    refused_start_of(&program, cell, rest)
}

/// The same of another program.
fn refused_start_of(program: &Path, cell: &str, rest: &str) -> (Value, String) {
    static PROFILE: OnceLock<TempDir> = OnceLock::new();
    let profile = PROFILE.get_or_init(|| {
        // No other user can write to it.
        let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("directory");
        std::fs::write(place.path().join("profile.json"), calibrated::profile()).expect("written");
        place
    });
    let leases = Leases::new(&format!(
        "{cell}[tenant.a]\ncomponent = {program:?}\n{rest}\n"
    ));
    let run = |arguments: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_leasehold"))
            .current_dir(leases.directory.path())
            .args(arguments)
            .env("LEASEHOLD_PROFILE", profile.path().join("profile.json"))
            .stdin(std::process::Stdio::null())
            .output()
            .expect("runs")
    };
    let admit = run(&["admit", "--json", "leases.toml"]);
    let json: Value = serde_json::from_slice(&admit.stdout).expect("JSON");
    let fits = json["start"]["fits"] == true;
    assert_eq!(admit.status.code(), Some(i32::from(!fits)), "{json}");
    let text = run(&["admit", "leases.toml"]);
    let text = String::from_utf8(text.stdout).expect("text");
    assert_eq!(text.contains("cannot be started: "), !fits, "{text}");
    // Another cell may have the processor.
    let up = run(&[
        "up",
        "--quiet",
        "--unadmitted",
        "--for",
        "20ms",
        "leases.toml",
    ]);
    let error = String::from_utf8_lossy(&up.stderr).into_owned();
    assert_eq!(
        matches!(up.status.code(), Some(65 | 66 | 77 | 78)),
        !fits,
        "{json}\n{error}"
    );
    (json["start"].clone(), error)
}

#[test]
fn what_up_refuses_before_a_tenant_runs_is_refused_by_admission_in_the_same_words() {
    const BUDGET: &str = "reclaim = { budget = \"10ms\" }";
    let with = |rest: &str| format!("{BUDGET}\n{rest}");
    let (start, _) = refused_start("", BUDGET);
    assert_eq!(start["refusals"], Value::Array(Vec::new()), "{start}");
    assert_eq!(start["untested"], Value::Array(Vec::new()), "{start}");
    for (cell, rest, word) in [
        (
            "[cell]\nmemory = \"1TiB\"\n",
            with("memory = { reserve = \"1TiB\" }"),
            "`cell.memory`: found 1099511627776 bytes",
        ),
        (
            "",
            "reclaim = { budget = \"2us\" }".to_owned(),
            "`reclaim.budget` is 2us",
        ),
        (
            "",
            with("files = { open = 1000000 }\ndirs = [{ host = \".\", guest = \"/\" }]"),
            "1000032 descriptors were asked for",
        ),
        (
            "",
            with("memory = { reserve = \"1GiB\", host = \"1B\" }"),
            "`memory.host`",
        ),
        (
            "",
            with("memory = { reserve = \"1B\" }"),
            "`memory.reserve`",
        ),
        (
            "",
            with("memory = { reserve = \"1MiB\", limit = \"2MiB\", swap = \"/dev/shm/x\" }"),
            "a directory on tmpfs",
        ),
        (
            "",
            with("memory = { reserve = \"1MiB\", limit = \"2MiB\", swap = \"/etc/hostname\" }"),
            "File exists",
        ),
        (
            "",
            with("memory = { reserve = \"1MiB\", limit = \"2MiB\", swap = \"swap/\" }"),
            "Is a directory",
        ),
        (
            "",
            with(&format!(
                "memory = {{ reserve = \"1MiB\", limit = \"2MiB\", swap = \"{}\" }}",
                "n".repeat(256)
            )),
            "File name too long",
        ),
        (
            "",
            with("dirs = [{ host = \"/nonexistent\", guest = \"/x\" }]"),
            "no such directory: /nonexistent",
        ),
        (
            "",
            with("dirs = [{ host = \"/proc\", guest = \"/x\" }]"),
            "lies in the kernel's view of this process",
        ),
    ] {
        let (start, error) = refused_start(cell, &rest);
        assert_eq!(start["fits"], false, "{rest}: {start}");
        let reason = start["refusals"][0]["reason"].as_str().expect("a reason");
        for said in [reason, &error] {
            assert!(said.contains(word), "no {word:?} in {said}");
        }
    }
}

#[test]
fn a_program_that_up_does_not_load_is_refused_by_admission_in_the_same_words() {
    let directory = tempfile::tempdir().expect("directory");
    let program = directory.path().join("program.wat");
    let component = |imports: &str, run: &str, name: &str| {
        format!(
            r#"(component {imports} (core module $m (memory (export "memory") 1)
                (func (export "r") (result i32) i32.const 0))
              (core instance $c (instantiate $m))
              (func $run {run} (canon lift (core func $c "r")))
              (instance $i (export "{name}" (func $run))) (export "wasi:cli/run@0.2.0" (instance $i)))"#
        )
    };
    let (run, no_command) = (
        "(result (result))",
        Some("not the entry point of a command"),
    );
    let environment = |function: &str| {
        let import =
            format!("(import \"wasi:cli/environment@0.2.0\" (instance (export {function})))");
        component(&import, run, "run")
    };
    let started = |rest: &str| format!(r#"(module (memory (export "memory") 1) {rest})"#);
    let [preview1, kernel] = [
        r#"(import "wasi_snapshot_preview1" "fd_read" (func (param i64)))"#,
        r#"(import "leasehold_kernel" "semaphore_up" (func (param i64)))"#,
    ]
    .map(|import| format!(r#"(module {import} (func (export "_start")))"#));
    for (text, word) in [
        (component("", run, "run").as_str(), None),
        (&component("", "(result u32)", "run"), no_command),
        (&component("", run, "runs"), no_command),
        (
            &environment(r#""get-argumentz" (func (result u32))"#),
            Some("nothing here offers wasi:cli/environment get-argumentz"),
        ),
        (
            &environment(r#""get-environment" (func (result (list string)))"#),
            Some("wasi:cli/environment@0.2.0"),
        ),
        (
            &started(r#"(func (export "_start") (param i32))"#),
            no_command,
        ),
        (
            &started(r#"(func (export "_start") (result i32) i32.const 1)"#),
            no_command,
        ),
        (&preview1, Some("incompatible import type")),
        (&kernel, Some("incompatible import type")),
        (r#"(module (func (export "_start")))"#, None),
        ("(module)", Some("does not export the function _start")),
        (
            r#"(module (import "env" "f" (func)) (func (export "_start")))"#,
            Some("nothing here offers env::f"),
        ),
        ("(component)", Some("does not export wasi:cli/run")),
        ("hello", Some("WebAssembly")),
        (r#"(module (func (export "_start")"#, Some("expected `)`")),
    ] {
        std::fs::write(&program, text).expect("written");
        let (start, error) = refused_start_of(&program, "", "reclaim = { budget = \"10ms\" }");
        let Some(word) = word else {
            assert_eq!(start["fits"], true, "{start}");
            continue;
        };
        let reason = start["refusals"][0]["reason"].as_str().expect("a reason");
        assert!(reason.contains(word), "no {word:?} in {reason}");
        let first = reason.lines().next().expect("a line");
        assert!(error.contains(first), "no {first:?} in {error}");
        assert_eq!(start["untested"], Value::Array(Vec::new()), "{start}");
    }
}

#[test]
fn a_program_that_permissions_keep_from_a_start_is_refused_as_that_refuses_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let program = directory.path().join("program.wasm");
    std::fs::write(&program, r#"(module (func (export "_start")))"#).expect("written");
    std::fs::set_permissions(&program, Permissions::from_mode(0o000)).expect("its own");
    let (start, error) = refused_start_of(&program, "", "reclaim = { budget = \"10ms\" }");
    let reason = start["refusals"][0]["reason"].as_str().expect("a reason");
    assert!(reason.contains("ermission denied"), "{reason}");
    let first = reason.lines().next().expect("a line");
    assert!(error.contains(first), "no {first:?} in {error}");
}

#[test]
fn what_could_not_be_tested_is_said() {
    let leases = Leases::new(&tenant("a", ""));
    let start = &leases.json(&[])["start"];
    assert_eq!(start["fits"], true, "{start}");
    let untested = start["untested"].as_array().expect("a list");
    let says = |word: &str| untested.iter().any(|what| what.to_string().contains(word));
    assert!(says("tenant.a: what its program begins with"), "{start}");
    assert!(says("`reclaim.budget`: there is no profile"), "{start}");
    let text = String::from_utf8(leases.admit(&[]).stdout).expect("text");
    assert_eq!(text.matches("not tested: ").count(), 2, "{text}");
}

#[test]
fn stated_limits_on_machine_code_are_said_not_to_be_tested() {
    let small = tenant("a", "memory = { code = \"64KiB\" }");
    let leases = Leases::new(&format!(
        "[cell]\ncode = \"64KiB\"\n{small}{}",
        tenant("b", "")
    ));
    let untested = &leases.json(&[])["start"]["untested"];
    let untested = untested.as_array().expect("a list");
    let says = |word: &str| untested.iter().any(|what| what.to_string().contains(word));
    assert!(says("tenant.a.memory.code: "), "{untested:?}");
    assert!(says("cell.code: "), "{untested:?}");
    assert!(!says("tenant.b.memory.code"), "{untested:?}");
}

#[test]
fn a_limit_of_the_process_below_which_no_cell_starts_is_named_with_what_is_allowed() {
    let leases =
        Leases::new("[tenant.a]\ncomponent = \"a.wasm\"\nreclaim = { budget = \"50ms\" }\n");
    for limit in ["-d 1000000", "-v 1000000000", "-i 8"] {
        let option = format!("`ulimit {}`", &limit[..2]);
        let [admitted, started] = leases.under(limit);
        assert!(admitted.1.contains(&option), "{admitted:?}");
        assert_eq!(admitted, started);
        assert_eq!(admitted.0, Some(70));
    }
    // A small stack is raised, where that is allowed.
    for (_, error) in leases.under("-s 64") {
        let is_named = error.contains("`ulimit -s`");
        assert!(error.contains("a.wasm") || is_named, "{error}");
    }
}

#[test]
fn memory_that_a_limit_on_the_size_of_files_keeps_from_a_cell_is_refused_with_the_name_of_the_limit()
 {
    // Whatever is less than unlimited: what the swap file takes is not enough.
    let leases = Leases::new(
        "[tenant.a]\ncomponent = \"a.wasm\"\nreclaim = { budget = \"50ms\" }\n\
         memory = { reserve = \"2MiB\", limit = \"4MiB\", swap = \"swap\" }\n",
    );
    let admitted = |limit: &str| {
        let mut limited = Command::new("bash");
        let run = format!("ulimit -f {limit} && exec \"$@\"");
        limited.args(["-c", &run, "bash", env!("CARGO_BIN_EXE_leasehold")]);
        limited.args(["admit", "leases.toml", "--json"]);
        limited.env(
            "LEASEHOLD_PROFILE",
            leases.directory.path().join("none.json"),
        );
        let output = limited.current_dir(leases.directory.path()).output();
        let json: Value = serde_json::from_slice(&output.expect("runs").stdout).expect("JSON");
        json["start"]["refusals"].to_string()
    };
    let refused = admitted("100000000");
    assert!(refused.contains("`ulimit -f`"), "{refused}");
    let refused = admitted("unlimited");
    assert!(!refused.contains("ulimit"), "{refused}");
}
