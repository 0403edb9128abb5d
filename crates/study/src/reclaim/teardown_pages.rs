//! `teardown-pages`: the cost of ending a tenant by the number of pages that it has written (BRR
//! fig. 8, for memory instead of objects).
//!
//! The same program writes one byte to each of its pages and sleeps until it is ended: as a tenant
//! of a real cell, and in stock wasmtime with either of its allocators. For comparison, the
//! kernel's time for giving as many pages back is measured. *Slot reusable* is when the next tenant
//! could use the place, *frames back* when the kernel has every page that does not stay resident.
//! Only Leasehold separates the two.

mod tenant;

use anyhow::Result;

use crate::harness::affinity::bound_to;
use crate::harness::contest;
use crate::harness::experiment::{Options, Study};
use crate::harness::mapping::Mapping;
use crate::harness::objects;
use crate::harness::plot::{Axis, Figure, Marks, Panel, Series};
use crate::harness::progress::Progress;
use crate::harness::report::{Finding, Report, Row, row};
use crate::harness::samples::{Samples, Spread, interleaved, ratio_value};
use crate::harness::stock::Allocation;
use crate::harness::unit::Unit;
use tenant::{End, InCell, InStock};

/// The study; see the [module](self).
pub(crate) struct TeardownPages;

/// Against stock wasmtime, how soon the place of a tenant must be reusable.
const REUSABLE: f64 = 0.01;

struct Scale {
    /// Pages that a tenant writes to.
    pages: &'static [usize],
    /// Ends of a point, but not fewer than `least` of one with many pages: all tenants of a point
    /// together write to `pages_per_point`, where that allows.
    ends: usize,
    least: usize,
    pages_per_point: usize,
}

const FULL: Scale = Scale {
    pages: &[100, 1000, 10_000, 100_000, 1_000_000],
    ends: 31,
    least: 5,
    pages_per_point: 3_100_000,
};
const QUICK: Scale = Scale {
    pages: &[100, 10_000, 100_000],
    ends: 11,
    least: 3,
    pages_per_point: 300_000,
};

/// The variants that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Runtime {
    Leasehold,
    WasmtimeOnDemand,
    WasmtimePooling,
    Munmap,
    Madvise,
}

impl Runtime {
    const ALL: [Runtime; 5] = [
        Runtime::Leasehold,
        Runtime::WasmtimeOnDemand,
        Runtime::WasmtimePooling,
        Runtime::Munmap,
        Runtime::Madvise,
    ];

    /// As rows name it.
    const fn name(self) -> &'static str {
        match self {
            Runtime::Leasehold => "leasehold",
            Runtime::WasmtimeOnDemand => "wasmtime-ondemand",
            Runtime::WasmtimePooling => "wasmtime-pooling",
            Runtime::Munmap => "munmap",
            Runtime::Madvise => "madvise",
        }
    }
}

/// Everything known of one runtime and number of pages.
struct Point {
    runtime: Runtime,
    pages: usize,
    reusable_ns: Samples,
    reclaimed_ns: Samples,
    predicted_ns: Samples,
    cpu_ns: Samples,
    /// The largest share of its charge that an end took.
    worst: Option<f64>,
}

impl Study for TeardownPages {
    fn name(&self) -> &'static str {
        "teardown-pages"
    }

    fn paper(&self) -> &'static str {
        "BRR fig. 8, for memory"
    }

    fn about(&self) -> &'static str {
        "Ending a tenant against the pages that it wrote to, in Leasehold and in stock wasmtime, \
         and what the kernel takes for as many: until its slot is reusable, and until its frames \
         are back."
    }

    fn run(&self, options: &Options) -> Result<Report> {
        measure(self, options, if options.quick { &QUICK } else { &FULL })
    }
}

fn measure(study: &TeardownPages, options: &Options, scale: &Scale) -> Result<Report> {
    let mut report = Report::new(study, options);
    let bench = Bench {
        core: contest::core(),
        cell: InCell::new(objects::profile(options)?, contest::core())?,
        on_demand: InStock::new(Allocation::OnDemand, contest::core())?,
        pooling: InStock::new(Allocation::Pooling, contest::core())?,
    };
    let mut progress = Progress::new(study.name(), scale.turns() as u64);
    let mut points = Vec::new();
    for &pages in scale.pages {
        progress.at(format!("{pages} pages"));
        points.extend(bench.compare(pages, scale.ends(pages), &mut || progress.step())?);
    }
    report.rows = points.iter().map(Point::row).collect();
    report.findings = findings(&points).into();
    report.notes = notes();
    report.figure = figure(&points);
    Ok(report)
}

fn notes() -> Vec<String> {
    vec![
        format!(
            "one program of one memory, of which it writes one byte a page; it sleeps when it is \
             ended; all runtimes take turns on {}, and the machine's other processes interrupt \
             them",
            contest::core().map_or("any core".to_owned(), |core| format!("core {core}"))
        ),
        "wall time. leasehold: from the instant when the program runs no more; the cell keeps the \
         first 4 MiB of a slot resident, overwritten with zeros. wasmtime: the drop of the store, \
         without what aborting the task and unwinding its fiber take. What a tenant with many pages \
         leaves behind are cold caches, in which the next steps run"
            .to_owned(),
        "munmap and madvise (MADV_DONTNEED): of a private anonymous mapping without huge pages. \
         Cells ask for no huge pages either; stock wasmtime's memories have them where the host \
         says `always`"
            .to_owned(),
    ]
}

impl Scale {
    fn ends(&self, pages: usize) -> usize {
        (self.pages_per_point / pages).clamp(self.least, self.ends)
    }

    fn turns(&self) -> usize {
        let ends = self.pages.iter().map(|&pages| self.ends(pages));
        ends.sum::<usize>() * Runtime::ALL.len()
    }
}

/// All that is compared, ready to run.
struct Bench {
    core: Option<usize>,
    cell: InCell,
    on_demand: InStock,
    pooling: InStock,
}

impl Bench {
    /// Ends tenants with `pages` pages, `ends` of each runtime, by turns.
    fn compare(&self, pages: usize, ends: usize, step: &mut dyn FnMut()) -> Result<Vec<Point>> {
        let program = tenant::program(pages);
        let in_cell = self.cell.compile(&program)?;
        let on_demand = self.on_demand.compile(&program)?;
        let pooling = self.pooling.compile(&program)?;
        let end = |runtime| match runtime {
            Runtime::Leasehold => self.cell.end(&in_cell, pages),
            Runtime::WasmtimeOnDemand => self.on_demand.end(&on_demand),
            Runtime::WasmtimePooling => self.pooling.end(&pooling),
            Runtime::Munmap => self.bare(pages, Mapping::unmap),
            Runtime::Madvise => self.bare(pages, Mapping::discard),
        };
        // A rehearsal for unused slots, tables and code, and for frames that the host of a virtual
        // machine has not provided yet.
        for runtime in Runtime::ALL {
            end(runtime)?;
        }
        let mut points = Runtime::ALL.map(|runtime| Point::new(runtime, pages));
        for turn in interleaved(points.len(), ends) {
            let point = &mut points[turn];
            point.record(&end(point.runtime)?);
            step();
        }
        Ok(points.into())
    }

    /// The kernel's time to give pages back by `way`.
    fn bare(&self, pages: usize, way: fn(Mapping) -> Result<u64>) -> Result<End> {
        let ns = bound_to(self.core, || {
            let mapping = Mapping::new(pages)?;
            mapping.touch();
            way(mapping)
        })?;
        Ok(End {
            reusable_ns: ns,
            reclaimed_ns: ns,
            charge: None,
        })
    }
}

impl Point {
    fn new(runtime: Runtime, pages: usize) -> Self {
        Self {
            runtime,
            pages,
            reusable_ns: Samples::new(),
            reclaimed_ns: Samples::new(),
            predicted_ns: Samples::new(),
            cpu_ns: Samples::new(),
            worst: None,
        }
    }

    fn record(&mut self, end: &End) {
        self.reusable_ns.record(end.reusable_ns);
        self.reclaimed_ns.record(end.reclaimed_ns);
        let Some(charge) = &end.charge else { return };
        self.cpu_ns.record(charge.cpu_ns);
        // A profile that charges nothing states no bound.
        if charge.predicted_ns > 0 {
            self.predicted_ns.record(charge.predicted_ns);
            let share = charge.cpu_ns as f64 / charge.predicted_ns as f64;
            self.worst = Some(self.worst.map_or(share, |worst| worst.max(share)));
        }
    }

    fn row(&self) -> Row {
        row([
            ("runtime", self.runtime.name().into()),
            ("pages", self.pages.into()),
            ("reusable_ns_p50", self.reusable_ns.p50().into()),
            ("reclaimed_ns_p50", self.reclaimed_ns.p50().into()),
            ("reusable_ns_p5", self.reusable_ns.quantile(0.05).into()),
            ("reusable_ns_p95", self.reusable_ns.quantile(0.95).into()),
            ("reclaimed_ns_p5", self.reclaimed_ns.quantile(0.05).into()),
            ("reclaimed_ns_p95", self.reclaimed_ns.quantile(0.95).into()),
            ("reclaimed_cpu_ns_p50", self.cpu_ns.p50().into()),
            ("predicted_ns_p50", self.predicted_ns.p50().into()),
            ("measured_to_predicted_ratio_max", ratio_value(self.worst)),
            ("ends", self.reusable_ns.count().into()),
        ])
    }
}

fn findings(points: &[Point]) -> [Finding; 3] {
    let most = points.iter().map(|point| point.pages).max().unwrap_or(0);
    let reusable = |runtime: Runtime| {
        let point = points
            .iter()
            .find(|point| point.runtime == runtime && point.pages == most);
        point.map(|point| &point.reusable_ns)
    };
    let against = |stock: Runtime| {
        let ratio = reusable(Runtime::Leasehold)
            .zip(reusable(stock))
            .and_then(|(ours, theirs)| ours.ratio_to(theirs, 0.5));
        Finding::at_most(
            format!(
                "slot reusable after {} resident pages, against {}",
                Unit::Count.humane(most as f64),
                stock.name()
            ),
            Unit::Ratio,
            ratio,
            REUSABLE,
        )
    };
    let worst = points.iter().filter_map(|point| point.worst);
    [
        against(Runtime::WasmtimeOnDemand),
        against(Runtime::WasmtimePooling),
        Finding::at_most(
            "processor time until all frames are back over what was charged for it, at the most",
            Unit::Ratio,
            worst.max_by(f64::total_cmp),
            1.0,
        ),
    ]
}

fn figure(points: &[Point]) -> Figure {
    let curve = |name: &str, runtime: Runtime, of: fn(&Point) -> &Samples| Series {
        name: name.to_owned(),
        points: points
            .iter()
            .filter(|point| point.runtime == runtime)
            .filter_map(|point| Some((point.pages as f64, Spread::of_samples(of(point))?)))
            .collect(),
    };
    let panel = |title: &str, series| Panel {
        y: Axis::logarithmic(title, Unit::Nanoseconds),
        marks: Marks::Curves {
            x: Axis::logarithmic("resident pages", Unit::Count),
            series,
        },
    };
    let all = |of: fn(&Point) -> &Samples| {
        let curves = Runtime::ALL.map(|runtime| curve(runtime.name(), runtime, of));
        curves.to_vec()
    };
    let ours = Runtime::Leasehold;
    Figure {
        title: "End of a tenant with many pages".into(),
        panels: vec![
            panel("slot reusable", all(|point| &point.reusable_ns)),
            panel("frames back", all(|point| &point.reclaimed_ns)),
            panel(
                "frames back in Leasehold, processor time",
                vec![
                    curve("taken", ours, |point| &point.cpu_ns),
                    curve("charged", ours, |point| &point.predicted_ns),
                ],
            ),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::{Point, REUSABLE, Runtime, Scale, TeardownPages, findings, measure};
    use crate::harness::experiment::Options;
    use crate::harness::samples::Samples;

    #[test]
    fn every_runtime_is_ended_at_every_number_of_pages() {
        let scale = Scale {
            pages: &[50, 2000],
            ends: 2,
            least: 1,
            pages_per_point: 4000,
        };
        let report = measure(&TeardownPages, &Options::default(), &scale).expect("measured");
        assert_eq!(report.rows.len(), 2 * Runtime::ALL.len());
        for row in &report.rows {
            let [reusable, reclaimed] =
                ["reusable_ns_p50", "reclaimed_ns_p50"].map(|key| row[key].as_u64().expect(key));
            assert!(0 < reusable && reusable <= reclaimed, "{row:?}");
            assert_eq!(row["ends"], 2);
            // The profile of this test charges nothing.
            assert!(row["predicted_ns_p50"].is_null(), "{row:?}");
        }
    }

    #[test]
    fn claims_are_about_the_most_pages_and_the_worst_end() {
        let point = |runtime, pages, reusable_ns, worst| Point {
            reusable_ns: Samples::from_iter([reusable_ns]),
            worst,
            ..Point::new(runtime, pages)
        };
        let points = [
            point(Runtime::Leasehold, 10, 900, Some(1.5)),
            point(Runtime::WasmtimeOnDemand, 10, 900, None),
            point(Runtime::WasmtimePooling, 10, 900, None),
            point(Runtime::Leasehold, 20, 100, Some(0.5)),
            point(Runtime::WasmtimeOnDemand, 20, 20_000, None),
            point(Runtime::WasmtimePooling, 20, 5000, None),
        ];
        let found = findings(&points);
        assert_eq!(found.each_ref().map(|f| f.value), [0.005, 0.02, 1.5]);
        assert_eq!(found.each_ref().map(|f| f.holds()), [true, false, false]);
        assert!(found[0].value <= REUSABLE);
    }
}
