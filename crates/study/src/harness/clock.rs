//! The two clocks of the studies.
//!
//! Wall time is `CLOCK_MONOTONIC_RAW`: no time daemon adjusts it, and it is the same in every
//! process, so that a neighbour's timestamps are comparable with those of the process that ends a
//! tenant. Claims about calibrated bounds use the processor time of the thread, in which preemption
//! by others does not show (interrupts still do). A read of the first costs about 30 ns, of the
//! second, which is a system call, about half a microsecond.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Wall time in nanoseconds since an arbitrary origin, common to all processes of the machine.
pub fn monotonic_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::MonotonicRaw))
}

/// Processor time that the calling thread has consumed, in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::ThreadCPUTime))
}

/// The nanoseconds in a reading of either clock, neither of which is ever negative.
fn nanoseconds(reading: Timespec) -> u64 {
    reading.tv_sec.cast_unsigned() * 1_000_000_000 + reading.tv_nsec.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::{monotonic_ns, thread_cpu_ns};
    use std::time::Duration;

    #[test]
    fn sleeping_advances_wall_time_and_hardly_any_processor_time() {
        let (wall, cpu) = (monotonic_ns(), thread_cpu_ns());
        std::thread::sleep(Duration::from_millis(20));
        let (wall, cpu) = (monotonic_ns() - wall, thread_cpu_ns() - cpu);
        assert!(wall >= 19_000_000, "{wall}");
        assert!(cpu < wall, "{cpu} of {wall}");
    }
}
