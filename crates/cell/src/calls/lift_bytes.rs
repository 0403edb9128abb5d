//! How many bytes the engine lifts at a time for a program that is called.

use wasmtime::CallHook;

/// The values that the engine lifts for the host calls of a program that is called, and for the
/// results of its functions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LiftBytes {
    /// Bytes of a host call.
    call: usize,
    /// Bytes of the results of the function that is called.
    pub(super) results: usize,
    /// How many calls of the guest are under way, one within the other.
    depth: u32,
}

impl LiftBytes {
    pub(crate) fn new(call_bytes: u64) -> Self {
        let call = usize::try_from(call_bytes).unwrap_or(usize::MAX);
        Self {
            call,
            results: call,
            depth: 0,
        }
    }

    /// Tracks transitions between guest and host, and returns the new limit of lifted bytes, if it
    /// changes.
    pub(super) fn after(&mut self, what: CallHook) -> Option<usize> {
        match what {
            CallHook::CallingWasm => {
                self.depth += 1;
                (self.depth == 1).then_some(self.call)
            }
            CallHook::ReturningFromWasm => {
                self.depth = self.depth.saturating_sub(1);
                (self.depth == 0).then_some(self.results)
            }
            CallHook::CallingHost | CallHook::ReturningFromHost => None,
        }
    }
}
