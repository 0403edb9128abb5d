//! Turns: how the ready tasks of one server, and the background servers, share what they get.
//!
//! A turn lasts as long as the server's slice, in time that its task really ran. Its end is a
//! reason to fire the timer only if somebody else can have a turn then (SPR §III: a timer that
//! does not switch is unnecessary). A task whose time to wake up has come waits like one that is
//! ready: it joins in when a turn ends, one task at a time, whether the turn was used up or given up.
//!
//! A background server has a turn among the others beside those of its tasks: it ends with the slice,
//! or when none of them is ready any more. If it began anew with each of them, tasks that hand over to
//! each other would keep the processor from all other tenants for as long as they like.

use crate::contract::Nanos;
use crate::id::{Index, NEVER};
use crate::scheduler::Scheduler;
use crate::server::State;

impl Scheduler {
    /// Ends the turns of the running task and of its server if they are used up.
    pub(crate) fn end_turn(&mut self, index: Index) {
        let server = self.servers.at(index);
        if server.state != State::Ready {
            return;
        }
        let (task, all) = (server.has_used_turn(), server.have_all_used_turn());
        if task {
            self.rotate_tasks(index);
        }
        if all {
            self.rotate_servers(index);
        }
    }

    /// Sees to it that whoever runs next starts with a turn that has not ended: it may have ended with
    /// the budget, or alone, before others joined in.
    pub(crate) fn begin_turn(&mut self, next: Option<Index>) -> Option<Index> {
        let mut index = next?;
        if self.servers.at(index).have_all_used_turn() {
            self.rotate_servers(index);
            index = self.background.first()?;
        }
        self.servers.at_mut(index).begin_slice();
        if self.servers.at(index).has_used_turn() {
            self.rotate_tasks(index);
        }
        Some(index)
    }

    /// Lets another task have a turn, if one can, and of background servers another server.
    pub(crate) fn take_turn(&mut self, index: Index) {
        self.rotate_tasks(index);
        if self.servers.at(index).is_background() {
            self.rotate_servers(index);
        }
    }

    /// Lets another task of the server have a turn, if one can: a sleeping one whose time has come
    /// included.
    fn rotate_tasks(&mut self, index: Index) {
        self.tasks.wake_sleeper(index, self.billing.now());
        if self.tasks.has_several_ready(index) {
            self.tasks.rotate(index);
            self.servers.at_mut(index).turn = 0;
        }
    }

    /// Lets another background server have a turn, if one can. What is left of its task's goes on when
    /// this one has another.
    fn rotate_servers(&mut self, index: Index) {
        self.let_a_sleeping_server_join();
        if self.background.has_several() {
            self.servers.at_mut(index).turn_of_all = 0;
            self.background.rotate();
            // Another server's turn begins, whatever is left of its last.
            if let Some(first) = self.background.first() {
                self.servers.at_mut(first).turn_of_all = 0;
            }
        }
    }

    /// The first task of a server has stopped, and the next goes on, which may be one that is due to
    /// wake up: with a turn of its own, but within that of its server.
    pub(crate) fn hand_over(&mut self, index: Index) {
        self.tasks.wake_sleeper(index, self.billing.now());
        self.servers.at_mut(index).turn = 0;
    }

    /// The last ready task of a server has stopped.
    pub(crate) fn give_up_turn(&mut self, index: Index) {
        let server = self.servers.at_mut(index);
        server.turn_of_all = 0;
        if server.is_background() {
            self.let_a_sleeping_server_join();
        }
    }

    /// A background server whose time to wake up has come takes turns from now on.
    fn let_a_sleeping_server_join(&mut self) {
        if let Some(other) = self.background.expired(self.billing.now()) {
            self.tasks.wake_sleeper(other, self.billing.now());
            self.activate(other, self.billing.now());
        }
    }

    /// When the turn of a server's first task ends, or that of the server among the others: when the
    /// slice is used up, but not before another can have one.
    pub(crate) fn turn_end(&self, index: Index) -> Nanos {
        let server = self.servers.at(index);
        if server.slice == NEVER {
            return NEVER;
        }
        let since = self.billing.begin();
        let end = |used: Nanos, has_others: bool, other: Nanos| {
            let end = since + server.slice.saturating_sub(used);
            if has_others { end } else { other.max(end) }
        };
        let several = self.tasks.has_several_ready(index);
        let of_task = end(server.turn, several, self.tasks.next_wake(index));
        if !server.is_background() {
            return of_task;
        }
        let (several, other) = (self.background.has_several(), self.background.earliest());
        of_task.min(end(server.turn_of_all, several, other))
    }
}
