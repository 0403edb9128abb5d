//! The ballast is made of prepared pages of the areas' file: a first touch takes one of them and none of the kernel's,
//! and they read as zeros whatever an earlier area had at the same place.

mod common;

use std::sync::{Mutex, MutexGuard, PoisonError};

use common::{Addresses, BYTES, MemoryStore, open};
use leasehold_door::Call;
use leasehold_door::faults::{Plan, arm_this_thread, disarm};
use leasehold_pager::{AreaId, Contract, Ending, PAGE, ReservationId, Sharing};
use leasehold_pager_linux::{Locking, Options, Paging};

/// The kernel's counts are the process's, and so is one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Pages of areas, and prepared ones, in the page tables of this process.
fn resident() -> u32 {
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("maps");
    let (mut is_area, mut kib) = (false, 0);
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let first = words.next().expect("a word");
        if !first.ends_with(':') {
            is_area = line.contains("leasehold-areas");
        } else if is_area && first == "Rss:" {
            let number = words.next().expect("a number");
            kib += number.parse::<u32>().expect("a number");
        }
    }
    kib / 4
}

/// Ends a tenant, and prepares what has come back if `refills`.
fn end(paging: &Paging, id: ReservationId, refills: bool) {
    while paging.end_step(id, 64).expect("there") == Ending::More {}
    paging.audit();
    while refills && !paging.refill(8).expect("memory") {}
    paging.audit();
}

/// Calls of a kind, or of all, that something makes.
fn calls(only: Option<Call>, of: impl FnOnce()) -> u64 {
    arm_this_thread(Plan {
        after: u64::MAX,
        failures: 0,
        errno: libc::ENOMEM,
        only,
    });
    of();
    disarm()
}

#[test]
fn a_first_touch_takes_a_prepared_page_and_none_of_the_kernels() {
    let _alone = alone();
    const PAGES: u32 = 500;
    const UNIT: u32 = 16;
    for (locking, ahead) in [(Locking::Never, 0), (Locking::IfAllowed, 16)] {
        for tracked in [false, true] {
            let paging = Paging::open(Options {
                store: Some(Box::new(MemoryStore::new(1_000))),
                locking,
                ahead,
                ..Options::new(1_000)
            });
            let paging = paging.expect("a kernel with userfaultfd");
            let id = paging.reserve(&Contract::hard(PAGES)).expect("frames");
            let area = match tracked {
                true => paging.create_area(PAGES, Sharing::Conserve),
                false => paging.create_resident_area(PAGES, Sharing::Conserve),
            };
            let memory = Addresses::reserve(PAGES);
            memory.attach(&paging, id, area.expect("an area"));
            for page in 0..PAGES {
                let before = paging.held();
                assert!(memory.is_zero(page));
                let held = paging.held();
                assert_eq!(held.used + held.ballast, 1_000, "the file is as large");
                assert_eq!(before.ballast - held.ballast, held.used - before.used);
                assert!((1_000..1_000 + UNIT).contains(&resident()), "page {page}");
                memory.store(page, 1);
            }
            paging.audit();
            assert_eq!(paging.held().used, PAGES);
        }
    }
}

#[test]
fn pages_behind_the_head_take_frames_of_the_ballast() {
    let _alone = alone();
    let (paging, _store) = open(256, 4_096);
    let reserve = || paging.reserve(&Contract::hard(100)).expect("frames");
    // As long as the head, with a frame for some of its pages.
    let (first, second) = (reserve(), reserve());
    let (all, behind) = (Addresses::reserve(256), Addresses::reserve(100));
    let area = |pages| {
        let area = paging.create_area(pages, Sharing::Conserve);
        area.expect("an area")
    };
    all.attach(&paging, first, area(256));
    behind.attach(&paging, second, area(100));
    // No unit stays whole.
    for page in (0..256).step_by(3) {
        all.fill(page, 1);
    }
    for page in 0..100 {
        behind.fill(page, u64::from(page));
        let held = paging.held();
        let sum = held.used + held.ballast;
        assert!(sum <= 256 && sum + 16 > 256, "{held:?}");
        paging.audit();
    }
    assert!((0..100).all(|page| behind.holds(page, u64::from(page))));
    assert!((0..256).step_by(3).all(|page| all.holds(page, 1)));
    end(&paging, second, false);
    end(&paging, first, true);
    assert_eq!(paging.held().ballast, 256);
}

/// The ways in which a page of an area is filled.
#[derive(Debug, Clone, Copy)]
enum Way {
    Touch,
    Copy,
    SwapIn,
    Host,
}

const PAGES: u32 = 48;

/// A tenant with an area of [`PAGES`] pages, at the place of the one before that has ended, and its addresses.
fn tenant(paging: &Paging, frames: u32) -> (ReservationId, AreaId, Addresses) {
    let id = paging.reserve(&Contract::hard(frames)).expect("frames");
    let area = paging
        .create_area(PAGES, Sharing::Conserve)
        .expect("an area");
    (id, area, Addresses::reserve(PAGES))
}

#[test]
fn the_next_area_at_the_same_place_reads_zeros_however_it_is_filled() {
    let _alone = alone();
    for way in [Way::Touch, Way::Copy, Way::SwapIn, Way::Host] {
        for refills in [false, true] {
            let (paging, _store) = open(256, 1_024);
            for round in 0..3 {
                let file = tempfile::tempfile().expect("a file");
                file.set_len(u64::from(PAGES) * PAGE).expect("room");
                let image = paging
                    .create_image(file, Sharing::Conserve)
                    .expect("an area");
                // All of its pages, or some.
                let step = [1, 2, 7][round];
                let (id, area, memory) = tenant(&paging, 80);
                memory.attach(&paging, id, area);
                for page in (0..PAGES).step_by(step) {
                    memory.fill(page, 5);
                }
                end(&paging, id, refills);
                let frames = if matches!(way, Way::SwapIn) { 8 } else { 120 };
                let (id, area, memory) = tenant(&paging, frames);
                match way {
                    Way::Copy => {
                        memory.attach_copied(&paging, id, image, area);
                    }
                    _ => {
                        memory.attach(&paging, id, area);
                    }
                }
                next_tenant(&paging, &memory, way);
                paging.audit();
                end(&paging, id, refills);
                if !matches!(way, Way::Copy) {
                    paging.discard_area(image).expect("not attached");
                }
            }
        }
    }
}

/// Finds zeros except where it has written a word.
fn next_tenant(paging: &Paging, memory: &Addresses, way: Way) {
    let is_clean = |page, word| {
        memory.load(page) == word && {
            memory.store(page, 0);
            let is_zero = memory.is_zero(page);
            memory.store(page, word);
            is_zero
        }
    };
    match way {
        Way::Touch => assert!((0..PAGES).all(|page| memory.is_zero(page))),
        Way::Copy => {
            for page in (0..PAGES).step_by(2) {
                memory.store(page, 9);
                assert!(is_clean(page, 9) && memory.is_zero(page + 1));
            }
        }
        Way::SwapIn => {
            (0..PAGES).for_each(|page| memory.store(page, 9));
            paging.audit();
            assert!((0..PAGES).all(|page| is_clean(page, 9)));
        }
        Way::Host => {
            let file = tempfile::tempfile().expect("a file");
            for page in 0..PAGES as usize {
                let start = memory.start().wrapping_add(page * BYTES);
                assert_eq!(paging.touch(start, BYTES, page % 2 == 0), Ok(BYTES));
                // SAFETY: within the addresses, and mapped.
                let bytes = unsafe { std::slice::from_raw_parts(start, BYTES) };
                assert_eq!(rustix::io::pwrite(&file, bytes, 0), Ok(BYTES));
                let mut copy = [1; BYTES];
                assert_eq!(rustix::io::pread(&file, &mut copy, 0), Ok(BYTES));
                assert!(copy.iter().all(|&byte| byte == 0));
            }
        }
    }
}

#[test]
fn an_area_punches_out_what_was_touched_and_leaves_what_is_prepared() {
    let _alone = alone();
    const ALL: u32 = 4_096;
    let (paging, _store) = open(ALL, 2 * ALL);
    let memory = Addresses::reserve(ALL);
    let mut before = None;
    for touched in [0, 1, 4, 40] {
        let live = || {
            let id = paging.reserve(&Contract::hard(64)).expect("frames");
            let area = paging.create_area(ALL, Sharing::Conserve);
            memory.attach(&paging, id, area.expect("an area"));
            for page in 0..touched {
                memory.store(page * 100, 1);
            }
            while paging.end_step(id, 64).expect("there") == Ending::More {}
        };
        let punched = calls(Some(Call::Punch), live);
        assert_eq!(punched, u64::from(touched));
        assert_eq!(paging.held().ballast, ALL - touched);
        while !paging.refill(8).expect("memory") {}
        let all = calls(None, live);
        // To map a page, to take it from the ballast, to unmap and to punch it; some steps more.
        let one = *before.get_or_insert(all);
        assert!(
            all <= one + 5 * u64::from(touched),
            "{touched}: {all}, {one}"
        );
        while !paging.refill(8).expect("memory") {}
        assert_eq!(paging.held().ballast, ALL);
        paging.audit();
    }
}

#[test]
fn a_step_of_an_end_makes_few_calls_and_punches_out_few_prepared_pages() {
    let _alone = alone();
    const ALL: u32 = 4_096;
    for stride in 1..12 {
        let (paging, _store) = open(ALL, 2 * ALL);
        let id = paging.reserve(&Contract::hard(1_000)).expect("frames");
        let area = paging.create_area(ALL, Sharing::Conserve);
        let memory = Addresses::reserve(ALL);
        memory.attach(&paging, id, area.expect("an area"));
        for page in (0..ALL).step_by(stride).take(1_000) {
            memory.store(page, 1);
        }
        paging.retire(id).expect("there");
        let mut ended = false;
        while !ended {
            let before = paging.held();
            let punched = calls(Some(Call::Punch), || {
                ended = paging.end_step(id, 64).expect("there") == Ending::Done;
            });
            let held = paging.held();
            assert!(punched <= 8, "{punched} calls at {stride}");
            assert!(before.used - held.used <= 64 && before.ballast - held.ballast <= 32);
        }
        paging.audit();
        while !paging.refill(8).expect("memory") {}
        assert_eq!(paging.held().ballast, ALL);
    }
}

#[test]
fn a_host_without_memory_leaves_the_ballast_smaller_and_whole_again_later() {
    let _alone = alone();
    let (paging, _store) = open(256, 1_024);
    let live = || {
        let (id, area, memory) = tenant(&paging, 64);
        memory.attach(&paging, id, area);
        for page in 0..PAGES {
            assert!(memory.is_zero(page));
            memory.fill(page, 5);
        }
        end(&paging, id, false);
    };
    for only in [Some(Call::Advise), None] {
        live();
        // Populating fails, and so does punching out what may have been populated.
        arm_this_thread(Plan {
            after: 0,
            failures: u64::MAX,
            errno: libc::ENOMEM,
            only,
        });
        assert!(paging.refill(8).is_err() && paging.refill(8).is_err());
        disarm();
        let held = paging.held();
        assert_eq!((held.ballast, held.used), (256 - PAGES, 0));
        live();
        while !paging.refill(8).expect("memory") {}
        assert_eq!(paging.held().ballast, 256);
        paging.audit();
    }
    // What is lent cannot be dropped now: the caller is told, and does not ask again and again.
    arm_this_thread(Plan {
        after: 0,
        failures: u64::MAX,
        errno: libc::ENOMEM,
        only: Some(Call::Punch),
    });
    paging.lend(128);
    assert!(paging.refill(8).is_err());
    disarm();
    while !paging.refill(8).expect("memory") {}
    assert_eq!(paging.held().ballast, 128);
    paging.audit();
}
