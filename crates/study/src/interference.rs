//! `interference`: a coordinated timer interference attack (SPR §V-A, fig. 9 and 10; attack A2).
//!
//! `N` attackers of low priority suspend themselves `S` times each and are woken again at once by
//! a task of still lower priority. Every time a little of their budgets is used, to come back one
//! period later, and then the victim runs, with a higher priority than all of them. An eager
//! scheduler takes a timer interrupt for each of the `N × S` replenishments while the victim
//! runs. The victim's interference is what its job took beyond its own work.

use std::time::Duration;

use anyhow::{Context, Result};
use leasehold_reserve::simulate::{Behaviour, Event, Simulation, Sink, Step, TaskIndex};
use leasehold_reserve::{Config, Nanos, Order, Policy, Shielding};

use crate::contest::{self, Contest};
use crate::plot::{Axis, Figure, Marks, Panel, Series};
use crate::progress::Progress;
use crate::report::{Finding, Report, Row, row};
use crate::reservation::{
    MACHINES, MS, Machine, SHIELDINGS, US, contract, note_on_machines, policy_name, shielding_name,
};
use crate::samples::{Samples, Spread, interleaved};
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
/// The part of a period that an attacker has on a real cell for one suspension. It may use half of
/// it, and works for a fifth: so all of them are admissible, and through before the victim's next
/// job.
const CELL_PRICK: Nanos = 120 * US;
/// The shortest period on a real cell.
const CELL_PERIOD: Nanos = 40 * MS;
/// How long an attacker on a real cell sleeps between two pieces of its work.
const CELL_NAP: Nanos = 10 * US;
/// Attack and victim take turns, a period each.
const ROUND: Nanos = 2 * PERIOD;

/// The study; see the [module](self).
pub struct Interference;

struct Scale {
    attackers: &'static [u32],
    rounds: u64,
    /// The same on a real cell.
    cell_attackers: &'static [u32],
    cell_rounds: usize,
    /// Jobs of the victim in a round that count.
    cell_jobs: usize,
}

const FULL: Scale = Scale {
    attackers: &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024],
    rounds: 5,
    cell_attackers: &[1, 16, 64, 256],
    cell_rounds: 3,
    cell_jobs: 3,
};
const QUICK: Scale = Scale {
    attackers: &[1, 32, 1024],
    rounds: 1,
    cell_attackers: &[1, 16, 64],
    cell_rounds: 2,
    cell_jobs: 2,
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
        let mut points = simulated(self.name(), scale)?;
        points.extend(measured(self.name(), scale, options)?);
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
        report.notes.push(contest::note());
        report.notes.push(format!(
            "cell: attackers nap for {} after each piece of work. A job of the victim lasts for \
             two fifths of the attackers' period, which is {} for each of their suspensions: what \
             other processes take grows with it, so that gaps compare eager with shielded, and \
             not one number of attackers with another. Interference is the sum of the gaps of \
             more than 1.5 µs in a job; timer interrupts are those that the scheduler counted",
            Unit::Nanoseconds.humane(CELL_NAP as f64),
            Unit::Nanoseconds.humane(CELL_PRICK as f64)
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

/// Every attack on a real cell.
fn measured(name: &'static str, scale: &Scale, options: &Options) -> Result<Vec<Point>> {
    let arms = SHIELDINGS.len();
    let pairs = scale.cell_attackers.len() * RINGS.len();
    let mut progress = Progress::new(name, (pairs * arms * scale.cell_rounds) as u64);
    let mut points = Vec::new();
    for ring in RINGS {
        for &attackers in scale.cell_attackers {
            let mut compared = SHIELDINGS.map(|shielding| Point {
                attack: Attack {
                    shielding,
                    attackers,
                    ring,
                },
                platform: contest::PLATFORM,
                interference_ns: Samples::new(),
                gaps_ns: Samples::new(),
                timer_interrupts: Samples::new(),
            });
            for arm in interleaved(arms, scale.cell_rounds) {
                progress.at(format!("a cell with {attackers} attackers"));
                compared[arm].play(options, scale.cell_jobs)?;
                progress.step();
            }
            points.extend(compared);
        }
    }
    Ok(points)
}

impl Point {
    /// One round on a real cell. Attack and victim take turns, as they do in the simulation.
    fn play(&mut self, options: &Options, jobs: usize) -> Result<()> {
        let Attack {
            shielding,
            attackers,
            ring,
        } = self.attack;
        let pricks = u64::from(attackers) * u64::from(ring);
        let period = (pricks * CELL_PRICK).max(CELL_PERIOD);
        let round = 2 * period;
        let busy = period * 2 / 5;

        let contest = Contest::new(options, shielding, attackers + 1)?;
        let budget = CELL_PRICK / 2 * u64::from(ring);
        let _attackers = contest.enter_attackers(
            "replenishment-storm",
            attackers,
            &[ring.into(), PRICK, CELL_NAP, round, period],
            &format!(
                "budget={budget}ns,period={period}ns,priority=100,policy=sporadic,\
                 replenishments={ring}"
            ),
        )?;
        let victim = contest.enter(
            "gap-probe",
            &contest.load("gap-probe")?,
            &[busy, round, 1],
            &format!("budget={}ns,period={round}ns,priority=200", busy * 5 / 4),
        )?;
        // The attack before the first job may have begun before everybody was there.
        victim.await_lines("interrupts", 1, Duration::ZERO)?;
        let before = victim.supply()?;
        let most = Duration::from_nanos(round * jobs as u64 - period);
        let all = victim.await_lines("interrupts", 1 + jobs, most)?.len();
        let timers = victim.supply()?.timers - before.timers;
        self.timer_interrupts.record(timers / (all as u64 - 1));
        for gaps in &victim.lines("gaps")[1..] {
            let sum = *gaps.get(1).context("a sum of gaps")?;
            self.gaps_ns.record(sum);
            self.interference_ns.record(sum);
        }
        Ok(())
    }
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
    for ring in RINGS {
        findings.extend(cell_findings(points, ring));
    }
    findings
}

/// What a real cell must show under the largest attack; nothing if there was none.
fn cell_findings(points: &[Point], ring: u32) -> Vec<Finding> {
    let most = |shielding| curve(points, contest::PLATFORM, shielding, ring).next_back();
    let (Some(eager), Some(shielded)) = (most(Shielding::Eager), most(Shielding::Shielded)) else {
        return Vec::new();
    };
    let title = format!("cell, S = {ring}, N = {}", eager.attack.attackers);
    let interrupts = |point: &Point| Some(point.timer_interrupts.p50()? as f64);
    vec![
        Finding::at_most(
            format!("{title}: shielded, timer interrupts in a job"),
            Unit::Count,
            interrupts(shielded),
            1.0,
        ),
        Finding::at_least(
            format!("{title}: eager, timer interrupts in a job"),
            Unit::Count,
            interrupts(eager),
            f64::from(eager.attack.attackers * ring) / 20.0,
        ),
        Finding::at_least(
            format!("{title}: interference, eager against shielded"),
            Unit::Ratio,
            eager
                .interference_ns
                .ratio_to(&shielded.interference_ns, 0.5),
            1.5,
        ),
    ]
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
            .map(|machine| machine.platform)
            .into_iter()
            .chain([contest::PLATFORM])
            .map(|platform| Panel {
                y: Axis::logarithmic(format!("interference, {platform}"), Unit::Nanoseconds),
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
