//! Why nothing can be recorded.

use std::io;

use thiserror::Error;

use crate::trace::Class;

/// Why nothing can be recorded.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TracerError {
    /// Not root.
    #[error("recording needs root: BPF programs that read the kernel's memory are loaded")]
    NotRoot,
    /// The kernel's symbols have no addresses.
    #[error(
        "the kernel hides its addresses (all of /proc/kallsyms are 0); \
         allow them: sysctl kernel.kptr_restrict=1"
    )]
    HiddenAddresses,
    /// A file or directory of the system.
    #[error("{what}: {source}")]
    Io {
        /// Which.
        what: String,
        /// Why not.
        source: io::Error,
    },
    /// The kernel cannot do what was asked for.
    #[error("the {mode} mode cannot be used: {why}")]
    NotOffered {
        /// `full` or `contended`.
        mode: &'static str,
        /// What is missing.
        why: String,
    },
    /// None of the lock classes that were asked for can be seen.
    #[error("no lock of class {} can be seen in the {mode} mode", names(.classes))]
    NoClass {
        /// What was asked for.
        classes: Vec<Class>,
        /// `full` or `contended`.
        mode: &'static str,
    },
    /// Loading, attaching or reading failed.
    #[error("{doing}: {source}")]
    Bpf {
        /// What was being done.
        doing: String,
        /// What libbpf says.
        source: libbpf_rs::Error,
    },
    /// There is no version 2 hierarchy of control groups.
    #[error(
        "no cgroup2 file system is mounted; mount it: mount -t cgroup2 none /sys/fs/cgroup/unified"
    )]
    NoCgroups,
    /// The version 2 hierarchy lacks a controller that `--pin` or `--memory-groups` needs.
    #[error("the cgroup2 hierarchy at {root} does not control `{controller}`")]
    NoController {
        /// `cpuset` or `memory`.
        controller: &'static str,
        /// Where it is mounted.
        root: String,
    },
    /// A control group that a workload is given by is not one.
    #[error("{path}: not a control group of version 2 below {root}")]
    NotACgroup {
        /// What was given.
        path: String,
        /// Where they are mounted.
        root: String,
    },
    /// A process that a workload is given by is not there.
    #[error("no process has the id {0}")]
    NoProcess(u32),
    /// Too many workloads.
    #[error("{found} workloads; allowed: {allowed}")]
    TooMany {
        /// How many were given.
        found: usize,
        /// How many may be.
        allowed: usize,
    },
    /// A workload that was to say that it is ready did not.
    #[error(
        "workload {name}: {how} before it said that it is ready; with --when-ready a workload prints \
         the line \"ready\" and begins when it reads a line"
    )]
    NotReady {
        /// The workload.
        name: String,
        /// What happened instead.
        how: String,
    },
    /// A command of a workload cannot be started.
    #[error("workload {name}: cannot start {command:?}: {why}")]
    Start {
        /// The workload.
        name: String,
        /// Its command.
        command: String,
        /// Why not.
        why: String,
    },
}

fn names(classes: &[Class]) -> String {
    let names: Vec<_> = classes.iter().map(ToString::to_string).collect();
    names.join(", ")
}
