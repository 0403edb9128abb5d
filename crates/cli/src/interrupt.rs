//! Signals that request the end of a command: an interrupt from the keyboard, a closed terminal,
//! and the signal of a service manager.

use crate::exit::Failure;
use crate::output;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The interval between two checks whether a command is to end.
pub(crate) const LOOK: Duration = Duration::from_millis(20);

/// How often the process was told to end, by SIGINT, SIGTERM or SIGHUP.
#[derive(Debug, Clone)]
pub(crate) struct Interrupt(Arc<AtomicU32>);

impl Interrupt {
    /// From now on these signals end nothing by themselves, and no output of the command is waited
    /// for without a limit once one arrives. Once in a process.
    ///
    /// # Errors
    /// When the system refuses it.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let told = Arc::new(AtomicU32::new(0));
        let times = told.clone();
        let count = move || {
            times.fetch_add(1, Ordering::Relaxed);
            output::hurry();
        };
        output::never_blocks();
        ctrlc::set_handler(count).map_err(|error| Failure::Host(error.into()))?;
        Ok(Self(told))
    }

    /// Whether a signal arrived.
    pub(crate) fn is_told(&self) -> bool {
        self.times() > 0
    }

    /// How many signals arrived.
    pub(crate) fn times(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}
