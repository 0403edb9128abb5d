//! Taking the processor back from a guest: the one door behind which the mechanism hides.
//!
//! The executor sets a deadline ([`Preemption::set_timer`]), says which guest it is about to poll
//! ([`Preemption::enter`]), and polls. At the deadline, or when another thread asks for it
//! ([`Preemption::interrupter`]), the guest yields: its future returns `Pending`, ready to be
//! polled again. Host calls are not interrupted; the guest yields when the one it is in returns.

mod alarm;
mod epoch;
mod timer;

#[allow(unused_imports, reason = "part of the door")]
pub(crate) use alarm::{Interrupter, request};

use alarm::{Alarm, Tell};
use std::io;
use std::marker::PhantomData;
use std::str::FromStr;
use std::time::Duration;
use wasmtime::{Config, Engine, Store};

/// How long a guest runs before the executor looks at everything else.
pub const QUANTUM: Duration = Duration::from_millis(1);

/// How a guest that runs is made to yield.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Mechanism {
    /// Guests check a counter at every loop back edge and function entry.
    #[default]
    Epochs,
}

impl Mechanism {
    /// What the environment variable `LEASEHOLD_PREEMPT` names; the default if it names nothing
    /// that there is.
    pub fn from_environment() -> Self {
        let Ok(name) = std::env::var("LEASEHOLD_PREEMPT") else {
            return Self::default();
        };
        name.parse().unwrap_or_else(|error| {
            tracing::warn!("LEASEHOLD_PREEMPT: found {error}");
            Self::default()
        })
    }
}

impl FromStr for Mechanism {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "epochs" => Ok(Mechanism::Epochs),
            _ => Err(format!("\"{name}\"; allowed: epochs")),
        }
    }
}

/// Makes guests compiled under `config` preemptible.
pub(crate) fn configure(config: &mut Config, mechanism: Mechanism) {
    match mechanism {
        Mechanism::Epochs => epoch::configure(config),
    }
}

/// The preemption of one cell, on its thread.
#[derive(Debug)]
pub(crate) struct Preemption {
    alarm: Box<Alarm>,
    /// The alarm belongs to the thread that made it.
    not_send: PhantomData<*const ()>,
}

/// What the mechanism has to know of a guest.
#[derive(Debug)]
pub(crate) struct GuestContext {
    not_send: PhantomData<*const ()>,
}

/// Until it is dropped, the guest that was named runs on this thread.
#[derive(Debug)]
pub(crate) struct Entered<'a> {
    preemption: PhantomData<&'a Preemption>,
}

impl Preemption {
    /// Preemption for the calling thread, which must not have it already.
    ///
    /// # Errors
    /// When the system refuses a timer.
    pub(crate) fn new(engine: &Engine, mechanism: Mechanism) -> io::Result<Self> {
        let tell = match mechanism {
            Mechanism::Epochs => Tell::Epoch(engine.clone()),
        };
        Ok(Self {
            alarm: Alarm::new(tell)?,
            not_send: PhantomData,
        })
    }

    /// Makes the guest of `store` yield when the alarm is due. Before anything is instantiated in
    /// the store.
    ///
    /// # Errors
    /// The engine's.
    pub(crate) fn arm<T>(&self, store: &mut Store<T>) -> wasmtime::Result<GuestContext> {
        epoch::arm(store);
        Ok(GuestContext {
            not_send: PhantomData,
        })
    }

    /// Sets the alarm: the guest that runs at this time, ns of
    /// [`monotonic_ns`](crate::clock::monotonic_ns), yields; `None` switches it off. It fires
    /// once, and stays due until it is taken or set anew. Some nanoseconds, or a system call when
    /// the time is earlier than the one before.
    pub(crate) fn set_timer(&self, at_ns: Option<u64>) {
        self.alarm.set(at_ns);
    }

    /// Whether the alarm has come, or another thread has asked, since it was set or taken.
    #[allow(dead_code, reason = "part of the door")]
    pub(crate) fn fired(&self) -> bool {
        self.alarm.fired()
    }

    /// Like [`Preemption::fired`]; the alarm is not due afterwards, and not set.
    #[allow(dead_code, reason = "part of the door")]
    pub(crate) fn take_fired(&self) -> bool {
        self.alarm.take()
    }

    /// For other threads, and for host calls of the guest that runs: has it yield as soon as it
    /// can.
    #[allow(dead_code, reason = "part of the door")]
    pub(crate) fn interrupter(&self) -> Interrupter {
        self.alarm.interrupter().clone()
    }

    /// Says which guest is polled until the result is dropped.
    pub(crate) fn enter<'a>(&'a self, _guest: &'a GuestContext) -> Entered<'a> {
        Entered {
            preemption: PhantomData,
        }
    }
}
