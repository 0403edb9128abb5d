//! `sharing`: the effect of one task's paging on another one that shares its pages (SPC fig. 9),
//! and the memory that isolation takes (SPC table III).
//!
//! τ1 reads 10 MB in each of its short periods, τ2 reads 1 MB of it in each of its long ones, under
//! a reservation that has no room for more. Without management, pages that τ2 evicts are missing to
//! τ1, and τ1 is the task that misses deadlines, in spite of its higher priority.

use std::fs;

use anyhow::{Context, Result};
use leasehold_pager::simulate::{Experiment, History, Job, MB, MS, Nanos, REGION, Scheme};

use crate::harness::experiment::{Options, Study};
use crate::harness::plot::{Axis, Figure, Marks, Panel, Series};
use crate::harness::progress::Progress;
use crate::harness::report::{Finding, Report, Row, row};
use crate::harness::samples::Spread;
use crate::harness::unit::Unit;
use crate::memory::paging::{
    LINUX, NOTE_ON_SIMULATOR, SIMULATOR, Tau, bytes, exactly, if_supported, play, technique,
};

/// The study; see the [module](self).
pub(crate) struct Sharing;

/// By then τ2 has gone through the whole region twice, and all of it was written out once.
const WARM: Nanos = 10_000 * MS;
const END: Nanos = 20_000 * MS;
/// Jobs of the second task that are played in no time before real time begins: as many.
const REHEARSED: u64 = 20;
/// Of the 256 pages that τ2 evicts in one of its periods, τ1 must miss as many on real pages, too.
const MISSING: f64 = 200.0;
/// The span of the figure: four periods of τ2.
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
    /// Frames that pages were in at the end; the simulator has none.
    resident: Option<u32>,
    /// Whether no other thread could have the processor.
    realtime: bool,
}

impl Study for Sharing {
    fn name(&self) -> &'static str {
        "sharing"
    }

    fn paper(&self) -> &'static str {
        "SPC fig. 9, table III"
    }

    fn about(&self) -> &'static str {
        "Two tasks that read the same memory under reservations of their own: the deadlines that one misses \
         because the other pages, and the memory that it takes, by technique."
    }

    fn run(&self, options: &Options) -> Result<Report> {
        let mut report = Report::new(self, options);
        let mut points = simulated(self.name())?;
        // Periods of τ2, of half a second each.
        let periods = if options.quick { 2 } else { 10 };
        points.extend(if_supported(&mut report, || {
            measured(self.name(), periods, options)
        })?);
        report.rows = points.iter().flat_map(Point::rows).collect();
        report.findings = findings(&points);
        report.notes.push(NOTE_ON_SIMULATOR.to_owned());
        report.notes.push(format!(
            "faults, misses and jobs of the simulator: of {} from {} on, when everything has been \
             paged out once; on real pages, of {} after {REHEARSED} jobs of the second task that \
             were done in no time",
            Unit::Nanoseconds.humane((END - WARM) as f64),
            Unit::Nanoseconds.humane(WARM as f64),
            Unit::Nanoseconds.humane((periods * Tau::Two.task().period) as f64),
        ));
        if points.iter().any(|point| !point.realtime) {
            let note = "the host grants no real-time priority: other programs delay jobs on linux";
            report.notes.push(note.to_owned());
        }
        report.notes.push(
            "first_touch is the rule of Linux's memory control group: a page counts for the task \
             that brought it in. So it matters which came first (SPC §III-C)"
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

/// The same on real pages.
fn measured(name: &'static str, periods: u64, options: &Options) -> Result<Vec<Point>> {
    fs::create_dir_all(&options.out_dir)
        .with_context(|| format!("creating {}", options.out_dir.display()))?;
    let mut progress = Progress::new(name, (SETS.len() * TECHNIQUES.len()) as u64);
    let mut points = Vec::new();
    for set in SETS {
        for scheme in TECHNIQUES {
            progress.at(format!("{} on real pages", set.name));
            let experiment = set.experiment(scheme);
            let end = periods * Tau::Two.task().period;
            let played = play(&experiment, REHEARSED, end, &options.out_dir)
                .with_context(|| format!("{} under {}", set.name, technique(scheme)))?;
            points.push(Point {
                platform: LINUX,
                set,
                scheme,
                first: experiment.first,
                reserved: [experiment.tasks[0].reserve, experiment.tasks[1].reserve],
                history: played.history,
                from: 0,
                resident: Some(played.resident),
                realtime: played.realtime,
            });
            progress.step();
        }
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
        resident: None,
        realtime: true,
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
                ("resident_bytes", self.resident.map(bytes).into()),
                ("platform", self.platform.into()),
            ])
        })
    }

    /// Returns a count of τ1 per period of the other task, in the mean.
    fn per_period(&self, times: u64) -> f64 {
        let periods = (self.history.end - self.from) / self.set.tasks[1].task().period;
        times as f64 / periods as f64
    }

    fn misses_per_period(&self) -> f64 {
        self.per_period(self.history.missed_since(0, self.from) as u64)
    }

    fn major_per_period(&self) -> f64 {
        self.per_period(self.history.major_since(0, self.from))
    }
}

/// The point in which one task has less than the other reads, and the latter was there first.
fn contended<'a>(points: &'a [Point], platform: &str, scheme: Scheme) -> Option<&'a Point> {
    points.iter().find(|point| {
        point.platform == platform
            && point.set.name == CONTENDED
            && point.scheme == scheme
            && point.first == 0
    })
}

fn findings(points: &[Point]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for platform in [SIMULATOR, LINUX] {
        for scheme in [Scheme::Spc, Scheme::Spel] {
            let name = technique(scheme).to_uppercase();
            let point = contended(points, platform, scheme);
            let claim = |what, value: Option<f64>| {
                let claim = format!("{platform}: {what} of tau1 beside tau2, with {name}");
                Finding::at_most(claim, Unit::Count, value, 0.0)
            };
            let major = point.map(|point| point.history.major_since(0, 0) as f64);
            let missed = point.map(|point| point.history.missed(0) as f64);
            findings.push(claim("major faults", major));
            findings.push(claim("missed deadlines", missed));
        }
        let plain = contended(points, platform, Scheme::Plain);
        // How long a missing page takes is the disk's, and only the simulator's is the paper's.
        let (what, value, bound) = match platform {
            SIMULATOR => (
                "deadlines that tau1 misses",
                plain.map(Point::misses_per_period),
                1.0,
            ),
            _ => (
                "pages that tau1 misses",
                plain.map(Point::major_per_period),
                MISSING,
            ),
        };
        findings.push(Finding::at_least(
            format!("{platform}: {what} in a period of tau2, without management"),
            Unit::Count,
            value,
            bound,
        ));
        let totals = || points.iter().filter(|point| point.platform == platform);
        let wrong = totals().filter(|point| {
            let paper = point.set.paper(point.scheme);
            paper.is_some_and(|paper| paper != point.history.physical)
        });
        let wrong = wrong.count() as f64;
        findings.push(Finding::at_most(
            format!("{platform}: totals of table III that differ from the paper's"),
            Unit::Count,
            totals().next().map(|_| wrong),
            0.0,
        ));
    }
    findings
}

/// When jobs of τ1 were released, and how long each took, in the time that the figure shows.
fn responses(point: &Point) -> Vec<(f64, Spread)> {
    let shown = point.from..point.from + SHOWN;
    let jobs = point.jobs(0, point.from);
    jobs.filter(|job| shown.contains(&job.release))
        .filter_map(|job| {
            let at = (job.release - point.from) as f64;
            Some((at, exactly((job.completion? - job.release) as f64)))
        })
        .collect()
}

fn figure(points: &[Point]) -> Figure {
    let responses = |platform| {
        let series = TECHNIQUES.map(|scheme| Series {
            name: technique(scheme).to_owned(),
            points: contended(points, platform, scheme)
                .map(responses)
                .unwrap_or_default(),
        });
        Panel {
            y: Axis::linear(
                format!("response time of tau1 beside tau2, {platform}"),
                Unit::Nanoseconds,
            ),
            marks: Marks::Curves {
                x: Axis::linear("released", Unit::Nanoseconds),
                series: series.into(),
            },
        }
    };
    let totals = |scheme| Series {
        name: technique(scheme).to_owned(),
        points: points
            .iter()
            .filter(|point| {
                point.platform == SIMULATOR && point.scheme == scheme && point.first == 0
            })
            .filter_map(|point| {
                let group = SETS.iter().position(|set| *set == point.set)?;
                Some((group, exactly(bytes(point.history.physical) as f64)))
            })
            .collect(),
    };
    Figure {
        title: "Two tasks that share memory".into(),
        panels: vec![
            responses(SIMULATOR),
            responses(LINUX),
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
    use super::{CONTENDED, Point, SIMULATOR, TECHNIQUES, findings, measured, simulated};
    use crate::harness::experiment::Options;
    use crate::harness::report::Finding;
    use leasehold_pager_linux::Features;

    fn of_simulator(finding: &Finding) -> bool {
        finding.claim.starts_with(SIMULATOR)
    }

    #[test]
    fn every_claim_holds_in_virtual_time() {
        let points = simulated("test").expect("simulated");
        let (simulated, measured) = findings(&points)
            .into_iter()
            .partition::<Vec<_>, _>(of_simulator);
        for finding in simulated {
            assert!(finding.holds(), "{finding}");
        }
        // A claim that was not measured does not hold.
        assert!(measured.len() == 6 && measured.iter().all(|finding| finding.value.is_nan()));
        // Two of each technique, and one more for the first toucher.
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
        let found = findings(&points);
        let failed = found.iter().filter(|f| of_simulator(f) && !f.holds());
        assert_eq!(failed.count(), 5);
    }

    #[test]
    fn real_pages_go_where_the_simulators_go() {
        if let Err(unsupported) = Features::probe() {
            eprintln!("skipped: {unsupported}");
            return;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let options = Options {
            out_dir: directory.path().to_owned(),
            ..Options::default()
        };
        let points = measured("test", 1, &options).expect("measured");
        assert_eq!(points.len(), 3 * TECHNIQUES.len());
        for finding in findings(&points) {
            // A busy machine delays jobs, and evicts nothing.
            let counted = !of_simulator(&finding) && !finding.claim.contains("deadlines");
            assert!(!counted || finding.holds(), "{finding}");
        }
        let rows: Vec<_> = points.iter().flat_map(Point::rows).collect();
        let keys: Vec<&str> = rows[0].keys().map(String::as_str).collect();
        let expected =
            "taskset technique task major_faults minor_faults misses jobs physical_bytes";
        assert_eq!(keys[..8].join(" "), expected);
        assert!(
            rows.iter()
                .all(|row| row["resident_bytes"].as_u64() >= Some(1 << 20))
        );
    }
}
