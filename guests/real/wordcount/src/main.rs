//! Counts words. `wordcount [--top N] [FILE|DIRECTORY…]`
//!
//! Reads the files, the directories' files in depth, or standard input if none is named; prints
//! lines, words and bytes, then the N most frequent words (10 unless told), most frequent first,
//! equals in alphabetical order. A word is a run of letters and digits, in lower case.
//!
//! Exit code 0, 1 if something could not be read, 2 if the arguments make no sense.

use std::collections::HashMap;
use std::env;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(request) = Request::parse(env::args().skip(1)) else {
        eprintln!("usage: wordcount [--top N] [FILE|DIRECTORY...]");
        return ExitCode::from(2);
    };
    match count(&request.paths).and_then(|counts| counts.print(request.top)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("wordcount: {error}");
            ExitCode::FAILURE
        }
    }
}

struct Request {
    top: usize,
    paths: Vec<PathBuf>,
}

impl Request {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Option<Request> {
        let mut request = Request {
            top: 10,
            paths: Vec::new(),
        };
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--top" => request.top = arguments.next()?.parse().ok()?,
                option if option.starts_with("--") => return None,
                path => request.paths.push(path.into()),
            }
        }
        Some(request)
    }
}

fn count(paths: &[PathBuf]) -> io::Result<Counts> {
    let mut counts = Counts::default();
    if paths.is_empty() {
        counts.add(io::stdin().lock())?;
    }
    for path in paths {
        counts.add_path(path)?;
    }
    Ok(counts)
}

#[derive(Default)]
struct Counts {
    lines: u64,
    words: u64,
    bytes: u64,
    frequencies: HashMap<String, u64>,
}

impl Counts {
    fn add_path(&mut self, path: &Path) -> io::Result<()> {
        if path.is_dir() {
            for entry in fs::read_dir(path)? {
                self.add_path(&entry?.path())?;
            }
            return Ok(());
        }
        let file = File::open(path).map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        })?;
        self.add(BufReader::new(file))
    }

    fn add(&mut self, mut text: impl BufRead) -> io::Result<()> {
        let mut line = Vec::new();
        loop {
            line.clear();
            let length = text.read_until(b'\n', &mut line)?;
            if length == 0 {
                return Ok(());
            }
            self.bytes += length as u64;
            self.lines += u64::from(line.ends_with(b"\n"));
            let line = String::from_utf8_lossy(&line);
            for word in line
                .split(|c: char| !c.is_alphanumeric())
                .filter(|word| !word.is_empty())
            {
                self.words += 1;
                *self.frequencies.entry(word.to_lowercase()).or_default() += 1;
            }
        }
    }

    fn print(self, top: usize) -> io::Result<()> {
        let mut out = io::stdout().lock();
        writeln!(
            out,
            "lines {} words {} bytes {}",
            self.lines, self.words, self.bytes
        )?;
        let mut ranked: Vec<_> = self.frequencies.into_iter().collect();
        ranked.sort_by(|(word, n), (other, m)| m.cmp(n).then_with(|| word.cmp(other)));
        for (word, frequency) in ranked.iter().take(top) {
            writeln!(out, "{frequency} {word}")?;
        }
        out.flush()
    }
}
