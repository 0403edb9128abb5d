//! The ways in which a guest that runs is made to yield.

use crate::layout::Compile;
use crate::{epoch, injected_yield, layout};
use std::str::FromStr;
use wasmtime::{Config, Module};

/// How a guest that runs is made to yield.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Mechanism {
    /// Guests are compiled without any checks; a signal makes them call the engine's yield.
    /// Requires x86-64 Linux and the known layout of the engine; otherwise epochs are used.
    #[default]
    Injected,
    /// Guests check a counter at every loop back edge and function entry, and where their programs were rewritten to: behind
    /// calls of the host, and once in some hundred instructions.
    Epochs,
}

impl Mechanism {
    /// Returns the mechanism that the environment variable `LEASEHOLD_PREEMPT` names, or the
    /// default if it names none.
    pub fn from_environment() -> Self {
        let Ok(name) = std::env::var("LEASEHOLD_PREEMPT") else {
            return Self::default();
        };
        name.parse().unwrap_or_else(|error| {
            tracing::warn!("LEASEHOLD_PREEMPT: found {error}");
            Self::default()
        })
    }

    /// This mechanism if it works here, otherwise epochs. Engines are as `config` says. Some milliseconds for the first
    /// call in a process.
    pub fn or_fallback(self, config: fn(Mechanism) -> Config) -> Self {
        self.or_fallback_with(config, &|engine, text| Module::new(engine, text))
    }

    /// The same with another way to come by a module of a function or two.
    pub fn or_fallback_with(self, config: fn(Mechanism) -> Config, compile: Compile<'_>) -> Self {
        if self == Mechanism::Injected
            && let Err(reason) = injected_yield::processor_supported()
                .and_then(|()| layout::verified(|| config(Mechanism::Epochs), compile))
        {
            tracing::warn!(
                reason,
                "guests are preempted by epochs, which slows some of them down; the frames of their stacks count as a step, so \
                 that bounds are longer"
            );
            return Mechanism::Epochs;
        }
        self
    }
}

impl Mechanism {
    /// Its name on the command line and in profiles.
    pub const fn name(self) -> &'static str {
        match self {
            Mechanism::Injected => "injected",
            Mechanism::Epochs => "epochs",
        }
    }
}

impl FromStr for Mechanism {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "injected" => Ok(Mechanism::Injected),
            "epochs" => Ok(Mechanism::Epochs),
            _ => Err(format!("\"{name}\"; allowed: injected, epochs")),
        }
    }
}

/// Makes guests compiled under `config` preemptible.
pub fn configure(config: &mut Config, mechanism: Mechanism) {
    match mechanism {
        Mechanism::Injected => {}
        Mechanism::Epochs => epoch::configure(config),
    }
}
