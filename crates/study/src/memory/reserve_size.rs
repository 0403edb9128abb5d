//! `reserve-size`: faults and completion time of a task against the size of its memory reservation
//! (SPC fig. 8).
//!
//! A task that reads its memory in order hits no page if one frame is missing: first in, first out,
//! each page is evicted before it is read again. So there is a cliff, and a task needs the smallest
//! reservation above it: 11 MB for τ1, 2 MB for τ2.

use std::fs;

use anyhow::{Context, Result};
use leasehold_pager::simulate::{Experiment, History, MB, MS, Nanos, REGION, Scheme};

use crate::harness::experiment::{Options, Study};
use crate::harness::plot::{Axis, Figure, Marks, Panel, Series};
use crate::harness::progress::Progress;
use crate::harness::report::{Finding, Report, Row, row};
use crate::harness::samples::{Samples, Spread};
use crate::harness::unit::Unit;
use crate::memory::paging::{
    LINUX, NOTE_ON_SIMULATOR, SIMULATOR, Tau, bytes, duration, if_supported, play,
};

/// The study; see the [module](self).
pub(crate) struct ReserveSize;

/// Parts of a MB in which sizes are given.
const QUARTER: u32 = MB / 4;
/// Sizes, in quarters of a MB, close together where a cliff is.
const FULL: [&[u32]; 2] = [
    &[4, 8, 16, 24, 32, 36, 40, 41, 42, 43, 44, 45, 48, 56, 64],
    &[4, 5, 6, 7, 8, 9, 10, 12, 16, 24, 32, 40, 44, 48],
];
const QUICK: [&[u32]; 2] = [&[36, 40, 44, 48], &[4, 8, 12, 44]];
/// The same on real pages, which take real time.
const FULL_LINUX: [&[u32]; 2] = [&[32, 36, 40, 43, 44, 48], &[4, 5, 8, 12, 24, 40, 44, 48]];
const QUICK_LINUX: [&[u32]; 2] = [&[40, 44], &[8, 44]];
/// How long: as many periods of the task.
const PERIODS: u64 = 8;
/// Long enough for a few jobs of a task that thrashes.
const END: Nanos = 60_000 * MS;

/// A task under a reservation of some size.
struct Point {
    platform: &'static str,
    tau: Tau,
    /// Frames of its reservation.
    reserve: u32,
    /// Jobs that it completed, without those of its first pass through the region.
    jobs: u64,
    misses: u64,
    major_faults: u64,
    completion_ns: Samples,
    /// Of the very first job, if it was timed.
    first_ns: Option<u64>,
}

impl Study for ReserveSize {
    fn name(&self) -> &'static str {
        "reserve-size"
    }

    fn paper(&self) -> &'static str {
        "SPC fig. 8"
    }

    fn about(&self) -> &'static str {
        "Faults and completion time of a task, alone, against the size of its memory reservation: \
         the smallest with which it misses no deadline."
    }

    fn run(&self, options: &Options) -> Result<Report> {
        let mut report = Report::new(self, options);
        let (sizes, linux) = match options.quick {
            true => (&QUICK, &QUICK_LINUX),
            false => (&FULL, &FULL_LINUX),
        };
        let mut points = simulated(self.name(), sizes)?;
        points.extend(if_supported(&mut report, || {
            measured(self.name(), linux, options)
        })?);
        report.rows = points.iter().map(Point::row).collect();
        report.findings = findings(&points);
        report.notes.push(NOTE_ON_SIMULATOR.to_owned());
        report.notes.push(
            "completion: from when a job could begin, at its release or after the job before it. \
             Jobs of the first pass through the region are left out: they write it out for the \
             first time"
                .to_owned(),
        );
        if let Some(first) = first_with_less(&points) {
            report.notes.push(format!(
                "with 1 MB less than it needs, tau1 takes {} for its first job (paper: more than \
                 3 s, on a disk that it says little of)",
                Unit::Nanoseconds.humane(first as f64)
            ));
        }
        report.figure = figure(&points);
        Ok(report)
    }
}

fn simulated(name: &'static str, sizes: &[&[u32]; 2]) -> Result<Vec<Point>> {
    let turns = sizes.iter().map(|sizes| sizes.len()).sum::<usize>();
    let mut progress = Progress::new(name, turns as u64);
    let mut points = Vec::new();
    for (tau, sizes) in Tau::ALL.into_iter().zip(sizes) {
        for quarters in *sizes {
            progress.at(tau.name());
            points.push(simulate(tau, quarters * QUARTER)?);
            progress.step();
        }
    }
    Ok(points)
}

fn simulate(tau: Tau, reserve: u32) -> Result<Point> {
    let experiment = Experiment::new(vec![tau.task().with(reserve)], REGION, Scheme::Spc);
    let history = experiment
        .run(END)
        .with_context(|| format!("{} with {reserve} frames", tau.name()))?;
    let mut point = Point::new(SIMULATOR, tau, reserve, &history, first_pass(tau));
    point.first_ns = duration(&history.jobs[0], 0);
    Ok(point)
}

/// The same on real pages: the first pass is played in no time.
fn measured(name: &'static str, sizes: &[&[u32]; 2], options: &Options) -> Result<Vec<Point>> {
    fs::create_dir_all(&options.out_dir)
        .with_context(|| format!("creating {}", options.out_dir.display()))?;
    let turns = sizes.iter().map(|sizes| sizes.len()).sum::<usize>();
    let mut progress = Progress::new(name, turns as u64);
    let mut points = Vec::new();
    for (tau, sizes) in Tau::ALL.into_iter().zip(sizes) {
        for quarters in *sizes {
            progress.at(format!("{} on real pages", tau.name()));
            let task = tau.task().with(quarters * QUARTER);
            let experiment = Experiment::new(vec![task], REGION, Scheme::Spc);
            let rehearsed = first_pass(tau) as u64;
            let played = play(
                &experiment,
                rehearsed,
                PERIODS * task.period,
                &options.out_dir,
            )
            .with_context(|| format!("{} with {} frames", tau.name(), task.reserve))?;
            points.push(Point::new(LINUX, tau, task.reserve, &played.history, 0));
            progress.step();
        }
    }
    Ok(points)
}

/// Jobs of a task's first pass through the region, which write it out for the first time.
const fn first_pass(tau: Tau) -> usize {
    (REGION / tau.task().shared) as usize
}

impl Point {
    /// The results for the jobs from number `from` on.
    fn new(platform: &'static str, tau: Tau, reserve: u32, history: &History, from: usize) -> Self {
        let jobs = &history.jobs[0];
        let mut point = Self {
            platform,
            tau,
            reserve,
            jobs: 0,
            misses: 0,
            major_faults: 0,
            completion_ns: Samples::new(),
            first_ns: None,
        };
        for at in from..jobs.len() {
            let Some(completion) = duration(jobs, at) else {
                continue;
            };
            point.jobs += 1;
            point.misses += u64::from(completion > tau.task().period);
            point.major_faults += u64::from(jobs[at].major);
            point.completion_ns.record(completion);
        }
        point
    }

    fn row(&self) -> Row {
        row([
            ("task", self.tau.name().into()),
            ("reserve_bytes", bytes(self.reserve).into()),
            ("major_faults", self.major_faults.into()),
            ("completion_ns_p50", self.completion_ns.p50().into()),
            ("completion_ns_p5", self.completion_ns.quantile(0.05).into()),
            (
                "completion_ns_p95",
                self.completion_ns.quantile(0.95).into(),
            ),
            ("jobs", self.jobs.into()),
            ("misses", self.misses.into()),
            ("first_completion_ns", self.first_ns.into()),
            ("platform", self.platform.into()),
        ])
    }

    fn suffices(&self) -> bool {
        self.jobs > 0 && self.misses == 0
    }
}

fn of<'a>(points: &'a [Point], platform: &str, tau: Tau) -> impl Iterator<Item = &'a Point> {
    points
        .iter()
        .filter(move |point| point.platform == platform && point.tau == tau)
}

fn with<'a>(points: &'a [Point], platform: &str, tau: Tau, reserve: u32) -> Option<&'a Point> {
    of(points, platform, tau).find(|point| point.reserve == reserve)
}

/// The first job of τ1 with 1 MB less than the paper found that it needs.
fn first_with_less(points: &[Point]) -> Option<u64> {
    with(points, SIMULATOR, Tau::One, Tau::One.task().reserve - MB)?.first_ns
}

fn findings(points: &[Point]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for tau in Tau::ALL {
        let paper = tau.task().reserve;
        // The paper tried whole MBs.
        let whole = of(points, SIMULATOR, tau).filter(|point| point.reserve % MB == 0);
        let enough = whole.filter(|point| point.suffices());
        let fewest = enough.map(|point| point.reserve).min();
        findings.push(Finding::at_most(
            format!(
                "{SIMULATOR}: {}: fewest whole MB without a missed deadline, and how far they are \
                 from the paper's {}",
                tau.name(),
                Unit::Bytes.humane(bytes(paper) as f64)
            ),
            Unit::Bytes,
            fewest.map(|fewest| bytes(fewest.abs_diff(paper)) as f64),
            0.0,
        ));
    }
    for platform in [SIMULATOR, LINUX] {
        findings.extend(cliffs(points, platform));
    }
    findings
}

/// The cost of a slightly smaller reservation.
fn cliffs(points: &[Point], platform: &str) -> [Finding; 3] {
    let median = |tau, reserve| {
        let point = with(points, platform, tau, reserve)?;
        point.completion_ns.p50().map(|ns| ns as f64)
    };
    let (one, two) = (Tau::One.task(), Tau::Two.task());
    let enough = with(points, platform, Tau::One, one.reserve);
    let retarded = median(Tau::Two, two.reserve).zip(median(Tau::Two, one.reserve));
    [
        Finding::at_most(
            format!("{platform}: major faults of tau1 with 11 MB"),
            Unit::Count,
            enough.map(|point| point.major_faults as f64),
            0.0,
        ),
        Finding::at_least(
            format!("{platform}: tau1 with 1 MB less: completion of a job, due after 100 ms"),
            Unit::Nanoseconds,
            median(Tau::One, one.reserve - MB),
            one.period as f64,
        ),
        Finding::at_least(
            format!("{platform}: tau2 reads pages again: completion with 2 MB against 11 MB"),
            Unit::Ratio,
            retarded.map(|(small, large)| small / large),
            1.1,
        ),
    ]
}

fn figure(points: &[Point]) -> Figure {
    let series = |value: fn(&Point) -> Option<Spread>| -> Vec<Series<f64>> {
        let curve = |(tau, platform): (Tau, &str)| Series {
            name: format!("{}, {platform}", tau.name()),
            points: of(points, platform, tau)
                .filter_map(|point| Some((bytes(point.reserve) as f64, value(point)?)))
                .collect(),
        };
        let platforms = [SIMULATOR, LINUX].into_iter();
        platforms
            .flat_map(|platform| Tau::ALL.map(|tau| (tau, platform)))
            .map(curve)
            .collect()
    };
    let panel = |y, series| Panel {
        y,
        marks: Marks::Curves {
            x: Axis::linear("reservation", Unit::Bytes),
            series,
        },
    };
    Figure {
        title: "A task against its memory reservation".into(),
        panels: vec![
            panel(
                Axis::logarithmic("completion of a job", Unit::Nanoseconds),
                series(|point| Spread::of_samples(&point.completion_ns)),
            ),
            panel(
                Axis::linear("major faults of a job", Unit::Count),
                series(|point| {
                    let jobs = (point.jobs > 0).then_some(point.jobs as f64)?;
                    Spread::of([point.major_faults as f64 / jobs])
                }),
            ),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::{Point, QUICK, SIMULATOR, findings, measured, simulated};
    use crate::harness::experiment::Options;
    use crate::harness::report::Finding;
    use leasehold_pager_linux::Features;

    fn of_simulator(finding: &Finding) -> bool {
        finding.claim.starts_with(SIMULATOR)
    }

    #[test]
    fn the_cliffs_are_where_the_paper_has_them() {
        let points = simulated("test", &QUICK).expect("simulated");
        for finding in findings(&points).iter().filter(|f| of_simulator(f)) {
            assert!(finding.holds(), "{finding}");
        }
    }

    #[test]
    fn a_smaller_reservation_that_suffices_is_another_finding() {
        let mut points = simulated("test", &[&[40, 44, 45], &[7, 8, 44]]).expect("simulated");
        // As if the next size below had sufficed.
        points[0].misses = 0;
        points[0].jobs = 1;
        let found = findings(&points);
        assert_eq!(found[0].value, f64::from(1 << 20));
        assert!(!found[0].holds());
        // Sizes between the paper's are not the paper's finding.
        assert!(points[3].suffices() && found[1].holds());
    }

    #[test]
    fn real_pages_fall_off_the_same_cliffs() {
        if let Err(unsupported) = Features::probe() {
            eprintln!("skipped: {unsupported}");
            return;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let options = Options {
            out_dir: directory.path().to_owned(),
            ..Options::default()
        };
        let points = measured("test", &[&[40, 44], &[8, 44]], &options).expect("measured");
        let per_job = |point: &Point| point.major_faults as f64 / point.jobs as f64;
        let [less, enough, small, large] = &points[..] else {
            panic!("four points");
        };
        assert!(per_job(less) > 2000.0, "{}", per_job(less));
        assert_eq!((enough.major_faults, large.major_faults), (0, 0));
        assert!(
            (250.0..=300.0).contains(&per_job(small)),
            "{}",
            per_job(small)
        );
    }
}
