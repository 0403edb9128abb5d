//! A range in use.

use std::io;
use std::ops::Range;

use crate::address_range::AddressRange;

/// The accessible part of a range that one user has. There is no second value for the same addresses:
/// what has it may access them, and what consumes it knows that nothing does any more.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    accessible: Range<usize>,
}

impl Taken {
    /// Takes addresses of a reservation from `start` on, of which the first `had` bytes are accessible, and
    /// makes exactly `bytes` bytes accessible. No other user has them.
    ///
    /// # Errors
    ///
    /// The system's; then nothing has changed.
    pub(crate) fn new(
        reservation: &AddressRange,
        start: usize,
        had: usize,
        bytes: usize,
    ) -> io::Result<Taken> {
        let end = start + bytes;
        if had <= bytes {
            reservation.allow(start + had, bytes - had)?;
        } else {
            reservation.forbid(end, had - bytes)?;
        }
        Ok(Taken {
            accessible: start..end,
        })
    }

    /// Makes `more` bytes behind the accessible ones accessible. They are this user's, too.
    ///
    /// # Errors
    ///
    /// The system's; then nothing has changed.
    pub(crate) fn grow(&mut self, reservation: &AddressRange, more: usize) -> io::Result<()> {
        reservation.allow(self.accessible.end, more)?;
        self.accessible.end += more;
        Ok(())
    }

    /// Where in the reservation it may be accessed.
    pub(crate) fn accessible(&self) -> Range<usize> {
        self.accessible.clone()
    }
}
