//! The `leasehold` program: run untrusted WebAssembly under contract, measure the contract.

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
mod opened;
mod operate;
mod output;
mod overhead;
mod refusals;
mod report;
mod requests;
mod rules;
mod run;
mod serve;
mod simulate;
mod stores;
mod study;
mod transit;
mod up;

use crate::output::say;
use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

/// Runs untrusted WebAssembly under contract: `kill` has a deadline.
#[derive(Debug, Parser)]
#[command(name = "leasehold", version, after_help = exit::HELP)]
struct Arguments {
    /// The measurement of what reclaiming and preempting cost on this host; made on first use.
    #[arg(long, global = true, value_name = "FILE", env = "LEASEHOLD_PROFILE")]
    profile: Option<PathBuf>,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a WASI program (a preview 1 module or a preview 2 command component) under a lease.
    Run(Box<run::Arguments>),
    /// Say whether the reservations of a lease file can be kept together: processor and memory.
    Admit(admit::Arguments),
    /// Play the processor reservations of a lease file in virtual time.
    Simulate(simulate::Arguments),
    /// Find the reservations under which a program does its work, and print a lease file with them.
    Advise(advise::Arguments),
    /// Measure what reclaiming and preempting cost on this host, or check the stored measurement.
    Calibrate(calibrate::Arguments),
    /// Kill real and hostile guests, here and in stock wasmtime, and show what it cost.
    Demo(demo::Arguments),
    /// Run the tenants of a lease file together on one cell, each under its lease.
    Up(up::Arguments),
    /// Answer HTTP requests with the tenants of a lease file, each under its lease.
    Serve(serve::Arguments),
    /// List the tenants of a node.
    #[command(after_help = "\
Examples:
  leasehold ps
  leasehold ps --json --socket /run/leasehold/node.sock

Exit codes: 0; 66 no node answers; 70 it did not answer as it should.")]
    Ps(operate::Ps),
    /// Show the tenants of a node, again each second.
    #[command(after_help = "\
Examples:
  leasehold top
  leasehold top --socket /run/leasehold/node.sock

On a terminal it runs until it is interrupted.
Exit codes: 0; 66 no node answers; 70 it did not answer as it should.")]
    Top(operate::Ps),
    /// Kill a tenant of a node, and print its end beside its bound.
    Kill(operate::Kill),
    /// Load a tenant's program again, and start a new one in its place.
    #[command(after_help = "\
Examples:
  leasehold replace shop     with the program that is in its file now; no request is lost

Exit codes: 0; 65 the program cannot run here; 66 no such tenant, or no node answers; 77 refused.")]
    Replace(operate::One),
    /// Take requests away from a tenant, and end it when those under way are over.
    Drain(operate::Drain),
    /// Start a tenant again that was stopped or has ended.
    #[command(after_help = "\
Examples:
  leasehold start shop

Exit codes: 0; 65 the program cannot run here; 66 no such tenant, or no node answers; 77 refused.")]
    Start(operate::One),
    /// Have a node read its lease file again.
    Reload(operate::Reload),
    /// Print what a tenant of a node wrote.
    Logs(operate::LogsOf),
    /// Print what happens in a node.
    Events(operate::EventsOf),
    /// Put a tenant into a node, or change it: from a lease file with its table.
    Put(operate::Put),
    /// Kill a tenant of a node, and forget it.
    #[command(after_help = "\
Examples:
  leasehold delete shop

Exit codes: 0, also if there is no such tenant; 66 no node answers.")]
    Delete(operate::One),
    /// Search for programs that break a promise: random attacks beside a victim in a real cell.
    Attack(attack::Arguments),
    /// Measure isolation through kernel locks: starts the program `lockscope` with these arguments.
    Lockscope(lockscope::Arguments),
    /// Reproduce a figure or table: `study list` names them, `study all` runs them.
    Study(study::Arguments),
    /// Make what a package has besides the program: completions of shells, and manual pages.
    Generate(generate::Arguments),
    /// One half of a measurement: started by studies, not by people.
    #[command(hide = true, name = leasehold_study::child::SUBCOMMAND)]
    Child(study::ChildArguments),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    log::begin(match &arguments.command {
        Command::Serve(arguments) => arguments.log(),
        _ => access_log::Form::Text,
    });
    let profile = arguments.profile.as_deref();
    let result = match arguments.command {
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
    };
    output::end();
    let code = match (result, output::lost()) {
        (Ok(_), Some(lost)) => {
            let failure = exit::Failure::Host(anyhow::anyhow!(lost));
            say!("leasehold: {failure}");
            failure.code()
        }
        (Ok(code), None) => code,
        (Err(failure), _) => {
            // What a file or a program is called, and what it asks for, is in it.
            say!("leasehold: {}", output::plain(&failure.to_string()));
            failure.code()
        }
    };
    output::end();
    code
}
