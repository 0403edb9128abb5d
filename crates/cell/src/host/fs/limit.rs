//! Divides the descriptors of the process among tenants and listeners.
//!
//! The limit of the process is raised to what the host allows when the first cell starts. A part is
//! reserved for the host; the rest is promised to tenants, and to listeners for their clients. Each tenant can open as
//! many files and connections as its lease states, regardless of the others and of whoever connects.
//!
//! The kernel's table of descriptors grows as numbers are used, and each time the thread that opens a file waits for
//! every processor (`synchronize_rcu`, 4 to 17 ms). So it is made large enough when descriptors are promised, on the
//! controller's thread.

use leasehold_exchange::{IDLE_CONNECTIONS, Outbox};
use leasehold_lease::Lease;
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

/// Descriptors that are set aside, until this is dropped.
#[derive(Debug)]
pub struct Promise(u64);

/// Why descriptors cannot be set aside.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The process does not have so many left.
    #[error(
        "{wanted} descriptors were asked for ({what}); the process has {left} left of {limit}, with {RESERVE} kept for \
         the host: raise `ulimit -n`"
    )]
    TooMany {
        /// Descriptors.
        wanted: u64,
        /// What for.
        what: String,
        /// Those that are not set aside yet.
        left: u64,
        /// Those that the process may have.
        limit: u64,
    },
    /// The host does not give the table.
    #[error("the host refuses a table of {descriptors} descriptors: {error}")]
    Table {
        /// Descriptors in the table.
        descriptors: u64,
        /// Why not.
        error: std::io::Error,
    },
}

// What a refusal says of both.
const _: () = assert!(CLOSING == 32 && IDLE_CONNECTIONS == 8);

/// The parts of a tenant that take descriptors of the process.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Parts {
    /// It has a directory: without one there is nothing that it could open.
    pub(crate) has_dirs: bool,
    /// Its data sets.
    pub(crate) data_sets: usize,
    /// It has a store of keys.
    pub(crate) has_store: bool,
    /// Its program may have initial memory in a file of its own.
    pub(crate) has_image: bool,
    /// The calls to other hosts that it may have under way.
    pub(crate) calls: u32,
    /// The addresses at which it may listen.
    pub(crate) addresses: usize,
}

/// The descriptors of one tenant, or of one listener.
#[derive(Debug, Clone)]
pub(crate) struct Demand {
    wanted: u64,
    what: String,
}

impl Demand {
    /// Those of a tenant with this lease; `None` if it needs none.
    pub(crate) fn of_tenant(lease: &Lease, parts: Parts) -> Option<Self> {
        let files = u64::from(lease.files.open) + u64::from(CLOSING);
        let parts = [
            (
                files * u64::from(parts.has_dirs),
                "`files.open`, and 32 that may wait to be closed",
            ),
            (parts.data_sets as u64, "`data`"),
            (u64::from(parts.has_store), "`keyvalue`"),
            (u64::from(parts.has_image), "the program's initial memory"),
            (
                match parts.calls {
                    0 => 0,
                    calls => Outbox::descriptors_of(calls).into(),
                },
                "twice `outgoing.concurrency`, and 8 idle connections",
            ),
            (parts.addresses as u64, "`outgoing.listen`"),
        ];
        let needed = || parts.iter().filter(|(wanted, _)| *wanted > 0);
        let what: Vec<_> = needed().map(|(_, what)| *what).collect();
        let demand = Self {
            wanted: needed().map(|(wanted, _)| wanted).sum(),
            what: what.join("; "),
        };
        (demand.wanted > 0).then_some(demand)
    }

    /// Those of a listener that accepts so many connections at a time, with its own socket: one more is accepted and
    /// closed.
    pub(crate) fn of_listener(connections: u32) -> Self {
        Self {
            wanted: u64::from(connections) + 2,
            what: "`connections` of a listener, its socket, and one that is closed at once"
                .to_owned(),
        }
    }
}

impl Promise {
    /// Sets descriptors aside for a listener that accepts so many connections at a time, once a cell has started. Takes
    /// milliseconds where the kernel's table has to grow.
    ///
    /// # Errors
    /// When the process does not have so many left, or the host does not give the table.
    pub fn of_listener(connections: u32) -> Result<Self, Refused> {
        Self::make(Demand::of_listener(connections))
    }

    /// Sets descriptors aside. Takes milliseconds where the kernel's table has to grow for that: not for a cell's thread.
    ///
    /// # Errors
    /// When the process does not have so many left, or the host does not give the table.
    pub(crate) fn make(demand: Demand) -> Result<Self, Refused> {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let promise = Self::make_of(&demand, limit)?;
        make_room(PROMISED.load(Ordering::Acquire) + RESERVE, limit)?;
        Ok(promise)
    }

    fn make_of(demand: &Demand, limit: u64) -> Result<Self, Refused> {
        loop {
            let promised = PROMISED.load(Ordering::Acquire);
            let all = promised_with(promised, demand, limit)?;
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

/// Returns the sum of promises with one more, where a process may have `limit` descriptors.
fn promised_with(promised: u64, demand: &Demand, limit: u64) -> Result<u64, Refused> {
    let most = limit.saturating_sub(RESERVE);
    let all = promised
        .checked_add(demand.wanted)
        .filter(|all| *all <= most);
    all.ok_or_else(|| Refused::TooMany {
        wanted: demand.wanted,
        what: demand.what.clone(),
        left: most.saturating_sub(promised),
        limit,
    })
}

/// Promises that are counted and not made.
#[derive(Debug, Default)]
pub(crate) struct Rehearsed(u64);

impl Rehearsed {
    /// Counts one more in a process of its own.
    ///
    /// # Errors
    /// When that process would not have so many left.
    pub(crate) fn add(&mut self, demand: Demand) -> Result<(), Refused> {
        // A cell raises the limit to this.
        let limit = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
        self.0 = promised_with(self.0, &demand, limit)?;
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
    use super::{Demand, Parts, Promise};
    use leasehold_lease::Lease;

    fn of(wanted: u64) -> Demand {
        Demand {
            wanted,
            what: "a test".to_owned(),
        }
    }

    #[test]
    fn no_more_is_promised_than_there_is_and_what_is_given_back_is_promised_again() {
        // Other tests may have promises of their own; none has so many.
        let limit = 1 << 40;
        let most = u64::from(u32::MAX) + 32;
        let mut promises = Vec::new();
        while let Ok(promise) = Promise::make_of(&of(most), limit) {
            promises.push(promise);
        }
        assert!((255..=256).contains(&promises.len()), "{}", promises.len());
        assert!(Promise::make_of(&of(most), limit).is_err());
        promises.pop();
        assert!(Promise::make_of(&of(most), limit).is_ok());
    }

    #[test]
    fn the_kernels_table_has_room_for_what_is_promised_before_it_is_opened() {
        super::raise();
        let promise = Promise::make(of(700)).expect("descriptors");
        let status = std::fs::read_to_string("/proc/self/status").expect("a status");
        let room = status.lines().find_map(|line| line.strip_prefix("FDSize:"));
        let room: u64 = room.expect("a size").trim().parse().expect("a number");
        assert!(room > 700 + super::RESERVE, "{room}");
        drop(promise);
    }

    #[test]
    fn a_process_with_a_small_limit_keeps_a_reserve() {
        assert!(Promise::make_of(&of(1), 256).is_err());
    }

    #[test]
    fn every_descriptor_that_a_tenant_or_a_client_can_make_it_open_is_asked_for() {
        let mut lease = Lease::default();
        lease.files.open = 100;
        let wanted = |parts| Demand::of_tenant(&lease, parts).map(|demand| demand.wanted);
        let none = Parts::default();
        let all = Parts {
            has_dirs: true,
            data_sets: 7,
            has_store: true,
            has_image: true,
            calls: 4,
            addresses: 16,
        };
        assert_eq!(wanted(none), None);
        assert_eq!(wanted(all), Some(132 + 7 + 1 + 1 + 16 + 16));
        for (parts, expected) in [
            (
                Parts {
                    has_dirs: true,
                    ..none
                },
                132,
            ),
            (
                Parts {
                    data_sets: 7,
                    ..none
                },
                7,
            ),
            (
                Parts {
                    has_store: true,
                    ..none
                },
                1,
            ),
            (
                Parts {
                    has_image: true,
                    ..none
                },
                1,
            ),
            (Parts { calls: 4, ..none }, 16),
            (
                Parts {
                    addresses: 16,
                    ..none
                },
                16,
            ),
        ] {
            assert_eq!(wanted(parts), Some(expected));
        }
        let text = Demand::of_tenant(&lease, all).expect("some").what;
        assert!(text.contains("`data`; `keyvalue`; ") && text.ends_with("; `outgoing.listen`"));
        assert_eq!(Demand::of_listener(1024).wanted, 1026);
    }
}
