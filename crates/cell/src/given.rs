//! Objects that a tenant shares with its embedder, and that the embedder may drop at any time.

use crate::command::StartRequest;
use crate::program::Program;
use crate::wasi::stdio::{Input, Output};
use leasehold_exchange::Outlet;
use leasehold_keyvalue::Store;
use std::sync::Arc;

/// References to large objects that are shared with the embedder. If the embedder drops its own
/// reference, the cell's last one frees the object. A cell therefore keeps these references until
/// the rest of the tenant is gone, and the thread that closes files drops them
/// ([`Reaper::drop_given`](crate::host::io::reaper::Reaper::drop_given)).
pub(crate) struct Given {
    /// Some milliseconds to unmap, if it is large.
    program: Arc<Program>,
    /// As large as the embedder likes.
    _stdin: Input,
    /// Closing the file of a store writes to it.
    _keyvalue: Option<Arc<Store>>,
    /// Closing it drops the requests that wait in it.
    _outgoing: Option<Arc<Outlet>>,
    /// As large as the capacity of what captures it.
    _outputs: [Output; 2],
}

impl Given {
    /// The objects that `request` refers to. It counts references and copies nothing.
    pub(crate) fn of(request: &StartRequest) -> Self {
        let surroundings = &request.surroundings;
        Self {
            program: request.program.clone(),
            _stdin: surroundings.stdin.clone(),
            _keyvalue: surroundings.keyvalue.clone(),
            _outgoing: surroundings.outgoing.clone(),
            _outputs: [surroundings.stdout.clone(), surroundings.stderr.clone()],
        }
    }

    pub(crate) const fn program(&self) -> &Arc<Program> {
        &self.program
    }
}
