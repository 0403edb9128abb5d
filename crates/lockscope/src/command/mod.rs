//! The command line.

mod agreement;
#[cfg(feature = "tracer")]
mod causes;
#[cfg(feature = "tracer")]
mod duration;
mod html;
#[cfg(feature = "tracer")]
mod interfere;
mod objects;
mod read;
#[cfg(feature = "tracer")]
mod record;
mod render;
#[cfg(feature = "tracer")]
mod rounds;
#[cfg(feature = "tracer")]
mod stop;
#[cfg(feature = "tracer")]
mod top;
#[cfg(feature = "tracer")]
mod verify;
#[cfg(feature = "tracer")]
mod workloads;

use std::process::ExitCode;
#[cfg(feature = "tracer")]
use std::{ffi::OsString, path::PathBuf};

use anyhow::Result;
use clap::{Parser, Subcommand};
#[cfg(feature = "tracer")]
use leasehold_lockscope::Report;

/// Measures how isolated two workloads are, by the locks of kernel objects that both take.
#[derive(Debug, Parser)]
#[command(
    name = "lockscope",
    version,
    after_help = "\
Examples:
  lockscope record --a 'ls -R /usr' --b 'ls -R /usr' --for 10s -o ls.trace
  lockscope report ls.trace
  lockscope help record

A TIME is a whole number and a unit: 500ms, 10s, 1m, 1h.

Exit codes of all commands: 0 done; 2 not done, with the reason on standard error."
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run two workloads beside each other and record the kernel locks that they take.
    #[cfg(feature = "tracer")]
    Record(record::Record),
    /// Record workloads that are running already.
    #[cfg(feature = "tracer")]
    Attach(record::Attach),
    /// Show again and again which locks running workloads wait for.
    #[cfg(feature = "tracer")]
    Top(top::Top),
    /// Measure a worker while more and more thrashers run beside it.
    #[cfg(feature = "tracer")]
    Interfere(interfere::Interfere),
    /// Measure how two workloads slow each other, to compare it with what their score predicts.
    #[cfg(feature = "tracer")]
    Verify(verify::Verify),
    /// Measure what a workload loses for each microsecond that the other one holds a lock longer.
    #[cfg(feature = "tracer")]
    Causes(causes::Causes),
    /// Compare what scores predict with what `verify` measured.
    Agreement(agreement::AgreementArguments),
    /// Look up which objects the locks of traces are, and write it into the traces.
    Objects(objects::Objects),
    /// Print what traces say: shared and private locks, by object and by subsystem.
    Report(read::ReportArguments),
    /// Compare platforms: shared locks, and how often they are taken.
    Compare(read::Traces),
    /// Print one number for each trace: nines of isolation.
    Score(read::Traces),
    /// Print what this kernel lets the tracer see.
    #[cfg(feature = "tracer")]
    Probe,
    /// The other half of `record`: ends a control group when standard input ends.
    #[cfg(feature = "tracer")]
    #[command(hide = true)]
    Guard { group: PathBuf },
    /// One half of `record`: becomes a workload.
    #[cfg(feature = "tracer")]
    #[command(hide = true)]
    Start {
        members: PathBuf,
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<OsString>,
    },
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode> {
    match arguments.command {
        #[cfg(feature = "tracer")]
        Command::Record(arguments) => {
            let trace = record::record(&arguments)?;
            read::print(&render::report_text(&Report::of(&trace)))?;
        }
        #[cfg(feature = "tracer")]
        Command::Attach(arguments) => {
            let trace = record::attach(&arguments)?;
            read::print(&render::report_text(&Report::of(&trace)))?;
        }
        #[cfg(feature = "tracer")]
        Command::Top(arguments) => top::top(&arguments)?,
        #[cfg(feature = "tracer")]
        Command::Guard { group } => leasehold_lockscope::tracer::guard(&group)?,
        #[cfg(feature = "tracer")]
        Command::Interfere(arguments) => interfere::interfere(&arguments)?,
        #[cfg(feature = "tracer")]
        Command::Verify(arguments) => verify::verify(&arguments)?,
        #[cfg(feature = "tracer")]
        Command::Causes(arguments) => causes::causes(&arguments)?,
        Command::Agreement(arguments) => agreement::agreement(&arguments)?,
        Command::Objects(arguments) => objects::objects(&arguments)?,
        Command::Report(arguments) => read::report(&arguments)?,
        Command::Compare(arguments) => read::compare(&arguments)?,
        Command::Score(arguments) => read::score(&arguments)?,
        #[cfg(feature = "tracer")]
        Command::Probe => {
            let offer = leasehold_lockscope::tracer::Offer::of_the_kernel()?;
            offer.lines().iter().for_each(|line| println!("{line}"));
        }
        #[cfg(feature = "tracer")]
        Command::Start { members, command } => {
            let error = leasehold_lockscope::tracer::become_workload(&members, &command);
            anyhow::bail!("{}: {error}", command[0].display());
        }
    }
    Ok(ExitCode::SUCCESS)
}
