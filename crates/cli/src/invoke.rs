//! `leasehold run --invoke`: one call of an exported function, as text.

use crate::exit::Failure;
use leasehold::wave::{self, Call};
use leasehold_cell::program::Code;
use leasehold_cell::{CallError, ExportedFunction, PendingCall, Program, TenantHandle, Val};
use std::sync::Arc;

/// A call that a program can answer.
pub(crate) struct Invocation {
    function: ExportedFunction,
    arguments: Vec<Val>,
}

impl Invocation {
    /// The call that `text` says: `f(1, "x")`; or only `f`, the arguments of which are those of the command.
    ///
    /// # Errors
    /// When the program has no such function, or it does not take the arguments.
    pub(crate) fn of(text: &str, program: &Arc<Program>, args: &[String]) -> Result<Self, Failure> {
        let refused = |error: leasehold::Error| Failure::Usage(format!("--invoke: {error}"));
        let mut call = Call::parse(text).map_err(refused)?;
        if !call.has_arguments() {
            call = Call::of_words(call.function(), args).map_err(refused)?;
        }
        let function = ExportedFunction::find(program, call.function())
            .map_err(|error| refused(error.into()))?;
        let arguments = call.arguments(&function).map_err(refused)?;
        Ok(Self {
            function,
            arguments,
        })
    }

    /// Has the tenant answer it.
    ///
    /// # Errors
    /// When the function does not take the arguments, or the lease does not allow them.
    pub(crate) fn begin(self, tenant: &TenantHandle) -> Result<PendingCall, Failure> {
        let call = tenant.call(&self.function, self.arguments);
        call.map_err(|error| {
            let text = format!("--invoke: {error}");
            match error {
                CallError::Arguments { .. } => Failure::Usage(text),
                _ => Failure::Refused(text),
            }
        })
    }
}

/// Results as they are printed: of a component as text, of a core module a number a line.
pub(crate) fn text(program: &Program, results: &[Val]) -> Result<String, Failure> {
    let failed = |error: leasehold::Error| Failure::Program(error.to_string());
    match program.code() {
        Code::Component(_) => Ok(wave::results(results).map_err(failed)? + "\n"),
        Code::Module(_) => {
            let mut lines = String::new();
            for number in results {
                let number = match number {
                    // As `wasmtime run` prints them; the text of components writes `nan`.
                    Val::Float32(float) => float.to_string(),
                    Val::Float64(float) => float.to_string(),
                    number => wave::text(number).map_err(failed)?,
                };
                lines += &number;
                lines.push('\n');
            }
            Ok(lines)
        }
    }
}
