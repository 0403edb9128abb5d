//! The kernel mappings of the process: tenants cause no more than they were promised, and the rest
//! is kept for the host.
//!
//! One test, since they are the process's.

mod common;

use common::paged::{PAGE, held, paging};
use leasehold_cell::{Cell, Exit, Lease, StartError, StartRequest, Surroundings, TenantHandle};
use leasehold_lease::{ByteSize, SharedPages};
use std::time::Duration;

const LIMIT: u64 = 34 << 16;
const TENANTS: u64 = 160;
/// Half of what a tenant writes to and reads.
const FRAMES: u64 = 256;

/// The attack, with 2 MiB of initial memory.
fn copies() -> String {
    let attack = include_str!("../../../guests/attacks/copies-every-second-page.wat");
    let letters = "x".repeat(2 << 20);
    let data = format!("(data (i32.const 0) \"{letters}\")");
    assert!(attack.contains("(;data;)"));
    attack.replace("(;data;)", &data)
}

fn lease() -> Lease {
    paging(2_000_000, FRAMES * PAGE, LIMIT, SharedPages::Conserve)
}

fn request(cell: &Cell, text: &str, lease: Lease) -> StartRequest {
    StartRequest {
        program: cell
            .compile_for(text.as_bytes(), &lease)
            .expect("a program"),
        lease,
        surroundings: Surroundings::default(),
    }
}

fn mappings() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    maps.lines().count()
}

fn most() -> usize {
    let most = std::fs::read_to_string("/proc/sys/vm/max_map_count").expect("a number");
    most.trim().parse().expect("a number")
}

/// Ends tenants, each of which ran until then.
fn end(tenants: Vec<TenantHandle>) {
    tenants.iter().for_each(TenantHandle::kill);
    for tenant in tenants {
        assert_eq!(tenant.wait().expect("an end").exit, Exit::Killed);
    }
}

#[test]
fn no_tenant_takes_mappings_that_others_were_promised() {
    let swap = leasehold_cell::memory::swap_for(ByteSize::new(LIMIT).expect("in range"));
    let held = held((TENANTS + 2) * FRAMES * PAGE, (TENANTS + 2) * swap);
    let text = copies();
    let idle = mappings();
    let first = request(&held.cell, &text, lease());
    assert!(first.program.image().is_some());

    // 160 of them, each with a copy of every second page.
    let start = |request: &StartRequest| held.cell.start_tenant(request.clone());
    let tenants: Vec<_> = (0..TENANTS).map(|_| start(&first).expect("room")).collect();
    for tenant in &tenants {
        while !tenant.memory().is_some_and(|used| {
            used.paging
                .is_some_and(|(_, counts)| counts.copied + counts.major > 300)
        }) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let busy = mappings();
    println!(
        "{idle} mappings, {busy} with {TENANTS} tenants, of {}",
        most()
    );
    assert!(busy < most() - 8_192, "{busy}");
    end(tenants);
    let after = mappings();
    assert!(after < idle + 2_000, "{idle} and {after}");

    // More than there are is refused, by name, and the one that was refused leaves nothing.
    let mut greedy = first.clone();
    if let Some(paging) = &mut greedy.lease.memory.paging {
        paging.mappings = 4_096;
    }
    let mut tenants = Vec::new();
    let refused = loop {
        match start(&greedy) {
            Ok(tenant) => tenants.push(tenant),
            Err(refused) => break refused,
        }
    };
    let StartError::Memory(why) = &refused else {
        panic!("{refused:?}");
    };
    assert!(why.starts_with("4120 kernel mappings needed, "), "{why}");
    assert!(why.contains("vm.max_map_count"), "{why}");
    assert!((5..16).contains(&tenants.len()), "{}", tenants.len());
    end(tenants);
    end(vec![start(&greedy).expect("what was given back")]);
}
