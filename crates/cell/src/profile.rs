//! The measured costs of a host: what every lease is charged for reclamation, and what admission
//! assumes for a preemption.
//!
//! `leasehold calibrate` measures them. A bound is *enforced* where the charge precedes the
//! allocation. The time of the charged work is *calibrated*: it is the median of many real
//! reclamations on this host. A lease is charged [`FACTOR`] times the median for every thing. Every
//! tenant is also charged a margin of [`FACTOR`] times the most that the host adds to a piece of
//! work ([`Interruption`]), because even thread processor time contains interrupts. Every
//! reclamation afterwards is compared with what was charged for it: `leasehold run --report` shows
//! the two, and the `deadline` study counts violations.

use crate::confidence::bound_of_sorted;
use crate::drift::{CONFIDENCE, ONE_IN};
use crate::meter::Held;
use crate::steps::{CEILING_NS, Longest, RowId};
use crate::user_files;
use leasehold_confine::owned::{Missing, OwnedDirectory, OwnedError};
use leasehold_kernel::KernelCosts;
use leasehold_pager::PAGE;
use leasehold_reclaim::CostModel;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The factor between the measured cost of a thing and its charge.
pub const FACTOR: u64 = 2;

/// The margin of a tenant where [`Interruption`] was not measured, ns.
pub const ASSUMED_MARGIN_NS: u64 = 100_000;

/// The most that one thing can cost: a second, ps. No sum of what a lease is charged is near an
/// overflow then.
const COST_MAX_PS: u64 = 1_000_000_000_000;

/// Most bytes of a profile that is read.
const MAX_BYTES: u64 = 1 << 20;

/// Version of the file format; a profile of another version is measured again.
pub const FORMAT: u32 = 9;

/// The costs of one host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// [`FORMAT`].
    pub format: u32,
    /// The host it was measured on.
    pub host: Host,
    /// How it was measured, as text.
    pub method: String,
    /// Median cost of each thing, picoseconds.
    pub median_ps: Costs,
    /// The time that the host adds to any work; `None` if it was not measured.
    pub interruption: Option<Interruption>,
    /// The cost of one preemption; `None` if it was not measured.
    pub preemption: Option<PreemptionCosts>,
    /// How long a fault waits for the disk; `None` if it was not measured.
    #[serde(default)]
    pub transfer: Option<TransferCosts>,
    /// How long a cell takes to obey a kill; `None` if it was not measured.
    #[serde(default)]
    pub kill: Option<StepTime>,
    /// How long the steps of rows take at their caps, by the [titles](crate::steps::Row::title) of the
    /// rows. The step of a row that is not here may take as long as the [ceiling](CEILING_NS).
    #[serde(default)]
    pub steps: BTreeMap<String, StepTime>,
}

/// How long the steps of one row take, measured at its caps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepTime {
    /// How many steps were measured.
    pub samples: u64,
    /// Median, ns.
    pub p50_ns: u64,
    /// 99th percentile, ns; of fewer than 100, the longest.
    pub p99_ns: u64,
    /// The longest, ns.
    pub longest_ns: u64,
}

/// The shortest bound on a step, ns: what a few misses of the processor's caches take.
const STEP_FLOOR_NS: u64 = 5_000;

impl StepTime {
    /// The quantiles of these samples, ns; `None` if there are none.
    pub fn of(samples: Vec<u64>) -> Option<Self> {
        let longest_ns = samples.iter().copied().max()?;
        let count = samples.len() as u64;
        let Latency { p50_ns, p99_ns } = Latency::of(samples);
        Some(Self {
            samples: count,
            p50_ns,
            p99_ns,
            longest_ns,
        })
    }

    /// How long a step of the row may be, ns: [`FACTOR`] times the 99th percentile, at least 5 µs, and above
    /// [`CEILING_NS`] only where that percentile is: then it is the bound.
    pub fn bound_ns(&self) -> u64 {
        let bound = self.p99_ns.saturating_mul(FACTOR);
        bound.clamp(STEP_FLOOR_NS, CEILING_NS.max(self.p99_ns))
    }

    /// Whether the steps take longer than the ceiling allows.
    pub const fn exceeds(&self) -> bool {
        self.p99_ns > CEILING_NS
    }
}

/// The time that a host adds to a piece of work: its interrupts and, for a virtual machine, the
/// time for which it was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interruption {
    /// How long a piece of work takes by itself, ns.
    pub window_ns: u64,
    /// How many pieces were watched.
    pub windows: u64,
    /// The time that at most one piece in 10,000 exceeds, ns: an upper bound of that quantile with
    /// a confidence of 95 %, from 29,956 pieces on. With fewer pieces, the largest.
    pub p9999_ns: u64,
}

impl Interruption {
    /// Of pieces of work of `window_ns` nanoseconds, to which so much was added, ns; zero if there are
    /// none.
    pub fn of(window_ns: u64, mut added_ns: Vec<u64>) -> Self {
        added_ns.sort_unstable();
        Self {
            window_ns,
            windows: added_ns.len() as u64,
            p9999_ns: bound_of_sorted(&added_ns, ONE_IN, CONFIDENCE),
        }
    }
}

/// The transfers that a fault of a paging tenant may wait for: the read of a page, and before it
/// the write of a cluster to make room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransferCosts {
    /// Reading a page.
    pub read: Latency,
    /// Writing a cluster of 8.
    pub write: Latency,
}

impl TransferCosts {
    /// The most time that a fault takes: the sum of the 99th percentiles, ns.
    pub const fn per_fault_ns(&self) -> u64 {
        self.read.p99_ns + self.write.p99_ns
    }
}

/// The assumed time of a fault on a host without a measurement, ns: above the 99th percentiles of
/// solid-state disks in virtual machines.
pub const ASSUMED_FAULT_NS: u64 = 1_000_000;

/// The time that one preemption takes from the preempted tenant: the parts of `O^pre` in SPR
/// §III-G.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PreemptionCosts {
    /// How guests were preempted: a name of [`Mechanism`](leasehold_preempt::Mechanism).
    pub mechanism: String,
    /// Whether the measuring thread had real-time priority. If not, the numbers include the time of
    /// other threads.
    pub realtime: bool,
    /// From the timer's expiry until the guest's poll has returned: the host's timer path, the
    /// signal, the yield, and leaving the fiber.
    pub interrupt: Latency,
    /// An invocation of the scheduler that processes the largest queue of replenishments.
    pub decision: Latency,
    /// Arming the timer and entering a fiber.
    pub switch: Latency,
}

impl PreemptionCosts {
    /// The most time that a preemption takes: the sum of the 99th percentiles of its parts, ns.
    pub const fn per_preemption_ns(&self) -> u64 {
        self.interrupt.p99_ns + self.decision.p99_ns + self.switch.p99_ns
    }

    /// The usual time: the sum of the medians, ns.
    pub const fn median_ns(&self) -> u64 {
        self.interrupt.p50_ns + self.decision.p50_ns + self.switch.p50_ns
    }
}

/// Quantiles of a wall time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latency {
    /// Median, ns.
    pub p50_ns: u64,
    /// 99th percentile, ns.
    pub p99_ns: u64,
}

impl Latency {
    /// The quantiles of these samples, ns; zero if there are none.
    pub fn of(mut samples: Vec<u64>) -> Self {
        samples.sort_unstable();
        let at = |percent: usize| {
            let rank = (samples.len() * percent / 100).min(samples.len().saturating_sub(1));
            samples.get(rank).copied().unwrap_or(0)
        };
        Self {
            p50_ns: at(50),
            p99_ns: at(99),
        }
    }
}

/// The properties of a host that determine these costs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Processor model.
    pub cpu: String,
    /// Kernel release.
    pub kernel: String,
    /// Version of Leasehold.
    pub leasehold: String,
}

/// Picoseconds to take back one of each thing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// An empty top-level tenant.
    pub tenant: u64,
    /// A descendant's reclamation group.
    pub group: u64,
    /// A scrub entry.
    pub scrub: u64,
    /// A chunk of an arena.
    pub chunk: u64,
    /// A 4 KiB page of an arena.
    pub arena_page: u64,
    /// Things held outside the arena, by the names of [`Held`].
    pub held: BTreeMap<String, u64>,
}

/// Why a profile cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// It cannot be read or written, or another user could have written it.
    #[error("the profile is not used: {0}")]
    File(#[from] OwnedError),
    /// It is damaged.
    #[error("{}: not a profile: {reason}; run `leasehold calibrate`", path.display())]
    Damaged {
        /// The profile.
        path: PathBuf,
        /// The defect.
        reason: String,
    },
    /// It belongs to another host or another version.
    #[error(
        "{}: measured with {found}, this is {expected}; run `leasehold calibrate`",
        path.display()
    )]
    Foreign {
        /// The profile.
        path: PathBuf,
        /// Where it was measured.
        found: String,
        /// Where it is to be used.
        expected: String,
    },
}

impl Host {
    /// This host.
    pub fn here() -> Self {
        let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let cpu = cpu
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
            .map_or("unknown", |(_, model)| model.trim())
            .to_owned();
        let kernel = rustix::system::uname()
            .release()
            .to_string_lossy()
            .into_owned();
        Self {
            cpu,
            kernel,
            leasehold: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}

impl std::fmt::Display for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "leasehold {} on {}, kernel {}",
            self.leasehold, self.cpu, self.kernel
        )
    }
}

impl Profile {
    /// A profile that charges nothing: for measuring what things cost.
    pub fn free() -> Self {
        Self {
            format: FORMAT,
            host: Host::here(),
            method: "nothing is charged".to_owned(),
            median_ps: Costs {
                tenant: 0,
                group: 0,
                scrub: 0,
                chunk: 0,
                arena_page: 0,
                held: Held::ALL
                    .iter()
                    .map(|held| (held.name().to_owned(), 0))
                    .collect(),
            },
            interruption: None,
            preemption: None,
            transfer: None,
            kill: None,
            steps: BTreeMap::new(),
        }
    }

    /// True for [`Profile::free`].
    pub(crate) fn is_free(&self) -> bool {
        let costs = &self.median_ps;
        costs.tenant == 0 && costs.held.values().all(|ps| *ps == 0)
    }

    /// How long a tenant that pages may hold the processor in a fault, ns: what a transfer in and one
    /// out take at the 99th percentile.
    pub(crate) fn longest_fault_ns(&self) -> u64 {
        let transfer = self.transfer.as_ref();
        transfer.map_or(ASSUMED_FAULT_NS, TransferCosts::per_fault_ns)
    }

    /// How long the cell may take to obey a kill, ns: as a step that takes so long, or 50 µs if that was not measured.
    pub fn kill_ns(&self) -> u64 {
        const ASSUMED_NS: u64 = 50_000;
        self.kill.map_or(ASSUMED_NS, |time| time.bound_ns())
    }

    /// How long a step of a row may be on this host, ns: as it was measured at the row's caps, or else
    /// [`CEILING_NS`].
    pub fn longest_step_ns(&self, row: RowId) -> u64 {
        match row.row().longest {
            Longest::Fault => self.longest_fault_ns(),
            Longest::Ceiling => self
                .step_time(row)
                .map_or(CEILING_NS, |time| time.bound_ns()),
        }
    }

    /// How long the steps of a row take, if that was measured: those of the row that it is
    /// [counted as](RowId::counted_as).
    pub fn step_time(&self, row: RowId) -> Option<StepTime> {
        if self.steps.is_empty() {
            return None;
        }
        self.steps.get(&row.counted_as().row().title()).copied()
    }

    /// The time that the host itself may add to a step, ns: its interrupts, and the time for which
    /// it stops a virtual machine.
    pub fn added_ns(&self) -> u64 {
        self.interruption
            .map_or(ASSUMED_MARGIN_NS, |added| added.p9999_ns)
    }

    /// Where a profile is kept by default: `profile.json` in the
    /// [state directory](user_files::state) of this user, if there is one.
    pub fn default_path() -> Option<PathBuf> {
        Some(user_files::state()?.join("profile.json"))
    }

    /// Reads a profile; `None` if there is none.
    ///
    /// Leases are charged by the profile. The file and all directories above it must therefore
    /// belong to this user or to root, and no other user may write to them.
    ///
    /// # Errors
    /// When the profile exists but cannot be used here.
    pub fn load(path: &Path) -> Result<Option<Self>, ProfileError> {
        let (directory, name) = Self::split(path)?;
        let read = OwnedDirectory::open(directory, Missing::Refuse)
            .and_then(|directory| directory.read(name, MAX_BYTES));
        let bytes = match read {
            Ok(bytes) => bytes,
            Err(error) if error.is_missing() => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let damaged = |reason: String| ProfileError::Damaged {
            path: path.to_owned(),
            reason,
        };
        let profile: Self =
            serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
        if profile.format != FORMAT {
            return Err(damaged(format!(
                "format {}, expected {FORMAT}",
                profile.format
            )));
        }
        if let Some(held) = Held::ALL
            .iter()
            .find(|held| !profile.median_ps.held.contains_key(held.name()))
        {
            return Err(damaged(format!("no cost for {}", held.name())));
        }
        if let Some((name, ps)) = profile.costs_ps().find(|(_, ps)| *ps > COST_MAX_PS) {
            return Err(damaged(format!(
                "{name}: found {ps} ps; allowed: at most {COST_MAX_PS}, a second"
            )));
        }
        let here = Host::here();
        if profile.host != here {
            return Err(ProfileError::Foreign {
                path: path.to_owned(),
                found: profile.host.to_string(),
                expected: here.to_string(),
            });
        }
        Ok(Some(profile))
    }

    /// Writes the profile, whole or not at all.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), ProfileError> {
        let (directory, name) = Self::split(path)?;
        let text = serde_json::to_string_pretty(self).map_err(|error| ProfileError::Damaged {
            path: path.to_owned(),
            reason: error.to_string(),
        })?;
        let directory = OwnedDirectory::open(directory, Missing::Create)?;
        Ok(directory.write(name, &[text.as_bytes(), b"\n"])?)
    }

    /// The directory of a profile, and its name there.
    fn split(path: &Path) -> Result<(&Path, &OsStr), ProfileError> {
        let name = path.file_name().ok_or_else(|| OwnedError::Kind {
            path: path.to_owned(),
            expected: "file",
        })?;
        let directory = path.parent().filter(|path| !path.as_os_str().is_empty());
        Ok((directory.unwrap_or(Path::new(".")), name))
    }

    /// The measured costs of everything that is charged, ps.
    fn costs_ps(&self) -> impl Iterator<Item = (&str, u64)> {
        let costs = &self.median_ps;
        let interruption = self.interruption.map_or(0, |added| added.p9999_ns);
        let own = [
            ("tenant", costs.tenant),
            ("group", costs.group),
            ("scrub", costs.scrub),
            ("chunk", costs.chunk),
            ("arena_page", costs.arena_page),
            ("interruption", interruption.saturating_mul(1000)),
        ];
        let held = costs.held.iter().map(|(name, ps)| (name.as_str(), *ps));
        own.into_iter().chain(held)
    }

    /// Returns a lease's charge for one of `held`, picoseconds.
    pub fn charge_ps(&self, held: Held) -> u64 {
        FACTOR * self.median_ps.held.get(held.name()).copied().unwrap_or(0)
    }

    /// Returns the margin that every top-level tenant is charged for the host's interruptions of
    /// its end, ns.
    pub fn margin_ns(&self) -> u64 {
        match self.interruption {
            _ if self.is_free() => 0,
            Some(interruption) => FACTOR * interruption.p9999_ns,
            None => ASSUMED_MARGIN_NS,
        }
    }

    /// The charge for a slot of an arena, for an object of `bytes` bytes: its share of giving its
    /// page back. Rounded up.
    pub(crate) fn slot_ps(&self, bytes: usize) -> u64 {
        const HEADER: usize = 8;
        let slot = (bytes + HEADER).next_multiple_of(8) as u64;
        (FACTOR * self.median_ps.arena_page * slot).div_ceil(PAGE)
    }

    /// The charges of a cell's kernel.
    pub fn kernel_costs(&self) -> KernelCosts {
        // The largest of the kernel's objects that are not measured one by one take about this.
        let object = self.slot_ps(120);
        KernelCosts {
            model: self.cost_model(),
            semaphore_ps: self.slot_ps(32),
            channel_ps: object,
            region_ps: object,
            timer_ps: object,
            task_ps: object,
            tenant_ps: self.slot_ps(248),
            capability_ps: self.slot_ps(64),
            parcel_ps: self.slot_ps(248),
            execution_ps: 0,
        }
    }

    /// The charges of a cell's groups.
    pub(crate) fn cost_model(&self) -> CostModel {
        let costs = &self.median_ps;
        CostModel {
            root_ps: FACTOR * costs.tenant + self.margin_ns() * 1000,
            group_ps: FACTOR * costs.group,
            scrub_ps: FACTOR * costs.scrub,
            chunk_ps: FACTOR * costs.chunk,
            page_ps: FACTOR * costs.arena_page,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ASSUMED_MARGIN_NS, FORMAT, Interruption, Profile, ProfileError, StepTime};
    use crate::steps::{CEILING_NS, RowId};

    #[test]
    fn a_tenant_is_charged_twice_what_the_host_adds_to_an_end() {
        let mut profile = Profile::free();
        let root_ns = |profile: &Profile| profile.cost_model().root_ps / 1000;
        assert_eq!(root_ns(&profile), 0, "nothing is charged");
        profile.median_ps.tenant = 10_000_000;
        assert_eq!(root_ns(&profile), 20_000 + ASSUMED_MARGIN_NS);
        profile.interruption = Some(Interruption {
            window_ns: 100_000,
            windows: 100_000,
            p9999_ns: 300_000,
        });
        assert_eq!(root_ns(&profile), 20_000 + 600_000);
    }

    #[test]
    fn a_profile_with_an_absurd_cost_is_an_error_that_names_it() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("profile.json");
        let absurd = |change: &dyn Fn(&mut Profile), name: &str| {
            let mut profile = Profile::free();
            change(&mut profile);
            profile.save(&path).expect("saved");
            let error = Profile::load(&path).expect_err("absurd").to_string();
            assert!(error.contains(name), "{error}");
        };
        absurd(
            &|profile| profile.median_ps.scrub = u64::MAX,
            "scrub: found",
        );
        let store = |profile: &mut Profile| {
            profile.median_ps.held.insert("store".to_owned(), u64::MAX);
        };
        absurd(&store, "store: found");
        let interruption = Interruption {
            window_ns: 1,
            windows: 1,
            p9999_ns: u64::MAX,
        };
        let added = |profile: &mut Profile| profile.interruption = Some(interruption);
        absurd(&added, "interruption: found");
    }

    #[test]
    fn a_row_takes_twice_its_99th_percentile_up_to_the_ceiling_and_what_was_measured_beyond() {
        let row = RowId::find("wasi:io/poll", "poll").expect("a row");
        let mut profile = Profile::free();
        assert_eq!(profile.longest_step_ns(row), CEILING_NS, "not measured");
        let mut measured = |p99_ns| {
            let mut samples = vec![p99_ns; 100];
            // One of 101 may be longer.
            samples.push(10 * p99_ns);
            let time = StepTime::of(samples).expect("samples");
            profile.steps.insert(row.row().title(), time);
            (profile.longest_step_ns(row), time.exceeds())
        };
        assert_eq!(measured(100), (5_000, false));
        assert_eq!(measured(20_000), (40_000, false));
        assert_eq!(measured(70_000), (100_000, false));
        assert_eq!(measured(170_000), (170_000, true));
    }

    #[test]
    fn a_function_of_an_interface_that_is_linked_as_a_whole_takes_what_its_longest_does() {
        let row = |name| RowId::find("wasi:cli/environment", name).expect("a row");
        let mut profile = Profile::free();
        let time = StepTime::of(vec![30_000]).expect("a sample");
        let whole = row("get-environment");
        profile.steps.insert(whole.row().title(), time);
        assert_eq!(profile.longest_step_ns(row("initial-cwd")), 60_000);
        let own = RowId::find("wasi:filesystem/types", "[method]descriptor.stat");
        let own = own.expect("a row");
        assert_eq!(profile.longest_step_ns(own), CEILING_NS);
    }

    #[test]
    fn a_profile_survives_being_saved_and_loaded() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("deep/profile.json");
        let mut profile = Profile::free();
        profile.median_ps.tenant = 12_345;
        profile.save(&path).expect("saved");
        assert_eq!(Profile::load(&path).expect("loaded"), Some(profile));
    }

    #[test]
    fn a_missing_profile_is_none_and_a_damaged_or_foreign_one_an_error() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("profile.json");
        assert_eq!(Profile::load(&path).expect("nothing there"), None);
        std::fs::write(&path, "{").expect("written");
        assert!(matches!(
            Profile::load(&path),
            Err(ProfileError::Damaged { .. })
        ));
        let mut profile = Profile::free();
        profile.format = FORMAT + 1;
        profile.save(&path).expect("saved");
        assert!(matches!(
            Profile::load(&path),
            Err(ProfileError::Damaged { .. })
        ));
        let mut profile = Profile::free();
        profile.host.kernel = "0.0".to_owned();
        profile.save(&path).expect("saved");
        assert!(matches!(
            Profile::load(&path),
            Err(ProfileError::Foreign { .. })
        ));
    }
}
