//! Workloads of simulated tenants in lease files and flags.

use std::path::Path;

use leasehold_lease::{Activity, LeaseFile, Nanoseconds, Workload};

const TENANT: &str = "[tenant.a]\ncomponent = \"a.wasm\"\nreclaim = { budget = \"1ms\" }\n";

fn time(text: &str) -> Nanoseconds {
    text.parse().expect("a time")
}

fn parse(lines: &str) -> Result<LeaseFile, String> {
    LeaseFile::parse(&format!("{TENANT}{lines}\n"), Path::new("lease.toml"))
        .map_err(|error| error.to_string())
}

#[test]
fn a_table_and_a_flag_say_the_same() {
    let rows = [
        ("", "busy", Activity::Busy),
        (
            "run = \"1ms\"\nsleep = \"3ms\"",
            "run=1ms,sleep=3ms",
            Activity::Alternating {
                run: time("1ms"),
                sleep: time("3ms"),
            },
        ),
        (
            "execution = \"1ms\"\nperiod = \"10ms\"\nphase = \"2ms\"",
            "phase=2ms,period=10ms,execution=1ms",
            Activity::Periodic {
                execution: time("1ms"),
                period: time("10ms"),
                phase: Some(time("2ms")),
            },
        ),
        (
            "execution = \"1ms\"\ngap = \"4ms\"\ngap_max = \"6ms\"\nseed = 7",
            "execution=1ms,gap=4ms,gap_max=6ms,seed=7",
            Activity::Sporadic {
                execution: time("1ms"),
                execution_max: time("1ms"),
                gap: time("4ms"),
                gap_max: time("6ms"),
                seed: 7,
            },
        ),
    ];
    for (table, flag, activity) in rows {
        let file = parse(&format!("[simulate.a]\n{table}")).expect(table);
        let workload = Workload { activity, tasks: 1 };
        assert_eq!(file.workloads.get("a"), Some(&workload));
        assert_eq!(flag.parse(), Ok(workload));
        assert_eq!(workload.to_string().parse(), Ok(workload));
    }
    let three: Workload = "tasks=3".parse().expect("busy tasks");
    assert_eq!((three.tasks, three.activity), (3, Activity::Busy));
    assert_eq!(three.to_string().parse(), Ok(three));
    assert!(parse("").expect("no simulation").workloads.is_empty());
}

#[test]
fn what_does_not_fit_together_is_refused_with_what_does() {
    const TOGETHER: &str = "found another combination; allowed: nothing; run and sleep; execution \
                            and period, and phase; or execution and gap, and execution_max, \
                            gap_max, seed; each with tasks";
    let rows = [
        (
            "[simulate.b]",
            "4:11: simulate.b: found the name \"b\"; allowed: the name of a tenant of this file",
        ),
        (
            "[simulate.a]\nwalk = \"1ms\"",
            "5:1: simulate.a.walk: found an unknown key; allowed: run, sleep",
        ),
        ("[simulate.a]\nrun = \"1ms\"", TOGETHER),
        (
            "[simulate.a]\nrun = \"1ms\"\nsleep = \"1ms\"\nperiod = \"1ms\"",
            TOGETHER,
        ),
        ("[simulate.a]\nexecution = \"1ms\"", TOGETHER),
        ("[simulate.a]\nseed = 1", TOGETHER),
        (
            "[simulate.a]\nexecution = \"1ms\"\ngap = \"2ms\"\ngap_max = \"1ms\"",
            "allowed: an execution_max of at least execution",
        ),
        (
            "[simulate.a]\ntasks = 0",
            "simulate.a.tasks: found the number 0; allowed: a whole number from 1 to 100",
        ),
        (
            "[simulate.a]\nrun = 1",
            "simulate.a.run: found the number 1; allowed: a time",
        ),
    ];
    for (lines, message) in rows {
        let error = parse(lines).expect_err(lines);
        assert!(error.contains(message), "{error}");
        assert!(!error.contains('\n'));
    }
    for flag in [
        "",
        "run",
        "run=1ms,run=1ms",
        "x=1ms",
        "tasks=1000",
        "seed=-1",
        "busy,tasks=1",
    ] {
        let error = flag.parse::<Workload>().expect_err(flag).to_string();
        assert!(error.contains("allowed: "), "{error}");
    }
}
