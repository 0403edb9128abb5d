//! Limits of a process below which no cell starts, or the program itself does not run (`ulimit`).
//!
//! A cell sets address space aside for what tenants may hold: terabytes in which nothing is mapped, and 2.1 GiB that the kernel
//! counts as data with one small tenant, of which some megabytes are resident. Below a limit on either, its first allocations fail,
//! which ends the process; so does a stack that is too small for the first thread. A timer takes a place among the
//! signals that may be pending.

use anyhow::bail;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What a process needs of a resource.
struct Need {
    resource: Resource,
    /// As the message names it, in units of `unit`.
    what: &'static str,
    option: &'static str,
    unit: u64,
    least: u64,
}

const STACK: Need = Need {
    resource: Resource::Stack,
    what: "KiB of stack",
    option: "-s",
    unit: 1 << 10,
    least: 1 << 20,
};

/// Those of a cell, with 1,024 memories of 4 GiB.
const OF_CELLS: [Need; 3] = [
    Need {
        resource: Resource::Data,
        what: "KiB of data, most of which is address space that is never used",
        option: "-d",
        unit: 1 << 10,
        least: 4 << 30,
    },
    Need {
        resource: Resource::As,
        what: "KiB of address space, most of which is never used",
        option: "-v",
        unit: 1 << 10,
        least: 5 << 40,
    },
    Need {
        resource: Resource::Sigpending,
        what: "pending signals, of which timers are some",
        option: "-i",
        unit: 1,
        least: 256,
    },
];

/// Raises the limits that a cell needs to what the host allows.
///
/// # Errors
/// When one of them is too little for a cell.
pub fn raise() -> anyhow::Result<()> {
    raise_stack()?;
    for need in &OF_CELLS {
        let limit = getrlimit(need.resource);
        if limit.current != limit.maximum {
            let raised = Rlimit {
                current: limit.maximum,
                maximum: limit.maximum,
            };
            // The limit says what is possible, whether or not this changed it.
            let _ = setrlimit(need.resource, raised);
        }
        need.check(getrlimit(need.resource).current)?;
    }
    Ok(())
}

/// Raises the limit on the stack of the first thread, if it is less than the program needs: it grows up to what the limit is
/// when it grows.
///
/// # Errors
/// When the host does not allow as much.
pub fn raise_stack() -> anyhow::Result<()> {
    let limit = getrlimit(STACK.resource);
    if STACK.check(limit.current).is_err() {
        // With privileges, the hard limit can be raised as well.
        let raised = Rlimit {
            current: Some(STACK.least),
            maximum: limit.maximum.map(|most| most.max(STACK.least)),
        };
        let _ = setrlimit(STACK.resource, raised);
    }
    STACK.check(getrlimit(STACK.resource).current)
}

impl Need {
    fn check(&self, limit: Option<u64>) -> anyhow::Result<()> {
        match limit {
            Some(limit) if limit < self.least => bail!(
                "the process may have {} {} (`ulimit {}`); allowed: unlimited, or at least {}",
                limit / self.unit,
                self.what,
                self.option,
                self.least / self.unit
            ),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{OF_CELLS, STACK};

    #[test]
    fn a_limit_that_is_too_low_is_named_with_what_is_allowed() {
        for need in OF_CELLS.iter().chain([&STACK]) {
            assert!(need.check(None).is_ok() && need.check(Some(need.least)).is_ok());
            let refused = need.check(Some(need.least - 1)).expect_err("too low");
            let refused = refused.to_string();
            let (option, least) = (format!("`ulimit {}`", need.option), need.least / need.unit);
            assert!(
                refused.contains(&option) && refused.ends_with(&format!("at least {least}")),
                "{refused}"
            );
        }
    }
}
