//! Measures the rows of host steps at their caps, for `leasehold calibrate` to store.
//!
//! Programs made of recipes (`recipe`) call each function with arguments at its caps, many times, in
//! a cell that keeps how long every step took. Functions that are counted under one row have
//! programs of their own, so that the slowest is not lost among the others: the row has the time of
//! its slowest program. The work of the engine and the cell themselves is measured over all
//! programs, and over some that hold as much as a tenant can.

mod asked;
mod called;
mod paged;
pub(crate) mod recipe;
mod served;

use crate::component::wrap;
use crate::offer::{Offers, World};
use crate::plan::{Ending, Form, Plan, Step};
use crate::render::render;
use anyhow::{Context, Result};
use leasehold_cell::calibrate::Effort;
use leasehold_cell::keyvalue::Store;
use leasehold_cell::profile::{Profile, StepTime};
use leasehold_cell::program::MAX_INSTANCES;
use leasehold_cell::steps::caps::{
    BULK, DATA, HANDLERS, STRING, STRING_COUNT, TABLE_BULK, WIDE_STRING,
};
use leasehold_cell::steps::{RowId, StepSamples};
use leasehold_cell::{
    Capture, Cell, CellConfig, Destination, Directory, Exit, Lease, Output, Program, StartRequest,
    Surroundings, WhenRealtime,
};
use leasehold_lease::{ByteSize, Nanoseconds};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The fewest steps of one program that count as a measurement of a function.
const FEWEST: usize = 5;

/// How long a program may run.
const PATIENCE: Duration = Duration::from_secs(2);

/// The longest time for all of them: rows that were not measured by then keep the ceiling.
const TIME: Duration = Duration::from_secs(15);

/// The rows that `bulk.wat` and `strings.wat` time, by their indices.
const TIMED: [(&str, &str); 5] = [
    ("engine", "memory.grow"),
    ("engine", "table.grow"),
    ("engine", "instruction"),
    ("engine", "throw"),
    ("engine", "string"),
];

/// A program of the measurement, and how often it is run.
struct Measured {
    name: String,
    bytes: Vec<u8>,
    runs: usize,
    /// Whether its arguments and variables are at their caps.
    strings: bool,
    /// How long it may run before it is killed.
    time: Duration,
    /// Whether it writes times that it has measured itself.
    times: bool,
    /// The rows that it takes steps of often enough to measure them.
    rows: Vec<RowId>,
}

/// Measures the rows on this host, at most for 15 s; tells `progress` the current measurement. The
/// result is in the form of a profile, by the titles of the rows. Rows that are not in it were not
/// measured.
///
/// # Errors
/// When a cell cannot be started, or a recipe is malformed.
pub fn measure(
    effort: Effort,
    progress: &mut dyn FnMut(&str),
) -> Result<BTreeMap<String, StepTime>> {
    Ok(run_all(effort, TIME, progress)?.0)
}

/// Also says which programs did not run to their end; begins none when this time has passed.
fn run_all(
    effort: Effort,
    time: Duration,
    progress: &mut dyn FnMut(&str),
) -> Result<(BTreeMap<String, StepTime>, Vec<String>)> {
    let (began, mut failed) = (Instant::now(), Vec::new());
    let goes_on = || began.elapsed() < time;
    let mut seen = Seen::default();
    // First, since its cell has memory to give back when it ends: the process is confined soon after the last one.
    progress("mapped pages");
    seen.add(undisturbed(|| paged::samples(effort), goes_on)?);
    let mut config = CellConfig::new(Profile::free());
    config.sample_steps = true;
    config.realtime = WhenRealtime::Always;
    let cell = Cell::start(config)?;
    let stores = tempfile::tempdir()?;
    let store = Arc::new(Store::open(&stores.path().join("store"), 1 << 20)?);
    for (what, programs) in [
        ("starts and ends", own_programs(effort)?),
        ("fields of HTTP", vec![fields(effort)?]),
        ("host calls of modules", recipes(Form::Core, effort)?),
        (
            "host calls of components",
            recipes(Form::Component, effort)?,
        ),
    ] {
        progress(what);
        for measured in programs {
            if !goes_on() {
                failed.push(format!("{}: no time left", measured.name));
                continue;
            }
            let program = cell
                .compile(&measured.bytes)
                .with_context(|| measured.name.clone())?;
            let measure = || {
                let mut all = Vec::new();
                for _ in 0..measured.runs {
                    match run(&cell, &program, &store, &measured) {
                        Ok(timed) => all.extend(timed),
                        Err(error) => failed.push(format!("{}: {error:#}", measured.name)),
                    }
                }
                all.extend(cell.take_step_samples());
                Ok(all)
            };
            seen.complete(&measured.rows, measure, goes_on)?;
        }
    }
    progress("requests that are answered");
    seen.add(undisturbed(|| served::samples(&cell, effort), goes_on)?);
    progress("what is asked of other hosts");
    for program in asked::PROGRAMS {
        seen.add(undisturbed(
            || asked::samples(&cell, effort, program),
            goes_on,
        )?);
    }
    progress("calls of exports");
    for samples in called::samples(&cell, effort)? {
        seen.add(samples);
    }
    Ok((seen.times(), failed))
}

/// How often a program with steps above the ceiling is run again. Of fewer than 100 steps the longest counts, and one
/// interrupt of the host would raise its row on every cell; if they do take so long, the cells raise it.
const AGAIN: u32 = 2;

/// Measures, and again while steps are above the ceiling and it `goes_on`.
fn undisturbed(
    mut measure: impl FnMut() -> Result<Vec<StepSamples>>,
    goes_on: impl Fn() -> bool,
) -> Result<Vec<StepSamples>> {
    let mut samples = measure()?;
    for _ in 0..AGAIN {
        if samples.iter().any(is_long) && goes_on() {
            samples = shorter(samples, measure()?);
        }
    }
    Ok(samples)
}

fn is_long(samples: &StepSamples) -> bool {
    let time = StepTime::of(samples.ns.clone());
    samples.ns.len() >= FEWEST && time.is_some_and(|time| time.exceeds())
}

/// Of two measurements of each row by one program, that with the lower 99th percentile.
fn shorter(first: Vec<StepSamples>, mut again: Vec<StepSamples>) -> Vec<StepSamples> {
    let p99 = |samples: &StepSamples| StepTime::of(samples.ns.clone()).map(|time| time.p99_ns);
    let of_row = first.into_iter().map(|first| {
        let same = again.iter().position(|again| again.row == first.row);
        match same.map(|at| again.swap_remove(at)) {
            Some(again) if again.ns.len() >= FEWEST && p99(&again) < p99(&first) => again,
            _ => first,
        }
    });
    of_row.collect()
}

/// Programs that hold much, or that no recipe can express.
fn own_programs(effort: Effort) -> Result<Vec<Measured>> {
    let runs = match effort {
        Effort::Quick => 3,
        Effort::Full => 40,
    };
    let instances = "(core instance (instantiate $m))".repeat(MAX_INSTANCES as usize - 1);
    let component = format!(
        r#"(component
             (core module $m (memory 1) (table 16 funcref) (func (export "run") (result i32) i32.const 0))
             (core module $n (func (export "run") (result i32) i32.const 0))
             (core instance $i (instantiate $m)) {}
             (func $run (result (result)) (canon lift (core func $i "run")))
             (instance $r (export "run" (func $run)))
             (export "wasi:cli/run@0.2.0" (instance $r)))"#,
        instances.replace("$m", "$n")
    );
    let bulk = include_str!("bulk.wat")
        .replace("ELEMENTS", &"$f ".repeat(TABLE_BULK.size()))
        .replace("DATA", &"x".repeat(BULK.size()))
        .replace(
            "HANDLERS",
            &"(catch $other $caught) ".repeat(HANDLERS.size() - 1),
        );
    // The characters take longest that are two bytes each, and of other encodings as many as there may be. A string
    // in Latin-1 is translated again when its last character turns out to be none of Latin-1.
    let strings = |(sent, width, received): (&str, u64, &str), ends: [u32; 2], bytes: u64| {
        let [all, last] = ends;
        include_str!("strings.wat")
            .replace("SENT", sent)
            .replace("RECEIVED", received)
            .replace("CHARACTERS", &all.to_string())
            .replace("LAST", &last.to_string())
            .replace("END", &(bytes - 4).to_string())
            .replace("UNITS", &(bytes / width).to_string())
    };
    let narrow = strings(("utf8", 1, "utf8"), [0xA9C3_A9C3; 2], STRING.most);
    let wide = strings(("utf16", 2, "utf8"), [0x0071_0071; 2], 2 * WIDE_STRING.most);
    let compact = ("utf8", 1, "latin1+utf16");
    let [latin, wider] = [0xA9C3_A9C3, 0x80C4_A9C3];
    let latin_only = strings(compact, [latin; 2], WIDE_STRING.most);
    let latin_first = strings(compact, [latin, wider], WIDE_STRING.most / 2);
    let heavy = include_str!("heavy.wat").replace("DATA", &"x".repeat(DATA.size()));
    let spin =
        r#"(module (memory (export "memory") 1) (func (export "_start") (loop $l (br $l))))"#;
    let own = |name: &str, text: &str| Measured {
        name: name.to_owned(),
        bytes: text.as_bytes().to_vec(),
        runs,
        strings: true,
        time: PATIENCE,
        times: false,
        rows: Vec::new(),
    };
    let timed = |name: &str, text: &str| Measured {
        runs: 2,
        times: true,
        ..own(name, text)
    };
    Ok(vec![
        own("much", &heavy),
        own("instances", &component),
        Measured {
            runs: 1,
            strings: false,
            ..own("tasks and children", include_str!("tasks.wat"))
        },
        Measured {
            bytes: wrap(
                wat::parse_str(include_str!("tasks-of-components.wat"))?,
                World::Attack,
            )?,
            runs: 1,
            strings: false,
            ..own("tasks and children of components", "")
        },
        Measured {
            runs: 5,
            strings: false,
            ..own("waiters", include_str!("waiters.wat"))
        },
        timed("instructions", &bulk),
        timed("strings", &narrow),
        timed("wide strings", &wide),
        timed("strings in Latin-1", &latin_only),
        timed("strings that begin in Latin-1", &latin_first),
        Measured {
            time: Duration::from_millis(3),
            runs: 10,
            ..own("a loop", spin)
        },
    ])
}

/// A program that makes fields of HTTP at their cap.
fn fields(effort: Effort) -> Result<Measured> {
    let rounds = match effort {
        Effort::Quick => 10,
        Effort::Full => 100,
    };
    let text = include_str!("http.wat")
        .replace("COUNT", &served::COUNT.to_string())
        .replace("ROUNDS", &rounds.to_string());
    Ok(Measured {
        name: "fields of HTTP".to_owned(),
        bytes: wrap(wat::parse_str(&text)?, World::Attack)?,
        runs: 1,
        strings: false,
        time: PATIENCE,
        times: false,
        rows: Vec::new(),
    })
}

fn recipes(form: Form, effort: Effort) -> Result<Vec<Measured>> {
    let offers = Offers::all()?;
    let plans = recipe::plans(form, &offers)?;
    let measured = |mut plan: Plan| -> Result<Measured> {
        if let (Effort::Quick, Some(last)) = (effort, plan.blocks.last_mut()) {
            last.repeat = last.repeat.div_ceil(10).max(last.repeat.min(6));
        }
        // A call that ends its program is made once in each.
        let once = plan.blocks.iter().all(|block| block.repeat == 1);
        plan.ending = Ending::Return;
        let name = plan.blocks.last().map(|block| format!("{:?}", block.steps));
        Ok(Measured {
            name: name.unwrap_or_default(),
            bytes: render(&plan, &offers)?.1,
            runs: if once { 10 } else { 1 },
            strings: true,
            time: PATIENCE,
            times: false,
            rows: repeated(&plan),
        })
    };
    plans.into_iter().map(measured).collect()
}

/// The rows of the calls that a plan repeats at least [`FEWEST`] times.
fn repeated(plan: &Plan) -> Vec<RowId> {
    let last = plan.blocks.last();
    let steps = last.filter(|block| block.repeat as usize >= FEWEST);
    let calls = steps.into_iter().flat_map(|block| &block.steps);
    let rows = calls.filter_map(|step| match step {
        Step::Call(call) => {
            let interface = call.module.split('@').next()?;
            Some(RowId::find(interface, &call.name)?.counted_as())
        }
        _ => None,
    });
    rows.collect()
}

/// Runs a program to its end; returns the times that it measured itself.
fn run(
    cell: &Cell,
    program: &Arc<Program>,
    store: &Arc<Store>,
    measured: &Measured,
) -> Result<Vec<StepSamples>> {
    let strings = measured.strings;
    let written = Capture::new(1 << 20);
    let directory = tempfile::tempdir()?;
    let mut lease = Lease::default();
    lease.reclaim.budget = Nanoseconds::new(1_000_000_000).context("a budget")?;
    lease.memory.reserve = ByteSize::new(64 << 20).context("a size")?;
    // The largest number of strings, with the largest total length.
    let many = |bytes: usize| (0..STRING_COUNT.most).map(move |_| "x".repeat(bytes));
    let config: Vec<_> = many(254).map(|value| (String::new(), value)).collect();
    let (args, env) = match strings {
        true => (
            many(255).collect(),
            many(253).map(|value| ("x".to_owned(), value)).collect(),
        ),
        false => (vec!["steps".to_owned()], Vec::new()),
    };
    let handle = cell.start_tenant(StartRequest {
        program: program.clone(),
        lease,
        surroundings: Surroundings {
            args,
            env,
            config: config.into(),
            keyvalue: Some(store.clone()),
            dirs: vec![Directory {
                host: directory.path().to_owned(),
                guest: "/".to_owned(),
                write: true,
            }],
            stdout: match measured.times {
                true => Output::Capture(written.clone()),
                false => Output::To(Destination::new("steps", std::io::sink())),
            },
            ..Surroundings::default()
        },
    })?;
    let ended = match handle.wait_for(measured.time)? {
        Some(ended) => ended,
        None => {
            handle.kill();
            handle.wait()?
        }
    };
    match ended.exit {
        Exit::Code(_) => Ok(timed(&written.bytes())),
        // Some programs are meant to trap, or never to return.
        Exit::Trap(message) if message.contains("unreachable") => Ok(Vec::new()),
        Exit::Killed if measured.time < PATIENCE => Ok(Vec::new()),
        other => Err(anyhow::anyhow!("{other:?}")),
    }
}

/// The times in the output of `bulk.wat` or `strings.wat`; none for other programs.
fn timed(written: &[u8]) -> Vec<StepSamples> {
    let (pairs, _) = written.as_chunks::<8>();
    let pairs = pairs.iter().map(|pair| u64::from_le_bytes(*pair));
    let pairs: Vec<(u64, u64)> = pairs.map(|pair| (pair & 0xffff_ffff, pair >> 32)).collect();
    let rows = (0..).zip(TIMED);
    let samples = rows.filter_map(|(index, (interface, name))| {
        let own = pairs.iter().filter(|(which, _)| *which == index);
        Some(StepSamples {
            row: RowId::find(interface, name)?,
            ns: own.map(|(_, ns)| *ns).collect(),
        })
    });
    samples.filter(|samples| !samples.ns.is_empty()).collect()
}

/// The measurements so far.
#[derive(Default)]
struct Seen {
    /// The slowest program of each row.
    dearest: HashMap<RowId, StepTime>,
    /// All steps of the rows of which a program takes few.
    few: HashMap<RowId, Vec<u64>>,
}

impl Seen {
    /// Adds the steps of one program.
    fn add(&mut self, samples: Vec<StepSamples>) {
        for StepSamples { row, ns } in samples {
            // Each kind of call has a program of its own.
            let by_itself =
                matches!(row.row().interface, "engine" | "cell") && Some(row) != called::ROW;
            if by_itself || ns.len() < FEWEST {
                self.few.entry(row).or_default().extend(ns);
            } else if let Some(time) = StepTime::of(ns) {
                let dearest = self.dearest.entry(row).or_insert(time);
                if time.p99_ns > dearest.p99_ns {
                    *dearest = time;
                }
            }
        }
    }

    /// Adds what a program measures of these rows; again while one of them has too few steps and it `goes_on`, since a
    /// step that the host disturbed is none.
    fn complete(
        &mut self,
        rows: &[RowId],
        mut measure: impl FnMut() -> Result<Vec<StepSamples>>,
        goes_on: impl Fn() -> bool,
    ) -> Result<()> {
        self.add(undisturbed(&mut measure, &goes_on)?);
        for _ in 0..AGAIN {
            if rows.iter().all(|row| self.has(*row)) || !goes_on() {
                break;
            }
            self.add(measure()?);
        }
        Ok(())
    }

    fn has(&self, row: RowId) -> bool {
        let few = self.few.get(&row).map_or(0, Vec::len);
        self.dearest.contains_key(&row) || few >= FEWEST
    }

    fn times(mut self) -> BTreeMap<String, StepTime> {
        for (row, ns) in self.few {
            if let (true, Some(time)) = (ns.len() >= FEWEST, StepTime::of(ns)) {
                self.dearest.entry(row).or_insert(time);
            }
        }
        let rows = self.dearest.into_iter();
        rows.map(|(row, time)| (row.row().title(), time)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Seen, StepSamples, is_long, run_all, shorter};
    use crate::offer::Offers;
    use leasehold_cell::calibrate::Effort;
    use leasehold_cell::steps::{Longest, RowId};
    use std::time::Duration;

    #[test]
    fn of_steps_that_were_disturbed_once_those_count_that_were_not() {
        let row = |name| RowId::find("wasi:io/poll", name).expect("a row");
        let samples = |name, longest| StepSamples {
            row: row(name),
            ns: [vec![40_000; 50], vec![longest]].concat(),
        };
        let disturbed = vec![
            samples("poll", 400_000),
            samples("[method]pollable.ready", 50_000),
        ];
        assert_eq!(
            disturbed.iter().map(is_long).collect::<Vec<_>>(),
            [true, false]
        );
        let again = vec![
            samples("[method]pollable.ready", 90_000),
            samples("poll", 45_000),
        ];
        let longest = |samples: StepSamples| (samples.row, samples.ns.iter().copied().max());
        let kept: Vec<_> = shorter(disturbed, again).into_iter().map(longest).collect();
        let ready = row("[method]pollable.ready");
        assert_eq!(kept, [(row("poll"), Some(45_000)), (ready, Some(50_000))]);
    }

    #[test]
    fn a_row_whose_steps_were_disturbed_is_measured_again() {
        let row = RowId::find("wasi_snapshot_preview1", "fd_sync").expect("a row");
        let mut undisturbed = [3, 1, 4].into_iter();
        let measure = || {
            let count = undisturbed.next().expect("no more than twice again");
            Ok(vec![StepSamples {
                row,
                ns: vec![1000; count],
            }])
        };
        let mut seen = Seen::default();
        let all = seen.complete(&[row], measure, || true);
        all.expect("measured");
        let times = seen.times();
        let samples = times.get(&row.row().title()).map(|time| time.samples);
        assert_eq!(samples, Some(8));
    }

    #[test]
    fn everything_that_a_program_can_import_has_a_row() {
        let offers = Offers::all().expect("well-formed");
        let all = offers.core.iter().chain(&offers.component);
        let missing: Vec<_> = all
            .filter(|offer| {
                let interface = offer.module.split('@').next();
                RowId::find(interface.unwrap_or_default(), &offer.name).is_none()
            })
            .collect();
        assert_eq!(missing, Vec::<&crate::Offer>::new());
    }

    #[test]
    fn every_row_is_measured() {
        let (times, failed) = run_all(Effort::Quick, Duration::MAX, &mut |_| {}).expect("measured");
        assert_eq!(failed, Vec::<String>::new());
        let missing: Vec<String> = RowId::all()
            .filter(|row| row.row().longest == Longest::Ceiling)
            .filter(|row| !times.contains_key(&row.counted_as().row().title()))
            .map(|row| row.row().title())
            .collect();
        assert_eq!(missing, Vec::<String>::new());
    }
}
