//! `bulk`: reclamation of any number of objects, grouped and one by one (BRR fig. 8).
//!
//! A tenant makes objects of one class and ends. *Slot reusable* is when everything it had can be
//! used by the next tenant; *pages returned* is when the operating system has its memory back, too.
//! Tenants with different numbers of objects alternate, and the same work precedes each end.
//! Another tenant makes as many objects as the largest of them all and ends, a buffer larger than
//! any cache is written, and a tenant with one semaphore is ended. The memory of every tenant is
//! therefore equally cold, and the code equally warm, for every number of objects: only the work
//! differs.
//!
//! Without the other tenant a million timers ended in 1.2 times the time of one, and in 1.0 times
//! if they had not been set, although the end visits none of them: the effect of setting them on
//! the processor's caches outlasts a gibibyte written in sequence.

use std::hint::black_box;

use anyhow::Result;
use leasehold_cell::MapBacking;
use leasehold_cell::profile::Profile;
use leasehold_kernel::{Errno, ExecutionId, Kernel, TenantId};
use leasehold_reclaim::{Mode, Progress as Reclamation};

use crate::harness::clock::thread_cpu_ns;
use crate::harness::experiment::{Options, Study};
use crate::harness::objects::{self, AMPLE_NS, Class};
use crate::harness::plot::{Axis, Figure, Marks, Panel, Series};
use crate::harness::progress::Progress;
use crate::harness::report::{Finding, Report, Row, row};
use crate::harness::samples::{Samples, Spread, interleaved};
use crate::harness::unit::Unit;

const CACHE_LINE: usize = 64;

/// Bytes of a tenant's arena that stay resident: none, so that small and large tenants end in the
/// same way.
const KEEP_RESIDENT: usize = 0;

/// Reads of the clock whose median is taken off what it timed.
const CLOCK_READS: usize = 1001;

/// The study; see the [module](self).
pub(crate) struct Bulk;

/// How much is measured.
struct Scale {
    /// Objects of a tenant.
    objects: &'static [usize],
    /// Ends of a point whose time is judged, and of any other; but not fewer than `least` of one with
    /// many objects: all tenants of a point together have at most `objects_per_point`, where that
    /// allows.
    ends: usize,
    other_ends: usize,
    least: usize,
    objects_per_point: usize,
    /// Bytes that are written before each timed end. More than twice the size of the last level of
    /// cache, since a cache that is filled once keeps a part of its old contents.
    history: usize,
    /// How many times faster grouped must be than one by one, with most objects.
    speedup: f64,
}

const FULL: Scale = Scale {
    objects: &[1, 10, 100, 1000, 10_000, 100_000, 1_000_000],
    ends: 51,
    other_ends: 15,
    least: 5,
    objects_per_point: 51_000_000,
    history: 1 << 30,
    speedup: 1000.0,
};
const QUICK: Scale = Scale {
    objects: &[1, 1000, 100_000],
    ends: 31,
    other_ends: 11,
    least: 3,
    objects_per_point: 8_700_000,
    history: 64 << 20,
    speedup: 100.0,
};

/// Everything known of one class, number and mode.
struct Point {
    class: Class,
    objects: usize,
    mode: Mode,
    reusable_ns: Samples,
    returned_ns: Samples,
    steps: u64,
}

impl Study for Bulk {
    fn name(&self) -> &'static str {
        "bulk"
    }

    fn paper(&self) -> &'static str {
        "BRR fig. 8"
    }

    fn about(&self) -> &'static str {
        "Ending a tenant against the number of its objects, of every class: grouped, and one by \
         one. Reclaimed is, grouped, when all slots are reusable, and one by one, when the end is \
         over."
    }

    fn run(&self, options: &Options) -> Result<Report> {
        measure(
            self,
            options,
            if options.quick { &QUICK } else { &FULL },
            &Class::ALL,
        )
    }
}

fn measure(study: &Bulk, options: &Options, scale: &Scale, classes: &[Class]) -> Result<Report> {
    let mut report = Report::new(study, options);
    let profile = objects::profile(options)?;
    let clock_ns = clock_cost();
    let mut history = vec![0u8; scale.history];
    let mut progress = Progress::new(study.name(), (classes.len() * scale.ends) as u64);
    let mut points = Vec::new();
    for &class in classes {
        progress.at(class.name());
        let mut bench = Bench {
            profile: &profile,
            class,
            clock_ns,
            history: History {
                kernel: objects::kernel(&profile, Mode::Grouped, usize::MAX),
                objects: scale.objects.iter().copied().max().unwrap_or(0),
                bytes: &mut history,
            },
        };
        points.extend(bench.measure(scale, &mut || progress.step())?);
    }
    report.rows = points.iter().map(Point::row).collect();
    report.findings = findings(&points, scale);
    report.notes.push(format!(
        "cache history, the same for all numbers and both modes: a tenant with as many objects as the \
         largest is made and ended, then {} are written, then a tenant with one semaphore is ended, \
         then the one that counts; the points of a class take turns",
        Unit::Bytes.humane(scale.history as f64)
    ));
    report.notes.push(format!(
        "thread processor time of one end, less the {clock_ns} ns that reading the clock takes; \
         all pages of an arena are returned, while a cell keeps the first of them resident"
    ));
    report.notes.push(
        "reclaim: grouped, until slots are reusable, and one by one, the whole end; memory of \
         objects that go one by one stays with the allocator, so no page is returned"
            .into(),
    );
    report.notes.push(
        "timers are set, each to another instant; tasks run nothing; tenants are children with a \
         group and a table each; channels and regions have 64 bytes"
            .into(),
    );
    report.figure = figure(&points);
    Ok(report)
}

/// Median cost of reading the thread's clock.
fn clock_cost() -> u64 {
    let reads: Samples = (0..CLOCK_READS)
        .map(|_| {
            let start = thread_cpu_ns();
            thread_cpu_ns() - start
        })
        .collect();
    reads.p50().unwrap_or(0)
}

/// The set-up for measuring one class.
struct Bench<'a> {
    profile: &'a Profile,
    class: Class,
    clock_ns: u64,
    history: History<'a>,
}

/// The work of the processor before it ends a tenant.
struct History<'a> {
    /// Of a tenant beside the one that ends, which makes so many objects of the same class.
    kernel: Kernel<MapBacking>,
    objects: usize,
    /// The bytes that are written then.
    bytes: &'a mut [u8],
}

impl History<'_> {
    /// Has the processor do it once more.
    fn repeat(&mut self, class: Class) -> Result<(), Errno> {
        let tenant = populate(&mut self.kernel, class, self.objects)?;
        end(&mut self.kernel, tenant)?;
        for line in self.bytes.chunks_mut(CACHE_LINE) {
            line[0] = line[0].wrapping_add(1);
        }
        black_box(&mut *self.bytes);
        Ok(())
    }
}

/// A tenant with `n` objects.
fn populate(kernel: &mut Kernel<MapBacking>, class: Class, n: usize) -> Result<TenantId, Errno> {
    let tenant = kernel.admit(AMPLE_NS, 0)?;
    if class == Class::Timer {
        for at in 0..n as u64 {
            let timer = kernel.timer_create(tenant)?;
            // In an order that neither a queue nor a stack would like.
            let after_ns = at.wrapping_mul(0x9E37_79B9) & 0xFFFF_FFFF;
            kernel.timer_set(tenant, timer, 0, after_ns, 0)?;
        }
    } else {
        class.make(kernel, tenant, n)?;
    }
    Ok(tenant)
}

/// The time of one end.
struct Timed {
    reusable_ns: u64,
    returned_ns: u64,
    steps: u64,
}

impl Bench<'_> {
    fn measure(&mut self, scale: &Scale, step: &mut dyn FnMut()) -> Result<Vec<Point>> {
        let modes = [Mode::Grouped, Mode::Individual];
        let mut kernels = modes.map(|mode| objects::kernel(self.profile, mode, KEEP_RESIDENT));
        let mut points: Vec<Point> = scale
            .objects
            .iter()
            .flat_map(|&objects| modes.map(|mode| Point::new(self.class, objects, mode)))
            .collect();
        // A rehearsal for memory, tables and code that were not used yet.
        for (index, point) in points.iter().enumerate() {
            let kernel = &mut kernels[index % modes.len()];
            self.end(kernel, point.objects)?;
        }
        for (turn, index) in interleaved(points.len(), scale.ends).enumerate() {
            let point = &mut points[index];
            if scale.is_due(turn / (modes.len() * scale.objects.len()), point) {
                let kernel = &mut kernels[index % modes.len()];
                let timed = self.end(kernel, point.objects)?;
                point.reusable_ns.record(timed.reusable_ns);
                point.returned_ns.record(timed.returned_ns);
                point.steps = timed.steps;
            }
            if (turn + 1) % (modes.len() * scale.objects.len()) == 0 {
                step();
            }
        }
        Ok(points)
    }

    /// Ends a tenant with `n` objects, with the caches in a state that does not depend on it.
    fn end(&mut self, kernel: &mut Kernel<MapBacking>, n: usize) -> Result<Timed, Errno> {
        let predecessor = kernel.admit(AMPLE_NS, 0)?;
        Class::Semaphore.make(kernel, predecessor, 1)?;
        let tenant = populate(kernel, self.class, n)?;
        self.history.repeat(self.class)?;
        end(kernel, predecessor)?;
        let [start, reusable, returned, steps] = end(kernel, tenant)?;
        let reusable_ns = (reusable - start).saturating_sub(self.clock_ns);
        let rest_ns = (returned - reusable).saturating_sub(self.clock_ns);
        Ok(Timed {
            reusable_ns,
            returned_ns: reusable_ns + rest_ns,
            steps,
        })
    }
}

/// Ends a tenant: readings of the clock before, when its slots are reusable and when its pages are
/// returned, and the steps taken.
fn end(kernel: &mut Kernel<MapBacking>, tenant: TenantId) -> Result<[u64; 4], Errno> {
    let host = &mut |_: ExecutionId| {};
    let start = thread_cpu_ns();
    let mut end = kernel.begin_end(tenant)?;
    let mut reached = Reclamation::Working;
    while reached == Reclamation::Working {
        reached = kernel.step_end(&mut end, host, u32::MAX);
    }
    let reusable = thread_cpu_ns();
    while reached != Reclamation::Done {
        reached = kernel.step_end(&mut end, host, u32::MAX);
    }
    let returned = thread_cpu_ns();
    Ok([start, reusable, returned, end.outcome().steps])
}

impl Scale {
    /// Whether a point has an end in this round: those of a point with few ends are spread over
    /// all rounds.
    fn is_due(&self, round: usize, point: &Point) -> bool {
        let is_judged = [self.objects.first(), self.objects.last()].contains(&Some(&point.objects));
        let (most, ends) = match point.mode {
            Mode::Grouped if is_judged => (self.objects_per_point, self.ends),
            Mode::Grouped => (self.objects_per_point, self.other_ends),
            // It takes long, and needs no resolution of nanoseconds.
            Mode::Individual => (self.objects_per_point / 14, self.other_ends),
        };
        let ends = (most / point.objects).clamp(self.least, ends);
        (round + 1) * ends / self.ends > round * ends / self.ends
    }
}

impl Point {
    fn new(class: Class, objects: usize, mode: Mode) -> Self {
        Self {
            class,
            objects,
            mode,
            reusable_ns: Samples::new(),
            returned_ns: Samples::new(),
            steps: 0,
        }
    }

    /// The paper's figure for this mode.
    fn reclaim_ns(&self) -> &Samples {
        match self.mode {
            Mode::Grouped => &self.reusable_ns,
            Mode::Individual => &self.returned_ns,
        }
    }

    fn row(&self) -> Row {
        let mode = match self.mode {
            Mode::Grouped => "grouped",
            Mode::Individual => "individual",
        };
        row([
            ("class", self.class.name().into()),
            ("objects", self.objects.into()),
            ("mode", mode.into()),
            ("reclaim_ns_p50", self.reclaim_ns().p50().into()),
            ("reclaim_ns_p99", self.reclaim_ns().p99().into()),
            ("steps", self.steps.into()),
            ("reusable_ns_p50", self.reusable_ns.p50().into()),
            ("reusable_ns_p99", self.reusable_ns.p99().into()),
            ("returned_ns_p50", self.returned_ns.p50().into()),
            ("returned_ns_p99", self.returned_ns.p99().into()),
            ("ends", self.reusable_ns.count().into()),
        ])
    }
}

/// The results of one class.
struct Shown {
    class: Class,
    most: usize,
    growth: Option<f64>,
    speedup: Option<f64>,
    more_steps: u64,
}

impl Shown {
    fn of(points: &[Point], class: Class) -> Option<Self> {
        let of = |mode| {
            points
                .iter()
                .filter(move |point| point.class == class && point.mode == mode)
        };
        let (least, most) = (of(Mode::Grouped).next()?, of(Mode::Grouped).next_back()?);
        let one_by_one = of(Mode::Individual).next_back()?;
        let ratio = |more: &Point, less: &Point| more.reclaim_ns().ratio_to(less.reclaim_ns(), 0.5);
        Some(Self {
            class,
            most: most.objects,
            growth: ratio(most, least),
            speedup: ratio(one_by_one, most),
            more_steps: most.steps.abs_diff(least.steps),
        })
    }
}

fn findings(points: &[Point], scale: &Scale) -> Vec<Finding> {
    Class::ALL
        .into_iter()
        .filter_map(|class| Shown::of(points, class))
        .flat_map(|shown| shown.findings(scale))
        .collect()
}

impl Shown {
    fn findings(&self, scale: &Scale) -> [Finding; 3] {
        let (class, most) = (self.class.name(), Unit::Count.humane(self.most as f64));
        [
            Finding::at_most(
                format!("{class}: reclaiming {most}, grouped, against reclaiming 1"),
                Unit::Ratio,
                self.growth,
                1.1,
            ),
            Finding::at_least(
                format!("{class}: reclaiming {most} grouped is faster than one by one"),
                Unit::Ratio,
                self.speedup,
                scale.speedup,
            ),
            Finding::at_most(
                format!("{class}: steps of work by which {most}, grouped, differ from 1"),
                Unit::Count,
                Some(self.more_steps as f64),
                0.0,
            ),
        ]
    }
}

fn figure(points: &[Point]) -> Figure {
    let curve = |name: &str, class: Class, mode: Mode, of: &dyn Fn(&Point) -> &Samples| Series {
        name: name.to_owned(),
        points: points
            .iter()
            .filter(|point| point.class == class && point.mode == mode)
            .filter_map(|point| Some((point.objects as f64, Spread::of_samples(of(point))?)))
            .collect(),
    };
    let panel = |title: &str, series: Vec<Series<f64>>| Panel {
        y: Axis::logarithmic(title, Unit::Nanoseconds),
        marks: Marks::Curves {
            x: Axis::logarithmic("objects", Unit::Count),
            series,
        },
    };
    let others = |mode: Mode| {
        Class::ALL[1..]
            .iter()
            .map(|&class| curve(class.name(), class, mode, &Point::reclaim_ns))
            .collect()
    };
    let first = Class::Semaphore;
    Figure {
        title: "End of a tenant with many objects".into(),
        panels: vec![
            panel(
                "semaphores",
                vec![
                    curve("grouped", first, Mode::Grouped, &|p| &p.reusable_ns),
                    curve("and pages", first, Mode::Grouped, &|p| &p.returned_ns),
                    curve("one by one", first, Mode::Individual, &Point::reclaim_ns),
                ],
            ),
            panel("other classes, grouped", others(Mode::Grouped)),
            panel("other classes, one by one", others(Mode::Individual)),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::{Bulk, Scale, measure};
    use crate::harness::experiment::Options;
    use crate::harness::objects::Class;
    use crate::harness::report::Row;

    const SMALL: Scale = Scale {
        objects: &[1, 300],
        ends: 2,
        other_ends: 2,
        least: 2,
        objects_per_point: 600,
        history: 1 << 20,
        speedup: 1.0,
    };

    fn steps(row: &Row) -> u64 {
        row["steps"].as_u64().expect("a number of steps")
    }

    #[test]
    fn only_one_by_one_takes_more_steps_for_more_objects() {
        let report = measure(&Bulk, &Options::default(), &SMALL, &Class::ALL).expect("measured");
        assert_eq!(report.rows.len(), 4 * Class::ALL.len());
        for rows in report.rows.chunks(4) {
            let [one, one_by_one, many, many_by_one] = rows else {
                panic!("four rows of a class: {rows:?}");
            };
            assert_eq!(
                (&one["mode"], &many["mode"]),
                (&"grouped".into(), &"grouped".into())
            );
            assert_eq!(many["objects"], 300);
            assert_eq!(steps(one), steps(many), "{many:?}");
            assert!(
                steps(many_by_one) >= steps(one_by_one) + 299,
                "{many_by_one:?}"
            );
            for row in rows {
                for part in ["reclaim", "reusable", "returned"] {
                    assert!(row[&format!("{part}_ns_p50")].is_u64(), "{row:?}");
                }
                assert!(row["returned_ns_p99"].as_u64() >= row["reusable_ns_p99"].as_u64());
            }
        }
    }
}
