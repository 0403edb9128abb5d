//! Hands capabilities to a service. `delegator N AFTERMATH`
//!
//! Sends a capability to its own semaphore through the channel endowed at selector 1, again and
//! again: every one is a link out of its group that must be charged.
#![no_std]
#![no_main]

use leasehold_guest::{Channel, Errno, Selector, Semaphore};
use leasehold_hostile::{Arguments, program, tally};

program!(main);

const SERVICE: Channel = Channel::from_selector(Selector::new(1));

fn main(arguments: &Arguments<'_>) {
    let semaphore = Semaphore::create(0).map(Semaphore::selector);
    tally(arguments.number(0, 0), |_| -> Result<(), Errno> {
        SERVICE.send(&[], &[semaphore?])
    })
    .print();
    arguments.aftermath(1).enter();
}
