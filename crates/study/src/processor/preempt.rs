//! `preempt`: the cost of being preemptible for a guest, and the delay until the scheduler has the
//! processor (SPR §IV).
//!
//! The same guests run under each mechanism in turns, on one thread, a quantum of a millisecond at
//! a time: *none* (the guest is left alone), *injected* (compiled without checks, a signal makes it
//! yield), *epochs* (a check at every loop and function) and *fuel* (every instruction counts).
//! Slowdown is processor time against *none* in the same round. Latency is from the timer's expiry
//! until the guest's poll has returned; beside it is the host's time to run a bare signal handler
//! while the same guest runs undisturbed (*signal*). The same quanta on simulated machines show the
//! machine's part of it (`model`).

mod arm;
mod bounds;
mod guests;
mod model;
mod timer_path;

use anyhow::{Context, Result};
use leasehold_cell::engine_config::engine_config;
use leasehold_cell::preempt::Mechanism;

use crate::harness::experiment::{Options, Study};
use crate::harness::plot::{Axis, Figure, Marks, Panel, Series};
use crate::harness::priority;
use crate::harness::progress::Progress;
use crate::harness::report::{Finding, Report, Row, row};
use crate::harness::samples::{Samples, Spread, interleaved, ratio_value};
use crate::harness::unit::Unit;
use crate::processor::reservation::{CELL, platform_keys};
use arm::{Arm, Ran, Way};
use bounds::{CHOSEN, LATENCY_NS, QUANTUM, SLOWDOWN};
use guests::Guest;

/// The study; see the [module](self).
pub(crate) struct Preempt;

/// Everything known of one guest under one mechanism.
struct Point {
    guest: &'static str,
    way: Way,
    /// Against *none* in the same round.
    slowdowns: Vec<f64>,
    cpu_ns: Samples,
    latency_ns: Samples,
    yields: u64,
}

/// The measured values.
struct Measured(Vec<Point>);

impl Study for Preempt {
    fn name(&self) -> &'static str {
        "preempt"
    }

    fn paper(&self) -> &'static str {
        "SPR §IV"
    }

    fn about(&self) -> &'static str {
        "What being preemptible costs a guest, by mechanism, and how soon after its timer the \
         scheduler runs."
    }

    fn run(&self, options: &Options) -> Result<Report> {
        let mut report = Report::new(self, options);
        let rounds = if options.quick { 3 } else { 41 };
        // On a thread of its own: the alarm, and the processor, belong to a thread.
        let (measured, first) = priority::on_a_thread_like_a_cells(|| {
            measure(&Guest::all(&options.guests_dir)?, rounds)
        })?;
        let modelled = model::quanta()?;
        report.rows = modelled.iter().map(model::Quanta::row).collect();
        report.rows.extend(measured.rows());
        report.findings = model::findings(&modelled);
        report.findings.extend(measured.findings());
        report.notes.push(format!(
            "quanta of {}; {rounds} runs of each in turns; slowdown is processor time of the \
             thread, which contains the timer's interrupts",
            Unit::Nanoseconds.humane(QUANTUM.as_nanos() as f64)
        ));
        report.notes.push(
            "latency: wall time from the timer's expiry until the guest's poll has returned; of \
             signal, until a handler that does nothing runs, while the same guest is left alone: \
             the host's own path, with the caches as the guest leaves them"
                .into(),
        );
        report.notes.push(priority::note(first).into());
        report.notes.push(model::note());
        if CHOSEN != Way::Cell(Mechanism::Injected.or_fallback(engine_config)) {
            report
                .notes
                .push("this host falls back to epochs: nothing can be injected here".into());
        }
        report.figure = measured.figure();
        Ok(report)
    }
}

fn measure(guests: &[Guest], rounds: usize) -> Result<Measured> {
    let arms = Arm::all()?;
    let mut progress = Progress::new("preempt", (guests.len() * rounds) as u64);
    let mut points = Vec::new();
    for guest in guests {
        progress.at(guest.name);
        let programs = Arm::compile_for(&arms, &guest.bytes).with_context(|| guest.name)?;
        let mut of_guest: Vec<Point> = Way::ALL.map(|way| Point::new(guest.name, way)).into();
        // A rehearsal for memory and code that were not used yet.
        for (arm, program) in arms.iter().zip(&programs) {
            arm.run(guest, program, QUANTUM)?;
        }
        let mut round = vec![None; arms.len()];
        for (turn, index) in interleaved(arms.len(), rounds).enumerate() {
            let ran = arms[index].run(guest, &programs[index], QUANTUM)?;
            round[index] = Some(ran.cpu_ns);
            of_guest[index].add(&ran);
            if (turn + 1) % arms.len() == 0 {
                let alone = round[0].take();
                for (point, cpu_ns) in of_guest.iter_mut().zip(&round) {
                    if let (Some(cpu_ns), Some(alone)) = (cpu_ns, alone) {
                        point.slowdowns.push(*cpu_ns as f64 / alone as f64);
                    }
                }
                progress.step();
            }
        }
        of_guest[0].slowdowns = vec![1.0];
        points.extend(of_guest);
    }
    Ok(Measured(points))
}

impl Point {
    fn new(guest: &'static str, way: Way) -> Self {
        Self {
            guest,
            way,
            slowdowns: Vec::new(),
            cpu_ns: Samples::new(),
            latency_ns: Samples::new(),
            yields: 0,
        }
    }

    fn add(&mut self, ran: &Ran) {
        self.cpu_ns.record(ran.cpu_ns);
        self.latency_ns.add(&ran.latency_ns);
        self.yields += ran.yields;
    }

    fn slowdown(&self) -> Option<Spread> {
        Spread::of(self.slowdowns.iter().copied())
    }

    fn row(&self) -> Row {
        let slowdown = self.slowdown();
        let part = |of: fn(Spread) -> f64| ratio_value(slowdown.map(of));
        let [platform, machine] = platform_keys(CELL);
        row([
            ("guest", self.guest.into()),
            ("mechanism", self.way.name().into()),
            ("slowdown", part(|s| s.median)),
            ("slowdown_p5", part(|s| s.p5)),
            ("slowdown_p95", part(|s| s.p95)),
            ("latency_ns_p50", self.latency_ns.p50().into()),
            ("latency_ns_p99", self.latency_ns.p99().into()),
            ("run_ns_p50", self.cpu_ns.p50().into()),
            ("yields", self.yields.into()),
            ("chosen", (self.way == CHOSEN).into()),
            platform,
            machine,
            ("policy", "shielded".into()),
            ("server", "sporadic".into()),
        ])
    }
}

impl Measured {
    fn rows(&self) -> Vec<Row> {
        self.0.iter().map(Point::row).collect()
    }

    fn chosen(&self) -> impl Iterator<Item = &Point> {
        self.0.iter().filter(|point| point.way == CHOSEN)
    }

    fn findings(&self) -> Vec<Finding> {
        let mut findings: Vec<Finding> = self
            .chosen()
            .map(|point| {
                Finding::at_most(
                    format!("{}: slowdown when preempted every millisecond", point.guest),
                    Unit::Ratio,
                    point.slowdown().map(|slowdown| slowdown.median),
                    SLOWDOWN,
                )
            })
            .collect();
        for point in self.chosen() {
            let beyond = || {
                let alone = |other: &&Point| other.guest == point.guest && other.way == Way::Signal;
                let signal_ns = &self.0.iter().find(alone)?.latency_ns;
                Some(point.latency_ns.p50()? as f64 - signal_ns.p50()? as f64)
            };
            findings.push(Finding::at_most(
                format!(
                    "{}: from the timer to the scheduler, beyond a bare signal",
                    point.guest
                ),
                Unit::Nanoseconds,
                beyond(),
                LATENCY_NS,
            ));
        }
        findings
    }

    fn figure(&self) -> Figure {
        let names: Vec<&'static str> = self.chosen().map(|point| point.guest).collect();
        let series = |way: Way, of: &dyn Fn(&Point) -> Option<Spread>| Series {
            name: way.name().to_owned(),
            points: self
                .0
                .iter()
                .filter(|point| point.way == way)
                .enumerate()
                .filter_map(|(group, point)| Some((group, of(point)?)))
                .collect(),
        };
        let panel = |title: &str, y: Axis, series: Vec<Series<usize>>| Panel {
            y,
            marks: Marks::Bars {
                title: title.to_owned(),
                groups: names.iter().map(|name| label(name).to_owned()).collect(),
                series,
            },
        };
        Figure {
            title: "The price of being preemptible".to_owned(),
            panels: vec![
                panel(
                    "guest",
                    Axis::linear("processor time, to none", Unit::Ratio),
                    Way::ALL[1..]
                        .iter()
                        .map(|&way| series(way, &Point::slowdown))
                        .collect(),
                ),
                panel(
                    "guest",
                    Axis::linear("timer to scheduler", Unit::Nanoseconds),
                    Way::ALL[1..4]
                        .iter()
                        .map(|&way| series(way, &|p| Spread::of_samples(&p.latency_ns)))
                        .collect(),
                ),
            ],
        }
    }
}

/// A guest's name where there is little room: a program's language, or a kernel's first word.
fn label(guest: &str) -> &str {
    match guest.split_once(" (") {
        Some((_, language)) => language.trim_end_matches(')'),
        None => guest.split(' ').next().unwrap_or(guest),
    }
}

#[cfg(test)]
mod tests {
    use super::arm::{Arm, Way};
    use super::guests::Guest;
    use super::{Measured, Point, QUANTUM};
    use std::time::Duration;

    fn kernel(name: &'static str, text: &str) -> Guest {
        Guest::kernel(name, text)
    }

    #[test]
    fn every_mechanism_but_none_takes_the_processor_back_from_a_loop() {
        let guest = kernel("loads", include_str!("preempt/loads.wat"));
        let arms = Arm::all().expect("engines");
        let programs = Arm::compile_for(&arms, &guest.bytes).expect("compiles");
        for (way, (arm, program)) in Way::ALL.into_iter().zip(arms.iter().zip(&programs)) {
            let ran = arm
                .run(&guest, program, Duration::from_micros(500))
                .expect("runs");
            let yields = !matches!(way, Way::None | Way::Signal);
            assert_eq!(ran.yields > 0, yields, "{}", way.name());
            assert_eq!(ran.latency_ns.count() > 0, way.is_timed(), "{}", way.name());
        }
    }

    #[test]
    fn a_program_that_traps_is_no_measurement() {
        let guest = kernel(
            "trap",
            "(module (memory (export \"memory\") 1) (func (export \"_start\") unreachable))",
        );
        let arms = Arm::all().expect("engines");
        let programs = Arm::compile_for(&arms, &guest.bytes).expect("compiles");
        assert!(arms[0].run(&guest, &programs[0], QUANTUM).is_err());
    }

    #[test]
    fn labels_are_short() {
        assert_eq!(super::label("jsonsort (Go)"), "Go");
        assert_eq!(super::label("matrix product"), "matrix");
        assert_eq!(super::label("loads"), "loads");
    }

    #[test]
    fn what_was_not_measured_does_not_hold() {
        let measured = Measured(vec![Point::new("guest", super::CHOSEN)]);
        assert_eq!(measured.findings().len(), 2);
        assert!(measured.findings().iter().all(|finding| !finding.holds()));
    }
}
