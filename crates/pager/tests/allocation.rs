//! Faults allocate nothing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use leasehold_pager::{
    AreaId, AttachmentId, Backend, Contract, Fault, Frame, Held, Page, PageNumber, Pager, Sharing,
    StoreError, Writing,
};

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

/// Everything is dirty and nothing is referenced: all work, and nothing remembered.
#[derive(Default)]
struct Oblivious {
    written: usize,
}

impl Backend for Oblivious {
    fn attach(&mut self, _: AttachmentId, _: AreaId, _: u32) {}

    fn detach(&mut self, _: AttachmentId) {}

    fn map(&mut self, _: AttachmentId, _: PageNumber, _: Frame) {}

    fn unmap(&mut self, _: AttachmentId, _: PageNumber) {}

    fn take_referenced(&mut self, _: AttachmentId, page: PageNumber) -> bool {
        page.get().is_multiple_of(3)
    }

    fn is_dirty(&mut self, _: Held) -> bool {
        true
    }

    fn clear(&mut self, _: Held) {}

    fn read(&mut self, _: Page, _: Held) -> Result<(), StoreError> {
        Ok(())
    }

    fn copy(&mut self, _: Held, _: Held) {}

    fn mark_dirty(&mut self, _: Held) {}

    fn release(&mut self, _: Held) {}

    fn write(&mut self, cluster: &[Held]) -> Result<Writing, StoreError> {
        self.written += cluster.len();
        Ok(Writing::Done)
    }

    fn discard(&mut self, _: AreaId) {}
}

#[test]
fn a_fault_allocates_nothing_but_the_first_among_512_pages_whatever_it_evicts() {
    let mut pager = Pager::new(150, Oblivious::default());
    let contracts = [Contract::hard(40), Contract::hard(30), Contract::firm(20)];
    let ids = contracts.map(|contract| pager.reserve(&contract).expect("frames"));
    let shared = pager.create_area(60, Sharing::Conserve).expect("an area");
    let plain = pager.create_area(60, Sharing::Plain).expect("an area");
    let touched = pager.create_area(60, Sharing::FirstTouch).expect("an area");
    let mut attachments = vec![];
    for id in ids {
        let private = pager.create_area(60, Sharing::Conserve).expect("an area");
        for area in [shared, touched, private] {
            attachments.push(pager.attach(id, area).expect("room to swap"));
        }
    }
    // Firm reservations share nothing plainly.
    for id in [ids[0], ids[1]] {
        attachments.push(pager.attach(id, plain).expect("room to swap"));
    }
    let before = ALLOCATIONS.get();
    let mut faults = [0u32; 4];
    let mut first = 0;
    for round in 0..20u32 {
        for step in 0..60 {
            for (at, &attachment) in attachments.iter().enumerate() {
                let page = PageNumber::new((step * 7 + round * at as u32) % 60);
                match pager.fault(attachment, page).expect("a frame") {
                    Fault::Present => faults[0] += 1,
                    Fault::Minor => faults[1] += 1,
                    Fault::Zero => faults[2] += 1,
                    Fault::Major => faults[3] += 1,
                }
            }
        }
        if round == 0 {
            first = ALLOCATIONS.get();
        }
    }
    // A block of each attachment, and of each area.
    assert!(first - before <= attachments.len() as u64 + 6);
    assert_eq!(ALLOCATIONS.get() - first, 0);
    assert!(faults.iter().all(|&count| count > 50), "{faults:?}");
    assert!(pager.backend().written > 1_000);
    pager.audit().expect("invariants");
}
