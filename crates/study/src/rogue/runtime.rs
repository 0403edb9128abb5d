//! The two hosts of a guest, and one life of a guest in either.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use leasehold_cell::profile::Profile;
use leasehold_cell::{
    Capture, Cell, CellConfig, Directory, Ended, Input, Lease, Output, Reclaimed, StartRequest,
    Statement, TenantHandle,
};
use leasehold_lease::{ByteSize, Nanoseconds};

use super::attack::{Attack, Surroundings, When};
use crate::clock::monotonic_ns;
use crate::neighbour::Interval;
use crate::stock::{self, Allocation, Invocation, Limits, Stock};

/// What is said when the damage is done.
const READY: &str = "ready";
const PATIENCE: Duration = Duration::from_secs(60);
/// How often it is looked whether it was said.
const LOOK: Duration = Duration::from_micros(200);
/// Output that is kept of a guest.
const OUTPUT_BYTES: usize = 1 << 20;

/// Reclamation budget of every guest in Leasehold: more than any of them needs, so that the
/// damage is the same in both runtimes.
pub const BUDGET: Duration = Duration::from_secs(2);
/// The same limits in both runtimes.
const LIMITS: Limits = Limits {
    memory_bytes: 2 << 30,
    table_elements: 1_000_000,
};

/// Which runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runtime {
    /// A cell.
    Leasehold,
    /// Stock wasmtime on tokio.
    Wasmtime,
}

impl Runtime {
    /// Name in rows and figures.
    pub fn name(self) -> &'static str {
        match self {
            Self::Leasehold => "leasehold",
            Self::Wasmtime => "wasmtime",
        }
    }
}

/// A runtime whose guests run on one processor.
pub(super) enum Host {
    Leasehold(Cell),
    Wasmtime(Box<Stock>),
}

/// A program, compiled for one host.
pub(super) enum Program {
    Leasehold(Arc<leasehold_cell::Program>),
    Wasmtime(stock::Program),
}

/// How one guest ended.
#[derive(Debug, Clone)]
pub struct Death {
    /// From the kill (or the start, for one that ended by itself) until everything was returned.
    pub ending: Interval,
    /// Wall time of the end alone, until everything was returned.
    pub end_ns: u64,
    /// Whether it was killed; it may have ended by itself before.
    pub killed: bool,
    /// What the cell says of it.
    pub reclaimed: Option<Reclaimed>,
    /// Its account before it was killed, if it was asked for.
    pub statement: Option<Statement>,
}

impl Host {
    pub(super) fn start(runtime: Runtime, profile: &Profile, cpu: usize) -> Result<Self> {
        Ok(match runtime {
            Runtime::Leasehold => {
                let mut config = CellConfig::new(profile.clone());
                config.cpu = Some(cpu);
                config.code_cache = leasehold_cell::user_code_cache();
                Self::Leasehold(Cell::start(config)?)
            }
            Runtime::Wasmtime => Self::Wasmtime(Box::new(Stock::new(
                Allocation::OnDemand,
                LIMITS,
                Some(cpu),
            )?)),
        })
    }

    pub(super) fn load(&self, path: &Path) -> Result<Program> {
        let loading = || format!("loading {}", path.display());
        Ok(match self {
            Self::Leasehold(cell) => Program::Leasehold(cell.load(path).with_context(loading)?),
            Self::Wasmtime(stock) => {
                let bytes = fs::read(path).with_context(loading)?;
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
    ) -> Result<Death> {
        let life = match (self, program) {
            (Self::Leasehold(cell), Program::Leasehold(program)) => {
                in_cell(cell, program, attack, surroundings, account)
            }
            (Self::Wasmtime(stock), Program::Wasmtime(program)) => {
                in_stock(stock, program, attack, surroundings)
            }
            _ => Err(anyhow!("compiled for another runtime")),
        };
        life.with_context(|| format!("guest {}", attack.name))
    }
}

fn arguments(attack: &Attack) -> Vec<String> {
    let mut args = vec![attack.file.to_owned()];
    args.extend(attack.args.iter().cloned());
    args
}

fn lease() -> Result<Lease> {
    let mut lease = Lease::default();
    lease.reclaim.budget = u64::try_from(BUDGET.as_nanos())
        .ok()
        .and_then(Nanoseconds::new)
        .context("the budget is in range")?;
    lease.memory.reserve =
        ByteSize::new(LIMITS.memory_bytes as u64).context("the reserve is in range")?;
    lease.memory.table_elements = LIMITS.table_elements as u64;
    Ok(lease)
}

fn in_cell(
    cell: &Cell,
    program: &Arc<leasehold_cell::Program>,
    attack: &Attack,
    surroundings: &Surroundings,
    account: bool,
) -> Result<Death> {
    let (host, guest) = surroundings.directory();
    let capture = Capture::new(OUTPUT_BYTES);
    let started_ns = monotonic_ns();
    let tenant = cell.start_tenant(StartRequest {
        program: Arc::clone(program),
        lease: lease()?,
        surroundings: leasehold_cell::Surroundings {
            args: arguments(attack),
            dirs: vec![Directory {
                host: host.to_owned(),
                guest: guest.to_owned(),
                write: true,
            }],
            stdin: Input::Bytes(attack.stdin.clone()),
            stdout: Output::Capture(capture.clone()),
            ..leasehold_cell::Surroundings::default()
        },
        detailed: false,
    })?;
    let by_itself = match attack.when {
        When::Ready(after) => {
            wait_until_ready(&tenant, &capture)?;
            thread::sleep(after);
            None
        }
        When::After(time) => tenant.wait_for(time)?,
        When::ByItself => Some(
            tenant
                .wait_for(PATIENCE)?
                .context("it does not end by itself")?,
        ),
    };
    let killed = by_itself.is_none();
    let statement = if killed && account {
        tenant.statement()
    } else {
        None
    };
    let (start_ns, ended) = match by_itself {
        Some(ended) => (started_ns, ended),
        None => {
            let killed_ns = monotonic_ns();
            tenant.kill();
            (killed_ns, tenant.wait()?)
        }
    };
    let end_ns = monotonic_ns();
    let Ended { reclaimed, .. } = ended;
    Ok(Death {
        ending: Interval { start_ns, end_ns },
        end_ns: if killed {
            end_ns - start_ns
        } else {
            reclaimed.returned.wall_ns
        },
        killed,
        reclaimed: Some(reclaimed),
        statement,
    })
}

fn wait_until_ready(tenant: &TenantHandle, capture: &Capture) -> Result<()> {
    let begin = Instant::now();
    loop {
        // Asked for its end first, so that its last words are not missed.
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

fn in_stock(
    stock: &Stock,
    program: &stock::Program,
    attack: &Attack,
    surroundings: &Surroundings,
) -> Result<Death> {
    let (host, guest) = surroundings.directory();
    let running = stock.start(
        program,
        Invocation {
            args: arguments(attack),
            dirs: vec![(host.to_owned(), guest.to_owned())],
            stdin: attack.stdin.clone(),
            limits: LIMITS,
        },
    )?;
    let (killed_ns, times) = match attack.when {
        When::Ready(after) => {
            running.wait_for_output(READY, PATIENCE)?;
            thread::sleep(after);
            kill(running)
        }
        When::After(time) => {
            thread::sleep(time);
            kill(running)
        }
        When::ByItself => (None, running.wait(PATIENCE)?.1),
    };
    let killed_ns = killed_ns.filter(|killed_ns| *killed_ns < times.dropped_ns);
    Ok(Death {
        ending: Interval {
            start_ns: killed_ns.unwrap_or(times.started_ns),
            end_ns: times.dropped_ns,
        },
        end_ns: times.dropped_ns - killed_ns.unwrap_or(times.stopped_ns),
        killed: killed_ns.is_some(),
        reclaimed: None,
        statement: None,
    })
}

fn kill(running: stock::Running) -> (Option<u64>, stock::Times) {
    let end = running.kill();
    let mut times = end.times;
    if times.dropped_ns == 0 {
        // Its task was dropped before it ran for the first time, and stamped nothing.
        times.dropped_ns = monotonic_ns();
    }
    (Some(end.killed_ns), times)
}
