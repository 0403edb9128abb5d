//! The wait for a processor: how long other programs of the host keep a thread waiting that has something to do.
//!
//! All that goes between a cell with a core of its own and the outside passes one thread, on the cores that the host's
//! other programs share: waiting for one of them is the most of a request's latency. Two numbers of Linux' scheduler (EEVDF)
//! decide on it. The *niceness* says how much of a processor the thread may have before it waits. The *time slice* says for
//! how long it asks: with a short one its turn comes earlier, and a program that runs without a pause is interrupted for it
//! within that time, instead of after a slice of its own, some milliseconds. Neither is a priority of real time: clients
//! decide how much the thread has to do, and ordinary programs still run beside it.

#![allow(
    unsafe_code,
    reason = "no crate has the call; this file has no other reason"
)]

use crate::start::Urgency;
use std::io;

/// The thread's time slice, ns: the shortest that Linux takes. Before Linux 6.12 it has no effect.
const SLICE_NS: u64 = 100_000;

impl Urgency {
    /// The niceness of its threads.
    const fn niceness(self) -> i32 {
        match self {
            Self::Guests => -10,
            Self::Operators => -5,
        }
    }
}

/// Shortens the waits of the calling thread, and of those that it starts, as far as the host allows it: a host that refuses
/// it does the work all the same, later when other programs are busy. A niceness below 0 needs privileges, and a short
/// slice none.
///
/// For threads beside a cell with a core of its own. Whatever changes mappings of the process, or finds a page for the first
/// time, holds a lock of the kernel's that the cell may wait for, and the kernel gives the lock to a thread that does not run
/// yet: the cell then waits until other programs let that thread have a processor.
pub fn shorten_waits(urgency: Urgency) {
    let _ = set(urgency.niceness(), SLICE_NS).or_else(|_| set(0, SLICE_NS));
}

/// Sets the calling thread's niceness and time slice, as one of an ordinary program.
fn set(niceness: i32, slice_ns: u64) -> io::Result<()> {
    let attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: libc::SCHED_OTHER as u32,
        sched_flags: 0,
        sched_nice: niceness,
        sched_priority: 0,
        sched_runtime: slice_ns,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: `attributes` outlives the call, which only reads the bytes that `size` says; 0 names this thread.
    match unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::{SLICE_NS, Urgency, shorten_waits};
    use rustix::process::getpriority_process;
    use rustix::system::uname;

    /// Whether this Linux has a time slice for each thread.
    fn slices_are_each_threads_own() -> bool {
        let uname = uname();
        let release = uname.release().to_string_lossy();
        let mut numbers = release
            .split(['.', '-'])
            .map_while(|part| part.parse().ok());
        (numbers.next(), numbers.next()) >= (Some(6), Some(12))
    }

    /// The time slice of the calling thread, ns, where the host tells it.
    fn slice_ns() -> Option<u64> {
        let text = std::fs::read_to_string("/proc/thread-self/sched").ok()?;
        let line = text.lines().find(|line| line.starts_with("se.slice"))?;
        line.rsplit_once(' ')?.1.parse().ok()
    }

    #[test]
    fn the_slice_is_short_whether_or_not_the_host_grants_the_niceness() {
        std::thread::spawn(|| {
            shorten_waits(Urgency::Guests);
            let niceness = getpriority_process(None).expect("read");
            assert!(niceness == -10 || niceness == 0, "{niceness}");
            if let Some(slice) = slice_ns().filter(|_| slices_are_each_threads_own()) {
                assert_eq!(slice, SLICE_NS);
            }
        })
        .join()
        .expect("ends");
    }
}
