//! Every short history of a sporadic server, against a reference that knows of units of budget
//! only: each comes back one period after it could first be used.

use leasehold_reserve::{Contract, Nanos, SporadicAccount};

const DEPTH: u32 = 8;

/// A budget as single units, each with the instant from which it can be used.
#[derive(Clone)]
struct Units {
    at: Vec<Nanos>,
    period: Nanos,
}

impl Units {
    fn charge(&mut self, ran: Nanos) {
        for _ in 0..ran {
            self.at.sort_unstable();
            self.at[0] += self.period;
        }
    }

    /// What was not used before the server became active counts from then on.
    fn resume(&mut self, now: Nanos) {
        for at in &mut self.at {
            if *at <= now {
                *at = now;
            }
        }
    }

    fn left(&self, now: Nanos) -> Nanos {
        self.at.iter().filter(|&&at| at <= now).count() as Nanos
    }

    /// When the last of the units ends if they are used without a break from `now` on.
    fn depletion(&self, mut now: Nanos, limit: Nanos) -> Nanos {
        let mut units = self.clone();
        while now < limit && units.left(now) > 0 {
            units.charge(1);
            now += 1;
        }
        now
    }
}

#[derive(Clone)]
struct History {
    account: SporadicAccount,
    units: Units,
    now: Nanos,
    is_active: bool,
    /// Nothing happened so far that a queue of limited size, or one that merges, pays for.
    is_exact: bool,
    capacity: usize,
    explored: u64,
}

impl History {
    fn check(&self) {
        let contract: Nanos = self.units.at.len() as Nanos;
        let entries = || self.account.replenishments();
        assert_eq!(entries().map(|entry| entry.amount).sum::<Nanos>(), contract);
        assert!(entries().is_sorted_by_key(|entry| entry.at));
        assert!(entries().count() <= self.capacity);
        for later in 0..12 {
            let at = self.now + later;
            let (queue, units) = (self.account.left(at), self.units.left(at));
            assert!(queue <= units, "{queue} of {units} at {at}");
            // What was used of the head enters the queue when the head is used up.
            let is_in_queue = at < entries().next().unwrap().at + self.units.period;
            assert!(
                queue == units || !self.is_exact || !is_in_queue,
                "{queue} of {units}"
            );
        }
        if self.is_exact && self.is_active && self.account.is_available(self.now) {
            let limit = self.now + 40;
            let depletion = self.account.depletion(self.now).min(limit);
            assert_eq!(depletion, self.units.depletion(self.now, limit));
        }
    }

    fn explore(&mut self, depth: u32) {
        self.check();
        self.explored += 1;
        if depth == 0 {
            return;
        }
        let steps: &[fn(&mut History)] = if self.is_active {
            &[
                |h| h.run(1),
                |h| h.run(2),
                |h| h.wait(1),
                |h| h.wait(4),
                History::suspend,
            ]
        } else {
            &[History::resume, |h| h.wait(1), |h| h.wait(4)]
        };
        for step in steps {
            let mut next = self.clone();
            next.explored = 0;
            step(&mut next);
            next.explore(depth - 1);
            self.explored += next.explored;
        }
    }

    /// Runs, beyond the budget if there is less. A scheduler processes what is due first.
    fn run(&mut self, length: Nanos) {
        if self.account.replenish(self.now) > 0 {
            self.is_exact = false;
        }
        if self.units.left(self.now) < length {
            self.is_exact = false;
        }
        self.account.charge(length);
        self.units.charge(length);
        self.now += length;
    }

    fn wait(&mut self, length: Nanos) {
        self.now += length;
    }

    fn suspend(&mut self) {
        if self.account.replenishments().count() == self.capacity {
            self.is_exact = false;
        }
        self.account.suspend(self.now);
        self.is_active = false;
    }

    fn resume(&mut self) {
        self.account.resume(self.now, self.now);
        self.units.resume(self.now);
        self.is_active = true;
    }
}

#[test]
fn every_short_history_gives_no_more_than_its_units_and_loses_none_without_a_reason() {
    for (budget, period) in [(1, 3), (2, 5), (3, 5), (3, 3)] {
        for capacity in [1, 2, 3, 64] {
            let contract = Contract::new(budget, period)
                .and_then(|contract| contract.with_replenishments(capacity))
                .unwrap();
            let mut history = History {
                account: SporadicAccount::new(&contract, 0),
                units: Units {
                    at: vec![0; budget as usize],
                    period,
                },
                now: 0,
                is_active: true,
                is_exact: true,
                capacity: capacity as usize,
                explored: 0,
            };
            history.explore(DEPTH);
            assert!(history.explored > 50_000);
        }
    }
}
