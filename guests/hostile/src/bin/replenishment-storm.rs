//! Splits its budget into as many replenishments as it can, all due while a victim runs (SPR attack
//! A2). `replenishment-storm PIECES RUN_NS NAP_NS PERIOD_NS PHASE_NS`
#![no_std]
#![no_main]

use leasehold_hostile::{Arguments, Line, nap, nap_until, next_multiple, program, work_for};

program!(main);

fn main(arguments: &Arguments<'_>) {
    let pieces = arguments.number(0, 16);
    let run = arguments.number(1, 10_000);
    let rest = arguments.number(2, 50_000);
    let period = arguments.number(3, 100_000_000).max(1);
    let phase = arguments.number(4, 0);
    Line::print(format_args!("ready"));
    loop {
        nap_until(next_multiple(period, phase));
        // Each nap ends a piece: its budget comes back separately, one period later.
        for _ in 0..pieces {
            work_for(run);
            nap(rest);
        }
    }
}
