//! `decide`: the cost of an invocation of the scheduler by the number of tenants and of priorities
//! (SPR §IV-A, §III-E).
//!
//! Tenants sleep until the same instant, run for a moment, and sleep until the next: so at each of
//! these instants the timeouts of all of them have expired. Either all tenants do, and every
//! invocation is for one whose record has not been used for long; or only a few do while the others
//! sleep, and only the size of the data structures differs. A background task runs while all sleep.
//! The scheduler's own code is timed for each invocation that dispatches a tenant. The invocation
//! that finds all tenants asleep takes a third of that, and would be every second one with a single
//! tenant. Touched reservations are counted in all invocations. An eager invocation processes all
//! timeouts at once and has little to do afterwards, so that its median is no measure of its worst
//! case; the number of timeouts processed at once is.
//!
//! In the simulator the same tenants sleep and wake under the same scheduler, and an invocation takes
//! what the scheduler counts (reservations, timeouts, replenishments), times a cost for each. So its
//! times are exact, and say nothing of the depth of a heap, nor of a cache.

use std::hint::black_box;

use anyhow::Result;
use leasehold_reserve::{
    Config, Decision, Nanos, Order, Policy, Priority, Scheduler, Shielding, TaskId,
};

use crate::harness::clock;
use crate::harness::contest::Contest;
use crate::harness::experiment::{Options, Study};
use crate::harness::plot::{Axis, Figure, Marks, Panel, Series};
use crate::harness::priority;
use crate::harness::progress::Progress;
use crate::harness::report::{Finding, Report, Row, row};
use crate::harness::samples::{Samples, Spread};
use crate::harness::unit::Unit;
use crate::processor::clocks::Clocks;
use crate::processor::cycles::Cycles;
use crate::processor::reservation::{
    CELL, MACHINES, Machine, POLICIES, SHIELDINGS, contract, platform_keys, policy_name,
    shielding_name,
};

/// From one instant at which all tenants wake up to the next.
const PERIOD: Nanos = 10_000_000_000;
/// The time that a tenant runs before it sleeps again.
const MOMENT: Nanos = 100;
/// Until when the others sleep.
const FOREVER: Nanos = 1 << 61;
/// Tenants that wake up where only a few do.
const FEW: u32 = 8;
const RING: u32 = 16;
/// Invocations in a row whose mean is one sample of what an invocation takes, on a host whose counter
/// may advance in steps as long as one.
const BLOCK: u64 = 64;
/// The number of cycles above which an invocation that finds no task counts as interrupted.
const INTERRUPTED: u64 = 5_000;

/// The study; see the [module](self).
pub(crate) struct Decide;

struct Scale {
    /// Tenants of a real cell while its controller's commands are timed.
    commanded: u32,
    tenants: &'static [u32],
    priorities: &'static [u32],
    /// Timed invocations of a point, unless they take longer than the time for one.
    invocations: u64,
    point_ns: u64,
}

const FULL: Scale = Scale {
    commanded: 1_000,
    tenants: &[1, 10, 100, 1_000, 10_000],
    priorities: &[1, 16, 256],
    invocations: 200_000,
    point_ns: 500_000_000,
};
const QUICK: Scale = Scale {
    commanded: 100,
    tenants: &[1, 100, 10_000],
    priorities: &[1, 256],
    invocations: 20_000,
    point_ns: 50_000_000,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Setting {
    shielding: Shielding,
    policy: Policy,
    tenants: u32,
    /// How many of them ever wake up.
    awake: Awake,
    priorities: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Awake {
    Few,
    All,
}

impl Awake {
    const BOTH: [Self; 2] = [Self::Few, Self::All];

    const fn name(self) -> &'static str {
        match self {
            Self::Few => "few",
            Self::All => "all",
        }
    }
}

struct Point {
    platform: &'static str,
    setting: Setting,
    /// One by one.
    decide_ns: Samples,
    /// Means of [`BLOCK`] in a row, ns; none where each is exact.
    blocks_ns: Vec<f64>,
    /// Mean of the invocations that found all tenants asleep, ns.
    asleep_ns: Option<f64>,
    /// Where that is counted.
    touched: Option<u32>,
    timeouts: u32,
}

impl Study for Decide {
    fn name(&self) -> &'static str {
        "decide"
    }

    fn paper(&self) -> &'static str {
        "SPR §IV-A"
    }

    fn about(&self) -> &'static str {
        "Time of one invocation of the scheduler against the number of tenants whose timeouts \
         expire together, and of priorities."
    }

    fn run(&self, options: &Options) -> Result<Report> {
        let scale = if options.quick { &QUICK } else { &FULL };
        let mut report = Report::new(self, options);
        let name = self.name();
        let clocks = Clocks::calibrate();
        let (measured, first) = priority::on_a_thread_like_a_cells(|| measured(name, scale))?;
        let mut points = simulated(&MACHINES[0], scale)?;
        points.extend(measured);
        report.rows = points.iter().map(Point::row).collect();
        report.findings = findings(&points, scale);
        let commands = Commands::measure(options, scale.commanded)?;
        report.findings.push(commands.finding());
        report.notes.push(commands.note());
        report.notes.push(format!(
            "timed with the time-stamp counter, {}; the median is that of the means of {BLOCK} \
             invocations in a row, percentiles and maximum are of single ones; where all are awake, \
             every invocation is for a tenant whose record (some 1.4 KiB) no cache may hold any more; \
             where few are, it is for one of {FEW}",
            clocks.counter().summary()
        ));
        report.notes.push(clocks.comparison());
        report.notes.push(format!(
            "simulator: what the scheduler counts in as many invocations of the same tenants, times \
             a cost for each; cell: a cell's scheduler, called by itself on a thread like a cell's; \
             {}",
            priority::note(first)
        ));
        report.figure = figure(&points);
        Ok(report)
    }
}

/// The durations of a controller's commands, for which every reservation has to wait.
struct Commands {
    tenants: u32,
    /// By kind, those of which there were any: their name, how long one takes, and the longest, ns.
    kinds: Vec<(&'static str, u64, u64)>,
}

/// The longest wait of a reservation for a command.
const COMMAND_NS: f64 = 1_000_000.0;

impl Commands {
    /// Starts sleeping guests on a real cell, sends every kind of command for them, and ends them.
    fn measure(options: &Options, tenants: u32) -> Result<Self> {
        const NEVER_NS: u64 = 3_600_000_000_000;
        let contest = Contest::new(options, Shielding::Shielded, tenants)?;
        let sleepers = (0..tenants)
            .map(|_| contest.enter_unreserved("vigil", &[0, NEVER_NS]))
            .collect::<Result<Vec<_>>>()?;
        contest.ask_for(&sleepers)?;
        for sleeper in sleepers {
            sleeper.end()?;
        }
        let kinds = contest.control().into_iter();
        Ok(Self {
            tenants,
            kinds: kinds
                .filter(|(_, uses)| uses.commands > 0)
                .map(|(kind, uses)| (kind.name(), uses.taken_ns / uses.commands, uses.longest_ns))
                .collect(),
        })
    }

    fn finding(&self) -> Finding {
        let longest = self.kinds.iter().map(|(_, _, longest)| *longest as f64);
        Finding::at_most(
            "cell: longest command of a controller, for which all tenants wait",
            Unit::Nanoseconds,
            longest.reduce(f64::max),
            COMMAND_NS,
        )
    }

    fn note(&self) -> String {
        let told = |(name, mean, longest): &(&str, u64, u64)| {
            let humane = |ns: &u64| Unit::Nanoseconds.humane(*ns as f64);
            format!("{name} {} ({})", humane(mean), humane(longest))
        };
        let told: Vec<String> = self.kinds.iter().map(told).collect();
        format!(
            "commands of a controller to a cell that runs {} tenants, mean and longest: {}",
            self.tenants,
            told.join(", ")
        )
    }
}

/// Every combination, eager first.
fn settings(scale: &Scale) -> Vec<Setting> {
    let mut settings = Vec::new();
    for shielding in SHIELDINGS {
        for policy in POLICIES {
            for &priorities in scale.priorities {
                for awake in Awake::BOTH {
                    settings.extend(scale.tenants.iter().map(|&tenants| Setting {
                        shielding,
                        policy,
                        tenants,
                        awake,
                        priorities,
                    }));
                }
            }
        }
    }
    settings
}

/// Every setting on a simulated machine.
fn simulated(machine: &Machine, scale: &Scale) -> Result<Vec<Point>> {
    let simulate = |setting: Setting| setting.simulate(machine, scale);
    settings(scale).into_iter().map(simulate).collect()
}

/// Every setting, timed on this host.
fn measured(name: &'static str, scale: &Scale) -> Result<Vec<Point>> {
    let settings = settings(scale);
    let cycles = Cycles::calibrate();
    let mut progress = Progress::new(name, settings.len() as u64);
    let mut points = Vec::new();
    for setting in settings {
        progress.at(format!("{} tenants", setting.tenants));
        points.push(setting.measure(&cycles, scale)?);
        progress.step();
    }
    Ok(points)
}

impl Setting {
    /// Times invocations, the first round of them left out: it warms up what a scheduler has when
    /// it has run for a while.
    fn measure(&self, cycles: &Cycles, scale: &Scale) -> Result<Point> {
        let mut point = Point::new(CELL, *self);
        let mut since = None;
        let (mut block, mut in_block) = (0, 0);
        let (mut asleep, mut times_asleep) = (0, 0);
        self.play(|round, tenants, now| {
            let start = cycles.start();
            let decision = black_box(tenants.scheduler.schedule(now));
            let taken = cycles.stop(start);
            if round == 0 {
                return Some(decision);
            }
            point.count(&decision);
            if tenants.running(&decision).is_some() {
                let since = *since.get_or_insert_with(clock::monotonic_ns);
                let ns = cycles.nanoseconds(cycles.net(taken) as f64).round();
                point.decide_ns.record(ns as u64);
                (block, in_block) = (block + taken, in_block + 1);
                if in_block == BLOCK {
                    let mean = cycles.mean(block, in_block);
                    let mean = mean.map(|mean| cycles.nanoseconds(mean));
                    point.blocks_ns.extend(mean);
                    (block, in_block) = (0, 0);
                }
                if point.decide_ns.count() >= scale.invocations
                    || clock::monotonic_ns() - since >= scale.point_ns
                {
                    return None;
                }
            } else if taken < INTERRUPTED {
                (asleep, times_asleep) = (asleep + taken, times_asleep + 1);
            }
            Some(decision)
        })?;
        let mean_ns = |total, count| {
            let mean = cycles.mean(total, count);
            mean.map(|mean| cycles.nanoseconds(mean))
        };
        if point.blocks_ns.is_empty() {
            // There was time for less than a whole one.
            point.blocks_ns.extend(mean_ns(block, in_block));
        }
        point.asleep_ns = mean_ns(asleep, times_asleep);
        Ok(point)
    }

    /// Counts what two rounds of invocations do, the first of which is left out as when they are
    /// timed.
    fn simulate(&self, machine: &Machine, scale: &Scale) -> Result<Point> {
        let mut point = Point::new(machine.platform, *self);
        self.play(|round, tenants, now| {
            let decision = tenants.scheduler.schedule(now);
            if round > 0 {
                point.count(&decision);
                let ns = machine.costs.deciding(&decision);
                match tenants.running(&decision) {
                    Some(_) => point.decide_ns.record(ns),
                    None => point.asleep_ns = Some(ns as f64),
                }
            }
            let all = round > 1 || point.decide_ns.count() >= scale.invocations;
            (!all).then_some(decision)
        })?;
        Ok(point)
    }

    /// Lets the tenants wake up, run for a moment and sleep again. Each invocation of the scheduler
    /// is told the round, which begins when all sleep, and ends it with no decision.
    fn play(
        &self,
        mut invoke: impl FnMut(u64, &mut Tenants, Nanos) -> Option<Decision>,
    ) -> Result<()> {
        let mut tenants = self.tenants()?;
        let (mut now, mut round) = (0, 0);
        let mut decision = tenants.scheduler.schedule(now);
        loop {
            match tenants.running(&decision) {
                Some(task) => {
                    now += MOMENT;
                    sleep(&mut tenants.scheduler, task, now)?;
                }
                None => {
                    round += u64::from(now > 0);
                    now = decision.timer.map_or(now, |timer| timer.max(now));
                }
            }
            match invoke(round, &mut tenants, now) {
                Some(next) => decision = next,
                None => return Ok(()),
            }
        }
    }

    /// All of them asleep.
    fn tenants(&self) -> Result<Tenants> {
        let mut scheduler = Scheduler::new(Config {
            order: Order::FixedPriority,
            shielding: self.shielding,
            servers: self.tenants + 1,
            tasks: self.tenants + 1,
            seed: 0,
        });
        let background = scheduler.add_background(PERIOD)?;
        let background = scheduler.add_task(background)?;
        scheduler.wake(background, 0)?;
        for tenant in 0..self.tenants {
            // In an order that no list would like.
            let priority = (u64::from(tenant) * 0x9E37_79B9 % u64::from(self.priorities)) as u8;
            let contract = contract(PERIOD / 20_000, PERIOD, 0, self.policy, RING)
                .with_priority(Priority(priority));
            let server = scheduler.add_server(&contract, 0)?;
            let task = scheduler.add_task(server)?;
            match self.awake {
                Awake::Few if tenant >= FEW => scheduler.block(task, 0, Some(FOREVER))?,
                _ => sleep(&mut scheduler, task, 0)?,
            }
        }
        Ok(Tenants {
            scheduler,
            background,
        })
    }
}

/// The tenants of a setting, and their scheduler.
struct Tenants {
    scheduler: Scheduler,
    /// Runs while all of them sleep.
    background: TaskId,
}

impl Tenants {
    /// The task of theirs that a decision has run.
    fn running(&self, decision: &Decision) -> Option<TaskId> {
        decision.run.filter(|&task| task != self.background)
    }
}

/// A task sleeps until all wake up.
fn sleep(scheduler: &mut Scheduler, task: TaskId, now: Nanos) -> Result<()> {
    Ok(scheduler.block(task, now, Some((now / PERIOD + 1) * PERIOD))?)
}

impl Point {
    fn new(platform: &'static str, setting: Setting) -> Self {
        Self {
            platform,
            setting,
            decide_ns: Samples::new(),
            blocks_ns: Vec::new(),
            asleep_ns: None,
            touched: None,
            timeouts: 0,
        }
    }

    fn count(&mut self, decision: &Decision) {
        self.touched = self.touched.max(decision.touched);
        self.timeouts = self.timeouts.max(decision.timeouts);
    }

    /// The time of an invocation, ns.
    fn spread(&self) -> Option<Spread> {
        let blocks = Spread::of(self.blocks_ns.iter().copied());
        blocks.or_else(|| Spread::of_samples(&self.decide_ns))
    }

    fn median_ns(&self) -> Option<f64> {
        self.spread().map(|spread| tenths(spread.median))
    }

    fn row(&self) -> Row {
        let [platform, machine] = platform_keys(self.platform);
        row([
            ("policy", shielding_name(self.setting.shielding).into()),
            ("server", policy_name(self.setting.policy).into()),
            ("tenants", self.setting.tenants.into()),
            ("priorities", self.setting.priorities.into()),
            ("awake", self.setting.awake.name().into()),
            ("decide_ns_p50", self.median_ns().into()),
            ("decide_ns_p99", self.decide_ns.p99().into()),
            ("asleep_ns_avg", self.asleep_ns.map(tenths).into()),
            ("touched_max", self.touched.into()),
            ("timeouts_max", self.timeouts.into()),
            platform,
            machine,
            ("decide_ns_max", self.decide_ns.max().into()),
        ])
    }
}

/// As rows show it.
fn tenths(ns: f64) -> f64 {
    (ns * 10.0).round() / 10.0
}

fn curve<'a>(
    points: &'a [Point],
    platform: &'a str,
    shielding: Shielding,
    policy: Policy,
    awake: Awake,
    priorities: u32,
) -> impl DoubleEndedIterator<Item = &'a Point> {
    points.iter().filter(move |point| {
        let setting = point.setting;
        point.platform == platform
            && (setting.shielding, setting.policy) == (shielding, policy)
            && (setting.awake, setting.priorities) == (awake, priorities)
    })
}

fn findings(points: &[Point], scale: &Scale) -> Vec<Finding> {
    let mut findings = Vec::new();
    for policy in POLICIES {
        for &priorities in scale.priorities {
            let of = |awake| curve(points, CELL, Shielding::Shielded, policy, awake, priorities);
            let mut few = of(Awake::Few);
            let (least, most) = (few.next(), few.next_back());
            let growth = most
                .and_then(Point::median_ns)
                .zip(least.and_then(Point::median_ns))
                .map(|(most, least)| most / least);
            let tenants = most.map_or(0, |point| point.setting.tenants);
            let title = format!(
                "shielded, {}, {priorities} priorities, {} tenants",
                policy_name(policy),
                Unit::Count.humane(f64::from(tenants))
            );
            findings.push(Finding::at_most(
                format!("{title}, few awake: a decision against one with a single tenant"),
                Unit::Ratio,
                growth,
                FLAT,
            ));
            let all = of(Awake::All).next_back();
            findings.push(Finding::at_most(
                format!("{title}, all awake: median decision"),
                Unit::Nanoseconds,
                all.and_then(Point::median_ns),
                COLD_NS,
            ));
        }
    }
    findings.extend(simulated_findings(points, scale));
    let touched = points
        .iter()
        .filter(|point| point.setting.shielding == Shielding::Shielded)
        .filter_map(|point| point.touched.map(f64::from))
        .reduce(f64::max);
    // Counting takes time, so that it is done where times do not matter.
    findings.extend(touched.map(|touched| {
        Finding::at_most(
            "shielded: reservations touched by an invocation",
            Unit::Count,
            Some(touched),
            2.0,
        )
    }));
    findings
}

/// The findings on the longest invocation of the simulated machine, which has no noise: it must not
/// grow with the tenants that wake up together, unless it is an eager one.
fn simulated_findings(points: &[Point], scale: &Scale) -> Vec<Finding> {
    let platform = MACHINES[0].platform;
    let mut findings = Vec::new();
    for (policy, shielding) in POLICIES
        .into_iter()
        .flat_map(|policy| SHIELDINGS.map(|shielding| (policy, shielding)))
    {
        let priorities = scale.priorities[0];
        let mut all = curve(points, platform, shielding, policy, Awake::All, priorities);
        let (least, most) = (all.next(), all.next_back());
        let growth = most
            .zip(least)
            .and_then(|(most, least)| most.decide_ns.ratio_to(&least.decide_ns, 1.0));
        let title = format!(
            "{platform}, {}, {}: longest invocation with most tenants, against one with a single one",
            shielding_name(shielding),
            policy_name(policy)
        );
        findings.push(match shielding {
            Shielding::Shielded => Finding::at_most(title, Unit::Ratio, growth, FLAT),
            Shielding::Eager => Finding::at_least(title, Unit::Ratio, growth, GROWS),
        });
    }
    findings
}

/// The least growth of an eager scheduler's longest invocation.
const GROWS: f64 = 10.0;
/// The largest ratio between decisions with most tenants and with one that still counts as flat.
const FLAT: f64 = 1.5;
/// The limit for a decision when none of its data is in a cache.
const COLD_NS: f64 = 1_000.0;

fn figure(points: &[Point]) -> Figure {
    let panel = |(policy, awake): (Policy, Awake)| {
        let mut priorities: Vec<u32> = points.iter().map(|p| p.setting.priorities).collect();
        priorities.sort_unstable();
        priorities.dedup();
        let series = SHIELDINGS
            .into_iter()
            .flat_map(|shielding| priorities.iter().map(move |&levels| (shielding, levels)))
            .map(|(shielding, levels)| Series {
                name: format!("{}, {levels} prio.", shielding_name(shielding)),
                points: curve(points, CELL, shielding, policy, awake, levels)
                    .filter_map(|point| Some((f64::from(point.setting.tenants), point.spread()?)))
                    .collect(),
            })
            .collect();
        Panel {
            y: Axis::logarithmic(
                format!("{}, {} awake", policy_name(policy), awake.name()),
                Unit::Nanoseconds,
            ),
            marks: Marks::Curves {
                x: Axis::logarithmic("tenants", Unit::Count),
                series,
            },
        }
    };
    Figure {
        title: "One invocation of the scheduler".into(),
        panels: POLICIES
            .into_iter()
            .flat_map(|policy| Awake::BOTH.map(|awake| (policy, awake)))
            .map(panel)
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Awake, FEW, MACHINES, QUICK, Scale, measured, simulated, simulated_findings};
    use leasehold_reserve::Shielding;

    #[test]
    fn an_eager_invocation_touches_all_tenants_and_a_shielded_one_two() {
        let scale = Scale {
            commanded: 1,
            tenants: &[50],
            priorities: &[4],
            invocations: 200,
            point_ns: 1_000_000_000,
        };
        for point in measured("test", &scale).expect("measured") {
            let awake = match point.setting.awake {
                Awake::Few => FEW,
                Awake::All => 50,
            };
            match point.setting.shielding {
                Shielding::Eager => assert!(point.timeouts >= awake),
                Shielding::Shielded => {
                    assert!(point.touched.is_some_and(|it| it <= 2) && point.timeouts == 1);
                }
            }
            assert!(point.median_ns() > Some(0.0));
        }
    }

    #[test]
    fn a_simulated_invocation_does_not_grow_with_the_tenants_unless_it_is_eager() {
        let scale = Scale {
            tenants: &[1, 100],
            ..QUICK
        };
        let points = simulated(&MACHINES[0], &scale).expect("simulated");
        let findings = simulated_findings(&points, &scale);
        assert_eq!(findings.len(), 4);
        for finding in findings {
            assert!(finding.holds(), "{finding}");
        }
        // The same every time.
        let again = simulated(&MACHINES[0], &scale).expect("simulated");
        let rows =
            |points: &[super::Point]| points.iter().map(super::Point::row).collect::<Vec<_>>();
        assert_eq!(rows(&points), rows(&again));
    }
}
