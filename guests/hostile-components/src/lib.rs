//! Common parts of the hostile components: the arguments, the count, and the aftermath, with the
//! same meaning as in the hostile core modules. They are ordinary programs with `std`, since no
//! component has only a few kilobytes.

use std::fmt::Display;
use std::hint;
use std::thread;
use std::time::Duration;

/// The decimal number that `argument` is, or 0: as many as there are.
#[must_use]
pub fn count(argument: Option<String>) -> u64 {
    argument.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Does `attempt` `limit` times, or until the first refusal if that comes earlier or `limit` is
/// 0, and prints `got N`, followed by ` refused REASON` if it was refused.
pub fn tally<E: Display>(limit: u64, mut attempt: impl FnMut(u64) -> Result<(), E>) {
    let mut got = 0;
    while limit == 0 || got < limit {
        if let Err(reason) = attempt(got) {
            println!("got {got} refused {reason}");
            return;
        }
        got += 1;
    }
    println!("got {got}");
}

/// Prints `ready`, then spins or sleeps without end, or returns.
pub fn aftermath(argument: Option<String>) {
    println!("ready");
    match argument.as_deref() {
        Some("spin") => loop {
            hint::spin_loop();
        },
        Some("sleep") => sleep(),
        _ => {}
    }
}

/// Sleeps without end and prints nothing. Tasks and children of a program do this.
pub fn sleep() -> ! {
    loop {
        thread::sleep(Duration::from_secs(3600));
    }
}
