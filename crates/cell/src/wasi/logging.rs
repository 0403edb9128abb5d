//! `wasi:logging/logging`, with its version and without: lines in the tenant's standard error
//! ([`super::log`]).

use super::bindings::{logging, unversioned_logging};
use super::view::Wasi;
use crate::steps::{mark, step};
use wasmtime::Result;

impl logging::Host for Wasi<'_> {
    fn log(&mut self, level: logging::Level, context: String, message: String) -> Result<()> {
        use logging::Level;
        mark(step!("wasi:logging/logging", "log"));
        let level = match level {
            Level::Trace => "TRACE",
            Level::Debug => "DEBUG",
            Level::Info => "INFO",
            Level::Warn => "WARN",
            Level::Error => "ERROR",
            Level::Critical => "CRITICAL",
        };
        self.0.imports.log.put(level, &context, &message);
        Ok(())
    }
}

impl unversioned_logging::Host for Wasi<'_> {
    fn log(
        &mut self,
        level: unversioned_logging::Level,
        context: String,
        message: String,
    ) -> Result<()> {
        use unversioned_logging::Level;
        let level = match level {
            Level::Trace => logging::Level::Trace,
            Level::Debug => logging::Level::Debug,
            Level::Info => logging::Level::Info,
            Level::Warn => logging::Level::Warn,
            Level::Error => logging::Level::Error,
            Level::Critical => logging::Level::Critical,
        };
        logging::Host::log(self, level, context, message)
    }
}
