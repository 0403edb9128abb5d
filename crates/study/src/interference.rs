//! `interference`: a coordinated timer interference attack (SPR §V-A, fig. 9 and 10; attack A2).
//!
//! `N` attackers of low priority suspend themselves `S` times each and are woken again at once by
//! a task of still lower priority. Every time a little of their budgets is used, to come back one
//! period later, and then the victim runs, with a higher priority than all of them. An eager
//! scheduler takes a timer interrupt for each of the `N × S` replenishments while the victim
//! runs. The victim's interference is what its job took beyond its own work.

use anyhow::Result;
use leasehold_reserve::simulate::{Behaviour, Event, Simulation, Sink, Step, TaskIndex};
use leasehold_reserve::{Config, Nanos, Order, Policy, Shielding};

use crate::plot::{Axis, Figure, Marks, Panel, Series};
use crate::progress::Progress;
use crate::report::{Finding, Report, Row, row};
use crate::reservation::{
    MACHINES, MS, Machine, SHIELDINGS, US, contract, note_on_machines, policy_name, shielding_name,
};
use crate::samples::{Samples, Spread};
use crate::study::{Options, Study};
use crate::unit::Unit;

/// Work of an attacker between two suspensions: long enough that the replenishments of an attack
/// are further apart than a timer interrupt takes, so that each has one of its own.
const PRICK: Nanos = 24 * US;
/// What an attacker may need beyond its work for calls and switches, per suspension.
const ALLOWANCE: Nanos = 10 * US;
/// The period of all servers: the last replenishment of the longest attack comes before the end
/// of the victim's job.
const PERIOD: Nanos = 4_000 * MS;
const VICTIM_WORK: Nanos = 1_200 * MS;
/// Attack and victim take turns, a period each.
const ROUND: Nanos = 2 * PERIOD;

/// The study; see the [module](self).
pub struct Interference;

struct Scale {
    attackers: &'static [u32],
    rounds: u64,
}

const FULL: Scale = Scale {
    attackers: &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024],
    rounds: 5,
};
const QUICK: Scale = Scale {
    attackers: &[1, 32, 1024],
    rounds: 1,
};
const RINGS: [u32; 2] = [16, 32];

/// One attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Attack {
    shielding: Shielding,
    attackers: u32,
    ring: u32,
}

/// What it did on one platform.
struct Point {
    attack: Attack,
    platform: &'static str,
    interference_ns: Samples,
    gaps_ns: Samples,
    /// In a job of the victim.
    timer_interrupts: Samples,
}

impl Study for Interference {
    fn name(&self) -> &'static str {
        "interference"
    }

    fn paper(&self) -> &'static str {
        "SPR fig. 10 (A2)"
    }

    fn about(&self) -> &'static str {
        "What a victim's job takes beyond its work while replenishments of attackers of lower \
         priority come due, eager and shielded."
    }

    fn run(&self, options: &Options) -> Result<Report> {
        let scale = if options.quick { &QUICK } else { &FULL };
        let mut report = Report::new(self, options);
        let points = simulated(self.name(), scale)?;
        report.rows = points.iter().map(Point::row).collect();
        report.findings = findings(&points);
        report.notes.push(note_on_machines());
        report.notes.push(format!(
            "the victim works for {}; interference is the time from its planned activation to the \
             end of its job less that, and includes one interrupt and one switch of its own; gaps \
             are what a loop that reads the clock would see while it runs; each attacker works \
             for {} between suspensions",
            Unit::Nanoseconds.humane(VICTIM_WORK as f64),
            Unit::Nanoseconds.humane(PRICK as f64)
        ));
        report.figure = figure(&points);
        Ok(report)
    }
}

/// Every attack on every simulated machine.
fn simulated(name: &'static str, scale: &Scale) -> Result<Vec<Point>> {
    let attacks: Vec<Attack> = SHIELDINGS
        .into_iter()
        .flat_map(|shielding| RINGS.map(|ring| (shielding, ring)))
        .flat_map(|(shielding, ring)| {
            scale.attackers.iter().map(move |&attackers| Attack {
                shielding,
                attackers,
                ring,
            })
        })
        .collect();
    let mut progress = Progress::new(name, (attacks.len() * MACHINES.len()) as u64);
    let mut points = Vec::new();
    for machine in &MACHINES {
        for attack in &attacks {
            progress.at(format!("{} attackers", attack.attackers));
            points.push(attack.simulate(machine, scale.rounds)?);
            progress.step();
        }
    }
    Ok(points)
}

impl Attack {
    fn simulate(&self, machine: &Machine, rounds: u64) -> Result<Point> {
        let config = Config {
            order: Order::FixedPriority,
            shielding: self.shielding,
            servers: self.attackers + 2,
            tasks: self.attackers + 2,
        };
        let mut simulation = Simulation::new(config, machine.costs, Watch::default());
        let sporadic =
            |budget, priority| contract(budget, PERIOD, priority, Policy::Sporadic, self.ring);

        let victim = simulation.server(&sporadic(PERIOD / 2, 200))?;
        let attackers_budget = (PRICK + ALLOWANCE) * u64::from(self.ring);
        let attacker = sporadic(attackers_budget, 100);
        let auxiliary = simulation.server(&sporadic(PERIOD / 2, 50))?;

        let job = Behaviour::Periodic {
            phase: PERIOD,
            period: ROUND,
            execution: VICTIM_WORK,
        };
        simulation.task(victim, job)?;
        simulation.task(auxiliary, self.auxiliary(rounds))?;
        for _ in 0..self.attackers {
            let server = simulation.server(&attacker)?;
            let steps = vec![Step::Await, Step::Run(PRICK)];
            simulation.task(
                server,
                Behaviour::Script {
                    steps,
                    repeat: true,
                },
            )?;
        }
        simulation.run_until(rounds * ROUND)?;
        let watch = simulation.into_sink();
        Ok(Point {
            attack: *self,
            platform: machine.platform,
            interference_ns: watch.beyond_work,
            gaps_ns: watch.gaps,
            timer_interrupts: watch.interrupts,
        })
    }

    /// Wakes every attacker as often as its ring has places, once per round.
    fn auxiliary(&self, rounds: u64) -> Behaviour {
        /// The victim and the auxiliary task come first.
        const OTHERS: u32 = 2;
        let steps = (0..rounds)
            .flat_map(|round| {
                let wakes = (0..self.ring).flat_map(|_| {
                    (0..self.attackers).map(|n| Step::Wake(TaskIndex::new(OTHERS + n)))
                });
                [Step::SleepUntil(round * ROUND)].into_iter().chain(wakes)
            })
            .collect();
        Behaviour::Script {
            steps,
            repeat: false,
        }
    }
}

/// Watches the victim, which is the first task, as the paper's does with a loop that reads the
/// time-stamp counter.
#[derive(Default)]
struct Watch {
    beyond_work: Samples,
    gaps: Samples,
    interrupts: Samples,
    job: Job,
}

/// The job that is under way.
#[derive(Default)]
struct Job {
    /// Until when the victim ran last.
    ran_until: Option<Nanos>,
    gaps: Nanos,
    interrupts: u64,
}

const VICTIM: TaskIndex = TaskIndex::new(0);

impl Sink for Watch {
    fn record(&mut self, event: &Event) {
        match *event {
            Event::Ran { task, from, to } if task == VICTIM => {
                let last = self.job.ran_until.replace(to);
                self.job.gaps += last.map_or(0, |last| from - last);
            }
            Event::TimerInterrupt { task, .. } if task == Some(VICTIM) => {
                self.job.interrupts += 1;
            }
            Event::Completed { task, planned, at } if task == VICTIM => {
                let job = std::mem::take(&mut self.job);
                self.beyond_work.record(at - planned - VICTIM_WORK);
                self.gaps.record(job.gaps);
                self.interrupts.record(job.interrupts);
            }
            _ => {}
        }
    }
}

impl Point {
    fn row(&self) -> Row {
        row([
            ("policy", shielding_name(self.attack.shielding).into()),
            ("server", policy_name(Policy::Sporadic).into()),
            ("n", self.attack.attackers.into()),
            ("s", self.attack.ring.into()),
            ("interference_ns_p50", self.interference_ns.p50().into()),
            ("timer_interrupts", self.timer_interrupts.p50().into()),
            ("platform", self.platform.into()),
            ("gaps_ns_p50", self.gaps_ns.p50().into()),
        ])
    }
}

/// The points of one curve, in the order of the number of attackers.
fn curve<'a>(
    points: &'a [Point],
    platform: &'a str,
    shielding: Shielding,
    ring: u32,
) -> impl DoubleEndedIterator<Item = &'a Point> {
    points.iter().filter(move |point| {
        point.platform == platform
            && point.attack.shielding == shielding
            && point.attack.ring == ring
    })
}

fn findings(points: &[Point]) -> Vec<Finding> {
    let growth = |platform, shielding, ring| {
        let mut curve = curve(points, platform, shielding, ring);
        let (least, most) = (curve.next()?, curve.next_back()?);
        most.interference_ns.ratio_to(&least.interference_ns, 0.5)
    };
    let mut findings = Vec::new();
    for machine in &MACHINES {
        for ring in RINGS {
            let platform = machine.platform;
            findings.push(Finding::at_most(
                format!(
                    "{platform}, S = {ring}: shielded, interference by most attackers against one"
                ),
                Unit::Ratio,
                growth(platform, Shielding::Shielded, ring),
                1.2,
            ));
            findings.push(Finding::at_least(
                format!("{platform}, S = {ring}: eager, the attack works"),
                Unit::Ratio,
                growth(platform, Shielding::Eager, ring),
                10.0,
            ));
        }
    }
    findings
}

fn figure(points: &[Point]) -> Figure {
    let series = |platform| {
        SHIELDINGS
            .into_iter()
            .flat_map(|shielding| RINGS.map(|ring| (shielding, ring)))
            .map(|(shielding, ring)| Series {
                name: format!("{}, S = {ring}", shielding_name(shielding)),
                points: curve(points, platform, shielding, ring)
                    .filter_map(|point| {
                        let spread = Spread::of_samples(&point.interference_ns)?;
                        Some((f64::from(point.attack.attackers), spread))
                    })
                    .collect(),
            })
            .collect()
    };
    Figure {
        title: "Coordinated timer interference (A2)".into(),
        panels: MACHINES
            .iter()
            .map(|machine| Panel {
                y: Axis::logarithmic(
                    format!("interference, {}", machine.platform),
                    Unit::Nanoseconds,
                ),
                marks: Marks::Curves {
                    x: Axis::logarithmic("attackers", Unit::Count),
                    series: series(machine.platform),
                },
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Attack, MACHINES, QUICK, Scale, findings, simulated};
    use leasehold_reserve::Shielding;

    #[test]
    fn eager_takes_an_interrupt_for_every_replenishment_and_shielded_none() {
        let attack = |shielding| Attack {
            shielding,
            attackers: 8,
            ring: 16,
        };
        let interrupts = |shielding| {
            let point = attack(shielding).simulate(&MACHINES[0], 1).expect("passes");
            point.timer_interrupts.p50().expect("one job")
        };
        // The ring has a place for the budget that is left, too, so one replenishment of each
        // attacker joins another; and the first come due while the victim is being dispatched.
        let eager = interrupts(Shielding::Eager);
        assert!((8 * 14..=8 * 16).contains(&eager), "{eager}");
        assert_eq!(interrupts(Shielding::Shielded), 0);
    }

    #[test]
    fn the_shield_holds_and_the_attack_works_without_it() {
        let scale = Scale {
            attackers: &[1, 64],
            ..QUICK
        };
        let points = simulated("test", &scale).expect("simulated");
        for finding in findings(&points) {
            assert!(finding.holds(), "{finding}");
        }
    }
}
