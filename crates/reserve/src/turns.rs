//! Turns: how the ready tasks of one server, and the background servers, share what they get.
//!
//! A turn lasts as long as the server's slice, in time that its task really ran. Its end is a
//! reason to fire the timer only if somebody else can have a turn then (SPR §III: a timer that
//! does not switch is unnecessary). A task whose time to wake up has come waits like one that is
//! ready: it joins in when a turn ends, one task at a time, whether the turn was used up or given up.
//!
//! The turn of a background server is one of all its tasks: it ends with the slice, or when none of
//! them is ready any more. If each of them had one, tasks that hand over to each other would keep the
//! processor from all other tenants for as long as they like.

use crate::contract::Nanos;
use crate::id::{Index, NEVER};
use crate::scheduler::Scheduler;
use crate::server::State;

impl Scheduler {
    /// Ends the turn of the running task if its slice is used up.
    pub(crate) fn end_turn(&mut self, index: Index) {
        let server = self.servers.at(index);
        if server.state == State::Ready && server.turn >= server.slice {
            self.take_turn(index);
        }
    }

    /// Sees to it that the server which runs next starts with a turn that has not ended: it may
    /// have ended with the budget, or alone, before others joined in.
    pub(crate) fn begin_turn(&mut self, next: Option<Index>) -> Option<Index> {
        let server = self.servers.at(next?);
        if server.turn < server.slice {
            return next;
        }
        let is_background = server.is_background();
        self.take_turn(next?);
        if is_background {
            self.background.first()
        } else {
            next
        }
    }

    /// Lets another task have a turn, if one can: a sleeping one whose time has come included.
    pub(crate) fn take_turn(&mut self, index: Index) {
        self.tasks.wake_sleeper(index, self.accounted);
        let is_background = self.servers.at(index).is_background();
        if is_background {
            self.let_a_sleeping_server_join();
        }
        if self.tasks.has_several_ready(index) || is_background && self.background.has_several() {
            self.tasks.rotate(index);
            self.servers.at_mut(index).turn = 0;
            if is_background {
                self.background.rotate();
                // Another server's turn begins, whatever is left of its last.
                if let Some(first) = self.background.first() {
                    self.servers.at_mut(first).turn = 0;
                }
            }
        }
    }

    /// The first task of a server has stopped, and the next goes on, which may be one that is due to
    /// wake up: with a turn of its own, unless it is one of the background server's.
    pub(crate) fn hand_over(&mut self, index: Index) {
        self.tasks.wake_sleeper(index, self.accounted);
        let server = self.servers.at_mut(index);
        if !server.is_background() {
            server.turn = 0;
        }
    }

    /// The last ready task of a server has stopped.
    pub(crate) fn give_up_turn(&mut self, index: Index) {
        let server = self.servers.at_mut(index);
        server.turn = 0;
        if server.is_background() {
            self.let_a_sleeping_server_join();
        }
    }

    /// A background server whose time to wake up has come takes turns from now on.
    fn let_a_sleeping_server_join(&mut self) {
        if let Some(other) = self.background.expired(self.accounted) {
            self.tasks.wake_sleeper(other, self.accounted);
            self.activate(other, self.accounted);
        }
    }

    /// When the turn of a server's first task ends: when its slice is used up, but not before
    /// another can have one.
    pub(crate) fn turn_end(&self, index: Index) -> Nanos {
        let server = self.servers.at(index);
        if server.slice == NEVER {
            return NEVER;
        }
        let is_background = server.is_background();
        let since = self.accounted.max(self.prepaid_until);
        let end = since + server.slice.saturating_sub(server.turn);
        if self.tasks.has_several_ready(index) || is_background && self.background.has_several() {
            return end;
        }
        let mut other = self.tasks.next_wake(index);
        if is_background {
            other = other.min(self.background.earliest());
        }
        other.max(end)
    }
}
