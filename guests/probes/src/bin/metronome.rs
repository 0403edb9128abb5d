//! Wakes every STEP in the SPAN before every multiple of PERIOD, and neither at that instant nor
//! after it: so a task that wakes up then finds the timer path warm, whichever task ran before.
//! `metronome SPAN_NS PERIOD_NS STEP_NS`
#![no_std]
#![no_main]

use leasehold_hostile::{Arguments, Line, nap_until, next_multiple, now, program};

program!(main);

fn main(arguments: &Arguments<'_>) {
    let span = arguments.number(0, 1_000_000);
    let period = arguments.number(1, 100_000_000).max(1);
    let step = arguments.number(2, 100_000).max(1);
    Line::print(format_args!("ready"));
    loop {
        let instant = next_multiple(period, 0);
        let mut beat = instant.saturating_sub(span).max(now());
        while beat < instant {
            nap_until(beat);
            beat += step;
        }
        // No timer of this program is due before.
        nap_until((instant + period).saturating_sub(span).max(instant));
    }
}
