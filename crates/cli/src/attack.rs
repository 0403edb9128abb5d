//! `leasehold attack`: searches for programs that break a promise.

use crate::calibrate::profile_or_calibrate;
use crate::exit::Failure;
use crate::interrupt::Interrupt;
use crate::output::{say, tell};
use anyhow::Context as _;
use comfy_table::{Cell, CellAlignment, Table, presets};
use leasehold_attack::{
    Bench, Find, Found, KNOWN, Known, Measure, Observation, Offers, Plan, Player, Progress, Search,
    render,
};
use leasehold_lease::Nanoseconds;
use serde_json::{Value, json};
use std::io::IsTerminal as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  leasehold attack
  leasehold attack --for 3600s --seed 7
  leasehold attack --replay target/attack/victim.json
  leasehold attack --known

It plays random programs in a cell, beside a victim and a neighbour, and compares what it measures
with what was promised. An interrupt ends the search after the present attack; what was found is told.
TIME is a number and a unit: 30s, 3600s.

Exit codes: 0 no promise was broken; 1 one was; 3 only times were longer than promised, which a busy
host can cause, too; 66 the file to replay, or the known attack, is missing; 78 it is wrong.")]
pub(crate) struct Arguments {
    /// How long to search.
    #[arg(long = "for", value_name = "TIME", default_value = "60s")]
    time: Nanoseconds,

    /// Which attacks are drawn [default: others each time].
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Pin the cells to this processor [default: any].
    #[arg(long, value_name = "N")]
    cpu: Option<usize>,

    /// The directory for finds: NAME.json to replay, NAME.wat to read.
    #[arg(long, value_name = "DIR", default_value = "target/attack")]
    out: PathBuf,

    /// Play this attack once, and print what was measured.
    #[arg(long, value_name = "FILE", conflicts_with = "seed")]
    replay: Option<PathBuf>,

    /// Play the attacks that are known, or those of these names.
    #[arg(long, value_name = "NAME", num_args = 0.., conflicts_with_all = ["seed", "replay"])]
    known: Option<Vec<String>>,

    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,

    /// Play the attack on standard input in this process: started by the search.
    #[arg(long, hide = true)]
    play: bool,
}

pub(crate) fn main(arguments: &Arguments, profile: Option<&Path>) -> Result<ExitCode, Failure> {
    if arguments.play {
        let bench = Bench {
            profile: profile_or_calibrate(profile)?.0,
            cpu: arguments.cpu,
        };
        return match arguments.known.as_deref() {
            None => play(&bench),
            Some(names) => play_known(names, &bench),
        };
    }
    // Measured once, and not by each of the processes.
    profile_or_calibrate(profile)?;
    let player = player(arguments, profile)?;
    if let Some(file) = &arguments.replay {
        return replay(&player, file, arguments.json);
    }
    if let Some(names) = &arguments.known {
        return known(&player, names, arguments.json);
    }
    let seed = arguments.seed.unwrap_or_else(drawn_seed);
    let search = Search {
        time: Duration::from_nanos(arguments.time.get()),
        seed,
        player,
    };
    let mut shown = Shown::default();
    let interrupt = Interrupt::listen()?;
    let found = search.run(&mut |progress| {
        shown.show(progress);
        match interrupt.is_told() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    })?;
    shown.end();
    for find in &found.finds {
        write(&arguments.out, find)?;
    }
    if arguments.json {
        tell!("{}", as_json(&found, seed));
    } else {
        print(&found, seed, &arguments.out);
    }
    Ok(exit(found.finds.iter().map(|find| &find.measure)))
}

/// A seed that nothing else has; it is printed, so that the same attacks can be drawn again.
fn drawn_seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(1, |since| since.as_nanos() as u64 % 1_000_000_007)
}

fn play(bench: &Bench) -> Result<ExitCode, Failure> {
    let plan = plan(&read_all(std::io::stdin())?, "standard input")?;
    let observation = leasehold_attack::play(&plan, bench)?;
    tell!(
        "{}",
        serde_json::to_string(&observation).context("an observation")?
    );
    Ok(ExitCode::SUCCESS)
}

fn play_known(names: &[String], bench: &Bench) -> Result<ExitCode, Failure> {
    for known in chosen(names)? {
        let observation = leasehold_attack::play_known(&known, bench)?;
        let text = serde_json::to_string(&observation).context("an observation")?;
        tell!("{text}");
    }
    Ok(ExitCode::SUCCESS)
}

/// The attacks of these names; all, if there are none.
fn chosen(names: &[String]) -> Result<Vec<Known>, Failure> {
    let named = |name: &String| {
        Known::named(name).ok_or_else(|| {
            let names: Vec<_> = KNOWN.iter().map(|known| known.name).collect();
            let all = names.join(", ");
            Failure::Missing(format!("no attack is known as {name:?}, but {all}"))
        })
    };
    match names {
        [] => Ok(KNOWN.to_vec()),
        names => names.iter().map(named).collect(),
    }
}

/// Plays attacks that are known, and prints a row for each.
fn known(player: &Player, names: &[String], json: bool) -> Result<ExitCode, Failure> {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header([
        "attack",
        "tenants end",
        "victim late",
        "before",
        "nearest",
        "of its promise",
        "what it does",
    ]);
    let (mut rows, mut broken) = (Vec::new(), Vec::new());
    for known in chosen(names)? {
        let observation = player.play_known(&known)?;
        let measures = observation.measures();
        if json {
            let nearest = measures.first().map(as_measure);
            rows.push(json!({"attack": known.name, "does": known.does, "observation": observation, "nearest": nearest}));
        } else {
            table.add_row(known_row(&known, &observation, measures.first()));
        }
        broken.extend(measures.into_iter().filter(|measure| measure.ratio > 1.0));
    }
    match json {
        true => tell!("{}", Value::from(rows)),
        false => tell!("{table}"),
    }
    Ok(exit(broken.iter()))
}

fn known_row(known: &Known, seen: &Observation, nearest: Option<&Measure>) -> Vec<Cell> {
    let outcome = seen.refused.as_deref().unwrap_or(&seen.exit);
    let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
    let ms = |ns: u64| right(format!("{:.2} ms", ns as f64 / 1e6));
    vec![
        Cell::new(known.name),
        Cell::new(outcome.chars().take(24).collect::<String>()),
        ms(seen.victim_latest_ns),
        ms(seen.quiet_latest_ns),
        Cell::new(nearest.map_or("", |measure| measure.name)),
        right(nearest.map_or(String::new(), |measure| format!("{:.2}", measure.ratio))),
        Cell::new(known.does),
    ]
}

fn replay(player: &Player, file: &Path, json: bool) -> Result<ExitCode, Failure> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failure::Missing(format!("{}: {error}", file.display())))?;
    let observation = player.play(&plan(&text, &file.display().to_string())?)?;
    if json {
        tell!(
            "{}",
            serde_json::to_string_pretty(&observation).context("an observation")?
        );
    } else {
        if let Some(refused) = &observation.refused {
            tell!("not started: {refused}");
        }
        tell!("{}", measures(observation.measures().iter()));
    }
    let measures = observation.measures();
    Ok(exit(measures.iter().filter(|measure| measure.ratio > 1.0)))
}

/// The message for broken promises.
fn exit<'a>(broken: impl Iterator<Item = &'a Measure>) -> ExitCode {
    const BROKEN: u8 = 1;
    const LATE: u8 = 3;
    let code = broken.map(|measure| if measure.is_time() { LATE } else { BROKEN });
    ExitCode::from(code.reduce(u8::min).unwrap_or(0))
}

fn read_all(mut from: impl std::io::Read) -> Result<String, Failure> {
    let mut text = String::new();
    from.read_to_string(&mut text)
        .context("reading an attack")?;
    Ok(text)
}

fn plan(text: &str, name: &str) -> Result<Plan, Failure> {
    serde_json::from_str(text).map_err(|error| Failure::Configuration(format!("{name}: {error}")))
}

fn player(arguments: &Arguments, profile: Option<&Path>) -> Result<Player, Failure> {
    let mut given = Vec::new();
    if let Some(profile) = profile {
        given.extend(["--profile".to_owned(), profile.display().to_string()]);
    }
    given.extend(["attack".to_owned(), "--play".to_owned()]);
    if let Some(cpu) = arguments.cpu {
        given.extend(["--cpu".to_owned(), cpu.to_string()]);
    }
    Ok(Player {
        program: std::env::current_exe().context("this program")?,
        arguments: given,
    })
}

/// A line on a terminal, a few times a second.
#[derive(Default)]
struct Shown {
    last: Option<Instant>,
    highest: f64,
}

impl Shown {
    fn show(&mut self, progress: Progress) {
        self.highest = self.highest.max(progress.score);
        let recent = self
            .last
            .is_some_and(|last| last.elapsed() < Duration::from_millis(250));
        if recent || !std::io::stderr().is_terminal() {
            return;
        }
        self.last = Some(Instant::now());
        say!(part
            "\r{:>5.0} s  {} attacks  {} finds  nearest {:.2} \x1b[K",
            progress.elapsed.as_secs_f64(),
            progress.played,
            progress.finds,
            self.highest
        );
    }

    fn end(&self) {
        if self.last.is_some() {
            say!("");
        }
    }
}

fn write(directory: &Path, find: &Find) -> Result<(), Failure> {
    std::fs::create_dir_all(directory)
        .with_context(|| format!("creating {}", directory.display()))?;
    let path = directory.join(find.measure.name);
    let json = serde_json::to_string_pretty(&find.plan).context("a plan")?;
    let (text, _) = render(&find.plan, &Offers::all()?)?;
    for (extension, content) in [("json", json), ("wat", text)] {
        let path = path.with_extension(extension);
        std::fs::write(&path, content).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

fn measures<'a>(measures: impl Iterator<Item = &'a Measure>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["measure", "of what was promised", "what happened"]);
    for measure in measures {
        table.add_row([
            Cell::new(measure.name),
            Cell::new(format!("{:.2}", measure.ratio)).set_alignment(CellAlignment::Right),
            Cell::new(&measure.text),
        ]);
    }
    table
}

fn print(found: &Found, seed: u64, out: &Path) {
    tell!(
        "{} attacks played, {} of them refused at the start; seed {seed}",
        found.played,
        found.refused
    );
    if found.finds.is_empty() {
        tell!("no promise was broken; nearest to it came");
        tell!(
            "{}",
            measures(found.nearest.iter().map(|(_, measure)| measure))
        );
        return;
    }
    tell!("{}", measures(found.finds.iter().map(|find| &find.measure)));
    for find in &found.finds {
        let path = out.join(find.measure.name);
        tell!(
            "{} ({} of {} times): leasehold attack --replay {}",
            find.measure.name,
            find.times.0,
            find.times.1,
            path.with_extension("json").display()
        );
    }
}

fn as_json(found: &Found, seed: u64) -> Value {
    json!({
        "seed": seed,
        "played": found.played,
        "refused": found.refused,
        "finds": found.finds.iter().map(|find| json!({
            "measure": as_measure(&find.measure),
            "times": find.times.0,
            "of": find.times.1,
            "plan": find.plan,
        })).collect::<Vec<_>>(),
        "nearest": found.nearest.iter().map(|(_, it)| as_measure(it)).collect::<Vec<_>>(),
    })
}

fn as_measure(measure: &Measure) -> Value {
    json!({"name": measure.name, "ratio": measure.ratio, "text": measure.text})
}
