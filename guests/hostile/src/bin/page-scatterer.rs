//! Makes pages resident, one byte each. `page-scatterer BYTES STRIDE AFTERMATH`
//!
//! Grows its memory by BYTES (4 GiB unless told), or as far as it gets, and writes one byte every
//! STRIDE bytes (4,096 unless told, at most 65,536).
#![no_std]
#![no_main]

use leasehold_hostile::{Arguments, Line, PAGE_BYTES, grow, program};

program!(main);

fn main(arguments: &Arguments<'_>) {
    let pages = grow(arguments.number(0, 1 << 32));
    let stride = arguments.number(1, 4096).clamp(1, PAGE_BYTES as u64) as usize;
    let mut written = 0_u64;
    for page in pages {
        for byte in page.iter_mut().step_by(stride) {
            *byte = 1;
            written += 1;
        }
    }
    Line::print(format_args!("got {written}"));
    arguments.aftermath(2).enter();
}
