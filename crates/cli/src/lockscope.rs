//! `leasehold lockscope`: starts the program `lockscope`, which is a program of its own since its
//! tracer needs libelf to build.

use crate::exit::Failure;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const PROGRAM: &str = "lockscope";

/// The command that builds it.
const BUILD: &str = "cargo build --release --package leasehold-lockscope --features tracer";

#[derive(Debug, clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "\
Examples:
  leasehold lockscope record --a 'ls -R /usr' --b 'ls -R /usr' --for 10s -o ls.trace
  leasehold lockscope --help

The program lies beside `leasehold` or in $PATH.

Exit codes: those of `lockscope`; 66 it is not there."
)]
pub(crate) struct Arguments {
    /// The arguments of `lockscope`.
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGUMENT"
    )]
    arguments: Vec<OsString>,
}

/// Becomes `lockscope`; returns only if that is not possible.
pub(crate) fn main(arguments: Arguments) -> Result<ExitCode, Failure> {
    let program = executable()?;
    let error = Command::new(&program).args(arguments.arguments).exec();
    let message = format!("{} cannot be started: {error}", program.display());
    Err(Failure::Host(anyhow::anyhow!(message)))
}

/// The program beside this one, or else in `$PATH`.
fn executable() -> Result<PathBuf, Failure> {
    let beside = std::env::current_exe().map(|program| program.with_file_name(PROGRAM));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).map(|directory| directory.join(PROGRAM));
    let mut places = beside.into_iter().chain(in_path);
    places.find(|file| is_program(file)).ok_or_else(|| {
        let message =
            format!("{PROGRAM}: found neither beside this program nor in $PATH; build it: {BUILD}");
        Failure::Missing(message)
    })
}

fn is_program(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata()
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}
