//! Tasks that hand the processor round for ever. `relay [TASKS]`
//!
//! Each of TASKS (3 unless told, 8 at most) raises the semaphore of the next and waits for its own:
//! so one of them is always ready, and none runs for long before it waits.
#![no_std]
#![no_main]

use leasehold_guest::{Errno, Selector, Semaphore, Task};
use leasehold_hostile::{Aftermath, Arguments, decimal, exit, program};

program!(main);

/// The argument of a task, before the selectors of its own semaphore and of the next one's.
const RUNNER: &str = "runner";
const MOST: usize = 8;

fn main(arguments: &Arguments<'_>) {
    if arguments.text(0) == Some(RUNNER) {
        let semaphore =
            |at| Semaphore::from_selector(Selector::new(arguments.number(at, 0) as u32));
        let (own, next) = (semaphore(1), semaphore(2));
        loop {
            if let Err(errno) = next.up(1).and_then(|()| own.down()) {
                exit(errno as u32);
            }
        }
    }
    let runners = (arguments.number(0, 3) as usize).clamp(1, MOST);
    if let Err(errno) = start(runners) {
        exit(errno as u32);
    }
    Aftermath::Sleep.enter();
}

fn start(runners: usize) -> Result<(), Errno> {
    let mut semaphores = [Semaphore::create(0)?; MOST];
    for semaphore in &mut semaphores[1..runners] {
        *semaphore = Semaphore::create(0)?;
    }
    let selector = |at: usize| semaphores[at % runners].selector().number();
    for at in 0..runners {
        Task::start(&[
            RUNNER,
            decimal(selector(at), &mut [0; 20]),
            decimal(selector(at + 1), &mut [0; 20]),
        ])?;
    }
    Ok(())
}
