//! A trial: one guest in one runtime, ended again and again beside a neighbour at work.
//!
//! A trial is held in blocks, each with a neighbour and a quiet of its own, and its ratios are the
//! medians of those of its blocks: the slowest hundredth of a block's operations is few, and one
//! hiccup of the machine decides it.

use std::num::NonZero;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use leasehold_cell::profile::Profile;
use leasehold_cell::{CellConfig, Statement};
use rustix::thread::{CpuSet, sched_getaffinity};

use super::attack::{Attack, Runtime, Surroundings};
use super::runtime::{GuestEnd, Host, Program};
use crate::harness::affinity::bound_to;
use crate::harness::clock::monotonic_ns;
use crate::harness::neighbour::{Diary, Distance, Interval, Load, Neighbour};
use crate::harness::priority::before_everybody;
use crate::harness::samples::{Samples, Spread};

/// The quiet time before each start: a multiple of the previous end's duration, within these
/// limits. The neighbour is then undisturbed.
const QUIET_ENDS: u64 = 10;
const LEAST_QUIET: Duration = Duration::from_millis(2);
const MOST_QUIET: Duration = Duration::from_millis(100);
/// The time for recovering from the previous end.
const SETTLE: Duration = Duration::from_millis(1);
/// Between two windows of a quiet time, so that no operation reaches into both.
const APART: Duration = Duration::from_micros(200);

/// Where the guest and the neighbour run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// Each on a processor of its own.
    OtherCore,
    /// Both on one.
    SameCore,
}

impl Placement {
    /// Name in rows.
    pub fn name(self) -> &'static str {
        match self {
            Self::OtherCore => "other-core",
            Self::SameCore => "same-core",
        }
    }
}

/// A runtime, and how the neighbour is placed to its guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arm {
    /// The runtime of the guest.
    pub runtime: Runtime,
    /// On which processors.
    pub placement: Placement,
    /// How much of the host the neighbour shares with the runtime.
    pub neighbour: Distance,
}

impl Arm {
    /// As the runtime is used: a cell is a process of its own by design, so that the neighbour is
    /// as far away as this host allows (`furthest`); embedders of wasmtime run all tenants in one
    /// process, so that it is a thread of it.
    pub fn usual(runtime: Runtime, placement: Placement, furthest: Distance) -> Self {
        let neighbour = match runtime {
            Runtime::Leasehold => furthest,
            Runtime::Wasmtime => Distance::Thread,
        };
        Self {
            runtime,
            placement,
            neighbour,
        }
    }
}

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// Blocks of a trial.
    pub blocks: usize,
    /// Ends in a block, at least.
    pub least: usize,
    /// Ends in a block, at most.
    pub most: usize,
    /// Time after which no guest of a block is started beyond the least.
    pub time: Duration,
    /// Time in ends after which a block has enough of them.
    pub ending: Duration,
}

/// The observations in a part of a trial.
#[derive(Debug)]
pub struct Block {
    /// The ends.
    pub guest_ends: Vec<GuestEnd>,
    /// The neighbour's latencies, ns, while guests were ended.
    pub disturbed: Samples,
    /// The same in windows of the same length while nothing happened.
    pub undisturbed: Samples,
}

/// The observations in a trial.
#[derive(Debug)]
pub struct Trial {
    /// Its parts, in the order of time.
    pub blocks: Vec<Block>,
    /// The account that a guest had when it was killed, of a cell only. Guests of one trial all do
    /// the same, so that it stands for all.
    pub account: Option<Statement>,
}

impl Trial {
    /// All ends.
    pub fn guest_ends(&self) -> impl Iterator<Item = &GuestEnd> {
        self.blocks.iter().flat_map(|block| &block.guest_ends)
    }

    /// Wall time of the ends, ns.
    pub fn end_ns(&self) -> Samples {
        self.guest_ends()
            .map(|guest_end| guest_end.end_ns)
            .collect()
    }

    /// The neighbour's latencies in all blocks, ns: while guests were ended, and undisturbed.
    pub fn felt(&self) -> (Samples, Samples) {
        let mut felt = (Samples::new(), Samples::new());
        for block in &self.blocks {
            felt.0.add(&block.disturbed);
            felt.1.add(&block.undisturbed);
        }
        felt
    }

    /// The neighbour's `q` quantile during the ends, over undisturbed: of the blocks.
    pub fn ratio(&self, q: f64) -> Option<Spread> {
        let blocks = self.blocks.iter();
        Spread::of(blocks.filter_map(|block| block.disturbed.ratio_to(&block.undisturbed, q)))
    }

    /// The largest prediction of a cell for each end, ns.
    pub fn predicted_ns(&self) -> Samples {
        let account = self.account.as_ref();
        self.guest_ends()
            .filter_map(|guest_end| guest_end.predicted_under(account))
            .collect()
    }

    /// The greatest share of what was predicted that an end in a cell took, in processor time.
    pub fn share_of_prediction(&self) -> Option<f64> {
        let account = self.account.as_ref();
        self.guest_ends()
            .filter_map(|guest_end| {
                let took_ns = guest_end.reclaimed?.returned.cpu_ns;
                Some(took_ns as f64 / guest_end.predicted_under(account)?.max(1) as f64)
            })
            .max_by(f64::total_cmp)
    }
}

/// Where trials are held: both runtimes, on the processors that this program may use.
pub struct Bench {
    guests: PathBuf,
    surroundings: Surroundings,
    /// The processor of guests whose neighbour is on the other one, and of the measuring thread.
    guest_cpu: usize,
    neighbour_cpu: usize,
    furthest: Distance,
    hosts: Vec<(Runtime, Placement, Host)>,
}

impl Bench {
    /// Starts both runtimes for each of `placements`.
    ///
    /// # Errors
    /// If the host refuses, or has but one processor.
    pub fn new(
        guests: PathBuf,
        profile: &Profile,
        surroundings: Surroundings,
        placements: &[Placement],
    ) -> Result<Self> {
        let (guest_cpu, neighbour_cpu) = two_processors()?;
        let furthest = Distance::furthest(neighbour_cpu);
        let mut hosts = Vec::new();
        for &placement in placements {
            let cpu = match placement {
                Placement::OtherCore => guest_cpu,
                Placement::SameCore => neighbour_cpu,
            };
            for runtime in [Runtime::Leasehold, Runtime::Wasmtime] {
                // Other threads of a runtime avoid the neighbour's processor.
                let host = bound_to(Some(guest_cpu), || {
                    let config = CellConfig::new(profile.clone());
                    Host::start(runtime, config, cpu, NonZero::<usize>::MIN)
                })?;
                hosts.push((runtime, placement, host));
            }
        }
        Ok(Self {
            guests,
            surroundings,
            guest_cpu,
            neighbour_cpu,
            furthest,
            hosts,
        })
    }

    /// As far away as a neighbour can be here.
    pub fn furthest(&self) -> Distance {
        self.furthest
    }

    /// Holds a trial.
    ///
    /// # Errors
    /// If the guest does not do as it should, or the host refuses.
    pub fn hold(&self, attack: &Attack, arm: Arm, effort: &Effort) -> Result<Trial> {
        let (.., host) = self
            .hosts
            .iter()
            .find(|(r, p, _)| (*r, *p) == (arm.runtime, arm.placement))
            .context("no such runtime was started")?;
        let program = host.load(&self.guests, attack)?;
        bound_to(Some(self.guest_cpu), || {
            self.observe(host, &program, attack, arm, effort)
        })
    }

    fn observe(
        &self,
        host: &Host,
        program: &Program,
        attack: &Attack,
        arm: Arm,
        effort: &Effort,
    ) -> Result<Trial> {
        // Otherwise the end of a computing guest would often wait for the scheduler's tick. The
        // ticks of all processors coincide, so that the neighbour's tick would count as a
        // disturbance.
        if !before_everybody() {
            tracing::debug!("no real-time priority for the thread that measures");
        }
        let live = |account| host.live(program, attack, &self.surroundings, account);
        // The first warms caches and pools; it alone is asked for its account.
        let first = live(true)?;
        let live = || live(false);
        let blocks = (0..effort.blocks).map(|_| self.block(&live, arm.neighbour, effort));
        Ok(Trial {
            blocks: blocks.collect::<Result<_>>()?,
            account: first.statement,
        })
    }

    fn block(
        &self,
        live: &impl Fn() -> Result<GuestEnd>,
        place: Distance,
        effort: &Effort,
    ) -> Result<Block> {
        let neighbour = Neighbour::start(Load::Map, place, self.neighbour_cpu)?;
        let (mut guest_ends, mut quiets) = (Vec::new(), Vec::new());
        let begin = Instant::now();
        let mut ending_ns = 0;
        let mut quiet = LEAST_QUIET;
        while guest_ends.len() < effort.most
            && (guest_ends.len() < effort.least
                || begin.elapsed() < effort.time && ending_ns < effort.ending.as_nanos())
        {
            thread::sleep(SETTLE);
            let start_ns = monotonic_ns();
            thread::sleep(quiet);
            let end_ns = monotonic_ns();
            quiets.push(Interval { start_ns, end_ns });
            let guest_end = live()?;
            let Interval { start_ns, end_ns } = guest_end.ending;
            let length_ns = end_ns - start_ns;
            ending_ns += u128::from(length_ns);
            quiet = Duration::from_nanos(QUIET_ENDS * length_ns).clamp(LEAST_QUIET, MOST_QUIET);
            guest_ends.push(guest_end);
        }
        let diary = neighbour.finish()?;
        ensure!(
            diary.lost == 0,
            "the neighbour lost {} operations",
            diary.lost
        );
        let (disturbed, undisturbed) = felt(&diary, &guest_ends, &quiets);
        Ok(Block {
            guest_ends,
            disturbed,
            undisturbed,
        })
    }
}

/// The neighbour's latencies during the ends, and in windows of quiet that are as long as the ends
/// were, in turn: an operation counts towards every window that it overlaps, which favours long ones
/// the more the shorter the window is, and has to do so on both sides.
fn felt(diary: &Diary, guest_ends: &[GuestEnd], quiets: &[Interval]) -> (Samples, Samples) {
    let endings: Vec<Interval> = guest_ends
        .iter()
        .map(|guest_end| guest_end.ending)
        .collect();
    let mut lengths = endings
        .iter()
        .map(|e| (e.end_ns - e.start_ns).max(1))
        .cycle();
    let apart = APART.as_nanos() as u64;
    let mut windows = Vec::new();
    for quiet in quiets {
        let mut start_ns = quiet.start_ns;
        while start_ns < quiet.end_ns {
            let length = lengths.next().unwrap_or(1);
            let end_ns = (start_ns + length).min(quiet.end_ns);
            windows.push(Interval { start_ns, end_ns });
            start_ns = end_ns + apart;
        }
    }
    (diary.during(&endings), diary.during(&windows))
}

/// The first and the last processor that this program may use.
pub(super) fn two_processors() -> Result<(usize, usize)> {
    let allowed = sched_getaffinity(None).context("asking for the allowed processors")?;
    let mut cpus = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
    match (cpus.next(), cpus.next_back()) {
        (Some(first), Some(last)) => Ok((first, last)),
        _ => anyhow::bail!("a neighbour on another processor needs two of them"),
    }
}

#[cfg(test)]
mod tests {
    use super::{GuestEnd, felt};
    use crate::harness::neighbour::{Diary, Interval, Operation};

    #[test]
    fn both_sides_are_looked_at_through_windows_of_one_length() {
        // Operations of 1 µs back to back, but 5 µs at 500 µs, when the tenant is ended.
        let mut operations = Vec::new();
        let mut start_ns = 0;
        while start_ns < 1_000_000 {
            let duration_ns = if start_ns == 500_000 { 5_000 } else { 1_000 };
            operations.push(Operation {
                start_ns,
                duration_ns,
            });
            start_ns += duration_ns;
        }
        let diary = Diary {
            operations,
            lost: 0,
        };
        let guest_end = GuestEnd {
            ending: Interval {
                start_ns: 501_000,
                end_ns: 501_500,
            },
            end_ns: 500,
            killed: true,
            reclaimed: None,
            statement: None,
            taken: crate::harness::taken::Taken::default(),
        };
        let quiet = Interval {
            start_ns: 0,
            end_ns: 450_100,
        };
        let (disturbed, undisturbed) = felt(&diary, &[guest_end], &[quiet]);
        assert_eq!((disturbed.count(), disturbed.max()), (1, Some(5_000)));
        // 500 ns every 200,500: three windows, one of which lies in two operations.
        assert_eq!((undisturbed.count(), undisturbed.max()), (3, Some(1_000)));
    }
}
