//! The process that compiles the programs of a cell.

use crate::engine_config::engine_config;
use leasehold_confine::{ConfineError, Mode};
use leasehold_preempt::Mechanism;
use leasehold_wasm::compiler::{self, EngineKind};
use wasmtime::{Engine, OptLevel};

/// The process that compiles the programs of cells: for each a new one, which takes a bounded time and memory
/// ([`LIMITS`](leasehold_wasm::compiler::LIMITS)) and may reach nothing.
#[derive(Debug)]
pub struct Compiler(compiler::Compiler);

impl Compiler {
    /// Starts it, confined as `mode` says. The calling process must have one thread: no cell has been started, and it is
    /// not confined yet.
    ///
    /// # Errors
    /// When the process has other threads, or the system refuses a step.
    pub fn start(mode: Mode) -> Result<Self, ConfineError> {
        compiler::Compiler::start(mode, engine).map(Self)
    }

    /// With what it knows the [engine for outlines](outline_engine) by.
    pub(crate) fn for_outlines(&self) -> (&compiler::Compiler, EngineKind) {
        (&self.0, OUTLINES)
    }

    /// With what it knows the engines by whose guests are preempted so: code depends on nothing else of them.
    pub(crate) fn for_engines(&self, mechanism: Mechanism) -> (&compiler::Compiler, EngineKind) {
        (&self.0, kind(mechanism))
    }
}

/// An engine for programs that are only looked at, which compiles quickly.
const OUTLINES: EngineKind = EngineKind(MECHANISMS.len() as u8);

const MECHANISMS: [Mechanism; 2] = [Mechanism::Injected, Mechanism::Epochs];

fn kind(mechanism: Mechanism) -> EngineKind {
    let nth = MECHANISMS.iter().position(|it| *it == mechanism);
    EngineKind(nth.map_or(u8::MAX, |nth| nth as u8))
}

/// The engine for programs that are only looked at.
///
/// # Errors
/// The engine's.
pub(crate) fn outline_engine() -> wasmtime::Result<Engine> {
    let mut config = engine_config(Mechanism::Epochs);
    config.cranelift_opt_level(OptLevel::None);
    // A process that has not started the one that compiles has one thread.
    config.parallel_compilation(false);
    Engine::new(&config)
}

fn engine(kind: EngineKind) -> anyhow::Result<Engine> {
    let failed = |error| anyhow::anyhow!("the engine: {error:#}");
    if kind == OUTLINES {
        return outline_engine().map_err(failed);
    }
    let mechanism = MECHANISMS.into_iter().find(|it| self::kind(*it) == kind);
    let mechanism = mechanism.ok_or_else(|| anyhow::anyhow!("no engine of this kind"))?;
    Engine::new(&engine_config(mechanism)).map_err(failed)
}
