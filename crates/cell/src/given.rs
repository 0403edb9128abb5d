//! Objects that a tenant shares with its embedder, and that the embedder may drop at any time.

use crate::built::Built;
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

    /// What the program was built to, which others may run as well.
    pub(crate) fn built(&self) -> &Arc<Built> {
        self.program.built()
    }
}

#[cfg(test)]
mod tests {
    use crate::cell::Cell;
    use crate::command::StartRequest;
    use crate::config::CellConfig;
    use crate::profile::Profile;
    use crate::surroundings::Surroundings;
    use leasehold_lease::Lease;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    #[test]
    fn what_a_program_was_built_to_is_let_go_with_its_last_tenant() {
        let cell = Cell::start(CellConfig::new(Profile::free())).expect("a cell");
        let text = r#"(module (memory (export "memory") 1) (func (export "_start")))"#;
        let program = cell.compile(text.as_bytes()).expect("it compiles");
        let built = Arc::downgrade(program.built());
        for _ in 0..2 {
            let request = StartRequest {
                program: program.clone(),
                lease: Lease::default(),
                surroundings: Surroundings::default(),
            };
            let tenant = cell.start_tenant(request).expect("a tenant starts");
            tenant.wait().expect("the cell is there");
        }
        drop(program);
        let until = Instant::now() + Duration::from_secs(10);
        while built.strong_count() > 0 {
            assert!(Instant::now() < until, "it is held");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
