//! Faults allocate nothing, whatever they evict, read, write or copy: they are served in a signal
//! handler.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io;

use common::Addresses;
use leasehold_pager::{Contract, Counts, Sharing};
use leasehold_pager_linux::{Options, Paging, Store};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: everything is handed to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

struct Fixed(Vec<u8>);

impl Store for Fixed {
    fn pages(&self) -> u32 {
        (self.0.len() / 4_096) as u32
    }

    fn read_at(&mut self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        into.copy_from_slice(&self.0[offset as usize..][..into.len()]);
        Ok(into.len())
    }

    fn write_at(&mut self, offset: u64, from: &[u8]) -> io::Result<usize> {
        self.0[offset as usize..][..from.len()].copy_from_slice(from);
        Ok(from.len())
    }
}

#[test]
fn a_fault_allocates_nothing_but_the_first_among_512_pages() {
    let paging = Paging::open(Options {
        store: Some(Box::new(Fixed(vec![0; 1_000 * 4_096]))),
        ..Options::new(64)
    })
    .expect("a kernel with userfaultfd");
    let first = paging.reserve(&Contract::hard(20)).expect("frames");
    let second = paging.reserve(&Contract::firm(10)).expect("frames");
    let file = tempfile::tempfile().expect("a file");
    file.set_len(64 * 4_096).expect("room");
    let image = paging
        .create_image(file, Sharing::Conserve)
        .expect("an area");
    let shared = paging.create_area(64, Sharing::Conserve).expect("an area");
    let mut memories = vec![];
    for id in [first, second] {
        let copies = paging.create_area(64, Sharing::Conserve).expect("an area");
        let private = paging.create_area(64, Sharing::Conserve).expect("an area");
        let [a, b, c] = [(); 3].map(|()| Addresses::reserve(64));
        a.attach_copied(&paging, id, image, copies);
        b.attach(&paging, id, shared);
        c.attach(&paging, id, private);
        memories.extend([a, b, c]);
    }
    let before = ALLOCATIONS.get();
    let mut first_round = 0;
    for round in 0..4 {
        for page in 0..64 {
            for (at, memory) in memories.iter().enumerate() {
                memory.load(page);
                if (page + round + at as u32).is_multiple_of(3) {
                    memory.store(page, 1);
                }
            }
        }
        if round == 0 {
            first_round = ALLOCATIONS.get();
        }
    }
    // A block of each of two attachments for a copied memory and one for any other, and of what is known of
    // each of six areas: its pages, and where they are written out.
    assert!(first_round - before <= 8 + 2 * 6);
    assert_eq!(ALLOCATIONS.get() - first_round, 0);
    let counts = [first, second].map(|id| paging.counts(id).expect("there"));
    let some = |count: fn(&Counts) -> u64| counts.iter().map(count).sum::<u64>() > 0;
    assert!(some(|counts| counts.major) && some(|counts| counts.minor));
    assert!(some(|counts| counts.zero) && some(|counts| counts.copied));
    assert!(some(|counts| counts.written) && some(|counts| counts.unmapped));
    paging.audit();
}
