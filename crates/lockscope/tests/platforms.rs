//! Platforms against a workload whose acquisitions are known by construction. Runs where lock functions
//! can be probed and the platforms are installed: in the lab, with `--ignored`, after
//! `lab/fetch platforms`.

#![cfg(feature = "tracer")]

use std::path::Path;
use std::process::Command;

use leasehold_lockscope::{Mode, Trace};

const COUNT: u64 = 5_000;

/// Two copies of a workload that passes `COUNT` bytes through a pipe, on `platform`.
fn pipes_on(platform: &str) -> Trace {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("trace");
    let program = Path::new(env!("CARGO_BIN_EXE_lockscope"));
    let example = program.with_file_name("examples").join("ground-truth");
    let command = format!(
        "echo ready; read line; exec {} pipe {COUNT}",
        example.display()
    );
    let output = Command::new(program)
        .args(["record", "--mode", "full", "--for", "10m", "--when-ready"])
        .args([
            "--platform",
            platform,
            "--a",
            &command,
            "--b",
            &command,
            "--out",
        ])
        .arg(&file)
        .output()
        .expect("started");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    assert!(!error.contains("failed"), "{error}");
    let trace = Trace::read(&file).expect("a trace");
    assert_eq!((trace.mode, trace.losses.acquisitions), (Mode::Full, 0));
    assert_eq!(trace.platform, platform);
    trace
}

/// How often each workload took a pipe's mutex to write.
fn pipe_writes(trace: &Trace) -> [u64; 2] {
    [0, 1].map(|workload| {
        let writes = trace.uses.iter().filter(|used| {
            let name = trace.symbol(used.site).map(|symbol| symbol.name.as_str());
            let writes = matches!(name, Some("pipe_write" | "anon_pipe_write"));
            used.workload.0 == workload && writes
        });
        writes.map(|used| used.acquired).sum()
    })
}

#[test]
#[ignore = "needs a kernel whose lock functions can be probed, such as the lab"]
fn a_pipe_in_a_container_is_the_hosts() {
    for platform in ["host", "runc"] {
        for writes in pipe_writes(&pipes_on(platform)) {
            // Nobody else in the container writes to pipes but for what is beside the workload.
            assert!(
                (COUNT..COUNT + 100).contains(&writes),
                "{platform}: {writes}"
            );
        }
    }
}

#[test]
#[ignore = "needs a kernel whose lock functions can be probed, such as the lab"]
fn a_pipe_in_gvisor_is_the_sentrys_own() {
    for platform in ["gvisor", "gvisor-ptrace"] {
        for writes in pipe_writes(&pipes_on(platform)) {
            assert!(writes < COUNT / 10, "{platform}: {writes}");
        }
    }
}
