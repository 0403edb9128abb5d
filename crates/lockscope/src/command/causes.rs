//! `lockscope causes`: what a neighbour loses for each microsecond that one lock is held longer, measured and
//! predicted.

use std::time::Duration;

use anyhow::{Result, bail};
use leasehold_lockscope::tracer::{Delayer, Offer};
use leasehold_lockscope::{
    Candidate, Cause, DelayBlock, DelayPoint, Finding, Predicted, Trace, WorkloadId, tau_of_causes,
};
use serde::Serialize;

use crate::command::duration::{parse_delay, parse_duration};
use crate::command::read::print;
use crate::command::record::{self, Common};
use crate::command::render::{new_table, none, rate};
use crate::command::rounds::{Beside, mean_ms};
use crate::command::stop::stop_on_signals;
use crate::command::workloads::{Setting, Workloads};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lockscope causes --pin --a 'workload --tell file-create /srv/{}' --b 'workload --tell file-create /srv/{}'
  lockscope causes --pin --locks 1 --delay 10us,50us --blocks 10 --a ./a.sh --b ./b.sh --json >causes.json
  lockscope causes --pin --lock i_rwsem --a ./a.sh --b ./b.sh --control 'workload spin /srv/{}'

a and b are timed alone, or beside the control, and recorded beside each other, in the full mode. Then, for one lock after the other, holds by b are made longer:
b spins before it releases the lock. Rounds of both are timed with each delay and with none, in turns.
A lock is a channel if each of the blocks says that a takes longer. Slopes are parts of a round for each
microsecond. Locks that b alone takes are a check of the method: their delay slows b, and not a, unless b
takes them while it holds a shared one.
Each CMD prints `ready`, waits for a line, and prints `round` after each piece of work. In a CMD, {}
stands for the workload's name: a, b, control-beside-a, control-beside-b.")]
pub(crate) struct Causes {
    /// Command of the workload that may wait.
    #[arg(long, value_name = "CMD")]
    a: String,

    /// Command of the workload whose holds are made longer.
    #[arg(long, value_name = "CMD")]
    b: String,

    /// Command of a control that takes no locks: beside it the own time of a and b is measured, where two that run at
    /// a time slow each other without locks [default: each is measured alone].
    #[arg(long, value_name = "CMD")]
    control: Option<String>,

    /// How many of the shared locks: those that cost a most, by the score.
    #[arg(long, value_name = "N", default_value_t = 3)]
    locks: usize,

    /// How many of the locks that b alone takes: those that it takes most often.
    #[arg(long, value_name = "N", default_value_t = 1)]
    private: usize,

    /// Only locks whose names contain this; may be repeated.
    #[arg(long, value_name = "NAME")]
    lock: Vec<String>,

    /// By how much each hold is made longer: 1us to 100us.
    #[arg(
        long,
        value_name = "LIST",
        default_value = "5us,20us",
        value_delimiter = ',',
        value_parser = parse_delay
    )]
    delay: Vec<u64>,

    /// How often each delay is measured.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    blocks: u32,

    /// For how long each time.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    each: Duration,

    /// For how long both are recorded.
    #[arg(long = "for", value_name = "TIME", default_value = "2s", value_parser = parse_duration)]
    time: Duration,

    /// Print JSON, with all that was measured.
    #[arg(long)]
    json: bool,

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
const OF: WorkloadId = WorkloadId(0);
const BY: WorkloadId = WorkloadId(1);

/// What is printed as JSON.
#[derive(Debug, Serialize)]
struct Everything {
    name: String,
    platform: String,
    tau: Option<f64>,
    causes: Vec<Cause>,
}

/// `lockscope causes`.
pub(crate) fn causes(arguments: &Causes) -> Result<()> {
    let common = Common {
        mode: match arguments.common.mode.as_str() {
            "auto" | "full" => "full".into(),
            mode => bail!("--mode {mode}: only the full mode sees what a lock costs"),
        },
        ..arguments.common.clone()
    };
    record::check(&common)?;
    stop_on_signals()?;
    let setting = Setting {
        when_ready: true,
        ..arguments.setting.clone()
    };
    let mut workloads = Workloads::of(&setting)?;
    for (name, command) in [("a", &arguments.a), ("b", &arguments.b)] {
        workloads.add(name, &command.replace("{}", name))?;
    }
    // Controls are where the workload is that they stand for.
    for (name, place) in [("control-beside-a", B), ("control-beside-b", A)] {
        if let Some(command) = &arguments.control {
            workloads.add_at(name, &command.replace("{}", name), place)?;
        }
    }
    let mut delayer = Delayer::load(&Offer::of_the_kernel()?, &workloads.targets()[B])?;
    let trace = record_pair(&mut workloads, arguments, &setting, &common)?;
    trace.write(&common.out)?;
    let locks = chosen(arguments, &trace, &delayer);
    if locks.is_empty() {
        bail!(
            "no lock fits that b takes in more than half of the recording and releases by a function"
        );
    }
    let mut causes = Vec::new();
    for lock in locks {
        eprintln!("lockscope: {} ({})", lock.name, sharing(&lock));
        causes.push(measure(
            &mut workloads,
            &mut delayer,
            arguments,
            &trace,
            lock,
        )?);
    }
    drop(delayer);
    workloads.end()?;
    let everything = Everything {
        name: trace.name.clone(),
        platform: trace.platform.clone(),
        tau: tau_of_causes(&causes),
        causes,
    };
    match arguments.json {
        true => print(&(serde_json::to_string(&everything)? + "\n")),
        false => print(&text(&everything)),
    }
}

/// Starts all, measures what a round of a and of b takes by itself, and records both beside each other. All stand
/// still afterwards.
fn record_pair(
    workloads: &mut Workloads,
    arguments: &Causes,
    setting: &Setting,
    common: &Common,
) -> Result<Trace> {
    let mut recorder = record::load(common, &workloads.targets()[..=B])?;
    workloads.launch(false)?;
    for index in 0..workloads.len() {
        workloads.go(index)?;
        workloads.until_ready(index)?;
        workloads.begin(index)?;
        workloads.freeze(index, true)?;
    }
    let time = setting.alone.unwrap_or(arguments.each);
    for (index, control) in [(A, BESIDE_A), (B, BESIDE_B)] {
        let [rounds, ..] = match &arguments.control {
            Some(_) => Beside::run(workloads, time, [index, control], &[index])?.rounds,
            None => {
                let [rounds] = Beside::run(workloads, time, [index], &[index])?.rounds;
                [rounds, Vec::new()]
            }
        };
        let round_ms = mean_ms(workloads, &rounds, index)?;
        workloads.set_round_ms(index, round_ms);
    }
    recorder.attach()?;
    workloads.resume(BESIDE_A)?;
    workloads.wait(arguments.time)?;
    let mut described = workloads.described();
    described.truncate(BESIDE_A);
    let trace = record::finish(recorder, described, setting.platform.name(), common)?;
    for index in [A, B] {
        workloads.freeze(index, true)?;
    }
    Ok(trace)
}

/// The shared locks that cost most, then the private ones.
fn chosen(arguments: &Causes, trace: &Trace, delayer: &Delayer) -> Vec<Candidate> {
    let named = |lock: &Candidate| {
        let mut names = arguments.lock.iter();
        arguments.lock.is_empty() || names.any(|name| lock.name.contains(name))
    };
    let all = Candidate::all(trace, OF, BY).into_iter();
    let fit = all.filter(|lock| named(lock) && delayer.reaches(lock.class));
    let (shared, private): (Vec<_>, Vec<_>) = fit.partition(|lock| lock.shared);
    let shared = shared.into_iter().take(arguments.locks);
    let private = private.into_iter().take(arguments.private);
    shared.chain(private).collect()
}

/// Measures one lock: without the program, and then in blocks, each in another order.
fn measure(
    workloads: &mut Workloads,
    delayer: &mut Delayer,
    arguments: &Causes,
    trace: &Trace,
    lock: Candidate,
) -> Result<Cause> {
    let time = |workloads: &mut Workloads| -> Result<(Beside<2>, [f64; 2])> {
        let beside = Beside::run(workloads, arguments.each, [A, B], &[A, B])?;
        let of = |index: usize| mean_ms(workloads, &beside.rounds[index], index);
        let round_ms = [of(A)?, of(B)?];
        Ok((beside, round_ms))
    };
    let (_, untouched_ms) = time(workloads)?;
    delayer.aim(lock.lock, lock.class)?;
    let mut delays = vec![0];
    delays.extend(&arguments.delay);
    let mut blocks = Vec::new();
    for number in 0..arguments.blocks as usize {
        let mut points = vec![DelayPoint::default(); delays.len()];
        for step in 0..delays.len() {
            let at = (number + step) % delays.len();
            delayer.set(delays[at])?;
            let (beside, round_ms) = time(workloads)?;
            let delayed = delayer.delayed()?;
            points[at] = DelayPoint {
                asked_ns: delays[at],
                holds: delayed.holds,
                mean_ns: delayed.ns as f64 / delayed.holds.max(1) as f64,
                ran_ns: u64::try_from(beside.ran.as_nanos()).unwrap_or(u64::MAX),
                round_ms,
            };
        }
        let none = points.remove(0);
        blocks.push(DelayBlock {
            none,
            delayed: points,
        });
    }
    Ok(Cause::of(lock, untouched_ms, blocks, |lock, delays_ns| {
        Predicted::of(trace, lock, OF, BY, delays_ns)
    }))
}

fn sharing(lock: &Candidate) -> &'static str {
    match lock.shared {
        true => "shared",
        false => "b alone takes it",
    }
}

fn text(everything: &Everything) -> String {
    let mut table = new_table(&[
        "lock",
        "class",
        "taken by",
        "holds/s",
        "predicted",
        "measured",
        "from",
        "to",
        "ratio",
        "b itself",
        "",
    ]);
    for cause in &everything.causes {
        table.add_row([
            cause.lock.name.clone(),
            cause.lock.class.to_string(),
            match cause.lock.shared {
                true => "both".into(),
                false => "b".into(),
            },
            rate(cause.holds_per_second),
            per_us(cause.predicted.of),
            per_us(cause.measured.all),
            per_us(cause.measured.least),
            per_us(cause.measured.most),
            cause
                .ratio()
                .map_or_else(none, |ratio| format!("{ratio:.2}")),
            per_us(cause.own.all),
            match cause.finding {
                Finding::Channel => "channel".into(),
                Finding::DelayedOnly => "not a channel: b only".into(),
                Finding::Neither => "not felt".into(),
            },
        ]);
    }
    let tau = everything.tau;
    let tau = tau.map_or_else(none, |tau| format!("{tau:.2}"));
    format!(
        "{table}\nslower by, for each microsecond of a hold of b: a, predicted and measured (from, to: of the \
         blocks), and b itself\nKendall's tau of predicted and measured, of the shared locks: {tau}\n"
    )
}

fn per_us(slope: f64) -> String {
    format!("{:+.3} %", 100.0 * slope)
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_lockscope::{Class, Slope};

    fn cause(shared: bool, finding: Finding) -> Cause {
        let slope = |all: f64| Slope {
            all,
            least: all / 2.0,
            most: all * 2.0,
        };
        Cause {
            lock: Candidate {
                lock: 1,
                generation: 0,
                name: "inode.i_rwsem".into(),
                class: Class::Rwsem,
                shared,
                cost: 0.0,
                acquired: 0,
            },
            holds_per_second: 1_234.0,
            measured: slope(0.002),
            own: slope(0.01),
            predicted: Predicted {
                of: 0.003,
                by: 0.01,
                of_this_lock: 0.003,
            },
            finding,
            untouched_ms: [1.0; 2],
            blocks: Vec::new(),
        }
    }

    #[test]
    fn a_table_says_which_locks_are_channels_and_gives_no_ratio_of_others() {
        let text = text(&Everything {
            name: "one".into(),
            platform: "host".into(),
            tau: None,
            causes: vec![
                cause(true, Finding::Channel),
                cause(false, Finding::DelayedOnly),
            ],
        });
        let row = |part: &str| text.lines().find(|line| line.contains(part)).expect(part);
        let channel = row(" both ");
        for cell in [
            "inode.i_rwsem",
            "1234",
            "+0.300 %",
            "+0.200 %",
            "+0.100 %",
            "+0.400 %",
            "1.50",
            "channel",
        ] {
            assert!(channel.contains(cell), "{cell}: {channel}");
        }
        let private = row("not a channel: b only");
        assert!(private.contains(" – "), "{private}");
        assert!(row("tau").ends_with('–'));
    }
}
