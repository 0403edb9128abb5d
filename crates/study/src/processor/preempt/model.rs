//! The same quanta in virtual time, where only the parts of a preemption take time.
//!
//! Two guests that only compute alternate in quanta, under the real scheduler. A mechanism is
//! modelled by its effect on the machine's costs: *none* costs nothing; a bare *signal* is the
//! interrupt and the setting of the timer; the others are all of it, a decision and a switch
//! included. *Epochs* and *fuel* besides make a guest longer, by a check in every round of its
//! loop. The effects of caches and of the processor's pipeline are missing: the cell measures them.

use anyhow::Result;
use leasehold_cell::preempt::Mechanism;
use leasehold_reserve::simulate::{Behaviour, Cause, CostModel, Event, Simulation, Sink};
use leasehold_reserve::{Config, Nanos, Order, Shielding};

use super::arm::Way;
use super::bounds::{CHOSEN, LATENCY_NS, QUANTUM, SLOWDOWN};
use crate::harness::report::{Finding, Row, row};
use crate::harness::samples::{Samples, ratio_value};
use crate::harness::unit::Unit;
use crate::processor::reservation::{MACHINES, MS, Machine, platform_keys};

/// Guests by what a round of their loop takes, ns: one that multiplies two numbers, and one that
/// does something.
const GUESTS: [(&str, f64); 2] = [("tight loop", 1.0), ("long loop", 50.0)];
/// The time of a check in a loop, ns. Of the tight loop it makes what epochs make of a naive matrix
/// product: 2.8 times as much.
const CHECK_NS: f64 = 1.8;
/// How long a guest is watched.
const SPAN: Nanos = 1_000 * MS;

/// A guest under a mechanism on a machine.
pub(super) struct Quanta {
    platform: &'static str,
    guest: &'static str,
    way: Way,
    slowdown: f64,
    /// From the timer's expiry to the scheduler's timestamp; of a signal, to its handler.
    latency_ns: Option<Nanos>,
    yields: u64,
}

/// Every guest under every mechanism on every simulated machine.
///
/// # Errors
/// The simulator's.
pub(super) fn quanta() -> Result<Vec<Quanta>> {
    let mut all = Vec::new();
    for machine in &MACHINES {
        for (guest, round_ns) in GUESTS {
            for way in Way::ALL {
                all.push(Quanta::simulate(machine, guest, round_ns, way)?);
            }
        }
    }
    Ok(all)
}

/// The cost of a quantum under a mechanism.
fn costs(way: Way, machine: &Machine) -> CostModel {
    match way {
        Way::None => CostModel::FREE,
        Way::Signal => CostModel {
            interrupt: machine.costs.interrupt,
            arm: machine.costs.arm,
            ..CostModel::FREE
        },
        Way::Cell(_) | Way::Fuel => machine.costs,
    }
}

/// How much longer a guest is with the checks of a mechanism.
fn checks(way: Way, round_ns: f64) -> f64 {
    match way {
        Way::None | Way::Signal | Way::Cell(Mechanism::Injected) => 1.0,
        Way::Cell(_) | Way::Fuel => (round_ns + CHECK_NS) / round_ns,
    }
}

impl Quanta {
    fn simulate(machine: &Machine, guest: &'static str, round_ns: f64, way: Way) -> Result<Quanta> {
        let config = Config {
            order: Order::FixedPriority,
            shielding: Shielding::Shielded,
            servers: 1,
            tasks: 2,
            seed: 0,
        };
        let mut simulation = Simulation::new(config, costs(way, machine), Account::default());
        let guests = simulation.background(QUANTUM.as_nanos() as Nanos)?;
        for _ in 0..2 {
            simulation.task(guests, Behaviour::Busy)?;
        }
        simulation.run_until(SPAN)?;
        let elapsed = simulation.now();
        let account = simulation.into_sink();
        let interrupted = account.interrupts.count() > 0;
        Ok(Quanta {
            platform: machine.platform,
            guest,
            way,
            slowdown: elapsed as f64 / account.work as f64 * checks(way, round_ns),
            latency_ns: account
                .interrupts
                .p50()
                .filter(|_| interrupted && way.is_timed()),
            yields: match way {
                Way::None | Way::Signal => 0,
                Way::Cell(_) | Way::Fuel => account.interrupts.count(),
            },
        })
    }

    pub(super) fn row(&self) -> Row {
        let slowdown = ratio_value(Some(self.slowdown));
        let [platform, machine] = platform_keys(self.platform);
        row([
            ("guest", self.guest.into()),
            ("mechanism", self.way.name().into()),
            ("slowdown", slowdown.clone()),
            ("slowdown_p5", slowdown.clone()),
            ("slowdown_p95", slowdown),
            ("latency_ns_p50", self.latency_ns.into()),
            ("latency_ns_p99", self.latency_ns.into()),
            ("run_ns_p50", SPAN.into()),
            ("yields", self.yields.into()),
            ("chosen", (self.way == CHOSEN).into()),
            platform,
            machine,
            ("policy", "shielded".into()),
            ("server", "sporadic".into()),
        ])
    }
}

/// The record of a run.
#[derive(Default)]
struct Account {
    work: Nanos,
    /// The time of each until the scheduler's timestamp.
    interrupts: Samples,
}

impl Sink for Account {
    fn record(&mut self, event: &Event) {
        match *event {
            Event::Ran { from, to, .. } => self.work += to - from,
            Event::Overhead {
                cause: Cause::Interrupt,
                from,
                to,
                ..
            } => self.interrupts.record(to - from),
            _ => {}
        }
    }
}

/// The claims for the machines: for the chosen mechanism the same as for a cell.
pub(super) fn findings(all: &[Quanta]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for chosen in all.iter().filter(|quanta| quanta.way == CHOSEN) {
        let title = format!("{}, {}", chosen.platform, chosen.guest);
        findings.push(Finding::at_most(
            format!("{title}: slowdown when preempted every millisecond"),
            Unit::Ratio,
            Some(chosen.slowdown),
            SLOWDOWN,
        ));
        let is_signal = |other: &&Quanta| {
            (other.platform, other.guest, other.way) == (chosen.platform, chosen.guest, Way::Signal)
        };
        let signal_ns = all
            .iter()
            .find(is_signal)
            .and_then(|quanta| quanta.latency_ns);
        let beyond = chosen.latency_ns.zip(signal_ns);
        findings.push(Finding::at_most(
            format!("{title}: from the timer to the scheduler, beyond a bare signal"),
            Unit::Nanoseconds,
            beyond.map(|(chosen, signal)| chosen as f64 - signal as f64),
            LATENCY_NS,
        ));
    }
    findings
}

/// Notes for the reader on it.
pub(super) fn note() -> String {
    format!(
        "simulator, simulator-vm: two guests that take turns of a quantum under the real scheduler, \
         in virtual time; a tight loop has rounds of {} ns, a long one of {} ns, and a check of \
         epochs or fuel in each round takes {CHECK_NS} ns. Neither caches nor pipelines are \
         modelled",
        GUESTS[0].1, GUESTS[1].1
    )
}

#[cfg(test)]
mod tests {
    use super::{Way, findings, quanta};
    use crate::processor::reservation::MACHINES;
    use leasehold_cell::preempt::Mechanism;

    #[test]
    fn a_simulated_quantum_costs_what_its_parts_do() {
        let all = quanta().expect("simulated");
        for finding in findings(&all) {
            assert!(finding.holds(), "{finding}");
        }
        for machine in MACHINES {
            let of = |way| {
                let quanta = all.iter().find(|quanta| {
                    (quanta.platform, quanta.guest, quanta.way)
                        == (machine.platform, "tight loop", way)
                });
                quanta.expect("simulated")
            };
            assert_eq!(of(Way::None).slowdown, 1.0);
            assert_eq!(of(Way::None).yields, 0);
            let costs = machine.costs;
            let injected = of(Way::Cell(Mechanism::Injected));
            assert_eq!(injected.latency_ns, Some(costs.interrupt + costs.handler));
            // Turns are counted in time that a guest was charged, which the interrupt is part of.
            let quantum = 1_000_000.0 + (costs.interrupt + costs.handler) as f64;
            let lost = (injected.slowdown - 1.0) * quantum;
            let parts = costs.interrupt + costs.handler + costs.decision + costs.arm + costs.switch;
            assert!(
                (lost / parts as f64 - 1.0).abs() < 0.05,
                "{lost} of {parts}"
            );
            assert!(of(Way::Signal).slowdown < injected.slowdown);
            assert!(of(Way::Cell(Mechanism::Epochs)).slowdown > 2.7);
        }
    }
}
