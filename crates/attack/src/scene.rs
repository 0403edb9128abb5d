//! One attack, in a cell of its own beside a victim and a neighbour.

use crate::hosts;
use crate::known::Known;
use crate::offer::Offers;
use crate::plan::{Ending, Plan, Terms};
use crate::render::render;
use crate::score::Observation;
use anyhow::{Context, Result};
use leasehold_cell::memory::{HeldMemory, Swap};
use leasehold_cell::profile::Profile;
use leasehold_cell::{
    Cell, CellConfig, Destination, Directory, Lease, Output, StartRequest, Surroundings,
    TenantHandle, WhenRealtime,
};
use leasehold_lease::{ByteSize, Cpu, MemoryKind, Nanoseconds, Paging, SharedPages};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The time for which the others run before the attacker starts.
const QUIET: Duration = Duration::from_millis(120);

/// The time for which an attacker runs unless its plan kills it earlier.
const MOST: Duration = Duration::from_millis(200);

/// The longest time for an end; a later one counts as an end that never comes.
const END: Duration = Duration::from_secs(5);

/// The time for which the others run after the end.
const AFTER: Duration = Duration::from_millis(60);

/// The attacker's `memory.host`, bytes.
pub(crate) const HOST_BYTES: u64 = 32 << 20;

/// The equipment with which every attack is played.
#[derive(Debug, Clone)]
pub struct Bench {
    /// The costs of reclaiming on this host.
    pub profile: Profile,
    /// The processor of the cell.
    pub cpu: Option<usize>,
}

/// The tenants that attack: all of one program, under a lease of each.
#[derive(Debug)]
pub(crate) struct Attackers {
    pub(crate) program: Vec<u8>,
    pub(crate) lease: Lease,
    pub(crate) tenants: usize,
    /// After which time they are killed, if they have not ended.
    pub(crate) lives: Duration,
    /// If they page.
    pub(crate) held: Option<HeldForPaging>,
}

/// The memory that a cell holds for attackers that page.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeldForPaging {
    pub(crate) bytes: u64,
    /// Bytes of the swap file.
    pub(crate) swap: u64,
}

impl HeldForPaging {
    /// What so many tenants with this lease need, if they page.
    pub(crate) fn for_tenants(tenants: u64, lease: &Lease) -> Option<Self> {
        lease.memory.paging.map(|paging| Self {
            bytes: (tenants + 2) * lease.memory.reserve.get(),
            swap: (tenants + 2) * leasehold_cell::memory::swap_for(paging.limit),
        })
    }
}

impl Attackers {
    /// The attacker of a plan.
    fn planned(plan: &Plan) -> Result<Self> {
        let (_, program) = render(plan, &Offers::all()?)?;
        let lives = match plan.ending {
            Ending::Kill(us) => Duration::from_micros(us.into()),
            Ending::Return | Ending::Trap | Ending::Overflow => MOST,
        };
        let lease = terms(&plan.terms)?;
        Ok(Self {
            program,
            tenants: 1,
            lives,
            held: HeldForPaging::for_tenants(1, &lease),
            lease,
        })
    }

    /// The memory that their leases reserve, and for kernel objects and regions as much as for the host's memory
    /// again, bytes.
    fn lease_bytes(&self) -> u64 {
        self.tenants as u64 * (self.lease.memory.reserve.get() + 2 * HOST_BYTES)
    }
}

/// Plays an attack and returns the observation. Takes about half a second, and never more than some
/// seconds, unless the cell hangs or ends the process.
///
/// # Errors
/// When the host refuses a cell, or the plan is no program.
pub fn play(plan: &Plan, bench: &Bench) -> Result<Observation> {
    play_in(bench, |_| Attackers::planned(plan))
}

/// Plays an attack that is known, likewise.
///
/// # Errors
/// When the host refuses a cell.
pub fn play_known(known: &Known, bench: &Bench) -> Result<Observation> {
    play_in(bench, |directory| known.attackers(directory))
}

/// Plays the attackers that are made for a directory.
fn play_in(bench: &Bench, make: impl FnOnce(&Path) -> Result<Attackers>) -> Result<Observation> {
    let directory = tempfile::tempdir()?;
    let (theirs, others) = (
        directory.path().join("attacker"),
        directory.path().join("neighbour"),
    );
    std::fs::create_dir(&theirs)?;
    std::fs::create_dir(&others)?;
    let attackers = make(&theirs)?;

    let mut config = CellConfig::new(bench.profile.clone());
    config.cpu = bench.cpu;
    config.realtime = WhenRealtime::Always;
    config.memory = attackers.held.map(|held| HeldMemory {
        bytes: held.bytes,
        for_all: false,
        swap: Some(Swap {
            path: directory.path().join("swap"),
            bytes: held.swap,
        }),
    });
    let cell = Cell::start(config)?;
    let lateness = Log::default();
    let refusals = Log::default();
    let victim = cell.compile(include_bytes!("victim.wat"))?;
    let neighbour = cell.compile(include_bytes!("neighbour.wat"))?;
    let attacker = cell.compile_for(&attackers.program, &attackers.lease);

    let cpu = |text: &str| text.parse::<Cpu>().map_err(anyhow::Error::from);
    let mut lease = Lease {
        cpu: Some(cpu("budget=2ms,period=10ms,priority=100")?),
        ..Lease::default()
    };
    let victim = cell.start_tenant(StartRequest {
        program: victim,
        lease,
        surroundings: writes_to("victim", &lateness),
    })?;
    lease.cpu = Some(cpu("budget=2ms,period=20ms,priority=50")?);
    let mut surroundings = writes_to("neighbour", &refusals);
    surroundings.dirs.push(writable(&others));
    let neighbour = cell.start_tenant(StartRequest {
        program: neighbour,
        lease,
        surroundings,
    })?;
    thread::sleep(QUIET);

    let mut observation = Observation {
        lease_bytes: attackers.lease_bytes(),
        ..Observation::default()
    };
    let quiet = lateness.take_words();
    observation.quiet_latest_ns = words(&quiet).max().unwrap_or(0);
    refusals.take();
    match attacker {
        Err(error) => observation.refused = Some(format!("{error:#}")),
        Ok(program) => {
            let request = StartRequest {
                program,
                lease: attackers.lease,
                surroundings: Surroundings {
                    args: vec!["attack".into()],
                    dirs: vec![writable(&theirs)],
                    // With the end of one tenant its calls are over.
                    outgoing: (attackers.tenants == 1).then(hosts::outlet),
                    ..Surroundings::default()
                },
            };
            attack(&cell, &request, &attackers, &mut observation)?;
        }
    }
    thread::sleep(AFTER);
    let late = lateness.take_words();
    observation.wakes = words(&late).count() as u64;
    observation.victim_latest_ns = words(&late).max().unwrap_or(0);
    observation.add_steps(&cell.steps());
    observation.neighbour_refused = refusals.take().iter().map(|byte| u64::from(*byte)).sum();
    end(&victim);
    end(&neighbour);
    Ok(observation)
}

/// Runs the attackers and ends them.
fn attack(
    cell: &Cell,
    request: &StartRequest,
    attackers: &Attackers,
    observation: &mut Observation,
) -> Result<()> {
    let descriptors = open_descriptors()?;
    let resident = Resident::watch()?;
    let began = Instant::now();
    let mut handles = Vec::new();
    for _ in 0..attackers.tenants {
        match cell.start_tenant(request.clone()) {
            Ok(handle) => handles.push(handle),
            Err(error) => {
                observation.refused = Some(error.to_string());
                break;
            }
        }
    }
    let mut living = Vec::new();
    for handle in &handles {
        match handle.wait_for(attackers.lives.saturating_sub(began.elapsed()))? {
            Some(ended) => observation.add_end(&ended),
            None => living.push(handle),
        }
    }
    let requested = Instant::now();
    living.iter().for_each(|handle| handle.kill());
    for handle in living {
        let ended = handle.wait_for(END.saturating_sub(requested.elapsed()))?;
        match ended {
            None => observation.broken = Some(format!("did not end a tenant in {END:?}")),
            Some(ended) => observation.add_end(&ended),
        }
    }
    observation.end_wall_ns = requested.elapsed().as_nanos() as u64;
    observation.grown_bytes = resident.most();
    if !handles.is_empty() {
        thread::sleep(AFTER);
        observation.descriptors_left = open_descriptors()?.saturating_sub(descriptors);
    }
    Ok(())
}

/// What an attacker that pages has reserved of its memory.
const RESERVED_BYTES: u64 = 1 << 20;

/// Has tenants with this lease page: so many bytes are reserved of a limit.
pub(crate) fn page(lease: &mut Lease, reserved: u64, limit: u64) -> Result<()> {
    lease.memory.reserve = ByteSize::new(reserved).context("a size")?;
    lease.memory.paging = Some(Paging {
        limit: ByteSize::new(limit).context("a size")?,
        kind: MemoryKind::Hard,
        shared: SharedPages::Conserve,
        mappings: Paging::MAPPINGS,
    });
    Ok(())
}

fn terms(terms: &Terms) -> Result<Lease> {
    let mut lease = Lease::default();
    let budget = u64::from(terms.budget_ms) * 1_000_000;
    lease.reclaim.budget = Nanoseconds::new(budget).context("a budget")?;
    lease.memory.reserve = ByteSize::new(u64::from(terms.memory_mib) << 20).context("a size")?;
    lease.memory.host = Some(ByteSize::new(HOST_BYTES).context("a size")?);
    if terms.pages {
        let limit = lease.memory.reserve.get();
        page(&mut lease, RESERVED_BYTES, limit)?;
    }
    if terms.reserved {
        lease.cpu = Some("budget=1ms,period=10ms,priority=1".parse()?);
    }
    Ok(lease)
}

fn writable(path: &Path) -> Directory {
    Directory {
        host: path.to_owned(),
        guest: "/".to_owned(),
        write: true,
    }
}

fn writes_to(name: &'static str, log: &Log) -> Surroundings {
    Surroundings {
        args: vec![name.into()],
        stdout: Output::To(Destination::new(name, log.clone())),
        ..Surroundings::default()
    }
}

fn end(handle: &TenantHandle) {
    handle.kill();
    // The process ends anyway.
    let _ = handle.wait_for(END);
}

/// The output of a tenant since it was last taken.
#[derive(Debug, Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Everything except an incomplete last word.
    fn take_words(&self) -> Vec<u8> {
        let mut bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let whole = bytes.len() / 8 * 8;
        let rest = bytes.split_off(whole);
        std::mem::replace(&mut *bytes, rest)
    }

    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks_exact(8).map(|word| {
        u64::from_le_bytes([
            word[0], word[1], word[2], word[3], word[4], word[5], word[6], word[7],
        ])
    })
}

/// The fewest descriptors that are open at one of several instants: the neighbour opens and closes some.
fn open_descriptors() -> Result<u64> {
    let mut fewest = u64::MAX;
    for _ in 0..8 {
        fewest = fewest.min(std::fs::read_dir("/proc/self/fd")?.count() as u64);
        thread::sleep(Duration::from_millis(3));
    }
    Ok(fewest)
}

/// A thread that watches the memory of the process.
struct Resident {
    before: u64,
    most: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Resident {
    fn watch() -> Result<Self> {
        let before = resident_bytes()?;
        let most = Arc::new(AtomicU64::new(before));
        let stop = Arc::new(AtomicBool::new(false));
        let (theirs, stopped) = (most.clone(), stop.clone());
        thread::spawn(move || {
            while !stopped.load(Relaxed) {
                theirs.fetch_max(resident_bytes().unwrap_or(0), Relaxed);
                thread::sleep(Duration::from_millis(2));
            }
        });
        Ok(Self { before, most, stop })
    }

    /// The most memory that it held, less that at the start of the watch, bytes.
    fn most(&self) -> u64 {
        self.most.load(Relaxed).saturating_sub(self.before)
    }
}

impl Drop for Resident {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
    }
}

fn resident_bytes() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = text
        .split_whitespace()
        .nth(1)
        .context("no second number")?
        .parse()?;
    Ok(pages * rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::{Bench, play_known};
    use crate::Known;
    use leasehold_cell::profile::{Interruption, Profile, StepTime};
    use leasehold_cell::steps::RowId;

    #[test]
    fn steps_that_are_longer_than_their_rows_are_observed() {
        let mut profile = Profile::free();
        profile.interruption = Some(Interruption {
            window_ns: 1,
            windows: 1,
            p9999_ns: 0,
        });
        let short = || StepTime::of(vec![1]).expect("a time");
        profile.steps = RowId::all()
            .map(|row| (row.row().title(), short()))
            .collect();
        let known = Known::named("small-regions").expect("it is known");
        let seen = play_known(&known, &Bench { profile, cpu: None }).expect("played");
        let longer = |name: &str| seen.steps.iter().any(|(row, ..)| row == name);
        assert!(longer("engine instantiate"), "{:?}", seen.steps);
        let measures = seen.measures();
        assert!(measures.iter().any(|measure| measure.name == "step"));
    }
}
