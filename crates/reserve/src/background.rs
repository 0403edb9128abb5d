//! Background servers: without a reservation, they run in rounds when no reservation can.

use crate::contract::Nanos;
use crate::heaps::Heaps;
use crate::id::{Index, NEVER};
use crate::lists::Lists;

const ONLY: Index = 0;

/// The ready background servers in order of their turns, and the timeouts of the others.
#[derive(Debug)]
pub(crate) struct Background {
    ready: Lists,
    timeouts: Heaps,
}

impl Background {
    pub(crate) fn new(servers: u32) -> Self {
        Background {
            ready: Lists::new(1, servers),
            timeouts: Heaps::new(1, servers),
        }
    }

    #[inline]
    pub(crate) fn first(&self) -> Option<Index> {
        self.ready.first(ONLY)
    }

    #[inline]
    pub(crate) fn has_several(&self) -> bool {
        self.ready.has_several(ONLY)
    }

    pub(crate) fn push_back(&mut self, server: Index) {
        self.ready.push_back(ONLY, server);
    }

    pub(crate) fn remove(&mut self, server: Index) {
        self.ready.remove(server);
    }

    pub(crate) fn rotate(&mut self) {
        self.ready.rotate(ONLY);
    }

    pub(crate) fn set_timeout(&mut self, server: Index, at: Nanos) {
        self.timeouts.remove(ONLY, server);
        if at != NEVER {
            self.timeouts.insert(ONLY, server, at);
        }
    }

    /// The earliest timeout; `NEVER` if there is none.
    #[inline]
    pub(crate) fn earliest(&self) -> Nanos {
        self.timeouts.first(ONLY).map_or(NEVER, |(at, _)| at)
    }

    /// A server whose timeout has expired.
    #[inline]
    pub(crate) fn expired(&self, now: Nanos) -> Option<Index> {
        self.timeouts
            .first(ONLY)
            .filter(|&(at, _)| at <= now)
            .map(|(_, server)| server)
    }
}
