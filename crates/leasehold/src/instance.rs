//! A plug-in that runs: its exported functions are called.

use crate::error::Error;
use crate::tenant::{Outcome, Tenant};
use crate::value::{Arguments, Results};
use leasehold_cell::{ExportedFunction, PendingCall, Program, Val as Value};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A plug-in that answers calls, one after the other, in its own part of the processor.
#[allow(missing_debug_implementations)]
pub struct Instance {
    program: Arc<Program>,
    tenant: Tenant,
    /// Functions that were called before.
    known: Mutex<HashMap<String, ExportedFunction>>,
}

/// Results that a call will have. Dropping this leaves the call to be made.
#[derive(Debug)]
pub struct PendingResults {
    function: ExportedFunction,
    call: PendingCall,
}

impl PendingResults {
    /// Waits for them.
    ///
    /// # Errors
    /// When the tenant ended before it had them, or they are not of this type: they are lost then.
    pub fn wait<R: Results>(self) -> Result<R, Error> {
        let values = self.call.wait()?;
        typed(&self.function, values)
    }

    /// Waits for at most `timeout`; `None` if there are none yet. They are told once.
    ///
    /// # Errors
    /// When the tenant ended before it had them, they were told before, or they are not of this type: they are
    /// lost then.
    pub fn wait_for<R: Results>(&self, timeout: Duration) -> Result<Option<R>, Error> {
        let values = self.call.wait_for(timeout)?;
        values
            .map(|values| typed(&self.function, values))
            .transpose()
    }
}

fn typed<R: Results>(function: &ExportedFunction, values: Vec<Value>) -> Result<R, Error> {
    R::from_values(values).ok_or_else(|| other_results::<R>(function))
}

fn other_results<R>(function: &ExportedFunction) -> Error {
    Error::Results {
        function: function.name().to_owned(),
        asked: std::any::type_name::<R>(),
    }
}

impl Instance {
    pub(crate) fn new(program: Arc<Program>, tenant: Tenant) -> Self {
        Self {
            program,
            tenant,
            known: Mutex::default(),
        }
    }

    /// Calls a function and waits for its results: as long as it takes. [`Instance::begin_call`] does not wait.
    ///
    /// A call that traps, exits, or needs what the lease does not pay for, ends the tenant: what it left in its memory
    /// is not to be trusted.
    ///
    /// # Errors
    /// [`Error::Function`], [`Error::Call`], and [`Error::Results`] if the function returns something else than
    /// `R`: the call was not made then.
    pub fn call<R: Results>(&self, function: &str, arguments: impl Arguments) -> Result<R, Error> {
        let found = self.function(function)?;
        if !R::fits(found.results()) {
            return Err(other_results::<R>(&found));
        }
        self.begin_call(function, arguments)?.wait()
    }

    /// Calls a function, after the calls that were begun before.
    ///
    /// # Errors
    /// [`Error::Function`], [`Error::Call`].
    pub fn begin_call(
        &self,
        function: &str,
        arguments: impl Arguments,
    ) -> Result<PendingResults, Error> {
        let function = self.function(function)?;
        let call = self
            .tenant
            .handle()
            .call(&function, arguments.into_values())?;
        Ok(PendingResults { function, call })
    }

    /// The same with arguments as text: `name(1, "two", {three: some(3)})`. What it returns is to be had as
    /// [text](crate::wave::results), too.
    ///
    /// # Errors
    /// [`Error::Text`], [`Error::Function`], [`Error::Call`].
    pub fn begin_call_of_text(&self, text: &str) -> Result<PendingResults, Error> {
        let call = crate::wave::Call::parse(text)?;
        let arguments = call.arguments(&self.function(call.function())?)?;
        self.begin_call(call.function(), arguments)
    }

    fn function(&self, name: &str) -> Result<ExportedFunction, Error> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(function) = known.get(name) {
            return Ok(function.clone());
        }
        let function = ExportedFunction::find(&self.program, name)?;
        known.insert(name.to_owned(), function.clone());
        Ok(function)
    }

    /// The tenant: to kill it, and to see what it is charged and gets.
    pub fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    /// Ends it when the calls that were begun are answered, and waits for that.
    ///
    /// # Errors
    /// When the host was dropped first.
    pub fn finish(self) -> Result<Outcome, Error> {
        self.tenant.handle().finish();
        self.tenant.wait()
    }

    /// Waits until it has ended, by a call or a kill.
    ///
    /// # Errors
    /// When the host was dropped first.
    pub fn wait(self) -> Result<Outcome, Error> {
        self.tenant.wait()
    }
}
