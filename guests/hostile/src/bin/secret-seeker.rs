//! Looks for data that other tenants left behind. `secret-seeker PATTERN BYTES AFTERMATH`
//!
//! Reads without writing, before anything else: its own stack and data, where the 16 bytes of
//! PATTERN must not occur; then memory that must be zero: the unused part of its own, BYTES bytes
//! (1 MiB unless told) that it adds, fresh regions of as many in all, and the rest of a larger
//! buffer after a short message through a fresh channel. Prints `looked N` and `found N`, in bytes:
//! those of every occurrence of the pattern, and every other that is not zero.
#![no_std]
#![no_main]

use leasehold_guest::{Channel, Errno, Region, Selector};
use leasehold_hostile::{Arguments, Line, PAGE_BYTES, Secret, exit, grow, own, program, untouched};

program!(main);

const BUFFER_BYTES: usize = 4096;
const CHANNEL_BYTES: u32 = 64 << 10;

fn main(arguments: &Arguments<'_>) {
    let Some(secret) = arguments.text(0).and_then(Secret::parse) else {
        Line::print(format_args!("no pattern of 32 hexadecimal digits"));
        exit(2)
    };
    let bytes = arguments.number(1, 1 << 20);

    let (occurrences, looked) = secret.count(own());
    let mut search = Search {
        looked,
        found: occurrences * Secret::BYTES as u64,
    };
    search.expect_zeros(untouched());
    for page in grow(bytes) {
        search.expect_zeros(page);
    }
    // Where the lease allows no object, there is nothing to search.
    let _ = search.regions(bytes);
    let _ = search.channel();
    Line::print(format_args!("looked {}", search.looked));
    Line::print(format_args!("found {}", search.found));
    arguments.aftermath(2).enter();
}

struct Search {
    looked: u64,
    found: u64,
}

impl Search {
    fn expect_zeros(&mut self, bytes: &[u8]) {
        self.looked += bytes.len() as u64;
        // Words first: a study does this 100,000 times.
        for chunk in bytes.chunks(64) {
            if chunk.iter().fold(0, |any, byte| any | byte) != 0 {
                self.found += chunk.iter().filter(|&&byte| byte != 0).count() as u64;
            }
        }
    }

    fn regions(&mut self, bytes: u64) -> Result<(), Errno> {
        for _ in 0..bytes.div_ceil(PAGE_BYTES as u64) {
            let region = Region::create(PAGE_BYTES as u64)?;
            // Not zeros, so that a read without effect is not taken for a fresh region.
            let mut buffer = [0xa5; BUFFER_BYTES];
            for offset in (0..PAGE_BYTES as u64).step_by(BUFFER_BYTES) {
                region.read(offset, &mut buffer)?;
                self.expect_zeros(&buffer);
            }
        }
        Ok(())
    }

    fn channel(&mut self) -> Result<(), Errno> {
        let channel = Channel::create(CHANNEL_BYTES)?;
        let mut buffer = [0; BUFFER_BYTES];
        let mut capabilities = [Selector::SELF; 4];
        // A channel that is not fresh might already hold something.
        while let Ok(message) = channel.try_receive(&mut buffer, &mut capabilities) {
            self.found += u64::from(message.length);
        }
        channel.send(&[0], &[])?;
        channel.receive(&mut buffer, &mut capabilities)?;
        self.expect_zeros(&buffer);
        Ok(())
    }
}
