//! Creating, freeing and reclaiming objects, grouped against one by one (BRR fig. 7 and fig. 8).
//!
//! Run with `cargo bench -p leasehold-reclaim`. Prints medians and the sizes of states.
//!
//! All memory has been touched before it is measured. Reclamation is timed until *slot
//! reusable*, with the same cache history for every point: after the objects are made, another
//! group writes a fixed number of its own.

use std::hint::black_box;
use std::time::Instant;

use leasehold_reclaim::{
    Class, Config, CostModel, GroupId, Groups, Handle, HeapBacking, Mode, Nanos, Progress,
};

type Cell = Groups<HeapBacking, u64>;

const BUDGET: Nanos = Nanos(u64::MAX / 1_000);
/// Objects that another group writes before each timed reclamation: more than the caches hold.
const HISTORY: usize = 2_000_000;

fn cell(mode: Mode, arena_bytes: usize, keep_resident: usize) -> Cell {
    let costs = CostModel {
        root_ps: 1_000_000,
        group_ps: 100_000,
        scrub_ps: 50_000,
        chunk_ps: 100_000,
        page_ps: 100_000,
    };
    let config = Config {
        arena_bytes,
        keep_resident,
        mode,
        max_groups: 1 << 18,
    };
    Groups::new(config, costs, HeapBacking)
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

/// The cost of reading the clock, in nanoseconds.
fn clock() -> f64 {
    median(
        (0..10_001)
            .map(|_| Instant::now().elapsed().as_nanos() as f64)
            .collect(),
    )
}

fn make<const WORDS: usize>(
    groups: &mut Cell,
    root: GroupId,
    class: Class<[u64; WORDS]>,
    n: usize,
) {
    for i in 0..n {
        let handle = groups.alloc(root, class, [i as u64; WORDS]).expect("room");
        black_box(handle);
    }
}

/// Create and free, per object, and look-up.
fn objects<const WORDS: usize>(mode: Mode) {
    let n = 10_000;
    let mut groups = cell(mode, 1 << 30, 1 << 30);
    let class = groups.register::<[u64; WORDS]>("object", 700);
    let (mut create, mut read, mut free, mut again) = (vec![], vec![], vec![], vec![]);
    let mut handles: Vec<Handle<[u64; WORDS]>> = Vec::with_capacity(n);
    for _ in 0..301 {
        let root = groups.open_root(BUDGET).expect("root");
        let per = |start: Instant| start.elapsed().as_nanos() as f64 / n as f64;
        let start = Instant::now();
        make(&mut groups, root, class, n);
        create.push(per(start));
        handles.clear();
        for i in 0..n {
            handles.push(groups.alloc(root, class, [i as u64; WORDS]).expect("room"));
        }
        let start = Instant::now();
        for &handle in &handles {
            black_box(groups.get(handle).expect("there")[0]);
        }
        read.push(per(start));
        let start = Instant::now();
        for &handle in &handles {
            black_box(groups.free(handle));
        }
        free.push(per(start));
        let start = Instant::now();
        make(&mut groups, root, class, n);
        again.push(per(start));
        groups.reclaim(root, &mut |_: &mut Cell, _| {});
    }
    println!(
        "{:>10} {:>10} {:>9.2} {:>9.2} {:>9.2} {:>9.2}",
        format!("{} bytes", 8 * WORDS),
        name(mode),
        median(create),
        median(again),
        median(read),
        median(free)
    );
}

fn name(mode: Mode) -> &'static str {
    match mode {
        Mode::Grouped => "grouped",
        Mode::Individual => "individual",
    }
}

/// Times a group's end until its memory can be used again; what remains is done untimed.
fn timed_end(groups: &mut Cell, group: GroupId) -> (f64, u64) {
    let sever = &mut |_: &mut Cell, _| {};
    let start = Instant::now();
    let mut reclaim = groups.begin_reclaim(group).expect("alive");
    while reclaim.step(groups, sever, u32::MAX) == Progress::Working {}
    let ns = start.elapsed().as_nanos() as f64;
    while reclaim.step(groups, sever, u32::MAX) != Progress::Done {}
    (ns, reclaim.outcome().steps)
}

fn bulk(mode: Mode, keep_resident: usize, label: &str, clock: f64) {
    let mut groups = cell(mode, 256 << 20, keep_resident);
    let class = groups.register::<[u64; 3]>("object", 700);
    let history = groups.open_root(BUDGET).expect("root");
    let mut written = vec![];
    for i in 0..HISTORY {
        written.push(groups.alloc(history, class, [i as u64; 3]).expect("room"));
    }
    let mut first = None;
    for n in [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000] {
        let samples = if n > 100_000 { 31 } else { 101 };
        let (mut times, mut steps) = (vec![], 0);
        // The first is a rehearsal that touches the memory.
        for sample in 0..=samples {
            let root = groups.open_root(BUDGET).expect("root");
            make(&mut groups, root, class, n);
            for &handle in &written {
                groups.get_mut(handle).expect("there")[1] += 1;
            }
            let (ns, taken) = timed_end(&mut groups, root);
            if sample > 0 {
                times.push((ns - clock).max(0.0));
            }
            steps = taken;
        }
        let ns = median(times);
        let ratio = ns / *first.get_or_insert(ns);
        println!("{label:>22} {n:>9} {ns:>13.0} {ratio:>11.2} {steps:>9}");
    }
}

fn children(clock: f64) {
    let mut groups = cell(Mode::Grouped, 1 << 30, 1 << 30);
    let class = groups.register::<[u64; 3]>("object", 700);
    let history = groups.open_root(BUDGET).expect("root");
    let written: Vec<_> = (0..HISTORY)
        .map(|i| groups.alloc(history, class, [i as u64; 3]).expect("room"))
        .collect();
    for n in [1, 100, 10_000, 100_000] {
        let (mut open, mut ends, mut steps) = (vec![], vec![], 0);
        for _ in 0..32 {
            let root = groups.open_root(BUDGET).expect("root");
            let start = Instant::now();
            for _ in 0..n {
                black_box(groups.open_child(root, Nanos(10)).expect("child"));
            }
            open.push((start.elapsed().as_nanos() as f64 - clock) / f64::from(n));
            for &handle in &written {
                groups.get_mut(handle).expect("there")[1] += 1;
            }
            let (ns, taken) = timed_end(&mut groups, root);
            ends.push((ns - clock).max(0.0));
            steps = taken;
        }
        println!(
            "{n:>9} {:>9.1} {:>13.0} {steps:>9}",
            median(open),
            median(ends)
        );
    }
}

fn main() {
    let clock = clock();
    println!("median ns per object, 10^4 objects at a time");
    println!(
        "{:>10} {:>10} {:>9} {:>9} {:>9} {:>9}",
        "object", "mode", "create", "recycle", "get", "free"
    );
    for mode in [Mode::Grouped, Mode::Individual] {
        objects::<1>(mode);
        objects::<3>(mode);
        objects::<7>(mode);
        objects::<15>(mode);
    }

    println!("\nend of a group with objects of 24 bytes, median ns until slot reusable");
    println!(
        "{:>22} {:>9} {:>13} {:>11} {:>9}",
        "mode", "objects", "reclaim", "against 1", "steps"
    );
    bulk(Mode::Grouped, 256 << 20, "grouped, kept", clock);
    bulk(Mode::Grouped, 0, "grouped, switched", clock);
    bulk(Mode::Individual, 0, "individual", clock);

    println!("\nend of a root with child groups, median ns");
    println!(
        "{:>9} {:>9} {:>13} {:>9}",
        "children", "open", "reclaim", "steps"
    );
    children(clock);

    println!("\nstates, bytes");
    println!("{:>22} {:>9}", "handle", size_of::<Handle<u64>>());
    println!("{:>22} {:>9}", "group record", Cell::RECORD_BYTES);
}
