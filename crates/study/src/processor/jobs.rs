//! `jobs`: the promises of admission, on a real cell (SPR §III-G).
//!
//! The study draws random sets of reservations that pass the admission test with the measured costs
//! of scheduling and host steps. One of them is a victim's: it repeats a job of the length of its
//! useful budget. The others belong to adversaries, which cut their budgets into pieces, use them
//! up at one instant or never stop; one more spins in the background. No job may take longer than
//! its response bound. (The same in virtual time, of 100,000 sets with every cost at its limit:
//! `crates/reserve/tests/costs_kept.rs`.)
//!
//! After each set, a bare thread with real-time priority on the same processor measures the host's
//! disturbance. First it does as many jobs of the victim's median response time: the late ones are
//! caused by the host. Then it does as many jobs of the victim's length: those with more processor
//! time than the useful budget would have missed the period.

use std::time::Duration;

use anyhow::Result;
use leasehold_cell::profile::PreemptionCosts;
use leasehold_cell::{RealtimeLimit, Shielding};
use leasehold_reserve::admission::{Overhead, Verdict, admit};
use leasehold_reserve::{Contract, Nanos, Order};

use crate::harness::contest::{self, Contest};
use crate::harness::experiment::{Options, Study};
use crate::harness::objects;
use crate::harness::plot::{Axis, Figure, Marks, Panel, Series};
use crate::harness::progress::Progress;
use crate::harness::random::Random;
use crate::harness::report::{Finding, Report, row};
use crate::harness::samples::{Samples, Spread};
use crate::harness::unit::Unit;
use crate::processor::bare_job;
use crate::processor::reservation::{MS, US};

/// The study; see the [module](self).
pub(crate) struct Jobs;

/// The sequence starts here, so that a run draws what the run before it drew.
const SEED: u64 = 0x6a6f_6273_6a6f_6273;
/// Most adversaries with a reservation.
const RIVALS: u64 = 6;
/// Of what is left of the victim's budget, in hundredths, what a job takes: the rest is for what the
/// probe does to sleep and to print.
const FILL: u64 = 90;
/// Of so many jobs, one more than of the bare thread's may take longer than its bound.
const JOBS_PER_LATE: f64 = 1_000.0;
/// Periods from one job to the next: the whole budget is there when a job begins, even if the one before
/// was late by a period.
const PERIODS: u64 = 3;

struct Scale {
    sets: u64,
    jobs: usize,
}

const FULL: Scale = Scale {
    sets: 120,
    jobs: 100,
};
const QUICK: Scale = Scale { sets: 3, jobs: 20 };

/// A reservation of a set, and the guest that has it.
struct Server {
    guest: &'static str,
    arguments: Vec<u64>,
    cpu: String,
}

/// A set that the admission test takes.
struct Set {
    rivals: Vec<Server>,
    victim: String,
    period: Nanos,
    /// The admission test's result for the victim.
    bound: Nanos,
    useful: Nanos,
}

/// The results of the sets with so many adversaries.
#[derive(Default)]
struct Tally {
    sets: u64,
    jobs: u64,
    /// Longer than the bound.
    late: u64,
    /// Longer than the period.
    missed: u64,
    /// The same of the bare thread: longer than the bound, or of more processor time than was left of the budget.
    bare_late: u64,
    bare_missed: u64,
    /// Budgets that were served later than they were due, of adversaries too.
    budgets_missed: u64,
    /// Thousandths of the bound.
    used: Samples,
}

impl Study for Jobs {
    fn name(&self) -> &'static str {
        "jobs"
    }

    fn paper(&self) -> &'static str {
        "SPR §III-G"
    }

    fn about(&self) -> &'static str {
        "Jobs of the length that admission leaves of a budget, beside adversaries in random admitted \
         sets on a real cell: how long they take, and the bound."
    }

    fn run(&self, options: &Options) -> Result<Report> {
        let scale = if options.quick { &QUICK } else { &FULL };
        let profile = objects::profile(options)?;
        let measured = profile.preemption.as_ref();
        let overhead = Overhead {
            per_preemption: measured.map_or(0, PreemptionCosts::per_preemption_ns),
        };
        let mut progress = Progress::new(self.name(), scale.sets);
        let mut random = Random::new(SEED);
        let mut tallies: Vec<Tally> = (0..=RIVALS).map(|_| Tally::default()).collect();
        for _ in 0..scale.sets {
            let contest = Contest::new(options, Shielding::Shielded, RIVALS as u32 + 3)?;
            let set = Set::draw(&mut random, &contest, overhead)?;
            let tally = &mut tallies[set.rivals.len()];
            let responses = set.play(&contest, scale, tally)?;
            drop(contest);
            set.play_bare(&responses, tally)?;
            progress.step();
        }
        let mut report = Report::new(self, options);
        for (rivals, tally) in tallies
            .iter()
            .enumerate()
            .filter(|(_, tally)| tally.sets > 0)
        {
            let used = |thousandths: Option<u64>| thousandths.map(|n| n as f64 / 1_000.0);
            report.rows.push(row([
                ("adversaries", rivals.into()),
                ("sets", tally.sets.into()),
                ("jobs", tally.jobs.into()),
                ("late", tally.late.into()),
                ("missed", tally.missed.into()),
                ("bare_late", tally.bare_late.into()),
                ("bare_missed", tally.bare_missed.into()),
                ("budgets_missed", tally.budgets_missed.into()),
                ("used_ratio_p50", used(tally.used.p50()).into()),
                ("used_ratio_p99", used(tally.used.p99()).into()),
                ("used_ratio_max", used(tally.used.max()).into()),
            ]));
        }
        let sum = |of: fn(&Tally) -> u64| tallies.iter().map(of).sum::<u64>() as f64;
        let allowed = (sum(|tally| tally.jobs) / JOBS_PER_LATE).floor();
        report.findings = vec![
            Finding::at_most(
                "jobs of useful length that took longer than their response bound, beyond those of a \
                 bare thread",
                Unit::Count,
                Some(sum(|tally| tally.late) - sum(|tally| tally.bare_late)),
                allowed,
            ),
            Finding::at_most(
                "jobs of useful length that took longer than their period, beyond those that took a bare \
                 thread more than the budget",
                Unit::Count,
                Some(sum(|tally| tally.missed) - sum(|tally| tally.bare_missed)),
                allowed,
            ),
        ];
        report.notes.push(format!(
            "seed {SEED:#x}; a preemption is admitted with {}; a job takes {FILL} % of what is left of \
             a budget; a spinning guest is in the background",
            Unit::Nanoseconds.humane(overhead.per_preemption as f64)
        ));
        report.notes.push(contest::note(options)?);
        report.figure = figure(&tallies);
        Ok(report)
    }
}

impl Set {
    /// Draws sets until the admission test takes one and something is left of the victim's budget.
    fn draw(random: &mut Random, contest: &Contest, overhead: Overhead) -> Result<Self> {
        loop {
            let rivals: Vec<Server> = (0..1 + random.below(RIVALS))
                .map(|_| Server::draw(random))
                .collect();
            let period = random.log_uniform(5 * MS, 50 * MS);
            let budget = period * (10 + random.below(30)) / 100;
            let priority = 10 + random.below(90);
            // A region bounds how often it can be preempted.
            let region = budget / (1 + random.below(8));
            let victim = format!(
                "budget={budget}ns,period={period}ns,priority={priority},nonpreemptive={region}ns"
            );
            let mut contracts = vec![contest.claim("job-probe", Some(&victim))?];
            for rival in &rivals {
                contracts.push(contest.claim(rival.guest, Some(&rival.cpu))?);
            }
            contracts.push(contest.claim("spin", None)?);
            let stopped = RealtimeLimit::of_host().is_some_and(|limit| !limit.allows(&contracts));
            if let Some((bound, useful)) = admitted(&contracts, overhead).filter(|_| !stopped) {
                return Ok(Self {
                    rivals,
                    victim,
                    period,
                    bound,
                    useful,
                });
            }
        }
    }

    /// Lets the victim do its jobs, and returns how long each took, ns.
    fn play(&self, contest: &Contest, scale: &Scale, tally: &mut Tally) -> Result<Samples> {
        let _background = contest.enter_unreserved("spin", &[])?;
        let mut rivals = Vec::new();
        for rival in &self.rivals {
            let program = contest.load(rival.guest)?;
            rivals.push(contest.enter(rival.guest, &program, &rival.arguments, &rival.cpu)?);
        }
        let every = PERIODS * self.period;
        let probe = contest.load("job-probe")?;
        let victim = contest.enter("job-probe", &probe, &[every, self.work()], &self.victim)?;
        let expected = Duration::from_nanos(every * (scale.jobs as u64 + 2));
        // The budget that starting used may not be back at the first job.
        let responses = victim.await_lines("response", scale.jobs + 1, expected)?;
        tally.sets += 1;
        let mut here = Samples::new();
        for &response in responses.iter().skip(1).take(scale.jobs).flatten() {
            tally.jobs += 1;
            if response > self.bound {
                let Self {
                    victim,
                    bound,
                    useful,
                    ..
                } = self;
                tracing::warn!(response, bound, useful, victim, "later than its bound");
            }
            tally.late += u64::from(response > self.bound);
            tally.missed += u64::from(response > self.period);
            tally.used.record(response * 1_000 / self.bound.max(1));
            here.record(response);
        }
        for contestant in rivals.iter().chain([&victim]) {
            tally.budgets_missed += contestant.supply()?.misses;
        }
        Ok(here)
    }

    /// Lets a bare thread do as many jobs of the victim's median response time, and as many of the
    /// victim's length. The host must then take as much time from a bare job as from the victim's
    /// to make it late.
    fn play_bare(&self, responses: &Samples, tally: &mut Tally) -> Result<()> {
        let Some(response) = responses.p50() else {
            return Ok(());
        };
        let count = usize::try_from(responses.count())?;
        for job in bare_job::jobs(response, self.period, count)? {
            tally.bare_late += u64::from(job.response > self.bound);
        }
        for job in bare_job::jobs(self.work(), self.period, count)? {
            tally.bare_missed += u64::from(job.response > self.period || job.used > self.useful);
        }
        Ok(())
    }

    /// The processor time of a job, ns.
    fn work(&self) -> Nanos {
        self.useful * FILL / 100
    }
}

/// The response bound of the first contract and what is left of its budget, if all are admitted.
fn admitted(contracts: &[Contract], overhead: Overhead) -> Option<(Nanos, Nanos)> {
    let report = admit(contracts, Order::FixedPriority, overhead);
    let with_reservation = contracts
        .iter()
        .filter(|contract| !contract.is_background());
    let verdicts = &report.servers[..with_reservation.count()];
    if !verdicts.iter().all(Verdict::schedulable) {
        return None;
    }
    let useful = verdicts[0].loss.useful?;
    // Little is left of a budget that scheduling eats up.
    (useful >= contracts[0].budget() / 4).then_some((verdicts[0].response?, useful))
}

impl Server {
    fn draw(random: &mut Random) -> Self {
        let period = random.log_uniform(2 * MS, 100 * MS);
        let budget = (period * (2 + random.below(20)) / 100).max(300 * US);
        let (guest, arguments) = match random.below(3) {
            0 => ("spin", Vec::new()),
            1 => {
                let pieces = 2 + random.below(10);
                let phase = random.below(period);
                let run = budget / pieces;
                (
                    "replenishment-storm",
                    vec![pieces, run, 50 * US + random.below(MS), period, phase],
                )
            }
            _ => ("thundering-herd", vec![period]),
        };
        let priority = 10 + random.below(90);
        Self {
            guest,
            arguments,
            cpu: format!("budget={budget}ns,period={period}ns,priority={priority}"),
        }
    }
}

fn figure(tallies: &[Tally]) -> Figure {
    let series = |name: &str, of: fn(&Samples) -> Option<u64>| Series {
        name: name.to_owned(),
        points: tallies
            .iter()
            .enumerate()
            .filter_map(|(rivals, tally)| {
                let value = of(&tally.used)? as f64 / 1_000.0;
                let spread = Spread {
                    median: value,
                    p5: value,
                    p95: value,
                };
                Some((rivals as f64, spread))
            })
            .collect(),
    };
    Figure {
        title: "Jobs of useful length beside adversaries".to_owned(),
        panels: vec![Panel {
            y: Axis::linear("response ÷ bound", Unit::Ratio),
            marks: Marks::Curves {
                x: Axis::linear("adversaries with a reservation", Unit::Count),
                series: vec![
                    series("median", Samples::p50),
                    series("p99", Samples::p99),
                    series("longest", Samples::max),
                ],
            },
        }],
    }
}
