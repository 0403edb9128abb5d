//! Platforms against a workload whose acquisitions are known by construction. Runs where lock functions
//! can be probed and the platforms are installed: in the lab, with `--ignored`, after
//! `lab/fetch platforms`.

#![cfg(feature = "tracer")]

mod common;

use common::{ground_truth, record_fully, taken_in};
use leasehold_lockscope::Trace;

const COUNT: u64 = 5_000;

/// Two copies of a workload that passes `COUNT` bytes through a pipe, on `platform`.
fn pipes_on(platform: &str) -> Trace {
    let command = format!(
        "echo ready; read line; exec {} pipe {COUNT}",
        ground_truth()
    );
    let more = ["--when-ready", "--platform", platform];
    let trace = record_fully(&command, &command, &more);
    assert_eq!(trace.platform, platform);
    trace
}

/// How often each workload took a pipe's mutex to write.
fn pipe_writes(trace: &Trace) -> [u64; 2] {
    [0, 1].map(|workload| taken_in(trace, workload, &["pipe_write", "anon_pipe_write"]).0)
}

#[test]
#[ignore = "needs a kernel whose lock functions can be probed, such as the lab"]
fn a_pipe_in_a_container_is_the_hosts() {
    for platform in ["host", "runc"] {
        for writes in pipe_writes(&pipes_on(platform)) {
            // No other process in the container writes to pipes, except the platform's own.
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
