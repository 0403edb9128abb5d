//! `herd`: a Thundering Herd of replenishments (SPR §V-B, fig. 11 and 12; attack A1).
//!
//! `N` attackers of low priority have used up their budgets, all of which come back at the very
//! instant when a victim of high priority wakes up. An eager scheduler replenishes them all
//! before it comes to the victim. The wake-up latency is the time from the victim's planned
//! activation until it executes.

use std::time::Duration;

use anyhow::{Context, Result};
use leasehold_reserve::simulate::{Behaviour, Event, Simulation, Sink, TaskIndex};
use leasehold_reserve::{Config, Nanos, Order, Policy, Shielding};

use crate::contest::{self, Contest};
use crate::plot::{Axis, Figure, Marks, Panel, Series};
use crate::progress::Progress;
use crate::report::{Finding, Report, Row, row};
use crate::reservation::{
    MACHINES, MS, Machine, POLICIES, SHIELDINGS, US, contract, note_on_machines, policy_name,
    shielding_name,
};
use crate::samples::{Samples, Spread, interleaved};
use crate::study::{Options, Study};
use crate::unit::Unit;

/// Of the victim and of every attacker.
const PERIOD: Nanos = 100 * MS;
/// Of an attacker: with what their switches take, most of them together fit into a period.
const BUDGET: Nanos = 50 * US;
const VICTIM_WORK: Nanos = 100 * US;
const RING: u32 = 16;
/// Of an attacker on a real cell, where each depletion costs an interrupt besides.
const CELL_BUDGET: Nanos = 20 * US;

/// The study; see the [module](self).
pub struct Herd;

struct Scale {
    attackers: &'static [u32],
    periods: u64,
    cell: CellScale,
}

/// The same on a real cell.
struct CellScale {
    attackers: &'static [u32],
    rounds: usize,
    /// Of victim and attackers.
    period: Nanos,
    /// Wake-ups in a round that count.
    wakeups: usize,
}

const FULL: Scale = Scale {
    attackers: &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024],
    periods: 101,
    cell: CellScale {
        attackers: &[1, 16, 64, 256],
        rounds: 4,
        period: PERIOD,
        wakeups: 20,
    },
};
const QUICK: Scale = Scale {
    attackers: &[1, 32, 1024],
    periods: 11,
    cell: CellScale {
        attackers: &[1, 16, 64],
        rounds: 2,
        period: 40 * MS,
        wakeups: 8,
    },
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Attack {
    shielding: Shielding,
    policy: Policy,
    attackers: u32,
}

struct Point {
    attack: Attack,
    platform: &'static str,
    wakeup_ns: Samples,
    /// Most reservations that one invocation of the scheduler touched; a cell does not tell.
    touched: Option<u32>,
}

impl Study for Herd {
    fn name(&self) -> &'static str {
        "herd"
    }

    fn paper(&self) -> &'static str {
        "SPR fig. 12 (A1)"
    }

    fn about(&self) -> &'static str {
        "Wake-up latency of a victim at the instant when the budgets of many attackers of lower \
         priority are replenished, eager and shielded."
    }

    fn run(&self, options: &Options) -> Result<Report> {
        let scale = if options.quick { &QUICK } else { &FULL };
        let mut report = Report::new(self, options);
        let mut points = simulated(self.name(), scale)?;
        points.extend(measured(self.name(), &scale.cell, options)?);
        report.rows = points.iter().map(Point::row).collect();
        report.findings = findings(&points);
        report.notes.push(note_on_machines());
        report.notes.push(format!(
            "attackers and victim have a period of {}; the victim's first wake-up, before any \
             budget was used, does not count",
            Unit::Nanoseconds.humane(PERIOD as f64)
        ));
        report.notes.push(contest::note());
        report.notes.push(
            "cell: the victim's wake-up from an idle cell is the host's timer and the way to a \
             thread that sleeps, which takes longer than many replenishments. The herd is of \
             sporadic servers: a deferrable one's budget comes back at multiples of its period \
             since its tenant was started, which no guest chooses, so that there is no herd"
                .to_owned(),
        );
        report.figure = figure(&points);
        Ok(report)
    }
}

/// Every attack on every simulated machine.
fn simulated(name: &'static str, scale: &Scale) -> Result<Vec<Point>> {
    let attacks: Vec<Attack> = POLICIES
        .into_iter()
        .flat_map(|policy| SHIELDINGS.map(|shielding| (policy, shielding)))
        .flat_map(|(policy, shielding)| {
            scale.attackers.iter().map(move |&attackers| Attack {
                shielding,
                policy,
                attackers,
            })
        })
        .collect();
    let mut progress = Progress::new(name, (attacks.len() * MACHINES.len()) as u64);
    let mut points = Vec::new();
    for machine in &MACHINES {
        for attack in &attacks {
            progress.at(format!("{} attackers", attack.attackers));
            points.push(attack.simulate(machine, scale.periods)?);
            progress.step();
        }
    }
    Ok(points)
}

/// Every attack on a real cell. Its servers are sporadic: a deferrable one's budget comes back at
/// multiples of its period since its tenant was started, an instant that no guest chooses.
fn measured(name: &'static str, scale: &CellScale, options: &Options) -> Result<Vec<Point>> {
    let arms = SHIELDINGS;
    let turns = scale.attackers.len() * arms.len() * scale.rounds;
    let mut progress = Progress::new(name, turns as u64);
    let mut points = Vec::new();
    for &attackers in scale.attackers {
        let mut compared = arms.map(|shielding| Point {
            attack: Attack {
                shielding,
                policy: Policy::Sporadic,
                attackers,
            },
            platform: contest::PLATFORM,
            wakeup_ns: Samples::new(),
            touched: None,
        });
        for arm in interleaved(arms.len(), scale.rounds) {
            progress.at(format!("a cell with {attackers} attackers"));
            compared[arm].play(options, scale)?;
            progress.step();
        }
        points.extend(compared);
    }
    Ok(points)
}

impl Point {
    /// One round on a real cell.
    fn play(&mut self, options: &Options, scale: &CellScale) -> Result<()> {
        let attack = self.attack;
        let contest = Contest::new(options, attack.shielding, attack.attackers + 1)?;
        let cpu = |budget, priority| {
            format!(
                "budget={budget}ns,period={}ns,priority={priority},policy={}",
                scale.period,
                policy_name(attack.policy)
            )
        };
        let _attackers = contest.enter_attackers(
            "thundering-herd",
            attack.attackers,
            &[scale.period],
            &cpu(CELL_BUDGET, 100),
        )?;
        let probe = contest.load("latency-probe")?;
        let victim = contest.enter(
            "latency-probe",
            &probe,
            &[scale.period, 1],
            &cpu(10 * VICTIM_WORK, 200),
        )?;
        // The budgets that are used up from the first instant on come back from the second on.
        const FIRST: usize = 2;
        let wakeups = FIRST + scale.wakeups;
        let expected = Duration::from_nanos(scale.period * wakeups as u64);
        for late in &victim.await_lines("late", wakeups, expected)?[FIRST..] {
            self.wakeup_ns.record(*late.get(1).context("a latency")?);
        }
        Ok(())
    }
}

impl Attack {
    fn simulate(&self, machine: &Machine, periods: u64) -> Result<Point> {
        let config = Config {
            order: Order::FixedPriority,
            shielding: self.shielding,
            servers: self.attackers + 1,
            tasks: self.attackers + 1,
        };
        let mut simulation = Simulation::new(config, machine.costs, Wakeups::default());
        let server = |budget, priority| contract(budget, PERIOD, priority, self.policy, RING);
        let victim = simulation.server(&server(10 * VICTIM_WORK, 200))?;
        let job = Behaviour::Periodic {
            phase: PERIOD,
            period: PERIOD,
            execution: VICTIM_WORK,
        };
        simulation.task(victim, job)?;
        for _ in 0..self.attackers {
            let attacker = simulation.server(&server(BUDGET, 100))?;
            simulation.task(attacker, Behaviour::Busy)?;
        }
        simulation.run_until((periods + 1) * PERIOD)?;
        let wakeups = simulation.into_sink();
        Ok(Point {
            attack: *self,
            platform: machine.platform,
            wakeup_ns: wakeups.latencies,
            touched: Some(wakeups.touched),
        })
    }
}

/// Watches the victim, which is the first task.
#[derive(Default)]
struct Wakeups {
    latencies: Samples,
    touched: u32,
}

const VICTIM: TaskIndex = TaskIndex::new(0);

impl Sink for Wakeups {
    fn record(&mut self, event: &Event) {
        match *event {
            Event::Activated { task, planned, at } if task == VICTIM => {
                self.latencies.record(at - planned);
            }
            Event::Decided { touched, .. } => self.touched = self.touched.max(touched),
            _ => {}
        }
    }
}

impl Point {
    fn row(&self) -> Row {
        row([
            ("policy", shielding_name(self.attack.shielding).into()),
            ("server", policy_name(self.attack.policy).into()),
            ("n", self.attack.attackers.into()),
            ("wakeup_ns_p50", self.wakeup_ns.p50().into()),
            ("wakeup_ns_p99", self.wakeup_ns.p99().into()),
            ("platform", self.platform.into()),
            ("touched_max", self.touched.into()),
        ])
    }
}

fn curve<'a>(
    points: &'a [Point],
    platform: &'a str,
    shielding: Shielding,
    policy: Policy,
) -> impl DoubleEndedIterator<Item = &'a Point> {
    points.iter().filter(move |point| {
        point.platform == platform
            && point.attack.shielding == shielding
            && point.attack.policy == policy
    })
}

fn findings(points: &[Point]) -> Vec<Finding> {
    let growth = |platform, shielding, policy| {
        let mut curve = curve(points, platform, shielding, policy);
        let (least, most) = (curve.next()?, curve.next_back()?);
        most.wakeup_ns.ratio_to(&least.wakeup_ns, 0.5)
    };
    let mut findings = Vec::new();
    for machine in &MACHINES {
        for policy in POLICIES {
            let (platform, name) = (machine.platform, policy_name(policy));
            findings.push(Finding::at_most(
                format!(
                    "{platform}, {name}: shielded, wake-up latency with most attackers against one"
                ),
                Unit::Ratio,
                growth(platform, Shielding::Shielded, policy),
                1.2,
            ));
            findings.push(Finding::at_least(
                format!("{platform}, {name}: eager, the attack works"),
                Unit::Ratio,
                growth(platform, Shielding::Eager, policy),
                2.0,
            ));
        }
    }
    findings
}

fn figure(points: &[Point]) -> Figure {
    let series = |platform| {
        POLICIES
            .into_iter()
            .flat_map(|policy| SHIELDINGS.map(|shielding| (policy, shielding)))
            .map(|(policy, shielding)| Series {
                name: format!("{}, {}", shielding_name(shielding), policy_name(policy)),
                points: curve(points, platform, shielding, policy)
                    .filter_map(|point| {
                        let spread = Spread::of_samples(&point.wakeup_ns)?;
                        Some((f64::from(point.attack.attackers), spread))
                    })
                    .collect(),
            })
            .collect()
    };
    Figure {
        title: "Thundering Herd (A1)".into(),
        panels: MACHINES
            .map(|machine| machine.platform)
            .into_iter()
            .chain([contest::PLATFORM])
            .map(|platform| Panel {
                y: Axis::logarithmic(format!("wake-up latency, {platform}"), Unit::Nanoseconds),
                marks: Marks::Curves {
                    x: Axis::logarithmic("attackers", Unit::Count),
                    series: series(platform),
                },
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Attack, MACHINES, POLICIES, QUICK, Scale, findings, simulated};
    use leasehold_reserve::Shielding;

    #[test]
    fn eager_touches_every_attacker_at_once_and_shielded_two_reservations() {
        for policy in POLICIES {
            let touched = |shielding| {
                let attack = Attack {
                    shielding,
                    policy,
                    attackers: 20,
                };
                let point = attack.simulate(&MACHINES[0], 3).expect("passes");
                point.touched.expect("the simulator tells")
            };
            assert!(touched(Shielding::Eager) >= 20);
            assert!(touched(Shielding::Shielded) <= 2);
        }
    }

    #[test]
    fn the_shield_holds_and_the_attack_works_without_it() {
        let scale = Scale {
            attackers: &[1, 256],
            periods: 3,
            ..QUICK
        };
        assert!(scale.periods < QUICK.periods);
        let points = simulated("test", &scale).expect("simulated");
        for finding in findings(&points) {
            assert!(finding.holds(), "{finding}");
        }
    }
}
