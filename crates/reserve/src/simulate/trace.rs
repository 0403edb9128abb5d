//! A bounded record of what happened.

use alloc::vec::Vec;

use super::{Event, ServerIndex, Sink, TaskIndex};
use crate::Contract;

/// The first events of a simulation, as many as there is room for; the rest are counted.
///
/// Neighbouring slices of one task are joined, so that a task that is interrupted without cost
/// is one slice.
#[derive(Debug, Clone)]
pub struct Trace {
    events: Vec<Event>,
    capacity: usize,
    dropped: u64,
    budgets: bool,
    servers: Vec<Option<Contract>>,
    tasks: Vec<ServerIndex>,
}

impl Trace {
    /// Keeps up to `capacity` events of 40 bytes, and asks for budgets if `budgets`.
    pub fn new(capacity: usize, budgets: bool) -> Self {
        Self {
            events: Vec::new(),
            capacity,
            dropped: 0,
            budgets,
            servers: Vec::new(),
            tasks: Vec::new(),
        }
    }

    /// The recorded events, in their order.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// How many events there was no room for.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The server of each task.
    pub fn tasks(&self) -> &[ServerIndex] {
        &self.tasks
    }

    /// The contract of each server; `None` of one without a reservation.
    pub fn servers(&self) -> &[Option<Contract>] {
        &self.servers
    }
}

impl Sink for Trace {
    fn wants_budgets(&self) -> bool {
        self.budgets
    }

    fn server(&mut self, _server: ServerIndex, contract: Option<&Contract>) {
        self.servers.push(contract.copied());
    }

    fn task(&mut self, _task: TaskIndex, server: ServerIndex) {
        self.tasks.push(server);
    }

    fn record(&mut self, event: &Event) {
        if let (
            Some(Event::Ran {
                task: last,
                to: end,
                ..
            }),
            Event::Ran { task, from, to },
        ) = (self.events.last_mut(), event)
            && last == task
            && end == from
        {
            *end = *to;
        } else if self.events.len() < self.capacity {
            self.events.push(*event);
        } else {
            self.dropped += 1;
        }
    }
}
