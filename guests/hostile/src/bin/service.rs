//! Takes capabilities from foreign tenants. `service keep|wait`
//!
//! Prints `ready`, then receives from the channel endowed at selector 1 until refused, and prints
//! how many capabilities it got. It keeps them; told to `wait`, it also starts a task for each
//! that waits on the semaphore and exits with the error that ends the wait, or 0.
#![no_std]
#![no_main]

use leasehold_guest::{Channel, Errno, Selector, Semaphore, Task};
use leasehold_hostile::{Aftermath, Arguments, Line, Tally, decimal, exit, program};

program!(main);

const CLIENTS: Channel = Channel::from_selector(Selector::new(1));

fn main(arguments: &Arguments<'_>) {
    match arguments.text(0) {
        Some("waiter") => wait(Selector::new(arguments.number(1, 0) as u32)),
        mode => serve(mode == Some("wait")),
    }
}

fn serve(wait: bool) {
    Aftermath::Exit.enter();
    let (mut got, mut waiting) = (0, 0);
    let mut bytes = [0; 256];
    let mut capabilities = [Selector::SELF; 16];
    let refused = loop {
        let message = match CLIENTS.receive(&mut bytes, &mut capabilities) {
            Ok(message) => message,
            Err(errno) => break errno,
        };
        for capability in &capabilities[..message.capabilities as usize] {
            got += 1;
            // A wait that the service's own lease does not cover is left out.
            waiting += u64::from(wait && start_waiter(*capability).is_ok());
        }
    };
    Tally {
        got,
        refused: Some(refused),
    }
    .print();
    Line::print(format_args!("waiting {waiting}"));
}

fn start_waiter(semaphore: Selector) -> Result<Task, Errno> {
    Task::start(&[
        "service",
        "waiter",
        decimal(semaphore.number(), &mut [0; 20]),
    ])
}

fn wait(semaphore: Selector) -> ! {
    match Semaphore::from_selector(semaphore).down() {
        Ok(()) => exit(0),
        Err(errno) => exit(errno as u32),
    }
}
