//! Starts tasks that block for good. `blocker N AFTERMATH [endowed]`
//!
//! Every task waits on one semaphore: the program's own, or the one endowed at selector 1, which
//! makes each wait a link out of the group. Prints how many tasks started, then how many of them
//! came to wait.
#![no_std]
#![no_main]

use leasehold_guest::{Errno, Selector, Semaphore, Task};
use leasehold_hostile::{Arguments, Line, decimal, exit, gather, program, tally};

program!(main);

/// The argument of a task, before the selectors of the two semaphores.
const WAITER: &str = "waiter";
const ENDOWED: Semaphore = Semaphore::from_selector(Selector::new(1));

fn main(arguments: &Arguments<'_>) {
    if arguments.text(0) == Some(WAITER) {
        let semaphore =
            |at| Semaphore::from_selector(Selector::new(arguments.number(at, 0) as u32));
        match semaphore(1).up(1).and_then(|()| semaphore(2).down()) {
            Ok(()) => exit(0),
            Err(errno) => exit(errno as u32),
        }
    }
    let arrived = Semaphore::create(0);
    let blocking = match arguments.text(2) {
        Some("endowed") => Ok(ENDOWED),
        _ => Semaphore::create(0),
    };
    let started = tally(arguments.number(0, 0), |_| start(arrived?, blocking?));
    started.print();
    let waiting = arrived.map_or(0, |arrived| gather(arrived, started.got));
    Line::print(format_args!("waiting {waiting}"));
    arguments.aftermath(1).enter();
}

fn start(arrived: Semaphore, blocking: Semaphore) -> Result<Task, Errno> {
    Task::start(&[
        WAITER,
        decimal(arrived.selector().number(), &mut [0; 20]),
        decimal(blocking.selector().number(), &mut [0; 20]),
    ])
}
