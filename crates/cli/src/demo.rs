//! `leasehold demo`: a guest that requests millions of timers is killed beside a neighbour, in
//! stock wasmtime and in a cell; then many guests, one after the other.

mod deadline;
mod headline;
mod table;

use crate::calibrate::profile_or_calibrate;
use crate::exit::Failure;
use crate::output::tell;
use anyhow::Context;
use deadline::{Deadlines, Verdict};
use headline::{Headline, LeasedEnd, StockEnd};
use leasehold_cell::CellConfig;
use leasehold_cell::profile::Profile;
use leasehold_study::progress::Progress;
use leasehold_study::rogue::{
    self, Attack, Damage, Duel, Ending, Pace, Round, Runtime, Surroundings, Together, Unready,
    When, hostile, require,
};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use table::Line;

/// How much is done.
struct Scale {
    /// Timers that the guest of the first two lines asks for.
    timers: u64,
    damage: Damage,
    rounds: usize,
    /// Bytes of text and objects of JSON for the guests that read: work for longer than they live.
    text: usize,
    json: u64,
}

/// Enough to hurt a host that takes it back object by object.
const FULL: Scale = Scale {
    timers: 10_000_000,
    damage: Damage {
        objects: 1_000_000,
        bytes: 256 << 20,
        files: 1000,
        tenants: 10_000,
    },
    rounds: 3,
    text: 64 << 20,
    json: 400_000,
};

const QUICK: Scale = Scale {
    timers: 1_000_000,
    damage: Damage {
        objects: 50_000,
        bytes: 32 << 20,
        files: 200,
        tenants: 500,
    },
    rounds: 1,
    text: 64 << 20,
    json: 400_000,
};

/// The reclamation budget of the guest of the first two lines.
const BUDGET: Duration = Duration::from_millis(20);
/// How long its neighbour is watched before the kill, and after the end in stock wasmtime.
const BEFORE: Duration = Duration::from_secs(1);
const AFTER: Duration = Duration::from_millis(500);
/// How much of the time before the kill the picture shows.
const SHOWN_BEFORE: Duration = Duration::from_millis(500);
/// The processor for guests has one thread of tokio's, as many as tokio would start for it.
const ONE: NonZero<usize> = NonZero::<usize>::MIN;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  leasehold demo
  leasehold demo --quick --out /tmp/demo.svg

First a guest that asks for ten million timers is killed beside a neighbour on the same processor:
in stock wasmtime, and in a cell under a lease. Two lines and the picture show what each kill took,
and the latency of the neighbour. Then fifteen guests run at once on one processor, and are killed
one after the other; a table has a row for each. It takes about a minute, and 2 GB of memory.

Exit codes: 0 every end kept its budget and its deadline; 1 one did not; 66 a guest is missing.")]
pub(crate) struct Arguments {
    /// The directory of the guest programs, which `make guests` builds.
    #[arg(long, value_name = "DIR", default_value = "target/guests")]
    guests: PathBuf,

    /// The picture.
    #[arg(long, value_name = "FILE", default_value = "target/demo.svg")]
    out: PathBuf,

    /// Run one round instead of three, with less damage.
    #[arg(long)]
    quick: bool,
}

/// The rounds of one runtime, in order.
struct Shown {
    runtime: Runtime,
    rounds: Vec<Round>,
}

/// The common parts of all rounds.
struct Stage<'a> {
    guests: &'a Path,
    profile: &'a Profile,
    surroundings: Surroundings,
    /// The guest that works on beside the others.
    neighbour: Attack,
}

pub(crate) fn main(arguments: &Arguments, profile: Option<&Path>) -> Result<ExitCode, Failure> {
    let scale = if arguments.quick { &QUICK } else { &FULL };
    let (guests, neighbour) = (guests(scale), neighbour());
    let all = [&guests[..], std::slice::from_ref(&neighbour)].concat();
    require(&all, &arguments.guests).map_err(|error| Failure::Missing(format!("{error:#}")))?;
    let (profile, _) = profile_or_calibrate(profile)?;
    let stage = Stage {
        guests: &arguments.guests,
        profile: &profile,
        surroundings: Surroundings::new(&text(scale.text))?,
        neighbour,
    };
    // Three duels, and a rehearsal and the rounds.
    let mut progress = Progress::new("demo", 3 + 1 + 2 * scale.rounds as u64);
    let is_kept = stage.duels(scale, &arguments.out, &mut progress)?;
    let lines = stage.rounds(guests, scale, &mut progress)?;
    drop(progress);

    tell!("\n{}", table::table(&lines));
    tell!("{}", table::LEGEND);
    for faster in table::where_stock_is_faster(&lines) {
        tell!("{faster}");
    }
    let said = [table::longer_than_predicted(&lines), table::broken(&lines)];
    for said in said.into_iter().flatten() {
        tell!("{said}");
    }
    let is_kept = is_kept && !lines.iter().any(Line::is_broken);
    Ok(ExitCode::from(u8::from(!is_kept)))
}

impl Stage<'_> {
    /// A runtime for rounds of these guests.
    fn together(
        &self,
        runtime: Runtime,
        deadlines: &Deadlines,
        threads: NonZero<usize>,
    ) -> anyhow::Result<Together<'_>> {
        let mut config = CellConfig::new(self.profile.clone());
        config.ends = deadlines.ends().or(config.ends);
        let guests = self.guests.to_owned();
        Together::new(runtime, guests, config, &self.surroundings, threads)
    }

    fn deadlines(&self, guests: &[Attack]) -> anyhow::Result<Deadlines> {
        let all = guests.iter().chain([&self.neighbour]);
        Deadlines::of(all, self.guests, self.profile)
    }

    /// The first two lines and the picture; whether the end in the cell kept its deadline.
    fn duels(&self, scale: &Scale, out: &Path, progress: &mut Progress) -> Result<bool, Failure> {
        let args = format!("{} sleep", scale.timers);
        let guest = Attack::new("timers", "timer-bomb.wasm", &args).within(BUDGET);
        let deadlines = self.deadlines(std::slice::from_ref(&guest))?;
        let mut duel = |runtime: Runtime, threads, after| -> anyhow::Result<Duel> {
            progress.at(runtime.name());
            let pace = Pace {
                before: BEFORE,
                after,
            };
            let together = self.together(runtime, &deadlines, threads)?.at(pace);
            let round = together.round(std::slice::from_ref(&guest), &self.neighbour)?;
            progress.step();
            Duel::of(round)
        };
        let stock = duel(Runtime::Wasmtime, ONE, AFTER)?;
        let threads = duel(Runtime::Wasmtime, ONE.saturating_add(1), AFTER)?;
        // The neighbour is watched for as long in both.
        let span_ns = stock.guest_end.end_ns;
        let leased = duel(
            Runtime::Leasehold,
            ONE,
            AFTER + Duration::from_nanos(span_ns),
        )?;

        let p99_ratio = |duel: &Duel| {
            let before = duel.before_kill(nanoseconds(BEFORE));
            let ratio = duel.from_kill(span_ns).ratio_to(&before, 0.99);
            ratio.context("the neighbour did nothing")
        };
        let made = |duel: &Duel| duel.made.context("the guest does not say how much it got");
        let slowest = |duel: &Duel| duel.from_kill(span_ns).max().unwrap_or(0);
        let in_stock = |duel: &Duel| {
            Ok::<_, anyhow::Error>(StockEnd {
                made: made(duel)?,
                end_ns: duel.guest_end.end_ns,
                stall_ns: slowest(duel),
                p99_ratio: p99_ratio(duel)?,
            })
        };
        let cost = leased.guest_end.reclaimed.context("an end in a cell")?;
        let verdict = deadlines.verdict(&leased.guest_end, BUDGET);
        let headline = Headline {
            asked: scale.timers,
            wasmtime: in_stock(&stock)?,
            wasmtime_threads: in_stock(&threads)?,
            leasehold: LeasedEnd {
                made: made(&leased)?,
                budget_ns: nanoseconds(BUDGET),
                cpu_ns: cost.returned.cpu_ns,
                end_ns: cost.returned.wall_ns,
                deadline_ns: deadlines.within_ns(BUDGET),
                verdict,
                slowest_ns: slowest(&leased),
                p99_ratio: p99_ratio(&leased)?,
            },
        };
        let is_kept = verdict != Verdict::Broken;
        for line in headline.lines() {
            tell!("{line}");
        }
        let duels = [(Runtime::Wasmtime, stock), (Runtime::Leasehold, leased)];
        let after_ns = span_ns.saturating_add(nanoseconds(AFTER));
        let figure = headline.figure(&duels, nanoseconds(SHOWN_BEFORE), after_ns);
        if let Some(directory) = out.parent() {
            std::fs::create_dir_all(directory).map_err(anyhow::Error::from)?;
        }
        std::fs::write(out, figure.to_svg()?).map_err(anyhow::Error::from)?;
        tell!("Picture: {}\n\n{}", out.display(), headline.explanation());
        Ok(is_kept)
    }

    /// Returns the lines of the table: each guest, killed among the others.
    fn rounds(
        &self,
        mut guests: Vec<Attack>,
        scale: &Scale,
        progress: &mut Progress,
    ) -> Result<Vec<Line>, Failure> {
        let deadlines = self.deadlines(&guests)?;
        // A thread for each: on fewer, a guest that computes keeps the others waiting until it yields.
        let crowd = NonZero::new(guests.len() + 1).context("guests")?;
        progress.at("leasehold");
        let together = |runtime| self.together(runtime, &deadlines, crowd);
        let rehearsal = together(Runtime::Leasehold)?.round(&guests, &self.neighbour)?;
        for (guest, ending) in guests.iter_mut().zip(&rehearsal.endings) {
            let predicted_ns = ending.guest_end.predicted_ns();
            guest.budget = predicted_ns.map_or(guest.budget, table::binding);
        }
        progress.step();
        let mut shown = Vec::new();
        for runtime in [Runtime::Leasehold, Runtime::Wasmtime] {
            progress.at(runtime.name());
            let rounds = loop {
                let together = together(runtime)?;
                let rounds = (0..scale.rounds).map(|_| {
                    let round = together.round(&guests, &self.neighbour)?;
                    progress.step();
                    Ok(round)
                });
                match rounds.collect::<anyhow::Result<Vec<Round>>>() {
                    Ok(rounds) => break rounds,
                    Err(error) => afford(&mut guests, error)?,
                }
            };
            shown.push(Shown { runtime, rounds });
        }
        let lines = guests
            .iter()
            .map(|guest| Line::of(guest, &shown, &deadlines));
        Ok(lines.collect())
    }
}

/// Doubles the budget of the guest that `error` says was not ready: a share of it is for one
/// purpose, such as handles of a component, and may be exhausted before the whole.
///
/// # Errors
/// `error`, if it is another or the budget is that of the rehearsal again.
fn afford(guests: &mut [Attack], error: anyhow::Error) -> anyhow::Result<()> {
    let unready = error.downcast_ref::<Unready>();
    let guest =
        unready.and_then(|unready| guests.iter_mut().find(|guest| guest.name == unready.guest));
    match guest.filter(|guest| guest.budget < rogue::BUDGET) {
        Some(guest) => guest.budget *= 2,
        None => return Err(error),
    }
    Ok(())
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Hostile guests, and honest ones with work for longer than they will live, in the order in which
/// they are killed.
fn guests(scale: &Scale) -> Vec<Attack> {
    let life = When::After(Duration::ZERO);
    let mut guests = hostile(scale.damage);
    // It cannot be killed in mid-flight.
    guests.retain(|guest| guest.when != When::ByItself);
    // The guest that keeps the processor busy and has most is killed last: its load makes the ends
    // of the others more telling.
    let fill = guests.iter().position(|guest| guest.name == "fill");
    if let Some(fill) = fill {
        let fill = guests.remove(fill);
        guests.push(fill);
    }
    let honest = [
        Attack::new("wordcount", "wordcount.wasm", &Surroundings::file()),
        Attack::new("jsonsort", "jsonsort.wasm", "score").reading(json(scale.json)),
        Attack::new("picture", "mandelbrot.wasm", "4000 5000"),
    ];
    for (turn, guest) in honest.into_iter().enumerate() {
        guests.insert(2 * turn, guest.ended(life));
    }
    guests
}

/// The honest guest beside the others: pictures of some tenths of a millisecond each, more of them than
/// there is time for.
fn neighbour() -> Attack {
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
}
