//! What memories hold from the beginning: contents that are shown in them, and zeros.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use leasehold_slots::address_range::PAGE;
use leasehold_slots::contents::Contents;
use leasehold_slots::engine::Wanted;
use leasehold_slots::slot::SlotPool;
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

fn contents(first: usize, pages: usize, mark: u8) -> Contents {
    Contents::new(file(pages, mark, SEALS), first, pages).expect("sealed")
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
    for _ in 0..400 {
        let pages = 1 + below(1500);
        let first = below(pages);
        let place = (first, 1 + below(pages - first), below(200) as u8);
        let place = (below(3) > 0).then_some(place);
        let shown = place.map(|(first, pages, mark)| contents(first, pages, mark));
        let mut memory = Memory::new(&pool, pages, shown.as_ref());
        memory.check(place);
        for _ in 0..below(40) {
            memory.page(below(pages)).fill(0xee);
        }
        drop(memory);
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
    let larger = contents(1, 2, 0);
    let pool = SlotPool::new(1, 0).expect("addresses");
    assert!(
        pool.new_memory_showing(wanted(2), Some(&larger)).is_err(),
        "it ends behind the memory"
    );
    assert_eq!(pool.state().clean, 1);
}
