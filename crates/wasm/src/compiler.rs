//! A process that compiles: for each program a new one.
//!
//! To compile takes memory and time that depend on the program, and its author may know shapes that the
//! [limits](crate::load_limits) do not. In a process of its own a program takes what [`LIMITS`] say at most, and a
//! defect of the compiler ends no tenant. That process changes its own mappings and not those of the process whose tenants
//! run, for which the kernel has a lock.

mod job;
mod object;

use std::path::Path;

use leasehold_confine::{ConfineError, ForkServer, Limits, Mode, Packet};
use leasehold_lease::RegularFile;
use wasmtime::Engine;

use crate::code::Purpose;
use crate::error::ProgramError;
use crate::limits::MAX_PROGRAM_BYTES;
pub(crate) use object::Object;

/// What the process of a program may take. The dearest programs within the limits of loading that are known take a sixth of
/// the memory and half of the time.
pub const LIMITS: Limits = Limits {
    memory: 4 << 30,
    processor: 1_200,
};

/// What a compiler knows an engine by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineKind(pub u8);

/// How much of a program is compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    Whole,
    /// [What is known of it](crate::compiled::Compiled::outline) without its function bodies.
    Outline,
}

impl Extent {
    const ALL: [Self; 2] = [Self::Whole, Self::Outline];
}

/// The process that makes those which compile.
#[derive(Debug)]
pub struct Compiler(ForkServer);

impl Compiler {
    /// Starts it, confined as `mode` says. The calling process has one thread: it is not confined yet itself, and runs no
    /// programs. `engine` makes an engine of a kind in a process that compiles.
    ///
    /// # Errors
    /// When the process has other threads, or the system refuses a step.
    pub fn start(
        mode: Mode,
        engine: fn(EngineKind) -> anyhow::Result<Engine>,
    ) -> Result<Self, ConfineError> {
        ForkServer::start(mode, LIMITS, move |request| job::run(request, engine)).map(Self)
    }

    /// Checks and compiles the program in a file, to this extent.
    ///
    /// # Errors
    /// `Read`, `TooLarge`; [`Elsewhere`](ProgramError::Elsewhere) for every other error in the program; and
    /// [`Compiler`](ProgramError::Compiler).
    pub(crate) fn compile(
        &self,
        extent: Extent,
        purpose: Purpose,
        engine: EngineKind,
        path: &Path,
    ) -> Result<Object, ProgramError> {
        let unreadable = |error| ProgramError::unreadable(path, error);
        let program = RegularFile::open(path).map_err(unreadable)?;
        let found = program.metadata().len();
        if found > MAX_PROGRAM_BYTES {
            return Err(ProgramError::TooLarge { found });
        }
        let request = Packet {
            bytes: vec![extent as u8, purpose.to_byte(), engine.0],
            file: Some(program.into_file().into()),
        };
        let result = self.0.run(&request).map_err(ProgramError::Compiler)?;
        job::outcome(result)
    }
}
