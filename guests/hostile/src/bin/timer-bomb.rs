//! Sets kernel timers far in the future. `timer-bomb N AFTERMATH`
#![no_std]
#![no_main]

use leasehold_guest::Timer;
use leasehold_hostile::{Arguments, program, tally};

program!(main);

/// Eleven days and a half: none of them fires during a test.
const FAR_NS: u64 = 1_000_000_000_000_000;

fn main(arguments: &Arguments<'_>) {
    tally(arguments.number(0, 0), |before| {
        // Each at a time of its own, so that no two share a place in the host's queue.
        Timer::create()?.set(FAR_NS + before, 0)
    })
    .print();
    arguments.aftermath(1).enter();
}
