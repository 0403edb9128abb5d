//! Leasehold: each workload is a WebAssembly program in a cell, which is a process, of its own.
//!
//! Two tenants of one cell cannot be told apart here, nor do they have to be: one thread runs both, so
//! neither can wait for a lock that the other one holds.

use std::path::PathBuf;

use crate::platform::request::{Platform, PlatformError, Prepared, Request, find};

/// What the tenant may take: enough for any workload of LockScope's; none of them is to be refused.
const LEASE: &str = "--budget 5s --memory 1GiB";

pub(super) fn prepare(request: &Request<'_>) -> Result<Prepared, PlatformError> {
    let leasehold = executable()?;
    let mut command = format!(
        "exec {} run {LEASE}",
        quoted(&leasehold.display().to_string())
    );
    for directory in request.writable {
        command.push_str(" --dir ");
        command.push_str(&quoted(&directory.display().to_string()));
    }
    command.push(' ');
    command.push_str(request.command);
    Ok(Prepared::new(["sh", "-c", &command], None))
}

/// The program `leasehold` beside this one, or else in `$PATH`.
fn executable() -> Result<PathBuf, PlatformError> {
    let beside = std::env::current_exe().map(|program| program.with_file_name("leasehold"));
    match beside {
        Ok(program) if program.is_file() => Ok(program),
        _ => find(
            Platform::Leasehold.name(),
            "leasehold",
            "build it: cargo build --release --package leasehold-cli",
        ),
    }
}

/// One word of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}
