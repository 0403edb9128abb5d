//! Executions: the running programs of tenants, as far as the kernel knows them.
//!
//! The records of all executions of a cell are one table of fixed size, found by hashing the
//! identifier that the cell chose. Nothing here allocates after start.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::num::NonZeroU32;

use leasehold_abi::Errno;
use leasehold_reclaim::{Backing, Handle, LinkId, RawHandle};

use crate::allowance;
use crate::id::{ExecutionId, TenantId};
use crate::link::Objects;
use crate::object::task::state::Task;
use crate::queue::{List, Number};
use crate::wait::{ForeignWait, ReservedUnits, Side, Wait};

/// Why an execution continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wake {
    /// Its request is granted: the repeated call does not block.
    Ready,
    /// The object that it waited for has ended; the repeated call fails with [`Errno::Gone`] or
    /// [`Errno::BadSelector`].
    Gone,
}

/// The purpose of an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The program of its tenant.
    Program,
    /// A task, which is told how it exits.
    Task(Handle<Task>),
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// Not blocked.
    Running,
    /// In an object's queue.
    Waiting(Wait),
    /// Woken, has not called again yet.
    Reserved(ReservedUnits),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Execution {
    id: ExecutionId,
    pub(crate) tenant: TenantId,
    pub(crate) role: Role,
    stop: LinkId,
    /// Its urgency, set by the cell.
    urgency: u64,
    state: State,
    /// Set while it is on the list of woken ones.
    wake: Option<Wake>,
    /// Neighbours on the one list that it is on: an object's queue, or the woken ones.
    previous: Option<Number>,
    next: Option<Number>,
}

/// The table of executions.
#[derive(Debug)]
pub(crate) struct Executions {
    /// Those that have been used, with room for all.
    records: Vec<Option<Execution>>,
    /// Those of them that are free.
    free: Vec<Number>,
    most: usize,
    /// Open-addressed hash table from identifiers to numbers, at most half full.
    index: Box<[Option<Number>]>,
    woken: List,
    /// The greatest urgency of those that joined the woken ones since it was found empty.
    most_urgent: Option<u64>,
}

impl Executions {
    /// A table for at most `most` executions at once.
    pub(crate) fn new(most: u32) -> Self {
        let most = most.clamp(1, 1 << 24);
        Executions {
            records: Vec::with_capacity(most as usize),
            free: Vec::with_capacity(most as usize),
            most: most as usize,
            index: (0..most.next_power_of_two() * 2).map(|_| None).collect(),
            woken: List::default(),
            most_urgent: None,
        }
    }

    fn home(&self, id: ExecutionId) -> usize {
        // Fibonacci hashing: the cell's numbers are likely consecutive.
        let hash = id.0.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (hash >> 32) as usize & (self.index.len() - 1)
    }

    /// Where the identifier's number is in the index, or the free place where it would be.
    fn probe(&self, id: ExecutionId) -> usize {
        let mut at = self.home(id);
        while let Some(number) = self.index[at] {
            if self.get(number).is_some_and(|execution| execution.id == id) {
                break;
            }
            at = (at + 1) & (self.index.len() - 1);
        }
        at
    }

    pub(crate) fn find(&self, id: ExecutionId) -> Option<Number> {
        self.index[self.probe(id)]
    }

    /// Whether [`insert`](Self::insert) has a record left, and none for this identifier.
    pub(crate) fn admits(&self, id: ExecutionId) -> Result<(), Errno> {
        if self.free.is_empty() && self.records.len() == self.most {
            return Err(Errno::Limit);
        }
        if self.find(id).is_some() {
            Err(Errno::Busy)
        } else {
            Ok(())
        }
    }

    /// Adds an execution that was [admitted](Self::admits).
    pub(crate) fn insert(&mut self, id: ExecutionId, tenant: TenantId, role: Role, stop: LinkId) {
        let number = self.free.pop().unwrap_or_else(|| self.unused());
        let at = self.probe(id);
        self.index[at] = Some(number);
        self.records[place(number)] = Some(Execution {
            id,
            tenant,
            role,
            stop,
            urgency: 0,
            state: State::Running,
            wake: None,
            previous: None,
            next: None,
        });
    }

    /// The number of a record that was never used.
    fn unused(&mut self) -> Number {
        self.records.push(None);
        let number = u32::try_from(self.records.len()).ok();
        let number = number.and_then(NonZeroU32::new).map(Number);
        number.expect("numbers start at 1, and are few")
    }

    /// Removes an execution whose scrub entry is unlinked: it leaves its queue or passes on
    /// what was reserved for it. Returns its record.
    pub(crate) fn remove<B: Backing>(
        &mut self,
        groups: &mut Objects<B>,
        id: ExecutionId,
    ) -> Option<Execution> {
        let number = self.find(id)?;
        self.leave(groups, number);
        let mut hole = self.probe(id);
        let mask = self.index.len() - 1;
        // Close the gap: move up every later entry of the run that may lie where the gap is.
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let Some(moved) = self.index[at] else { break };
            let Some(execution) = self.get(moved) else {
                break;
            };
            let home = self.home(execution.id);
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(hole) & mask {
                self.index[hole] = Some(moved);
                hole = at;
            }
        }
        self.index[hole] = None;
        self.free.push(number);
        self.records[place(number)].take()
    }

    pub(crate) fn get(&self, number: Number) -> Option<&Execution> {
        self.records[place(number)].as_ref()
    }

    fn get_mut(&mut self, number: Number) -> Option<&mut Execution> {
        self.records[place(number)].as_mut()
    }

    /// The scrub entry that stops the execution.
    pub(crate) fn stop_link(&self, id: ExecutionId) -> Option<LinkId> {
        Some(self.get(self.find(id)?)?.stop)
    }

    /// The first on the list of woken executions, which leaves it.
    pub(crate) fn pop_woken(&mut self) -> Option<(ExecutionId, Wake)> {
        let Some(number) = self.woken.first else {
            self.most_urgent = None;
            return None;
        };
        self.unlist(None, number);
        let execution = self.get_mut(number)?;
        Some((execution.id, execution.wake.take()?))
    }

    /// The greatest urgency of those that were woken since [`pop_woken`](Self::pop_woken) last
    /// found none.
    pub(crate) const fn most_urgent(&self) -> Option<u64> {
        self.most_urgent
    }

    pub(crate) fn set_urgency(&mut self, id: ExecutionId, urgency: u64) {
        if let Some(execution) = self.find(id).and_then(|number| self.get_mut(number)) {
            execution.urgency = urgency;
        }
    }

    /// Queues an execution for an object.
    pub(crate) fn enqueue<B: Backing>(
        &mut self,
        groups: &mut Objects<B>,
        number: Number,
        wait: Wait,
    ) -> Result<(), Errno> {
        let (queue, _) = wait.side.look(groups, wait.object).ok_or(Errno::Gone)?;
        self.list(&mut queue.list, number);
        if let Some(execution) = self.get_mut(number) {
            execution.state = State::Waiting(wait);
        }
        Ok(())
    }

    /// Begins another call of an execution, and clears the state of the last one. What
    /// was reserved for it is released: the caller uses it or not, and then [settles](Self::settle)
    /// the object.
    pub(crate) fn resume<B: Backing>(
        &mut self,
        groups: &mut Objects<B>,
        number: Number,
    ) -> Option<ReservedUnits> {
        let execution = self.get_mut(number)?;
        let state = core::mem::replace(&mut execution.state, State::Running);
        match state {
            State::Running => {
                self.unwake(number);
                None
            }
            State::Reserved(units) => {
                self.unwake(number);
                let (queue, _) = units.side.look(groups, units.object)?;
                queue.reserved -= units.need;
                Some(units)
            }
            State::Waiting(Wait {
                object,
                side,
                foreign,
                ..
            }) => {
                let queue = side.look(groups, object).map(|(queue, _)| &mut queue.list);
                self.unlist(queue, number);
                give_back(groups, foreign);
                self.settle(groups, object, side);
                None
            }
        }
    }

    /// Ends the execution's wait, or releases what was reserved for it.
    pub(crate) fn leave<B: Backing>(&mut self, groups: &mut Objects<B>, number: Number) {
        if let Some(ReservedUnits { object, side, .. }) = self.resume(groups, number) {
            self.settle(groups, object, side);
        }
    }

    /// Wakes those in an object's queue whose need is met, in order. O(executions woken).
    pub(crate) fn settle<B: Backing>(
        &mut self,
        groups: &mut Objects<B>,
        object: RawHandle,
        side: Side,
    ) {
        loop {
            let Some((queue, Some(available))) = side.look(groups, object) else {
                return;
            };
            let Some(first) = queue.list.first else {
                return;
            };
            let Some(State::Waiting(wait)) = self.get(first).map(|first| first.state) else {
                return;
            };
            if available.saturating_sub(queue.reserved) < wait.need {
                return;
            }
            queue.reserved += wait.need;
            self.unlist(Some(&mut queue.list), first);
            give_back(groups, wait.foreign);
            let Wait { need, .. } = wait;
            self.wake(
                first,
                State::Reserved(ReservedUnits { object, side, need }),
                Wake::Ready,
            );
        }
    }

    /// Wakes all executions in an object's queue, because the object is about to end. O(waiters).
    pub(crate) fn dismiss<B: Backing>(
        &mut self,
        groups: &mut Objects<B>,
        object: RawHandle,
        side: Side,
    ) {
        while let Some((queue, _)) = side.look(groups, object) {
            let Some(first) = queue.list.first else {
                return;
            };
            self.unlist(Some(&mut queue.list), first);
            if let Some(State::Waiting(wait)) = self.get(first).map(|first| first.state) {
                give_back(groups, wait.foreign);
            }
            self.wake(first, State::Running, Wake::Gone);
        }
    }

    /// Wakes a foreign tenant because the object that it waits for went with its group.
    pub(crate) fn wake_foreign<B: Backing>(&mut self, groups: &mut Objects<B>, id: ExecutionId) {
        let Some(number) = self.find(id) else { return };
        let Some(State::Waiting(wait)) = self.get(number).map(|waiter| waiter.state) else {
            return;
        };
        // It may have been cancelled while the group was ending, and wait for something else.
        if wait.side.look(groups, wait.object).is_some() {
            return;
        }
        // The queue is gone with the object, its other members are not.
        self.unlist(None, number);
        self.wake(number, State::Running, Wake::Gone);
    }

    fn wake(&mut self, number: Number, state: State, wake: Wake) {
        if let Some(execution) = self.get_mut(number) {
            execution.state = state;
            execution.wake = Some(wake);
            let urgency = execution.urgency;
            self.most_urgent = self.most_urgent.max(Some(urgency));
        }
        let mut woken = self.woken;
        self.list(&mut woken, number);
        self.woken = woken;
    }

    /// Takes an execution off the list of woken ones, if it is there.
    fn unwake(&mut self, number: Number) {
        let Some(execution) = self.get_mut(number) else {
            return;
        };
        if execution.wake.take().is_some() {
            self.unlist(None, number);
        }
    }

    fn list(&mut self, list: &mut List, number: Number) {
        let last = list.last.replace(number);
        if let Some(execution) = self.get_mut(number) {
            execution.previous = last;
            execution.next = None;
        }
        match last.and_then(|last| self.get_mut(last)) {
            Some(last) => last.next = Some(number),
            None => list.first = Some(number),
        }
    }

    /// Takes an execution off the list that it is on: the given one, or the woken ones, or that
    /// of an object that is gone.
    fn unlist(&mut self, list: Option<&mut List>, number: Number) {
        let Some(execution) = self.get_mut(number) else {
            return;
        };
        let (previous, next) = (execution.previous.take(), execution.next.take());
        if let Some(previous) = previous.and_then(|previous| self.get_mut(previous)) {
            previous.next = next;
        }
        if let Some(next) = next.and_then(|next| self.get_mut(next)) {
            next.previous = previous;
        }
        let list = list.unwrap_or(&mut self.woken);
        if list.first == Some(number) {
            list.first = next;
        }
        if list.last == Some(number) {
            list.last = previous;
        }
    }
}

/// Place of a record in the table.
const fn place(number: Number) -> usize {
    number.0.get() as usize - 1
}

/// A foreign tenant's wait is over: its link goes back to the allowance that it was taken from.
fn give_back<B: Backing>(groups: &mut Objects<B>, foreign: Option<ForeignWait>) {
    if let Some(ForeignWait { link, allowance }) = foreign
        && groups.unlink(link).is_some()
    {
        allowance::put_back(groups, allowance);
    }
}
