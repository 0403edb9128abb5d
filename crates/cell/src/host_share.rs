//! The part of the processor that a cell with real-time priority leaves to its host.
//!
//! A real-time thread that leaves other threads too little is stopped by Linux for 50 ms in every
//! second, in one piece (unless the system was told otherwise), whichever tenant is running: a
//! reservation would lose that time. So the cell sleeps by itself, and only in time that no
//! reservation uses. Background tenants get less; reservations are not affected.
//!
//! The cell's debt to the host grows with time and is paid by sleeping. Background tenants wait
//! from the instant at which the debt reaches [`TURN_NS`] until nearly all of it is paid, or at which the cell sleeps
//! with a debt of [`IDLE_TURN_NS`].
//! Reservations continue to run meanwhile, and the pause lasts longer by their time. In any span of
//! time the host therefore gets its share, less at most [`TURN_NS`], however much of the span is
//! reserved.
//!
//! The host gets less than the length of a sleep: its threads must first be switched in, and the
//! cell's wake-up interrupts them. [`LOST_NS`] of each sleep therefore pay nothing. Otherwise
//! tenants that wake every 50 µs would leave the host half of its share. If tenants wake more
//! often, the debt grows up to that of [`SPAN_NS`], and background tenants wait.

use crate::clock::monotonic_ns;

/// The host's share in hundredths; Linux demands 5.
const SHARE: u64 = 7;

/// The debt at which a pause begins: that of a hundredth of a second. A request of a background tenant waits for a pause,
/// and so does a thread of the host for the time between two: both are short, and [`LOST_NS`] of each pause is little still.
const TURN_NS: u64 = 10_000_000 / 100 * SHARE;

/// The debt at which a sleep of the cell's own becomes a pause: what is paid in idle time, nobody waits for.
const IDLE_TURN_NS: u64 = TURN_NS / 7;

/// The debt that may remain when a pause ends: no part of a pause is shorter.
///
/// Without it a pause would continue in ever shorter sleeps: the debt of the time in which a
/// reservation runs needs another sleep, in which a reservation may run again.
const REST_NS: u64 = TURN_NS / 14;

/// The part of each sleep that is lost. Measured (Linux 6.18 on a virtual machine): of sleeps of 70
/// µs the host had 50.
const LOST_NS: u64 = 30_000;

/// The span over which Linux enforces the limit: older debt is cancelled.
const SPAN_NS: u64 = 1_000_000_000;

/// A cell's debt to its host.
#[derive(Debug, Default)]
pub(crate) struct HostShare {
    /// The instant up to which the debt is computed, ns.
    reckoned: u64,
    /// A hundred times the debt, ns.
    owed: u64,
    is_paused: bool,
}

impl HostShare {
    /// Records that the cell slept from one instant to another.
    pub(crate) fn slept(&mut self, from: u64, to: u64) {
        self.reckon(from);
        let was_owed = self.owed;
        let slept = to.saturating_sub(from.max(self.reckoned));
        self.reckon(to);
        let paid = slept.saturating_sub(LOST_NS).saturating_mul(100);
        self.owed = self.owed.saturating_sub(paid);
        let is_due = self.is_paused || was_owed > IDLE_TURN_NS * 100;
        self.is_paused = is_due && self.owed > REST_NS * 100;
    }

    /// Returns the earliest instant at which background tenants may run, if they must wait. Called
    /// before each of their time slices.
    pub(crate) fn pause(&mut self) -> Option<u64> {
        self.pause_at(monotonic_ns())
    }

    fn pause_at(&mut self, now: u64) -> Option<u64> {
        self.reckon(now);
        self.is_paused = match self.is_paused {
            true => self.owed > REST_NS * 100,
            false => self.owed > TURN_NS * 100,
        };
        // More becomes owed while it sleeps.
        let until = now + LOST_NS + (self.owed + LOST_NS * SHARE).div_ceil(100 - SHARE);
        self.is_paused.then_some(until)
    }

    /// Returns the instant at which a running background tenant must be checked again.
    pub(crate) fn next_look(&self) -> u64 {
        let left = (TURN_NS * 100).saturating_sub(self.owed);
        self.reckoned + left / SHARE + 1
    }

    fn reckon(&mut self, now: u64) {
        if self.reckoned == 0 {
            self.reckoned = now;
        }
        let passed = now.saturating_sub(self.reckoned);
        let owed = self.owed.saturating_add(passed.saturating_mul(SHARE));
        self.owed = owed.min(SPAN_NS * SHARE);
        self.reckoned = self.reckoned.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::{HostShare, LOST_NS, SHARE, TURN_NS};
    use proptest::prelude::{prop, prop_assert, proptest};

    const MS: u64 = 1_000_000;
    const START: u64 = 1_000 * MS;

    #[test]
    fn a_busy_cell_pauses_when_it_owes_a_turn_and_until_that_is_paid() {
        let mut share = HostShare::default();
        assert_eq!(share.pause_at(START), None);
        let look = share.next_look();
        assert_eq!(look, START + 10 * MS + 1);
        assert_eq!(share.pause_at(look - 1), None);
        let until = share.pause_at(look).expect("a pause");
        assert!(
            (7 * MS / 10..8 * MS / 10).contains(&(until - look)),
            "{until}"
        );
        share.slept(look, until);
        assert_eq!(share.pause_at(until), None);
        assert!(share.next_look() > until + 93 * MS / 10);
    }

    #[test]
    fn a_sleep_of_its_own_goes_on_until_what_is_owed_is_paid() {
        let mut share = HostShare::default();
        share.pause_at(START);
        share.slept(START + 5 * MS, START + 5 * MS + 50_000);
        let now = START + 5 * MS + 60_000;
        let until = share.pause_at(now).expect("a pause");
        assert!((MS / 3..MS / 2).contains(&(until - now)), "{until}");
        share.slept(now, until);
        assert_eq!(share.pause_at(until), None);
        // A small debt is none to wait for.
        share.slept(until + MS, until + MS + 1);
        assert_eq!(share.pause_at(until + MS + 2), None);
    }

    #[test]
    fn a_cell_that_sleeps_by_itself_does_not_pause_and_saves_nothing_up() {
        let mut share = HostShare::default();
        share.pause_at(START);
        for turn in 0..20 {
            let began = START + turn * 10 * MS;
            share.slept(began, began + MS);
            assert_eq!(share.pause_at(began + 10 * MS), None);
        }
        let slept = START + 10_000 * MS;
        share.slept(slept, slept + 5_000 * MS);
        assert!(share.pause_at(slept + 5_011 * MS).is_some());
    }

    proptest! {
        /// However often and for whatever part of a pause reservations run, if that leaves enough.
        #[test]
        fn the_host_has_its_share_of_every_span_but_a_turn(
            naps in prop::collection::vec((60_000..1_000_000u64, 0..50u64), 1..50),
        ) {
            /// The part of a sleep that the host does not get.
            const LATE_NS: u64 = 25_000;
            let (mut share, mut now, mut got, mut turns) = (HostShare::default(), START, 0, 0);
            let mut naps = naps.into_iter().cycle();
            share.pause_at(now);
            while now < START + 3_000 * MS {
                match share.pause_at(now) {
                    // A reservation interrupts the pause.
                    Some(until) => {
                        let (nap, part) = naps.next().unwrap_or_default();
                        let sleep = (until - now).min(nap);
                        prop_assert!(sleep >= 60_000, "{sleep} ns");
                        share.slept(now, now + sleep);
                        got += sleep - LATE_NS;
                        now += sleep + sleep * part / (100 - part);
                    }
                    None => {
                        now = share.next_look();
                        turns += 1;
                    }
                }
                let due = (now - START) / 100 * SHARE;
                prop_assert!(got + TURN_NS + 20 * MS >= due, "{got} of {due} at {now}");
            }
            prop_assert!(turns > 100, "background tenants had {turns} turns");
        }
    }

    #[test]
    fn what_tenants_that_nap_for_an_instant_kept_from_the_host_is_owed_for_a_second() {
        let (mut share, mut now) = (HostShare::default(), START);
        share.pause_at(now);
        while now < START + 60_000 * MS {
            share.slept(now, now + LOST_NS);
            now += 2 * LOST_NS;
        }
        let until = share.pause_at(now).expect("a pause");
        assert!((70 * MS..80 * MS).contains(&(until - now)), "{until}");
        share.slept(now, until);
        assert_eq!(share.pause_at(until), None);
    }
}
