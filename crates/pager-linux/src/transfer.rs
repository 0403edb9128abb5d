//! What a suspended program waits for: a page that is read, a cluster that is written, or its turn.

use crate::cluster_write::{ClusterWrite, Progress};
use crate::fetch::{Fetching, Found, PageRead};
use crate::store::PageBytes;
use std::io;
use std::sync::Arc;

/// What a fault would have waited for.
#[derive(Debug)]
pub struct Wanted {
    wait: Wait,
    awaited: Awaited,
}

/// What is to be waited for.
#[derive(Debug)]
pub enum Wait {
    /// What another thread has to do.
    Transfer(Transfer),
    /// An earlier one of the same reservation.
    Turn(Turn),
}

impl Wanted {
    pub(crate) fn page(read: PageRead, fetching: Fetching, found: Found) -> Self {
        Self {
            wait: Wait::Transfer(Transfer(Work::Page(read))),
            awaited: Awaited {
                fetching: Some(fetching),
                found,
            },
        }
    }

    pub(crate) fn cluster(write: ClusterWrite, found: Found) -> Self {
        Self {
            wait: Wait::Transfer(Transfer(Work::Cluster(write))),
            awaited: Awaited {
                fetching: None,
                found,
            },
        }
    }

    pub(crate) fn turn(turn: Turn, found: Found) -> Self {
        Self {
            wait: Wait::Turn(turn),
            awaited: Awaited {
                fetching: None,
                found,
            },
        }
    }

    /// What is to be waited for, and what is to be told when that is over.
    pub fn begin(self) -> (Wait, Awaited) {
        (self.wait, self.awaited)
    }
}

#[derive(Debug)]
enum Work {
    Page(PageRead),
    Cluster(ClusterWrite),
}

/// A transfer that another thread has to make. Dropping it gives it up.
#[derive(Debug)]
pub struct Transfer(Work);

impl Transfer {
    /// Has `ring` called when it is over, done or not, if others may [wait for that](Turn).
    pub fn when_over(&mut self, ring: impl FnOnce() + Send + 'static) {
        if let Work::Cluster(write) = &mut self.0 {
            write.bell = Some(Box::new(ring));
        }
    }

    /// Makes it. Waits for the disk.
    pub fn run(self) -> Transferred {
        match self.0 {
            Work::Page(read) => Transferred(Some(read.run())),
            Work::Cluster(write) => {
                write.run();
                Transferred(None)
            }
        }
    }
}

/// What a transfer has brought.
#[derive(Debug, Default)]
pub struct Transferred(Option<io::Result<Box<PageBytes>>>);

/// The end of a transfer that was begun for another program.
#[derive(Debug)]
pub struct Turn(Arc<Progress>);

impl Turn {
    pub(crate) fn new(earlier: Arc<Progress>) -> Self {
        Self(earlier)
    }

    /// Whether it has come.
    pub fn is_over(&self) -> bool {
        self.0.is_over()
    }
}

/// What the repeated access is to find.
#[derive(Debug)]
pub struct Awaited {
    fetching: Option<Fetching>,
    found: Found,
}

impl Awaited {
    /// With what the transfer has brought, or nothing.
    pub fn done(self, transferred: Transferred) -> Finished {
        let mut found = self.found;
        if let (Some(fetching), Some(read)) = (self.fetching, transferred.0) {
            found.fetched = Some(fetching.done(read));
        }
        Finished(found)
    }
}

/// What a program that goes on has waited for. The default is nothing.
#[derive(Debug, Default)]
pub struct Finished(pub(crate) Found);

#[cfg(test)]
mod tests {
    use super::{Awaited, Finished, Transfer, Transferred, Turn, Wait};
    use crate::{Limits, Locking, Options, Paging, SwapFile};
    use leasehold_pager::{Contract, Ending, ReservationId, Sharing};
    use proptest::prelude::{Just, Strategy, any, prop, prop_oneof};
    use proptest::test_runner::{Config, TestCaseResult, TestRunner};
    use proptest::{prop_assert, prop_assert_eq};
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
    use std::path::Path;

    const BYTES: usize = 4096;
    /// Pages of a tenant's memory, and frames that it has for them.
    const PAGES: u32 = 16;
    const FRAMES: u32 = 6;
    const LIMITS: Limits = Limits {
        mappings: 64,
        places: PAGES,
    };
    const TENANTS: usize = 2;
    /// Executions of a tenant.
    const TASKS: usize = 3;
    const CLUSTERS: u32 = TENANTS as u32;

    #[derive(Debug, Clone, Copy)]
    enum Op {
        /// An execution reads or writes a word of a page, or goes on with what it has been suspended for.
        Access {
            tenant: usize,
            task: usize,
            page: u32,
            write: bool,
        },
        /// Host code does.
        Host {
            tenant: usize,
            page: u32,
            write: bool,
        },
        /// A thread makes a transfer.
        Transfer { which: usize },
        /// An execution is ended while it waits, and its transfer made or given up.
        End {
            tenant: usize,
            task: usize,
            transfers: bool,
        },
        /// All of a tenant ends, and another comes in its place.
        Replace { tenant: usize },
    }

    fn op() -> impl Strategy<Value = Op> {
        let (tenant, task, page) = (0..TENANTS, 0..TASKS, 0..PAGES);
        let which = any::<usize>();
        prop_oneof![
            20 => (tenant.clone(), task.clone(), page.clone(), any::<bool>())
                .prop_map(|(tenant, task, page, write)| Op::Access { tenant, task, page, write }),
            10 => (tenant.clone(), page, any::<bool>())
                .prop_map(|(tenant, page, write)| Op::Host { tenant, page, write }),
            10 => which.prop_map(|which| Op::Transfer { which }),
            1 => (tenant.clone(), task, any::<bool>())
                .prop_map(|(tenant, task, transfers)| Op::End { tenant, task, transfers }),
            1 => tenant.prop_map(|tenant| Op::Replace { tenant }),
        ]
    }

    /// An execution that was suspended.
    struct Task {
        page: u32,
        write: bool,
        awaited: Awaited,
        on: On,
    }

    enum On {
        Own(u64),
        Other(Turn),
        Done(Transferred),
    }

    struct Tenant {
        id: ReservationId,
        start: *mut u8,
        words: Vec<u64>,
        tasks: [Option<Task>; TASKS],
    }

    impl Tenant {
        fn new(paging: &Paging, start: *mut u8) -> Self {
            let id = paging
                .reserve_limited(&Contract::hard(FRAMES), LIMITS)
                .expect("room");
            let area = paging
                .create_area_for(id, PAGES, Sharing::Conserve)
                .expect("places");
            // SAFETY: the addresses were reserved for this tenant, and the one before it has left them.
            unsafe { paging.attach_at(id, area, start, PAGES) }.expect("attached");
            paging.abandon(area).expect("the tenant has it");
            Self {
                id,
                start,
                words: vec![0; PAGES as usize],
                tasks: [const { None }; TASKS],
            }
        }

        fn word(&self, page: u32) -> *mut u64 {
            let offset = page as usize * BYTES + 8 * (page as usize % 512);
            self.start.wrapping_add(offset).cast()
        }
    }

    struct World {
        paging: Paging,
        tenants: Vec<Tenant>,
        /// What threads are to do.
        transfers: Vec<(u64, Transfer)>,
        next: u64,
    }

    impl World {
        fn new(directory: &Path) -> Self {
            let places = TENANTS as u32 * PAGES + (2 + CLUSTERS) * 8;
            let swap = SwapFile::create(&directory.join("swap"), places).expect("a swap file");
            let paging = Paging::open(Options {
                store: Some(Box::new(swap)),
                clusters_at_once: CLUSTERS,
                locking: Locking::IfAllowed,
                ahead: 0,
                ..Options::new(TENANTS as u32 * FRAMES)
            })
            .expect("a kernel with userfaultfd");
            let tenants = (0..TENANTS).map(|_| Tenant::new(&paging, addresses()));
            Self {
                tenants: tenants.collect(),
                paging,
                transfers: Vec::new(),
                next: 0,
            }
        }

        fn apply(&mut self, op: Op) -> TestCaseResult {
            match op {
                Op::Access {
                    tenant,
                    task,
                    page,
                    write,
                } => self.access(tenant, task, page, write)?,
                Op::Host {
                    tenant,
                    page,
                    write,
                } => {
                    let address = self.tenants[tenant].word(page).cast();
                    let touched = self.paging.touch(address, 8, write);
                    prop_assert_eq!(touched.expect("a page"), 8);
                    self.reach(tenant, page, write)?;
                }
                Op::Transfer { which } => {
                    if !self.transfers.is_empty() {
                        let (key, transfer) =
                            self.transfers.swap_remove(which % self.transfers.len());
                        self.transferred(key, transfer.run());
                    }
                }
                Op::End {
                    tenant,
                    task,
                    transfers,
                } => {
                    let ended = self.tenants[tenant].tasks[task].take();
                    if let Some(On::Own(key)) = ended.map(|task| task.on)
                        && !transfers
                    {
                        self.transfers.retain(|(other, _)| *other != key);
                    }
                }
                Op::Replace { tenant } => {
                    let Tenant { id, start, .. } = self.tenants[tenant];
                    while self.paging.end_step(id, 8).expect("it is there") != Ending::Done {}
                    self.tenants[tenant] = Tenant::new(&self.paging, start);
                }
            }
            self.paging.audit();
            Ok(())
        }

        fn transferred(&mut self, key: u64, transferred: Transferred) {
            let mut tasks = self.tenants.iter_mut().flat_map(|tenant| &mut tenant.tasks);
            let waiting = tasks.find_map(|task| {
                task.as_mut()
                    .filter(|task| matches!(task.on, On::Own(own) if own == key))
            });
            if let Some(task) = waiting {
                task.on = On::Done(transferred);
            }
        }

        fn access(&mut self, tenant: usize, task: usize, page: u32, write: bool) -> TestCaseResult {
            let (page, write, finished) = match self.tenants[tenant].tasks[task].take() {
                None => (page, write, Finished::default()),
                Some(waiting) => match waiting.on {
                    On::Done(transferred) => (
                        waiting.page,
                        waiting.write,
                        waiting.awaited.done(transferred),
                    ),
                    On::Other(turn) if turn.is_over() => {
                        let finished = waiting.awaited.done(Transferred::default());
                        (waiting.page, waiting.write, finished)
                    }
                    on => {
                        self.tenants[tenant].tasks[task] = Some(Task { on, ..waiting });
                        return Ok(());
                    }
                },
            };
            self.paging.put_finished(finished);
            let address = self.tenants[tenant].word(page) as usize;
            let served = self.paging.serve_or_wait(address, write);
            self.paging.put_finished(Finished::default());
            let Some(wanted) = self.paging.take_wanted() else {
                prop_assert!(served, "it waits for nothing");
                return self.reach(tenant, page, write);
            };
            prop_assert!(!served, "it waits for what it has");
            let (wait, awaited) = wanted.begin();
            let on = match wait {
                Wait::Turn(turn) => On::Other(turn),
                Wait::Transfer(transfer) => {
                    self.next += 1;
                    self.transfers.push((self.next, transfer));
                    On::Own(self.next)
                }
            };
            self.tenants[tenant].tasks[task] = Some(Task {
                page,
                write,
                awaited,
                on,
            });
            Ok(())
        }

        /// The access is made; the page is there.
        fn reach(&mut self, tenant: usize, page: u32, write: bool) -> TestCaseResult {
            self.next += 1;
            let (next, tenant) = (self.next, &mut self.tenants[tenant]);
            let (at, word) = (tenant.word(page), &mut tenant.words[page as usize]);
            // SAFETY: within the tenant's addresses, where the page is mapped.
            prop_assert_eq!(unsafe { at.read_volatile() }, *word);
            if write {
                *word = next;
                // SAFETY: as above; it was asked for to be written to.
                unsafe { at.write_volatile(next) };
            }
            Ok(())
        }
    }

    fn addresses() -> *mut u8 {
        let bytes = PAGES as usize * BYTES;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: the kernel picks addresses at which nothing is mapped. They are never unmapped.
        let start =
            unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::empty(), flags) };
        start.expect("addresses").cast()
    }

    #[test]
    fn pages_keep_what_was_written_whenever_their_transfers_are_made_or_given_up() {
        let mut runner = TestRunner::new(Config {
            cases: 300,
            failure_persistence: None,
            ..Config::default()
        });
        let ops = prop::collection::vec(op(), 0..400);
        let result = runner.run(&(ops, Just(())), |(ops, ())| {
            let directory = tempfile::tempdir_in(".").expect("a directory");
            let mut world = World::new(directory.path());
            for op in ops {
                world.apply(op)?;
            }
            // Transfers that are still to be made disturb nothing that comes later.
            for (_, transfer) in std::mem::take(&mut world.transfers) {
                transfer.run();
            }
            for tenant in 0..TENANTS {
                for page in 0..PAGES {
                    world.apply(Op::Host {
                        tenant,
                        page,
                        write: false,
                    })?;
                }
            }
            Ok(())
        });
        result.expect("nothing is lost");
    }
}
