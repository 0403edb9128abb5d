//! A failing store: the affected tenant gets an error, no other tenant is affected, and nothing is
//! lost.

mod common;

use common::{Addresses, Fails, open};
use leasehold_pager::{Contract, Refused, Sharing, StoreError};
use leasehold_pager_linux::Reason;

#[test]
fn a_store_that_fails_denies_the_page_and_loses_none() {
    for fails in [Fails::Device, Fails::Full, Fails::Stuck] {
        let (paging, store) = open(64, 256);
        let small = paging.reserve(&Contract::hard(4)).expect("frames");
        let other = paging.reserve(&Contract::hard(16)).expect("frames");
        let area = paging.create_area(32, Sharing::Conserve).expect("an area");
        let theirs = paging.create_area(16, Sharing::Conserve).expect("an area");
        let (memory, neighbour) = (Addresses::reserve(32), Addresses::reserve(16));
        memory.attach(&paging, small, area);
        neighbour.attach(&paging, other, theirs);
        for page in 0..20 {
            memory.fill(page, u64::from(page));
        }
        store.set(fails);
        for page in 20..32 {
            let start = memory.start().wrapping_add(page as usize * 4096);
            let denied = paging.touch(start, 8, true).expect_err("no room");
            assert_eq!(denied.reason, Reason::Refused(Refused::Store(StoreError)));
            assert!(denied.address == start as usize);
            let page = page - 20;
            neighbour.fill(page, u64::from(page));
            paging.audit();
        }
        assert_eq!(paging.counts(other).expect("there").major, 0);
        store.set(Fails::Not);
        for page in 0..20 {
            assert!(memory.holds(page, u64::from(page)), "{fails:?}: {page}");
        }
        assert!(memory.is_zero(31));
        paging.audit();
    }
}

#[test]
fn a_page_that_cannot_be_read_is_denied_until_it_can() {
    let (paging, store) = open(64, 256);
    let id = paging.reserve(&Contract::hard(4)).expect("frames");
    let area = paging.create_area(32, Sharing::Conserve).expect("an area");
    let memory = Addresses::reserve(32);
    memory.attach(&paging, id, area);
    for page in 0..32 {
        memory.fill(page, u64::from(page));
    }
    // Clean pages need no write, so that only the read can fail.
    for page in 8..12 {
        assert!(memory.holds(page, u64::from(page)));
    }
    store.set(Fails::Device);
    for _ in 0..3 {
        assert!(paging.touch(memory.start(), 8, false).is_err());
        paging.audit();
    }
    store.set(Fails::Not);
    assert!(memory.holds(0, 0));
}
