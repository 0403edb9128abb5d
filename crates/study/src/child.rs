//! Runs the program again as a separate process, in a role that only studies need.
//!
//! A neighbour that shares no address space, or a victim to be killed, must be a process that
//! holds nothing but its part. Re-executing the program needs no second binary to be installed
//! and found. A child dies with the thread that started it, unless it is there to tidy up.

use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result, bail};
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::harness::child_command::BOUND_ROLE;
use crate::harness::neighbour;
use crate::reclaim::processes;

pub use crate::harness::child_command::SUBCOMMAND;

/// The life of a child: takes the arguments after [`SUBCOMMAND`] and returns when it is done.
///
/// # Errors
/// If the role is unknown, or whatever keeps it from being played.
pub fn main(arguments: impl IntoIterator<Item = String>) -> Result<()> {
    let arguments: Vec<String> = arguments.into_iter().collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let [processes::LIMIT_ROLE, ref rest @ ..] = arguments[..] {
        return processes::limit_child(rest);
    }
    set_parent_process_death_signal(Some(Signal::KILL)).context("binding to the parent's life")?;
    match arguments[..] {
        [neighbour::ROLE, ref rest @ ..] => neighbour::child(rest),
        [processes::ROLE, ref rest @ ..] => processes::child(rest),
        [BOUND_ROLE, program, ref rest @ ..] => {
            let error = Command::new(program).args(rest).exec();
            Err(error).with_context(|| format!("starting {program}"))
        }
        _ => bail!("no such role: {arguments:?}"),
    }
}
