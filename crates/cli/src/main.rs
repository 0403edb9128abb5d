//! The `leasehold` program: run untrusted WebAssembly under contract, measure the contract.
//!
//! # Map
//!
//! | concept | file |
//! |---|---|
//! | subcommands on a lease or a lease file: `run`, `up`, `serve`, `admit`, `simulate`, `advise` | a file each; one call by `run --invoke`: `invoke` |
//! | subcommands on a node that runs: `ps`, `top`, `kill`, `put` and others | `operate` |
//! | subcommands on this host and project: `calibrate`, `demo`, `study`, `attack`, `lockscope`, `generate` | a file each |
//! | reading lease files, and contracts for the scheduler | `leases` |
//! | whether reservations are promised: the processor's, the memory's; of tenants that come later | `admission`, `memory_admission`; `rules` |
//! | what would keep tenants from starting, or makes a reservation useless | `hindrances`, `useless` |
//! | what an admission counts with: preemption and faults, requests on their way | `overhead`, `transit` |
//! | the cell of a lease file, checked and admitted | `opened` |
//! | the confinement of the process | `confinement`; what no tenant may reach: `guard`, by `walk`, `mounts` and `second_names`; what is opened before it: `stores`, `requests` |
//! | reports: a run, ends and their charges, long host steps, refusals, what the host granted | `report`, `costs`, `host_steps`, `refusals`, `on_host` |
//! | output and log, which never wait for a reader | `output`, `log`, `access_log` |
//! | signals that ask for the end; the service manager | `interrupt`, `notify` |
//! | exit codes, and the failures behind them | `exit` |

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod access_log;
mod admission;
mod admit;
mod advise;
mod attack;
mod calibrate;
mod confinement;
mod costs;
mod demo;
mod exit;
mod generate;
mod guard;
mod hindrances;
mod host_steps;
mod interrupt;
mod invoke;
mod leases;
mod lockscope;
mod log;
mod memory_admission;
mod mounts;
mod notify;
mod on_host;
mod opened;
mod operate;
mod output;
mod overhead;
mod refusals;
mod report;
mod requests;
mod rules;
mod run;
mod second_names;
mod serve;
mod simulate;
mod stores;
mod study;
mod transit;
mod up;
mod useless;
mod walk;

use crate::output::say;
use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

/// Runs untrusted WebAssembly under contract: `kill` has a deadline.
#[derive(Debug, Parser)]
#[command(name = "leasehold", version, after_help = exit::HELP)]
struct Arguments {
    /// The profile: what reclaiming, preempting and host steps cost on this host, measured on first use
    /// [default: profile.json in the state directory].
    #[arg(long, global = true, value_name = "FILE", env = "LEASEHOLD_PROFILE")]
    profile: Option<PathBuf>,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a WASI program under a lease.
    Run(Box<run::Arguments>),
    /// Test whether all tenants of a lease file can be started and their reservations kept.
    Admit(admit::Arguments),
    /// Simulate the processor reservations of a lease file in virtual time.
    Simulate(simulate::Arguments),
    /// Find the reservations that a program needs, and print a lease file with them.
    Advise(advise::Arguments),
    /// Measure the profile of this host, or check the stored one.
    Calibrate(calibrate::Arguments),
    /// Kill real and hostile guests, here and in stock wasmtime, and show what it took.
    Demo(demo::Arguments),
    /// Run the tenants of a lease file together, each under its lease.
    Up(up::Arguments),
    /// Answer HTTP requests with the tenants of a lease file, each under its lease.
    Serve(serve::Arguments),
    /// List the tenants of a node.
    #[command(after_help = "\
Examples:
  leasehold ps
  leasehold ps --json --socket /run/leasehold/node.sock

Exit codes: 0; 66 no node answers.")]
    Ps(operate::Ps),
    /// Show the tenants of a node, again every second.
    #[command(after_help = "\
Examples:
  leasehold top
  leasehold top --socket /run/leasehold/node.sock

On a terminal it runs until it is interrupted; elsewhere, and with --json, it prints once.

Exit codes: 0; 66 no node answers.")]
    Top(operate::Ps),
    /// Kill a tenant of a node, and print what its end took beside its bound.
    Kill(operate::Kill),
    /// Replace a tenant of a node by a new one with the program that its file has now.
    #[command(after_help = "\
Examples:
  leasehold replace shop

The program is loaded and admitted before anything changes. No request is lost: the new tenant gets
the requests, and the old one ends when those under way are over, after 10s at the most.

Exit codes: 0; 65 the program cannot run here; 66 no such tenant or program, or no node answers;
77 refused: nothing has changed.")]
    Replace(operate::One),
    /// Take requests away from a tenant of a node, and end it when those under way are over.
    Drain(operate::Drain),
    /// Start a tenant of a node again that was stopped or has ended.
    #[command(after_help = "\
Examples:
  leasehold start shop

Exit codes: 0; 65 the program cannot run here; 66 no such tenant or program, or no node answers;
77 refused.")]
    Start(operate::One),
    /// Have a node read its lease file again.
    Reload(operate::Reload),
    /// Print the output of a tenant of a node.
    Logs(operate::LogsOf),
    /// Print the events of a node as they happen.
    Events(operate::EventsOf),
    /// Put a tenant into a node, or change it.
    Put(operate::Put),
    /// Kill a tenant of a node, and forget it.
    #[command(after_help = "\
Examples:
  leasehold delete shop

Exit codes: 0, even if there is no such tenant; 66 no node answers.")]
    Delete(operate::One),
    /// Search for programs that break a promise.
    Attack(attack::Arguments),
    /// Start the program `lockscope`, which measures isolation through kernel locks.
    Lockscope(lockscope::Arguments),
    /// Run a study, which reproduces a figure or table of a paper.
    Study(study::Arguments),
    /// Generate completions of shells, or manual pages.
    Generate(generate::Arguments),
    /// Play one half of a measurement: started by studies.
    #[command(hide = true, name = leasehold_study::child::SUBCOMMAND)]
    Child(study::ChildArguments),
}

fn main() -> ExitCode {
    // Before the first call that takes much of it.
    if let Err(error) = leasehold_cell::raise_stack() {
        return told(&exit::Failure::Host(error));
    }
    let arguments = Arguments::parse();
    log::begin(match &arguments.command {
        Command::Serve(arguments) => arguments.log(),
        _ => access_log::Form::Text,
    });
    let profile = arguments.profile.as_deref();
    let begun = interrupt::outlive_large_files();
    let result = begun.and_then(|()| match arguments.command {
        Command::Run(arguments) => run::main(*arguments, profile),
        Command::Admit(arguments) => admit::main(&arguments, profile),
        Command::Simulate(arguments) => simulate::main(&arguments),
        Command::Ps(arguments) => arguments.ps(),
        Command::Top(arguments) => arguments.top(),
        Command::Kill(arguments) => arguments.run(),
        Command::Replace(arguments) => arguments.change("POST", "/replace"),
        Command::Drain(arguments) => arguments.run(),
        Command::Start(arguments) => arguments.change("POST", "/start"),
        Command::Reload(arguments) => arguments.run(),
        Command::Logs(arguments) => arguments.run(),
        Command::Events(arguments) => arguments.run(),
        Command::Put(arguments) => arguments.run(),
        Command::Delete(arguments) => arguments.delete(),
        Command::Attack(arguments) => attack::main(&arguments, profile),
        Command::Advise(arguments) => advise::main(&arguments, profile),
        Command::Calibrate(arguments) => calibrate::main(&arguments, profile),
        Command::Demo(arguments) => demo::main(&arguments, profile),
        Command::Up(arguments) => match &arguments.socket {
            Some(socket) => serve::up(&arguments, socket, profile),
            None => up::main(&arguments, profile),
        },
        Command::Serve(arguments) => serve::main(&arguments, profile),
        Command::Lockscope(arguments) => lockscope::main(arguments),
        Command::Study(arguments) => study::main(arguments, profile),
        Command::Generate(arguments) => generate::main(&arguments),
        Command::Child(arguments) => study::child(arguments),
    });
    output::end();
    let code = match (result, output::lost()) {
        (Ok(_), Some(lost)) => {
            let failure = exit::Failure::Host(anyhow::anyhow!(lost));
            say!("leasehold: {failure}");
            failure.code()
        }
        (Ok(code), None) => code,
        (Err(failure), _) => told(&failure),
    };
    output::end();
    code
}

/// Tells why a command failed.
fn told(failure: &exit::Failure) -> ExitCode {
    // What a file or a program is called, and what it asks for, is in it.
    say!("leasehold: {}", output::plain(&failure.to_string()));
    output::end();
    failure.code()
}

#[cfg(test)]
mod tests {
    use super::{Arguments, Parser as _};
    use clap::CommandFactory as _;

    /// The words of an example, up to what it tells a shell to read from or write to.
    fn words(example: &str) -> Vec<String> {
        let mut words = vec![String::new()];
        let mut is_quoted = false;
        for character in example.chars() {
            match (character, is_quoted) {
                ('\'', _) => is_quoted = !is_quoted,
                (' ', false) => words.push(String::new()),
                _ => words.last_mut().expect("a word").push(character),
            }
        }
        let command = words.into_iter();
        command
            .take_while(|word| word != "<" && word != ">")
            .collect()
    }

    #[test]
    fn every_example_of_the_help_is_a_command_that_is_accepted() {
        let mut examples = 0;
        for command in Arguments::command().get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string);
            let help = help.unwrap_or_default();
            let listed = help.lines().skip_while(|line| *line != "Examples:");
            for example in listed.filter_map(|line| line.strip_prefix("  leasehold ")) {
                let words = words(&format!("leasehold {example}"));
                match Arguments::try_parse_from(&words) {
                    Ok(_) => {}
                    // A question for help.
                    Err(error) if !error.use_stderr() => {}
                    Err(error) => panic!("{example}: {error}"),
                }
                examples += 1;
            }
        }
        assert!(examples > 40, "{examples}");
    }
}
