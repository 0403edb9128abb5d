//! `locksite`: call chains in, locks out.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Parser;
use leasehold_locksite::{Code, Kernel, Lock, Paths, Reason, Site};

/// Which kernel lock is taken at a call site: the object and the field.
///
/// Reads one call chain per line from standard input: how often it was seen, the lock function,
/// and the return addresses from the innermost on. An address is as the kernel was linked
/// (0xffffffff81234567), or function+0xoffset, or function+0xoffset/0xsize, with module: before
/// it if it is in one:
///
///     120 mutex_lock seq_read_iter+0x4f/0x480 vfs_read+0x299/0x360
#[derive(Parser)]
#[command(version, verbatim_doc_comment)]
struct Options {
    /// Directory of an unpacked kernel: boot/config-*, usr/lib/debug; as `make lab` leaves it.
    #[arg(long, default_value = "target/lab/kernel")]
    kernel: PathBuf,
    /// The source tree that the kernel was built from.
    #[arg(long, default_value = "target/lab/source")]
    source: PathBuf,
    /// Print JSON, one object per line.
    #[arg(long)]
    json: bool,
}

/// A line of the input.
struct Chain {
    count: u64,
    primitive: String,
    code: Vec<Code>,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let kernel = Kernel::open(&Paths::of_package(&options.kernel, &options.source)?)?;
    let mut coverage = Coverage::default();
    let mut out = io::BufWriter::new(io::stdout().lock());
    for (number, line) in io::stdin().lock().lines().enumerate() {
        let line = line.context("standard input")?;
        if line.trim().is_empty() {
            continue;
        }
        let chain = parse(&line).with_context(|| format!("line {}", number + 1))?;
        let site = kernel.site(&chain.primitive, &chain.code)?;
        coverage.add(&chain, &site);
        if options.json {
            serde_json::to_writer(&mut out, &site)?;
            writeln!(out)?;
        } else {
            let Site {
                function,
                file,
                line,
                lock,
            } = &site;
            writeln!(
                out,
                "{:>10} {} | {lock} | {function} {file}:{line}",
                chain.count, chain.primitive
            )?;
        }
    }
    out.flush()?;
    coverage.print();
    Ok(())
}

fn parse(line: &str) -> Result<Chain> {
    let mut words = line.split_whitespace();
    let (Some(count), Some(primitive)) = (words.next(), words.next()) else {
        bail!("found {line:?}, expected a count, a lock function and addresses");
    };
    Ok(Chain {
        count: count
            .parse()
            .with_context(|| format!("found {count:?}, expected a count"))?,
        primitive: primitive.to_owned(),
        code: words.map(address).collect::<Result<_>>()?,
    })
}

fn address(word: &str) -> Result<Code> {
    let hexadecimal = |text: &str| {
        let digits = text.strip_prefix("0x").unwrap_or(text);
        u64::from_str_radix(digits, 16)
            .with_context(|| format!("found {text:?} in {word:?}, expected a hexadecimal number"))
    };
    if word.starts_with("0x") {
        return Ok(Code::Linked(hexadecimal(word)?));
    }
    let (module, rest) = match word.split_once(':') {
        Some((module, rest)) => (Some(module.to_owned()), rest),
        None => (None, word),
    };
    let (symbol, rest) = rest.split_once('+').with_context(|| {
        format!("found {word:?}, expected 0xaddress or function+0xoffset/0xsize")
    })?;
    let (offset, size) = match rest.split_once('/') {
        Some((offset, size)) => (hexadecimal(offset)?, Some(hexadecimal(size)?)),
        None => (hexadecimal(rest)?, None),
    };
    Ok(Code::Symbol {
        module,
        symbol: symbol.to_owned(),
        offset,
        size,
    })
}

/// The part that was mapped, by acquisitions and by unique locks. A unique lock is one name in one
/// function of one file, as LockScope counts (§4.2); of one without a name, the call counts.
#[derive(Default)]
struct Coverage {
    acquisitions: u64,
    mapped: u64,
    locks: BTreeMap<(String, String, String), bool>,
    reasons: BTreeMap<String, (u64, u64)>,
}

impl Coverage {
    fn add(&mut self, chain: &Chain, site: &Site) {
        self.acquisitions += chain.count;
        let known = site.lock.is_known();
        let name = match &site.lock {
            Lock::Unknown { .. } => format!("line {}", site.line),
            lock => lock.to_string(),
        };
        self.locks
            .insert((name, site.function.clone(), site.file.clone()), known);
        if let Lock::Unknown { reason } = &site.lock {
            let reason: &Reason = reason;
            let entry = self.reasons.entry(reason.to_string()).or_default();
            entry.0 += chain.count;
            entry.1 += 1;
        } else {
            self.mapped += chain.count;
        }
    }

    fn print(&self) {
        let share = |part: usize, whole: usize| 100.0 * part as f64 / whole.max(1) as f64;
        let known = self.locks.values().filter(|known| **known).count();
        eprintln!(
            "mapped: {} of {} acquisitions ({:.1} %), {known} of {} unique locks ({:.1} %)",
            self.mapped,
            self.acquisitions,
            share(self.mapped as usize, self.acquisitions as usize),
            self.locks.len(),
            share(known, self.locks.len()),
        );
        for (reason, (acquisitions, chains)) in &self.reasons {
            eprintln!("  {reason}: {acquisitions} acquisitions, {chains} call chains");
        }
    }
}
