//! The command that starts this program again.

use std::process::Command;

use anyhow::{Context, Result};

/// The hidden subcommand of the program; its arguments go to [`main`](crate::child::main).
pub const SUBCOMMAND: &str = "__child";

/// The role of [`bound`].
pub(crate) const BOUND_ROLE: &str = "bound";

/// The same command, of a process that ends with the thread that starts it: a study that is killed leaves no server
/// behind, which would hold a processor. It takes a start of this program more.
///
/// # Errors
/// If the path of this program is not known.
pub(crate) fn bound(process: &Command) -> Result<Command> {
    let mut command = command(BOUND_ROLE)?;
    command.arg(process.get_program()).args(process.get_args());
    Ok(command)
}

/// A command that starts this program in `role`.
///
/// # Errors
/// If the path of this program is not known.
pub(crate) fn command(role: &str) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("finding this program")?);
    command.args([SUBCOMMAND, role]);
    Ok(command)
}
