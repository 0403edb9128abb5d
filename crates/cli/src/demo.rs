//! `leasehold demo`: real and hostile guests side by side, killed in mid-flight one after the other
//! while the others go on, in a cell and in stock wasmtime.

use crate::calibrate::profile_or_calibrate;
use crate::exit::Failure;
use crate::output::tell;
use crate::report::nanos;
use anyhow::Context;
use comfy_table::{CellAlignment, Table, presets};
use leasehold_study::plot::{Axis, Figure, Marks, Panel, Series};
use leasehold_study::progress::Progress;
use leasehold_study::rogue::{
    Attack, BUDGET, Damage, Death, Ending, Round, Runtime, Surroundings, Together, When, hostile,
    require,
};
use leasehold_study::samples::{Samples, Spread};
use leasehold_study::unit::Unit;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// How much is done.
struct Scale {
    damage: Damage,
    rounds: usize,
    /// Bytes of text and objects of JSON for the guests that read: work for longer than they live.
    text: usize,
    objects: u64,
}

/// Enough to hurt a host that takes it back object by object.
const FULL: Scale = Scale {
    damage: Damage {
        objects: 1_000_000,
        bytes: 256 << 20,
        files: 1000,
        tenants: 10_000,
    },
    rounds: 3,
    text: 64 << 20,
    objects: 400_000,
};

const QUICK: Scale = Scale {
    damage: Damage {
        objects: 50_000,
        bytes: 32 << 20,
        files: 200,
        tenants: 500,
    },
    rounds: 1,
    text: 64 << 20,
    objects: 400_000,
};

/// A point of the curve of throughput covers so much time.
const BUCKET_NS: u64 = 250_000_000;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
All guests are alive at once on one processor, each under its own lease, or with the same limits on a
thread of stock wasmtime. They are killed one after the other while the others go on. Beside them
`mandelbrot` computes a small picture again and again: what the kills cost the others is what it feels.
A cell ends tenants in small steps between the turns of the others, so that they do not feel it: the
more others there are, the longer an end takes on the clock.")]
pub(crate) struct Arguments {
    /// Where the guest programs are (`make guests` builds them).
    #[arg(long, value_name = "DIR", default_value = "target/guests")]
    guests: PathBuf,

    /// Where the picture goes.
    #[arg(long, value_name = "FILE", default_value = "target/demo.svg")]
    out: PathBuf,

    /// Once instead of three times, with less damage.
    #[arg(long)]
    quick: bool,
}

/// What one runtime showed: every round, in the order in which they were held.
struct Shown {
    runtime: Runtime,
    rounds: Vec<Round>,
}

pub(crate) fn main(arguments: &Arguments, profile: Option<&Path>) -> Result<ExitCode, Failure> {
    let scale = if arguments.quick { &QUICK } else { &FULL };
    let (guests, witness) = (guests(scale), witness());
    let all = [&guests[..], std::slice::from_ref(&witness)].concat();
    require(&all, &arguments.guests).map_err(|error| Failure::Missing(format!("{error:#}")))?;
    let (profile, _) = profile_or_calibrate(profile)?;
    let surroundings = Surroundings::new(&text(scale.text))?;

    let runtimes = [Runtime::Leasehold, Runtime::Wasmtime];
    let mut progress = Progress::new("demo", (scale.rounds * runtimes.len()) as u64);
    let mut shown = Vec::new();
    let crowd = NonZero::new(all.len()).context("guests")?;
    for runtime in runtimes {
        let guests_dir = arguments.guests.clone();
        let together = Together::new(runtime, guests_dir, &profile, &surroundings, crowd)?;
        let mut rounds = Vec::new();
        for _ in 0..scale.rounds {
            progress.at(runtime.name());
            rounds.push(together.round(&guests, &witness)?);
            progress.step();
        }
        shown.push(Shown { runtime, rounds });
    }
    drop(progress);

    tell!("{}", table(&guests, &shown));
    tell!("{LEGEND}");
    if let Some(late) = longer_than_predicted(&guests, &shown) {
        tell!("{late}");
    }
    if let Some(directory) = arguments.out.parent() {
        std::fs::create_dir_all(directory).map_err(anyhow::Error::from)?;
    }
    let svg = figure(&guests, &shown).to_svg()?;
    std::fs::write(&arguments.out, svg).map_err(anyhow::Error::from)?;
    tell!("Picture: {}", arguments.out.display());
    Ok(ExitCode::SUCCESS)
}

const LEGEND: &str = "\
killed: in mid-flight, of how often it ran; the others had ended by themselves, just before.
predicted: what its charges allow the end to take of the processor; measured: the most it took.
reusable: wall time from the kill until others could use its place; end: until everything was
returned too, in turns with the others; medians.
neighbour: the slowest picture of `mandelbrot` during the end over the slowest just before; median.";

/// Names the guests of which an end took more of the processor than was predicted, if there are any.
fn longer_than_predicted(guests: &[Attack], shown: &[Shown]) -> Option<String> {
    let is_late = |death: &Death| {
        let measured = death.reclaimed.map(|cost| cost.returned.cpu_ns);
        measured
            .zip(death.predicted_ns())
            .is_some_and(|(measured, predicted)| measured > predicted)
    };
    let late: Vec<&str> = guests
        .iter()
        .map(|guest| guest.name)
        .filter(|guest| {
            let mut endings = shown.iter().flat_map(|shown| shown.endings(guest));
            endings.any(|ending| is_late(&ending.death))
        })
        .collect();
    (!late.is_empty()).then(|| {
        format!(
            "longer than predicted: {}. A prediction is calibrated, not enforced: `leasehold calibrate \
             --check` tells whether the profile still holds.",
            late.join(", ")
        )
    })
}

/// Hostile guests, and honest ones with work for longer than they will live, in the order in which
/// they are killed.
fn guests(scale: &Scale) -> Vec<Attack> {
    let life = When::After(Duration::ZERO);
    let mut guests = hostile(scale.damage);
    // It cannot be killed in mid-flight.
    guests.retain(|guest| guest.when != When::ByItself);
    // Who keeps the processor busy and has most is killed last: the others show more beside it.
    let fill = guests.iter().position(|guest| guest.name == "fill");
    if let Some(fill) = fill {
        let fill = guests.remove(fill);
        guests.push(fill);
    }
    let honest = [
        Attack::new("wordcount", "wordcount.wasm", &Surroundings::file()),
        Attack::new("jsonsort", "jsonsort.wasm", "score").reading(json(scale.objects)),
        Attack::new("picture", "mandelbrot.wasm", "4000 5000"),
    ];
    for (turn, guest) in honest.into_iter().enumerate() {
        guests.insert(2 * turn, guest.ended(life));
    }
    guests
}

/// The honest guest whose throughput is shown: pictures of some tenths of a millisecond each, more of
/// them than there is time for.
fn witness() -> Attack {
    let ended = When::After(Duration::ZERO);
    Attack::new("mandelbrot", "mandelbrot.wasm", "40 255 100000000").ended(ended)
}

fn text(bytes: usize) -> Vec<u8> {
    b"the tenant may end at any time and takes nothing along\n"
        .iter()
        .copied()
        .cycle()
        .take(bytes)
        .collect()
}

fn json(objects: u64) -> Vec<u8> {
    let items: Vec<String> = (0..objects)
        .map(|n| {
            format!(
                r#"{{"score":{},"name":"{n}"}}"#,
                n.wrapping_mul(7919) % 10_007
            )
        })
        .collect();
    format!("[{}]", items.join(",")).into_bytes()
}

impl Shown {
    /// The ends of one guest, one a round; none if the runtime has no such guest.
    fn endings<'a>(&'a self, guest: &'a str) -> impl Iterator<Item = &'a Ending> {
        let endings = self.rounds.iter().flat_map(|round| &round.endings);
        endings.filter(move |ending| ending.guest == guest)
    }

    fn end_ns(&self, guest: &str) -> Samples {
        self.endings(guest).map(|e| e.death.end_ns).collect()
    }

    /// Until others could use what the guest had of the kernel's; of cells only.
    fn reusable_ns(&self, guest: &str) -> Samples {
        let costs = self.endings(guest).filter_map(|e| e.death.reclaimed);
        costs.map(|cost| cost.reusable.wall_ns).collect()
    }

    fn slowdown(&self, guest: &str) -> Option<Spread> {
        Spread::of(self.endings(guest).filter_map(Ending::slowdown))
    }

    /// Pictures of the witness per second, from the first kill of the first round on.
    fn throughput(&self) -> Vec<(f64, Spread)> {
        let Some(round) = self.rounds.first() else {
            return Vec::new();
        };
        // The last is not done.
        let done = round
            .pictures
            .split_last()
            .map_or(&[][..], |(_, done)| done);
        let ends = done.iter().map(|picture| picture.end_ns);
        let from_kill = ends.filter_map(|end_ns| end_ns.checked_sub(round.first_kill_ns));
        let mut buckets: Vec<u64> = Vec::new();
        for at_ns in from_kill {
            let bucket = usize::try_from(at_ns / BUCKET_NS).unwrap_or(usize::MAX);
            if buckets.len() <= bucket {
                buckets.resize(bucket + 1, 0);
            }
            buckets[bucket] += 1;
        }
        // The last is not a whole one.
        buckets.pop();
        let buckets = buckets.into_iter().enumerate();
        buckets
            .filter_map(|(bucket, runs)| {
                let middle = (bucket as u64 * BUCKET_NS + BUCKET_NS / 2) as f64;
                let rate = runs as f64 * 1e9 / BUCKET_NS as f64;
                Some((middle, Spread::of([rate])?))
            })
            .collect()
    }
}

fn table(guests: &[Attack], shown: &[Shown]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header([
        "guest",
        "killed",
        "objects",
        "pages",
        "predicted",
        "measured",
        "budget",
        "reusable",
        "end",
        "neighbour",
        "end (wasmtime)",
        "neighbour (wasmtime)",
    ]);
    let budget = u64::try_from(BUDGET.as_nanos()).unwrap_or(u64::MAX);
    let felt = |spread: Option<Spread>| spread.map_or_else(|| "–".into(), |s| times(s.median));
    for guest in guests.iter().map(|guest| guest.name) {
        let mut row = vec![guest.to_owned()];
        for shown in shown {
            if shown.runtime == Runtime::Leasehold {
                let deaths = || shown.endings(guest).map(|ending| &ending.death);
                let costs = || deaths().filter_map(|death| death.reclaimed);
                let killed = deaths().filter(|death| death.killed).count();
                let objects: Samples = deaths().filter_map(|death| death.objects()).collect();
                let pages: Samples = costs().map(|cost| cost.pages).collect();
                let predicted: Samples = deaths().filter_map(|d| d.predicted_ns()).collect();
                let measured: Samples = costs().map(|cost| cost.returned.cpu_ns).collect();
                row.extend([
                    format!("{killed}/{}", deaths().count()),
                    count(objects.p50()),
                    count(pages.p50()),
                    time(predicted.p50()),
                    time(measured.max()),
                    nanos(budget),
                    time(shown.reusable_ns(guest).p50()),
                ]);
            }
            row.extend([time(shown.end_ns(guest).p50()), felt(shown.slowdown(guest))]);
        }
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Three rows: how long the ends took, what the witness felt of each, and its throughput
/// throughout.
fn figure(guests: &[Attack], shown: &[Shown]) -> Figure {
    let series = |name: &str, value: &dyn Fn(&str) -> Option<Spread>| {
        let points = guests.iter().enumerate();
        let points = points.filter_map(|(at, guest)| Some((at, value(guest.name)?)));
        Series {
            name: name.into(),
            points: points.collect(),
        }
    };
    let bars = |y: Axis, series: Vec<Series<usize>>| Panel {
        y,
        marks: Marks::Bars {
            title: "guest, in the order in which they were killed".into(),
            groups: guests.iter().map(|guest| guest.name.to_owned()).collect(),
            series,
        },
    };
    let (mut times, mut felt) = (Vec::new(), Vec::new());
    for shown in shown {
        let name = shown.runtime.name();
        let returned = format!("{name}: everything returned");
        times.push(series(&returned, &|guest| {
            Spread::of_samples(&shown.end_ns(guest))
        }));
        felt.push(series(name, &|guest| shown.slowdown(guest)));
    }
    // Last, so that the colours of the runtimes stay the same in all rows.
    for shown in shown.iter().filter(|s| s.runtime == Runtime::Leasehold) {
        times.push(series("leasehold: place reusable", &|guest| {
            Spread::of_samples(&shown.reusable_ns(guest))
        }));
    }
    let throughput = shown.iter().map(|shown| Series {
        name: shown.runtime.name().into(),
        points: shown.throughput(),
    });
    Figure {
        title: "Guests side by side, killed in mid-flight one after the other".into(),
        panels: vec![
            bars(
                Axis::logarithmic("time from the kill", Unit::Nanoseconds),
                times,
            ),
            bars(
                Axis::logarithmic("mandelbrot: slowest picture, over before", Unit::Ratio),
                felt,
            ),
            Panel {
                y: Axis::linear("mandelbrot: pictures per second", Unit::Count),
                marks: Marks::Curves {
                    x: Axis::linear("time from the first kill", Unit::Nanoseconds),
                    series: throughput.collect(),
                },
            },
        ],
    }
}

fn times(ratio: f64) -> String {
    format!("{ratio:.2}×")
}

fn time(ns: Option<u64>) -> String {
    ns.map_or_else(|| "–".to_owned(), nanos)
}

fn count(n: Option<u64>) -> String {
    n.map_or_else(|| "–".to_owned(), |n| n.to_string())
}
