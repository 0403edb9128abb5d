//! `storm`: a preemption storm (SPR §V-C, table III; attack A3).
//!
//! A victim of low priority computes within its reservation while a task of higher priority sleeps
//! for 10 µs at a time, again and again. Each time the victim pays for a timer interrupt and a
//! context switch with its own budget, and for reloading what the attacker evicted from the
//! caches. A non-preemptive region bounds how often. Throughput is the victim's work per period
//! over what it is without an attack.

use std::time::Duration;

use anyhow::{Context, Result};
use leasehold_reserve::simulate::{Behaviour, CostModel, Simulation, Tally};
use leasehold_reserve::{Config, Nanos, Order, Policy, Shielding};

use crate::contest::{self, Contest};
use crate::plot::{Axis, Figure, Marks, Panel, Series};
use crate::progress::Progress;
use crate::report::{Finding, Report, Row, row};
use crate::reservation::{
    MACHINES, MS, Machine, POLICIES, SHIELDINGS, US, contract, note_on_machines, policy_name,
    shielding_name,
};
use crate::samples::{Spread, interleaved, ratio_value};
use crate::study::{Options, Study};
use crate::unit::Unit;

/// How long the attacker sleeps (SPR §V-C).
const NAP: Nanos = 10 * US;
/// Of the non-preemptive region.
const REGIONS: [Nanos; 3] = [0, MS, 2 * MS];
const RING: u32 = 32;
/// What must be left of the throughput with the longest region.
const ENOUGH: f64 = 0.99;

/// The study; see the [module](self).
pub struct Storm;

struct Scale {
    /// Of the victim; its period is five times as long, as in the paper.
    budget: Nanos,
    cell: CellScale,
}

/// The same on a real cell.
struct CellScale {
    budget: Nanos,
    policies: &'static [Policy],
    rounds: usize,
}

const FULL: Scale = Scale {
    budget: 1_000 * MS,
    cell: CellScale {
        budget: 400 * MS,
        policies: &POLICIES,
        rounds: 3,
    },
};
const QUICK: Scale = Scale {
    budget: 100 * MS,
    cell: CellScale {
        budget: 60 * MS,
        policies: &[Policy::Sporadic],
        rounds: 2,
    },
};
/// Bytes that the attacker on a real cell walks through to evict the caches: more than any
/// first-level cache, and a part of the second level.
const CELL_EVICTED: u64 = 256 << 10;
/// Products of matrices that the victim on a real cell counts at a time.
const PRODUCTS: u64 = 1;

/// What the attacker does between two naps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attack {
    None,
    TimerFlood,
    Cache,
}

impl Attack {
    const ALL: [Self; 3] = [Self::None, Self::TimerFlood, Self::Cache];

    const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::TimerFlood => "timer_flood",
            Self::Cache => "cache",
        }
    }

    /// Time that the attacker runs: enough for its call, or to evict the caches.
    const fn run(self) -> Nanos {
        match self {
            Self::None => 0,
            Self::TimerFlood => US / 2,
            Self::Cache => 20 * US,
        }
    }

    /// Time that the victim spends on reloading its caches: a few lines, or 128 KiB from the
    /// next level at 25 GB/s.
    const fn refill(self) -> Nanos {
        match self {
            Self::None => 0,
            Self::TimerFlood => US / 4,
            Self::Cache => 5 * US,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Scene {
    platform: &'static str,
    shielding: Shielding,
    policy: Policy,
    region: Nanos,
    attack: Attack,
}

struct Point {
    scene: Scene,
    /// Most preemptions of the victim in its first period.
    preemptions: u64,
    /// Of each round.
    throughput: Vec<f64>,
}

/// What the victim got done in its first period.
struct Work {
    /// Simulated: time. On a real cell: matrix products for each second that it was charged.
    done: f64,
    preemptions: u64,
}

impl Study for Storm {
    fn name(&self) -> &'static str {
        "storm"
    }

    fn paper(&self) -> &'static str {
        "SPR table III (A3)"
    }

    fn about(&self) -> &'static str {
        "Work that a victim gets done per period while a task of higher priority preempts it \
         after every 10 µs of sleep, for three lengths of its non-preemptive region."
    }

    fn run(&self, options: &Options) -> Result<Report> {
        let scale = if options.quick { &QUICK } else { &FULL };
        let mut report = Report::new(self, options);
        let mut points = simulated(self.name(), scale)?;
        points.extend(measured(self.name(), &scale.cell, options)?);
        report.rows = points.iter().map(Point::row).collect();
        report.findings = findings(&points, scale);
        report.notes.push(note_on_machines());
        report.notes.push(format!(
            "a preempted victim spends {} (timer_flood) or {} (cache) on reloading its caches; \
             eager scheduling has no non-preemptive regions",
            Unit::Nanoseconds.humane(Attack::TimerFlood.refill() as f64),
            Unit::Nanoseconds.humane(Attack::Cache.refill() as f64)
        ));
        report.notes.extend(note_on_virtual_machines(&points));
        report.notes.push(contest::note());
        report.notes.push(format!(
            "cell: the victim's budget is {}; throughput is products of matrices per processor \
             time that it was charged, over the median of all victims without an attack. That time \
             includes what the host's other processes take meanwhile: preemptions are exact, \
             throughput is as quiet as the host. The cache attack walks through {} KiB",
            Unit::Nanoseconds.humane(scale.cell.budget as f64),
            CELL_EVICTED >> 10
        ));
        report.figure = figure(&points);
        Ok(report)
    }
}

/// The scenes of a platform in the order of the rows; of those with the same region, the one
/// without an attack comes first.
fn scenes(platform: &'static str, policies: &[Policy]) -> Vec<Scene> {
    let mut scenes = Vec::new();
    for &policy in policies {
        for shielding in SHIELDINGS {
            for region in REGIONS {
                scenes.extend(Attack::ALL.map(|attack| Scene {
                    platform,
                    shielding,
                    policy,
                    region,
                    attack,
                }));
            }
        }
    }
    scenes
}

/// Every scene on every simulated machine.
fn simulated(name: &'static str, scale: &Scale) -> Result<Vec<Point>> {
    let groups: Vec<_> = MACHINES
        .iter()
        .map(|machine| (machine, scenes(machine.platform, &POLICIES)))
        .collect();
    let count: usize = groups.iter().map(|(_, scenes)| scenes.len()).sum();
    let mut progress = Progress::new(name, count as u64);
    let mut points: Vec<Point> = Vec::new();
    for (machine, scenes) in groups {
        for group in scenes.chunks(Attack::ALL.len()) {
            let mut undisturbed = None;
            for scene in group {
                progress.at(scene.attack.name());
                let mut point = Point::new(*scene);
                point.add(&scene.simulate(machine, scale)?, &mut undisturbed);
                points.push(point);
                progress.step();
            }
        }
    }
    Ok(points)
}

/// Every scene on a real cell. Eager and shielded take turns.
fn measured(name: &'static str, scale: &CellScale, options: &Options) -> Result<Vec<Point>> {
    let scenes = scenes(contest::PLATFORM, scale.policies);
    let mut points: Vec<Point> = scenes.into_iter().map(Point::new).collect();
    let mut progress = Progress::new(name, (points.len() * scale.rounds) as u64);
    for turn in interleaved(points.len(), scale.rounds) {
        let point = &mut points[turn];
        progress.at(format!("a cell, {}", point.scene.attack.name()));
        let work = point.scene.play(scale, options)?;
        point.add(&work, &mut Some(1.0));
        progress.step();
    }
    for policy in scale.policies {
        let same = |point: &&mut Point| point.scene.policy == *policy;
        let base = undisturbed(&points, *policy).context("there is a victim without an attack")?;
        for point in points.iter_mut().filter(same) {
            for round in &mut point.throughput {
                *round /= base;
            }
        }
    }
    Ok(points)
}

/// What victims without an attack did on a real cell, in the middle: how timeouts are handled, and
/// regions, make no difference to whoever is alone, but the host's other processes do.
fn undisturbed(points: &[Point], policy: Policy) -> Option<f64> {
    let alone = points
        .iter()
        .filter(|point| point.scene.policy == policy && point.scene.attack == Attack::None);
    let rounds = alone.flat_map(|point| point.throughput.iter().copied());
    Spread::of(rounds).map(|spread| spread.median)
}

impl Scene {
    fn simulate(&self, machine: &Machine, scale: &Scale) -> Result<Work> {
        let config = Config {
            order: Order::FixedPriority,
            shielding: self.shielding,
            servers: 2,
            tasks: 2,
        };
        let mut simulation = Simulation::new(config, machine.costs, Tally::new());
        let period = 5 * scale.budget;
        let reservation = |budget, priority| contract(budget, period, priority, self.policy, RING);
        let victim = reservation(scale.budget, 100).with_nonpreemptive(self.region)?;
        let victim = simulation.server(&victim)?;
        simulation.task(victim, Behaviour::Busy)?;
        // It may go on for longer than the victim's budget lasts, whatever a nap costs.
        let attacker = simulation.server(&reservation(3 * scale.budget, 200))?;
        if self.attack != Attack::None {
            let naps = Behaviour::Alternating {
                run: self.attack.run(),
                sleep: NAP,
            };
            let task = simulation.task(attacker, naps)?;
            simulation.set_eviction(task, self.attack.refill());
        }
        simulation.run_until(period)?;
        let tally = simulation.sink().server(victim);
        Ok(Work {
            done: tally.work() as f64,
            preemptions: tally.preemptions(),
        })
    }

    /// The victim's first period on a real cell.
    fn play(&self, scale: &CellScale, options: &Options) -> Result<Work> {
        let contest = Contest::new(options, self.shielding, 2)?;
        let matrix = contest.load("matrix")?;
        let reservation = |budget: Nanos, priority: u8| {
            format!(
                "budget={budget}ns,period={}ns,priority={priority},policy={},replenishments={RING}",
                5 * scale.budget,
                policy_name(self.policy)
            )
        };
        let evicted = match self.attack {
            Attack::Cache => CELL_EVICTED,
            Attack::None | Attack::TimerFlood => 0,
        };
        let attackers = u32::from(self.attack != Attack::None);
        let _attackers = contest.enter_attackers(
            "timer-flood",
            attackers,
            &[NAP, evicted],
            &reservation(3 * scale.budget, 200),
        )?;
        let mut cpu = reservation(scale.budget, 100);
        if self.region > 0 {
            cpu.push_str(&format!(",nonpreemptive={}ns", self.region));
        }
        let victim = contest.enter("matrix", &matrix, &[PRODUCTS], &cpu)?;
        // Both budgets are used up by then, and none has come back.
        let most = Duration::from_nanos(scale.budget * 9 / 2);
        let done = victim.await_lines("done", 1, most)?;
        let done = done.last().and_then(|line| line.first());
        let done = *done.context("a number of products")? as f64;
        let supply = victim.supply()?;
        Ok(Work {
            done: done / (supply.used as f64 / 1e9),
            preemptions: supply.preemptions,
        })
    }

    /// The simulated machine; none is a real cell.
    fn machine(&self) -> Option<Machine> {
        MACHINES
            .into_iter()
            .find(|machine| machine.platform == self.platform)
    }

    /// What SPR eq. (2) allows to be lost of a budget, as a share of it: ⌈b/η⌉ preemptions, each
    /// with its overhead and its refill.
    fn allowed_loss(&self, budget: Nanos) -> Option<f64> {
        let preemptions = budget.div_ceil(Some(self.region).filter(|region| *region > 0)?);
        let costs: CostModel = self.machine()?.costs;
        let each = costs.preemption(RING) + self.attack.refill();
        Some((preemptions * each) as f64 / budget as f64)
    }
}

impl Point {
    /// Nothing measured yet.
    fn new(scene: Scene) -> Self {
        Self {
            scene,
            preemptions: 0,
            throughput: Vec::new(),
        }
    }

    /// Adds a round, in which the victim without an attack, which comes first, did `undisturbed`.
    fn add(&mut self, work: &Work, undisturbed: &mut Option<f64>) {
        let base = *undisturbed.get_or_insert(work.done);
        self.throughput.push(work.done / base);
        self.preemptions = self.preemptions.max(work.preemptions);
    }

    /// The median of the rounds.
    fn throughput(&self) -> Option<f64> {
        Spread::of(self.throughput.iter().copied()).map(|spread| spread.median)
    }

    fn row(&self) -> Row {
        row([
            ("policy", shielding_name(self.scene.shielding).into()),
            ("server", policy_name(self.scene.policy).into()),
            ("attack", self.scene.attack.name().into()),
            ("eta_ns", self.scene.region.into()),
            ("throughput_ratio", ratio_value(self.throughput())),
            ("platform", self.scene.platform.into()),
            ("preemptions", self.preemptions.into()),
        ])
    }
}

fn findings(points: &[Point], scale: &Scale) -> Vec<Finding> {
    let attacked = |point: &&Point| {
        point.scene.shielding == Shielding::Shielded && point.scene.attack != Attack::None
    };
    let mut findings = Vec::new();
    for point in points.iter().filter(attacked) {
        let scene = point.scene;
        let title = format!(
            "{}, {}, {}",
            scene.platform,
            policy_name(scene.policy),
            scene.attack.name()
        );
        if scene.region == REGIONS[2] && scene.platform == MACHINES[0].platform {
            findings.push(Finding::at_least(
                format!("{title}: throughput with η = 2 ms"),
                Unit::Ratio,
                point.throughput(),
                ENOUGH,
            ));
        }
        if let Some(allowed) = scene.allowed_loss(scale.budget) {
            let lost = point.throughput().map(|throughput| 1.0 - throughput);
            findings.push(Finding::at_most(
                format!(
                    "{title}, η = {}: lost, against what SPR eq. (2) allows",
                    Unit::Nanoseconds.tick(scene.region as f64)
                ),
                Unit::Ratio,
                lost.map(|lost| lost / allowed),
                1.0,
            ));
        }
        if scene.platform == contest::PLATFORM && scene.region > 0 {
            let allowed = scale.cell.budget.div_ceil(scene.region);
            findings.push(Finding::at_most(
                format!(
                    "{title}, η = {}: preemptions",
                    Unit::Nanoseconds.tick(scene.region as f64)
                ),
                Unit::Count,
                Some(point.preemptions as f64),
                allowed as f64,
            ));
        }
    }
    let mut cell = points
        .iter()
        .filter(|point| point.scene.platform == contest::PLATFORM);
    let eager = cell.find(|point| {
        point.scene.shielding == Shielding::Eager && point.scene.attack == Attack::TimerFlood
    });
    if let Some(eager) = eager {
        findings.push(Finding::at_least(
            "cell: eager, preemptions by a timer flood for each millisecond of the victim's",
            Unit::Count,
            Some(eager.preemptions as f64 * MS as f64 / scale.cell.budget as f64),
            2.0,
        ));
    }
    findings
}

/// What the longest region comes to where an interrupt is dear.
fn note_on_virtual_machines(points: &[Point]) -> Option<String> {
    let least = points
        .iter()
        .filter(|point| {
            point.scene.platform == MACHINES[1].platform
                && point.scene.shielding == Shielding::Shielded
                && point.scene.region == REGIONS[2]
        })
        .filter_map(Point::throughput)
        .reduce(f64::min)?;
    Some(format!(
        "in a virtual machine a preemption takes {} of every 2 ms region: {least:.3} of the \
         throughput is left, where the paper's machine keeps more than {ENOUGH}",
        Unit::Nanoseconds.humane(MACHINES[1].costs.preemption(1) as f64)
    ))
}

fn figure(points: &[Point]) -> Figure {
    let groups: Vec<String> = REGIONS
        .iter()
        .map(|region| match region {
            0 => "η = 0".into(),
            region => format!("η = {}", Unit::Nanoseconds.tick(*region as f64)),
        })
        .collect();
    let series = |platform: &str| {
        let of = |shielding, attack: Attack, name: String| Series {
            name,
            points: points
                .iter()
                .filter(|point| {
                    let scene = point.scene;
                    scene.platform == platform
                        && scene.policy == Policy::Sporadic
                        && scene.shielding == shielding
                        && scene.attack == attack
                })
                .filter_map(|point| {
                    let group = REGIONS
                        .iter()
                        .position(|region| *region == point.scene.region)?;
                    Some((group, Spread::of(point.throughput.iter().copied())?))
                })
                .collect(),
        };
        vec![
            of(Shielding::Eager, Attack::TimerFlood, "eager, flood".into()),
            of(
                Shielding::Shielded,
                Attack::TimerFlood,
                "shielded, flood".into(),
            ),
            of(Shielding::Eager, Attack::Cache, "eager, cache".into()),
            of(Shielding::Shielded, Attack::Cache, "shielded, cache".into()),
        ]
    };
    Figure {
        title: "Preemption storm (A3), sporadic servers".into(),
        panels: MACHINES
            .map(|machine| machine.platform)
            .into_iter()
            .chain([contest::PLATFORM])
            .map(|platform| Panel {
                y: Axis::linear(format!("throughput, {platform}"), Unit::Ratio),
                marks: Marks::Bars {
                    title: "non-preemptive region".into(),
                    groups: groups.clone(),
                    series: series(platform),
                },
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Attack, MACHINES, MS, QUICK, REGIONS, Scale, Scene, findings, simulated};
    use leasehold_reserve::{Policy, Shielding};

    const SMALL: Scale = Scale {
        budget: 20 * MS,
        ..QUICK
    };

    #[test]
    fn a_region_bounds_the_preemptions_and_the_loss() {
        let points = simulated("test", &SMALL).expect("simulated");
        for finding in findings(&points, &SMALL) {
            assert!(finding.holds(), "{finding}");
        }
        for point in points {
            let region = point.scene.region;
            if point.scene.shielding == Shielding::Shielded && region > 0 {
                assert!(point.preemptions < SMALL.budget.div_ceil(region));
            }
        }
    }

    #[test]
    fn without_a_region_the_storm_takes_much_of_the_throughput() {
        let scene = |attack| Scene {
            platform: MACHINES[1].platform,
            shielding: Shielding::Shielded,
            policy: Policy::Sporadic,
            region: REGIONS[0],
            attack,
        };
        let work = |attack| {
            let work = scene(attack).simulate(&MACHINES[1], &SMALL);
            work.expect("simulated").done
        };
        assert!(work(Attack::TimerFlood) * 2.0 < work(Attack::None));
    }
}
