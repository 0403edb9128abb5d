//! The ready servers, by priority: a first-in, first-out list per level and a bitmap of the
//! levels that are not empty, so that the first is found in constant time (SPR §IV-A).

use crate::id::Index;
use crate::lists::Lists;
use crate::urgency::{LEVELS, Urgency};

const WORDS: usize = LEVELS as usize / 64;

/// Invariant: a bit is set exactly if the list of its level is not empty.
#[derive(Debug)]
pub(crate) struct Runqueue {
    lists: Lists,
    levels: [u64; WORDS],
}

impl Runqueue {
    pub(crate) fn new(servers: u32) -> Self {
        Runqueue {
            lists: Lists::new(LEVELS, servers),
            levels: [0; WORDS],
        }
    }

    /// The server that runs next, and how urgent it is.
    #[inline]
    pub(crate) fn first(&self) -> Option<(Urgency, Index)> {
        let word = self.levels.iter().position(|&word| word != 0)?;
        let level = word as u32 * 64 + self.levels[word].trailing_zeros();
        let server = self.lists.first(level)?;
        Some((Urgency::of_level(level), server))
    }

    /// Adds a server that is not in the queue, behind its equals.
    #[inline]
    pub(crate) fn push_back(&mut self, urgency: Urgency, server: Index) {
        let level = urgency.level();
        self.lists.push_back(level, server);
        self.levels[level as usize / 64] |= 1 << (level % 64);
    }

    /// Takes a server out.
    #[inline]
    pub(crate) fn remove(&mut self, urgency: Urgency, server: Index) {
        let level = urgency.level();
        self.lists.remove(server);
        if self.lists.is_empty(level) {
            self.levels[level as usize / 64] &= !(1 << (level % 64));
        }
    }
}
