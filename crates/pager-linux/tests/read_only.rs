//! Data that tenants share for reading: one frame for each page, and no writes.

mod common;

use std::io::Write;

use common::{Addresses, open};
use leasehold_pager::{AttachmentId, Contract, Ending, PageNumber, ReservationId, Sharing};
use leasehold_pager_linux::{Error, Paging};

const PAGES: u32 = 40;

/// A file of pages of which each is filled with its number.
fn data() -> std::fs::File {
    let mut file = tempfile::tempfile().expect("a file");
    for page in 0..PAGES {
        let words = [u64::from(page); 512];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        file.write_all(&bytes).expect("room");
    }
    file
}

struct Reader {
    id: ReservationId,
    memory: Addresses,
    attached: AttachmentId,
}

fn readers<const N: usize>(paging: &Paging, frames: [u32; N]) -> [Reader; N] {
    let area = paging.create_image(data(), Sharing::Conserve);
    let area = area.expect("an area");
    frames.map(|frames| {
        let id = paging.reserve(&Contract::hard(frames).with_swap(PAGES));
        let id = id.expect("frames");
        let memory = Addresses::reserve(PAGES);
        // SAFETY: the addresses were reserved for this, and are used by this test only.
        let attached = unsafe { paging.attach_read_only(id, area, memory.start()) };
        let attached = attached.expect("attached");
        Reader {
            id,
            memory,
            attached,
        }
    })
}

#[test]
fn evicting_data_takes_it_from_no_other_tenant() {
    // No room in a store at all: it takes none.
    let (paging, store) = open(128, 0);
    let [roomy, tight] = readers(&paging, [PAGES, 8]);
    assert!((0..PAGES).all(|page| roomy.memory.load(page) == u64::from(page)));
    let before = paging.counts(roomy.id).expect("there");
    for _ in 0..3 {
        assert!((0..PAGES).all(|page| tight.memory.load(page) == u64::from(page)));
    }
    assert!((0..PAGES).all(|page| roomy.memory.load(page) == u64::from(page)));
    let after = paging.counts(roomy.id).expect("there");
    assert_eq!(after.major, before.major, "no other evicts its pages");
    assert_eq!(paging.held().used, PAGES, "one frame for each page");
    assert_eq!(paging.mapped(roomy.attached), Ok(PAGES));
    assert_eq!(paging.mapped(tight.attached), Ok(8));
    let unmapped = paging.counts(tight.id).expect("there").unmapped;
    assert!(unmapped >= 3 * PAGES as u64 - 8, "{unmapped}");
    assert_eq!(store.writes.load(std::sync::atomic::Ordering::Relaxed), 0);
    paging.audit();
}

#[test]
fn the_owners_end_hands_its_pages_on() {
    let (paging, _store) = open(128, 0);
    let [first, second] = readers(&paging, [PAGES, PAGES]);
    for reader in [&first, &second] {
        assert!((0..PAGES).all(|page| reader.memory.load(page) == u64::from(page)));
    }
    assert_eq!(paging.account(first.id).expect("there").owned, PAGES);
    while paging.end_step(first.id, 7).expect("steps") == Ending::More {}
    paging.audit();
    let account = paging.account(second.id).expect("there");
    assert_eq!((account.owned, account.conserved), (PAGES, 0));
    let major = paging.counts(second.id).expect("there").major;
    assert!((0..PAGES).all(|page| second.memory.load(page) == u64::from(page)));
    assert_eq!(paging.counts(second.id).expect("there").major, major);
    while paging.end_step(second.id, 7).expect("steps") == Ending::More {}
    assert_eq!(paging.unreserved(), 128);
    paging.audit();
}

#[test]
fn a_page_can_be_had_for_reading_and_not_for_writing() {
    let (paging, _store) = open(128, 0);
    let [reader] = readers(&paging, [PAGES]);
    let bytes = common::BYTES;
    assert_eq!(paging.touch(reader.memory.start(), bytes, false), Ok(bytes));
    let denied = paging.touch(reader.memory.start(), bytes, true);
    let denied = denied.expect_err("no tenant writes to it");
    assert_eq!(denied.reason.to_string(), "it is read-only data");
    assert_eq!(reader.memory.load(0), 0);
    paging.audit();
}

#[test]
fn a_lock_is_prepared_in_steps_and_joined_by_later_tenants() {
    let (paging, _store) = open(200, 0);
    let area = paging.create_image(data(), Sharing::Conserve);
    let area = area.expect("an area");
    let join = || {
        let id = paging.reserve(&Contract::hard(PAGES + 10)).expect("frames");
        let memory = Addresses::reserve(PAGES);
        // SAFETY: the addresses were reserved for this, and are used by this test only.
        let attached = unsafe { paging.attach_read_only(id, area, memory.start()) };
        (id, memory, attached.expect("attached"))
    };
    let first = join();
    let mut next = Some(PageNumber::FIRST);
    let mut steps = 0;
    while let Some(from) = next {
        next = paging.prefault(first.2, from, 16).expect("a step");
        steps += 1;
    }
    assert_eq!(steps, 3);
    let major = paging.counts(first.0).expect("there").major;
    paging.lock(area).expect("locked");
    let second = join();
    assert!((0..PAGES).all(|page| second.1.load(page) == u64::from(page)));
    assert_eq!(paging.counts(second.0).expect("there").major, 0);
    assert_eq!(paging.counts(first.0).expect("there").major, major);
    // n·(R − S) + S frames are taken.
    assert_eq!(paging.unreserved(), 200 - (2 * 10 + PAGES));
    for id in [first.0, second.0] {
        while paging.end_step(id, 7).expect("steps") == Ending::More {}
        paging.audit();
    }
    assert_eq!(paging.unreserved(), 200);
}

#[test]
fn what_lies_behind_a_trimmed_attachment_can_be_attached() {
    let (paging, _store) = open(128, 128);
    let id = paging.reserve(&Contract::hard(64).with_swap(100));
    let id = id.expect("frames");
    let memory = Addresses::reserve(60 + PAGES);
    let private = paging.create_area(60, Sharing::Conserve).expect("an area");
    // SAFETY: the addresses were reserved for this, and are used by this test only.
    let part = unsafe { paging.attach_at(id, private, memory.start(), 20) }.expect("attached");
    paging.trim(part).expect("trimmed");
    assert!(paging.grow(part, 30).is_err());
    let image = paging.create_image(data(), Sharing::Conserve);
    let behind = memory.start().wrapping_add(20 * common::BYTES);
    // SAFETY: as above; the pages behind the first 20 were given up.
    unsafe { paging.attach_read_only(id, image.expect("an area"), behind) }.expect("attached");
    for page in 0..20 {
        memory.store(page, 1);
    }
    assert!((20..20 + PAGES).all(|page| memory.load(page) == u64::from(page - 20)));
    assert!((0..20).all(|page| memory.load(page) == 1));
    while paging.end_step(id, 7).expect("steps") == Ending::More {}
    paging.audit();
    assert_eq!(paging.unreserved(), 128);
}

#[test]
fn nothing_is_attached_where_something_else_is_until_that_has_gone() {
    let (paging, _store) = open(128, 128);
    let [first, second] = [0; 2].map(|_| {
        let id = paging.reserve(&Contract::hard(32).with_swap(100));
        id.expect("frames")
    });
    let memory = Addresses::reserve(40);
    let area = || paging.create_area(20, Sharing::Conserve).expect("an area");
    let at = |page: usize| memory.start().wrapping_add(page * common::BYTES);
    // SAFETY: the addresses were reserved for this, and are used by this test only.
    let attach = |id, area, page| unsafe { paging.attach_at(id, area, at(page), 20) };
    attach(first, area(), 10).expect("attached");
    memory.store(10, 1);
    let (own, data) = (area(), paging.create_image(data(), Sharing::Conserve));
    let data = data.expect("an area");
    let copies = paging.create_area(PAGES, Sharing::Conserve);
    let copies = copies.expect("an area");
    for page in [0, 10, 20] {
        let refused = attach(second, own, page);
        assert!(matches!(refused, Err(Error::Occupied { pages: 20, .. })));
    }
    // SAFETY: as above.
    let refused = unsafe { paging.attach_read_only(second, data, at(0)) };
    assert!(matches!(refused, Err(Error::Occupied { .. })));
    // SAFETY: as above.
    let refused = unsafe { paging.attach_copied(second, data, copies, at(0)) };
    assert!(matches!(refused, Err(Error::Occupied { .. })));
    assert_eq!(memory.load(10), 1);
    while paging.retire_step(first, 1).expect("steps") == Ending::More {}
    attach(second, own, 20).expect("attached");
    memory.store(20, 2);
    while paging.end_step(first, 7).expect("steps") == Ending::More {}
    assert_eq!(memory.load(20), 2, "the end takes nothing of it");
    paging.audit();
}
