//! Keeps the processor busy from SPAN before every multiple of PERIOD to SPAN after it: so whoever
//! wakes up at that instant finds a processor that does not sleep. `vigil SPAN_NS PERIOD_NS`
#![no_std]
#![no_main]

use core::hint::black_box;
use leasehold_hostile::{Arguments, Line, nap_until, next_multiple, now, program};

program!(main);

/// Rounds of a loop without a call between two looks at the clock: some microseconds.
const SPINS: u32 = 10_000;

fn main(arguments: &Arguments<'_>) {
    let span = arguments.number(0, 1_000_000);
    let period = arguments.number(1, 100_000_000).max(1);
    Line::print(format_args!("ready"));
    loop {
        let instant = next_multiple(period, span);
        nap_until(instant.saturating_sub(2 * span));
        while now() < instant {
            (0..SPINS).for_each(|spin| {
                black_box(spin);
            });
        }
    }
}
