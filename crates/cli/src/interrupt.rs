//! Signals that ask a command for its end: an interrupt from the keyboard, that of a service manager, and a
//! closed terminal, which for a server says that its configuration is to be read again.

use crate::exit::Failure;
use crate::output;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The interval between two checks whether a command is to end.
pub(crate) const LOOK: Duration = Duration::from_millis(20);

/// How often the process was told to end.
#[derive(Debug)]
pub(crate) struct Interrupt {
    told: Arc<AtomicBool>,
    times: Cell<u32>,
}

impl Interrupt {
    /// From now on SIGINT, SIGTERM and SIGHUP end nothing by themselves, and no output of the command is waited
    /// for without a limit once one arrives. Once in a process.
    ///
    /// # Errors
    /// When the system refuses it.
    pub(crate) fn listen() -> Result<Self, Failure> {
        Self::to(&[SIGINT, SIGTERM, SIGHUP])
    }

    /// The same of SIGINT and SIGTERM, beside [`Hangups`].
    ///
    /// # Errors
    /// When the system refuses it.
    pub(crate) fn of_server() -> Result<Self, Failure> {
        Self::to(&[SIGINT, SIGTERM])
    }

    fn to(signals: &[i32]) -> Result<Self, Failure> {
        let told = raised_by(signals)?;
        raise(signals, &output::hurries())?;
        output::never_blocks();
        Ok(Self {
            told,
            times: Cell::new(0),
        })
    }

    /// Whether a signal arrived.
    pub(crate) fn is_told(&self) -> bool {
        self.times() > 0
    }

    /// How many signals arrived. Those between two calls count as one.
    pub(crate) fn times(&self) -> u32 {
        if self.told.swap(false, Ordering::Relaxed) {
            self.times.set(self.times.get() + 1);
        }
        self.times.get()
    }
}

/// SIGHUP for a server: its lease file is to be read again.
#[derive(Debug)]
pub(crate) struct Hangups(Arc<AtomicBool>);

impl Hangups {
    /// From now on SIGHUP ends nothing. Once in a process.
    ///
    /// # Errors
    /// When the system refuses it.
    pub(crate) fn listen() -> Result<Self, Failure> {
        raised_by(&[SIGHUP]).map(Self)
    }

    /// Whether one arrived since the last call.
    pub(crate) fn is_told(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

/// A flag that these signals raise, and nothing else.
fn raised_by(signals: &[i32]) -> Result<Arc<AtomicBool>, Failure> {
    let raised = Arc::new(AtomicBool::new(false));
    raise(signals, &raised)?;
    Ok(raised)
}

/// From now on a write beyond a limit on the size of files (`ulimit -f`) is an error of the call, and not the end of the
/// process with all its tenants.
///
/// # Errors
/// When the system refuses it.
pub(crate) fn outlive_large_files() -> Result<(), Failure> {
    raise(&[SIGXFSZ], &Arc::default())
}

/// From now on these signals raise this flag.
///
/// # Errors
/// When the system refuses it.
fn raise(signals: &[i32], raised: &Arc<AtomicBool>) -> Result<(), Failure> {
    for signal in signals {
        flag::register(*signal, raised.clone()).map_err(|error| Failure::Host(error.into()))?;
    }
    Ok(())
}
