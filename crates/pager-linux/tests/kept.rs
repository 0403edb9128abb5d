//! Memory through which tenants communicate: one of them keeps its pages, the others map them.

mod common;

use std::sync::atomic::Ordering;

use common::{Addresses, open};
use leasehold_pager::{AreaId, AttachmentId, Contract, Ending, Refused, ReservationId, Sharing};
use leasehold_pager_linux::{Error, Paging};

const PAGES: u32 = 40;

struct Tenant {
    id: ReservationId,
    memory: Addresses,
    attached: AttachmentId,
}

fn tenant(paging: &Paging, frames: u32, area: AreaId) -> Tenant {
    let id = paging.reserve(&Contract::hard(frames)).expect("frames");
    let memory = Addresses::reserve(PAGES);
    let attached = memory.attach(paging, id, area);
    Tenant {
        id,
        memory,
        attached,
    }
}

fn pin(paging: &Paging, at: AttachmentId) {
    while paging.pin_step(at, 7).expect("pinned") == Ending::More {}
}

/// A tenant that keeps the pages, with little more, and another one with few frames.
fn pair(paging: &Paging) -> (AreaId, Tenant, Tenant) {
    let area = paging.create_resident_area(PAGES, Sharing::Conserve);
    let area = area.expect("an area");
    let keeper = tenant(paging, PAGES + 2, area);
    pin(paging, keeper.attached);
    (area, keeper, tenant(paging, 8, area))
}

#[test]
fn what_is_kept_is_seen_by_all_and_never_written_out() {
    let (paging, store) = open(128, 64);
    let (_, keeper, other) = pair(&paging);
    for page in 0..PAGES {
        other.memory.store(page, u64::from(page) + 1);
        assert_eq!(keeper.memory.load(page), u64::from(page) + 1);
        keeper.memory.store(page, u64::from(page) + 2);
    }
    // The keeper's own memory makes room for itself.
    let own = paging.create_area(20, Sharing::Conserve).expect("places");
    let memory = Addresses::reserve(20);
    memory.attach(&paging, keeper.id, own);
    let before = paging.counts(keeper.id).expect("there");
    for page in 0..20 {
        memory.fill(page, page.into());
    }
    assert!((0..20).all(|page| memory.holds(page, page.into())));
    let writes = store.writes.load(Ordering::Relaxed);
    for _ in 0..2 {
        assert!((0..PAGES).all(|page| other.memory.load(page) == u64::from(page) + 2));
    }
    assert_eq!(store.writes.load(Ordering::Relaxed), writes);
    let after = paging.counts(keeper.id).expect("there");
    assert_eq!(paging.mapped(keeper.attached), Ok(PAGES));
    assert_eq!(before.major, 0);
    assert!(after.evicted > 0 && paging.counts(other.id).expect("there").unmapped > 60);
    paging.audit();
}

#[test]
fn a_holder_that_may_only_read_sees_what_others_write() {
    let (paging, _) = open(128, 0);
    let (area, keeper, _other) = pair(&paging);
    let id = paging.reserve(&Contract::hard(8)).expect("frames");
    let memory = Addresses::reserve(PAGES);
    // SAFETY: the addresses were reserved for this, and are used by this test only.
    unsafe { paging.attach_read_only(id, area, memory.start()) }.expect("attached");
    for page in 0..PAGES {
        assert_eq!(memory.load(page), 0);
        keeper.memory.store(page, 9);
        assert_eq!(memory.load(page), 9);
    }
    let denied = paging.touch(memory.start(), 8, true).expect_err("denied");
    assert_eq!(denied.reason.to_string(), "it is read-only data");
    paging.audit();
}

#[test]
fn when_the_keeper_ends_the_others_have_the_frames_for_zeros_of_their_own() {
    let (paging, store) = open(128, 64);
    let (area, keeper, other) = pair(&paging);
    let zeros = paging.create_area(PAGES, Sharing::Conserve).expect("room");
    for page in 0..PAGES {
        other.memory.fill(page, 1);
    }
    let mapped = paging.mapped(other.attached).expect("there");
    assert!(mapped > 0);
    paging.abandon(area).expect("there");
    while paging.end_step(keeper.id, 3).expect("there") == Ending::More {}
    let account = paging.account(other.id).expect("there");
    assert_eq!(account.owned, mapped, "it inherits what it has mapped");
    assert!(matches!(
        paging.create_resident_area(1, Sharing::Conserve),
        Ok(fresh) if paging.discard_area(fresh).is_ok()
    ));
    while paging.detach_step(other.attached, 3).expect("there") == Ending::More {}
    assert_eq!(store.writes.load(Ordering::Relaxed), 0);
    // SAFETY: nothing is mapped there.
    let attached = unsafe { paging.attach_at(other.id, zeros, other.memory.start(), PAGES) };
    attached.expect("attached");
    assert!((0..PAGES).all(|page| other.memory.is_zero(page)));
    paging.audit();
    while paging.end_step(other.id, 64).expect("there") == Ending::More {}
    assert_eq!(paging.unreserved(), 128);
    assert_eq!(paging.abandon(area).err().map(stale), Some(true));
}

fn stale(error: Error) -> bool {
    matches!(error, Error::Refused(Refused::Stale))
}

#[test]
fn no_tenant_keeps_more_than_its_reservation() {
    let (paging, _) = open(128, 0);
    let area = paging.create_resident_area(PAGES, Sharing::Conserve);
    let area = area.expect("an area");
    let small = tenant(&paging, PAGES, area);
    assert!(matches!(
        paging.pin_step(small.attached, 1),
        Err(Error::Refused(Refused::TooSmall {
            needed: PAGES,
            size: PAGES
        }))
    ));
    assert_eq!(paging.mapped(small.attached), Ok(0));
}
