//! Finite resources besides frames: kernel mappings, places in the store, descriptors. Each tenant
//! has a share, is charged before it gets anything, and takes nothing from another's share.

mod common;

use std::collections::BTreeSet;
use std::io::Write;

use common::{Addresses, BYTES, open};
use leasehold_pager::{AttachmentId, Contract, Ending, ReservationId, Sharing};
use leasehold_pager_linux::{Error, Limits, Paging, SwapFile, SwapFileError};

const MANY: u32 = 100_000;

fn image(pages: u32) -> std::fs::File {
    let mut file = tempfile::tempfile().expect("a file");
    for page in 0..pages {
        let words = [u64::from(page); 512];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        file.write_all(&bytes).expect("room");
    }
    file
}

/// Kernel mappings of the process.
fn mappings() -> Vec<(usize, usize)> {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    let range = |line: &str| {
        let (from, to) = line.split(' ').next()?.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        Some((number(from)?, number(to)?))
    };
    maps.lines().filter_map(range).collect()
}

/// Kernel mappings at these addresses, with what is next to them in the same mapping.
fn mappings_at(addresses: &Addresses) -> usize {
    let start = addresses.start() as usize;
    let end = start + addresses.pages() as usize * BYTES;
    let all = mappings().into_iter();
    all.filter(|&(from, to)| from < end && to > start).count()
}

#[test]
fn copies_take_as_many_mappings_as_their_tenant_has_and_lose_nothing() {
    const PAGES: u32 = 600;
    let (paging, _store) = open(2_048, 4_096);
    for mappings in [4, 20, 64, 200, 2_000] {
        let area = paging
            .create_image(image(PAGES), Sharing::Conserve)
            .expect("an area");
        let limits = Limits {
            mappings,
            places: PAGES,
        };
        let id = paging
            .reserve_limited(&Contract::hard(1_000), limits)
            .expect("room");
        let copies = paging
            .create_area_for(id, PAGES, Sharing::Conserve)
            .expect("an area");
        let memory = Addresses::reserve(PAGES);
        memory.attach_copied(&paging, id, area, copies);
        for page in (0..PAGES).step_by(2) {
            memory.store(page, 7);
        }
        for page in 0..PAGES {
            let expected = if page % 2 == 0 { 7 } else { u64::from(page) };
            assert_eq!(memory.load(page), expected);
        }
        let (charged, found) = (paging.mappings(id), mappings_at(&memory));
        assert!(charged <= mappings, "{charged} of {mappings}");
        assert!(found <= charged as usize, "{found} of {charged}");
        paging.audit();
        while paging.end_step(id, 64).expect("there") == Ending::More {}
        assert_eq!(mappings_at(&memory), 1);
    }
    paging.audit();
}

#[test]
fn attachments_are_refused_beyond_a_share_and_what_goes_can_come_again() {
    let (paging, _store) = open(64, 1_024);
    let limits = Limits {
        mappings: 9,
        places: 100,
    };
    let id = paging
        .reserve_limited(&Contract::hard(8), limits)
        .expect("room");
    // More than is attached, so that none continues another one.
    let memory = [0; 6].map(|_| Addresses::reserve(4));
    for _ in 0..3 {
        let mut attached = Vec::new();
        for (number, addresses) in memory.iter().enumerate() {
            let area = paging
                .create_area_for(id, 2, Sharing::Conserve)
                .expect("an area");
            match addresses.try_attach(&paging, id, area) {
                Ok(at) => attached.push(at),
                Err(Error::Mappings { needed, left, .. }) => {
                    assert!(number == 4 && left < needed, "{number}: {needed} of {left}");
                    paging.discard_area(area).expect("no tenant's");
                    break;
                }
                Err(error) => panic!("{error}"),
            }
            addresses.fill(1, 1);
        }
        assert_eq!(attached.len(), 4);
        for at in attached {
            paging.detach(at).expect("attached");
        }
        assert_eq!(paging.mappings(id), 0);
    }
    paging.audit();
}

#[test]
fn a_memory_that_grows_page_by_page_stays_one_mapping() {
    let (paging, _store) = open(64, 4_096);
    let id = paging.reserve(&Contract::hard(8)).expect("frames");
    let area = paging
        .create_area(2_000, Sharing::Conserve)
        .expect("an area");
    let memory = Addresses::reserve(2_000);
    // SAFETY: the addresses are this test's.
    let at = unsafe { paging.attach_at(id, area, memory.start(), 1) }.expect("attached");
    for page in 1..1_000 {
        paging.grow(at, page + 1).expect("room");
        memory.fill(page, 1);
    }
    let found = mappings_at(&memory);
    assert!(found <= 3, "{found} mappings");
    assert!((1..1_000).all(|page| memory.holds(page, 1)));
}

#[test]
fn places_are_promised_when_a_tenant_starts_and_no_other_takes_them() {
    let (paging, _store) = open(64, 256);
    let limits = |places| Limits {
        mappings: MANY,
        places,
    };
    let contract = Contract::hard(4);
    let greedy = paging
        .reserve_limited(&contract, limits(100))
        .expect("room");
    let modest = paging
        .reserve_limited(&contract, limits(100))
        .expect("room");
    let refused = paging.reserve_limited(&contract, limits(100));
    assert!(matches!(
        refused,
        Err(Error::SwapFull {
            needed: 100,
            left: 48
        })
    ));
    let mut taken = 0;
    while let Ok(area) = paging.create_area_for(greedy, 3, Sharing::Conserve) {
        Addresses::reserve(3).attach(&paging, greedy, area);
        taken += 3;
    }
    assert_eq!(taken, 99);
    // All that the other was promised is there, and every page of it can be written out.
    let area = paging.create_area_for(modest, 100, Sharing::Conserve);
    let memory = Addresses::reserve(100);
    memory.attach(&paging, modest, area.expect("it was promised"));
    for page in 0..100 {
        memory.fill(page, u64::from(page));
    }
    assert!((0..100).all(|page| memory.holds(page, u64::from(page))));
    paging.audit();
    while paging.end_step(greedy, 64).expect("there") == Ending::More {}
    paging
        .reserve_limited(&contract, limits(100))
        .expect("what was given back");
}

#[test]
fn what_is_trimmed_is_no_longer_promised() {
    let (paging, _store) = open(64, 256);
    let limits = Limits {
        mappings: MANY,
        places: 100,
    };
    let id = paging
        .reserve_limited(&Contract::hard(4), limits)
        .expect("room");
    let memory = Addresses::reserve(90);
    let area = paging
        .create_area_for(id, 90, Sharing::Conserve)
        .expect("an area");
    // SAFETY: the addresses are this test's.
    let at = unsafe { paging.attach_at(id, area, memory.start(), 30) }.expect("attached");
    assert!(paging.create_area_for(id, 70, Sharing::Conserve).is_err());
    assert_eq!(paging.trim(at).expect("attached"), 60);
    let more = paging.create_area_for(id, 70, Sharing::Conserve);
    paging
        .discard_area(more.expect("room"))
        .expect("no tenant's");
    paging.detach(at).expect("attached");
    assert!(paging.create_area_for(id, 100, Sharing::Conserve).is_ok());
}

#[test]
fn areas_take_no_descriptors() {
    let (paging, _store) = open(64, 16_384);
    let id = paging.reserve(&Contract::hard(8)).expect("frames");
    let count = || std::fs::read_dir("/proc/self/fd").expect("proc").count();
    let before = count();
    let mut areas = Vec::new();
    for _ in 0..5_000 {
        areas.push(paging.create_area(2, Sharing::Conserve).expect("an area"));
    }
    for &area in &areas[..20] {
        Addresses::reserve(2).attach(&paging, id, area);
    }
    // Other tests open files meanwhile.
    assert!(count() < before + 100);
    paging.audit();
}

#[test]
fn the_addresses_of_thousands_of_attachments_are_freed_some_a_step() {
    const MEMORIES: usize = 4_100;
    let (paging, _store) = open(16_384, 65_536);
    let ids = [0; 2].map(|_| paging.reserve(&Contract::hard(8_000)).expect("frames"));
    let (mut mine, mut others) = (Vec::new(), Vec::new());
    for number in 0..MEMORIES {
        let area = paging.create_area(1, Sharing::Conserve).expect("an area");
        let memory = Addresses::reserve(1);
        let other = number % 16 == 0;
        memory.attach(&paging, ids[usize::from(other)], area);
        memory.fill(0, number as u64);
        if other { &mut others } else { &mut mine }.push((memory, number as u64));
    }
    let mut steps = 0;
    while paging.retire_step(ids[0], 64).expect("there") == Ending::More {
        steps += 1;
        assert!(paging.retire_step(ids[0], 64).is_ok());
        steps += 1;
        if steps > 10_000 {
            break;
        }
    }
    // 4 attachments a step.
    assert!(
        (mine.len() / 4..mine.len() / 4 + 4).contains(&steps),
        "{steps}"
    );
    let starts: BTreeSet<usize> = mappings().into_iter().map(|(from, _)| from).collect();
    let is_shown = |memory: &Addresses| starts.contains(&(memory.start() as usize));
    let shown = mine.iter().filter(|(memory, _)| is_shown(memory)).count();
    // Neighbours that are inaccessible are one mapping.
    assert!(shown < mine.len() / 8, "{shown}");
    assert!(others.iter().all(|(memory, seed)| memory.holds(0, *seed)));
    while paging.end_step(ids[0], 64).expect("there") == Ending::More {}
    assert!(others.iter().all(|(memory, seed)| memory.holds(0, *seed)));
    paging.audit();
    assert_eq!(paging.unreserved(), 16_384 - 8_000);
}

#[test]
fn a_large_attachment_is_moved_aside_in_pieces() {
    const PAGES: u32 = 9_000;
    let (paging, _store) = open(16_384, 16_384);
    let id = paging.reserve(&Contract::hard(PAGES)).expect("frames");
    let area = paging
        .create_area(PAGES, Sharing::Conserve)
        .expect("an area");
    let memory = Addresses::reserve(PAGES);
    memory.attach(&paging, id, area);
    for page in 0..PAGES {
        memory.store(page, 1);
    }
    let mut steps = 0;
    while paging.retire_step(id, 1_000).expect("there") == Ending::More {
        steps += 1;
    }
    // 1,000 pages and up to 512 more of a page table.
    assert!((6..=10).contains(&steps), "{steps}");
    assert_eq!(paging.held().used, PAGES);
    while paging.end_step(id, 512).expect("there") == Ending::More {}
    paging.audit();
    assert_eq!((paging.held().used, paging.unreserved()), (0, 16_384));
}

/// A page in every 2 MiB, each with a page table of its own.
const TABLE: u32 = 512;
const TABLES: u32 = 256;

fn sparse(paging: &Paging, id: ReservationId) -> (AttachmentId, Addresses) {
    let pages = TABLE * TABLES;
    let area = paging
        .create_area(pages, Sharing::Conserve)
        .expect("an area");
    let memory = Addresses::reserve(pages);
    let at = memory.attach(paging, id, area);
    for table in 0..TABLES {
        memory.store(table * TABLE, 1);
    }
    (at, memory)
}

#[test]
fn an_area_is_detached_with_few_page_tables_a_step() {
    let (paging, _store) = open(16_384, 262_144);
    let id = paging.reserve(&Contract::hard(TABLES)).expect("frames");
    let (at, _memory) = sparse(&paging, id);
    const LOOKS: u32 = TABLE * TABLES / 4_096;
    let mut steps = 0;
    while paging.detach_step(at, 4_096).expect("there") == Ending::More {
        steps += 1;
        paging.audit();
    }
    // It looks at 4,096 pages in a step first, and takes 16 page tables then.
    assert!(
        (LOOKS + TABLES / 16 - 2..LOOKS + TABLES / 16 + 4).contains(&steps),
        "{steps}"
    );
    assert_eq!(paging.held().used, 0);
}

#[test]
fn a_tenant_ends_with_few_page_tables_a_step() {
    let (paging, _store) = open(16_384, 262_144);
    let id = paging.reserve(&Contract::hard(TABLES)).expect("frames");
    let (_, _memory) = sparse(&paging, id);
    // However many pages a step may have.
    let mut steps = 0;
    while paging.retire_step(id, 4_096).expect("there") == Ending::More {
        steps += 1;
    }
    assert!(steps >= TABLES / 16, "{steps}");
    let mut steps = 0;
    while paging.end_step(id, 64).expect("there") == Ending::More {
        steps += 1;
    }
    assert!(steps >= TABLES / 16, "{steps}");
    paging.audit();
    assert_eq!((paging.held().used, paging.unreserved()), (0, 16_384));
}

#[test]
fn page_tables_of_pages_that_were_written_out_take_their_steps_too() {
    let (paging, _store) = open(16_384, 262_144);
    // All pages but a few have lost their entries when the last table is filled.
    let id = paging.reserve(&Contract::hard(8)).expect("frames");
    let (_, _memory) = sparse(&paging, id);
    let mut steps = 0;
    while paging.retire_step(id, 4_096).expect("there") == Ending::More {
        steps += 1;
    }
    assert!(steps >= TABLES / 16, "{steps}");
    let mut steps = 0;
    while paging.end_step(id, 4_096).expect("there") == Ending::More {
        steps += 1;
    }
    assert!(steps >= TABLES / 16, "{steps}");
    paging.audit();
}

#[test]
fn memory_is_no_place_for_a_swap_file() {
    let refused = SwapFile::create(std::path::Path::new("/dev/shm/leasehold-swap"), 8);
    let Err(error @ SwapFileError::InMemory { .. }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(
        error.to_string(),
        "swap file /dev/shm/leasehold-swap: found a directory on tmpfs, which is memory; allowed: \
         one on a file system that keeps its files on a disk"
    );
    assert!(!std::path::Path::new("/dev/shm/leasehold-swap").exists());
}
