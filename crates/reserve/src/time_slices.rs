//! Time slices of the ready tasks of one server, and of the background servers.
//!
//! A time slice lasts as long as the server's `slice`, in time that its task really ran. The
//! timer fires at its end only if another task or server can run then (SPR §III: a timer that does
//! not switch is unnecessary). A task whose wake-up is due waits like a ready one: it joins when a
//! slice ends, one task at a time, whether the slice was used up or given up.
//!
//! A background server has a slice among the other servers, besides those of its tasks. It ends
//! with its length, or when none of its tasks is ready. If it began anew with each task, tasks that
//! wake each other could keep the processor from all other tenants for ever.

use crate::contract::Nanos;
use crate::id::{Index, NEVER};
use crate::scheduler::Scheduler;
use crate::server::State;

impl Scheduler {
    /// Ends the slices of the running task and of its server if they are used up.
    pub(crate) fn end_slice(&mut self, index: Index) {
        let server = self.servers.at(index);
        if server.state != State::Ready {
            return;
        }
        let (task, all) = (server.has_used_slice(), server.have_all_used_slice());
        if task {
            self.rotate_tasks(index);
        }
        if all {
            self.rotate_servers(index);
        }
    }

    /// Ensures that the next task starts with a slice that has not ended: it may have ended with
    /// the budget, or before other tasks joined.
    pub(crate) fn begin_fresh_slice(&mut self, next: Option<Index>) -> Option<Index> {
        let mut index = next?;
        if self.servers.at(index).have_all_used_slice() {
            self.rotate_servers(index);
            index = self.background.first()?;
        }
        self.servers.at_mut(index).begin_slice();
        if self.servers.at(index).has_used_slice() {
            self.rotate_tasks(index);
        }
        Some(index)
    }

    /// Starts the slice of another ready task of the server, including a sleeping one whose wake-up
    /// is due.
    fn rotate_tasks(&mut self, index: Index) {
        self.tasks.wake_sleeper(index, self.billing.now());
        if self.tasks.has_several_ready(index) {
            self.tasks.rotate(index);
            self.servers.at_mut(index).slice_used = 0;
        }
    }

    /// Starts the slice of another ready background server. The rest of the task's slice continues
    /// in this server's next slice.
    fn rotate_servers(&mut self, index: Index) {
        self.let_a_sleeping_server_join();
        if self.background.has_several() {
            self.servers.at_mut(index).slice_used_by_all = 0;
            self.background.rotate();
            // Another server's slice begins, whatever is left of its last.
            if let Some(first) = self.background.first() {
                self.servers.at_mut(first).slice_used_by_all = 0;
            }
        }
    }

    /// Continues with the next task after the first task of a server has stopped. The next task may
    /// be one whose wake-up is due; it has a slice of its own within that of its server.
    pub(crate) fn hand_over(&mut self, index: Index) {
        self.tasks.wake_sleeper(index, self.billing.now());
        self.servers.at_mut(index).slice_used = 0;
    }

    /// The last ready task of a server has stopped.
    pub(crate) fn give_up_slice(&mut self, index: Index) {
        let server = self.servers.at_mut(index);
        server.slice_used_by_all = 0;
        if server.is_background() {
            self.let_a_sleeping_server_join();
        }
    }

    /// Adds a background server whose wake-up is due to the round.
    fn let_a_sleeping_server_join(&mut self) {
        if let Some(other) = self.background.expired(self.billing.now()) {
            self.tasks.wake_sleeper(other, self.billing.now());
            self.activate(other, self.billing.now());
        }
    }

    /// Returns the end of the slice of a server's first task, or of the server among the others:
    /// when the slice is used up, but not before another task or server can run.
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
        let of_task = end(server.slice_used, several, self.tasks.next_wake(index));
        if !server.is_background() {
            return of_task;
        }
        let (several, other) = (self.background.has_several(), self.background.earliest());
        of_task.min(end(server.slice_used_by_all, several, other))
    }
}
