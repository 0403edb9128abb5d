//! `leasehold generate`: the other files of a package, made from the command line itself.

use crate::exit::Failure;
use crate::output;
use clap::{CommandFactory, ValueEnum};
use clap_complete::Shell;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  leasehold generate completions bash > ~/.local/share/bash-completion/completions/leasehold
  leasehold generate manuals --into ~/.local/share/man/man1

Exit codes: 0; 70 a file could not be written.")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Print the completions for a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Write a manual page for each command into a directory.
    Manuals {
        /// The directory; made if it is missing.
        #[arg(long, value_name = "DIR")]
        into: PathBuf,
    },
    /// Write the completions of all shells into a directory, each in a file of the shell's name.
    #[command(hide = true)]
    AllCompletions {
        /// The directory, which is made if it is missing.
        #[arg(long, value_name = "DIR")]
        into: PathBuf,
    },
}

pub(crate) fn main(arguments: &Arguments) -> Result<ExitCode, Failure> {
    match &arguments.what {
        What::Completions { shell } => {
            output::result(format_args!(
                "{}",
                String::from_utf8_lossy(&completions(*shell))
            ));
        }
        What::Manuals { into } => manuals(into).map_err(|error| unwritten(into, error))?,
        What::AllCompletions { into } => {
            let all = || {
                std::fs::create_dir_all(into)?;
                Shell::value_variants().iter().try_for_each(|shell| {
                    std::fs::write(into.join(shell.to_string()), completions(*shell))
                })
            };
            all().map_err(|error| unwritten(into, error))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn unwritten(directory: &Path, error: std::io::Error) -> Failure {
    Failure::Host(
        anyhow::Error::new(error).context(format!("cannot write into {}", directory.display())),
    )
}

fn completions(shell: Shell) -> Vec<u8> {
    let mut command = crate::Arguments::command();
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command, "leasehold", &mut text);
    text
}

/// Writes `leasehold.1`, and `leasehold-COMMAND.1` for each command that is shown.
fn manuals(directory: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(directory)?;
    let command = crate::Arguments::command().disable_help_subcommand(true);
    clap_mangen::generate_to(command, directory)
}
