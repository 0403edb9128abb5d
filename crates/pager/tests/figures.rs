//! The paper's worked examples, and the promises at their edges.

mod common;

use common::{Change, Watched};
use leasehold_pager::{
    AttachmentId, CLUSTER, Contract, Ending, Fault, MemoryBackend, PageNumber, Pager, Refused,
    ReservationId, Sharing, StoreError, Technique,
};

fn page(number: u32) -> PageNumber {
    PageNumber::new(number)
}

/// A reservation with private memory of `pages` pages.
fn tenant(
    pager: &mut Pager<MemoryBackend>,
    contract: Contract,
    pages: u32,
) -> (ReservationId, AttachmentId) {
    let id = pager.reserve(&contract).expect("frames");
    let area = pager
        .create_area(pages, Sharing::Conserve)
        .expect("an area");
    (id, pager.attach(id, area).expect("attached"))
}

fn touch_all(pager: &mut Pager<MemoryBackend>, at: AttachmentId, pages: u32) {
    for page in PageNumber::range(0..pages) {
        pager.fault(at, page).expect("a frame");
    }
}

/// `(free, owned, conserved)`.
fn account(pager: &Pager<MemoryBackend>, id: ReservationId) -> (u32, u32, u32) {
    let account = pager.account(id).expect("a reservation");
    assert!(account.balances());
    (account.free, account.owned, account.conserved)
}

#[test]
fn two_reservations_share_and_unmap_a_page_as_in_figure_4() {
    let mut pager = Pager::new(12, MemoryBackend::new(12));
    let (first, own1) = tenant(&mut pager, Contract::hard(6), 8);
    let (second, own2) = tenant(&mut pager, Contract::hard(6), 8);
    let area = pager.create_area(1, Sharing::Conserve).expect("an area");
    let one = pager.attach(first, area).expect("attached");
    let two = pager.attach(second, area).expect("attached");

    // (a): the page was allocated from the first, the second conserves a frame.
    assert_eq!(pager.fault(one, page(0)), Ok(Fault::Zero));
    assert_eq!(pager.fault(two, page(0)), Ok(Fault::Minor));
    assert!(pager.backend_mut().store(one, page(0), 42));
    assert_eq!(account(&pager, first), (5, 1, 0));
    assert_eq!(account(&pager, second), (5, 0, 1));

    // (b): the first picks it as a victim, the second owns it and pays with its frame.
    let frame = pager.backend().frame(two, page(0));
    touch_all(&mut pager, own1, 6);
    assert!(!pager.backend().is_mapped(one, page(0)));
    assert_eq!(pager.backend().frame(two, page(0)), frame);
    assert_eq!(account(&pager, first), (0, 6, 0));
    assert_eq!(account(&pager, second), (5, 1, 0));
    assert_eq!(pager.counts(second).expect("there").inherited, 1);

    // The first maps it again: now it is the one that conserves.
    assert_eq!(pager.fault(one, page(0)), Ok(Fault::Minor));
    assert_eq!(account(&pager, first), (0, 5, 1));

    // (c): the owner unmaps it, and it is private to the first.
    touch_all(&mut pager, own2, 6);
    assert!(!pager.backend().is_mapped(two, page(0)));
    assert_eq!(account(&pager, first), (0, 6, 0));
    assert_eq!(account(&pager, second), (0, 6, 0));
    assert_eq!(pager.backend_mut().load(one, page(0)), Some(42));
    // The only page that was written to storage would have been a dirty private one.
    assert_eq!(pager.backend().traffic().written, 0);
    pager.audit().expect("invariants");
}

#[test]
fn a_sharer_that_does_not_own_the_page_takes_its_own_conserved_frame() {
    let mut pager = Pager::new(8, MemoryBackend::new(8));
    let (first, _) = tenant(&mut pager, Contract::hard(4), 4);
    let (second, own) = tenant(&mut pager, Contract::hard(4), 4);
    let area = pager.create_area(1, Sharing::Conserve).expect("an area");
    let one = pager.attach(first, area).expect("attached");
    let two = pager.attach(second, area).expect("attached");
    pager.fault(one, page(0)).expect("a frame");
    pager.fault(two, page(0)).expect("a frame");
    touch_all(&mut pager, own, 4);
    assert_eq!(account(&pager, first), (3, 1, 0));
    assert_eq!(account(&pager, second), (0, 4, 0));
    assert!(pager.backend().is_mapped(one, page(0)));
}

#[test]
fn the_conserved_list_is_as_long_as_the_reservation_if_everything_is_foreign() {
    let mut pager = Pager::new(8, MemoryBackend::new(8));
    let (first, second) = (
        pager.reserve(&Contract::hard(4)),
        pager.reserve(&Contract::hard(4)),
    );
    let (first, second) = (first.expect("frames"), second.expect("frames"));
    let area = pager.create_area(4, Sharing::Conserve).expect("an area");
    let one = pager.attach(first, area).expect("attached");
    let two = pager.attach(second, area).expect("attached");
    touch_all(&mut pager, one, 4);
    touch_all(&mut pager, two, 4);
    assert_eq!(account(&pager, first), (0, 4, 0));
    assert_eq!(account(&pager, second), (0, 0, 4));
}

#[test]
fn a_lock_takes_n_times_r_minus_s_plus_s_frames() {
    // SPC §IV-B, with n = 3, R = 7 and S = 4.
    let mut pager = Pager::new(30, MemoryBackend::new(30));
    let area = pager.create_area(4, Sharing::Conserve).expect("an area");
    let sharers: Vec<_> = (0..3)
        .map(|_| {
            let (id, own) = tenant(&mut pager, Contract::hard(7), 7);
            touch_all(&mut pager, own, 7);
            (id, own, pager.attach(id, area).expect("attached"))
        })
        .collect();
    assert_eq!(pager.unreserved(), 30 - 3 * 7);
    assert_eq!(pager.lock(area), Ok(2 * 4));
    assert_eq!(pager.unreserved(), 30 - (3 * (7 - 4) + 4));
    // Whatever they do with the rest, the locked pages stay.
    for &(id, own, shared) in &sharers {
        touch_all(&mut pager, own, 7);
        assert!(PageNumber::range(0..4).all(|page| pager.backend().is_mapped(shared, page)));
        assert_eq!(account(&pager, id), (0, 3, 0));
    }
    // A joining tenant gives up as many frames as the others.
    let (late, own) = tenant(&mut pager, Contract::hard(7), 7);
    touch_all(&mut pager, own, 7);
    let before = pager.unreserved();
    let shared = pager.attach(late, area).expect("attached");
    touch_all(&mut pager, shared, 4);
    assert_eq!(pager.unreserved() - before, 4);
    assert!(PageNumber::range(0..4).all(|page| pager.backend().is_mapped(shared, page)));
    // The end of the first sharer does not affect the others.
    pager.end(sharers[0].0).expect("ended");
    assert!(PageNumber::range(0..4).all(|page| pager.backend().is_mapped(sharers[1].2, page)));
    pager.audit().expect("invariants");
}

#[test]
fn a_lock_is_put_on_in_steps_between_which_sharers_come_and_go() {
    let mut pager = Pager::new(30, MemoryBackend::new(30));
    let area = pager.create_area(4, Sharing::Conserve).expect("an area");
    let ids = [0; 3].map(|_| pager.reserve(&Contract::hard(6)).expect("frames"));
    let one = pager.attach(ids[0], area).expect("attached");
    let two = pager.attach(ids[1], area).expect("attached");
    touch_all(&mut pager, one, 4);
    for page in PageNumber::range(0..4) {
        assert!(
            pager
                .backend_mut()
                .store(one, page, 7 + u64::from(page.get()))
        );
    }
    assert_eq!(pager.lock_step(area, 2), Ok(Ending::More));
    pager.audit().expect("invariants");
    assert_eq!((pager.locked(area), pager.unreserved()), (Ok(2), 12 + 2));
    assert!(
        PageNumber::range(0..4)
            .all(|page| pager.backend().is_mapped(two, page) == page.is_within(2))
    );
    // A new sharer joins the locked part when it touches it, and shares the rest.
    let three = pager.attach(ids[2], area).expect("attached");
    assert_eq!(pager.fault(three, page(0)), Ok(Fault::Minor));
    assert_eq!(pager.fault(three, page(3)), Ok(Fault::Minor));
    assert_eq!(
        (account(&pager, ids[2]), pager.unreserved()),
        ((4, 0, 1), 15)
    );
    pager.audit().expect("invariants");
    // The first sharers end; pages that only they had mapped are saved.
    pager.end(ids[0]).expect("there");
    pager.detach(two).expect("detached");
    pager.audit().expect("invariants");
    assert_eq!(account(&pager, ids[1]), (6, 0, 0));
    assert_eq!(pager.lock_step(area, 1), Ok(Ending::More));
    assert_eq!(pager.lock_step(area, 9), Ok(Ending::Done));
    assert_eq!(pager.lock_step(area, 9), Err(Refused::Locked));
    for page in PageNumber::range(0..4) {
        pager.fault(three, page).expect("a frame");
        assert_eq!(
            pager.backend_mut().load(three, page),
            Some(7 + u64::from(page.get()))
        );
    }
    assert_eq!(pager.account(ids[2]).expect("there").locked, 4);
    pager.audit().expect("invariants");
    pager.detach(three).expect("the last");
    assert_eq!(account(&pager, ids[2]), (6, 0, 0));
    assert_eq!(pager.unreserved(), 30 - 12);
}

#[test]
fn a_lock_needs_reservations_larger_than_the_area() {
    let mut pager = Pager::new(20, MemoryBackend::new(20));
    let area = pager.create_area(4, Sharing::Conserve).expect("an area");
    let (large, small) = (
        pager.reserve(&Contract::hard(5)),
        pager.reserve(&Contract::hard(4)),
    );
    let (large, small) = (large.expect("frames"), small.expect("frames"));
    pager.attach(large, area).expect("attached");
    let at = pager.attach(small, area).expect("attached");
    let refused = Refused::TooSmall { needed: 4, size: 4 };
    assert_eq!(pager.lock(area), Err(refused));
    pager.detach(at).expect("detached");
    assert_eq!(pager.lock(area), Ok(0));
    // Nor can it be joined with less.
    assert_eq!(pager.attach(small, area), Err(refused));
}

#[test]
fn an_area_is_detached_in_bounded_steps_as_it_would_be_in_one() {
    let mut pager = Pager::new(20, MemoryBackend::new(20));
    let area = pager.create_area(8, Sharing::Conserve).expect("an area");
    let mine = pager.reserve(&Contract::hard(10)).expect("frames");
    let theirs = pager.reserve(&Contract::hard(10)).expect("frames");
    let (at, other) = (
        pager.attach(mine, area).expect("attached"),
        pager.attach(theirs, area).expect("attached"),
    );
    for page in PageNumber::range(0..8) {
        pager.fault(at, page).expect("a frame");
        assert!(pager.backend_mut().store(at, page, u64::from(page.get())));
    }
    // Half of the pages are shared, and the others have to be written out for the other one.
    for page in PageNumber::range(0..8).step_by(2) {
        pager.fault(other, page).expect("a frame");
    }
    // Eight pages, and a block of records.
    for step in 0..3 {
        assert_eq!(pager.detach_step(at, 3), Ok(Ending::More), "step {step}");
        pager.audit().expect("invariants");
    }
    assert_eq!(pager.detach_step(at, 3), Ok(Ending::Done));
    assert_eq!(pager.detach_step(at, 3), Err(Refused::Stale));
    pager.audit().expect("invariants");
    assert_eq!(pager.account(mine).expect("there").free, 10);
    assert_eq!(pager.account(theirs).expect("there").owned, 4);
    assert_eq!(pager.fault(other, page(1)), Ok(Fault::Major));
    assert_eq!(pager.backend_mut().load(other, page(1)), Some(1));
}

#[test]
fn a_lock_is_cancelled_only_if_its_frames_can_be_had() {
    let mut pager = Pager::new(12, MemoryBackend::new(12));
    let area = pager.create_area(4, Sharing::Conserve).expect("an area");
    let sharers = [
        pager.reserve(&Contract::hard(6)),
        pager.reserve(&Contract::hard(6)),
    ];
    let sharers = sharers.map(|id| id.expect("frames"));
    for id in sharers {
        pager.attach(id, area).expect("attached");
    }
    assert_eq!(pager.lock(area), Ok(4));
    let other = pager
        .reserve(&Contract::hard(1))
        .expect("a frame that the lock set free");
    let refused = Refused::Frames { needed: 4, left: 3 };
    assert_eq!(pager.unlock(area), Err(refused));
    assert_eq!(pager.lock(area), Err(Refused::Locked));
    pager.end(other).expect("ended");
    assert_eq!(pager.unlock(area), Ok(()));
    assert_eq!(
        (pager.unreserved(), account(&pager, sharers[1])),
        (0, (2, 0, 4))
    );
    pager.audit().expect("invariants");
}

#[test]
fn a_lock_that_fails_leaves_everybody_their_frames() {
    let mut pager = Pager::new(12, MemoryBackend::new(12));
    let area = pager.create_area(4, Sharing::Conserve).expect("an area");
    let (first, own) = tenant(&mut pager, Contract::hard(6), 6);
    let second = pager.reserve(&Contract::hard(6)).expect("frames");
    let one = pager.attach(first, area).expect("attached");
    pager.attach(second, area).expect("attached");
    for page in PageNumber::range(0..4) {
        pager.fault(one, page).expect("a frame");
        assert!(pager.backend_mut().store(one, page, 7));
    }
    // All four go to storage.
    touch_all(&mut pager, own, 6);
    pager.backend_mut().set_failing(true);
    assert_eq!(pager.lock(area), Err(Refused::Store(StoreError)));
    assert_eq!(pager.unreserved(), 0);
    assert_eq!(pager.account(first).expect("there").locked, 0);
    pager.audit().expect("invariants");
    pager.backend_mut().set_failing(false);
    assert_eq!(pager.lock(area), Ok(4));
    assert_eq!(pager.backend_mut().load(one, page(3)), Some(7));
}

#[test]
fn a_hard_reservation_never_uses_unreserved_frames() {
    let mut pager = Pager::new(20, MemoryBackend::new(20));
    let (id, own) = tenant(&mut pager, Contract::hard(5), 10);
    touch_all(&mut pager, own, 10);
    assert_eq!((account(&pager, id), pager.unreserved()), ((0, 5, 0), 15));
}

#[test]
fn a_firm_reservation_borrows_and_gives_back_when_another_is_admitted() {
    let mut pager = Pager::new(20, MemoryBackend::new(20));
    let (firm, own) = tenant(&mut pager, Contract::firm(5), 18);
    touch_all(&mut pager, own, 18);
    assert_eq!(
        (
            pager.account(firm).expect("there").borrowed,
            pager.unreserved()
        ),
        (13, 2)
    );
    let (hard, other) = tenant(&mut pager, Contract::hard(10), 10);
    assert_eq!(pager.account(firm).expect("there").borrowed, 5);
    touch_all(&mut pager, other, 10);
    assert_eq!(account(&pager, hard), (0, 10, 0));
    let refused = Refused::Frames { needed: 6, left: 5 };
    assert_eq!(pager.reserve(&Contract::hard(6)), Err(refused));
    pager
        .reserve(&Contract::hard(5))
        .expect("what was borrowed");
    assert_eq!(account(&pager, firm), (0, 5, 0));
    pager.audit().expect("invariants");
}

#[test]
fn a_tenant_without_swap_attaches_no_more_than_fits_and_never_loses_a_page() {
    let mut pager = Pager::new(10, MemoryBackend::new(10));
    let id = pager
        .reserve(&Contract::hard(6).with_swap(0))
        .expect("frames");
    let mut attach = |pages| {
        let area = pager
            .create_area(pages, Sharing::Conserve)
            .expect("an area");
        pager.attach(id, area)
    };
    let (four, two) = (attach(4).expect("fits"), attach(2).expect("fits"));
    assert_eq!(attach(1), Err(Refused::Swap { needed: 1, left: 0 }));
    for _ in 0..3 {
        touch_all(&mut pager, four, 4);
        touch_all(&mut pager, two, 2);
    }
    let counts = pager.counts(id).expect("there");
    assert_eq!((counts.evicted, counts.unmapped, counts.zero), (0, 0, 6));
}

#[test]
fn dirty_pages_are_written_in_clusters_and_each_once() {
    let mut pager = Pager::new(64, MemoryBackend::new(64));
    let (id, own) = tenant(&mut pager, Contract::hard(64), 128);
    for page in PageNumber::range(0..64) {
        pager.fault(own, page).expect("a frame");
        assert!(pager.backend_mut().store(own, page, page.get().into()));
    }
    // As many again, only read: every dirty page has to go.
    for page in PageNumber::range(64..128) {
        assert_eq!(pager.fault(own, page), Ok(Fault::Zero));
    }
    let counts = pager.counts(id).expect("there");
    assert_eq!((counts.evicted, counts.written), (64, 64));
    assert_eq!(counts.writes, 64 / CLUSTER as u64);
    assert_eq!(pager.fault(own, page(9)), Ok(Fault::Major));
    assert_eq!(pager.backend_mut().load(own, page(9)), Some(9));
}

#[test]
fn a_page_referenced_while_inactive_gets_a_second_chance() {
    let mut pager = Pager::new(6, MemoryBackend::new(6));
    let (_, own) = tenant(&mut pager, Contract::hard(6), 20);
    touch_all(&mut pager, own, 7);
    // Page 0 has gone, 1 is the next in line.
    assert!(!pager.backend().is_mapped(own, page(0)));
    for next in PageNumber::range(7..11) {
        assert!(pager.backend_mut().load(own, page(1)).is_some());
        pager.fault(own, next).expect("a frame");
    }
    assert!(pager.backend().is_mapped(own, page(1)));
    assert!(!pager.backend().is_mapped(own, page(2)));
}

#[test]
fn a_fault_looks_at_a_bounded_number_of_pages_however_many_there_are() {
    let mut pager = Pager::new(5_000, Watched::new(5_000));
    let id = pager.reserve(&Contract::hard(5_000)).expect("frames");
    let area = pager
        .create_area(10_000, Sharing::Conserve)
        .expect("an area");
    let own = pager.attach(id, area).expect("attached");
    for number in 0..10_000 {
        pager.backend_mut().looks = 0;
        pager.fault(own, page(number)).expect("a frame");
        let looks = pager.backend().looks;
        assert!(looks <= 257, "{looks} for page {number}");
        // Everything is referenced all the time.
        for seen in (0..number).rev().take(600) {
            pager.backend_mut().memory.load(own, page(seen));
        }
    }
    pager.audit().expect("invariants");
}

#[test]
fn without_management_one_evicts_for_all_and_the_node_makes_up_for_it() {
    let mut pager = Pager::new(12, MemoryBackend::new(12));
    let (first, _) = tenant(&mut pager, Contract::hard(6), 6);
    let (second, own) = tenant(&mut pager, Contract::hard(4), 4);
    let area = pager.create_area(3, Sharing::Plain).expect("an area");
    let one = pager.attach(first, area).expect("attached");
    let two = pager.attach(second, area).expect("attached");
    touch_all(&mut pager, one, 3);
    touch_all(&mut pager, two, 3);
    // Each frame is counted once.
    assert_eq!(pager.unreserved(), 2 + 3);
    assert_eq!(pager.account(second).expect("there").returned, 3);
    touch_all(&mut pager, own, 4);
    assert_eq!(pager.counts(first).expect("there").robbed, 3);
    assert!(PageNumber::range(0..3).all(|page| !pager.backend().is_mapped(one, page)));
    assert_eq!((account(&pager, first), pager.unreserved()), ((6, 0, 0), 2));
    pager.audit().expect("invariants");
}

#[test]
fn a_firm_reservation_shares_no_pages_without_management() {
    let mut pager = Pager::new(6, MemoryBackend::new(6));
    let firm = pager.reserve(&Contract::firm(1)).expect("a frame");
    let hard = pager.reserve(&Contract::hard(1)).expect("a frame");
    let area = pager.create_area(3, Sharing::Plain).expect("an area");
    // It would own pages in frames that it borrowed, and leave them to the other when it ends: frames
    // that the node may have promised to a third because the other gave some back.
    assert_eq!(pager.attach(firm, area), Err(Refused::Unmanaged));
    pager.attach(hard, area).expect("attached");
}

#[test]
fn by_first_touch_others_use_pages_free_of_charge_and_lose_them_to_the_owner() {
    let mut pager = Pager::new(10, MemoryBackend::new(10));
    let (first, own) = tenant(&mut pager, Contract::hard(4), 4);
    let second = pager.reserve(&Contract::hard(1)).expect("a frame");
    let area = pager.create_area(3, Sharing::FirstTouch).expect("an area");
    let one = pager.attach(first, area).expect("attached");
    let two = pager.attach(second, area).expect("attached");
    touch_all(&mut pager, one, 3);
    touch_all(&mut pager, two, 3);
    // Three pages in a reservation of one frame.
    assert_eq!(account(&pager, second), (1, 0, 0));
    // The second uses them all the time, but the first does not.
    for page in PageNumber::range(0..4) {
        pager.fault(own, page).expect("a frame");
        for shared in PageNumber::range(0..3) {
            pager.backend_mut().load(two, shared);
        }
    }
    assert_eq!(pager.counts(second).expect("there").robbed, 3);
    pager.audit().expect("invariants");
}

#[test]
fn the_end_of_a_reservation_takes_a_step_per_resident_page_and_attachment() {
    for resident in [0, 10, 100] {
        let mut pager = Pager::new(200, MemoryBackend::new(200));
        let (id, own) = tenant(&mut pager, Contract::hard(150), 1_000);
        touch_all(&mut pager, own, resident);
        // What is known of 512 pages, by the attachment and by the area.
        let blocks = if resident > 0 { 2 } else { 0 };
        assert_eq!(pager.end_step(id, resident + blocks + 1), Ok(Ending::More));
        assert_eq!(pager.fault(own, page(0)), Err(Refused::Stale));
        assert_eq!(pager.end_step(id, 1), Ok(Ending::Done));
        assert_eq!(pager.unreserved(), 200);
        pager.audit().expect("invariants");
    }
}

#[test]
fn what_is_known_of_pages_far_apart_goes_some_a_step() {
    let mut pager = Pager::new(200, MemoryBackend::new(200));
    let (id, own) = tenant(&mut pager, Contract::hard(100), 100 * 512);
    for block in 0..100 {
        pager.fault(own, page(block * 512)).expect("a frame");
    }
    let mut steps = 0;
    while pager.end_step(id, 10) == Ok(Ending::More) {
        steps += 1;
        pager.audit().expect("invariants");
    }
    // 100 pages, a look at the rest of the block behind all but the last, 100 blocks of the attachment, 100 of the area,
    // and the attachment.
    assert_eq!(steps, 40);
    assert_eq!(pager.unreserved(), 200);
}

#[test]
fn what_an_ending_tenant_alone_had_mapped_of_a_shared_area_is_kept_for_the_others() {
    let mut pager = Pager::new(20, MemoryBackend::new(20));
    let area = pager.create_area(4, Sharing::Conserve).expect("an area");
    let (first, _) = tenant(&mut pager, Contract::hard(6), 6);
    let (second, _) = tenant(&mut pager, Contract::hard(6), 6);
    let one = pager.attach(first, area).expect("attached");
    let two = pager.attach(second, area).expect("attached");
    for page in PageNumber::range(0..4) {
        pager.fault(one, page).expect("a frame");
        assert!(pager.backend_mut().store(one, page, 9));
    }
    pager.fault(two, page(0)).expect("a frame");
    pager.end(first).expect("ended");
    assert_eq!(account(&pager, second), (5, 1, 0));
    assert_eq!(pager.fault(two, page(0)), Ok(Fault::Present));
    assert_eq!(pager.fault(two, page(1)), Ok(Fault::Major));
    assert_eq!(pager.backend_mut().load(two, page(1)), Some(9));
}

#[test]
fn a_page_that_cannot_be_saved_when_its_holder_ends_is_lost_and_said_to_be() {
    let mut pager = Pager::new(20, MemoryBackend::new(20));
    let area = pager.create_area(2, Sharing::Conserve).expect("an area");
    let (first, second) = (
        pager.reserve(&Contract::hard(6)),
        pager.reserve(&Contract::hard(6)),
    );
    let (first, second) = (first.expect("frames"), second.expect("frames"));
    let one = pager.attach(first, area).expect("attached");
    let two = pager.attach(second, area).expect("attached");
    pager.fault(one, page(0)).expect("a frame");
    assert!(pager.backend_mut().store(one, page(0), 9));
    pager.backend_mut().set_failing(true);
    pager.end(first).expect("an end does not fail");
    assert_eq!(pager.unreserved(), 14);
    assert_eq!(pager.fault(two, page(0)), Err(Refused::Lost));
    assert_eq!(pager.fault(two, page(1)), Ok(Fault::Zero));
}

#[test]
fn frames_come_without_what_another_tenant_left_in_them() {
    let mut pager = Pager::new(4, MemoryBackend::new(4));
    let (first, own) = tenant(&mut pager, Contract::hard(4), 4);
    for page in PageNumber::range(0..4) {
        pager.fault(own, page).expect("a frame");
        assert_eq!(pager.backend_mut().load(own, page), Some(0));
        assert!(pager.backend_mut().store(own, page, 99));
    }
    pager.end(first).expect("ended");
    let (_, own) = tenant(&mut pager, Contract::hard(4), 4);
    for page in PageNumber::range(0..4) {
        pager.fault(own, page).expect("a frame");
        assert_eq!(pager.backend_mut().load(own, page), Some(0));
    }
}

#[test]
fn observed_use_decides_between_conserving_and_locking() {
    let mut pager = Pager::new(60, MemoryBackend::new(60));
    let area = pager.create_area(10, Sharing::Conserve).expect("an area");
    let mut attach = |pages| {
        let id = pager.reserve(&Contract::hard(11)).expect("frames");
        let at = pager.attach(id, area).expect("attached");
        touch_all(&mut pager, at, pages);
        pager.observe(area).expect("there")
    };
    // One uses 10 of 10 pages: 10 < 10 is false.
    assert_eq!(attach(10).choice(10), Some(Technique::Spc));
    // Two use 10 and 6: an average of (10 + 16) / 2 over both observations.
    let usage = attach(6);
    assert_eq!((usage.total_average(), usage.peak()), (13, 10));
    assert_eq!(usage.choice(10), Some(Technique::Spel));
}

#[test]
fn writing_to_a_shared_page_copies_it_into_the_frame_conserved_for_it() {
    let mut pager = Pager::new(8, MemoryBackend::new(8));
    let image = pager.create_area(2, Sharing::Conserve).expect("an area");
    let (first, _) = tenant(&mut pager, Contract::hard(4), 2);
    let (second, own) = tenant(&mut pager, Contract::hard(4), 4);
    let one = pager.attach(first, image).expect("attached");
    let two = pager.attach(second, image).expect("attached");
    for page in PageNumber::range(0..2) {
        pager.fault(one, page).expect("a frame");
        assert!(
            pager
                .backend_mut()
                .store(one, page, 10 + u64::from(page.get()))
        );
        pager.fault(two, page).expect("a frame");
    }
    touch_all(&mut pager, own, 2);
    assert_eq!(account(&pager, second), (0, 2, 2));
    // No frame is free, and nothing has to go.
    assert_eq!(
        pager.copy_on_write(two, page(0), own, page(2)),
        Ok(Fault::Minor)
    );
    assert_eq!(account(&pager, second), (0, 3, 1));
    assert_eq!(pager.backend_mut().load(own, page(2)), Some(10));
    assert!(!pager.backend().is_mapped(two, page(0)));
    assert_eq!(pager.backend_mut().load(one, page(0)), Some(10));
    // It is a page of its own now.
    assert!(pager.backend_mut().store(own, page(2), 99));
    assert_eq!(
        pager.copy_on_write(two, page(0), own, page(2)),
        Ok(Fault::Present)
    );
    assert_eq!(pager.backend_mut().load(own, page(2)), Some(99));
    // The first is the only one to have the original: private, owned.
    assert_eq!(account(&pager, first), (2, 2, 0));
    let counts = pager.counts(second).expect("there");
    assert_eq!((counts.evicted, counts.copied), (0, 1));
    pager.audit().expect("invariants");
}

#[test]
fn the_only_page_of_a_reservation_can_be_copied() {
    let mut pager = Pager::new(2, MemoryBackend::new(2));
    let (id, own) = tenant(&mut pager, Contract::hard(1), 1);
    let image = pager.create_area(1, Sharing::Conserve).expect("an area");
    let view = pager.attach(id, image).expect("attached");
    pager.fault(view, page(0)).expect("a frame");
    assert!(pager.backend_mut().store(view, page(0), 5));
    // Making room for the copy writes the original out, from where it is read.
    assert_eq!(
        pager.copy_on_write(view, page(0), own, page(0)),
        Ok(Fault::Major)
    );
    assert_eq!(pager.backend_mut().load(own, page(0)), Some(5));
    // And the copy survives being evicted in turn.
    assert_eq!(pager.fault(view, page(0)), Ok(Fault::Major));
    assert_eq!(pager.fault(own, page(0)), Ok(Fault::Major));
    assert_eq!(pager.backend_mut().load(own, page(0)), Some(5));
}

#[test]
fn a_shared_page_is_not_written_out_with_a_private_one() {
    let mut pager = Pager::new(12, MemoryBackend::new(12));
    let area = pager.create_area(4, Sharing::Conserve).expect("an area");
    let (first, own) = tenant(&mut pager, Contract::hard(8), 12);
    let second = pager.reserve(&Contract::hard(4)).expect("frames");
    let one = pager.attach(first, area).expect("attached");
    let two = pager.attach(second, area).expect("attached");
    for page in PageNumber::range(0..4) {
        for at in [own, one] {
            pager.fault(at, page).expect("a frame");
            assert!(pager.backend_mut().store(at, page, 7));
        }
        pager.fault(two, page).expect("a frame");
    }
    pager.fault(own, page(4)).expect("a frame");
    // A third of eight is inactive: two dirty private pages, and a shared one between them.
    assert_eq!(pager.backend().traffic().written, 2);
}

#[test]
fn a_lock_is_not_joined_while_a_sharer_leaves_it() {
    let mut pager = Pager::new(30, MemoryBackend::new(30));
    let area = pager.create_area(4, Sharing::Conserve).expect("an area");
    let ids = [0; 3].map(|_| pager.reserve(&Contract::hard(6)).expect("frames"));
    pager.attach(ids[0], area).expect("attached");
    let stays = pager.attach(ids[1], area).expect("attached");
    assert_eq!(pager.lock(area), Ok(4));
    assert_eq!(pager.end_step(ids[0], 2), Ok(Ending::More));
    assert_eq!(pager.attach(ids[2], area), Err(Refused::Ending));
    assert_eq!(pager.unlock(area), Err(Refused::Ending));
    assert!(PageNumber::range(0..4).all(|page| pager.backend().is_mapped(stays, page)));
    pager.end(ids[0]).expect("there");
    pager.attach(ids[2], area).expect("attached");
    pager.audit().expect("invariants");
}

#[test]
fn many_firm_reservations_take_no_more_memory_than_one_for_what_they_may_borrow() {
    // Each might borrow all frames, and all together no more than that.
    let mut pager = Pager::new(100_000, MemoryBackend::new(100_000));
    let ids: Vec<_> = (0..50_000)
        .map(|_| pager.reserve(&Contract::firm(1)).expect("a frame"))
        .collect();
    let area = pager
        .create_area(50_001, Sharing::Conserve)
        .expect("an area");
    let at = pager.attach(ids[0], area).expect("attached");
    touch_all(&mut pager, at, 50_001);
    assert_eq!((pager.borrowed(), pager.unreserved()), (50_000, 0));
    pager.audit().expect("invariants");
}

#[test]
fn an_end_takes_pages_in_the_order_of_their_addresses_whoever_touched_them_first() {
    const PAGES: u32 = 64;
    let mut pager = Pager::new(2 * PAGES, Watched::new(2 * PAGES));
    let area = pager
        .create_area(PAGES, Sharing::Conserve)
        .expect("an area");
    let tenants: Vec<_> = (0..2)
        .map(|_| {
            let id = pager.reserve(&Contract::hard(PAGES)).expect("frames");
            (id, pager.attach(id, area).expect("room"))
        })
        .collect();
    let scattered = || (0..PAGES).map(|nth| page(nth * 37 % PAGES));
    for page in scattered() {
        let (_, first) = tenants[page.index() % 2];
        pager.fault(first, page).expect("a frame");
    }
    for page in scattered() {
        for &(_, at) in &tenants {
            pager.fault(at, page).expect("a frame");
        }
    }
    // Both at the same time: what the first owns goes to the second, which is ending, too.
    pager.end_step(tenants[1].0, 1).expect("there");
    for &(id, at) in &tenants {
        pager.backend_mut().changes.clear();
        pager.end(id).expect("there");
        let taken: Vec<_> = pager.backend().changes.clone();
        let ascending = PageNumber::range(0..PAGES).map(|page| Change::Unmap(at, page));
        let left = taken.len();
        assert!(left >= PAGES as usize - 1);
        let ascending: Vec<_> = ascending.skip(PAGES as usize - left).collect();
        assert_eq!(taken, ascending);
    }
    pager.audit().expect("invariants");
}
