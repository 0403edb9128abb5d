//! A contest for the processor of a real cell: attackers, and a victim that measures its own
//! delays.
//!
//! All of them are guests under processor reservations, on one cell. The cell has its own core if
//! there are two, and real-time priority if the system allows, so that the host's other programs
//! disturb no guest. The compared cells alternate, each with its own guests.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use leasehold_cell::clock::monotonic_ns;
use leasehold_cell::{
    Capture, Cell, CellConfig, ControlKind, ControlUse, Lease, Output, PendingStart, Program,
    Realtime, Shielding, StartRequest, Supply, Surroundings, TenantHandle, WhenRealtime,
};
use leasehold_lease::{ByteSize, Cpu};
use leasehold_reserve::{Contract, Nanos};

use crate::harness::experiment::Options;
use crate::harness::objects;

/// Linear memory of a guest: more than any of them needs.
const MEMORY: ByteSize = ByteSize::new(8 << 20).expect("8 MiB are in range");
/// Of what a guest prints.
const OUTPUT_BYTES: usize = 256 << 10;
/// How long to wait for a guest beyond the time that it should take, before giving up.
const PATIENCE: Duration = Duration::from_secs(300);
/// The interval between two checks of a guest's output. A check may disturb the cell.
const LOOK: Duration = Duration::from_millis(3);

/// A cell, and the guests that are started on it.
pub(crate) struct Contest {
    cell: Cell,
    guests: PathBuf,
}

/// A guest in a contest, until the contest is over.
pub(crate) struct Contestant {
    name: String,
    tenant: TenantHandle,
    output: Capture,
}

/// A guest that is being started.
struct Entering {
    name: String,
    tenant: PendingStart,
    output: Capture,
}

impl Entering {
    fn wait(self) -> Result<Contestant> {
        let tenant = self.tenant.wait().with_context(|| self.name.clone())?;
        Ok(Contestant {
            name: self.name,
            tenant,
            output: self.output,
        })
    }
}

impl Contest {
    /// A cell for so many contestants.
    ///
    /// # Errors
    /// If the host refuses one, or the profile is none.
    pub(crate) fn new(options: &Options, shielding: Shielding, contestants: u32) -> Result<Self> {
        /// Beyond what the contestants take: a tenant may take only a part of all places.
        const SPARE: u32 = 8;
        let mut config = CellConfig::new(objects::profile(options)?);
        config.cpu = core();
        config.realtime = WhenRealtime::Always;
        config.shielding = shielding;
        // Attackers are not admitted: their reservations need not fit together.
        config.admission = false;
        config.max_tenants = contestants;
        config.max_memories = (contestants + SPARE) as usize;
        config.code_cache = leasehold_cell::user_code_cache();
        Ok(Self {
            cell: Cell::start(config)?,
            guests: options.guests_dir.clone(),
        })
    }

    /// The guest program `name`, for any number of contestants.
    ///
    /// # Errors
    /// If it has not been built.
    pub(crate) fn load(&self, name: &str) -> Result<Arc<Program>> {
        self.cell
            .load(&self.guests.join(name).with_extension("wasm"))
            .with_context(|| format!("the guest {name} (guests/build makes it)"))
    }

    /// The demand of the guest `name` on the processor under a reservation in the form of `--cpu`,
    /// or in the background, with the host steps that it can reach.
    ///
    /// # Errors
    /// If it has not been built, or there is no such reservation.
    pub(crate) fn claim(&self, name: &str, cpu: Option<&str>) -> Result<Contract> {
        let lease = Lease {
            cpu: cpu.map(|cpu| reservation(name, cpu)).transpose()?,
            ..Lease::default()
        };
        let (_, longest_step_ns) = self.cell.longest_step(&*self.load(name)?, &lease);
        Ok(leasehold_cell::claim(&lease, longest_step_ns))
    }

    /// Starts `program` with numbers for arguments, under a processor reservation in the form of
    /// `--cpu`.
    ///
    /// # Errors
    /// If the cell refuses it.
    pub(crate) fn enter(
        &self,
        name: &str,
        program: &Arc<Program>,
        arguments: &[u64],
        cpu: &str,
    ) -> Result<Contestant> {
        self.begin(name, program, arguments, Some(reservation(name, cpu)?))?
            .wait()
    }

    /// Starts the program `name` with numbers for arguments, in the background.
    ///
    /// # Errors
    /// If it has not been built, or the cell refuses it.
    pub(crate) fn enter_unreserved(&self, name: &str, arguments: &[u64]) -> Result<Contestant> {
        self.begin(name, &self.load(name)?, arguments, None)?.wait()
    }

    /// The time of the controller's commands so far, by kind.
    pub(crate) fn control(&self) -> Vec<(ControlKind, ControlUse)> {
        self.cell.control()
    }

    /// Sends the cell every command that queries these contestants, which are all of its tenants.
    ///
    /// # Errors
    /// If one of them has ended.
    pub(crate) fn ask_for(&self, contestants: &[Contestant]) -> Result<()> {
        let handles = contestants.iter().map(|contestant| &contestant.tenant);
        let answers = self.cell.processors(handles);
        ensure!(answers.iter().all(Option::is_some), "a guest has ended");
        for Contestant { name, tenant, .. } in contestants {
            let answers = tenant.statement().zip(tenant.memory());
            answers.with_context(|| format!("{name} has ended"))?;
        }
        Ok(())
    }

    /// Begins to start a guest, as [`enter`](Self::enter) does.
    fn begin(
        &self,
        name: &str,
        program: &Arc<Program>,
        arguments: &[u64],
        cpu: Option<Cpu>,
    ) -> Result<Entering> {
        let mut lease = Lease {
            cpu,
            ..Lease::default()
        };
        lease.memory.reserve = MEMORY;
        let output = Capture::new(OUTPUT_BYTES);
        let arguments = arguments.iter().map(u64::to_string);
        let tenant = self.cell.begin(StartRequest {
            program: program.clone(),
            lease,
            surroundings: Surroundings {
                args: [name.to_owned()].into_iter().chain(arguments).collect(),
                stdout: Output::Capture(output.clone()),
                ..Surroundings::default()
            },
        })?;
        Ok(Entering {
            name: name.to_owned(),
            tenant,
            output,
        })
    }

    /// Starts `count` equal attackers at once, since each starts on its own small budget, and waits
    /// until all of them are ready.
    ///
    /// # Errors
    /// As of [`enter`](Self::enter), and if one does not become ready.
    pub(crate) fn enter_attackers(
        &self,
        name: &str,
        count: u32,
        arguments: &[u64],
        cpu: &str,
    ) -> Result<Vec<Contestant>> {
        let program = self.load(name)?;
        let attackers = (0..count)
            .map(|_| self.begin(name, &program, arguments, Some(reservation(name, cpu)?)))
            .collect::<Result<Vec<_>>>()?;
        let attackers = attackers
            .into_iter()
            .map(Entering::wait)
            .collect::<Result<Vec<_>>>()?;
        for attacker in &attackers {
            attacker.await_lines("ready", 1, Duration::ZERO)?;
        }
        Ok(attackers)
    }
}

impl Contestant {
    /// The numbers in each line so far that begins with `word`.
    pub(crate) fn lines(&self, word: &str) -> Vec<Vec<u64>> {
        let bytes = self.output.bytes();
        let text = String::from_utf8_lossy(&bytes);
        numbers_after(&text, word)
    }

    /// Waits until there are `count` such lines, which should take as long as `expected`. Does not
    /// check before that.
    ///
    /// # Errors
    /// If they do not come, or the guest ends.
    pub(crate) fn await_lines(
        &self,
        word: &str,
        count: usize,
        expected: Duration,
    ) -> Result<Vec<Vec<u64>>> {
        thread::sleep(expected);
        let deadline = Instant::now() + PATIENCE + expected;
        loop {
            let lines = self.lines(word);
            if lines.len() >= count {
                return Ok(lines);
            }
            if let Some(ended) = self.tenant.wait_for(LOOK)? {
                bail!("{} ended with {:?}", self.name, ended.exit);
            }
            ensure!(
                Instant::now() < deadline,
                "{}: {} of {count} lines {word:?}, {:?}",
                self.name,
                lines.len(),
                self.tenant.processor()
            );
        }
    }

    /// Ends it, and waits until everything was taken back from it.
    ///
    /// # Errors
    /// If the cell has ended.
    pub(crate) fn end(self) -> Result<()> {
        self.tenant.kill();
        self.tenant.wait()?;
        Ok(())
    }

    /// Returns the processor time that it has received so far.
    ///
    /// # Errors
    /// If it has ended.
    pub(crate) fn supply(&self) -> Result<Supply> {
        let processor = self.tenant.processor();
        Ok(processor
            .with_context(|| format!("{} has ended", self.name))?
            .supply)
    }
}

/// The reservation of this contestant.
fn reservation(name: &str, cpu: &str) -> Result<Cpu> {
    cpu.parse().with_context(|| format!("{name}: {cpu}"))
}

/// The numbers in each whole line of `text` that begins with `word`.
fn numbers_after(text: &str, word: &str) -> Vec<Vec<u64>> {
    text.split_inclusive('\n')
        .filter_map(|line| {
            let mut words = line.strip_suffix('\n')?.split(' ');
            (words.next() == Some(word)).then(|| words.filter_map(|n| n.parse().ok()).collect())
        })
        .collect()
}

/// The core of the cell's own, if there is one.
pub(crate) fn core() -> Option<usize> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    (cores > 1).then_some(1)
}

/// Sleeps until the next instant that is a multiple of `period` plus `phase`, on the clock that
/// guests read, and returns it.
pub(crate) fn sleep_until_multiple(period: Nanos, phase: Nanos) -> Nanos {
    let now = monotonic_ns();
    let next = (now.saturating_sub(phase) / period + 1) * period + phase;
    sleep_until(next);
    next
}

/// Sleeps until an instant of that clock.
pub(crate) fn sleep_until(instant: Nanos) {
    let left = instant.saturating_sub(monotonic_ns());
    thread::sleep(Duration::from_nanos(left));
}

/// Notes for the reader on contests on this host.
///
/// # Errors
/// If the host refuses a cell.
pub(crate) fn note(options: &Options) -> Result<String> {
    let cell = Contest::new(options, Shielding::Shielded, 1)?.cell;
    let realtime = match cell.realtime() {
        Realtime::Granted => "with real-time priority".to_owned(),
        Realtime::Refused(reason) => {
            format!("without real-time priority ({reason}): other processes interrupt it")
        }
        Realtime::NotAsked | Realtime::ForKills => "without real-time priority".to_owned(),
    };
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().filter(|load| !load.is_empty());
    Ok(format!(
        "cell: real guests on a real cell, {}, {realtime}; the system's load was {} at the end of \
         the measurement",
        core().map_or("on any core".to_owned(), |core| format!(
            "bound to core {core}"
        )),
        load.unwrap_or("not known")
    ))
}

#[cfg(test)]
mod tests {
    use super::numbers_after;

    #[test]
    fn only_whole_lines_that_begin_with_the_word_count() {
        let text = "ready\ngaps 1 20 30 40\ninterrupts 1 2 3 4\ngaps 1 5 6 7\ngaps 1 5";
        assert_eq!(
            numbers_after(text, "gaps"),
            [vec![1, 20, 30, 40], vec![1, 5, 6, 7]]
        );
        assert_eq!(numbers_after(text, "ready"), [Vec::<u64>::new()]);
        assert!(numbers_after(text, "gap").is_empty());
    }
}
