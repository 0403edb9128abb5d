//! Sleeps and wakes as often as the host lets it, to interrupt whoever has a lower priority; with
//! BYTES it also walks through that much memory each time, so that the caches forget the other
//! (SPR attack A3). `timer-flood NAP_NS [BYTES]`
#![no_std]
#![no_main]

use leasehold_hostile::{Arguments, Line, Page, grow, nap, program};

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
    Line::print(format_args!("ready"));
    loop {
        for page in pages.iter_mut().flatten() {
            for byte in page.iter_mut().step_by(LINE) {
                *byte = byte.wrapping_add(1);
            }
        }
        nap(rest);
    }
}
