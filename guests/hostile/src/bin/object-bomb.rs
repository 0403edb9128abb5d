//! Makes kernel objects of one class. `object-bomb CLASS N AFTERMATH [SIZE] [MEMORY]`
//!
//! CLASS is `semaphore`, `channel` (SIZE: capacity in bytes), `region` (SIZE: bytes), `timer`,
//! `task`, `capability` (to one semaphore) or `tenant` (SIZE: reclamation budget in nanoseconds,
//! MEMORY: bytes; not started).
#![no_std]
#![no_main]

use leasehold_guest::{Channel, Errno, Region, Rights, Semaphore, Task, Tenant, Timer};
use leasehold_hostile::{Aftermath, Arguments, Line, exit, program, tally};

program!(main);

/// The argument of the bomb's tasks: to sleep.
const LEAF: &str = "leaf";

fn main(arguments: &Arguments<'_>) {
    let limit = arguments.number(1, 0);
    let size = |default| arguments.number(3, default);
    let bombed = match arguments.text(0).unwrap_or("semaphore") {
        "semaphore" => tally(limit, |_| Semaphore::create(0).map(drop)),
        "channel" => tally(limit, |_| Channel::create(size(64) as u32).map(drop)),
        "region" => tally(limit, |_| Region::create(size(4096)).map(drop)),
        "timer" => tally(limit, |_| Timer::create().map(drop)),
        "task" => tally(limit, |_| Task::start(&[LEAF]).map(drop)),
        "capability" => tally(limit, derive()),
        "tenant" => {
            let memory = arguments.number(4, 1 << 20);
            tally(limit, |_| Tenant::create(size(1_000_000), memory).map(drop))
        }
        LEAF => return Aftermath::Sleep.quietly(),
        other => {
            Line::print(format_args!("no class {other}"));
            exit(2)
        }
    };
    bombed.print();
    arguments.aftermath(2).enter();
}

/// Derives capabilities to a semaphore, or refuses as the semaphore was.
fn derive() -> impl FnMut(u64) -> Result<(), Errno> {
    let semaphore = Semaphore::create(0);
    move |_| semaphore?.selector().derive(Rights::ALL).map(drop)
}
