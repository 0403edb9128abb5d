//! The limit on the data of a process (`ulimit -d`).
//!
//! A cell sets address space aside for what tenants may hold, 2.1 GiB with one small tenant, of which some megabytes are
//! resident. The kernel counts all of it as data. Below a limit on it a cell's first allocations fail, which ends the
//! process.

use anyhow::bail;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The smallest limit with which a cell is started, bytes.
const LEAST: u64 = 4 << 30;

/// Raises the limit to what the host allows.
///
/// # Errors
/// When that is too little for a cell.
pub fn raise() -> anyhow::Result<()> {
    let limit = getrlimit(Resource::Data);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if limit.current != limit.maximum {
        // The limit says what is possible, whether or not this changed it.
        let _ = setrlimit(Resource::Data, raised);
    }
    check(getrlimit(Resource::Data).current)
}

fn check(limit: Option<u64>) -> anyhow::Result<()> {
    match limit {
        Some(limit) if limit < LEAST => bail!(
            "the process may have {} KiB of data (`ulimit -d`); allowed: unlimited, or at least {} KiB, most of which is \
             address space that is never used",
            limit >> 10,
            LEAST >> 10
        ),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::{LEAST, check};

    #[test]
    fn a_limit_that_is_too_low_is_named_with_what_is_allowed() {
        assert!(check(None).is_ok() && check(Some(LEAST)).is_ok());
        let refused = check(Some(LEAST - 1)).expect_err("too low").to_string();
        assert!(
            refused.contains("4194303 KiB of data (`ulimit -d`)"),
            "{refused}"
        );
    }
}
