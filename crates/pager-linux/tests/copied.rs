//! Copy on write: pages are shared until they are written to, and charged before they are copied.

mod common;

use std::io::Write;

use common::{Addresses, open};
use leasehold_pager::{Contract, Ending, Sharing};

/// A file of `pages` pages of which each is filled with its number.
fn image(pages: u32) -> std::fs::File {
    let mut file = tempfile::tempfile().expect("a file");
    for page in 0..pages {
        let words = [u64::from(page); 512];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        file.write_all(&bytes).expect("room");
    }
    file
}

#[test]
fn what_one_tenant_writes_to_an_image_the_others_do_not_see() {
    let (paging, _store) = open(256, 512);
    let area = paging
        .create_image(image(40), Sharing::Conserve)
        .expect("an area");
    let tenants = [0; 3].map(|_| {
        let id = paging.reserve(&Contract::hard(50)).expect("frames");
        let copies = paging.create_area(40, Sharing::Conserve).expect("an area");
        let memory = Addresses::reserve(40);
        memory.attach_copied(&paging, id, area, copies);
        (id, memory)
    });
    for (_, memory) in &tenants {
        assert!((0..40).all(|page| memory.load(page) == u64::from(page)));
    }
    // One frame for each page, for any number of sharers.
    assert!(paging.held().used <= 40);
    for (at, (_, memory)) in tenants.iter().enumerate() {
        for page in (at as u32..40).step_by(5) {
            memory.store(page, 1_000 * at as u64 + u64::from(page));
        }
    }
    for (at, (id, memory)) in tenants.iter().enumerate() {
        for page in 0..40 {
            let written = page >= at as u32 && (page - at as u32).is_multiple_of(5);
            let expected = u64::from(page) + if written { 1_000 * at as u64 } else { 0 };
            assert_eq!(memory.load(page), expected);
        }
        let counts = paging.counts(*id).expect("there");
        assert_eq!(counts.copied, 8, "{counts:?}");
        let account = paging.account(*id).expect("there");
        assert!(account.balances() && account.owned + account.conserved <= 50);
    }
    paging.audit();
    for (id, _) in tenants {
        while paging.end_step(id, 7).expect("steps") == Ending::More {}
        paging.audit();
    }
    assert_eq!(paging.unreserved(), 256);
    assert!(paging.held().used <= 64);
}

#[test]
fn copies_are_written_out_and_originals_are_not() {
    let (paging, store) = open(64, 512);
    let area = paging
        .create_image(image(60), Sharing::Conserve)
        .expect("an area");
    let id = paging.reserve(&Contract::hard(8)).expect("frames");
    let copies = paging.create_area(60, Sharing::Conserve).expect("an area");
    let memory = Addresses::reserve(60);
    let both = memory.attach_copied(&paging, id, area, copies);
    for page in 0..60 {
        assert_eq!(memory.load(page), u64::from(page));
    }
    assert_eq!(paging.counts(id).expect("there").written, 0);
    for page in (0..60).step_by(2) {
        memory.store(page, 7_000 + u64::from(page));
        paging.audit();
    }
    for _ in 0..3 {
        for page in 0..60 {
            let expected = u64::from(page) + if page % 2 == 0 { 7_000 } else { 0 };
            assert_eq!(memory.load(page), expected);
        }
    }
    assert!(store.writes.load(std::sync::atomic::Ordering::Relaxed) > 0);
    paging.audit();
    paging.detach(both.shared).expect("attached");
    assert_eq!(paging.account(id).expect("there").free, 8);
    paging.audit();
}

#[test]
fn an_image_larger_than_its_blocks_is_copied_page_by_page_on_few_mappings() {
    const PAGES: u32 = 3_000;
    let (paging, _store) = open(4_096, 8_192);
    let area = paging
        .create_image(image(PAGES), Sharing::Conserve)
        .expect("an area");
    let id = paging.reserve(&Contract::hard(4_000)).expect("frames");
    let copies = paging
        .create_area(PAGES, Sharing::Conserve)
        .expect("an area");
    let memory = Addresses::reserve(PAGES);
    memory.attach_copied(&paging, id, area, copies);
    // Those of this memory: other tests map and unmap meanwhile.
    let from = memory.start() as usize;
    let mappings = || {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
        let starts = maps.lines().filter_map(|line| {
            let (start, _) = line.split_once('-')?;
            usize::from_str_radix(start, 16).ok()
        });
        starts
            .filter(|start| (from..from + PAGES as usize * 4096).contains(start))
            .count()
    };
    let before = mappings();
    for page in (0..PAGES).step_by(2) {
        memory.store(page, 1);
    }
    let more = mappings() - before;
    assert!(more < 1_100, "{more}");
    assert_eq!(paging.account(id).expect("there").owned, PAGES / 2);
    for page in 0..PAGES {
        let expected = if page % 2 == 0 { 1 } else { u64::from(page) };
        assert_eq!(memory.load(page), expected);
    }
    paging.audit();
}
