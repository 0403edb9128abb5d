//! The actions of a hostile guest once its damage is done.

use core::hint;

use crate::Line;
use crate::wasi;

/// The actions of a hostile guest once its damage is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aftermath {
    /// Loops without end, without a call.
    Spin,
    /// Sleeps without end.
    Sleep,
    /// Exits with 0.
    Exit,
}

impl Aftermath {
    /// Prints `ready`, then does it. For the program that the host started. The host does not wait
    /// for its tasks and children, which take [`quietly`](Self::quietly).
    pub fn enter(self) {
        Line::print(format_args!("ready"));
        self.quietly();
    }

    /// Does it.
    pub fn quietly(self) {
        match self {
            Aftermath::Spin => spin(),
            Aftermath::Sleep => sleep(),
            Aftermath::Exit => {}
        }
    }
}

fn spin() -> ! {
    loop {
        hint::spin_loop();
    }
}

fn sleep() -> ! {
    const HOUR_NS: u64 = 3_600_000_000_000;
    loop {
        wasi::nap(HOUR_NS);
    }
}
