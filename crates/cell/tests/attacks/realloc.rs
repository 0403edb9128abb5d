//! Components whose `cabi_realloc`, which the host calls while a host call returns, is slow or
//! never returns. A kill takes effect at any instant; for each function that calls it, the tests of `leasehold-attack`
//! (`stuck`) show that.

use super::common::{cell, lease, read_only};
use leasehold_cell::{
    Cell, Exit, Input, Output, Program, StartRequest, Surroundings, TenantHandle,
};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

fn start(cell: &Cell, program: Arc<Program>) -> TenantHandle {
    let request = StartRequest {
        program,
        lease: lease(50_000, 16 << 10),
        surroundings: Surroundings {
            args: Vec::from_iter((0..20).map(|n| format!("argument-{n}"))),
            env: Vec::from_iter((0..20).map(|n| (format!("NAME_{n}"), format!("value-{n}")))),
            dirs: vec![read_only(Path::new(env!("CARGO_MANIFEST_DIR")))],
            stdin: Input::Empty,
            stdout: Output::Discard,
            ..Surroundings::default()
        },
    };
    cell.start_tenant(request).expect("a tenant starts")
}

/// Kills it, and fails if that has no effect.
fn kill(tenant: &TenantHandle, what: &str) {
    tenant.kill();
    let ended = tenant.wait_for(Duration::from_secs(60));
    let ended = ended.expect("the cell is there");
    let ended = ended.unwrap_or_else(|| panic!("{what}: a kill was lost"));
    // The lease may have ended it before: of descriptors there are as many as it pays for.
    assert!(
        matches!(ended.exit, Exit::Killed | Exit::Lease(_)),
        "{what}: {:?}",
        ended.exit
    );
}

#[test]
fn the_attacks_that_never_return_from_realloc_are_killed() {
    let cell = cell();
    for attack in ["realloc-loop.wat", "region-read-loop.wat"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guests/attacks");
        let program = cell.load(&path.join(attack)).expect("it loads");
        for _ in 0..20 {
            let tenant = start(&cell, program.clone());
            std::thread::sleep(Duration::from_millis(5));
            kill(&tenant, attack);
        }
    }
}
