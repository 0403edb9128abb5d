//! The part of the processor that a cell with real-time priority leaves to its host.
//!
//! A real-time thread that never sleeps is stopped by Linux for 50 ms in every second (unless the
//! system was told otherwise), whoever it is just running: a reservation would lose that time. So
//! the cell sleeps of its own accord, and only in time that nobody reserved: tenants in the
//! background get less, reservations do not notice.

use crate::clock::monotonic_ns;

/// How often the cell looks at what it has left.
const WINDOW_NS: u64 = 100_000_000;

/// Most of a window that it runs before background tenants have to wait: 7 % are left, of which
/// Linux asks 5.
const MOST_NS: u64 = WINDOW_NS / 100 * 93;

/// How busy a cell has been in the current window.
#[derive(Debug, Default)]
pub(crate) struct HostShare {
    began: u64,
    idle: u64,
}

impl HostShare {
    /// The cell slept, from one instant to another.
    pub(crate) fn slept(&mut self, from: u64, to: u64) {
        self.idle += to.saturating_sub(from.max(self.began));
    }

    /// Until when background tenants have to wait, if they do: asked before each of their turns.
    pub(crate) fn pause(&mut self) -> Option<u64> {
        self.pause_at(monotonic_ns())
    }

    fn pause_at(&mut self, now: u64) -> Option<u64> {
        let end = self.began + WINDOW_NS;
        if now >= end {
            (self.began, self.idle) = (now, 0);
            return None;
        }
        let busy = (now - self.began).saturating_sub(self.idle);
        (busy > MOST_NS).then_some(end)
    }

    /// When a background tenant has to be asked again.
    pub(crate) fn next_look(&self) -> u64 {
        self.began + self.idle + MOST_NS + 1
    }
}

#[cfg(test)]
mod tests {
    use super::{HostShare, MOST_NS, WINDOW_NS};

    #[test]
    fn a_busy_cell_pauses_once_per_window_and_for_the_rest_of_it() {
        let start = 10 * WINDOW_NS;
        let mut share = HostShare::default();
        assert_eq!(share.pause_at(start), None, "a window begins");
        assert_eq!(share.pause_at(start + MOST_NS), None);
        let pause = share.pause_at(share.next_look());
        assert_eq!(pause, Some(start + WINDOW_NS));
        share.slept(start + MOST_NS + 1, start + WINDOW_NS);
        assert_eq!(share.pause_at(start + WINDOW_NS), None, "the next one");
    }

    #[test]
    fn a_cell_that_sleeps_by_itself_does_not_pause() {
        let start = 10 * WINDOW_NS;
        let mut share = HostShare::default();
        assert_eq!(share.pause_at(start), None);
        share.slept(start + 1, start + 1 + WINDOW_NS / 10);
        assert_eq!(share.pause_at(start + MOST_NS + 2), None);
        assert_eq!(share.pause_at(start + WINDOW_NS - 1), None);
    }
}
