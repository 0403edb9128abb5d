//! The command that starts this program again.

use std::process::Command;

use anyhow::{Context, Result};

/// The hidden subcommand of the program; its arguments go to [`main`](crate::child::main).
pub const SUBCOMMAND: &str = "__child";

/// A command that starts this program in `role`.
///
/// # Errors
/// If the path of this program is not known.
pub(crate) fn command(role: &str) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("finding this program")?);
    command.args([SUBCOMMAND, role]);
    Ok(command)
}
