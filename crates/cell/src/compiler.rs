//! The process that compiles the programs of a cell.

use crate::engine_config::engine_config;
use leasehold_confine::{ConfineError, Mode};
use leasehold_preempt::Mechanism;
use leasehold_wasm::compiler::{self, EngineKind};
use wasmtime::Engine;

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

    /// With what it knows the engines by whose guests are preempted so: code depends on nothing else of them.
    pub(crate) fn for_engines(&self, mechanism: Mechanism) -> (&compiler::Compiler, EngineKind) {
        (&self.0, kind(mechanism))
    }
}

const MECHANISMS: [Mechanism; 2] = [Mechanism::Injected, Mechanism::Epochs];

fn kind(mechanism: Mechanism) -> EngineKind {
    let nth = MECHANISMS.iter().position(|it| *it == mechanism);
    EngineKind(nth.map_or(u8::MAX, |nth| nth as u8))
}

fn engine(kind: EngineKind) -> anyhow::Result<Engine> {
    let mechanism = MECHANISMS.into_iter().find(|it| self::kind(*it) == kind);
    let mechanism = mechanism.ok_or_else(|| anyhow::anyhow!("no engine of this kind"))?;
    Engine::new(&engine_config(mechanism)).map_err(|error| anyhow::anyhow!("the engine: {error:#}"))
}
