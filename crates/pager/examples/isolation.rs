//! The cost of evicting shared pages, and the cost of preventing it: figures 8 and 9 and table III
//! of SPC, in virtual time.
//!
//! `cargo run -p leasehold-pager --example isolation`

use leasehold_pager::Refused;
use leasehold_pager::simulate::{
    Disk, Experiment, History, MB, MS, Nanos, REGION, Scheme, TAU1, TAU2, Task,
};

const WARM: Nanos = 10_000 * MS;
const END: Nanos = 20_000 * MS;
const SCHEMES: [(Scheme, &str, u32); 4] = [
    (Scheme::Plain, "no management", 2),
    (Scheme::FirstTouch, "first touch", 2),
    (Scheme::Spc, "SPC", 2),
    (Scheme::Spel, "SPEL", 11),
];

fn run(tasks: &[Task], scheme: Scheme, disk: Disk, first: usize) -> Result<History, Refused> {
    let mut experiment = Experiment::new(tasks.to_vec(), REGION, scheme);
    (experiment.disk, experiment.first) = (disk, first);
    experiment.run(END)
}

fn alone() -> Result<(), Refused> {
    println!("Fig. 8: tasks alone\n task  MB  missed of  longest response (ms)");
    for (name, task, sizes) in [("τ1", TAU1, [11, 10]), ("τ2", TAU2, [11, 2])] {
        for mb in sizes {
            let history = run(&[task.with(mb * MB)], Scheme::Spc, Disk::default(), 0)?;
            let jobs = &history.jobs[0];
            let times = jobs
                .iter()
                .filter_map(|job| Some(job.completion? - job.release));
            let longest = times.max().unwrap_or(END) / MS;
            let (missed, released) = (history.missed(0), jobs.len());
            println!(" {name}  {mb:>4} {missed:>6} {released:>4} {longest:>10}");
        }
    }
    Ok(())
}

fn together() -> Result<(), Refused> {
    let periods = ((END - WARM) / TAU2.period) as f64;
    println!("\nFig. 9: τ1 (11 MB) beside τ2, per period of τ2");
    println!(" scheme          first   ms/page  τ1 major  τ1 missed  τ2 missed");
    for (scheme, name, mb) in SCHEMES {
        for first in 0..=usize::from(scheme == Scheme::FirstTouch) {
            for page in [100_000, 200_000, 300_000, 400_000, 520_833] {
                let tasks = [TAU1, TAU2.with(mb * MB)];
                let history = run(&tasks, scheme, Disk::with_page(page), first)?;
                println!(
                    " {name:<15} τ{}    {:>7.2} {:>9.1} {:>10.2} {:>10.2}",
                    first + 1,
                    page as f64 / MS as f64,
                    history.major_since(0, WARM) as f64 / periods,
                    history.missed_since(0, WARM) as f64 / periods,
                    history.missed_since(1, WARM) as f64 / periods,
                );
            }
        }
    }
    Ok(())
}

fn memory() -> Result<(), Refused> {
    println!("\nTable III: physical memory at the end (MB)");
    for (name, tasks) in [
        ("{τ1, τ1}", [TAU1, TAU1]),
        ("{τ2, τ2}", [TAU2, TAU2]),
        ("{τ1, τ2}", [TAU1, TAU2]),
    ] {
        print!(" {name}");
        for (scheme, title, _) in SCHEMES {
            let locked = tasks.map(|task| task.with(11 * MB));
            let tasks = if scheme == Scheme::Spel {
                locked
            } else {
                tasks
            };
            let history = run(&tasks, scheme, Disk::default(), 0)?;
            print!("  {title} {}", f64::from(history.physical) / f64::from(MB));
        }
        println!();
    }
    Ok(())
}

fn main() -> Result<(), Refused> {
    alone()?;
    together()?;
    memory()
}
