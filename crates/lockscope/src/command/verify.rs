//! `lockscope verify`: what the score of a pair of workloads predicts, beside what each of them takes
//! longer when the other one runs.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use leasehold_lockscope::{Block, Measured, Pair, Trace, Workload};

use crate::command::duration::parse_duration;
use crate::command::read::print;
use crate::command::record::{self, Common};
use crate::command::render::pair_table;
use crate::command::rounds::{Beside, median_ms};
use crate::command::stop::stop_on_signals;
use crate::command::workloads::{Setting, Workloads};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lockscope verify --pin --a 'workload --tell file-create /srv/{}' --b 'workload --tell mem-8k /srv/{}' \\
    --control 'workload spin /srv/{}' --out create-mem.trace --result create-mem.json
  lockscope agreement create-mem.json

a runs beside b, a beside the control, and the control beside b, in turns and in another order each
time, so that what is compared was measured within seconds. The control takes no locks: what slows a
workload beside it is not locks. Then a and b are recorded.
Each CMD prints `ready`, waits for a line, and prints `round` after each piece of work. In a CMD, {}
stands for the workload's name: a, b, control.")]
pub(crate) struct Verify {
    /// Command of the first workload.
    #[arg(long, value_name = "CMD")]
    a: String,

    /// Command of the second one.
    #[arg(long, value_name = "CMD")]
    b: String,

    /// Command of the control.
    #[arg(long, value_name = "CMD")]
    control: String,

    /// How often each of the three combinations is measured.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    blocks: u32,

    /// For how long a combination is measured each time.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    each: Duration,

    /// The share of two processors that other programs of this machine may take: a combination in which it
    /// is more is measured again.
    #[arg(long, value_name = "SHARE", default_value_t = 0.03)]
    disturbed: f64,

    /// For how long both are recorded.
    #[arg(long = "for", value_name = "TIME", default_value = "2s", value_parser = parse_duration)]
    time: Duration,

    /// Where the result goes, for `lockscope agreement`.
    #[arg(long, value_name = "FILE")]
    result: PathBuf,

    #[command(flatten)]
    setting: Setting,

    #[command(flatten)]
    common: Common,
}

/// The workloads, by their number.
const A: usize = 0;
const B: usize = 1;
const BESIDE_A: usize = 2;
const BESIDE_B: usize = 3;

/// How often a combination is measured until it is not disturbed.
const ATTEMPTS: u32 = 200;

/// `lockscope verify`.
pub(crate) fn verify(arguments: &Verify) -> Result<()> {
    record::check(&arguments.common)?;
    stop_on_signals()?;
    let setting = Setting {
        when_ready: true,
        ..arguments.setting.clone()
    };
    let mut workloads = Workloads::of(&setting)?;
    // Controls are where the workload is that they stand for.
    for (name, command, place) in [
        ("a", &arguments.a, 0),
        ("b", &arguments.b, 1),
        ("control-beside-a", &arguments.control, 1),
        ("control-beside-b", &arguments.control, 0),
    ] {
        workloads.add_at(name, &command.replace("{}", name), place)?;
    }
    let targets = workloads.targets();
    let mut recorder = record::load(&arguments.common, &targets[..=B])?;
    workloads.launch(false)?;
    for index in 0..workloads.len() {
        workloads.go(index)?;
        workloads.until_ready(index)?;
        workloads.begin(index)?;
        workloads.freeze(index, true)?;
    }
    let blocks = measure(&mut workloads, arguments)?;

    recorder.attach()?;
    let begun = Instant::now();
    for index in [A, B] {
        drop(workloads.launched(index)?.take_rounds());
        workloads.freeze(index, false)?;
    }
    workloads.wait(arguments.time)?;
    let ran_ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let mut described = Vec::new();
    for (index, what) in [(A, &arguments.a), (B, &arguments.b)] {
        let rounds = workloads.launched(index)?.take_rounds().len() as f64;
        described.push(Workload {
            name: workloads.name(index).to_owned(),
            what: what.clone(),
            ran_ns,
            own_ns: (rounds * apart_ms(&blocks, index) * 1e6) as u64,
        });
    }
    let platform = setting.platform.name();
    let trace = record::finish(recorder, described, platform, &arguments.common)?;
    workloads.end()?;
    trace.write(&arguments.common.out)?;
    save(arguments, &trace, blocks)
}

fn measure(workloads: &mut Workloads, arguments: &Verify) -> Result<Vec<Block>> {
    let mut blocks = Vec::new();
    for number in 0..arguments.blocks {
        let mut block = Block::default();
        for step in 0..3 {
            match (number + step) % 3 {
                0 => {
                    let [a, b] = beside(workloads, arguments, [A, B])?;
                    block.together_ms =
                        [median_ms(workloads, &a, A)?, median_ms(workloads, &b, B)?];
                }
                1 => {
                    let [a, _] = beside(workloads, arguments, [A, BESIDE_A])?;
                    block.apart_ms[A] = median_ms(workloads, &a, A)?;
                }
                _ => {
                    let [b, _] = beside(workloads, arguments, [B, BESIDE_B])?;
                    block.apart_ms[B] = median_ms(workloads, &b, B)?;
                }
            }
        }
        blocks.push(block);
    }
    Ok(blocks)
}

/// Lets two run until other programs of the machine have not disturbed them.
fn beside(
    workloads: &mut Workloads,
    arguments: &Verify,
    pair: [usize; 2],
) -> Result<[Vec<Instant>; 2]> {
    for _ in 0..ATTEMPTS {
        let told = pair.into_iter().filter(|index| *index <= B);
        let beside = Beside::run(workloads, arguments.each, pair, &told.collect::<Vec<_>>())?;
        if beside.disturbed <= arguments.disturbed {
            return Ok(beside.rounds);
        }
    }
    bail!("other programs disturbed the workloads each of {ATTEMPTS} times")
}

/// The median of what a round takes beside the control.
fn apart_ms(blocks: &[Block], index: usize) -> f64 {
    let mut times: Vec<_> = blocks.iter().map(|block| block.apart_ms[index]).collect();
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(0.0)
}

fn save(arguments: &Verify, trace: &Trace, blocks: Vec<Block>) -> Result<()> {
    let measured = Measured {
        name: trace.name.clone(),
        platform: trace.platform.clone(),
        blocks,
    };
    let file = &arguments.result;
    let text = serde_json::to_string(&measured)? + "\n";
    std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
    print(&pair_table(&Pair::both(&measured, trace)))
}
