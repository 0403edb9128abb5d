//! Measures the cost of a page on Linux: with shared-page management, without it, and by the kernel
//! alone (SPC table II).
//!
//! Every number is the median of interleaved rounds, per page, by the thread that faults. *Allocate*
//! is the first write to a page, *free* giving it back with the area; *map shared* is the first read
//! of a page that another tenant has resident; *unmap and allocate* is the first write to a page
//! for which one has to be evicted that others keep; *retire* makes addresses free at the
//! end of a tenant, for which the kernel has to unmap. *Around* is the same with up to 16 pages
//! mapped for a fault.
//! `cargo bench -p leasehold-pager-linux --bench paging_cost`

use std::hint::black_box;
use std::ptr;
use std::time::Instant;

use leasehold_pager::{Contract, Ending, Sharing};
use leasehold_pager_linux::{Locking, Options, Paging};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Measures once: allocate, free, map shared, unmap and allocate, retire.
type Case = fn() -> [f64; 5];

const ROUNDS: usize = 15;
const PAGES: u32 = 4_096;
const BYTES: usize = 4_096;

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Nanoseconds per page.
fn per_page(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_nanos() as f64 / f64::from(PAGES)
}

fn addresses() -> *mut u8 {
    let (bytes, flags) = (
        PAGES as usize * BYTES,
        MapFlags::PRIVATE | MapFlags::NORESERVE,
    );
    // SAFETY: the kernel picks addresses at which nothing is mapped.
    let start =
        unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), bytes, ProtFlags::empty(), flags) };
    start.expect("addresses").cast()
}

fn write(start: *mut u8) {
    for page in 0..PAGES as usize {
        // SAFETY: within addresses at which faults are served.
        unsafe { start.add(page * BYTES).write_volatile(1) };
    }
}

fn read(start: *mut u8) {
    for page in 0..PAGES as usize {
        // SAFETY: as for `write`.
        black_box(unsafe { start.add(page * BYTES).read_volatile() });
    }
}

/// First touch of anonymous memory and dropping it, first touch of a cached page of a memfd and
/// unmapping it; and what makes addresses free.
fn kernel() -> [f64; 5] {
    let bytes = PAGES as usize * BYTES;
    let file = memfd_create("bench", MemfdFlags::CLOEXEC).expect("a memfd");
    rustix::fs::ftruncate(&file, bytes as u64).expect("room");
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the kernel picks the addresses; they are used here only.
    unsafe {
        let own = rustix::mm::mmap_anonymous(ptr::null_mut(), bytes, protection, MapFlags::PRIVATE);
        let own = own.expect("memory");
        rustix::mm::madvise(own, bytes, Advice::LinuxNoHugepage).expect("4 KiB pages");
        let shared = MapFlags::SHARED;
        let map = || rustix::mm::mmap(ptr::null_mut(), bytes, protection, shared, &file, 0);
        let (one, two) = (map().expect("mapped"), map().expect("mapped"));
        let touch = per_page(|| write(own.cast()));
        let drop = per_page(|| rustix::mm::munmap(own, bytes).expect("mapped"));
        write(one.cast());
        let minor = per_page(|| read(two.cast()));
        let unmap = per_page(|| rustix::mm::munmap(two, bytes).expect("mapped"));
        rustix::mm::munmap(one, bytes).expect("mapped");
        [touch, drop, minor, unmap, drop]
    }
}

fn end(paging: &Paging, id: leasehold_pager::ReservationId) {
    while paging.end_step(id, 64).expect("there") == Ending::More {}
}

/// Allocate, free, map shared, unmap and allocate, retire.
fn reserved(sharing: Sharing, ahead: u32) -> [f64; 5] {
    let paging = Paging::open(Options {
        ahead,
        locking: Locking::Never,
        ..Options::new(4 * PAGES)
    })
    .expect("a kernel with userfaultfd");
    let [ours, theirs, own] = [addresses(), addresses(), addresses()];
    let reserve = || paging.reserve(&Contract::hard(PAGES)).expect("frames");
    let (first, second, third) = (reserve(), reserve(), reserve());
    let area = |sharing| {
        paging
            .create_resident_area(PAGES, sharing)
            .expect("an area")
    };
    let shared = area(sharing);
    let attach = |id, area, at| {
        // SAFETY: the addresses were reserved for this.
        unsafe { paging.attach_at(id, area, at, PAGES) }.expect("attached");
    };
    // Memory that the host has not given yet would cost more than all the rest.
    attach(third, area(Sharing::Conserve), own);
    write(own);
    end(&paging, third);
    while !paging.refill(u32::MAX).expect("memory") {}
    attach(first, shared, ours);
    let allocate = per_page(|| write(ours));
    attach(second, shared, theirs);
    let map = per_page(|| read(theirs));
    let private = area(Sharing::Conserve);
    attach(second, private, own);
    let unmap = if sharing == Sharing::Conserve {
        per_page(|| write(own))
    } else {
        // Evicted for all, and so written out, for which there is no store here.
        f64::NAN
    };
    end(&paging, second);
    let retire = per_page(|| paging.retire(first).expect("there"));
    let free = per_page(|| end(&paging, first));
    drop(paging);
    for start in [ours, theirs, own] {
        // SAFETY: reserved above, and used no more.
        unsafe { rustix::mm::munmap(start.cast(), PAGES as usize * BYTES) }.expect("mapped");
    }
    [allocate, free, map, unmap, retire]
}

fn main() {
    let cases: [(&str, Case); 5] = [
        ("kernel", kernel),
        ("plain", || reserved(Sharing::Plain, 0)),
        ("managed", || reserved(Sharing::Conserve, 0)),
        ("plain, around", || reserved(Sharing::Plain, 16)),
        ("managed, around", || reserved(Sharing::Conserve, 16)),
    ];
    let mut samples = vec![[const { Vec::new() }; 5]; cases.len()];
    for _ in 0..ROUNDS {
        for ((_, run), samples) in cases.iter().zip(&mut samples) {
            for (value, samples) in run().into_iter().zip(samples) {
                samples.push(value);
            }
        }
    }
    println!("median ns per page");
    println!(
        "{:>16} {:>9} {:>9} {:>11} {:>19} {:>9}",
        "", "allocate", "free", "map shared", "unmap and allocate", "retire"
    );
    for ((name, _), samples) in cases.iter().zip(&mut samples) {
        let [allocate, free, map, unmap, retire] = samples.each_mut().map(|values| median(values));
        println!("{name:>16} {allocate:>9.0} {free:>9.0} {map:>11.0} {unmap:>19.0} {retire:>9.1}");
    }
}
