//! Timers.

use leasehold_abi::Errno;

use crate::abi;
use crate::answer::{done, result, selector};
use crate::capability::object;

object! {
    /// A timer, one-shot or periodic.
    Timer
}

impl Timer {
    /// A timer that is not set.
    ///
    /// # Errors
    /// What the lease does not cover.
    pub fn create() -> Result<Timer, Errno> {
        selector(abi::timer_create()).map(Timer)
    }

    /// Lets the timer fire in `after_ns` nanoseconds, then every `period_ns` if that is not 0.
    ///
    /// # Errors
    /// [`Errno::Invalid`] for a time that the host cannot count; [`Errno::Rights`];
    /// [`Errno::Gone`].
    pub fn set(self, after_ns: u64, period_ns: u64) -> Result<(), Errno> {
        done(abi::timer_set(self.0.number(), after_ns, period_ns))
    }

    /// Waits until the timer has fired; returns how often since the last wait.
    ///
    /// # Errors
    /// [`Errno::Gone`]; [`Errno::Rights`]; [`Errno::Budget`] if no budget pays for the wait.
    pub fn wait(self) -> Result<u64, Errno> {
        result(abi::timer_wait(self.0.number()))
    }
}
