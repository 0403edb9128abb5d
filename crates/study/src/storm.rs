//! `storm`: a preemption storm (SPR §V-C, table III; attack A3).
//!
//! A victim of low priority computes within its reservation while a task of higher priority sleeps
//! for 10 µs at a time, again and again. Each time the victim pays for a timer interrupt and a
//! context switch with its own budget, and for reloading what the attacker evicted from the
//! caches. A non-preemptive region bounds how often. Throughput is the victim's work per period
//! over what it is without an attack.

use anyhow::Result;
use leasehold_reserve::simulate::{Behaviour, CostModel, Simulation, Tally};
use leasehold_reserve::{Config, Nanos, Order, Policy, Shielding};

use crate::plot::{Axis, Figure, Marks, Panel, Series};
use crate::progress::Progress;
use crate::report::{Finding, Report, Row, row};
use crate::reservation::{
    MACHINES, MS, Machine, POLICIES, SHIELDINGS, US, contract, note_on_machines, policy_name,
    shielding_name,
};
use crate::samples::{Spread, ratio_value};
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
}

const FULL: Scale = Scale { budget: 1_000 * MS };
const QUICK: Scale = Scale { budget: 100 * MS };

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
    machine: Machine,
    shielding: Shielding,
    policy: Policy,
    region: Nanos,
    attack: Attack,
}

struct Point {
    scene: Scene,
    /// Of the victim, in its first period.
    work: Nanos,
    preemptions: u64,
    throughput: Option<f64>,
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
        let points = simulated(self.name(), scale)?;
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
        report.figure = figure(&points);
        Ok(report)
    }
}

/// Every scene on every simulated machine.
fn simulated(name: &'static str, scale: &Scale) -> Result<Vec<Point>> {
    let mut scenes = Vec::new();
    for machine in MACHINES {
        for policy in POLICIES {
            for shielding in SHIELDINGS {
                for region in REGIONS {
                    scenes.extend(Attack::ALL.map(|attack| Scene {
                        machine,
                        shielding,
                        policy,
                        region,
                        attack,
                    }));
                }
            }
        }
    }
    let mut progress = Progress::new(name, scenes.len() as u64);
    let mut points: Vec<Point> = Vec::new();
    for scene in scenes {
        progress.at(scene.attack.name());
        let mut point = scene.simulate(scale)?;
        // The scene without an attack comes first.
        let base = points
            .iter()
            .rfind(|base| base.scene.attack == Attack::None);
        let base = base.unwrap_or(&point);
        point.throughput = Some(point.work as f64 / base.work as f64);
        points.push(point);
        progress.step();
    }
    Ok(points)
}

impl Scene {
    fn simulate(&self, scale: &Scale) -> Result<Point> {
        let config = Config {
            order: Order::FixedPriority,
            shielding: self.shielding,
            servers: 2,
            tasks: 2,
        };
        let mut simulation = Simulation::new(config, self.machine.costs, Tally::new());
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
        Ok(Point {
            scene: *self,
            work: tally.work(),
            preemptions: tally.preemptions(),
            throughput: None,
        })
    }

    /// What SPR eq. (2) allows to be lost of a budget, as a share of it: ⌈b/η⌉ preemptions, each
    /// with its overhead and its refill.
    fn allowed_loss(&self, budget: Nanos) -> Option<f64> {
        let preemptions = budget.div_ceil(Some(self.region).filter(|region| *region > 0)?);
        let costs: CostModel = self.machine.costs;
        let each = costs.preemption(RING) + self.attack.refill();
        Some((preemptions * each) as f64 / budget as f64)
    }
}

impl Point {
    fn row(&self) -> Row {
        row([
            ("policy", shielding_name(self.scene.shielding).into()),
            ("server", policy_name(self.scene.policy).into()),
            ("attack", self.scene.attack.name().into()),
            ("eta_ns", self.scene.region.into()),
            ("throughput_ratio", ratio_value(self.throughput)),
            ("platform", self.scene.machine.platform.into()),
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
            scene.machine.platform,
            policy_name(scene.policy),
            scene.attack.name()
        );
        if scene.region == REGIONS[2] && scene.machine == MACHINES[0] {
            findings.push(Finding::at_least(
                format!("{title}: throughput with η = 2 ms"),
                Unit::Ratio,
                point.throughput,
                ENOUGH,
            ));
        }
        if let Some(allowed) = scene.allowed_loss(scale.budget) {
            let lost = point.throughput.map(|throughput| 1.0 - throughput);
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
    }
    findings
}

/// What the longest region comes to where an interrupt is dear.
fn note_on_virtual_machines(points: &[Point]) -> Option<String> {
    let least = points
        .iter()
        .filter(|point| {
            point.scene.machine == MACHINES[1]
                && point.scene.shielding == Shielding::Shielded
                && point.scene.region == REGIONS[2]
        })
        .filter_map(|point| point.throughput)
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
                    scene.machine.platform == platform
                        && scene.policy == Policy::Sporadic
                        && scene.shielding == shielding
                        && scene.attack == attack
                })
                .filter_map(|point| {
                    let group = REGIONS
                        .iter()
                        .position(|region| *region == point.scene.region)?;
                    Some((group, Spread::of([point.throughput?])?))
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
            .iter()
            .map(|machine| Panel {
                y: Axis::linear(format!("throughput, {}", machine.platform), Unit::Ratio),
                marks: Marks::Bars {
                    title: "non-preemptive region".into(),
                    groups: groups.clone(),
                    series: series(machine.platform),
                },
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Attack, MACHINES, MS, REGIONS, Scale, Scene, findings, simulated};
    use leasehold_reserve::{Policy, Shielding};

    const SMALL: Scale = Scale { budget: 20 * MS };

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
            machine: MACHINES[1],
            shielding: Shielding::Shielded,
            policy: Policy::Sporadic,
            region: REGIONS[0],
            attack,
        };
        let work = |attack| scene(attack).simulate(&SMALL).expect("simulated").work;
        assert!(work(Attack::TimerFlood) * 2 < work(Attack::None));
    }
}
