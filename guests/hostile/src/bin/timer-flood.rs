//! Sleeps and wakes as often as the host lets it, to preempt a victim of lower priority. With BYTES
//! it also walks through that much memory each time, to evict the victim's data from the caches
//! (SPR attack A3). With PERIOD it attacks for the first BUSY of every PERIOD only, so that the
//! victim can be compared with itself. `timer-flood NAP_NS [BYTES [BUSY_NS PERIOD_NS]]`
#![no_std]
#![no_main]

use leasehold_hostile::{Arguments, Eviction, Line, nap, nap_until, next_multiple, now, program};

program!(main);

fn main(arguments: &Arguments<'_>) {
    let rest = arguments.number(0, 10_000);
    let mut eviction = Eviction::with(arguments.number(1, 0));
    let busy = arguments.number(2, 0);
    let period = arguments.number(3, 0);
    Line::print(format_args!("ready"));
    loop {
        if period > busy && now() % period >= busy {
            nap_until(next_multiple(period, 0));
        }
        eviction.walk();
        nap(rest);
    }
}
