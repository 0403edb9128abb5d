//! `interference`: a coordinated timer interference attack (SPR §V-A, fig. 9 and 10; attack A2).
//!
//! `N` attackers of low priority suspend themselves `S` times each and are woken again at once by a
//! task of still lower priority. Every time a little of their budgets is used, to come back one
//! period later, and then the victim runs, with a higher priority than all of them. An eager
//! scheduler takes a timer interrupt for each of the `N × S` replenishments while the victim runs.
//! The victim's interference is the time of its job beyond its own work.

use std::time::Duration;

use anyhow::{Context, Result};
use leasehold_reserve::simulate::{Behaviour, Event, Simulation, Sink, Step, TaskIndex};
use leasehold_reserve::{Config, Nanos, Order, Policy, Shielding};

use crate::harness::contest::{self, Contest, Contestant};
use crate::harness::experiment::{Options, Study};
use crate::harness::report::{Finding, Report, Row, row};
use crate::harness::samples::Samples;
use crate::harness::unit::Unit;
use crate::processor::reservation::{
    CELL, MS, Machine, US, contract, note_on_machines, platform_keys, policy_name, shielding_name,
};
use crate::processor::sweep::{self, Effect};

/// Work of an attacker between two suspensions: long enough that the replenishments of an attack
/// are further apart than a timer interrupt takes, so that each has one of its own.
const PRICK: Nanos = 24 * US;
/// The time that an attacker may need beyond its work for calls and switches, per suspension.
const ALLOWANCE: Nanos = 10 * US;
/// The period of all servers: the last replenishment of the longest attack comes before the end
/// of the victim's job.
const PERIOD: Nanos = 4_000 * MS;
const VICTIM_WORK: Nanos = 1_200 * MS;
/// The part of a period that an attacker has on a real cell for one suspension, if all of them
/// attack. It may use half of it, and works for a fifth: so they are admissible, and through before
/// the victim's next job.
const CELL_PRICK: Nanos = 120 * US;
/// The longest job of a victim on a real cell: with or without attackers, Linux stops a real-time
/// thread after 0.95 s of a second for the rest of it.
const CELL_JOB_MAX: Nanos = 940 * MS;
/// How long an attacker on a real cell sleeps between two pieces of its work.
const CELL_NAP: Nanos = 10 * US;
/// Attack and victim take turns, a period each.
const ROUND: Nanos = 2 * PERIOD;

/// The study; see the [module](self).
pub(crate) struct Interference;

struct Scale {
    attackers: &'static [u32],
    rounds: u64,
    cell: CellScale,
}

/// The same on a real cell.
struct CellScale {
    attackers: &'static [u32],
    rounds: usize,
    /// Jobs of the victim in a round, and as many alone before it and after.
    jobs: usize,
    /// The same of the attacks that are compared: shielded, by fewest and by most. The host's own
    /// disturbance of one job varies by as much as half.
    judged_jobs: usize,
}

const FULL: Scale = Scale {
    attackers: &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024],
    rounds: 5,
    cell: CellScale {
        attackers: &[1, 32, 1024],
        rounds: 4,
        jobs: 2,
        judged_jobs: 8,
    },
};
const QUICK: Scale = Scale {
    attackers: &[1, 32, 1024],
    rounds: 1,
    cell: CellScale {
        attackers: &[1, 16, 64],
        rounds: 1,
        jobs: 3,
        judged_jobs: 3,
    },
};
const RINGS: [u32; 2] = [16, 32];

type Attack = sweep::Attack<u32>;
type Point = sweep::Point<u32, Interfered>;

/// The effects of an attack on the victim's jobs.
#[derive(Default)]
struct Interfered {
    interference_ns: Samples,
    /// Of the same job without attackers; a simulated machine has no disturbances.
    undisturbed_ns: Option<Samples>,
    gaps_ns: Samples,
    /// In a job of the victim.
    timer_interrupts: Samples,
}

impl Effect for Interfered {
    fn delays(&self) -> &Samples {
        &self.interference_ns
    }

    fn undisturbed(&self) -> Option<&Samples> {
        self.undisturbed_ns.as_ref()
    }
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
        let mut points =
            sweep::simulated(self.name(), &RINGS, scale.attackers, |machine, attack| {
                simulate(attack, machine, scale.rounds)
            })?;
        let cell = &scale.cell;
        points.extend(sweep::measured(
            self.name(),
            &RINGS,
            cell.attackers,
            cell.rounds,
            |point| {
                play_alone(point, options, cell)?;
                play(point, options, cell)?;
                play_alone(point, options, cell)
            },
        )?);
        report.rows = points.iter().map(as_row).collect();
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
        report.notes.push(contest::note(options)?);
        report.notes.push(format!(
            "cell: attackers work for {} at a time and nap for {}. A job of the victim takes {} with \
             S = {} and {} with S = {}, however many attack. Interference is the sum of the gaps of \
             more than 1.5 µs in a job, which are also what the host itself interrupts: before and \
             after each round the victim does the same job alone, so that what grows by itself can \
             be told apart. Timer interrupts are those that the scheduler counted",
            Unit::Nanoseconds.humane(PRICK as f64),
            Unit::Nanoseconds.humane(CELL_NAP as f64),
            Unit::Nanoseconds.humane(cell.job(RINGS[0]) as f64),
            RINGS[0],
            Unit::Nanoseconds.humane(cell.job(RINGS[1]) as f64),
            RINGS[1],
        ));
        let variants = RINGS.map(|ring| (ring, format!("S = {ring}")));
        report.figure = sweep::figure(
            &points,
            "Coordinated timer interference (A2)",
            "interference",
            &variants,
        );
        Ok(report)
    }
}

impl CellScale {
    /// The period of the attackers, whatever their number: the largest attack fits into it.
    fn period(&self, ring: u32) -> Nanos {
        let most = self.attackers.iter().copied().max().unwrap_or(1);
        u64::from(most) * u64::from(ring) * CELL_PRICK
    }

    /// How many jobs of the victim a round of this attack has.
    fn jobs(&self, attack: &Attack) -> usize {
        let ends = [self.attackers.first(), self.attackers.last()];
        let is_judged =
            attack.shielding == Shielding::Shielded && ends.contains(&Some(&attack.attackers));
        if is_judged {
            self.judged_jobs
        } else {
            self.jobs
        }
    }

    /// How long a job of the victim takes: all replenishments come due during it, or as many as a
    /// job can wait for.
    fn job(&self, ring: u32) -> Nanos {
        (self.period(ring) * 2 / 5).min(CELL_JOB_MAX)
    }
}

/// One round on a real cell. Attack and victim take turns, as they do in the simulation.
fn play(point: &mut Point, options: &Options, scale: &CellScale) -> Result<()> {
    let Attack {
        shielding,
        attackers,
        variant: ring,
    } = point.attack;
    let (period, busy) = (scale.period(ring), scale.job(ring));
    let round = 2 * period;

    let contest = Contest::new(options, shielding, attackers + 1)?;
    let budget = CELL_PRICK / 2 * u64::from(ring);
    let _attackers = contest.enter_attackers(
        "replenishment-storm",
        attackers,
        &[ring.into(), PRICK, CELL_NAP, round, period],
        &format!(
            "budget={budget}ns,period={period}ns,priority=100,policy=sporadic,replenishments={ring}"
        ),
    )?;
    // All of them are there for the attack before the victim's first job.
    let attack = contest::sleep_until_multiple(round, period);
    contest::sleep_until(attack + period / 2);
    let victim = enter_victim(&contest, busy, round)?;
    let mut job_ends = attack + period + busy;
    for job in 0..scale.jobs(&point.attack) {
        let before = victim.supply()?.timers;
        contest::sleep_until(job_ends);
        victim.await_lines("interrupts", 1 + job, Duration::ZERO)?;
        let timers = victim.supply()?.timers - before;
        point.effect.timer_interrupts.record(timers);
        job_ends += round;
    }
    for sum in gaps(&victim.lines("gaps"))? {
        point.effect.gaps_ns.record(sum);
        point.effect.interference_ns.record(sum);
    }
    Ok(())
}

/// The victim of a round on a real cell, ready for its job at every multiple of `period`.
fn enter_victim(contest: &Contest, busy: Nanos, period: Nanos) -> Result<Contestant> {
    let victim = contest.enter(
        "gap-probe",
        &contest.load("gap-probe")?,
        &[busy, period, 1],
        &format!("budget={}ns,period={period}ns,priority=200", busy * 9 / 8),
    )?;
    victim.await_lines("ready", 1, Duration::ZERO)?;
    Ok(victim)
}

/// As many jobs of the victim, alone on a cell: what the host does to them at this time.
fn play_alone(point: &mut Point, options: &Options, scale: &CellScale) -> Result<()> {
    let Attack {
        shielding,
        variant: ring,
        ..
    } = point.attack;
    let busy = scale.job(ring);
    let period = busy * 5 / 4;
    let contest = Contest::new(options, shielding, 1)?;
    let victim = enter_victim(&contest, busy, period)?;
    let jobs = scale.jobs(&point.attack);
    let expected = Duration::from_nanos(period * jobs as u64);
    let alone = gaps(&victim.await_lines("gaps", jobs, expected)?)?;
    let undisturbed = point.effect.undisturbed_ns.get_or_insert_default();
    alone.into_iter().for_each(|sum| undisturbed.record(sum));
    Ok(())
}

/// The sums of gaps in a probe's lines, one for each job.
fn gaps(lines: &[Vec<u64>]) -> Result<Vec<Nanos>> {
    let sums = lines.iter().map(|line| line.get(1).copied());
    sums.collect::<Option<_>>().context("a sum of gaps")
}

fn simulate(attack: Attack, machine: &Machine, rounds: u64) -> Result<Interfered> {
    let config = Config {
        order: Order::FixedPriority,
        shielding: attack.shielding,
        servers: attack.attackers + 2,
        tasks: attack.attackers + 2,
        seed: 0,
    };
    let mut simulation = Simulation::new(config, machine.costs, Watch::default());
    let sporadic =
        |budget, priority| contract(budget, PERIOD, priority, Policy::Sporadic, attack.variant);

    let victim = simulation.server(&sporadic(PERIOD / 2, 200))?;
    let attackers_budget = (PRICK + ALLOWANCE) * u64::from(attack.variant);
    let attacker = sporadic(attackers_budget, 100);
    let auxiliary = simulation.server(&sporadic(PERIOD / 2, 50))?;

    let job = Behaviour::Periodic {
        phase: PERIOD,
        period: ROUND,
        execution: VICTIM_WORK,
    };
    simulation.task(victim, job)?;
    simulation.task(auxiliary, wake_ups(attack, rounds))?;
    for _ in 0..attack.attackers {
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
    Ok(Interfered {
        interference_ns: watch.beyond_work,
        undisturbed_ns: None,
        gaps_ns: watch.gaps,
        timer_interrupts: watch.interrupts,
    })
}

/// Wakes every attacker as often as its ring has places, once per round.
fn wake_ups(attack: Attack, rounds: u64) -> Behaviour {
    /// The victim and the auxiliary task come first.
    const OTHERS: u32 = 2;
    let steps = (0..rounds)
        .flat_map(|round| {
            let wakes = (0..attack.variant).flat_map(|_| {
                (0..attack.attackers).map(|n| Step::Wake(TaskIndex::new(OTHERS + n)))
            });
            [Step::SleepUntil(round * ROUND)].into_iter().chain(wakes)
        })
        .collect();
    Behaviour::Script {
        steps,
        repeat: false,
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

fn as_row(point: &Point) -> Row {
    let Interfered {
        interference_ns,
        undisturbed_ns,
        gaps_ns,
        timer_interrupts,
    } = &point.effect;
    let undisturbed_ns = undisturbed_ns.as_ref();
    let [platform, machine] = platform_keys(point.platform);
    row([
        ("policy", shielding_name(point.attack.shielding).into()),
        ("server", policy_name(Policy::Sporadic).into()),
        ("n", point.attack.attackers.into()),
        ("s", point.attack.variant.into()),
        ("interference_ns_p50", interference_ns.p50().into()),
        ("timer_interrupts", timer_interrupts.p50().into()),
        platform,
        machine,
        ("gaps_ns_p50", gaps_ns.p50().into()),
        (
            "undisturbed_ns_p50",
            undisturbed_ns.and_then(Samples::p50).into(),
        ),
    ])
}

fn findings(points: &[Point]) -> Vec<Finding> {
    // On a cell the gaps that the host makes are there without any attack.
    let growth = |platform: &str| if platform == CELL { 1.5 } else { 10.0 };
    let mut findings = Vec::new();
    for ring in RINGS {
        let title = format!("S = {ring}");
        let median = [("median", 0.5)];
        findings.extend(sweep::findings(points, ring, &title, &median, growth));
        findings.extend(interrupts_on_a_cell(points, ring));
    }
    findings
}

/// The claims on a real cell's timer interrupts under the largest attack, which are counted and not
/// measured; nothing if there was none.
fn interrupts_on_a_cell(points: &[Point], ring: u32) -> Vec<Finding> {
    let ends = |shielding| sweep::ends(points, CELL, shielding, ring);
    let (Some([_, eager]), Some([_, shielded])) =
        (ends(Shielding::Eager), ends(Shielding::Shielded))
    else {
        return Vec::new();
    };
    let title = format!("cell, S = {ring}, N = {}", eager.attack.attackers);
    let interrupts = |point: &Point, quantile| {
        let interrupts = point.effect.timer_interrupts.quantile(quantile)?;
        Some(interrupts as f64)
    };
    vec![
        Finding::at_most(
            format!("{title}: shielded, timer interrupts in any job"),
            Unit::Count,
            interrupts(shielded, 1.0),
            0.0,
        ),
        Finding::at_least(
            format!("{title}: eager, timer interrupts in a job"),
            Unit::Count,
            interrupts(eager, 0.5),
            f64::from(eager.attack.attackers * ring) / 20.0,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::{Attack, QUICK, RINGS, findings, simulate};
    use crate::processor::reservation::MACHINES;
    use crate::processor::sweep;
    use leasehold_reserve::Shielding;

    #[test]
    fn eager_takes_an_interrupt_for_every_replenishment_and_shielded_none() {
        let interrupts = |shielding| {
            let attack = Attack {
                shielding,
                attackers: 8,
                variant: 16,
            };
            let effect = simulate(attack, &MACHINES[0], 1).expect("passes");
            effect.timer_interrupts.p50().expect("one job")
        };
        // The ring has a place for the budget that is left, too, so one replenishment of each
        // attacker joins another; and the first come due while the victim is being dispatched.
        let eager = interrupts(Shielding::Eager);
        assert!((8 * 14..=8 * 16).contains(&eager), "{eager}");
        assert_eq!(interrupts(Shielding::Shielded), 0);
    }

    #[test]
    fn the_shield_holds_and_the_attack_works_without_it() {
        let points = sweep::simulated("test", &RINGS, &[1, 1024], |machine, attack| {
            simulate(attack, machine, QUICK.rounds)
        });
        for finding in findings(&points.expect("simulated")) {
            assert!(finding.holds(), "{finding}");
        }
    }
}
