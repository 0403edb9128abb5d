//! The part of the processor that a cell with real-time priority leaves to its host.
//!
//! A real-time thread that leaves other threads too little is stopped by Linux for 50 ms in every second, in one
//! piece (unless the system was told otherwise), whichever tenant is running: a reservation would lose that time. So
//! the cell sleeps of its own accord, and only in time that nobody reserved: tenants in the
//! background get less, reservations do not notice.
//!
//! What the cell owes grows with time and is paid by sleeping. Background tenants wait from when it has become a
//! [`TURN_NS`] until next to all of it is paid. Reservations run on meanwhile and pay nothing: the pause lasts as much longer.
//! So of any span of time the host gets its share but for one turn, however much of the span is reserved.
//!
//! Of a sleep the host has less than its length: it has to come to run first, and is interrupted by what wakes the cell.
//! [`LOST_NS`] of each sleep pay nothing, or tenants that wake every 50 µs would leave the host half of its share. Where
//! they wake more often than that the cell owes ever more, up to what becomes owed in [`SPAN_NS`], and background tenants wait.

use crate::clock::monotonic_ns;

/// What the host gets, hundredths: Linux asks for 5.
const SHARE: u64 = 7;

/// What is owed when a pause begins: what becomes owed in a tenth of a second.
const TURN_NS: u64 = 100_000_000 / 100 * SHARE;

/// What may still be owed when a pause ends: so none of its parts is shorter than that.
///
/// Without it a pause would dwindle away: what becomes owed while a reservation runs takes another instant of sleep, in
/// which a reservation may run.
const REST_NS: u64 = TURN_NS / 16;

/// What is lost of each sleep. Measured (Linux 6.18 on a virtual machine): of sleeps of 70 µs the host had 50.
const LOST_NS: u64 = 30_000;

/// In which Linux looks whether others get too little: what was owed longer ago is forgiven.
const SPAN_NS: u64 = 1_000_000_000;

/// What a cell owes its host.
#[derive(Debug, Default)]
pub(crate) struct HostShare {
    /// Until when it is reckoned, ns.
    reckoned: u64,
    /// A hundred times as much as is owed, ns.
    owed: u64,
    is_paused: bool,
}

impl HostShare {
    /// The cell slept, from one instant to another.
    pub(crate) fn slept(&mut self, from: u64, to: u64) {
        self.reckon(from);
        let slept = to.saturating_sub(from.max(self.reckoned));
        self.reckon(to);
        let paid = slept.saturating_sub(LOST_NS).saturating_mul(100);
        self.owed = self.owed.saturating_sub(paid);
    }

    /// Until when background tenants have to wait at the least, if they do: asked before each of their turns.
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

    /// When a background tenant has to be asked again.
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
        assert_eq!(look, START + 100 * MS + 1);
        assert_eq!(share.pause_at(look - 1), None);
        let until = share.pause_at(look).expect("a pause");
        assert!((7 * MS..8 * MS).contains(&(until - look)), "{until}");
        share.slept(look, until);
        assert_eq!(share.pause_at(until), None);
        assert!(share.next_look() > until + 93 * MS);
    }

    #[test]
    fn a_cell_that_sleeps_by_itself_does_not_pause_and_saves_nothing_up() {
        let mut share = HostShare::default();
        share.pause_at(START);
        for tenth in 0..20 {
            let began = START + tenth * 100 * MS;
            share.slept(began, began + 8 * MS);
            assert_eq!(share.pause_at(began + 100 * MS), None);
        }
        let slept = START + 10_000 * MS;
        share.slept(slept, slept + 5_000 * MS);
        assert!(share.pause_at(slept + 5_110 * MS).is_some());
    }

    proptest! {
        /// However often and for whatever part of a pause reservations run, if that leaves enough.
        #[test]
        fn the_host_has_its_share_of_every_span_but_a_turn(
            naps in prop::collection::vec((60_000..1_000_000u64, 0..50u64), 1..50),
        ) {
            /// What the host has less than a sleep is long.
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
            prop_assert!(turns > 10, "background tenants had {turns} turns");
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
