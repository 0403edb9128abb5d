//! Time that the host took from a cell: a thread of the cell was ready and did not run, or the
//! whole virtual processor did not run.
//!
//! No cell can bound either. A study that compares wall time with a bound reads both before and
//! after, and reports the violations that the host explains separately. The kernel counts a
//! thread's waiting exactly (`schedstat`) and stolen time in ticks.

use std::fs;
use std::ops::Sub;

/// A tick of `/proc/stat`, ns: `USER_HZ` is 100 on every architecture that a cell runs on.
const TICK_NS: u64 = 10_000_000;

/// The names of the threads on which an end waits, of which the kernel keeps fifteen letters: the cell's, and
/// that which closes files.
const THREADS: [&str; 2] = ["leasehold-cell", "leasehold-reape"];

/// The time taken since the start of the process, or between two readings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Taken {
    /// By the hypervisor, ns of all processors together; in ticks of 10 ms.
    pub stolen_ns: u64,
    /// By other threads of this kernel, from all cells of this process and the threads that close their files, ns.
    pub waited_ns: u64,
}

impl Taken {
    /// The time that was taken until now: zero where the host does not tell.
    pub fn so_far() -> Self {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let waits = threads().filter_map(|task| waited(&fs::read_to_string(task).ok()?));
        Self {
            stolen_ns: stolen(&stat).unwrap_or(0),
            waited_ns: waits.sum(),
        }
    }

    /// Whether it is enough to explain `late_ns`. Ticks are rounded down, so that one more may have been stolen.
    pub fn explains(self, late_ns: u64) -> bool {
        let stolen = match self.stolen_ns {
            0 => 0,
            stolen => stolen + TICK_NS,
        };
        stolen + self.waited_ns >= late_ns
    }
}

impl Sub for Taken {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            stolen_ns: self.stolen_ns.saturating_sub(earlier.stolen_ns),
            waited_ns: self.waited_ns.saturating_sub(earlier.waited_ns),
        }
    }
}

/// Where the kernel tells how long each of the threads waited.
fn threads() -> impl Iterator<Item = std::path::PathBuf> {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten();
    tasks.flatten().filter_map(|task| {
        let name = fs::read_to_string(task.path().join("comm")).ok()?;
        THREADS
            .contains(&name.trim_end())
            .then(|| task.path().join("schedstat"))
    })
}

/// The eighth column of the sum over all processors.
fn stolen(stat: &str) -> Option<u64> {
    let sum = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: u64 = sum.split_whitespace().nth(7)?.parse().ok()?;
    Some(ticks * TICK_NS)
}

/// The second column: time on a run queue.
fn waited(schedstat: &str) -> Option<u64> {
    schedstat.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{TICK_NS, Taken, stolen, waited};

    #[test]
    fn the_kernels_files_are_read() {
        let stat = "cpu  5080221 352813 933047 1311611 48809 0 37466 138264 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\n";
        assert_eq!(stolen(stat), Some(138_264 * TICK_NS));
        assert_eq!(waited("1234 567 8\n"), Some(567));
        assert_eq!((stolen(""), waited("")), (None, None));
    }

    #[test]
    fn what_the_host_took_explains_no_more_than_that() {
        let taken = |stolen_ns, waited_ns| Taken {
            stolen_ns,
            waited_ns,
        };
        assert!(taken(0, 0).explains(0) && !taken(0, 0).explains(1));
        assert!(taken(0, 500).explains(500) && !taken(0, 500).explains(501));
        assert!(taken(TICK_NS, 0).explains(2 * TICK_NS));
        assert!(!taken(TICK_NS, 0).explains(2 * TICK_NS + 1));
        assert_eq!(taken(30, 5) - taken(10, 4), taken(20, 1));
    }
}
