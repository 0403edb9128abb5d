//! Reads the clock in a loop for BUSY out of every PERIOD, and takes every two readings that lie
//! further apart than THRESHOLD as an interruption (SPR §V-A). Prints the sum of the
//! interruptions of a period, `gaps COUNT P50 P99 MAX` in ns, and how many they were,
//! `interrupts COUNT P50 P99 MAX`, a line each per ROUND periods.
//! `gap-probe BUSY_NS PERIOD_NS ROUND [THRESHOLD_NS]`
#![no_std]
#![no_main]

use leasehold_hostile::{Arguments, Line, nap_until, next_multiple, now, program};
use leasehold_probes::Quantiles;

program!(main);

fn main(arguments: &Arguments<'_>) {
    let busy = arguments.number(0, 10_000_000);
    let period = arguments.number(1, 100_000_000).max(1);
    let round = arguments.number(2, 10);
    let threshold = arguments.number(3, 1_500);
    let mut gaps = Quantiles::<256>::new();
    let mut interrupts = Quantiles::<256>::new();
    Line::print(format_args!("ready"));
    loop {
        nap_until(next_multiple(period, 0));
        let end = now() + busy;
        let (mut sum, mut count) = (0, 0);
        let mut last = now();
        while last < end {
            let at = now();
            if at - last > threshold {
                sum += at - last;
                count += 1;
            }
            last = at;
        }
        gaps.add("gaps", sum, round);
        interrupts.add("interrupts", count, round);
    }
}
