//! Doing something many times, or until the host refuses.

use core::fmt::Display;

use leasehold_guest::Errno;

use crate::Line;

/// The number of successes, and the reason to stop if it was not the count.
#[derive(Clone, Copy, Debug)]
pub struct Tally<E> {
    /// Successes.
    pub got: u64,
    /// The refusal that ended it.
    pub refused: Option<E>,
}

/// Does `attempt` `limit` times, or until the first refusal if that comes earlier or `limit` is 0.
/// The attempt gets the number of attempts before it.
pub fn tally<T, E>(limit: u64, mut attempt: impl FnMut(u64) -> Result<T, E>) -> Tally<E> {
    let mut got = 0;
    while limit == 0 || got < limit {
        if let Err(refusal) = attempt(got) {
            return Tally {
                got,
                refused: Some(refusal),
            };
        }
        got += 1;
    }
    Tally { got, refused: None }
}

impl<E> Tally<E> {
    /// Prints `got N`, followed by ` refused REASON` if it was refused.
    fn print_with<D: Display>(&self, reason: impl Fn(&E) -> D) {
        let got = self.got;
        match &self.refused {
            None => Line::print(format_args!("got {got}")),
            Some(refusal) => Line::print(format_args!("got {got} refused {}", reason(refusal))),
        }
    }
}

impl Tally<Errno> {
    /// Prints `got N`, followed by ` refused NAME` if it was refused, with the error's name as in
    /// `wit/kernel.wit`.
    pub fn print(&self) {
        self.print_with(|errno| errno.name());
    }
}

impl Tally<u32> {
    /// Prints `got N`, followed by ` refused NUMBER` if it was refused, with the error number of
    /// WASI preview 1.
    pub fn print(&self) {
        self.print_with(|errno| *errno);
    }
}
