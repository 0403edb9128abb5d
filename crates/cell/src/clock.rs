//! The two clocks of a cell.
//!
//! Wall time decides when things happen; the processor time of the cell's thread decides what
//! they cost. Claims about calibrated bounds are made in processor time, because wall time also
//! counts whatever else the machine ran meanwhile. Thread processor time still contains
//! interrupts, which is why a calibrated bound carries a margin for them (see [`crate::profile`]).

pub use leasehold_preempt::clock::monotonic_ns;
use nix::sys::resource::{UsageWho, getrusage};
use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of processor time that the calling thread has used. About 0.5 µs a read (a
/// system call), so it is read at the ends of a measured piece of work, never inside a loop.
pub fn thread_cpu_ns() -> u64 {
    read(ClockId::ThreadCPUTime)
}

/// How often the calling thread has blocked: waited for anything but the processor. Some 0.3 µs (a system call).
pub(crate) fn thread_blocks() -> i64 {
    let usage = getrusage(UsageWho::RUSAGE_THREAD);
    usage.map_or(0, |usage| usage.voluntary_context_switches())
}

fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    // Neither clock is ever negative, and 2^64 ns are 584 years.
    (time.tv_sec as u64) * 1_000_000_000 + time.tv_nsec as u64
}

/// A stopwatch that runs on both clocks at once.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch {
    wall: u64,
    cpu: u64,
}

/// The reading of a [`Stopwatch`]: nanoseconds of wall time and of this thread's processor time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Elapsed {
    /// Wall time, ns.
    pub wall_ns: u64,
    /// Processor time of the measuring thread, ns.
    pub cpu_ns: u64,
}

impl Stopwatch {
    /// Starts both clocks.
    pub fn start() -> Self {
        Self {
            wall: monotonic_ns(),
            cpu: thread_cpu_ns(),
        }
    }

    /// Reads both clocks; must be called on the thread that started the watch.
    pub fn elapsed(&self) -> Elapsed {
        Elapsed {
            cpu_ns: thread_cpu_ns() - self.cpu,
            wall_ns: monotonic_ns() - self.wall,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Stopwatch, monotonic_ns};

    #[test]
    fn sleeping_costs_wall_time_and_next_to_no_processor_time() {
        let watch = Stopwatch::start();
        std::thread::sleep(std::time::Duration::from_millis(20));
        let elapsed = watch.elapsed();
        assert!(elapsed.wall_ns >= 20_000_000);
        assert!(elapsed.cpu_ns < elapsed.wall_ns);
    }

    #[test]
    fn monotonic_time_does_not_go_back() {
        let first = monotonic_ns();
        assert!(monotonic_ns() >= first);
    }
}
