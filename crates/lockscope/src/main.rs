//! The `lockscope` program: how isolated are two workloads, and through which kernel object do
//! they meet?

mod command;

use std::process::ExitCode;

use clap::Parser;

use command::Arguments;

fn main() -> ExitCode {
    match command::run(Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("lockscope: {error:#}");
            ExitCode::from(2)
        }
    }
}
