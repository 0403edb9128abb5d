//! Measures the cost of the policy in a page fault, and in unmapping a page, with and without
//! management (SPC table II).
//!
//! The backend does nothing, so these are the costs of the data structures alone: page tables,
//! zeroing and storage come on top. *Unmap and replace* is a first touch that has to unmap a
//! shared page; by first touch nothing has to go, because the pages of others are free of charge.
//! `cargo bench -p leasehold-pager --bench pager`

use std::hint::black_box;
use std::time::Instant;

use leasehold_pager::{
    AreaId, AttachmentId, Backend, Contract, Fault, Frame, Held, Page, PageNumber, Pager, Sharing,
    StoreError, Writing,
};

/// Rounds per point; the median counts.
const ROUNDS: usize = 31;
const SIZES: [u32; 4] = [100, 1_000, 10_000, 100_000];

/// Nothing is ever referenced or dirty.
struct Nothing;

impl Backend for Nothing {
    fn attach(&mut self, _: AttachmentId, _: AreaId, _: u32) {}
    fn detach(&mut self, _: AttachmentId) {}
    fn map(&mut self, _: AttachmentId, _: PageNumber, frame: Frame) {
        black_box(frame);
    }
    fn unmap(&mut self, _: AttachmentId, page: PageNumber) {
        black_box(page);
    }
    fn take_referenced(&mut self, _: AttachmentId, _: PageNumber) -> bool {
        false
    }
    fn is_dirty(&mut self, _: Held) -> bool {
        false
    }
    fn clear(&mut self, _: Held) {}
    fn read(&mut self, _: Page, _: Held) -> Result<(), StoreError> {
        Ok(())
    }
    fn copy(&mut self, _: Held, _: Held) {}
    fn mark_dirty(&mut self, _: Held) {}
    fn write(&mut self, _: &[Held]) -> Result<Writing, StoreError> {
        Ok(Writing::Done)
    }
    fn release(&mut self, _: Held) {}
    fn discard(&mut self, _: AreaId) {}
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Faults on all pages; nanoseconds each.
fn fault_all(pager: &mut Pager<Nothing>, at: AttachmentId, pages: u32, expected: Fault) -> f64 {
    let start = Instant::now();
    for page in PageNumber::range(0..pages) {
        let fault = pager.fault(at, page).expect("a frame");
        assert_eq!(black_box(fault), expected);
    }
    start.elapsed().as_nanos() as f64 / f64::from(pages)
}

/// First touch, mapping what another has, unmapping it to make room, and the end, per page.
fn shared(sharing: Sharing, n: u32) -> [f64; 4] {
    let (mut touch, mut map, mut unmap, mut end) = (vec![], vec![], vec![], vec![]);
    let mut pager = Pager::new(4 * n, Nothing);
    for _ in 0..ROUNDS {
        let (first, second) = (
            pager.reserve(&Contract::hard(n)),
            pager.reserve(&Contract::hard(n)),
        );
        let (first, second) = (first.expect("frames"), second.expect("frames"));
        let area = pager.create_area(n, sharing).expect("an area");
        let private = pager.create_area(n, Sharing::Conserve).expect("an area");
        let one = pager.attach(first, area).expect("attached");
        let two = pager.attach(second, area).expect("attached");
        let own = pager.attach(second, private).expect("attached");
        touch.push(fault_all(&mut pager, one, n, Fault::Zero));
        map.push(fault_all(&mut pager, two, n, Fault::Minor));
        // Every fault unmaps one of the shared pages, and maps a private one.
        unmap.push(fault_all(&mut pager, own, n, Fault::Zero));
        let start = Instant::now();
        pager.end(second).expect("there");
        end.push(start.elapsed().as_nanos() as f64 / f64::from(n));
        pager.end(first).expect("there");
    }
    [touch, map, unmap, end].map(median)
}

fn main() {
    println!("median ns per page");
    println!(
        "{:>12} {:>8} {:>12} {:>12} {:>18} {:>8}",
        "sharing", "frames", "first touch", "map shared", "unmap and replace", "end"
    );
    for sharing in [Sharing::Conserve, Sharing::Plain, Sharing::FirstTouch] {
        for n in SIZES {
            let [touch, map, unmap, end] = shared(sharing, n);
            let name = format!("{sharing:?}");
            println!("{name:>12} {n:>8} {touch:>12.1} {map:>12.1} {unmap:>18.1} {end:>8.1}");
        }
    }
    let (mapping, page) = Pager::<Nothing>::BYTES;
    println!(
        "\nbytes: {mapping} a mapping, {page} a page of an area, 4 a page attached, 4 a frame"
    );
}
