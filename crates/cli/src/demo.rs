//! `leasehold demo`.
use crate::exit::Failure;
use std::path::Path;
use std::process::ExitCode;
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {}
pub(crate) fn main(_: &Arguments, _: Option<&Path>) -> Result<ExitCode, Failure> {
    Ok(ExitCode::SUCCESS)
}
