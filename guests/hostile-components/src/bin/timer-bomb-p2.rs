//! Makes pollables of timers far in the future, and keeps them. `timer-bomb-p2 N AFTERMATH`
//!
//! WASI has no refusal for this: a host that gives no more ends the program with a trap.

use std::convert::Infallible;
use std::{env, mem};

use leasehold_hostile_components::{aftermath, count, tally};
use wasip2::clocks::monotonic_clock::subscribe_duration;

/// Eleven days and a half: none of them fires during a test.
const FAR_NS: u64 = 1_000_000_000_000_000;

fn main() {
    let mut arguments = env::args().skip(1);
    tally(
        count(arguments.next()),
        |before| -> Result<(), Infallible> {
            mem::forget(subscribe_duration(FAR_NS + before));
            Ok(())
        },
    );
    aftermath(arguments.next());
}
