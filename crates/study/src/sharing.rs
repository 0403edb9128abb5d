//! `sharing`: what one task's paging costs another one that shares pages with it (SPC fig. 9), and
//! the memory that it takes to keep them apart (SPC table III).
//!
//! τ1 reads 10 MB in each of its short periods, τ2 reads 1 MB of it in each of its long ones, under
//! a reservation that has no room for more. Without management, what τ2 pages out is missing to
//! τ1, who is the one that misses deadlines, in spite of its higher priority.

use anyhow::{Context, Result};
use leasehold_pager::simulate::{Experiment, History, Job, MB, MS, Nanos, REGION, Scheme};

use crate::paging::{NOTE_ON_SIMULATOR, SIMULATOR, Tau, bytes, exactly, technique};
use crate::plot::{Axis, Figure, Marks, Panel, Series};
use crate::progress::Progress;
use crate::report::{Finding, Report, Row, row};
use crate::study::{Options, Study};
use crate::unit::Unit;

/// The study; see the [module](self).
pub struct Sharing;

/// By then τ2 has gone through the whole region twice, and all of it was written out once.
const WARM: Nanos = 10_000 * MS;
const END: Nanos = 20_000 * MS;
/// What the figure shows: four periods of τ2.
const SHOWN: Nanos = 2_000 * MS;
/// Frames of each reservation if the region is locked: all of it, and a task's own pages.
const LOCKED: u32 = 11 * MB;

const TECHNIQUES: [Scheme; 4] = [Scheme::Plain, Scheme::FirstTouch, Scheme::Spc, Scheme::Spel];

/// The task sets of SPC table III, and the MB that they take in all without management, with SPC
/// and with SPEL.
const SETS: [Set; 3] = [
    Set {
        name: "tau1+tau1",
        tasks: [Tau::One, Tau::One],
        paper: [12, 22, 12],
    },
    Set {
        name: "tau2+tau2",
        tasks: [Tau::Two, Tau::Two],
        paper: [3, 4, 12],
    },
    Set {
        name: "tau1+tau2",
        tasks: [Tau::One, Tau::Two],
        paper: [12, 13, 12],
    },
];
/// The set of SPC fig. 9, in which one task has less than the other reads.
const CONTENDED: &str = "tau1+tau2";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Set {
    name: &'static str,
    tasks: [Tau; 2],
    paper: [u32; 3],
}

impl Set {
    /// Frames that the paper has for it.
    fn paper(&self, scheme: Scheme) -> Option<u32> {
        let [none, spc, spel] = self.paper;
        let megabytes = match scheme {
            Scheme::Plain => none,
            Scheme::Spc => spc,
            Scheme::Spel => spel,
            Scheme::FirstTouch => return None,
        };
        Some(megabytes * MB)
    }

    fn experiment(&self, scheme: Scheme) -> Experiment {
        let tasks = self.tasks.map(|tau| match scheme {
            Scheme::Spel => tau.task().with(LOCKED),
            Scheme::Plain | Scheme::FirstTouch | Scheme::Spc => tau.task(),
        });
        Experiment::new(tasks.to_vec(), REGION, scheme)
    }
}

/// A task set under one technique.
struct Point {
    platform: &'static str,
    set: Set,
    scheme: Scheme,
    /// The task that was the first to touch the region.
    first: usize,
    /// Frames of the reservations.
    reserved: [u32; 2],
    history: History,
    /// When counting starts.
    from: Nanos,
}

impl Study for Sharing {
    fn name(&self) -> &'static str {
        "sharing"
    }

    fn paper(&self) -> &'static str {
        "SPC fig. 9, table III"
    }

    fn about(&self) -> &'static str {
        "Two tasks that read the same memory under reservations of their own: whose paging makes \
         whom miss deadlines, and the memory that it takes, by technique."
    }

    fn run(&self, options: &Options) -> Result<Report> {
        let mut report = Report::new(self, options);
        let points = simulated(self.name())?;
        report.rows = points.iter().flat_map(Point::rows).collect();
        report.findings = findings(&points);
        report.notes.push(NOTE_ON_SIMULATOR.to_owned());
        report.notes.push(format!(
            "faults, misses and jobs: of {} from {} on, when everything has been paged out once",
            Unit::Nanoseconds.humane((END - WARM) as f64),
            Unit::Nanoseconds.humane(WARM as f64)
        ));
        report.notes.push(
            "first_touch is the rule of Linux's memory control group: a page counts for whom it \
             was brought in by. So it matters who came first (SPC §III-C)"
                .to_owned(),
        );
        report.figure = figure(&points);
        Ok(report)
    }
}

fn simulated(name: &'static str) -> Result<Vec<Point>> {
    let mut progress = Progress::new(name, (SETS.len() * (TECHNIQUES.len() + 1)) as u64);
    let mut points = Vec::new();
    for set in SETS {
        progress.at(set.name);
        for scheme in TECHNIQUES {
            points.push(simulate(set, scheme, 0)?);
            progress.step();
        }
        if set.tasks[0] != set.tasks[1] {
            points.push(simulate(set, Scheme::FirstTouch, 1)?);
        }
        progress.step();
    }
    Ok(points)
}

fn simulate(set: Set, scheme: Scheme, first: usize) -> Result<Point> {
    let mut experiment = set.experiment(scheme);
    experiment.first = first;
    let history = experiment
        .run(END)
        .with_context(|| format!("{} under {}", set.name, technique(scheme)))?;
    Ok(Point {
        platform: SIMULATOR,
        set,
        scheme,
        first,
        reserved: [experiment.tasks[0].reserve, experiment.tasks[1].reserve],
        history,
        from: WARM,
    })
}

impl Point {
    fn jobs(&self, task: usize, from: Nanos) -> impl Iterator<Item = &Job> {
        let jobs = self.history.jobs[task].iter();
        jobs.filter(move |job| job.release >= from)
    }

    /// A row for each task.
    fn rows(&self) -> [Row; 2] {
        [0, 1].map(|task| {
            let jobs = || self.jobs(task, self.from);
            let major: u64 = jobs().map(|job| u64::from(job.major)).sum();
            let minor: u64 = jobs().map(|job| u64::from(job.minor)).sum();
            let paper = self.set.paper(self.scheme);
            row([
                ("taskset", self.set.name.into()),
                ("technique", technique(self.scheme).into()),
                ("task", self.set.tasks[task].name().into()),
                ("major_faults", major.into()),
                ("minor_faults", minor.into()),
                ("misses", self.history.missed_since(task, self.from).into()),
                ("jobs", jobs().count().into()),
                ("physical_bytes", bytes(self.history.physical).into()),
                ("paper_bytes", paper.map(bytes).into()),
                ("reserve_bytes", bytes(self.reserved[task]).into()),
                ("priority", (task + 1).into()),
                ("first", self.set.tasks[self.first].name().into()),
                ("platform", self.platform.into()),
            ])
        })
    }

    /// Deadlines that τ1 misses in the mean for each period of the task beside it.
    fn misses_per_period(&self) -> f64 {
        let periods = (self.history.end - self.from) / self.set.tasks[1].task().period;
        self.history.missed_since(0, self.from) as f64 / periods as f64
    }
}

/// The points in which one task has less than the other reads, and the latter was there first.
fn contended(points: &[Point], scheme: Scheme) -> Option<&Point> {
    points
        .iter()
        .find(|point| point.set.name == CONTENDED && point.scheme == scheme && point.first == 0)
}

fn findings(points: &[Point]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for scheme in [Scheme::Spc, Scheme::Spel] {
        let name = technique(scheme).to_uppercase();
        let point = contended(points, scheme);
        let claim = |what, value: Option<f64>| {
            let claim = format!("{what} of tau1 beside tau2, with {name}");
            Finding::at_most(claim, Unit::Count, value, 0.0)
        };
        let major = point.map(|point| point.history.major_since(0, 0) as f64);
        let missed = point.map(|point| point.history.missed(0) as f64);
        findings.push(claim("major faults", major));
        findings.push(claim("missed deadlines", missed));
    }
    let plain = contended(points, Scheme::Plain).map(Point::misses_per_period);
    findings.push(Finding::at_least(
        "deadlines that tau1 misses in a period of tau2, without management",
        Unit::Count,
        plain,
        1.0,
    ));
    let wrong = points.iter().filter(|point| {
        let paper = point.set.paper(point.scheme);
        paper.is_some_and(|paper| paper != point.history.physical)
    });
    findings.push(Finding::at_most(
        "totals of table III that differ from the paper's",
        Unit::Count,
        Some(wrong.count() as f64),
        0.0,
    ));
    findings
}

fn figure(points: &[Point]) -> Figure {
    let responses = |scheme| {
        let jobs = contended(points, scheme).into_iter().flat_map(|point| {
            let shown = point.from..point.from + SHOWN;
            let jobs = point.jobs(0, point.from);
            let jobs = jobs.filter(move |job| shown.contains(&job.release));
            jobs.filter_map(move |job| {
                let at = (job.release - point.from) as f64;
                Some((at, exactly((job.completion? - job.release) as f64)))
            })
        });
        Series {
            name: technique(scheme).to_owned(),
            points: jobs.collect(),
        }
    };
    let totals = |scheme| Series {
        name: technique(scheme).to_owned(),
        points: points
            .iter()
            .filter(|point| point.scheme == scheme && point.first == 0)
            .filter_map(|point| {
                let group = SETS.iter().position(|set| *set == point.set)?;
                Some((group, exactly(bytes(point.history.physical) as f64)))
            })
            .collect(),
    };
    Figure {
        title: "Two tasks that share memory".into(),
        panels: vec![
            Panel {
                y: Axis::linear("response time of tau1 beside tau2", Unit::Nanoseconds),
                marks: Marks::Curves {
                    x: Axis::linear("released", Unit::Nanoseconds),
                    series: TECHNIQUES.map(responses).into(),
                },
            },
            Panel {
                y: Axis::linear("memory in use", Unit::Bytes),
                marks: Marks::Bars {
                    title: "task set".into(),
                    groups: SETS.map(|set| set.name.to_owned()).into(),
                    series: [Scheme::Plain, Scheme::Spc, Scheme::Spel]
                        .map(totals)
                        .into(),
                },
            },
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::{CONTENDED, Sharing, TECHNIQUES, findings, simulated};
    use crate::study::{Options, Study};

    #[test]
    fn every_claim_holds_in_virtual_time() {
        let points = simulated("test").expect("simulated");
        for finding in findings(&points) {
            assert!(finding.holds(), "{finding}");
        }
        // Two of each technique, and one more of who came first.
        assert_eq!(points.len(), 3 * TECHNIQUES.len() + 1);
    }

    #[test]
    fn a_lost_deadline_is_seen_by_every_claim_about_it() {
        let mut points = simulated("test").expect("simulated");
        for point in &mut points {
            if point.set.name == CONTENDED {
                point.history.jobs[0][7].completion = None;
                point.history.jobs[0][7].major = 1;
                point.history.physical += 1;
            }
        }
        let failed = findings(&points).iter().filter(|f| !f.holds()).count();
        assert_eq!(failed, 5);
    }

    #[test]
    fn rows_have_the_keys_of_the_study_in_order() {
        let report = Sharing.run(&Options::default()).expect("simulated");
        let keys: Vec<&str> = report.rows[0].keys().map(String::as_str).collect();
        assert_eq!(
            keys[..8],
            [
                "taskset",
                "technique",
                "task",
                "major_faults",
                "minor_faults",
                "misses",
                "jobs",
                "physical_bytes"
            ]
        );
        assert!(
            report
                .rows
                .iter()
                .all(|row| row["jobs"].as_u64() > Some(10))
        );
    }
}
