//! What an embedder gives for a tenant, and may give up at any time.

use crate::command::StartRequest;
use crate::program::Program;
use crate::wasi::stdio::{Input, Output};
use std::sync::Arc;

/// References to what may be large and is shared with the embedder. If the embedder drops its own, the last of the
/// cell's frees it: so a cell keeps these until everything else of the tenant is gone, and has the thread that
/// closes files drop them ([`Reaper::drop_given`](crate::host::io::reaper::Reaper::drop_given)).
pub(crate) struct Given {
    /// Some milliseconds to unmap, if it is large.
    _program: Arc<Program>,
    /// As large as the embedder likes.
    _stdin: Input,
    /// As large as the capacity of what captures it.
    _outputs: [Output; 2],
}

impl Given {
    /// What `request` refers to. Counts references, and copies nothing.
    pub(crate) fn of(request: &StartRequest) -> Self {
        let surroundings = &request.surroundings;
        Self {
            _program: request.program.clone(),
            _stdin: surroundings.stdin.clone(),
            _outputs: [surroundings.stdout.clone(), surroundings.stderr.clone()],
        }
    }
}
