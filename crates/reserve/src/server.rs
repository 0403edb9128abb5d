//! Servers, with or without a reservation.

use alloc::vec::Vec;

use crate::budget::Budget;
use crate::contract::{Contract, Nanos};
use crate::id::{Index, NEVER, Refused, ServerId};
use crate::supply::Supply;
#[cfg(feature = "touched")]
use crate::touched::Touched;
use crate::urgency::Urgency;

/// The state of a server (SPR §IV-A).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// It has a ready task and budget.
    Ready,
    /// None of its tasks is ready.
    Blocked,
    /// It has a ready task and waits for budget.
    Depleted,
}

/// One server, without its replenishment queue and its tasks.
///
/// Laid out as written: what every decision needs comes first.
#[derive(Debug, Clone)]
#[repr(C, align(64))]
pub(crate) struct Server {
    pub(crate) budget: Budget,
    /// Its place among the ready servers, or, with a timeout, among the timeouts.
    pub(crate) urgency: Urgency,
    /// The instant at which it may become ready; `NEVER` if no time does (SPR §IV-A, `τ.timeout`).
    pub(crate) timeout: Nanos,
    /// How long its first task has run in this time slice.
    pub(crate) slice_used: Nanos,
    /// How long all tasks of a background server have run in its time slice among the others.
    pub(crate) slice_used_by_all: Nanos,
    /// The time of helper threads for a background server that has not shortened a slice yet.
    pub(crate) slice_debt: Nanos,
    /// How long a task runs while another is ready; `NEVER`: until it blocks.
    pub(crate) slice: Nanos,
    /// The end of the non-preemptive region that began when it was dispatched last, `x + η` (SPR §IV-A); zero without one.
    region_end: Nanos,
    /// The time for which the processor had worked for no task, in all, when that was last excluded from
    /// the server's wait.
    pub(crate) spared: Nanos,
    /// `η`.
    pub(crate) nonpreemptive: Nanos,
    generation: u32,
    pub(crate) state: State,
    is_live: bool,
    is_background: bool,
    /// Another one was dispatched while it was ready, and it has not run since.
    pub(crate) is_preempted: bool,
    pub(crate) supply: Supply,
    /// Since when it has had a task and budget, whenever that was processed.
    ready_since: Nanos,
    /// The budget that it had used by then, and the budget that it could use.
    ready_with: (Nanos, Nanos),
    contract: Option<Contract>,
}

impl Server {
    fn new() -> Self {
        Server {
            generation: 0,
            is_live: false,
            state: State::Blocked,
            urgency: Urgency::LEAST,
            timeout: NEVER,
            budget: Budget::Unlimited,
            region_end: 0,
            spared: 0,
            nonpreemptive: 0,
            slice: NEVER,
            slice_used: 0,
            slice_used_by_all: 0,
            slice_debt: 0,
            is_background: true,
            is_preempted: false,
            contract: None,
            supply: Supply::default(),
            ready_since: 0,
            ready_with: (0, 0),
        }
    }

    /// Records that it has a task and budget since `since`, with `left` of it available then.
    pub(crate) const fn becomes_ready(&mut self, since: Nanos, left: Nanos) {
        self.state = State::Ready;
        self.is_preempted = false;
        self.ready_since = since;
        self.ready_with = (self.supply.used, left);
    }

    /// Records the server's shortfall when it stops being ready.
    pub(crate) fn was_ready_until(&mut self, now: Nanos) {
        self.supply.misses += self.missed_until(now, 0);
    }

    /// Returns the budgets that it should have received since it came due and did not: as a ready
    /// server, or as one with `due` budget whose expired timeout was not processed yet.
    ///
    /// The available budget of an admitted server is served within a period; the rest is
    /// replenished within that period and served within the next. In `k` consecutive periods it
    /// therefore gets the larger of its available budget at their start and `k - 1` budgets.
    pub(crate) fn missed_until(&self, now: Nanos, due: Nanos) -> u64 {
        let Some(contract) = self.contract() else {
            return 0;
        };
        let (since, left, used) = match self.state {
            State::Ready => (self.ready_since, self.ready_with.1, self.ready_with.0),
            State::Blocked | State::Depleted => (self.timeout, due, self.supply.used),
        };
        let for_long = now.saturating_sub(since);
        if for_long < contract.period() {
            return 0;
        }
        let budget = contract.budget();
        let whole = (for_long / contract.period() - 1).saturating_mul(budget);
        let missing = whole.max(left).saturating_sub(self.supply.used - used);
        missing.div_ceil(budget)
    }

    /// Makes it carry a reservation. Its budget is not touched.
    pub(crate) fn set_contract(&mut self, contract: &Contract) {
        self.nonpreemptive = contract.nonpreemptive();
        self.slice = contract.slice().unwrap_or(NEVER);
        self.is_background = false;
        self.contract = Some(*contract);
    }

    /// `None`: a background server.
    pub(crate) const fn contract(&self) -> Option<&Contract> {
        self.contract.as_ref()
    }

    /// Returns whether it runs only in time that no reservation uses.
    #[inline]
    pub(crate) const fn is_background(&self) -> bool {
        self.is_background
    }

    /// Returns whether its first task has used up a time slice.
    #[inline]
    pub(crate) const fn has_used_slice(&self) -> bool {
        self.slice_used >= self.slice
    }

    /// Returns whether a background server has used up its time slice among the others.
    #[inline]
    pub(crate) const fn have_all_used_slice(&self) -> bool {
        self.is_background && self.slice_used_by_all >= self.slice
    }

    /// Shortens a background server's new slice by the time of helper threads for it: by seven
    /// eighths at the most, so that the server always progresses.
    #[inline]
    pub(crate) const fn begin_slice(&mut self) {
        if self.slice_debt > 0 && self.slice_used_by_all == 0 {
            let most = self.slice - self.slice.div_ceil(8);
            self.slice_used_by_all = if self.slice_debt < most {
                self.slice_debt
            } else {
                most
            };
            self.slice_debt -= self.slice_used_by_all;
        }
    }

    /// Begins a non-preemptive region (SPR Alg. 2 line 5), if it has any.
    pub(crate) const fn begin_region(&mut self, from: Nanos) {
        if self.nonpreemptive > 0 {
            self.region_end = from + self.nonpreemptive;
        }
    }

    /// Defers the end of its region by the time for which the processor worked for no task.
    pub(crate) const fn defer_region(&mut self, time: Nanos) {
        if self.nonpreemptive > 0 {
            self.region_end += time;
        }
    }

    /// Ends its region for what happened at `since`, if that was before it began.
    pub(crate) const fn yield_region(&mut self, since: Nanos) {
        if since + self.nonpreemptive < self.region_end {
            self.region_end = since;
        }
    }

    /// Returns the end of its non-preemptive region. Without a region it may be preempted at once,
    /// even during its dispatch.
    #[inline]
    pub(crate) const fn region_end(&self) -> Nanos {
        self.region_end
    }

    /// Returns whether it may not be preempted at `now` (SPR §IV-B, next task selection).
    #[inline]
    pub(crate) const fn is_nonpreemptive(&self, now: Nanos) -> bool {
        now < self.region_end()
    }
}

/// All servers, in places that are used again. A place is made when it is used first, in memory that is there already:
/// most cells have few servers, and a record is a quarter of a kilobyte.
#[derive(Debug)]
pub(crate) struct Servers {
    places: Vec<Server>,
    capacity: u32,
    free: Vec<Index>,
    #[cfg(feature = "touched")]
    touched: Touched,
}

impl Servers {
    pub(crate) fn new(capacity: u32) -> Self {
        Servers {
            places: Vec::with_capacity(capacity as usize),
            capacity,
            free: Vec::with_capacity(capacity as usize),
            #[cfg(feature = "touched")]
            touched: Touched::new(capacity),
        }
    }

    /// Takes a free place.
    pub(crate) fn add(&mut self) -> Result<ServerId, Refused> {
        let made = self.places.len() as u32;
        let index = match self.free.pop() {
            Some(index) => index,
            None if made < self.capacity => {
                self.places.push(Server::new());
                made
            }
            None => return Err(Refused::Servers),
        };
        let server = self.at_mut(index);
        *server = Server {
            generation: server.generation,
            is_live: true,
            ..Server::new()
        };
        Ok(ServerId {
            index,
            generation: server.generation,
        })
    }

    /// Gives a place back; every id of it is stale from now on. A place whose generations are
    /// used up is not used again.
    pub(crate) fn remove(&mut self, index: Index) {
        let server = self.at_mut(index);
        server.is_live = false;
        if let Some(generation) = server.generation.checked_add(1) {
            server.generation = generation;
            self.free.push(index);
        }
    }

    /// The place of a server that has not been removed.
    #[inline]
    pub(crate) fn find(&self, id: ServerId) -> Result<Index, Refused> {
        match self.places.get(id.index as usize) {
            Some(server) if server.is_live && server.generation == id.generation => Ok(id.index),
            _ => Err(Refused::Stale),
        }
    }

    #[inline]
    pub(crate) fn at(&self, index: Index) -> &Server {
        self.touch(index);
        &self.places[index as usize]
    }

    #[inline]
    pub(crate) fn at_mut(&mut self, index: Index) -> &mut Server {
        self.touch(index);
        &mut self.places[index as usize]
    }

    /// Records that a reservation's record is accessed, where that is counted.
    #[inline]
    fn touch(&self, _index: Index) {
        #[cfg(feature = "touched")]
        if !self.places[_index as usize].is_background {
            self.touched.note(_index);
        }
    }

    /// How many reservations' records were accessed since [`forget_touched`](Self::forget_touched), where
    /// that is counted.
    pub(crate) fn touched(&self) -> Option<u32> {
        #[cfg(feature = "touched")]
        return Some(self.touched.count());
        #[cfg(not(feature = "touched"))]
        None
    }

    /// Begins to count anew.
    pub(crate) fn forget_touched(&mut self) {
        #[cfg(feature = "touched")]
        self.touched.forget();
    }
}
