//! Everything goes back to the host. A file of its own, because it looks at the whole process.

mod common;

use common::{cell, guest, lease};
use leasehold_cell::{Cell, StartRequest, Surroundings};

/// Resident bytes, mappings and descriptors of this process.
fn footprint() -> (u64, usize, usize) {
    let status = std::fs::read_to_string("/proc/self/status").expect("status");
    let resident = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok())
        .expect("resident set");
    let mappings = std::fs::read_to_string("/proc/self/maps")
        .expect("maps")
        .lines()
        .count();
    let descriptors = std::fs::read_dir("/proc/self/fd")
        .expect("descriptors")
        .count();
    (resident * 1024, mappings, descriptors)
}

fn churn(cell: &Cell, tenants: usize) {
    let lease = lease(1_000_000, 64 << 10);
    let program = cell.load(&guest("object-bomb.wasm")).expect("loads");
    for n in 0..tenants {
        let tenant = cell
            .start_tenant(StartRequest {
                program: program.clone(),
                lease,
                surroundings: Surroundings {
                    args: ["object-bomb", "timer", "20", "exit"]
                        .map(str::to_owned)
                        .to_vec(),
                    ..Surroundings::default()
                },
            })
            .expect("starts");
        if n % 2 == 0 {
            tenant.kill();
        }
        tenant.wait().expect("ends");
    }
}

#[test]
fn after_1e5_tenants_the_host_is_where_it_began() {
    let cell = cell();
    churn(&cell, 1_000);
    let before = footprint();
    churn(&cell, 100_000);
    let after = footprint();
    // Other tests of this file run in the same process; what must not happen is growth with the
    // number of tenants: even 1 KiB each would be 100 MiB.
    assert!(
        after.0 < before.0 + (64 << 20),
        "{} -> {} bytes resident",
        before.0,
        after.0
    );
    assert!(
        after.1 < before.1 + 1_000,
        "{} -> {} mappings",
        before.1,
        after.1
    );
    assert!(
        after.2 < before.2 + 100,
        "{} -> {} descriptors",
        before.2,
        after.2
    );
}
