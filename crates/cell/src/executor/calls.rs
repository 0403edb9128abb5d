//! Calls of exported functions, on their way from the controller to the tenants that answer them.

use super::Executor;
use crate::calls::{Call, CallError, Calls, refuse, with_waiting};
use crate::programs;

impl Executor {
    /// Has a tenant answer a call, after those that wait.
    pub(super) fn call(&mut self, key: u64, call: Box<Call>) {
        let is_own = self.alive(key).is_some_and(|tenant| {
            programs::with(|programs| {
                let template = programs.templates.get(&tenant);
                template.is_some_and(|template| call.is_of(&template.program))
            })
        });
        let (refused, why) = match (is_own, self.answering(key)) {
            (_, None) => (call, CallError::Ended),
            (false, Some(_)) => (call, CallError::OtherProgram),
            (true, Some(program)) => match push(program, call) {
                Ok(is_awaited) => {
                    if is_awaited {
                        self.go(key);
                    }
                    return;
                }
                Err(refused) => refused,
            },
        };
        refuse(refused, why);
    }

    /// A tenant will have no more calls.
    pub(super) fn finish_calls(&mut self, key: u64) {
        if let Some(program) = self.answering(key) {
            let calls = with_waiting(|calls| calls.get_mut(&program).map(Calls::finish));
            if calls == Some(true) {
                self.go(key);
            }
        }
    }

    /// The execution of a tenant that answers calls.
    fn answering(&self, key: u64) -> Option<u64> {
        self.alive(key)?;
        let program = self.roots.get(&key)?.controlled.as_ref()?.program;
        with_waiting(|calls| calls.contains_key(&program)).then_some(program)
    }
}

/// Adds a call to those of an execution; returns whether that waits for one.
fn push(execution: u64, call: Box<Call>) -> Result<bool, (Box<Call>, CallError)> {
    with_waiting(|calls| match calls.get_mut(&execution) {
        Some(calls) => calls.push(call),
        None => Err((call, CallError::Ended)),
    })
}
