//! Divides the descriptors of the process among tenants.
//!
//! The limit of the process is raised to what the host allows when the first cell starts. A part is
//! reserved for the host; the rest is promised to tenants. Each tenant can open as many files as
//! its lease states, regardless of the others.
//!
//! The kernel's table of descriptors grows as numbers are used, and each time the thread that opens a file waits for
//! every processor (`synchronize_rcu`, 4 to 17 ms). So it is made large enough when descriptors are promised, on the
//! controller's thread.

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::pipe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, Once, PoisonError};

/// Descriptors of a tenant that may wait to be closed while it opens others, in addition to its
/// limit.
pub(crate) const CLOSING: u32 = 32;

/// Descriptors that no tenant gets: those of cells, programs, the swap file, and the controller.
const RESERVE: u64 = 256;

/// Descriptors that are promised to tenants of this process.
static PROMISED: AtomicU64 = AtomicU64::new(0);

/// Descriptors that the kernel's table has room for, at the least.
static ROOM: Mutex<u64> = Mutex::new(0);

/// Lets the process have as many descriptors as the host allows.
pub(crate) fn raise() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let limit = getrlimit(Resource::Nofile);
        let raised = Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            tracing::warn!(%error, "the limit on descriptors stays {:?}", limit.current);
        }
    });
}

/// The promise that a tenant can open so many files, until this is dropped.
#[derive(Debug)]
pub(crate) struct Promise(u64);

/// Why a promise cannot be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    #[error(
        "{wanted} descriptors were asked for (`files.open`, and {CLOSING} that may wait to be closed); the \
         process has {left} left of {limit}, with {RESERVE} kept for the host: raise `ulimit -n`"
    )]
    TooMany { wanted: u64, left: u64, limit: u64 },
    #[error("the host refuses a table of {descriptors} descriptors: {error}")]
    Table {
        descriptors: u64,
        error: std::io::Error,
    },
}

impl Promise {
    /// Promises a tenant that it can open `open` files. Takes milliseconds where the kernel's table has to grow for
    /// that: not for a cell's thread.
    ///
    /// # Errors
    /// When the process does not have so many left, or the host does not give the table.
    pub(crate) fn make(open: u32) -> Result<Self, Refused> {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let promise = Self::make_of(open, limit)?;
        make_room(PROMISED.load(Ordering::Acquire) + RESERVE, limit)?;
        Ok(promise)
    }

    fn make_of(open: u32, limit: u64) -> Result<Self, Refused> {
        loop {
            let promised = PROMISED.load(Ordering::Acquire);
            let all = promised_with(promised, open, limit)?;
            let order = (Ordering::AcqRel, Ordering::Acquire);
            if PROMISED
                .compare_exchange(promised, all, order.0, order.1)
                .is_ok()
            {
                return Ok(Self(all - promised));
            }
        }
    }
}

/// Returns the sum of promises with `open` files of one more tenant, where a process may have `limit`
/// descriptors.
fn promised_with(promised: u64, open: u32, limit: u64) -> Result<u64, Refused> {
    let wanted = u64::from(open) + u64::from(CLOSING);
    let most = limit.saturating_sub(RESERVE);
    let all = promised.checked_add(wanted).filter(|all| *all <= most);
    all.ok_or(Refused::TooMany {
        wanted,
        left: most.saturating_sub(promised),
        limit,
    })
}

/// Promises of a process in which nothing else was promised: they only say whether there is enough.
#[derive(Debug, Default)]
pub(crate) struct Rehearsed(u64);

impl Rehearsed {
    /// Adds the promise that a tenant can open `open` files.
    ///
    /// # Errors
    /// When the process would not have so many left.
    pub(crate) fn add(&mut self, open: u32) -> Result<(), Refused> {
        // A cell raises the limit to this.
        let limit = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
        self.0 = promised_with(self.0, open, limit)?;
        Ok(())
    }
}

/// Grows the kernel's table to `wanted` descriptors of at most `limit`.
fn make_room(wanted: u64, limit: u64) -> Result<(), Refused> {
    let mut room = ROOM.lock().unwrap_or_else(PoisonError::into_inner);
    if *room >= wanted {
        return Ok(());
    }
    let descriptors = wanted.next_power_of_two().min(limit);
    let last = i32::try_from(descriptors.saturating_sub(1)).unwrap_or(i32::MAX);
    // Briefly opens a descriptor with the last number: the table never shrinks. No path is opened,
    // since the process may be confined by now.
    pipe()
        .and_then(|(any, _)| Ok(fcntl_dupfd_cloexec(any, last)?))
        .map_err(|error| Refused::Table { descriptors, error })?;
    *room = descriptors;
    Ok(())
}

impl Drop for Promise {
    fn drop(&mut self) {
        PROMISED.fetch_sub(self.0, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::Promise;

    #[test]
    fn no_more_is_promised_than_there_is_and_what_is_given_back_is_promised_again() {
        // Other tests may have promises of their own; none has so many.
        let limit = 1 << 40;
        let most = u32::MAX;
        let mut promises = Vec::new();
        while let Ok(promise) = Promise::make_of(most, limit) {
            promises.push(promise);
        }
        assert!((255..=256).contains(&promises.len()), "{}", promises.len());
        assert!(Promise::make_of(most, limit).is_err());
        promises.pop();
        assert!(Promise::make_of(most, limit).is_ok());
    }

    #[test]
    fn the_kernels_table_has_room_for_what_is_promised_before_it_is_opened() {
        super::raise();
        let promise = Promise::make(700).expect("descriptors");
        let status = std::fs::read_to_string("/proc/self/status").expect("a status");
        let room = status.lines().find_map(|line| line.strip_prefix("FDSize:"));
        let room: u64 = room.expect("a size").trim().parse().expect("a number");
        assert!(room > 700 + super::RESERVE, "{room}");
        drop(promise);
    }

    #[test]
    fn a_process_with_a_small_limit_keeps_a_reserve() {
        assert!(Promise::make_of(1, 256).is_err());
    }
}
