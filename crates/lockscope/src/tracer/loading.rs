//! What loading programs into the kernel takes: their configuration, their probes, and what libbpf says
//! when it fails.

use std::sync::Mutex;

use libbpf_rs::{KprobeMultiOpts, Link, PrintLevel};

use crate::tracer::error::TracerError;
use crate::tracer::layout::{Config, TARGETS, Target as Entry};
use crate::tracer::target::Target;

/// The warnings of libbpf since the last error: they say what the error number does not.
static SAID: Mutex<String> = Mutex::new(String::new());

fn said(_: PrintLevel, line: String) {
    if let Ok(mut said) = SAID.lock() {
        said.push_str(&line);
    }
}

/// Keeps libbpf's warnings from now on.
pub(crate) fn listen() {
    libbpf_rs::set_print(Some((PrintLevel::Warn, said)));
}

/// The end of what libbpf has said.
pub(crate) fn what_was_said() -> String {
    let said = SAID.lock().map(|mut said| std::mem::take(&mut *said));
    let said = said.unwrap_or_default();
    let lines: Vec<_> = said.lines().collect();
    // The verifier's log is long; its end says what it did not like.
    let end = lines.len().saturating_sub(12);
    lines[end..]
        .iter()
        .map(|line| format!("\n  {line}"))
        .collect()
}

/// Which control groups and processes are which workload.
pub(crate) fn config_of(
    workloads: &[Vec<Target>],
    start_ns: u64,
) -> Result<(Config, Vec<(u32, u32)>), TracerError> {
    let (mut targets, mut processes) = (Vec::new(), Vec::new());
    for (workload, parts) in (0u32..).zip(workloads) {
        for part in parts {
            match part {
                Target::Cgroup(cgroup) => targets.push(Entry {
                    cgroup: cgroup.id(),
                    level: cgroup.level(),
                    workload,
                }),
                Target::Process(process) => processes.push((*process, workload)),
            }
        }
    }
    let found = workloads.len();
    if found > TARGETS {
        let allowed = TARGETS;
        return Err(TracerError::TooMany { found, allowed });
    }
    // Neighbours of one level need their ancestor looked up once.
    targets.sort_by_key(|target| target.level);
    if targets.len() > TARGETS {
        let (found, allowed) = (targets.len(), TARGETS);
        return Err(TracerError::TooMany { found, allowed });
    }
    let config = Config {
        start_ns,
        processes: !processes.is_empty(),
        probe_ns: 0,
        targets,
    };
    Ok((config, processes))
}

/// Attaches `program` to all `functions` at once; to none if there are none.
pub(crate) fn probe(
    program: &libbpf_rs::ProgramMut<'_>,
    functions: Vec<(&'static str, u64)>,
) -> libbpf_rs::Result<Option<Link>> {
    if functions.is_empty() {
        return Ok(None);
    }
    let (symbols, cookies) = functions
        .into_iter()
        .map(|(name, cookie)| (name.to_owned(), cookie))
        .unzip();
    let options = KprobeMultiOpts {
        symbols,
        cookies,
        ..KprobeMultiOpts::default()
    };
    program.attach_kprobe_multi_with_opts(options).map(Some)
}
