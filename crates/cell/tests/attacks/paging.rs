//! Attacks of paging tenants on finite resources besides frames: swap places and descriptors.

use super::common::paged::{PAGE, end, held, paging};
use super::common::profile;
use leasehold_cell::memory::{HeldMemory, Swap, swap_for};
use leasehold_cell::{Cell, CellConfig, Exit, Lease, StartRequest, Surroundings};
use leasehold_lease::{ByteSize, SharedPages};
use std::path::Path;

const LIMIT: u64 = 4 << 20;

fn attack(cell: &Cell, name: &str, lease: Lease) -> StartRequest {
    let attacks = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guests/attacks");
    StartRequest {
        program: cell
            .load_for(&attacks.join(name), &lease)
            .expect("an attack"),
        lease,
        surroundings: Surroundings {
            args: vec!["guest".into()],
            ..Surroundings::default()
        },
    }
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("proc").count()
}

#[test]
fn what_one_tenant_leaves_behind_in_the_swap_file_is_no_loss_of_others() {
    let promised = swap_for(ByteSize::new(LIMIT).expect("in range"));
    let held = held(512 * PAGE, 2 * promised);
    let lease = |frames| paging(2_000_000, frames * PAGE, LIMIT, SharedPages::Conserve);
    let regions = attack(&held.cell, "small-regions.wat", lease(256));
    let regions = held.cell.start_tenant(regions).expect("a tenant");
    while regions.memory().expect("it runs").linear_bytes < LIMIT {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    for _ in 0..2 {
        let grows = attack(&held.cell, "grows-page-by-page.wat", lease(64));
        let grows = held.cell.start_tenant(grows).expect("a tenant");
        assert_eq!(grows.wait().expect("an end").exit, Exit::Code(0));
    }
    assert_eq!(end(&regions).exit, Exit::Killed);
}

#[test]
fn pages_that_an_instruction_needs_at_once_do_not_evict_each_other_for_ever() {
    let promised = swap_for(ByteSize::new(16 << 20).expect("in range"));
    let held = held(512 * PAGE, 2 * promised);
    for frames in [16, 20, 256] {
        let lease = paging(50_000_000, frames * PAGE, 16 << 20, SharedPages::Conserve);
        let keeps = attack(&held.cell, "keeps-all-frames.wat", lease);
        let keeps = held.cell.start_tenant(keeps).expect("a tenant");
        std::thread::sleep(std::time::Duration::from_millis(300));
        keeps.kill();
        let ended = keeps.wait_for(std::time::Duration::from_secs(60));
        assert_eq!(ended.expect("a cell").expect("an end").exit, Exit::Killed);
    }
}

#[test]
fn memories_that_page_take_no_descriptors() {
    let held = held(512 * PAGE, 16 << 20);
    let before = descriptors();
    let lease = paging(2_000_000, 256 * PAGE, LIMIT, SharedPages::Conserve);
    let regions = attack(&held.cell, "small-regions.wat", lease);
    let regions = held.cell.start_tenant(regions).expect("a tenant");
    while regions.memory().expect("it runs").linear_bytes < LIMIT {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    // Fourteen regions, zeros in place of each, and as many pieces between them; other tests have
    // cells meanwhile.
    let now = descriptors();
    assert!(now < before + 28, "{before} and {now}");
    assert_eq!(end(&regions).exit, Exit::Killed);
}

#[test]
fn a_swap_file_in_memory_is_refused_before_anything_starts() {
    let mut config = CellConfig::new(profile());
    config.memory = Some(HeldMemory {
        bytes: 1 << 20,
        for_all: true,
        swap: Some(Swap {
            path: "/dev/shm/leasehold-swap".into(),
            bytes: 1 << 20,
        }),
    });
    let error = Cell::start(config).err().expect("refused").to_string();
    let expected = "`memory.swap`: swap file /dev/shm/leasehold-swap: found a directory on tmpfs, \
                    which is memory; allowed: one on a file system that keeps its files on a disk";
    assert_eq!(error, expected);
}
