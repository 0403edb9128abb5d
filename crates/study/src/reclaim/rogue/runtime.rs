//! The two hosts of a guest, and one life of a guest in either.

use std::fs;
use std::num::NonZero;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use leasehold_cell::{
    Capture, Cell, CellConfig, Directory, Ended, Input, Lease, Output, Reclaimed, StartRequest,
    Statement, TenantHandle,
};
use leasehold_lease::{ByteSize, Nanoseconds};

use super::attack::{Attack, BUDGET, Runtime, Surroundings, When};
use crate::harness::clock::monotonic_ns;
use crate::harness::neighbour::Interval;
use crate::harness::stock::{self, Allocation, Invocation, Limits, Stock};
use crate::harness::taken::Taken;

/// The line that is printed when the damage is done.
const READY: &str = "ready";
const PATIENCE: Duration = Duration::from_secs(60);
/// The interval between two checks of the output.
const LOOK: Duration = Duration::from_micros(200);
/// Output that is kept of a guest.
const OUTPUT_BYTES: usize = 16 << 20;
/// The channel between a guest and its service, and how many links of the guest's the service may
/// use: all but a few of them wait when the guest is ended.
const CHANNEL_BYTES: u32 = 1 << 16;
const LINKS: u32 = 64;
/// The time that a service gets to receive its messages.
const RECEIVE: Duration = Duration::from_millis(20);

/// The same limits in both runtimes.
const LIMITS: Limits = Limits {
    memory_bytes: 2 << 30,
    table_elements: 1_000_000,
};

/// Charges that are not for something a guest asked for, or for memory.
const OVERHEAD: [&str; 13] = [
    "root group",
    "child group",
    "scrub entry",
    "chunk",
    "memory (16 bytes)",
    "left by ended groups (ps)",
    "tenant",
    "capability table leaf",
    "capability table node",
    "execution",
    "store",
    "memory_page",
    "host_page",
];

/// A runtime whose guests run on one processor.
pub(super) enum Host {
    Leasehold(Box<Cell>),
    Wasmtime(Box<Stock>),
}

/// A guest's program, compiled for one host.
pub(super) enum Program {
    Leasehold {
        guest: Arc<leasehold_cell::Program>,
        service: Option<Arc<leasehold_cell::Program>>,
    },
    Wasmtime(stock::Program),
}

/// A guest that was started.
pub(super) enum Living {
    Leasehold {
        tenant: TenantHandle,
        output: Capture,
        service: Option<TenantHandle>,
        started_ns: u64,
    },
    Wasmtime(stock::Running),
}

/// How one guest ended.
#[derive(Debug, Clone)]
pub struct GuestEnd {
    /// From the kill (or the start, for one that ended by itself) until everything was returned.
    pub ending: Interval,
    /// Wall time of the end alone, until everything was returned.
    pub end_ns: u64,
    /// Whether it was killed; it may have ended by itself before.
    pub killed: bool,
    /// The cell's report on it.
    pub reclaimed: Option<Reclaimed>,
    /// Its account before it was killed, if it was asked for.
    pub statement: Option<Statement>,
    /// The time that the host took meanwhile from the threads that ended it; not known for one that
    /// ended by itself.
    pub taken: Taken,
}

impl GuestEnd {
    /// The guest's holdings when it was killed: objects, handles, instances, elements; without the
    /// book-keeping for them and without memory. `None` if its account was not asked for.
    pub fn objects(&self) -> Option<u64> {
        let rows = self.statement.as_ref()?.rows.iter();
        let things = rows.filter(|row| !OVERHEAD.contains(&row.name));
        Some(things.map(|row| row.count).sum())
    }

    /// What a cell predicted that the end costs at the most, ns. Of a tenant that had children,
    /// the charges of all in its account before it was killed, if there is one: otherwise their
    /// budgets are counted as a whole.
    pub fn predicted_ns(&self) -> Option<u64> {
        self.predicted_under(self.statement.as_ref())
    }

    /// The same if its account was `account`.
    pub(super) fn predicted_under(&self, account: Option<&Statement>) -> Option<u64> {
        let whole = self.reclaimed?.predicted_ns;
        let tree = account.filter(|account| account.carved.0 > 0);
        Some(tree.map_or(whole, |a| a.predicted().0.div_ceil(1000).min(whole)))
    }
}

impl Host {
    /// A runtime whose guests run on processor `cpu`: a cell as `config` says, or stock wasmtime on
    /// so many `threads`.
    pub(super) fn start(
        runtime: Runtime,
        config: CellConfig,
        cpu: usize,
        threads: NonZero<usize>,
    ) -> Result<Self> {
        Ok(match runtime {
            Runtime::Leasehold => Self::Leasehold(Box::new(Cell::start(CellConfig {
                cpu: Some(cpu),
                code_cache: leasehold_cell::user_code_cache(),
                ..config
            })?)),
            Runtime::Wasmtime => Self::Wasmtime(Box::new(Stock::with_threads(
                Allocation::OnDemand,
                LIMITS,
                Some(cpu),
                threads,
            )?)),
        })
    }

    /// Compiles a guest's program, and that of the service that it is connected to.
    pub(super) fn load(&self, guests: &Path, attack: &Attack) -> Result<Program> {
        let path = guests.join(attack.file);
        let loading = || format!("loading {}", path.display());
        Ok(match self {
            Self::Leasehold(cell) => Program::Leasehold {
                guest: cell.load(&path).with_context(loading)?,
                service: match attack.service {
                    Some((file, _)) => Some(cell.load(&guests.join(file)).context(file)?),
                    None => None,
                },
            },
            Self::Wasmtime(stock) => {
                let bytes = fs::read(&path).with_context(loading)?;
                Program::Wasmtime(stock.load(&bytes).with_context(loading)?)
            }
        })
    }

    /// Starts a guest, lets it do its damage and ends it. With `account`, a cell's statement is
    /// asked for before the end.
    pub(super) fn live(
        &self,
        program: &Program,
        attack: &Attack,
        surroundings: &Surroundings,
        account: bool,
    ) -> Result<GuestEnd> {
        let life = || {
            let mut living = self.start_guest(program, attack, surroundings)?;
            match attack.when {
                When::Ready(after) => {
                    living.wait_until_ready()?;
                    thread::sleep(after);
                    living.kill(account)
                }
                When::After(time) => {
                    thread::sleep(time);
                    living.kill(account)
                }
                When::ByItself => living.wait(),
            }
        };
        life().with_context(|| format!("guest {}", attack.name))
    }

    /// Starts a guest.
    pub(super) fn start_guest(
        &self,
        program: &Program,
        attack: &Attack,
        surroundings: &Surroundings,
    ) -> Result<Living> {
        match (self, program) {
            (Self::Leasehold(cell), Program::Leasehold { guest, service }) => {
                in_cell(cell, guest, service.as_ref(), attack, surroundings)
            }
            (Self::Wasmtime(stock), Program::Wasmtime(program)) => {
                in_stock(stock, program, attack, surroundings)
            }
            _ => Err(anyhow!("compiled for another runtime")),
        }
    }
}

fn arguments(attack: &Attack) -> Vec<String> {
    let mut args = vec![attack.file.to_owned()];
    args.extend(attack.args.iter().cloned());
    args
}

/// The lease of a guest with this reclamation budget.
///
/// # Errors
/// If no lease can state the budget.
pub fn lease(budget: Duration) -> Result<Lease> {
    let mut lease = Lease::default();
    lease.reclaim.budget = u64::try_from(budget.as_nanos())
        .ok()
        .and_then(Nanoseconds::new)
        .context("the budget is in range")?;
    lease.memory.reserve =
        ByteSize::new(LIMITS.memory_bytes as u64).context("the reserve is in range")?;
    lease.memory.table_elements = LIMITS.table_elements as u64;
    Ok(lease)
}

fn request(
    program: &Arc<leasehold_cell::Program>,
    args: Vec<String>,
    attack: &Attack,
    budget: Duration,
    surroundings: &Surroundings,
    output: &Capture,
) -> Result<StartRequest> {
    let (host, guest) = surroundings.directory();
    Ok(StartRequest {
        program: Arc::clone(program),
        lease: lease(budget)?,
        surroundings: leasehold_cell::Surroundings {
            args,
            dirs: vec![Directory {
                host: host.to_owned(),
                guest: guest.to_owned(),
                write: true,
            }],
            stdin: Input::Bytes(attack.stdin.clone()),
            stdout: Output::Capture(output.clone()),
            ..leasehold_cell::Surroundings::default()
        },
    })
}

fn in_cell(
    cell: &Cell,
    program: &Arc<leasehold_cell::Program>,
    service: Option<&Arc<leasehold_cell::Program>>,
    attack: &Attack,
    surroundings: &Surroundings,
) -> Result<Living> {
    let output = Capture::new(OUTPUT_BYTES);
    let guest = request(
        program,
        arguments(attack),
        attack,
        attack.budget,
        surroundings,
        &output,
    )?;
    let started_ns = monotonic_ns();
    let (tenant, service) = match (service, attack.service) {
        (Some(program), Some((file, argument))) => {
            let args = vec![file.to_owned(), argument.to_owned()];
            let ignored = Capture::new(OUTPUT_BYTES);
            let service = request(program, args, attack, BUDGET, surroundings, &ignored)?;
            let (tenant, service) = (cell.start_held(guest)?, cell.start_held(service)?);
            let connected = cell.connect(&tenant, &service, CHANNEL_BYTES, LINKS);
            connected.context("connecting the guest to its service")?;
            service.go();
            tenant.go();
            (tenant, Some(service))
        }
        _ => (cell.start_tenant(guest)?, None),
    };
    Ok(Living::Leasehold {
        tenant,
        output,
        service,
        started_ns,
    })
}

fn in_stock(
    stock: &Stock,
    program: &stock::Program,
    attack: &Attack,
    surroundings: &Surroundings,
) -> Result<Living> {
    let (host, guest) = surroundings.directory();
    let running = stock.start(
        program,
        Invocation {
            args: arguments(attack),
            dirs: vec![(host.to_owned(), guest.to_owned())],
            stdin: attack.stdin.clone(),
            limits: LIMITS,
            blocking: false,
        },
    )?;
    Ok(Living::Wasmtime(running))
}

impl Living {
    /// Waits until the guest's damage is done, and what it did to its service too.
    pub(super) fn wait_until_ready(&mut self) -> Result<()> {
        match self {
            Self::Leasehold {
                tenant,
                output,
                service,
                ..
            } => {
                wait_until_ready(tenant, output)?;
                if service.is_some() {
                    thread::sleep(RECEIVE);
                }
                Ok(())
            }
            Self::Wasmtime(running) => running.wait_for_output(READY, PATIENCE),
        }
    }

    /// The guest's output so far.
    pub(super) fn output(&self) -> Vec<u8> {
        match self {
            Self::Leasehold { output, .. } => output.bytes(),
            Self::Wasmtime(running) => running.output(),
        }
    }

    /// Ends the guest, unless it has ended by itself. With `account`, a cell's statement is asked
    /// for before.
    pub(super) fn kill(self, account: bool) -> Result<GuestEnd> {
        match self {
            Self::Leasehold {
                tenant,
                service,
                started_ns,
                ..
            } => {
                let guest_end = match tenant.wait_for(Duration::ZERO)? {
                    Some(ended) => guest_end(&ended, started_ns, false, None),
                    None => {
                        let statement = if account { tenant.statement() } else { None };
                        let taken = Taken::so_far();
                        let killed_ns = monotonic_ns();
                        tenant.kill();
                        let ended = tenant.wait()?;
                        let mut guest_end = guest_end(&ended, killed_ns, true, statement);
                        guest_end.taken = Taken::so_far() - taken;
                        guest_end
                    }
                };
                if let Some(service) = service {
                    service.kill();
                    service.wait()?;
                }
                Ok(guest_end)
            }
            Self::Wasmtime(running) => {
                let end = running.kill();
                let mut times = end.times;
                if times.dropped_ns == 0 {
                    // Its task was dropped before it ran for the first time, and stamped nothing.
                    times.dropped_ns = monotonic_ns();
                }
                Ok(death_in_stock(Some(end.killed_ns), times))
            }
        }
    }

    /// Waits until the guest has ended by itself.
    pub(super) fn wait(self) -> Result<GuestEnd> {
        match self {
            Self::Leasehold {
                tenant, started_ns, ..
            } => {
                let ended = tenant.wait_for(PATIENCE)?;
                let ended = ended.context("it does not end by itself")?;
                Ok(guest_end(&ended, started_ns, false, None))
            }
            Self::Wasmtime(running) => Ok(death_in_stock(None, running.wait(PATIENCE)?.1)),
        }
    }
}

fn guest_end(ended: &Ended, start_ns: u64, killed: bool, statement: Option<Statement>) -> GuestEnd {
    let end_ns = monotonic_ns();
    let reclaimed = ended.reclaimed;
    GuestEnd {
        ending: Interval { start_ns, end_ns },
        end_ns: if killed {
            end_ns - start_ns
        } else {
            reclaimed.returned.wall_ns
        },
        killed,
        reclaimed: Some(reclaimed),
        statement,
        taken: Taken::default(),
    }
}

fn death_in_stock(killed_ns: Option<u64>, times: stock::Times) -> GuestEnd {
    let killed_ns = killed_ns.filter(|killed_ns| *killed_ns < times.dropped_ns);
    GuestEnd {
        ending: Interval {
            start_ns: killed_ns.unwrap_or(times.started_ns),
            end_ns: times.dropped_ns,
        },
        end_ns: times.dropped_ns - killed_ns.unwrap_or(times.stopped_ns),
        killed: killed_ns.is_some(),
        reclaimed: None,
        statement: None,
        taken: Taken::default(),
    }
}

fn wait_until_ready(tenant: &TenantHandle, capture: &Capture) -> Result<()> {
    let begin = Instant::now();
    loop {
        // The end is queried first, so that the last output is not missed.
        let ended = tenant.wait_for(LOOK)?;
        let output = capture.bytes();
        if output.windows(READY.len()).any(|w| w == READY.as_bytes()) && ended.is_none() {
            return Ok(());
        }
        if let Some(ended) = ended {
            bail!("it ended without waiting to be killed: {:?}", ended.exit);
        }
        if begin.elapsed() > PATIENCE {
            bail!("it was not ready in {PATIENCE:?}");
        }
    }
}
