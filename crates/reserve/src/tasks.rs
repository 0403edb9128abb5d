//! The tasks of servers: those that are ready in a first-in, first-out list, those that sleep in a
//! heap by their wake-up times, one of each per server (SPR §V-D leaves servers of several tasks
//! to future work).

use alloc::vec::Vec;

use crate::contract::Nanos;
use crate::heaps::Heaps;
use crate::id::{Index, NEVER, NOWHERE, Refused, ServerId, TaskId};
use crate::lists::Lists;

#[derive(Debug, Clone, Copy)]
struct Task {
    generation: u32,
    /// The server it belongs to; a task whose server was removed is stale.
    server: Option<ServerId>,
}

/// All tasks, in places that are used again.
#[derive(Debug)]
pub(crate) struct Tasks {
    places: Vec<Task>,
    /// The ready tasks of each server.
    ready: Lists,
    /// The tasks of each server that have a wake-up time.
    sleeping: Heaps,
    /// In the first list all free places, then all tasks of each server.
    members: Lists,
    capacity: u32,
}

const FREE: Index = 0;

/// The list of a server's tasks.
const fn members_of(server: Index) -> Index {
    server + 1
}

impl Tasks {
    pub(crate) fn new(servers: u32, tasks: u32) -> Self {
        Tasks {
            places: Vec::with_capacity(tasks as usize),
            ready: Lists::new(servers, tasks),
            sleeping: Heaps::new(servers, tasks),
            members: Lists::new(servers.saturating_add(1), tasks),
            capacity: tasks,
        }
    }

    /// Adds a blocked task to a server.
    pub(crate) fn add(&mut self, server: ServerId) -> Result<TaskId, Refused> {
        let index = self.take_place().ok_or(Refused::Tasks)?;
        self.ready.reset(index);
        self.sleeping.reset(index);
        self.members.push_back(members_of(server.index), index);
        let task = &mut self.places[index as usize];
        // Wraps after four thousand million tasks in one place.
        task.generation = task.generation.wrapping_add(1);
        task.server = Some(server);
        Ok(TaskId {
            index,
            generation: task.generation,
        })
    }

    /// Takes a free place, or one that was never used.
    fn take_place(&mut self) -> Option<Index> {
        self.members.pop_front(FREE).or_else(|| {
            let unused = self.places.len() as u32;
            (unused < self.capacity).then(|| {
                self.places.push(Task {
                    generation: 0,
                    server: None,
                });
                unused
            })
        })
    }

    /// Removes a task, which makes its id stale.
    pub(crate) fn remove(&mut self, server: Index, task: Index) {
        self.ready.remove(task);
        self.sleeping.remove(server, task);
        self.members.remove(task);
        self.members.push_back(FREE, task);
        self.places[task as usize].server = None;
    }

    /// Removes all tasks of a server in constant time: their places are free, and their ids are
    /// stale because their server is.
    pub(crate) fn remove_all(&mut self, server: Index) {
        self.ready.clear(server);
        self.sleeping.clear(server);
        self.members.splice(members_of(server), FREE);
    }

    /// The server of a task; whether that has been removed is not checked.
    #[inline]
    pub(crate) fn server(&self, task: TaskId) -> Result<ServerId, Refused> {
        match self.places.get(task.index as usize) {
            Some(place) if place.generation == task.generation => {
                place.server.ok_or(Refused::Stale)
            }
            _ => Err(Refused::Stale),
        }
    }

    pub(crate) fn id(&self, task: Index) -> TaskId {
        TaskId {
            index: task,
            generation: self.places[task as usize].generation,
        }
    }

    /// The task of a server that runs when the server does.
    #[inline]
    pub(crate) fn first(&self, server: Index) -> Option<Index> {
        self.ready.first(server)
    }

    #[inline]
    pub(crate) fn has_several_ready(&self, server: Index) -> bool {
        self.ready.has_several(server)
    }

    #[inline]
    pub(crate) fn is_ready(&self, task: Index) -> bool {
        self.ready.contains(task)
    }

    /// Makes a task ready, and ends its sleep.
    #[inline]
    pub(crate) fn wake(&mut self, server: Index, task: Index) {
        self.sleeping.remove(server, task);
        self.ready.push_back(server, task);
    }

    /// Blocks a task until `until` or until it is woken.
    #[inline]
    pub(crate) fn block(&mut self, server: Index, task: Index, until: Nanos) {
        self.ready.remove(task);
        self.sleeping.remove(server, task);
        if until != NEVER {
            self.sleeping.insert(server, task, until);
        }
    }

    /// Puts the running task of a server behind its other ready tasks.
    #[inline]
    pub(crate) fn rotate(&mut self, server: Index) {
        self.ready.rotate(server);
    }

    /// When the first of a server's sleeping tasks wakes up; `NEVER` if none sleeps.
    #[inline]
    pub(crate) fn next_wake(&self, server: Index) -> Nanos {
        self.sleeping.first(server).map_or(NEVER, |(at, _)| at)
    }

    /// Makes the first of a server's sleeping tasks ready, if its time has come: one task at a
    /// time, so that a server with many sleeping tasks costs no more than one with one.
    #[inline]
    pub(crate) fn wake_sleeper(&mut self, server: Index, now: Nanos) -> Option<Index> {
        let task = self.sleeping.pop_until(server, now)?;
        self.ready.push_back(server, task);
        Some(task)
    }

    /// The tasks of a server.
    pub(crate) fn of(&self, server: Index) -> impl Iterator<Item = Index> {
        let mut next = self.members.first(members_of(server)).unwrap_or(NOWHERE);
        core::iter::from_fn(move || {
            let task = next;
            (task != NOWHERE).then(|| {
                next = self.members.next(task).unwrap_or(NOWHERE);
                task
            })
        })
    }
}
