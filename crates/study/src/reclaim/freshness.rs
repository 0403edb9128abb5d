//! `freshness`: does a tenant find data of its predecessor?
//!
//! A writer puts a random pattern wherever it can: its memory, stack, regions, channels. When it
//! has ended, a seeker in the same slots looks for the pattern in what it may read, and for any
//! byte that is not zero in what must be fresh, before it writes anything itself. The pools are
//! made as small as can be, so that seekers get what writers had.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use leasehold_cell::profile::Profile;
use leasehold_cell::{
    Capture, Cell, CellConfig, Exit, Lease, Output, Program, StartRequest, Surroundings,
};
use serde_json::Value;

use crate::harness::experiment::{Options, Study};
use crate::harness::plot::{Axis, Figure, Marks, Panel, Series};
use crate::harness::progress::Progress;
use crate::harness::random::Random;
use crate::harness::report::{Finding, Report, row};
use crate::harness::samples::{Samples, Spread};
use crate::harness::unit::Unit;

/// The study; see the [module](self).
pub(crate) struct Freshness;

/// Linear memories (and stacks) of the cell. A tenant may take a quarter of the places, and needs
/// two; of the slots, the one that was cleaned last is taken first.
const SLOTS: usize = 8;
/// Reclamation groups of the cell.
const GROUPS: u32 = 2;
/// Bytes that a tenant adds to its memory and makes regions of: less than what stays resident of
/// a slot, so that its pages are cleaned by overwriting them.
const BYTES: u64 = 64 << 10;
/// The same for one pair in [`LARGE_EVERY`]: more than stays resident, so that pages are given
/// back.
const LARGE_BYTES: u64 = 6 << 20;
const LARGE_EVERY: u64 = 64;
/// Pairs of one step of progress.
const BATCH: u64 = 50;
const SEED: u64 = 0x6672_6573_686e_6573;
/// Of what a tenant prints.
const OUTPUT_BYTES: usize = 1 << 10;

impl Study for Freshness {
    fn name(&self) -> &'static str {
        "freshness"
    }

    fn paper(&self) -> &'static str {
        "–"
    }

    fn about(&self) -> &'static str {
        "Tenants that write a secret everywhere they can, each followed by one that looks for it \
         in the same slots."
    }

    fn run(&self, options: &Options) -> Result<Report> {
        let pairs: u64 = if options.quick { 300 } else { 100_000 };
        let profile: Profile = serde_json::from_value(Value::Object(options.profile.clone()))
            .context("the calibration profile")?;
        let bench = Bench::new(profile, options)?;
        let mut random = Random::new(SEED);
        let mut progress = Progress::new(self.name(), pairs / BATCH);
        let mut sum = Sum::default();
        for pair in 0..pairs {
            let pattern = format!("{:016x}{:016x}", random.bits(), random.bits());
            let large = pair % LARGE_EVERY == LARGE_EVERY - 1;
            let bytes = if large { LARGE_BYTES } else { BYTES };
            let wrote = bench.writer.tell(&bench.cell, &pattern, bytes, "wrote")?;
            sum.wrote.record(wrote);
            let seeker = bench.seeker.run(&bench.cell, &pattern, bytes)?;
            sum.looked.record(number_after(&seeker, "looked")?);
            sum.found += number_after(&seeker, "found")?;
            if (pair + 1) % BATCH == 0 {
                progress.step();
            }
        }

        let mut report = Report::new(self, options);
        report.rows.push(row([
            ("pairs", sum.looked.count().into()),
            ("bytes_found", sum.found.into()),
            ("wrote_bytes_p50", sum.wrote.p50().into()),
            ("wrote_bytes_max", sum.wrote.max().into()),
            ("looked_bytes_p50", sum.looked.p50().into()),
            ("looked_bytes_max", sum.looked.max().into()),
            ("slots", SLOTS.into()),
        ]));
        report.findings = vec![
            Finding::at_least(
                "pairs of a writer and a seeker",
                Unit::Count,
                Some(sum.looked.count() as f64),
                pairs as f64,
            ),
            Finding::at_most(
                "bytes of a writer that its seeker found",
                Unit::Bytes,
                Some(sum.found as f64),
                0.0,
            ),
            // A seeker that reads nothing finds nothing.
            Finding::at_least(
                "bytes that the median seeker looked at",
                Unit::Bytes,
                sum.looked.p50().map(|bytes| bytes as f64),
                (2 * BYTES) as f64,
            ),
        ];
        report.notes.push(format!(
            "a cell with {SLOTS} slots for linear memory, {SLOTS} stacks and {GROUPS} groups, which \
             takes what was cleaned last first, so that every tenant has the slots of the one \
             before; seed {SEED:#x}; one pair in \
             {LARGE_EVERY} writes more than stays resident"
        ));
        report.figure = figure(&sum);
        Ok(report)
    }
}

#[derive(Default)]
struct Sum {
    wrote: Samples,
    looked: Samples,
    found: u64,
}

struct Bench {
    cell: Cell,
    writer: Guest,
    seeker: Guest,
}

impl Bench {
    fn new(profile: Profile, options: &Options) -> Result<Self> {
        let mut config = CellConfig::new(profile);
        config.max_memories = SLOTS;
        config.max_groups = GROUPS;
        config.code_cache = leasehold_cell::user_code_cache();
        let cell = Cell::start(config)?;
        let guest = |name: &'static str| -> Result<Guest> {
            let path = options.guests_dir.join(name).with_extension("wasm");
            let program = cell
                .load(&path)
                .with_context(|| format!("the guest {name} (guests/build makes it)"))?;
            Ok(Guest { name, program })
        };
        Ok(Self {
            writer: guest("secret-writer")?,
            seeker: guest("secret-seeker")?,
            cell,
        })
    }
}

struct Guest {
    name: &'static str,
    program: Arc<Program>,
}

impl Guest {
    /// Runs to its end, and until all it had was taken back; what it printed.
    fn run(&self, cell: &Cell, pattern: &str, bytes: u64) -> Result<String> {
        let capture = Capture::new(OUTPUT_BYTES);
        let args = [self.name, pattern, &bytes.to_string(), "exit"];
        let tenant = cell.start_tenant(StartRequest {
            program: self.program.clone(),
            lease: Lease::default(),
            surroundings: Surroundings {
                args: args.map(str::to_owned).to_vec(),
                stdout: Output::Capture(capture.clone()),
                ..Surroundings::default()
            },
        })?;
        let ended = tenant.wait()?;
        ensure!(
            ended.exit == Exit::Code(0),
            "{} ended with {:?}",
            self.name,
            ended.exit
        );
        String::from_utf8(capture.bytes()).with_context(|| format!("output of {}", self.name))
    }

    /// Runs it; the number that it says after `word`.
    fn tell(&self, cell: &Cell, pattern: &str, bytes: u64, word: &str) -> Result<u64> {
        number_after(&self.run(cell, pattern, bytes)?, word)
    }
}

/// The number in the line that begins with `word`.
fn number_after(output: &str, word: &str) -> Result<u64> {
    output
        .lines()
        .find_map(|line| line.strip_prefix(word)?.trim().parse().ok())
        .with_context(|| format!("no {word:?} in {output:?}"))
}

fn figure(sum: &Sum) -> Figure {
    let point = |samples: &Samples, group| Some((group, Spread::of_samples(samples)?));
    let found = Spread {
        median: sum.found as f64,
        p5: sum.found as f64,
        p95: sum.found as f64,
    };
    Figure {
        title: "Secrets of the tenant before".to_owned(),
        panels: vec![Panel {
            y: Axis::linear("bytes of a pair (found: of all)", Unit::Bytes),
            marks: Marks::Bars {
                title: "what tenants did".to_owned(),
                groups: ["written", "looked at", "found"]
                    .map(str::to_owned)
                    .to_vec(),
                series: vec![Series {
                    name: "bytes".to_owned(),
                    points: point(&sum.wrote, 0)
                        .into_iter()
                        .chain(point(&sum.looked, 1))
                        .chain([(2, found)])
                        .collect(),
                }],
            },
        }],
    }
}

#[cfg(test)]
mod tests {
    use super::number_after;

    #[test]
    fn numbers_are_found_after_their_word_or_missed() {
        let output = "looked 4096\nfound 16\nready\n";
        assert_eq!(number_after(output, "looked").expect("there"), 4096);
        assert_eq!(number_after(output, "found").expect("there"), 16);
        assert!(number_after(output, "wrote").is_err());
        assert!(number_after("found many", "found").is_err());
    }
}
