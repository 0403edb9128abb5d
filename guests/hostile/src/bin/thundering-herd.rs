//! Uses its budget up at an instant that every member of the herd knows, so that all of them are
//! replenished at once, for ever after (SPR attack A1). `thundering-herd PERIOD_NS`
#![no_std]
#![no_main]

use leasehold_hostile::{Aftermath, Arguments, Line, nap_until, next_multiple, program};

program!(main);

/// Periods to wait first: the budget used by starting has come back by then. Otherwise the next
/// budget would come back a period after the start, and not together with those of the others.
const PATIENCE: u64 = 8;

fn main(arguments: &Arguments<'_>) {
    let period = arguments.number(0, 100_000_000).max(1);
    Line::print(format_args!("ready"));
    nap_until(next_multiple(period, 0) + PATIENCE * period);
    Aftermath::Spin.quietly();
}
