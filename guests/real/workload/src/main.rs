//! The workloads with which LockScope compares platforms (LockScope §5.1): one source for the host,
//! for containers and for wasm, so that all of them do the same work.
//!
//! ```text
//! workload [--start] [--tell] [--rounds N] [--files N] NAME DIRECTORY
//! ```
//!
//! A workload prepares what it needs in the DIRECTORY, prints `ready`, waits for a line on standard
//! input (or its end), and works, round after round, until it is ended: preparations and the start of
//! the platform are not to be recorded (LockScope §5.2).
//!
//! | NAME | a round |
//! |---|---|
//! | `mem-8k`, `mem-1m` | maps 16 MiB in pieces of 8 KiB or 1 MiB, writes to every page, unmaps them |
//! | `file-list` | lists a directory of `--files` entries |
//! | `file-create` | creates 100 files of 4 KiB in one directory |
//! | `file-delete` | deletes 100 files of `--files`; ends when none is left |
//! | `messages` | sends itself 1,000 messages through the kernel: a pipe's, or a channel of Leasehold's |
//! | `image` | decodes a picture, turns, greys, blurs and shrinks it, and writes each result |
//! | `lr-training` | reads examples from a text file, trains a logistic regression, writes the model |
//!
//! | option | |
//! |---|---|
//! | `--start` | begin at once |
//! | `--tell` | print `round` after every round |
//! | `--rounds N` | end after so many |
//! | `--files N` | files of `file-list` and `file-delete`, 50,000 if not said as in LockScope §6.1.2 |
//!
//! Exit code 0, 1 if something fails, 2 if the arguments make no sense.

mod files;
mod image;
mod memory;
mod messages;
mod random;
mod regression;

use std::error::Error;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What a workload returns: what went wrong says so itself.
type Outcome<T> = Result<T, Box<dyn Error>>;

/// A workload that is prepared.
trait Work {
    /// Does one round. False when nothing is left to do.
    fn round(&mut self) -> Outcome<bool>;
}

struct Arguments {
    start: bool,
    tell: bool,
    rounds: u64,
    files: u64,
    name: String,
    directory: PathBuf,
}

fn main() -> ExitCode {
    let arguments = match parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(wrong) => {
            eprintln!("workload: {wrong}");
            eprintln!("usage: workload [--start] [--tell] [--rounds N] [--files N] NAME DIRECTORY");
            return ExitCode::from(2);
        }
    };
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("workload {}: {error}", arguments.name);
            ExitCode::FAILURE
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let (mut start, mut tell, mut rounds, mut files) = (false, false, u64::MAX, 50_000);
    let mut places = Vec::new();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--start" => start = true,
            "--tell" => tell = true,
            "--rounds" => rounds = number(&word, words.next())?,
            "--files" => files = number(&word, words.next())?,
            _ => places.push(word),
        }
    }
    let [name, directory] = <[String; 2]>::try_from(places)
        .map_err(|places| format!("found {places:?}, expected NAME DIRECTORY"))?;
    let directory = directory.into();
    Ok(Arguments {
        start,
        tell,
        rounds,
        files,
        name,
        directory,
    })
}

fn number(option: &str, value: Option<String>) -> Result<u64, String> {
    let value = value.unwrap_or_default();
    let parsed = value.parse().ok().filter(|&number| number > 0);
    parsed.ok_or_else(|| format!("{option}: found {value:?}, expected a whole number above 0"))
}

fn run(arguments: &Arguments) -> Outcome<()> {
    let mut work = prepare(&arguments.name, &arguments.directory, arguments.files)?;
    if !arguments.start {
        say("ready")?;
        io::stdin().read_line(&mut String::new())?;
    }
    for _ in 0..arguments.rounds {
        let more = work.round()?;
        if arguments.tell {
            say("round")?;
        }
        if !more {
            break;
        }
    }
    Ok(())
}

fn prepare(name: &str, directory: &Path, files: u64) -> Outcome<Box<dyn Work>> {
    Ok(match name {
        "mem-8k" => Box::new(memory::Pieces::of(8 << 10)),
        "mem-1m" => Box::new(memory::Pieces::of(1 << 20)),
        "file-list" => Box::new(files::List::prepare(directory, files)?),
        "file-create" => Box::new(files::Create::prepare(directory)?),
        "file-delete" => Box::new(files::Delete::prepare(directory, files)?),
        "messages" => Box::new(messages::Messages::prepare()?),
        "image" => Box::new(image::Processing::prepare(directory)?),
        "lr-training" => Box::new(regression::Training::prepare(directory)?),
        _ => return Err("no such workload; there are mem-8k, mem-1m, file-list, file-create, file-delete, messages, image, lr-training".into()),
    })
}

/// A line that is seen at once, wherever standard output goes.
fn say(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}
