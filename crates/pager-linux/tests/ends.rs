//! The end of a reservation: its addresses at once, its frames in steps, and nothing left in them.

mod common;

use common::{Addresses, open};
use leasehold_pager::{Contract, Ending, Sharing};
use leasehold_pager_linux::{Options, Paging};

#[test]
fn addresses_can_be_used_again_before_the_pages_have_gone_and_read_as_zeros() {
    let (paging, _store) = open(4_096, 16_384);
    let memory = Addresses::reserve(1_000);
    let mut ending = vec![];
    for round in 0..6 {
        let id = paging.reserve(&Contract::hard(600)).expect("frames");
        let pages = 1_000;
        let area = if round % 2 == 0 {
            paging.create_area(pages, Sharing::Conserve)
        } else {
            let id = paging.reserve(&Contract::hard(10)).expect("frames");
            ending.push(id);
            paging.create_area(pages, Sharing::Conserve)
        };
        memory.attach(&paging, id, area.expect("an area"));
        for page in (0..pages).step_by(3) {
            assert!(memory.is_zero(page), "round {round}, page {page}");
            memory.fill(page, u64::from(page) + 1);
        }
        paging.retire(id).expect("there");
        ending.push(id);
    }
    paging.audit();
    let mut visits = 0;
    while let Some(&id) = ending.last() {
        visits += 1;
        if paging.end_step(id, 50).expect("there") == Ending::Done {
            ending.pop();
        }
        paging.audit();
    }
    assert_eq!(paging.unreserved(), 4_096);
    assert_eq!(paging.held().used, 0);
    // 334 pages six times, twice each, by 50.
    assert!((6 * 14..6 * 20).contains(&visits), "{visits}");
}

#[test]
fn a_step_visits_no_more_pages_than_it_may_and_frames_really_leave() {
    let paging = Paging::open(Options::new(8_192)).expect("a kernel with userfaultfd");
    let id = paging.reserve(&Contract::hard(5_000)).expect("frames");
    let area = paging
        .create_resident_area(5_000, Sharing::Conserve)
        .expect("an area");
    let memory = Addresses::reserve(5_000);
    memory.attach(&paging, id, area);
    for page in 0..5_000 {
        memory.store(page, 1);
    }
    let held = paging.held();
    assert_eq!(held.used, 5_000);
    assert!(held.ballast + held.used <= 8_192, "{held:?}");
    paging.retire(id).expect("there");
    let mut before = 5_000;
    while paging.end_step(id, 128).expect("there") == Ending::More {
        let used = paging.held().used;
        assert!(before - used <= 128, "{before} to {used}");
        before = used;
    }
    paging.audit();
    assert_eq!(paging.held().used, 0);
    while !paging.refill(1_024).expect("memory") {}
    assert_eq!(paging.held().ballast, 8_192);
}

#[test]
fn a_detached_area_is_inaccessible_and_its_addresses_can_be_used_again() {
    let (paging, _store) = open(64, 256);
    let id = paging.reserve(&Contract::hard(16)).expect("frames");
    let area = paging.create_area(16, Sharing::Conserve).expect("an area");
    let memory = Addresses::reserve(16);
    let at = memory.attach(&paging, id, area);
    memory.fill(3, 3);
    paging.detach(at).expect("attached");
    assert_eq!(paging.account(id).expect("there").free, 16);
    assert!(paging.detach(at).is_err() && paging.grow(at, 1).is_err());
    let next = paging.create_area(16, Sharing::Conserve).expect("an area");
    memory.attach(&paging, id, next);
    assert!(memory.is_zero(3));
    paging.audit();
}

#[test]
fn a_thread_can_open_its_memory_again() {
    let addresses = Addresses::reserve(4);
    for _ in 0..3 {
        let (paging, _store) = open(16, 64);
        let error = Paging::open(Options::new(4)).expect_err("one at a time");
        assert_eq!(error.to_string(), "this thread has a pager already");
        let id = paging.reserve(&Contract::hard(4)).expect("frames");
        let area = paging.create_area(4, Sharing::Conserve).expect("an area");
        addresses.attach(&paging, id, area);
        assert!(addresses.is_zero(1));
        addresses.fill(1, 1);
    }
}
