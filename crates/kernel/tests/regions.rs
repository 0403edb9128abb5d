//! Regions that are mapped: what a capability allows to map, and for how long.

mod common;

use common::sized;
use leasehold_kernel::{Errno, Kernel, RegionMapping, Rights};
use leasehold_reclaim::{HeapBacking, Mode};

fn kernel(mode: Mode) -> Kernel<HeapBacking> {
    sized(mode, 1 << 20, 16)
}

#[test]
fn a_mapping_is_allowed_as_long_as_its_capability_is_valid() {
    for mode in [Mode::Grouped, Mode::Individual] {
        let mut kernel = kernel(mode);
        let [creator, first, second] =
            [0; 3].map(|_| kernel.admit(1_000_000, 0).expect("a tenant"));
        let own = kernel
            .region_create_mapped(creator, 5000)
            .expect("a region");
        let both = Rights::READ | Rights::WRITE | Rights::GRANT;
        let theirs = kernel.connect(creator, own, first, both, 0).expect("one");
        let passed_on = kernel.connect(first, theirs, second, Rights::READ, 0);
        let passed_on = passed_on.expect("one");
        let mapping = kernel.region_mapping(creator, own).expect("its own");
        assert_eq!((mapping.length, mapping.writable), (5000, true));
        assert_eq!(kernel.region_mapping(first, theirs), Ok(mapping));
        let to_read = RegionMapping {
            writable: false,
            ..mapping
        };
        assert_eq!(kernel.region_mapping(second, passed_on), Ok(to_read));
        assert_eq!(kernel.region_length(second, passed_on), Ok(5000));

        // It was derived from the first one's capability, and becomes invalid with it.
        kernel.capability_drop(first, theirs).expect("dropped");
        assert_eq!(kernel.region_mapping(second, passed_on), Err(Errno::Gone));
        assert_eq!(kernel.region_mapping(creator, own), Ok(mapping));

        let again = kernel.connect(creator, own, second, both, 0).expect("one");
        assert_eq!(kernel.region_mapping(second, again), Ok(mapping));
        kernel.capability_revoke(creator, own).expect("revoked");
        assert_eq!(kernel.region_mapping(second, again), Err(Errno::Gone));

        let last = kernel.connect(creator, own, second, both, 0).expect("one");
        kernel.end(creator, &mut |_| {}).expect("ended");
        assert_eq!(kernel.region_mapping(second, last), Err(Errno::Gone));
    }
}

#[test]
fn a_region_is_mapped_or_copied() {
    let mut kernel = kernel(Mode::Grouped);
    let tenant = kernel.admit(1_000_000, 0).expect("a tenant");
    let mapped = kernel.region_create_mapped(tenant, 100).expect("a region");
    let copied = kernel.region_create(tenant, 100).expect("a region");
    assert!(kernel.region_mapping(tenant, mapped).is_ok());
    assert_eq!(kernel.region_mapping(tenant, copied), Err(Errno::Invalid));
    let read = kernel.region_read(tenant, mapped, 0, &mut [0; 4]);
    assert_eq!(read, Err(Errno::Invalid));
    let written = kernel.region_write(tenant, mapped, 0, &[0; 4]);
    assert_eq!(written, Err(Errno::Invalid));
    assert_eq!(kernel.region_length(tenant, mapped), Ok(100));
    assert_eq!(kernel.region_create_mapped(tenant, 0), Err(Errno::Invalid));
    let huge = kernel.region_create_mapped(tenant, u64::MAX);
    assert_eq!(huge, Err(Errno::TooLarge));
    let semaphore = kernel.semaphore_create(tenant, 0).expect("a semaphore");
    assert_eq!(
        kernel.region_mapping(tenant, semaphore),
        Err(Errno::BadClass)
    );
}

#[test]
fn a_holder_that_may_not_read_may_not_map() {
    let mut kernel = kernel(Mode::Grouped);
    let [creator, other] = [0; 2].map(|_| kernel.admit(1_000_000, 0).expect("a tenant"));
    let own = kernel.region_create_mapped(creator, 100).expect("a region");
    let theirs = kernel.connect(creator, own, other, Rights::WRITE, 0);
    let mapping = kernel.region_mapping(other, theirs.expect("one"));
    assert_eq!(mapping, Err(Errno::Rights));
}
