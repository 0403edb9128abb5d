//! `lockscope top`: which locks running workloads wait for, again and again.

use std::collections::HashMap;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use anyhow::Result;
use leasehold_lockscope::tracer::{ModeChoice, Offer, Options, Recorder};
use leasehold_lockscope::{Lock, Mode, Usage, Workload, locks};

use crate::command::duration::parse_duration;
use crate::command::read;
use crate::command::record::Running;
use crate::command::render::{new_table, rate, share};
use crate::command::stop::{LOOK, stop_on_signals, stopped};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lockscope top --cgroup system.slice/db.service --cgroup system.slice/web.service
  lockscope top --pid 1200 --pid 1300 --interval 5s --count 1

It uses the contended mode, which is safe on every machine.")]
pub(crate) struct Top {
    #[command(flatten)]
    running: Running,

    /// The time between two tables.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_duration)]
    interval: Duration,

    /// How many tables to print [default: until Ctrl-C].
    #[arg(long, value_name = "N")]
    count: Option<u64>,

    /// The most rows of a table.
    #[arg(long, value_name = "N", default_value_t = 20)]
    rows: usize,
}

/// What a workload did with a lock since the look before.
#[derive(Debug, Clone, Copy, Default)]
struct Since {
    waits: u64,
    wait_ns: u64,
}

/// By lock and workload.
type Seen = HashMap<(u64, u32, u8), Since>;

/// `lockscope top`.
pub(crate) fn top(arguments: &Top) -> Result<()> {
    let workloads = arguments.running.targets()?;
    let offer = Offer::of_the_kernel()?;
    let (mode, _) = offer.choose(ModeChoice::Only(Mode::Contended))?;
    let options = Options {
        mode,
        classes: Vec::new(),
        rows: Options::ROWS,
    };
    let targets: Vec<_> = workloads
        .iter()
        .map(|(_, target)| vec![target.clone()])
        .collect();
    stop_on_signals()?;
    let described: Vec<_> = workloads
        .into_iter()
        .zip('a'..)
        .map(|((what, _), name)| Workload {
            name: name.to_string(),
            what,
            ran_ns: 0,
            own_ns: 0,
        })
        .collect();
    let mut recorder = Recorder::load(&offer, &options, &targets)?;
    recorder.attach()?;
    let mut seen = Seen::new();
    let mut looks = 0;
    let mut begun = Instant::now();
    loop {
        while begun.elapsed() < arguments.interval && !stopped() {
            std::thread::sleep(LOOK.min(arguments.interval));
        }
        if stopped() {
            return Ok(());
        }
        let seconds = begun.elapsed().as_secs_f64();
        begun = Instant::now();
        let trace = recorder.so_far(described.clone())?;
        let all = locks(&trace);
        let text = screen(&all, &mut seen, &described, seconds, arguments.rows);
        let clear = if std::io::stdout().is_terminal() {
            "\x1b[H\x1b[2J"
        } else {
            ""
        };
        read::print(&format!("{clear}{text}\n"))?;
        looks += 1;
        if arguments.count.is_some_and(|count| looks >= count) {
            return Ok(());
        }
    }
}

/// The locks that were waited for most since the look before, those first that several wait for.
fn screen(
    all: &[Lock],
    seen: &mut Seen,
    workloads: &[Workload],
    seconds: f64,
    most: usize,
) -> String {
    let numbers: Vec<u8> = (0u8..=u8::MAX).take(workloads.len()).collect();
    let mut rows = Vec::new();
    for lock in all {
        let news: Vec<_> = numbers
            .iter()
            .map(|&number| {
                let now = lock
                    .by
                    .get(&number)
                    .map_or_else(Since::default, since_begin);
                let key = (lock.address, lock.generation, number);
                let before = seen.insert(key, now).unwrap_or_default();
                Since {
                    waits: now.waits.saturating_sub(before.waits),
                    wait_ns: now.wait_ns.saturating_sub(before.wait_ns),
                }
            })
            .collect();
        let waited: u64 = news.iter().map(|news| news.wait_ns).sum();
        if waited > 0 {
            rows.push((lock.shared, waited, lock, news));
        }
    }
    rows.sort_by_key(|(shared, waited, ..)| std::cmp::Reverse((*shared, *waited)));
    let mut header = vec!["lock".to_owned(), "class".into(), "shared".into()];
    for workload in workloads {
        header.push(format!("{} waits/s", workload.name));
        header.push("of its time".into());
    }
    let header: Vec<_> = header.iter().map(String::as_str).collect();
    let mut table = new_table(&header);
    let hidden = rows.len().saturating_sub(most);
    for (shared, _, lock, news) in rows.into_iter().take(most) {
        let mut cells = vec![
            lock.name.clone(),
            lock.class.to_string(),
            if shared { "yes" } else { "" }.to_owned(),
        ];
        for news in news {
            cells.push(rate(news.waits as f64 / seconds));
            cells.push(share(news.wait_ns as f64 / 1e9 / seconds));
        }
        table.add_row(cells);
    }
    let mut out = String::new();
    for workload in workloads {
        out.push_str(&format!("{}: {}\n", workload.name, workload.what));
    }
    out.push_str(&format!("{table}\n"));
    if hidden > 0 {
        out.push_str(&format!("and {hidden} more\n"));
    }
    out
}

fn since_begin(usage: &Usage) -> Since {
    Since {
        waits: usage.contended,
        wait_ns: usage.wait_ns,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_lockscope::{Class, Primitive, Trace, Use, WorkloadId};

    #[test]
    fn a_look_shows_what_came_since_the_one_before() {
        let waits = |workload, waits: u64| Use {
            lock: 0x1000,
            workload: WorkloadId(workload),
            acquired: waits,
            contended: waits,
            wait_ns: waits * 1_000_000,
            last_ns: 5,
            ..Use::default()
        };
        let workloads: Vec<_> = ["a", "b"]
            .map(|name| Workload {
                name: name.into(),
                what: String::new(),
                ran_ns: 0,
                own_ns: 0,
            })
            .into();
        let look = |a, b| Trace {
            workloads: workloads.clone(),
            primitives: vec![Primitive {
                name: "mutex".into(),
                class: Class::Mutex,
                access: Default::default(),
                tries: false,
            }],
            uses: vec![waits(0, a), waits(1, b)],
            ..Trace::default()
        };
        let mut seen = Seen::new();
        let first = screen(&locks(&look(10, 20)), &mut seen, &workloads, 2.0, 20);
        assert!(first.contains("5.00") && first.contains("10.00"), "{first}");
        assert!(first.contains("yes"), "{first}");
        let second = screen(&locks(&look(16, 20)), &mut seen, &workloads, 2.0, 20);
        assert!(
            second.contains("3.00") && !second.contains("10.00"),
            "{second}"
        );
        let third = screen(&locks(&look(16, 20)), &mut seen, &workloads, 2.0, 20);
        assert!(!third.contains("mutex"), "{third}");
    }
}
