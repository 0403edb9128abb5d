//! Does a job at every multiple of PERIOD and prints when it was done, in ns after that instant:
//! `response NS`. A job is done when it has had the processor for WORK. `job-probe PERIOD_NS
//! WORK_NS`
#![no_std]
#![no_main]

use leasehold_hostile::{Arguments, Line, nap_until, next_multiple, now, program};

program!(main);

/// Readings of the clock that are further apart are an interruption, in which no work was done, ns.
const INTERRUPTION: u64 = 5_000;

fn main(arguments: &Arguments<'_>) {
    let period = arguments.number(0, 10_000_000).max(1);
    let work = arguments.number(1, 1_000_000);
    Line::print(format_args!("ready"));
    loop {
        let planned = next_multiple(period, 0);
        nap_until(planned);
        let response = job(work).saturating_sub(planned);
        Line::print(format_args!("response {response}"));
    }
}

/// Works for so long, and returns when it was done. Not by counting rounds: a processor whose other
/// hardware thread is busy takes twice as long for them.
fn job(work: u64) -> u64 {
    let (mut done, mut last) = (0, now());
    while done < work {
        let read = now();
        let step = read - last;
        if step < INTERRUPTION {
            done += step;
        }
        last = read;
    }
    last
}
