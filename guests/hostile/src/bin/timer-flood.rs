//! Sleeps and wakes as often as the host lets it, to interrupt whoever has a lower priority; with
//! BYTES it also walks through that much memory each time, so that the caches forget the other
//! (SPR attack A3). With PERIOD it attacks for the first BUSY of every PERIOD only, so that the
//! other can be compared with itself. `timer-flood NAP_NS [BYTES [BUSY_NS PERIOD_NS]]`
#![no_std]
#![no_main]

use leasehold_hostile::{Arguments, Line, Page, grow, nap, nap_until, next_multiple, now, program};

program!(main);

/// Bytes that a processor fetches at once.
const LINE: usize = 64;

/// 64 MiB: more than the caches of the hosts that this runs on.
const MOST_PAGES: usize = 1024;

fn main(arguments: &Arguments<'_>) {
    let rest = arguments.number(0, 10_000);
    let mut pages: [Option<&mut Page>; MOST_PAGES] = [const { None }; MOST_PAGES];
    for (place, page) in pages.iter_mut().zip(grow(arguments.number(1, 0))) {
        *place = Some(page);
    }
    let busy = arguments.number(2, 0);
    let period = arguments.number(3, 0);
    Line::print(format_args!("ready"));
    loop {
        if period > busy && now() % period >= busy {
            nap_until(next_multiple(period, 0));
        }
        for page in pages.iter_mut().flatten() {
            for byte in page.iter_mut().step_by(LINE) {
                *byte = byte.wrapping_add(1);
            }
        }
        nap(rest);
    }
}
