//! `alloc`: the cost of creating an object, grouped and charged, and plain (BRR fig. 7).
//!
//! *From a guest*, as in the paper, the cost includes the call out of the guest: a module creates
//! objects in a loop inside a cell and reads the clock before and after. *In the kernel*, the same
//! functions are called without a cell around them. Plain is a cell, or a kernel, whose objects all
//! come from one allocator with free lists, and which charges nothing.

use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use leasehold_cell::profile::Profile;
use leasehold_cell::{
    Capture, Cell, CellConfig, Exit, Lease, Output, Program, StartRequest, Surroundings,
};
use leasehold_lease::Nanoseconds;
use leasehold_reclaim::Mode;

use crate::harness::affinity::processors;
use crate::harness::clock::monotonic_ns;
use crate::harness::experiment::{Options, Study};
use crate::harness::objects::{self, AMPLE_NS, BYTES, CHILD_NS, Class};
use crate::harness::plot::{Axis, Figure, Marks, Panel, Series};
use crate::harness::progress::Progress;
use crate::harness::report::{Finding, Report, Row, row};
use crate::harness::samples::{Spread, interleaved};
use crate::harness::unit::Unit;

/// The variants that are compared: with groups and the real profile, and without groups and for
/// free.
const MODES: [Mode; 2] = [Mode::Grouped, Mode::Individual];

/// Runs that only warm up memory and code.
const REHEARSALS: usize = 3;

/// How much more creating may cost from a guest, grouped and charged.
const OVERHEAD: f64 = 1.1;

/// The study; see the [module](self).
pub(crate) struct Alloc;

/// Where objects are created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Creator {
    /// By a guest in a cell.
    Guest,
    /// By a caller of the kernel.
    Kernel,
}

/// The cost of creating one object of a class, in nanoseconds.
struct Point {
    class: Class,
    place: Creator,
    mode: Mode,
    create_ns: Spread,
    runs: usize,
}

impl Study for Alloc {
    fn name(&self) -> &'static str {
        "alloc"
    }

    fn paper(&self) -> &'static str {
        "BRR fig. 7"
    }

    fn about(&self) -> &'static str {
        "Cost of creating one object of each class, by a guest (the call included) and in the \
         kernel alone: in groups that are charged, and plain, without either."
    }

    fn run(&self, options: &Options) -> Result<Report> {
        measure(
            self,
            options,
            if options.quick { 61 } else { 501 },
            &Class::ALL,
        )
    }
}

fn measure(study: &Alloc, options: &Options, runs: usize, classes: &[Class]) -> Result<Report> {
    let mut report = Report::new(study, options);
    let profile = objects::profile(options)?;
    let cells = [
        GuestBench::new(Mode::Grouped, profile.clone())?,
        GuestBench::new(Mode::Individual, Profile::free())?,
    ];
    let mut progress = Progress::new(study.name(), 2 * classes.len() as u64);
    let mut points = Vec::new();
    for &class in classes {
        progress.at(format!("{} from a guest", class.name()));
        let programs = [cells[0].compile(class)?, cells[1].compile(class)?];
        points.extend(compare(class, Creator::Guest, runs, |mode| {
            cells[mode].create(&programs[mode], class)
        })?);
        progress.step();
        progress.at(format!("{} in the kernel", class.name()));
        points.extend(in_kernel(&profile, class, runs)?);
        progress.step();
    }
    report.rows = points.iter().map(Point::row).collect();
    report.findings = findings(&points);
    report.notes.push(
        "grouped: in the tenant's group, charged by the profile; plain: from one allocator for \
         all, object by object, without charge; runs of both take turns, each by a new tenant that \
         makes objects for the first time, in memory that ended tenants have used before"
            .into(),
    );
    report.notes.push(format!(
        "from a guest: with the call, by wall time inside the guest, both cells on one \
         processor; channels and regions have {BYTES} bytes; a guest's tasks are started programs, \
         the kernel's run nothing; tenants are not started"
    ));
    report.figure = figure(&points);
    Ok(report)
}

/// Alternates both modes in a measurement that returns the time of one object.
fn compare(
    class: Class,
    place: Creator,
    runs: usize,
    mut once: impl FnMut(usize) -> Result<f64>,
) -> Result<[Point; 2]> {
    for mode in interleaved(MODES.len(), REHEARSALS) {
        once(mode)?;
    }
    let mut samples = MODES.map(|_| Vec::with_capacity(runs));
    for mode in interleaved(MODES.len(), runs) {
        samples[mode].push(once(mode)?);
    }
    let [grouped, plain] = samples;
    let point = |mode, samples: Vec<f64>| -> Result<Point> {
        Ok(Point {
            class,
            place,
            mode,
            runs: samples.len(),
            create_ns: Spread::of(samples).context("nothing was measured")?,
        })
    };
    Ok([
        point(Mode::Grouped, grouped)?,
        point(Mode::Individual, plain)?,
    ])
}

fn in_kernel(profile: &Profile, class: Class, runs: usize) -> Result<[Point; 2]> {
    let free = Profile::free();
    let count = count(class, Creator::Kernel);
    let mut kernels = [
        objects::kernel(profile, Mode::Grouped, 1 << 20),
        objects::kernel(&free, Mode::Individual, 1 << 20),
    ];
    compare(class, Creator::Kernel, runs, |mode| {
        let kernel = &mut kernels[mode];
        let tenant = kernel.admit(AMPLE_NS, 0)?;
        let start = monotonic_ns();
        class.make(kernel, tenant, count)?;
        let elapsed = monotonic_ns() - start;
        kernel.end(tenant, &mut |_| {})?;
        Ok(elapsed as f64 / count as f64)
    })
}

/// The number of objects that one tenant makes: as many as fit the memory that its predecessor left
/// resident, and as many programs as a tenant may run.
const fn count(class: Class, place: Creator) -> usize {
    match (class, place) {
        (Class::Task, Creator::Guest) => 16,
        (Class::Tenant, _) => 200,
        _ => 2000,
    }
}

/// A cell of one mode, and what its guests run.
struct GuestBench {
    cell: Cell,
}

impl GuestBench {
    fn new(mode: Mode, profile: Profile) -> Result<Self> {
        let config = CellConfig {
            // Both run on the same processor, so that both meet the same neighbours.
            cpu: processors()?.last().copied(),
            mode,
            ..CellConfig::new(profile)
        };
        Ok(Self {
            cell: Cell::start(config)?,
        })
    }

    fn compile(&self, class: Class) -> Result<Arc<Program>> {
        let text = program(class);
        Ok(self.cell.compile(text.as_bytes())?)
    }

    /// The time that the guest took to create one object.
    fn create(&self, program: &Arc<Program>, class: Class) -> Result<f64> {
        let output = Capture::new(STAMPS);
        let mut lease = Lease::default();
        lease.reclaim.budget = Nanoseconds::MAX;
        let tenant = self.cell.start_tenant(StartRequest {
            program: program.clone(),
            lease,
            surroundings: Surroundings {
                args: vec!["alloc".to_owned()],
                stdout: Output::Capture(output.clone()),
                ..Surroundings::default()
            },
        })?;
        let ended = tenant.wait()?;
        if ended.exit != Exit::Code(0) {
            bail!("a guest that makes {}s: {:?}", class.name(), ended.exit);
        }
        let bytes = output.bytes();
        ensure!(
            bytes.len() == STAMPS,
            "the guest wrote {} bytes",
            bytes.len()
        );
        let stamp = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(word)
        };
        let elapsed = stamp(8).saturating_sub(stamp(0));
        Ok(elapsed as f64 / count(class, Creator::Guest) as f64)
    }
}

/// Bytes of the two readings of the clock that a guest prints.
const STAMPS: usize = 16;

/// A module that makes objects and prints when it began and when it was done. Started with
/// arguments, as a task is, it does nothing.
fn program(class: Class) -> String {
    let (name, parameters, arguments) = match class {
        Class::Semaphore => ("semaphore_create", "i32", "(i32.const 0)".to_owned()),
        Class::Channel => ("channel_create", "i32", format!("(i32.const {BYTES})")),
        Class::Region => ("region_create", "i64", format!("(i64.const {BYTES})")),
        Class::Timer => ("timer_create", "", String::new()),
        // The argument is the empty string at 256.
        Class::Task => (
            "task_start",
            "i32 i32",
            "(i32.const 256) (i32.const 1)".to_owned(),
        ),
        Class::Tenant => (
            "tenant_create",
            "i64 i64",
            format!("(i64.const {CHILD_NS}) (i64.const 0)"),
        ),
        // The right to read.
        Class::Capability => (
            "capability_derive",
            "i32 i32",
            "(local.get $original) (i32.const 1)".to_owned(),
        ),
    };
    let count = count(class, Creator::Guest);
    format!(
        r#"(module
  (import "leasehold_kernel" "{name}" (func $create (param {parameters}) (result i64)))
  (import "leasehold_kernel" "semaphore_create" (func $semaphore (param i32) (result i64)))
  (import "wasi_snapshot_preview1" "clock_time_get"
    (func $clock (param i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "args_sizes_get" (func $args (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write"
    (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "_start") (local $n i32) (local $original i32) (local $refused i64)
    (drop (call $args (i32.const 32) (i32.const 36)))
    (if (i32.gt_u (i32.load (i32.const 32)) (i32.const 1)) (then (return)))
    (local.set $original (i32.wrap_i64 (call $semaphore (i32.const 0))))
    (local.set $n (i32.const {count}))
    (drop (call $clock (i32.const 1) (i64.const 1) (i32.const 0)))
    (loop $next
      (local.set $refused (i64.or (local.get $refused) (call $create {arguments})))
      (br_if $next (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))
    (drop (call $clock (i32.const 1) (i64.const 1) (i32.const 8)))
    (if (i64.lt_s (local.get $refused) (i64.const 0)) (then unreachable))
    (i32.store (i32.const 48) (i32.const 0))
    (i32.store (i32.const 52) (i32.const {STAMPS}))
    (drop (call $write (i32.const 1) (i32.const 48) (i32.const 1) (i32.const 56)))))"#
    )
}

impl Creator {
    const fn name(self) -> &'static str {
        match self {
            Creator::Guest => "guest",
            Creator::Kernel => "kernel",
        }
    }
}

impl Point {
    fn row(&self) -> Row {
        // Tenths of nanoseconds: the clock is finer than that over many objects.
        let tenths = |ns: f64| ((ns * 10.0).round() / 10.0).into();
        let mode = match self.mode {
            Mode::Grouped => "grouped",
            Mode::Individual => "plain",
        };
        row([
            ("class", self.class.name().into()),
            ("mode", mode.into()),
            ("where", self.place.name().into()),
            ("create_ns_p50", tenths(self.create_ns.median)),
            ("create_ns_p5", tenths(self.create_ns.p5)),
            ("create_ns_p95", tenths(self.create_ns.p95)),
            ("runs", self.runs.into()),
        ])
    }
}

fn findings(points: &[Point]) -> Vec<Finding> {
    let median = |class, mode| {
        let is_it = |point: &&Point| {
            point.class == class && point.mode == mode && point.place == Creator::Guest
        };
        Some(points.iter().find(is_it)?.create_ns.median)
    };
    let overhead = |class| {
        let (grouped, plain) = (
            median(class, Mode::Grouped)?,
            median(class, Mode::Individual)?,
        );
        Some(Finding::at_most(
            format!(
                "{}: created by a guest, grouped against plain",
                Class::name(class)
            ),
            Unit::Ratio,
            Some(grouped / plain),
            OVERHEAD,
        ))
    };
    Class::ALL.into_iter().filter_map(overhead).collect()
}

fn figure(points: &[Point]) -> Figure {
    let panel = |place: Creator, title: &str| {
        let classes: Vec<Class> = Class::ALL
            .into_iter()
            .filter(|class| points.iter().any(|point| point.class == *class))
            .collect();
        let series = |name: &str, mode: Mode| Series {
            name: name.to_owned(),
            points: classes
                .iter()
                .enumerate()
                .filter_map(|(group, class)| {
                    let point = points.iter().find(|point| {
                        point.class == *class && point.mode == mode && point.place == place
                    })?;
                    Some((group, point.create_ns))
                })
                .collect(),
        };
        Panel {
            y: Axis::logarithmic(title, Unit::Nanoseconds),
            marks: Marks::Bars {
                title: "class".into(),
                groups: classes
                    .iter()
                    .map(|class| short(*class).to_owned())
                    .collect(),
                series: vec![
                    series("plain", Mode::Individual),
                    series("grouped", Mode::Grouped),
                ],
            },
        }
    };
    Figure {
        title: "Creating an object".into(),
        panels: vec![
            panel(Creator::Guest, "from a guest"),
            panel(Creator::Kernel, "in the kernel"),
        ],
    }
}

/// A name that fits below a bar.
const fn short(class: Class) -> &'static str {
    match class {
        Class::Semaphore => "sem.",
        Class::Channel => "chan.",
        Class::Capability => "cap.",
        class => class.name(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Alloc, measure};
    use crate::harness::experiment::Options;
    use crate::harness::objects::Class;

    #[test]
    fn every_class_is_created_in_both_modes_by_guests_and_in_the_kernel() {
        let report = measure(&Alloc, &Options::default(), 2, &Class::ALL).expect("measured");
        assert_eq!(report.rows.len(), 4 * Class::ALL.len());
        for (class, rows) in Class::ALL.iter().zip(report.rows.chunks(4)) {
            for (row, (place, mode)) in rows.iter().zip([
                ("guest", "grouped"),
                ("guest", "plain"),
                ("kernel", "grouped"),
                ("kernel", "plain"),
            ]) {
                assert_eq!(row["class"], class.name());
                assert_eq!((&row["where"], &row["mode"]), (&place.into(), &mode.into()));
                let created = row["create_ns_p50"].as_f64().expect("measured");
                assert!(created > 0.0, "{row:?}");
            }
        }
        assert_eq!(report.findings.len(), Class::ALL.len());
    }
}
