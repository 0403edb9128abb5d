//! `lockscope objects`: which objects the locks of traces are.

use std::path::PathBuf;

use anyhow::{Context, Result};
use leasehold_lockscope::{Report, Trace, analyze};
use leasehold_locksite::{Kernel, Paths};

use crate::command::read::print;
use crate::command::render::report_text;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lab/fetch debug && lab/fetch source && lockscope objects create.trace
  lockscope objects --kernel kernel --source linux-6.12 create.trace

Without options it is for traces that were recorded in the lab.")]
pub(crate) struct Objects {
    /// Traces; each is written anew.
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,

    /// Directory of the unpacked kernel with its debug information: boot/config-*, usr/lib/debug.
    #[arg(long, value_name = "DIRECTORY", default_value = "target/lab/kernel")]
    kernel: PathBuf,

    /// The source tree that the kernel was built from.
    #[arg(long, value_name = "DIRECTORY", default_value = "target/lab/source")]
    source: PathBuf,
}

/// `lockscope objects`.
pub(crate) fn objects(arguments: &Objects) -> Result<()> {
    let kernel = Kernel::open(&Paths::of_package(&arguments.kernel, &arguments.source)?)?;
    for file in &arguments.traces {
        let mut trace = Trace::read(file)?;
        analyze(&mut trace, &kernel).with_context(|| file.display().to_string())?;
        trace.write(file)?;
        print(&report_text(&Report::of(&trace)))?;
    }
    Ok(())
}
