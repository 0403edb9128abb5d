//! `leasehold demo`: real and hostile guests, ended in mid-flight, here and in stock wasmtime.

use crate::calibrate::profile_or_calibrate;
use crate::exit::Failure;
use crate::report::nanos;
use comfy_table::{CellAlignment, Table, presets};
use leasehold_study::progress::Progress;
use leasehold_study::rogue::{
    Arm, Attack, BUDGET, Bench, Damage, Effort, Placement, Runtime, Surroundings, Trial, When,
    figure, hostile, require,
};
use leasehold_study::samples::Samples;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Enough to hurt a host that takes it back object by object.
const DAMAGE: Damage = Damage {
    objects: 1_000_000,
    bytes: 256 << 20,
    files: 1000,
    tenants: 10_000,
};

const EFFORT: Effort = Effort {
    least: 3,
    most: 100,
    time: Duration::from_millis(600),
    ending: Duration::from_millis(30),
};

/// Bytes of text for the guests that read.
const TEXT: usize = 64 << 20;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Every guest has the same limits in both runtimes. The neighbour maps, touches and unmaps memory on
the other processor: another process for Leasehold, whose cells are processes; a thread of the same
process for wasmtime, as embedders run tenants.")]
pub(crate) struct Arguments {
    /// Where the guest programs are (`make guests` builds them).
    #[arg(long, value_name = "DIR", default_value = "target/guests")]
    guests: PathBuf,

    /// Where the picture goes.
    #[arg(long, value_name = "FILE", default_value = "target/demo.svg")]
    out: PathBuf,
}

pub(crate) fn main(arguments: &Arguments, profile: Option<&Path>) -> Result<ExitCode, Failure> {
    let attacks = [real(), hostile(DAMAGE)].concat();
    require(&attacks, &arguments.guests).map_err(|error| Failure::Missing(format!("{error:#}")))?;
    let profile = profile_or_calibrate(profile)?;
    let bench = Bench::new(
        arguments.guests.clone(),
        &profile,
        Surroundings::new(&text())?,
        &[Placement::OtherCore],
    )?;

    let mut progress = Progress::new("demo", attacks.len() as u64);
    let mut pairs = Vec::new();
    for attack in &attacks {
        progress.at(attack.name);
        let hold = |runtime| {
            let arm = Arm::usual(runtime, Placement::OtherCore);
            bench.hold(attack, arm, &EFFORT)
        };
        pairs.push((
            attack.name,
            hold(Runtime::Leasehold)?,
            hold(Runtime::Wasmtime)?,
        ));
        progress.step();
    }
    drop(progress);

    println!("{}", table(&pairs));
    println!("{LEGEND}");
    if let Some(directory) = arguments.out.parent() {
        std::fs::create_dir_all(directory).map_err(anyhow::Error::from)?;
    }
    let trials: Vec<_> = pairs
        .iter()
        .flat_map(|(guest, cell, stock)| {
            [
                (*guest, Runtime::Leasehold, cell),
                (*guest, Runtime::Wasmtime, stock),
            ]
        })
        .collect();
    let svg = figure("Ending tenants in mid-flight", &trials).to_svg()?;
    std::fs::write(&arguments.out, svg).map_err(anyhow::Error::from)?;
    println!("Picture: {}", arguments.out.display());
    Ok(ExitCode::SUCCESS)
}

const LEGEND: &str = "\
killed: in mid-flight, of how often it was run; the others ended by themselves, just before.
predicted: what its charges allow the end to take of the processor; measured: the most it took.
end: wall time from the kill until everything was returned, median.
neighbour: 99th percentile of his operations during the ends over undisturbed, and the longest.";

/// Honest programs with work for longer than they will live.
fn real() -> Vec<Attack> {
    let after = |millis| When::After(Duration::from_millis(millis));
    vec![
        Attack::new("hello", "hello.wasm", "").ended(after(0)),
        Attack::new("wordcount", "wordcount.wasm", &Surroundings::file()).ended(after(30)),
        Attack::new("jsonsort", "jsonsort.wasm", "score")
            .reading(json())
            .ended(after(30)),
        Attack::new("mandelbrot", "mandelbrot.wasm", "4000 5000").ended(after(30)),
    ]
}

fn text() -> Vec<u8> {
    b"the tenant may end at any time and takes nothing along\n"
        .iter()
        .copied()
        .cycle()
        .take(TEXT)
        .collect()
}

fn json() -> Vec<u8> {
    let items: Vec<String> = (0..50_000u64)
        .map(|n| {
            format!(
                r#"{{"score":{},"name":"{n}"}}"#,
                n.wrapping_mul(7919) % 10_007
            )
        })
        .collect();
    format!("[{}]", items.join(",")).into_bytes()
}

fn table(pairs: &[(&str, Trial, Trial)]) -> Table {
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
        "end",
        "neighbour",
        "end (wasmtime)",
        "neighbour (wasmtime)",
    ]);
    for (guest, cell, stock) in pairs {
        let killed = cell.deaths.iter().filter(|death| death.killed).count();
        let costs = || cell.deaths.iter().filter_map(|death| death.reclaimed);
        let pages: Samples = costs().map(|cost| cost.pages).collect();
        let predicted: Samples = costs().map(|cost| cost.predicted_ns).collect();
        let measured: Samples = costs().map(|cost| cost.returned.cpu_ns).collect();
        let budget = u64::try_from(BUDGET.as_nanos()).unwrap_or(u64::MAX);
        table.add_row([
            (*guest).to_owned(),
            format!("{killed}/{}", cell.deaths.len()),
            count(cell.objects()),
            count(pages.p50()),
            time(predicted.p50()),
            time(measured.max()),
            nanos(budget),
            time(cell.end_ns().p50()),
            neighbour(cell),
            time(stock.end_ns().p50()),
            neighbour(stock),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn neighbour(trial: &Trial) -> String {
    match trial.ratio(0.99) {
        Some(ratio) => format!("{ratio:.2}×, {}", time(trial.disturbed.max())),
        None => "–".to_owned(),
    }
}

fn time(ns: Option<u64>) -> String {
    ns.map_or_else(|| "–".to_owned(), nanos)
}

fn count(n: Option<u64>) -> String {
    n.map_or_else(|| "–".to_owned(), |n| n.to_string())
}
