//! The timeouts of servers, by priority: a heap per level (SPR §IV-A, fig. 7), and above them a
//! tournament of the levels (the segment tree of TimerShield), so that every operation takes
//! logarithmic time in the levels, and in the servers of one level.

use alloc::boxed::Box;

use crate::contract::Nanos;
use crate::heaps::Heaps;
use crate::id::{Index, NEVER};
use crate::urgency::{LEVELS, Urgency};

/// The first leaf of the tournament.
const LEAVES: usize = LEVELS as usize;
const ROOT: usize = 1;

/// Invariant: the leaf of a level is the earliest timeout of its heap, or `NEVER`; every other
/// node is the earlier one of its two children.
#[derive(Debug)]
pub(crate) struct Timeouts {
    heaps: Heaps,
    /// The children of node `i` are `2i`, more urgent, and `2i + 1`.
    earliest: Box<[Nanos; 2 * LEAVES]>,
}

impl Timeouts {
    pub(crate) fn new(servers: u32) -> Self {
        Timeouts {
            heaps: Heaps::new(LEVELS, servers),
            earliest: Box::new([NEVER; 2 * LEAVES]),
        }
    }

    /// Sets a server's timeout, in place of the one it may have had.
    #[inline]
    pub(crate) fn set(&mut self, urgency: Urgency, server: Index, at: Nanos) {
        let level = urgency.level();
        self.heaps.remove(level, server);
        self.heaps.insert(level, server, at);
        self.play(level);
    }

    /// Takes a server's timeout out, if it has one.
    #[inline]
    pub(crate) fn remove(&mut self, urgency: Urgency, server: Index) {
        if self.heaps.contains(server) {
            let level = urgency.level();
            self.heaps.remove(level, server);
            self.play(level);
        }
    }

    /// The earliest timeout of all.
    #[inline]
    pub(crate) fn earliest(&self) -> Nanos {
        self.earliest[ROOT]
    }

    /// The earliest timeout among servers more urgent than `urgency`; `NEVER` if there is none:
    /// `t_hp` (SPR Alg. 2 line 6).
    #[inline]
    pub(crate) fn earliest_above(&self, urgency: Urgency) -> Nanos {
        if urgency == Urgency::LEAST {
            return self.earliest();
        }
        let mut node = LEAVES + urgency.level() as usize;
        let mut earliest = NEVER;
        while node > ROOT {
            if node % 2 == 1 {
                earliest = earliest.min(self.earliest[node - 1]);
            }
            node /= 2;
        }
        earliest
    }

    /// The server with the earliest timeout of the most urgent level that has an expired one.
    #[inline]
    pub(crate) fn most_urgent_expired(&self, now: Nanos) -> Option<(Urgency, Index)> {
        if self.earliest[ROOT] > now {
            return None;
        }
        let mut node = ROOT;
        while node < LEAVES {
            node *= 2;
            if self.earliest[node] > now {
                node += 1;
            }
        }
        let level = (node - LEAVES) as u32;
        let (_, server) = self.heaps.first(level)?;
        Some((Urgency::of_level(level), server))
    }

    /// Plays the tournament again, from a level's leaf upwards until a winner stays.
    fn play(&mut self, level: u32) {
        let mut node = LEAVES + level as usize;
        let first = self.heaps.first(level).map_or(NEVER, |(at, _)| at);
        if core::mem::replace(&mut self.earliest[node], first) == first {
            return;
        }
        while node > ROOT {
            node /= 2;
            let winner = self.earliest[2 * node].min(self.earliest[2 * node + 1]);
            if core::mem::replace(&mut self.earliest[node], winner) == winner {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use proptest::prelude::{any, prop, proptest};

    use super::Timeouts;
    use crate::contract::Priority;
    use crate::id::NEVER;
    use crate::urgency::Urgency;

    proptest! {
        #[test]
        fn the_tournament_answers_as_a_list_would(
            steps in prop::collection::vec((0..12u32, any::<u8>(), 0..20u64, any::<bool>()), 0..100),
        ) {
            let mut timeouts = Timeouts::new(12);
            let mut list = vec![None; 12];
            for (server, priority, at, is_set) in steps {
                if let Some((urgency, _)) = list[server as usize].take() {
                    timeouts.remove(urgency, server);
                }
                if is_set {
                    let urgency = Urgency::of_priority(Priority(priority));
                    timeouts.set(urgency, server, at);
                    list[server as usize] = Some((urgency, at));
                }
                let all = || list.iter().flatten().copied();
                assert_eq!(timeouts.earliest(), all().map(|entry| entry.1).min().unwrap_or(NEVER));
                for level in (0..256).step_by(15) {
                    let urgency = Urgency::of_level(level);
                    let above = all().filter(|entry| entry.0 < urgency).map(|entry| entry.1).min();
                    assert_eq!(timeouts.earliest_above(urgency), above.unwrap_or(NEVER));
                }
                for now in 0..21 {
                    let expired = timeouts.most_urgent_expired(now);
                    let most = all().filter(|entry| entry.1 <= now).min();
                    assert_eq!(expired.map(|entry| entry.0), most.map(|entry| entry.0));
                    // The earliest of its level.
                    let found = expired.and_then(|entry| list[entry.1 as usize]);
                    assert_eq!(found, most);
                }
            }
        }
    }
}
