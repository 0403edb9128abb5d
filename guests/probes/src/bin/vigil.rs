//! Keeps the processor busy from SPAN before every multiple of PERIOD to SPAN after it: so a task
//! that wakes up at that instant finds a processor that does not sleep. It finds none of its own
//! data in the caches, whichever task ran before, if this walks through as many BYTES as they hold.
//! `vigil SPAN_NS PERIOD_NS [BYTES]`
#![no_std]
#![no_main]

use core::hint::black_box;
use leasehold_hostile::{Arguments, Eviction, Line, nap_until, next_multiple, now, program};

program!(main);

/// Rounds of a loop without a call between two looks at the clock: some microseconds.
const SPINS: u32 = 10_000;

fn main(arguments: &Arguments<'_>) {
    let span = arguments.number(0, 1_000_000);
    let period = arguments.number(1, 100_000_000).max(1);
    let mut eviction = Eviction::with(arguments.number(2, 0));
    Line::print(format_args!("ready"));
    loop {
        let instant = next_multiple(period, span);
        nap_until(instant.saturating_sub(2 * span));
        // Until the very end, so that no other task uses the caches last.
        while now() < instant {
            if !eviction.step() {
                (0..SPINS).for_each(|spin| {
                    black_box(spin);
                });
            }
        }
    }
}
