//! What memories hold from the beginning: contents that are shown in them, and zeros.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use leasehold_slots::address_range::PAGE;
use leasehold_slots::contents::Contents;
use leasehold_slots::engine::Wanted;
use leasehold_slots::range_pool::Claim;
use leasehold_slots::slot::SlotPool;
use leasehold_slots::warm_room::Keeper;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use wasmtime::LinearMemory;

const SEALS: SealFlags = SealFlags::WRITE
    .union(SealFlags::SHRINK)
    .union(SealFlags::GROW);

/// A file of so many pages; a byte of page n is `mark + n`.
fn file(pages: usize, mark: u8, seals: SealFlags) -> Arc<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = File::from(memfd_create("contents", flags).expect("a file"));
    for page in 0..pages {
        let bytes = [mark.wrapping_add(page as u8); PAGE];
        let at = (page * PAGE) as u64;
        file.write_all_at(&bytes, at).expect("written");
    }
    fcntl_add_seals(&file, seals).expect("sealed");
    Arc::new(file)
}

/// Contents whose first page holds `mark`. Some begin within their file.
fn contents(first: usize, pages: usize, mark: u8) -> Contents {
    let before = usize::from(mark % 3);
    let file = file(before + pages, mark.wrapping_sub(before as u8), SEALS);
    match before {
        0 => Contents::new(file, first, pages).expect("sealed"),
        // SAFETY: sealed.
        _ => unsafe {
            let contents = Contents::of_constant(file, (before * PAGE) as u64, first, pages);
            contents.expect("it has them")
        },
    }
}

fn wanted(pages: usize) -> Wanted {
    Wanted {
        is_64: false,
        minimum: pages * PAGE,
        reserved: None,
        guard: 0,
    }
}

/// A memory of so many pages.
struct Memory {
    made: Box<dyn LinearMemory>,
    pages: usize,
}

impl Memory {
    fn new(pool: &SlotPool, pages: usize, contents: Option<&Contents>) -> Self {
        Self::kept(pool, pages, contents, None)
    }

    /// The same for a keeper.
    fn kept(
        pool: &SlotPool,
        pages: usize,
        contents: Option<&Contents>,
        keeper: Option<Keeper>,
    ) -> Self {
        let contents = contents.map(|contents| (contents, keeper));
        let made = pool.new_memory_showing(wanted(pages), contents);
        Self {
            made: made.expect("a slot"),
            pages,
        }
    }

    fn page(&mut self, page: usize) -> &mut [u8] {
        assert!(page < self.pages);
        // SAFETY: an accessible page of a memory that this value owns.
        unsafe { std::slice::from_raw_parts_mut(self.made.as_ptr().add(page * PAGE), PAGE) }
    }

    fn grow(&mut self, pages: usize) {
        self.made.grow_to(pages * PAGE).expect("grown");
        self.pages = pages;
    }

    /// Every page holds what it should: what is shown from a page on, or zeros.
    fn check(&mut self, shown: Option<(usize, usize, u8)>) {
        for page in 0..self.pages {
            let expected = match shown {
                Some((first, pages, mark)) if (first..first + pages).contains(&page) => {
                    mark.wrapping_add((page - first) as u8)
                }
                _ => 0,
            };
            let found = self.page(page);
            assert!(found.iter().all(|&byte| byte == expected), "page {page}");
        }
    }
}

fn clean(pool: &SlotPool) {
    while pool.clean_step(64).remaining > 0 {}
}

/// Mappings of this process that begin at these addresses.
fn mappings(start: usize, bytes: usize) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("readable");
    let begin = |line: &str| usize::from_str_radix(line.split('-').next()?, 16).ok();
    maps.lines()
        .filter_map(begin)
        .filter(|at| (start..start + bytes).contains(at))
        .count()
}

#[test]
fn contents_are_where_they_are_shown_and_zeros_elsewhere() {
    let pool = SlotPool::new(2, 8 * PAGE).expect("addresses");
    let shown = contents(3, 5, 10);
    let mut first = Memory::new(&pool, 20, Some(&shown));
    first.check(Some((3, 5, 10)));
    first.page(4).fill(0xee);
    first.page(9).fill(0xee);
    // Neither the file nor another memory has what was written.
    let mut second = Memory::new(&pool, 20, Some(&shown));
    second.check(Some((3, 5, 10)));
    second.grow(40);
    second.check(Some((3, 5, 10)));
}

#[test]
fn what_was_shown_is_gone_when_a_slot_is_clean_and_so_are_its_mappings() {
    let pool = SlotPool::new(1, 8 * PAGE).expect("addresses");
    let plain = || {
        let mut memory = Memory::new(&pool, 2000, None);
        let start = memory.made.as_ptr().addr();
        memory.check(None);
        drop(memory);
        clean(&pool);
        (start, mappings(start, 4 << 30))
    };
    let before = plain();
    for (first, pages) in [(3, 5), (0, 1), (700, 1300), (1999, 1), (4, 1024), (0, 2000)] {
        let shown = contents(first, pages, 1);
        let mut memory = Memory::new(&pool, 2000, Some(&shown));
        memory.check(Some((first, pages, 1)));
        for page in (0..2000).step_by(3) {
            memory.page(page).fill(0xee);
        }
        memory.grow(2100);
        memory.page(2099).fill(0xee);
        drop(memory);
        clean(&pool);
        assert_eq!(plain(), before, "{first} {pages}");
    }
}

/// Bytes of files that are mapped at these addresses.
fn shown_bytes(start: usize, bytes: usize) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("readable");
    let shown = maps.lines().filter(|line| line.contains("memfd:contents"));
    let ends = shown.filter_map(|line| {
        let (begin, end) = line.split_once(' ')?.0.split_once('-')?;
        let address = |text| usize::from_str_radix(text, 16).ok();
        Some((address(begin)?, address(end)?))
    });
    let inside = ends.filter(|(begin, _)| (start..start + bytes).contains(begin));
    inside.map(|(begin, end)| end - begin).sum()
}

#[test]
fn a_step_unmaps_no_more_than_one_page_table_covers() {
    const BLOCK: usize = 2 << 20;
    let pool = SlotPool::new(1, 0).expect("addresses");
    let shown = contents(100, 1900, 1);
    let mut memory = Memory::new(&pool, 2200, Some(&shown));
    for page in 0..2200 {
        memory.page(page).fill(0xee);
    }
    let start = memory.made.as_ptr().addr();
    drop(memory);
    let mut before = shown_bytes(start, 4 << 30);
    assert_eq!(before, 1900 * PAGE);
    while pool.state().dirty_pages > 0 {
        pool.clean_step(64);
        let now = shown_bytes(start, 4 << 30);
        assert!(before - now <= BLOCK, "{before} {now}");
        before = now;
    }
    assert_eq!(before, 0);
}

#[test]
fn a_memory_that_was_hardly_touched_is_clean_after_a_step_and_a_large_one_after_few() {
    let pool = SlotPool::new(1, 0).expect("addresses");
    let shown = contents(100, 1900, 1);
    // Steps: one for what four page tables cover.
    for (pages, steps) in [(2200, 2), (4 * 512, 1), (20 * 512, 5)] {
        for shown in [Some(&shown), None] {
            let mut memory = Memory::new(&pool, pages, shown);
            for page in [0, 150, 1999, pages - 1] {
                memory.page(page).fill(0xee);
            }
            let start = memory.made.as_ptr().addr();
            drop(memory);
            let mut taken = 0;
            while pool.state().dirty_pages > 0 {
                pool.clean_step(64);
                taken += 1;
            }
            match shown {
                Some(_) => assert_eq!(taken, steps, "{pages}"),
                None => assert_eq!(taken, pages.div_ceil(512), "{pages}"),
            }
            assert_eq!(shown_bytes(start, 4 << 30), 0);
            Memory::new(&pool, pages, None).check(None);
            clean(&pool);
        }
    }
}

#[test]
fn steps_of_any_size_clean_memories_of_any_kind() {
    let pool = SlotPool::new(3, 16 * PAGE).expect("addresses");
    let mut random = 7_u64;
    let mut below = |most: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % most as u64) as usize
    };
    let mut claim = Claim::default();
    for _ in 0..400 {
        let pages = 1 + below(1500);
        let first = below(pages);
        let place = (first, 1 + below(pages - first), below(200) as u8);
        let place = (below(3) > 0).then_some(place);
        let shown = place.map(|(first, pages, mark)| contents(first, pages, mark));
        let keeper = (below(2) > 0).then_some(Keeper(1));
        let mut memory = Memory::kept(&pool, pages, shown.as_ref(), keeper);
        memory.check(place);
        for _ in 0..below(40) {
            memory.page(below(pages)).fill(0xee);
        }
        drop(memory);
        if keeper.is_some() && place.is_some() {
            clean(&pool);
            Memory::kept(&pool, pages, shown.as_ref(), keeper).check(place);
            clean(&pool);
            pool.cool(Keeper(1), 0, &mut claim);
            while !claim.is_empty() {
                pool.clean_claimed(&mut claim, 1 + below(200));
            }
        }
        // One slot at least is clean, whatever else is left for later.
        while pool.state().clean == 0 || below(8) > 0 && pool.state().dirty_pages > 0 {
            pool.clean_step(1 + below(200));
        }
    }
}

#[test]
fn what_could_change_or_end_before_its_pages_is_no_contents() {
    let refused = |file, pages| {
        let refused = Contents::new(file, 0, pages);
        refused.expect_err("refused").kind()
    };
    for missing in [SealFlags::WRITE, SealFlags::SHRINK, SealFlags::GROW] {
        let file = file(2, 0, SEALS.difference(missing));
        assert_eq!(refused(file, 2), io::ErrorKind::InvalidInput);
    }
    for pages in [0, 3, usize::MAX / PAGE + 1] {
        let file = file(2, 0, SEALS);
        assert_eq!(refused(file, pages), io::ErrorKind::InvalidInput);
    }
    for start in [1, PAGE as u64 - 1, 2 * PAGE as u64, u64::MAX - 4095] {
        let file = file(3, 0, SEALS);
        // SAFETY: sealed.
        let refused = unsafe { Contents::of_constant(file, start, 0, 2) };
        let refused = refused.expect_err("refused").kind();
        assert_eq!(refused, io::ErrorKind::InvalidInput, "{start}");
    }
    let larger = contents(1, 2, 0);
    let pool = SlotPool::new(1, 0).expect("addresses");
    assert!(
        pool.new_memory_showing(wanted(2), Some((&larger, None)))
            .is_err(),
        "it ends behind the memory"
    );
    assert_eq!(pool.state().clean, 1);
}

const KEEPER: Option<Keeper> = Some(Keeper(1));

/// Faults of this thread that no disk took part in.
fn faults() -> i64 {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").expect("readable");
    let mut fields = stat.rsplit_once(") ").expect("a name").1.split(' ');
    let faults = fields.nth(7).expect("minflt");
    faults.parse().expect("a number")
}

#[test]
fn a_slot_that_is_kept_is_as_it_was_made_and_takes_no_fault() {
    let pool = SlotPool::new(2, 4 << 20).expect("addresses");
    let shown = contents(100, 900, 1);
    let place = Some((100, 900, 1));
    for round in 0..4 {
        let mut memory = Memory::kept(&pool, 1200, Some(&shown), KEEPER);
        memory.check(place);
        let before = faults();
        for page in (0..1200).step_by(2) {
            memory.page(page).fill(0xee);
        }
        if round > 0 {
            assert_eq!(faults() - before, 0, "in round {round}");
        }
        drop(memory);
        assert_eq!(pool.warm(Keeper(1)), 0, "not before it is clean");
        clean(&pool);
        assert_eq!(pool.warm(Keeper(1)), 1);
        assert_eq!((pool.state().warm, pool.state().clean), (1, 1));
    }
}

#[test]
fn a_slot_is_kept_for_the_same_keeper_contents_and_size_alone() {
    let pool = SlotPool::new(8, 4 << 20).expect("addresses");
    let (shown, other) = (contents(1, 20, 1), contents(1, 20, 50));
    drop(Memory::kept(&pool, 40, Some(&shown), KEEPER));
    clean(&pool);
    let own = Memory::kept(&pool, 40, Some(&shown), KEEPER).made.as_ptr();
    clean(&pool);
    for (pages, contents, mark, keeper) in [
        (40, &shown, 1, Some(Keeper(2))),
        (40, &shown, 1, None),
        (41, &shown, 1, KEEPER),
        (40, &other, 50, KEEPER),
    ] {
        let mut memory = Memory::kept(&pool, pages, Some(contents), keeper);
        assert_ne!(memory.made.as_ptr(), own);
        memory.check(Some((1, 20, mark)));
    }
    let mut memory = Memory::kept(&pool, 40, Some(&shown), KEEPER);
    assert_eq!(memory.made.as_ptr(), own);
    memory.check(Some((1, 20, 1)));
}

#[test]
fn what_a_kept_memory_grew_by_is_gone_when_it_is_clean() {
    let pool = SlotPool::new(1, 4 << 20).expect("addresses");
    let shown = contents(10, 20, 1);
    for grown in [1, 500, 3000] {
        let mut memory = Memory::kept(&pool, 40, Some(&shown), KEEPER);
        memory.grow(40 + grown);
        memory.page(40).fill(0xee);
        memory.page(40 + grown - 1).fill(0xee);
        memory.page(15).fill(0xee);
        drop(memory);
        clean(&pool);
        assert_eq!(pool.warm(Keeper(1)), 1);
        let mut memory = Memory::kept(&pool, 40, Some(&shown), KEEPER);
        assert_eq!(memory.made.byte_size(), 40 * PAGE);
        memory.check(Some((10, 20, 1)));
        memory.grow(40 + grown);
        memory.check(Some((10, 20, 1)));
        drop(memory);
        clean(&pool);
    }
}

#[test]
fn no_more_of_a_kept_slot_stays_resident_than_the_pool_says() {
    const KEPT: usize = 8;
    let pool = SlotPool::new(1, KEPT * PAGE).expect("addresses");
    let shown = contents(10, 100, 1);
    let mut memory = Memory::kept(&pool, 200, Some(&shown), KEEPER);
    for page in 0..200 {
        memory.page(page).fill(0xee);
    }
    drop(memory);
    clean(&pool);
    assert_eq!(pool.resident(), KEPT * PAGE);
    let mut memory = Memory::kept(&pool, 200, Some(&shown), KEEPER);
    assert_eq!(pool.resident(), 0);
    let before = faults();
    for page in 0..KEPT {
        memory.page(page).fill(1);
    }
    assert_eq!(faults() - before, 0);
    memory.page(KEPT).fill(1);
    assert_eq!(faults() - before, 1);
}

#[test]
fn a_kept_slot_stays_resident_however_much_other_keepers_have() {
    const KEPT: usize = 8;
    let pool = SlotPool::new(65, KEPT * PAGE).expect("addresses");
    let shown = contents(1, 20, 1);
    for keeper in 2..6 {
        let kept = || Memory::kept(&pool, 40, Some(&shown), Some(Keeper(keeper)));
        drop([(); 16].map(|()| kept()));
        clean(&pool);
    }
    assert_eq!(pool.state().warm, 64);
    for round in 0..2 {
        let mut memory = Memory::kept(&pool, 40, Some(&shown), KEEPER);
        let before = faults();
        for page in 0..KEPT {
            memory.page(page).fill(0xee);
        }
        if round > 0 {
            assert_eq!(faults() - before, 0);
        }
        drop(memory);
        clean(&pool);
    }
}

#[test]
fn what_is_kept_for_a_keeper_is_cleaned_when_it_is_not_wanted_any_more() {
    let pool = SlotPool::new(4, 4 << 20).expect("addresses");
    let shown = contents(10, 1900, 1);
    let start = {
        let memories = [1, 1, 2, 1].map(|keeper| {
            let mut memory = Memory::kept(&pool, 2000, Some(&shown), Some(Keeper(keeper)));
            memory.page(50).fill(0xee);
            memory
        });
        memories[0].made.as_ptr().addr()
    };
    clean(&pool);
    assert_eq!((pool.state().warm, pool.resident()), (4, 16 << 20));
    let mut claim = Claim::default();
    pool.cool(Keeper(1), 1, &mut claim);
    assert_eq!((pool.warm(Keeper(1)), pool.state().dirty), (1, 2));
    assert_eq!(pool.resident(), 8 << 20);
    pool.cool(Keeper(1), 0, &mut claim);
    let mut visited = 0;
    while !claim.is_empty() {
        visited += pool.clean_claimed(&mut claim, 64);
    }
    assert_eq!(visited, 3 * 2000, "as many as are accessible");
    assert_eq!(
        (pool.state().warm, pool.state().clean, pool.resident()),
        (1, 3, 4 << 20)
    );
    assert_eq!(shown_bytes(start, 4 << 30), 0);
}

#[test]
fn a_memory_whose_keeper_has_gone_is_cleaned_at_whichever_step_it_is() {
    let pool = SlotPool::new(1, 4 << 20).expect("addresses");
    let shown = contents(100, 700, 1);
    for steps in 0..40 {
        let mut memory = Memory::kept(&pool, 1000, Some(&shown), KEEPER);
        memory.check(Some((100, 700, 1)));
        memory.grow(1100);
        for page in 0..1100 {
            memory.page(page).fill(0xee);
        }
        let start = memory.made.as_ptr().addr();
        drop(memory);
        let mut claim = Claim::default();
        pool.claim(&mut claim);
        for _ in 0..steps {
            pool.clean_claimed(&mut claim, 64);
        }
        pool.forgo(&claim);
        while !claim.is_empty() {
            pool.clean_claimed(&mut claim, 64);
        }
        let state = pool.state();
        assert_eq!((state.dirty_pages, state.warm + state.clean), (0, 1));
        // It was done before that.
        let was_done = state.warm == 1;
        assert_eq!(was_done, steps > 18, "after {steps} steps");
        pool.cool(Keeper(1), 0, &mut claim);
        while !claim.is_empty() {
            pool.clean_claimed(&mut claim, 64);
        }
        assert_eq!((shown_bytes(start, 4 << 30), pool.resident()), (0, 0));
        Memory::new(&pool, 1100, None).check(None);
        clean(&pool);
    }
}
