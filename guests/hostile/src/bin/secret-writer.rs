//! Leaves a secret wherever it can. `secret-writer PATTERN BYTES AFTERMATH`
//!
//! PATTERN is 16 bytes in hexadecimal digits. Writes it all over the unused part of its memory,
//! its stack, BYTES bytes (1 MiB unless told) of new memory, regions of as many in all, and a
//! channel of 64 KiB, each as far as the host lets it. Prints how many bytes it wrote.
#![no_std]
#![no_main]

use core::hint;

use leasehold_guest::{Channel, Errno, Region};
use leasehold_hostile::{
    Arguments, Line, PAGE_BYTES, Page, Secret, exit, grow, program, tally, untouched,
};

program!(main);

/// Bytes of stack to write to: half of it.
const STACK_BYTES: usize = 32 << 10;
const CHANNEL_BYTES: u32 = 64 << 10;
const MESSAGE_BYTES: usize = 4 << 10;

fn main(arguments: &Arguments<'_>) {
    let Some(secret) = arguments.text(0).and_then(Secret::parse) else {
        Line::print(format_args!("no pattern of 32 hexadecimal digits"));
        exit(2)
    };
    let bytes = arguments.number(1, 1 << 20);

    let unused = untouched();
    secret.fill(unused);
    let mut written = unused.len() as u64 + on_stack(secret);

    let mut last: Option<&Page> = None;
    for page in grow(bytes) {
        secret.fill(page);
        written += PAGE_BYTES as u64;
        last = Some(page);
    }
    if let Some(page) = last {
        // Bytes that the objects refuse are not written: with a smaller lease there are fewer
        // places to hide them.
        written += into_regions(page, bytes);
        written += into_channel(&page[..MESSAGE_BYTES]).unwrap_or(0);
    }
    Line::print(format_args!("wrote {written}"));
    arguments.aftermath(2).enter();
}

#[inline(never)]
fn on_stack(secret: Secret) -> u64 {
    let mut stack = [0; STACK_BYTES];
    secret.fill(&mut stack);
    hint::black_box(&stack);
    STACK_BYTES as u64
}

/// Until one is refused.
fn into_regions(page: &Page, bytes: u64) -> u64 {
    let regions = bytes.div_ceil(PAGE_BYTES as u64);
    tally(regions, |_| {
        Region::create(PAGE_BYTES as u64)?.write(0, page)
    })
    .got * PAGE_BYTES as u64
}

fn into_channel(message: &[u8]) -> Result<u64, Errno> {
    let channel = Channel::create(CHANNEL_BYTES)?;
    let messages = u64::from(CHANNEL_BYTES) / message.len() as u64;
    Ok(tally(messages, |_| channel.try_send(message, &[])).got * message.len() as u64)
}
