//! `herd`: a Thundering Herd of replenishments (SPR §V-B, fig. 11 and 12; attack A1).
//!
//! `N` attackers of low priority have used up their budgets, all of which come back at the very
//! instant when a victim of high priority wakes up. An eager scheduler replenishes them all
//! before it comes to the victim. The wake-up latency is the time from the victim's planned
//! activation until it executes.

use std::time::Duration;

use anyhow::{Context, Result};
use leasehold_reserve::simulate::{Behaviour, Event, Simulation, Sink, TaskIndex};
use leasehold_reserve::{Config, Nanos, Order, Policy};

use crate::harness::contest::{self, Contest};
use crate::harness::experiment::{Options, Study};
use crate::harness::report::{Finding, Report, Row, row};
use crate::harness::samples::Samples;
use crate::harness::unit::Unit;
use crate::processor::reservation::{
    MS, Machine, POLICIES, US, contract, note_on_machines, platform_keys, policy_name,
    shielding_name,
};
use crate::processor::sweep::{self, Effect};

/// Of the victim and of every attacker.
const PERIOD: Nanos = 100 * MS;
/// Of an attacker: with what their switches take, most of them together fit into a period.
const BUDGET: Nanos = 50 * US;
const VICTIM_WORK: Nanos = 100 * US;
const RING: u32 = 16;
/// The part of a period on a real cell for an attacker, if all of them attack: two budgets in a row,
/// as a deferrable server may have, and a fifth for others.
const CELL_SHARE: Nanos = 125 * US;
/// How long before and after each wake-up a tenant without a reservation keeps a real cell awake:
/// waking a processor that sleeps takes longer than many replenishments.
const VIGIL: Nanos = MS;
/// Bytes that it walks through meanwhile, so that a victim finds the same caches for any number of
/// attackers: a herd of a thousand evicts everything, one attacker nothing.
const EVICTED: u64 = 4 << 20;
/// How often a tenant in between wakes up meanwhile, so that the timer path of hypervisor and
/// kernel is equally warm for any number of attackers: a herd of a thousand has just used it a
/// thousand times, one attacker once.
const BEAT: Nanos = 100 * US;
/// The time that this tenant may need in a period.
const BEATS_BUDGET: Nanos = MS;

/// The study; see the [module](self).
pub(crate) struct Herd;

struct Scale {
    attackers: &'static [u32],
    periods: u64,
    cell: CellScale,
}

/// The same on a real cell.
struct CellScale {
    attackers: &'static [u32],
    rounds: usize,
    /// Wake-ups in a round that count.
    wakeups: usize,
}

const FULL: Scale = Scale {
    attackers: &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024],
    periods: 101,
    cell: CellScale {
        attackers: &[1, 1024],
        // Many short ones: the host's stops come in bursts, which are to fall on all points alike.
        rounds: 8,
        // A hundredth of all must be more than the host's own rare stops.
        wakeups: 75,
    },
};
const QUICK: Scale = Scale {
    attackers: &[1, 32, 1024],
    periods: 11,
    cell: CellScale {
        attackers: &[1, 16, 64, 256],
        rounds: 1,
        wakeups: 25,
    },
};

type Attack = sweep::Attack<Policy>;
type Point = sweep::Point<Policy, Woken>;

/// How late the victim was.
#[derive(Default)]
struct Woken {
    wakeup_ns: Samples,
    /// Most reservations that one invocation of the simulated scheduler touched, where that is counted.
    touched: Option<u32>,
}

impl Effect for Woken {
    fn delays(&self) -> &Samples {
        &self.wakeup_ns
    }
}

impl CellScale {
    /// Of victim and attackers, whatever their number: the largest herd fits into it, and what a
    /// victim finds in the caches after so long does not depend on how many attack.
    fn period(&self) -> Nanos {
        let most = self.attackers.iter().copied().max().unwrap_or(1);
        u64::from(most) * CELL_SHARE
    }
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
        let mut points = sweep::simulated(
            self.name(),
            &POLICIES,
            scale.attackers,
            |machine, attack| simulate(attack, machine, scale.periods),
        )?;
        let cell = &scale.cell;
        points.extend(sweep::measured(
            self.name(),
            &POLICIES,
            cell.attackers,
            cell.rounds,
            |point| play(point, options, cell),
        )?);
        report.rows = points.iter().map(as_row).collect();
        report.findings = findings(&points);
        report.notes.push(note_on_machines());
        report.notes.push(format!(
            "attackers and victim have a period of {}; the victim's first wake-up, before any \
             budget was used, does not count",
            Unit::Nanoseconds.humane(PERIOD as f64)
        ));
        report.notes.push(contest::note(options)?);
        report.notes.push(format!(
            "cell: a tenant without a reservation spins from {} before the victim's wake-up on, so \
             that the processor does not sleep then, and walks through {} MiB, so that what the \
             victim finds in the caches does not depend on what ran before; another wakes every {} \
             in that time, so that the way of a timer is as much in use; latency is from the instant \
             that the victim asked for to its first instruction, the host's timer included. The \
             period is {}, however many attack",
            Unit::Nanoseconds.humane(VIGIL as f64),
            EVICTED >> 20,
            Unit::Nanoseconds.humane(BEAT as f64),
            Unit::Nanoseconds.humane(cell.period() as f64),
        ));
        let variants = POLICIES.map(|policy| (policy, policy_name(policy).to_owned()));
        report.figure = sweep::figure(
            &points,
            "Thundering Herd (A1)",
            "wake-up latency",
            &variants,
        );
        Ok(report)
    }
}

/// One round on a real cell.
fn play(point: &mut Point, options: &Options, scale: &CellScale) -> Result<()> {
    let Attack {
        shielding,
        attackers,
        variant: policy,
    } = point.attack;
    let period = scale.period();
    let reservation = |budget, priority| {
        let policy = policy_name(policy);
        format!("budget={budget}ns,period={period}ns,priority={priority},policy={policy}")
    };
    let contest = Contest::new(options, shielding, attackers + 3)?;
    let _attackers = contest.enter_attackers(
        "thundering-herd",
        attackers,
        &[period],
        &reservation(BUDGET, 100),
    )?;
    let _vigil = contest.enter_unreserved("vigil", &[VIGIL, period, EVICTED])?;
    let _metronome = contest.enter(
        "metronome",
        &contest.load("metronome")?,
        &[VIGIL, period, BEAT],
        &reservation(BEATS_BUDGET, 150),
    )?;
    let victim = contest.enter(
        "latency-probe",
        &contest.load("latency-probe")?,
        &[period, 1],
        &reservation(10 * VICTIM_WORK, 200),
    )?;
    // The herd waits for eight periods until its budgets are whole, and uses them up at the next
    // instant; from the one after on they come back together.
    const FIRST: usize = 11;
    let wakeups = FIRST + scale.wakeups;
    let expected = Duration::from_nanos(period * wakeups as u64);
    for late in &victim.await_lines("late", wakeups, expected)?[FIRST..] {
        let latency = *late.get(1).context("a latency")?;
        point.effect.wakeup_ns.record(latency);
    }
    Ok(())
}

fn simulate(attack: Attack, machine: &Machine, periods: u64) -> Result<Woken> {
    let config = Config {
        order: Order::FixedPriority,
        shielding: attack.shielding,
        servers: attack.attackers + 1,
        tasks: attack.attackers + 1,
        seed: 0,
    };
    let mut simulation = Simulation::new(config, machine.costs, Wakeups::default());
    let server = |budget, priority| contract(budget, PERIOD, priority, attack.variant, RING);
    let victim = simulation.server(&server(10 * VICTIM_WORK, 200))?;
    let job = Behaviour::Periodic {
        phase: PERIOD,
        period: PERIOD,
        execution: VICTIM_WORK,
    };
    simulation.task(victim, job)?;
    for _ in 0..attack.attackers {
        let attacker = simulation.server(&server(BUDGET, 100))?;
        simulation.task(attacker, Behaviour::Busy)?;
    }
    simulation.run_until((periods + 1) * PERIOD)?;
    let wakeups = simulation.into_sink();
    Ok(Woken {
        wakeup_ns: wakeups.latencies,
        touched: wakeups.touched,
    })
}

/// Watches the victim, which is the first task.
#[derive(Default)]
struct Wakeups {
    latencies: Samples,
    touched: Option<u32>,
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

fn as_row(point: &Point) -> Row {
    let Woken { wakeup_ns, touched } = &point.effect;
    let [platform, machine] = platform_keys(point.platform);
    row([
        ("policy", shielding_name(point.attack.shielding).into()),
        ("server", policy_name(point.attack.variant).into()),
        ("n", point.attack.attackers.into()),
        ("wakeup_ns_p50", wakeup_ns.p50().into()),
        ("wakeup_ns_p99", wakeup_ns.p99().into()),
        platform,
        machine,
        ("touched_max", (*touched).into()),
    ])
}

fn findings(points: &[Point]) -> Vec<Finding> {
    let quantiles = [("median", 0.5), ("99th percentile", 0.99)];
    POLICIES
        .into_iter()
        .flat_map(|policy| {
            sweep::findings(points, policy, policy_name(policy), &quantiles, |_| 2.0)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{Attack, POLICIES, QUICK, findings, simulate};
    use crate::processor::reservation::MACHINES;
    use crate::processor::sweep;
    use leasehold_reserve::Shielding;

    #[test]
    fn eager_touches_every_attacker_at_once_and_shielded_two_reservations() {
        for variant in POLICIES {
            let touched = |shielding| {
                let attack = Attack {
                    shielding,
                    attackers: 20,
                    variant,
                };
                let effect = simulate(attack, &MACHINES[0], 3).expect("passes");
                effect.touched.expect("tests count it")
            };
            assert!(touched(Shielding::Eager) >= 20);
            assert!(touched(Shielding::Shielded) <= 2);
        }
    }

    #[test]
    fn the_shield_holds_and_the_attack_works_without_it() {
        let periods = QUICK.periods / 3;
        let points = sweep::simulated("test", &POLICIES, &[1, 1024], |machine, attack| {
            simulate(attack, machine, periods)
        });
        for finding in findings(&points.expect("simulated")) {
            assert!(finding.holds(), "{finding}");
        }
    }
}
