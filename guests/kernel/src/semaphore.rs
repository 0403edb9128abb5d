//! Counting semaphores.

use leasehold_abi::Errno;

use crate::abi;
use crate::answer::{done, selector};
use crate::capability::object;

object! {
    /// A counting semaphore.
    Semaphore
}

impl Semaphore {
    /// A semaphore that `value` downs pass before one waits.
    ///
    /// # Errors
    /// What the lease does not cover.
    pub fn create(value: u32) -> Result<Semaphore, Errno> {
        selector(abi::semaphore_create(value)).map(Semaphore)
    }

    /// Adds `n`, waking as many waiters.
    ///
    /// # Errors
    /// [`Errno::Full`] if the value would overflow; [`Errno::Rights`]; [`Errno::Gone`].
    pub fn up(self, n: u32) -> Result<(), Errno> {
        done(abi::semaphore_up(self.0.number(), n))
    }

    /// Takes one, waiting for it as long as necessary.
    ///
    /// # Errors
    /// [`Errno::Gone`] if the semaphore ended, before the call or while it waited;
    /// [`Errno::Budget`] or [`Errno::Allowance`] if no budget pays for the wait; [`Errno::Rights`].
    pub fn down(self) -> Result<(), Errno> {
        done(abi::semaphore_down(self.0.number()))
    }

    /// Takes one if there is one.
    ///
    /// # Errors
    /// [`Errno::Empty`] if there is none; [`Errno::Rights`]; [`Errno::Gone`].
    pub fn try_down(self) -> Result<(), Errno> {
        done(abi::semaphore_try_down(self.0.number()))
    }
}
