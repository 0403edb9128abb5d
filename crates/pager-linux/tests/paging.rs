//! Tenants see zeros first, then what they wrote, regardless of evictions in between.

mod common;

use common::{Addresses, Fails, open};
use leasehold_pager::{Contract, Ending, Refused, Sharing};
use leasehold_pager_linux::{Error, Options, Paging, SwapFile};

#[test]
fn a_tenant_finds_what_it_wrote_however_small_its_reservation() {
    let (paging, store) = open(64, 256);
    let id = paging.reserve(&Contract::hard(6)).expect("frames");
    let area = paging.create_area(100, Sharing::Conserve).expect("an area");
    let memory = Addresses::reserve(100);
    memory.attach(&paging, id, area);
    for fails in [Fails::Not, Fails::Short, Fails::Interrupted] {
        store.set(fails);
        for page in 0..100 {
            memory.fill(page, u64::from(page));
            paging.audit();
        }
        for page in (0..100).rev() {
            assert!(memory.holds(page, u64::from(page)), "page {page}");
        }
    }
    let counts = paging.counts(id).expect("there");
    assert!(counts.major >= 3 * 94 && counts.written >= 94, "{counts:?}");
    assert!(counts.writes <= counts.written / 2, "clusters: {counts:?}");
    assert!(paging.held().used <= 6 + 64);
}

#[test]
fn pages_go_through_a_real_swap_file_and_leave_no_file_behind() {
    // The test's own directory: the system's for temporary files may be in memory.
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let path = directory.path().join("swap");
    let store = match SwapFile::create(&path, 512) {
        Ok(store) => store,
        Err(error) => {
            println!("skipped: {error}");
            return;
        }
    };
    assert!(!path.exists());
    let paging = Paging::open(Options {
        store: Some(Box::new(store)),
        ..Options::new(64)
    })
    .expect("a kernel with userfaultfd");
    let id = paging.reserve(&Contract::hard(16)).expect("frames");
    let area = paging.create_area(300, Sharing::Conserve).expect("an area");
    let memory = Addresses::reserve(300);
    memory.attach(&paging, id, area);
    for round in 0..3 {
        for page in 0..300 {
            assert!(round == 0 || memory.holds(page, u64::from(page) + round - 1));
            memory.fill(page, u64::from(page) + round);
        }
    }
    paging.audit();
    assert!(paging.counts(id).expect("there").major > 500);
}

#[test]
fn pages_that_were_only_read_are_not_written_out() {
    let (paging, store) = open(64, 256);
    let id = paging.reserve(&Contract::hard(8)).expect("frames");
    let area = paging.create_area(64, Sharing::Conserve).expect("an area");
    let memory = Addresses::reserve(64);
    memory.attach(&paging, id, area);
    for page in (0..64).cycle().take(200) {
        assert_eq!(memory.load(page), 0);
    }
    assert_eq!(paging.counts(id).expect("there").written, 0);
    // A write after a read traps once, and is known of then.
    assert_eq!(memory.load(7), 0);
    memory.store(7, 70);
    memory.store(7, 71);
    for page in 8..64 {
        memory.load(page);
    }
    assert_eq!(memory.load(7), 71);
    assert_eq!(paging.counts(id).expect("there").written, 1);
    assert_eq!(store.writes.load(std::sync::atomic::Ordering::Relaxed), 1);
}

#[test]
fn a_page_that_is_touched_again_stays_and_one_that_is_not_goes() {
    let (paging, _store) = open(64, 256);
    let id = paging.reserve(&Contract::hard(9)).expect("frames");
    let area = paging.create_area(64, Sharing::Conserve).expect("an area");
    let memory = Addresses::reserve(64);
    memory.attach(&paging, id, area);
    for page in 0..64 {
        memory.store(page, u64::from(page));
        if page >= 5 {
            // Referenced between any two looks of the policy, so it is never the victim.
            assert_eq!(memory.load(5), 5);
        }
    }
    let counts = paging.counts(id).expect("there");
    assert_eq!(counts.major, 0, "{counts:?}");
    assert_eq!(counts.evicted, 64 - 9);
}

#[test]
fn one_page_of_two_tenants_is_one_frame_and_evicting_it_unmaps_it_from_the_evictor_alone() {
    let (paging, _store) = open(64, 256);
    let large = paging.reserve(&Contract::hard(16)).expect("frames");
    let small = paging.reserve(&Contract::hard(4)).expect("frames");
    let area = paging.create_area(16, Sharing::Conserve).expect("an area");
    let (ours, theirs) = (Addresses::reserve(16), Addresses::reserve(16));
    ours.attach(&paging, large, area);
    theirs.attach(&paging, small, area);
    for page in 0..15 {
        ours.fill(page, u64::from(page));
    }
    for round in 1..4 {
        for page in 0..15 {
            assert!(theirs.holds(page, u64::from(page) + 100 * (round - 1)));
            theirs.fill(page, u64::from(page) + 100 * round);
            // Seen at once: it is the same frame.
            assert!(ours.holds(page, u64::from(page) + 100 * round));
        }
    }
    paging.audit();
    let (ours, theirs) = (paging.counts(large), paging.counts(small));
    let (ours, theirs) = (ours.expect("there"), theirs.expect("there"));
    assert_eq!((ours.major, ours.robbed, ours.evicted), (0, 0, 0));
    assert_eq!((theirs.major, theirs.written), (0, 0));
    assert!(theirs.unmapped >= 11, "{theirs:?}");
    assert!(paging.held().used <= 15 + 64);
}

#[test]
fn an_area_that_others_have_outlives_the_tenant_that_filled_it() {
    let (paging, _store) = open(64, 256);
    let first = paging.reserve(&Contract::hard(16)).expect("frames");
    let second = paging.reserve(&Contract::hard(4)).expect("frames");
    let area = paging.create_area(16, Sharing::Conserve).expect("an area");
    let (ours, theirs) = (Addresses::reserve(16), Addresses::reserve(16));
    ours.attach(&paging, first, area);
    theirs.attach(&paging, second, area);
    for page in 0..16 {
        ours.fill(page, u64::from(page));
    }
    assert!(theirs.holds(3, 3));
    while paging.end_step(first, 3).expect("steps") == Ending::More {
        paging.audit();
    }
    for page in 0..16 {
        assert!(theirs.holds(page, u64::from(page)), "page {page}");
    }
    paging.audit();
}

#[test]
fn a_locked_area_is_mapped_for_all_and_never_faults_again() {
    let (paging, _store) = open(64, 256);
    let first = paging.reserve(&Contract::hard(12)).expect("frames");
    let second = paging.reserve(&Contract::hard(12)).expect("frames");
    let shared = paging.create_area(8, Sharing::Conserve).expect("an area");
    let private = paging.create_area(32, Sharing::Conserve).expect("an area");
    let (ours, theirs, own) = (
        Addresses::reserve(8),
        Addresses::reserve(8),
        Addresses::reserve(32),
    );
    ours.attach(&paging, first, shared);
    ours.fill(2, 22);
    theirs.attach(&paging, second, shared);
    own.attach(&paging, second, private);
    assert_eq!(paging.lock(shared).expect("room"), 8);
    let before = paging.counts(second).expect("there");
    for round in 0..3 {
        for page in 0..32 {
            own.fill(page, u64::from(page));
            theirs.load(page % 8);
        }
        assert!(theirs.holds(2, 22) && ours.holds(2, 22), "round {round}");
    }
    paging.audit();
    let after = paging.counts(second).expect("there");
    assert_eq!(after.minor, before.minor);
    assert_eq!(paging.held().used - 8, paging.held().used.min(40) - 8);
    paging.unlock(shared).expect("frames");
    assert!(theirs.holds(2, 22));
    paging.audit();
}

#[test]
fn what_cannot_be_stored_is_refused_before_it_is_needed() {
    let (paging, _store) = open(64, 64);
    assert!(matches!(
        paging.create_area(60, Sharing::Conserve),
        Err(Error::SwapFull {
            needed: 60,
            left: 56
        })
    ));
    let area = paging.create_area(40, Sharing::Conserve).expect("an area");
    let refused = paging.create_area(20, Sharing::Conserve);
    assert!(matches!(refused, Err(Error::SwapFull { left: 16, .. })));
    paging.discard_area(area).expect("no tenant's");
    paging.create_area(56, Sharing::Conserve).expect("an area");
    let id = paging
        .reserve(&Contract::hard(10).with_swap(0))
        .expect("frames");
    let area = paging
        .create_resident_area(20, Sharing::Conserve)
        .expect("an area");
    let memory = Addresses::reserve(20);
    let refused = memory.try_attach(&paging, id, area);
    assert!(matches!(refused, Err(Error::Refused(Refused::Swap { .. }))));
}

#[test]
fn memory_that_grows_is_inaccessible_before() {
    let (paging, _store) = open(64, 256);
    let id = paging.reserve(&Contract::hard(8)).expect("frames");
    let area = paging.create_area(40, Sharing::Conserve).expect("an area");
    let memory = Addresses::reserve(40);
    // SAFETY: the addresses were reserved for this.
    let at = unsafe { paging.attach_at(id, area, memory.start(), 3) }.expect("attached");
    let mut written = 0;
    for accessible in [3, 4, 20, 40] {
        paging.grow(at, accessible).expect("room");
        for page in written..accessible {
            assert_eq!(memory.load(page), 0);
            memory.fill(page, u64::from(page));
        }
        written = accessible;
        assert!((0..written).all(|page| memory.holds(page, u64::from(page))));
        let beyond = memory.start().wrapping_add(accessible as usize * 4096);
        if accessible < 40 {
            assert!(paging.touch(beyond, 1, false).is_err());
        }
    }
    assert!(paging.grow(at, 41).is_err());
    paging.audit();
}

#[test]
fn a_sequential_writer_faults_once_for_many_pages_and_evicts_nothing_for_it() {
    let paging = Paging::open(Options {
        ahead: 16,
        ..Options::new(512)
    })
    .expect("a kernel with userfaultfd");
    let id = paging.reserve(&Contract::hard(200)).expect("frames");
    let area = paging
        .create_resident_area(200, Sharing::Conserve)
        .expect("an area");
    let memory = Addresses::reserve(200);
    memory.attach(&paging, id, area);
    for page in 0..200 {
        memory.fill(page, u64::from(page));
    }
    let counts = paging.counts(id).expect("there");
    assert!(counts.zero <= 20, "{counts:?}");
    assert_eq!(counts.zero + counts.ahead, 200);
    assert_eq!((counts.evicted, counts.unmapped), (0, 0));
    assert!((0..200).all(|page| memory.holds(page, u64::from(page))));
}
