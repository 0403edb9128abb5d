//! What the thread does before its work.

use crate::meter;
use crate::wait;
use rustix::thread::{sched_getaffinity, sched_setaffinity};
use std::io;

/// What a thread does before its work: confine itself, for instance.
pub type Begin = Box<dyn FnOnce() -> io::Result<()> + Send>;

/// What waits for the work of a thread, which decides how soon it has a processor beside a cell with a core of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Urgency {
    /// Guests do.
    Guests,
    /// Operators do, and guests only for what the kernel locks meanwhile.
    Operators,
}

/// Makes the calling thread one that does I/O beside a cell, whose core it keeps off where it may run on another, and
/// returns its runtime. `begin` is called last.
///
/// # Errors
/// When the system refuses that, or `begin` fails.
pub fn runtime(
    core: Option<usize>,
    urgency: Urgency,
    begin: Option<Begin>,
) -> io::Result<tokio::runtime::Runtime> {
    if let Some(core) = core {
        let mut others = sched_getaffinity(None)?;
        others.unset(core);
        if others.count() > 0 {
            sched_setaffinity(None, &others)?;
        }
        wait::shorten_waits(urgency);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .on_thread_park(meter::idle)
        .build()?;
    if let Some(begin) = begin {
        begin()?;
    }
    Ok(runtime)
}

#[cfg(test)]
mod tests {
    use super::{Urgency, runtime};
    use rustix::thread::{sched_getaffinity, sched_setaffinity};

    #[test]
    fn the_thread_leaves_the_core_if_it_may_run_on_another() {
        std::thread::spawn(|| {
            let all = sched_getaffinity(None).expect("read");
            let core = (0..1024).find(|core| all.is_set(*core)).expect("a core");
            runtime(Some(core), Urgency::Operators, None).expect("made");
            let left = sched_getaffinity(None).expect("read");
            assert_eq!(left.is_set(core), all.count() == 1);
            assert_eq!(left.count(), (all.count() - 1).max(1));
            sched_setaffinity(None, &all).expect("as before");
        })
        .join()
        .expect("ends");
    }
}
