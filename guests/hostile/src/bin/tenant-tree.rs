//! Makes child tenants that make child tenants. `tenant-tree DEPTH WIDTH AFTERMATH [MEMORY] [run]`
//!
//! WIDTH children, each of which makes WIDTH children of its own, down to DEPTH generations. A
//! tenant divides the reclamation budget that it has left, and its share of MEMORY bytes (64 MiB
//! unless told), among its children and itself. The last generation only exists, unless told to
//! `run`: then it sleeps. Prints how many tenants the tree has below its root.
#![no_std]
#![no_main]

use leasehold_guest::{Errno, Rights, Selector, Semaphore, Statement, Tenant};
use leasehold_hostile::{Aftermath, Arguments, Tally, decimal, gather, program, tally};

program!(main);

fn main(arguments: &Arguments<'_>) {
    let tree = Tree {
        depth: arguments.number(0, 1),
        width: arguments.number(1, 10),
        memory: arguments.number(3, 64 << 20),
        run: arguments.text(4) == Some("run"),
    };
    let planted = tree.plant();
    if let Some(report) = Report::passed(arguments) {
        // If sending is refused, the parent stops waiting by itself.
        let _ = report.send(planted.got);
        return Aftermath::Sleep.quietly();
    }
    planted.print();
    arguments.aftermath(2).enter();
}

/// The part of the tree that a tenant is to make below itself.
struct Tree {
    depth: u64,
    width: u64,
    memory: u64,
    run: bool,
}

impl Tree {
    /// Makes the tree. Returns the number of its tenants, and the first refusal to this one.
    fn plant(&self) -> Tally<Errno> {
        if self.depth == 0 {
            return Tally {
                got: 0,
                refused: None,
            };
        }
        let report = match Report::create() {
            Ok(report) => report,
            Err(errno) => {
                return Tally {
                    got: 0,
                    refused: Some(errno),
                };
            }
        };
        let shares = self.width.saturating_add(1);
        let reclaim_ns = Statement::read().map_or(0, |statement| statement.left_ns) / shares;
        let memory = self.memory / shares;
        let mut started = 0;
        let mut planted = tally(self.width, |_| {
            let child = Tenant::create(reclaim_ns, memory)?;
            if self.depth > 1 || self.run {
                self.start(child, memory, report)?;
                started += 1;
            }
            Ok(())
        });
        planted.got += report.gather(started);
        planted
    }

    /// Lets `child` make its part of the tree.
    fn start(&self, child: Tenant, memory: u64, report: Report) -> Result<(), Errno> {
        let report = report.granted(child)?;
        let selector = |semaphore: Semaphore| semaphore.selector().number();
        child.start(&[
            decimal(self.depth - 1, &mut [0; 20]),
            decimal(self.width, &mut [0; 20]),
            "sleep",
            decimal(memory, &mut [0; 20]),
            if self.run { "run" } else { "idle" },
            decimal(selector(report.tenants), &mut [0; 20]),
            decimal(selector(report.done), &mut [0; 20]),
        ])
    }
}

/// A child's report to its parent that its part of the tree is made, with its size.
#[derive(Clone, Copy)]
struct Report {
    tenants: Semaphore,
    done: Semaphore,
}

impl Report {
    fn create() -> Result<Report, Errno> {
        Ok(Report {
            tenants: Semaphore::create(0)?,
            done: Semaphore::create(0)?,
        })
    }

    /// The same as `child` names it.
    fn granted(self, child: Tenant) -> Result<Report, Errno> {
        let grant = |semaphore: Semaphore| {
            child
                .grant(semaphore.selector(), Rights::WRITE, 0)
                .map(Semaphore::from_selector)
        };
        Ok(Report {
            tenants: grant(self.tenants)?,
            done: grant(self.done)?,
        })
    }

    /// The arguments that the parent passed; the root has none.
    fn passed(arguments: &Arguments<'_>) -> Option<Report> {
        let semaphore = |position| {
            let number = arguments.text(position)?.parse().ok()?;
            Some(Semaphore::from_selector(Selector::new(number)))
        };
        Some(Report {
            tenants: semaphore(5)?,
            done: semaphore(6)?,
        })
    }

    fn send(self, tenants: u64) -> Result<(), Errno> {
        if tenants > 0 {
            self.tenants.up(tenants as u32)?;
        }
        self.done.up(1)
    }

    /// The tenants that `children` children made.
    fn gather(self, children: u64) -> u64 {
        gather(self.done, children);
        tally(0, |_| self.tenants.try_down()).got
    }
}
