//! Rounds of workloads that run beside each other for a while, and stand still before and after.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::command::stop::{LOOK, stopped};
use crate::command::workloads::Workloads;

/// Of each while, what is not looked at: caches and lists still have what the last one left.
const SETTLING: Duration = Duration::from_millis(60);
/// As many rounds as have a median.
const FEWEST: usize = 3;

/// What N workloads did beside each other.
pub(crate) struct Beside<const N: usize> {
    /// When they told of rounds.
    pub(crate) rounds: [Vec<Instant>; N],
    /// Which share of N processors other programs took meanwhile.
    pub(crate) disturbed: f64,
    /// For how long they ran.
    pub(crate) ran: Duration,
}

impl<const N: usize> Beside<N> {
    /// Lets the workloads of these numbers run for `time`, and until those in `told` have told of some rounds.
    pub(crate) fn run(
        workloads: &mut Workloads,
        time: Duration,
        running: [usize; N],
        told: &[usize],
    ) -> Result<Self> {
        let used = |workloads: &Workloads| {
            let own: u64 = running.iter().map(|index| workloads.cpu_ns(*index)).sum();
            all_cpu_ns().map(|all| all.saturating_sub(own))
        };
        let (before, began) = (used(workloads), Instant::now());
        for index in running {
            workloads.freeze(index, false)?;
        }
        std::thread::sleep(SETTLING);
        for index in running {
            drop(workloads.launched(index)?.take_rounds());
        }
        let begun = Instant::now();
        let mut rounds = std::array::from_fn(|_| Vec::new());
        let few = |rounds: &[Vec<Instant>; N]| {
            let each = running.iter().zip(rounds);
            let mut told = each.filter(|(index, _)| told.contains(index));
            told.any(|(_, rounds)| rounds.len() <= FEWEST)
        };
        while (begun.elapsed() < time || few(&rounds)) && !stopped() {
            std::thread::sleep(LOOK);
            for (index, rounds) in running.iter().zip(&mut rounds) {
                let launched = workloads.launched(*index)?;
                rounds.extend(launched.take_rounds());
                if let Some(status) = launched.ended()? {
                    bail!("a workload ended while it was measured ({status})");
                }
            }
        }
        for index in running {
            workloads.freeze(index, true)?;
        }
        let ran = began.elapsed();
        let others = used(workloads).zip(before);
        let others = others.map_or(0, |(after, before)| after.saturating_sub(before));
        match stopped() {
            true => bail!("stopped"),
            false => Ok(Self {
                rounds,
                disturbed: others as f64 / (N as u128 * ran.as_nanos()) as f64,
                ran,
            }),
        }
    }
}

/// The median of the milliseconds between rounds of workload number `index`.
pub(crate) fn median_ms(workloads: &Workloads, rounds: &[Instant], index: usize) -> Result<f64> {
    let between = |pair: &[Instant]| (pair[1] - pair[0]).as_secs_f64() * 1e3;
    let mut times: Vec<_> = rounds.windows(2).map(between).collect();
    times.sort_by(f64::total_cmp);
    let middle = times.get(times.len() / 2).copied();
    middle.with_context(|| format!("workload {} told of no round", workloads.name(index)))
}

/// The mean of the milliseconds that a round of workload number `index` takes. The thread that listens may have to wait for a
/// processor, and then hears of several rounds at once: their median would be next to nothing.
pub(crate) fn mean_ms(workloads: &Workloads, rounds: &[Instant], index: usize) -> Result<f64> {
    match rounds {
        [first, .., last] => Ok((*last - *first).as_secs_f64() * 1e3 / (rounds.len() - 1) as f64),
        _ => bail!("workload {} told of no round", workloads.name(index)),
    }
}

/// How much time tasks, interrupts and other machines of the same host have had the processors of this
/// machine, in nanoseconds, as the kernel's clock of some milliseconds sees it (`/proc/stat`).
fn all_cpu_ns() -> Option<u64> {
    /// A unit of the file, by Linux's promise to programs.
    const TICK_NS: u64 = 10_000_000;
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    let all = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Option<Vec<u64>> = all
        .split_whitespace()
        .map(|ticks| ticks.parse().ok())
        .collect();
    // User, nice, system, idle, waiting for a disk, interrupts, their rest, stolen.
    match ticks?.as_slice() {
        [user, nice, system, _, _, hard, soft, stolen, ..] => {
            Some((user + nice + system + hard + soft + stolen) * TICK_NS)
        }
        _ => None,
    }
}
