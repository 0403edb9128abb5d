//! The cost of retiring, observed in the kernel's count of mapped pages. Alone in its process,
//! because the count is the process's.

mod common;

use common::{Addresses, MemoryStore};
use leasehold_pager::{Contract, Ending, Sharing};
use leasehold_pager_linux::{Options, Paging};

/// Shared pages in the page tables of this process, without those of the ballast, which are the pager's own.
fn mapped_pages(paging: &Paging) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a status");
    let line = status.lines().find(|line| line.starts_with("RssShmem:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    let all = kib.and_then(|kib| kib.parse::<u64>().ok()).expect("KiB") / 4;
    all.saturating_sub(u64::from(paging.held().ballast))
}

#[test]
fn page_tables_of_an_ended_tenant_are_moved_and_unmapped_in_steps() {
    const PAGES: u32 = 6_000;
    let paging = Paging::open(Options {
        store: Some(Box::new(MemoryStore::new(8_000))),
        ..Options::new(8_000)
    })
    .expect("a kernel with userfaultfd");
    let memory = Addresses::reserve(PAGES);
    for tracked in [false, true] {
        let before = mapped_pages(&paging);
        let id = paging.reserve(&Contract::hard(PAGES)).expect("frames");
        let area = if tracked {
            paging.create_area(PAGES, Sharing::Conserve)
        } else {
            paging.create_resident_area(PAGES, Sharing::Conserve)
        };
        // SAFETY: the addresses were reserved for this.
        let at = unsafe { paging.attach_at(id, area.expect("an area"), memory.start(), 5) };
        let at = at.expect("attached");
        // What grew in pieces is one mapping all the same.
        for accessible in [6, 700, 701, PAGES] {
            paging.grow(at, accessible).expect("room");
        }
        for page in 0..PAGES {
            memory.store(page, 1);
        }
        // The kernel's count may lag by some pages.
        let lag = 512;
        assert!(mapped_pages(&paging) + lag >= before + u64::from(PAGES));
        paging.retire(id).expect("there");
        assert!(mapped_pages(&paging) + lag >= before + u64::from(PAGES));
        let mut steps = 0;
        while paging.end_step(id, 1_000).expect("there") == Ending::More {
            steps += 1;
            let left = u64::from(PAGES.saturating_sub(steps * 1_000));
            assert!(mapped_pages(&paging) <= before + left + lag);
        }
        assert!((11..=14).contains(&steps), "{steps}");
        paging.audit();
        // The next one starts afresh at the same addresses.
    }
}
