//! The core of a cell with real-time priority.
//!
//! Linux moves a real-time thread to any core without another one. The work of the cell's other
//! threads on that core then waits until Linux balances its cores: a tenth of a second. Such a cell
//! therefore stays on one core, which its other threads avoid. Two cells on one core would wait for
//! each other. A cell claims a core by the name of a socket: only one cell of a network namespace
//! can hold it, and it is free when the process has ended for whatever reason.

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::time::Duration;

/// Why a cell [without a core of its own](crate::CellConfig::needs_own_core) was not started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "each processor that the cell may run on is that of another cell with real-time priority: the \
     reservations of both would be missed"
)]
pub struct NoOwnCore;

/// A core that the calling thread is bound to, and no other cell.
#[derive(Debug)]
pub(crate) struct OwnCore {
    pub(crate) core: usize,
    /// Its name is the claim.
    _claim: UnixListener,
}

impl OwnCore {
    /// Binds the calling thread to a core that it may run on and no other cell has claimed, that on which it is
    /// if it can be had. Waits for half a second for one to be free. `None` where each is claimed, or the host
    /// refuses it.
    pub(crate) fn take() -> Option<Self> {
        patiently(|| Self::take_among(CELLS))
    }

    /// Binds the calling thread to this core. `None` where it is claimed, or the host refuses it.
    pub(crate) fn take_this(core: usize) -> Option<Self> {
        let _claim = patiently(|| claim(CELLS, core).ok())?;
        bind(core).ok()?;
        Some(Self { core, _claim })
    }

    /// The same among the cells that claim by this name.
    fn take_among(name: &str) -> Option<Self> {
        let all = sched_getaffinity(None).ok()?;
        let here = sched_getcpu();
        let others = (0..CpuSet::MAX_CPU).filter(|core| *core != here);
        let mut cores = std::iter::once(here)
            .chain(others)
            .filter(|core| all.is_set(*core));
        let own = cores.find_map(|core| {
            let _claim = claim(name, core).ok()?;
            Some(Self { core, _claim })
        })?;
        bind(own.core).ok()?;
        Some(own)
    }
}

/// The name under which cells claim cores.
const CELLS: &str = "leasehold";

/// Retries for half a second, because an ending cell may still hold the core.
fn patiently<T>(attempt: impl Fn() -> Option<T>) -> Option<T> {
    const PAUSE: Duration = Duration::from_millis(20);
    let pauses = (0..25).inspect(|nth| {
        if *nth > 0 {
            std::thread::sleep(PAUSE);
        }
    });
    pauses.into_iter().find_map(|_| attempt())
}

/// Binds the calling thread to a core.
///
/// # Errors
/// When the host does not let it run there.
pub(crate) fn bind(core: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    Ok(sched_setaffinity(None, &set)?)
}

fn claim(name: &str, core: usize) -> io::Result<UnixListener> {
    let name = SocketAddr::from_abstract_name(format!("{name}/core/{core}"))?;
    UnixListener::bind_addr(&name)
}

#[cfg(test)]
mod tests {
    use super::OwnCore;
    use rustix::thread::sched_getaffinity;
    use std::sync::Barrier;

    #[test]
    fn no_two_cells_have_a_core_and_one_that_was_given_up_can_be_had_again() {
        let cores = sched_getaffinity(None).expect("cores").count() as usize;
        // Cells of other processes have others.
        let name = format!("test of {}", std::process::id());
        for _ in 0..2 {
            let together = Barrier::new(cores + 1);
            let take = || {
                let own = OwnCore::take_among(&name);
                together.wait();
                own.map(|own| {
                    let bound = sched_getaffinity(None).expect("cores");
                    assert!(bound.is_set(own.core) && bound.count() == 1);
                    own.core
                })
            };
            let mut taken = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..=cores).map(|_| scope.spawn(take)).collect();
                let taken = threads.into_iter();
                let taken = taken.filter_map(|thread| thread.join().expect("no panic"));
                taken.collect::<Vec<_>>()
            });
            taken.sort_unstable();
            taken.dedup();
            assert_eq!(taken.len(), cores);
        }
    }
}
