//! Tenants with more memory than their reservation: their contents are private and correct, only
//! they pay for paging, and nothing is left when they end.

mod common;

use common::paged::{self, PAGE, held};
use common::{captured, guests, profile};
use leasehold_cell::memory::{HeldMemory, Swap};
use leasehold_cell::{
    Capture, Cell, CellConfig, Directory, Ended, Exit, Input, Lease, Output, Refusal, Reservation,
    StartError, StartRequest, Surroundings, TenantHandle,
};
use leasehold_lease::SharedPages;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

const MIB: u64 = 1 << 20;

/// A lease of a second that reserves `reserve` bytes and allows `limit`.
fn paging(reserve: u64, limit: u64) -> Lease {
    paged::paging(1_000_000, reserve, limit, SharedPages::Conserve)
}

fn request(cell: &Cell, text: &str, args: &[&str], lease: Lease) -> (StartRequest, Capture) {
    let program = cell.compile_for(text.as_bytes(), &lease);
    let program = program.expect("a program");
    captured(program, "guest", args, lease)
}

fn start(cell: &Cell, text: &str, lease: Lease) -> TenantHandle {
    let (request, _) = request(cell, text, &[], lease);
    cell.start_tenant(request).expect("a tenant")
}

fn run(cell: &Cell, text: &str, lease: Lease) -> Ended {
    start(cell, text, lease).wait().expect("an end")
}

/// Writes a number that depends on the address and `seed` to every eighth byte of `mib` MiB,
/// `rounds` times, and traps if it does not find again what it wrote.
fn churn(mib: u64, rounds: u64, seed: u64) -> String {
    let (pages, bytes) = (mib * 16, mib * MIB);
    format!(
        r#"(module
          (memory (export "memory") {pages})
          (func $value (param $at i32) (param $round i64) (result i64)
            (i64.mul
              (i64.add (i64.extend_i32_u (local.get $at)) (i64.const {seed}))
              (i64.add (local.get $round) (i64.const 0x9E3779B97F4A7C15))))
          (func (export "_start") (local $at i32) (local $round i64)
            (loop $rounds
              (local.set $at (i32.const 0))
              (loop $write
                (i64.store (local.get $at) (call $value (local.get $at) (local.get $round)))
                (br_if $write (i32.lt_u
                  (local.tee $at (i32.add (local.get $at) (i32.const 8))) (i32.const {bytes}))))
              (local.set $at (i32.const 0))
              (loop $read
                (if (i64.ne (i64.load (local.get $at))
                            (call $value (local.get $at) (local.get $round)))
                  (then unreachable))
                (br_if $read (i32.lt_u
                  (local.tee $at (i32.add (local.get $at) (i32.const 8))) (i32.const {bytes}))))
              (br_if $rounds (i64.lt_u
                (local.tee $round (i64.add (local.get $round) (i64.const 1)))
                (i64.const {rounds}))))))"#
    )
}

#[test]
fn a_tenant_larger_than_its_reservation_finds_what_it_wrote_and_stays_within_its_frames() {
    let held = held(2 * MIB, 8 * MIB);
    let ended = run(&held.cell, &churn(4, 3, 1), paging(MIB, 4 * MIB));
    assert_eq!(ended.exit, Exit::Code(0));
    let (account, counts) = ended.memory.paging.expect("it pages");
    assert_eq!(ended.memory.linear_bytes, 4 * MIB);
    assert_eq!(account.size, 256);
    assert_eq!(account.owned, 256, "all of them are used, and no more");
    assert!(account.balances());
    assert!(counts.major > 0 && counts.evicted > 0, "{counts:?}");
    assert_eq!(counts.robbed, 0);
}

#[test]
fn a_growth_that_the_mappings_of_a_lease_refuse_is_named() {
    const GROWS: &str = r#"(module
        (memory (export "memory") 1)
        (func (export "_start")
          (loop $grow (br_if $grow (i32.ne (memory.grow (i32.const 1)) (i32.const -1))))))"#;
    let held = held(2 * MIB, 96 * MIB);
    let mut lease = paging(MIB, 64 * MIB);
    let paging = lease.memory.paging.as_mut().expect("it pages");
    paging.mappings = 16;
    let ended = run(&held.cell, GROWS, lease);
    assert_eq!(ended.exit, Exit::Code(0));
    assert!(ended.memory.linear_bytes < 32 * MIB, "{:?}", ended.memory);
    let refused = Refusal {
        reservation: Reservation::Mappings,
        times: 1,
        enough: 17,
    };
    assert_eq!(ended.refusals, [refused]);
}

#[test]
fn a_tenant_that_fits_its_reservation_does_not_page() {
    let held = held(8 * MIB, 8 * MIB);
    let ended = run(&held.cell, &churn(4, 1, 1), paging(4 * MIB, 4 * MIB));
    assert_eq!(ended.exit, Exit::Code(0));
    assert_eq!(ended.memory.paging, None);
    assert_eq!(ended.memory.limit_bytes, 4 * MIB);
}

#[test]
fn tenants_page_against_themselves_side_by_side() {
    let held = held(3 * MIB, 12 * MIB);
    let tenants: Vec<_> = (1..=2)
        .map(|seed| start(&held.cell, &churn(4, 2, 1000 * seed), paging(MIB, 4 * MIB)))
        .collect();
    let fits = start(&held.cell, &churn(1, 50, 7), paging(MIB, MIB));
    for tenant in tenants {
        let ended = tenant.wait().expect("an end");
        assert_eq!(ended.exit, Exit::Code(0));
        let (account, _) = ended.memory.paging.expect("it pages");
        assert_eq!(account.owned, 256);
    }
    assert_eq!(fits.wait().expect("an end").exit, Exit::Code(0));
}

/// Writes everywhere, again and again.
const STORM: &str = r#"(module (memory (export "memory") 64)
  (func (export "_start") (local $at i32)
    (loop $more
      (i64.store (local.get $at) (i64.const -1))
      (local.set $at
        (i32.and (i32.add (local.get $at) (i32.const 4096)) (i32.const 0x3fffff)))
      (br $more))))"#;

/// Traps if it finds a byte that is not zero.
const LOOK: &str = r#"(module (memory (export "memory") 64)
  (func (export "_start") (local $at i32)
    (loop $next
      (if (i64.ne (i64.load (local.get $at)) (i64.const 0)) (then unreachable))
      (br_if $next (i32.lt_u
        (local.tee $at (i32.add (local.get $at) (i32.const 8))) (i32.const 0x400000))))))"#;

#[test]
fn a_kill_in_the_midst_of_paging_gives_everything_back_and_the_next_tenant_finds_zeros() {
    let held = held(MIB, 6 * MIB);
    for _ in 0..5 {
        let storm = start(&held.cell, STORM, paging(MIB, 4 * MIB));
        let paged = |handle: &TenantHandle| {
            let paging = handle.memory().and_then(|memory| memory.paging);
            paging.is_some_and(|(_, counts)| counts.evicted > 1000)
        };
        while !paged(&storm) {
            std::thread::sleep(Duration::from_millis(1));
        }
        storm.kill();
        let ended = storm.wait().expect("an end");
        assert_eq!(ended.exit, Exit::Killed);
        assert!(
            ended.reclaimed.predicted_ns >= 1024 * 2000,
            "paged pages are charged"
        );
        // It could not start if a frame were missing, nor end if it found anything.
        let ended = run(&held.cell, LOOK, paging(MIB, 4 * MIB));
        assert_eq!(ended.exit, Exit::Code(0));
    }
}

#[test]
fn memory_grows_to_its_limit_and_no_further() {
    // Grows by three pages at a time as long as it may, and writes to all of it.
    let text = r#"(module (memory (export "memory") 1)
      (func (export "_start") (local $at i32)
        (loop $grow (br_if $grow (i32.ne (memory.grow (i32.const 3)) (i32.const -1))))
        (if (i32.ne (memory.size) (i32.const 64)) (then unreachable))
        (loop $next
          (i64.store (local.get $at) (i64.extend_i32_u (local.get $at)))
          (br_if $next (i32.lt_u
            (local.tee $at (i32.add (local.get $at) (i32.const 4096))) (i32.const 0x400000))))
        (local.set $at (i32.const 0))
        (loop $next
          (if (i64.ne (i64.load (local.get $at)) (i64.extend_i32_u (local.get $at)))
            (then unreachable))
          (br_if $next (i32.lt_u
            (local.tee $at (i32.add (local.get $at) (i32.const 4096))) (i32.const 0x400000))))
        (drop (i32.load (i32.const 0x400000)))))"#;
    let held = held(MIB, 8 * MIB);
    let ended = run(&held.cell, text, paging(MIB, 4 * MIB));
    // What lies beyond is no memory.
    assert!(
        matches!(&ended.exit, Exit::Trap(message) if message.contains("out of bounds")),
        "{:?}",
        ended.exit
    );
    assert_eq!(ended.memory.linear_bytes, 4 * MIB);
}

#[test]
fn bulk_instructions_and_data_segments_reach_pages_that_are_out() {
    let text = r#"(module (memory (export "memory") 64)
      (data $text "swapped out and in again")
      (func (export "_start") (local $at i32)
        (memory.fill (i32.const 0) (i32.const 0x5A) (i32.const 0x200000))
        (memory.copy (i32.const 0x200000) (i32.const 0) (i32.const 0x200000))
        (memory.init $text (i32.const 4090) (i32.const 0) (i32.const 24))
        (memory.copy (i32.const 1000) (i32.const 0) (i32.const 0x3f0000))
        (if (i32.ne (i32.load8_u (i32.const 5113)) (i32.const 0x6E)) (then unreachable))
        (local.set $at (i32.const 0x2000))
        (loop $next
          (if (i64.ne (i64.load (local.get $at)) (i64.const 0x5A5A5A5A5A5A5A5A))
            (then unreachable))
          (br_if $next (i32.lt_u
            (local.tee $at (i32.add (local.get $at) (i32.const 8))) (i32.const 0x3ffff0))))))"#;
    let held = held(MIB, 8 * MIB);
    let ended = run(&held.cell, text, paging(MIB, 4 * MIB));
    assert_eq!(ended.exit, Exit::Code(0));
}

/// Fills 4 MiB with their addresses, and has 64 KiB of them, which are out by then, copied through a region and
/// a channel to other places; checks what came.
const COPIES: &str = r#"(module
  (import "leasehold_kernel" "region_create" (func $region (param i64) (result i64)))
  (import "leasehold_kernel" "region_write" (func $write (param i32 i64 i32 i32) (result i64)))
  (import "leasehold_kernel" "region_read" (func $read (param i32 i64 i32 i32) (result i64)))
  (import "leasehold_kernel" "channel_create" (func $channel (param i32) (result i64)))
  (import "leasehold_kernel" "channel_send"
    (func $send (param i32 i32 i32 i32 i32) (result i64)))
  (import "leasehold_kernel" "channel_receive"
    (func $receive (param i32 i32 i32 i32 i32) (result i64)))
  (import "leasehold_kernel" "channel_try_send"
    (func $try_send (param i32 i32 i32 i32 i32) (result i64)))
  (import "leasehold_kernel" "channel_try_receive"
    (func $try_receive (param i32 i32 i32 i32 i32) (result i64)))
  (memory (export "memory") 64)
  (func $is (param i64 i64) (if (i64.ne (local.get 0) (local.get 1)) (then unreachable)))
  (func $fill (local $at i32)
    (loop $next
      (i32.store (local.get $at) (local.get $at))
      (br_if $next (i32.lt_u
        (local.tee $at (i32.add (local.get $at) (i32.const 4))) (i32.const 0x400000)))))
  (func $same (param $to i32) (local $at i32)
    (loop $next
      (if (i64.ne (i64.load (i32.add (local.get $to) (local.get $at)))
                  (i64.load (i32.add (i32.const 12388) (local.get $at))))
        (then unreachable))
      (br_if $next (i32.lt_u
        (local.tee $at (i32.add (local.get $at) (i32.const 8))) (i32.const 0x10000)))))
  (func (export "_start") (local $region i32) (local $channel i32)
    (local.set $region (i32.wrap_i64 (call $region (i64.const 0x10000))))
    (local.set $channel (i32.wrap_i64 (call $channel (i32.const 0x18000))))
    (call $fill)
    (call $is (i64.const 0) (call $write
      (local.get $region) (i64.const 0) (i32.const 12388) (i32.const 0x10000)))
    (call $is (i64.const 0) (call $read
      (local.get $region) (i64.const 0) (i32.const 0x100100) (i32.const 0x10000)))
    (call $same (i32.const 0x100100))
    (call $fill)
    (call $is (i64.const 0) (call $try_send (local.get $channel)
      (i32.const 12388) (i32.const 0x10000) (i32.const 0) (i32.const 0)))
    (call $is (i64.const 0x10000) (call $try_receive (local.get $channel)
      (i32.const 0x200200) (i32.const 0x10000) (i32.const 0) (i32.const 0)))
    (call $same (i32.const 0x200200))
    (call $fill)
    (call $is (i64.const 0) (call $send (local.get $channel)
      (i32.const 12388) (i32.const 0x10000) (i32.const 0) (i32.const 0)))
    (call $is (i64.const 0x10000) (call $receive (local.get $channel)
      (i32.const 0x300300) (i32.const 0x10000) (i32.const 0) (i32.const 0)))
    (call $same (i32.const 0x300300))))"#;

/// How many steps of a row there were.
fn steps(cell: &Cell, row: &str) -> u64 {
    let steps = cell.steps().into_iter();
    let of = |step: &leasehold_cell::steps::StepUse| step.row.row().title() == row;
    steps.filter(of).map(|step| step.steps).sum()
}

#[test]
fn what_is_copied_for_a_tenant_that_pages_is_copied_a_page_a_step() {
    let held = held(MIB, 8 * MIB);
    let ended = run(&held.cell, COPIES, paging(MIB, 5 * MIB));
    assert_eq!(ended.exit, Exit::Code(0));
    let (_, counts) = ended.memory.paging.expect("it pages");
    assert!(counts.major > 6 * 16, "{counts:?}");
    for call in ["region_write", "region_read", "channel_send"] {
        // 64 KiB that begin in the midst of a page.
        let steps = steps(&held.cell, &format!("leasehold_kernel {call}"));
        assert!(steps >= 17, "{call}: {steps}");
    }
}

#[test]
fn faults_of_guest_code_and_what_an_idle_cell_does_are_steps_that_are_counted() {
    let held = held(MIB, 8 * MIB);
    let ended = run(&held.cell, &churn(4, 3, 1), paging(MIB, 4 * MIB));
    assert_eq!(ended.exit, Exit::Code(0));
    let (_, counts) = ended.memory.paging.expect("it pages");
    let faults = steps(&held.cell, "cell fault");
    assert!(faults >= counts.major, "{faults} of {counts:?}");
    // The cell takes again what the tenant had, when it is over.
    let began = std::time::Instant::now();
    while steps(&held.cell, "cell hold again") < MIB / 4096 / 8 {
        assert!(began.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Fills each page, one of WebAssembly at a time, and copies the first half over the second. Zeros are written at last.
const WRITES_IN_BULK: &str = r#"(module (memory (export "memory") 0)
  (func (export "_start") (local $pages i32)
    (loop $next
      (memory.fill (i32.shl (memory.grow (i32.const 1)) (i32.const 16)) (i32.const 1) (i32.const 0x10000))
      (br_if $next (i32.lt_u
        (local.tee $pages (i32.add (local.get $pages) (i32.const 1))) (i32.const 64))))
    (memory.copy (i32.const 0x200000) (i32.const 0) (i32.const 0x200000))))"#;

#[test]
fn a_page_that_is_written_in_bulk_faults_no_second_time_for_that() {
    let held = held(8 * MIB, 16 * MIB);
    let ended = run(&held.cell, WRITES_IN_BULK, paging(8 * MIB, 10 * MIB));
    assert_eq!(ended.exit, Exit::Code(0));
    let (_, counts) = ended.memory.paging.expect("it pages");
    let pages = 4 * MIB / PAGE;
    assert_eq!(counts.zero + counts.ahead, pages, "{counts:?}");
    let faults = steps(&held.cell, "cell fault");
    assert!(faults < pages / 2, "{faults} faults for {pages} pages");
}

#[test]
fn a_program_is_not_run_under_a_lease_that_pages_unless_it_was_compiled_for_one() {
    let held = held(MIB, 8 * MIB);
    let program = held.cell.compile(COPIES.as_bytes()).expect("a program");
    let (request, _) = captured(program, "guest", &[], paging(MIB, 5 * MIB));
    let refused = held.cell.start_tenant(request);
    assert!(matches!(refused, Err(StartError::Program(_))));
}

/// Opens `in` and `out` of its first directory, fills 4 MiB of memory with what `in` holds, again
/// and again, and writes all of it to `out` afterwards.
const FILES: &str = r#"(module
  (import "wasi_snapshot_preview1" "path_open"
    (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_read"
    (func $read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write"
    (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_seek"
    (func $seek (param i32 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))
  (memory (export "memory") 65)
  (data (i32.const 0) "inout")
  (func $check (param i32) (if (local.get 0) (then unreachable)))
  (func (export "_start") (local $at i32)
    (call $check (call $open (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 2) (i32.const 0)
      (i64.const 0x26) (i64.const 0) (i32.const 0) (i32.const 16)))
    (call $check (call $open (i32.const 3) (i32.const 0) (i32.const 2) (i32.const 3) (i32.const 9)
      (i64.const 0x64) (i64.const 0) (i32.const 0) (i32.const 20)))
    (local.set $at (i32.const 0x10000))
    (loop $next
      (i32.store (i32.const 32) (local.get $at))
      (i32.store (i32.const 36) (i32.const 0x10000))
      (call $check (call $seek (i32.load (i32.const 16)) (i64.const 0) (i32.const 0) (i32.const 40)))
      (call $check
        (call $read (i32.load (i32.const 16)) (i32.const 32) (i32.const 1) (i32.const 48)))
      (if (i32.ne (i32.load (i32.const 48)) (i32.const 0x10000)) (then unreachable))
      (br_if $next (i32.lt_u
        (local.tee $at (i32.add (local.get $at) (i32.const 0x10000))) (i32.const 0x410000))))
    (local.set $at (i32.const 0x10000))
    (loop $next
      (i32.store (i32.const 32) (local.get $at))
      (i32.store (i32.const 36) (i32.const 0x10000))
      (call $check
        (call $write (i32.load (i32.const 20)) (i32.const 32) (i32.const 1) (i32.const 48)))
      (if (i32.ne (i32.load (i32.const 48)) (i32.const 0x10000)) (then unreachable))
      (br_if $next (i32.lt_u
        (local.tee $at (i32.add (local.get $at) (i32.const 0x10000))) (i32.const 0x410000))))
    ;; A page that is out by now, as a buffer for the host.
    (call $check (call $random (i32.const 0x10ff0) (i32.const 0x20)))))"#;

#[test]
fn files_are_read_into_and_written_from_pages_that_are_out() {
    let held = held(MIB, 8 * MIB);
    let data = held.directory.path().join("data");
    std::fs::create_dir(&data).expect("directory");
    let bytes: Vec<u8> = (0..0x10000u32).map(|n| ((n * n) >> 7) as u8).collect();
    std::fs::write(data.join("in"), &bytes).expect("written");
    let (mut request, _) = request(&held.cell, FILES, &[], paging(MIB, 5 * MIB));
    request.surroundings.dirs.push(Directory {
        host: data.clone(),
        guest: "/".into(),
        write: true,
    });
    let tenant = held.cell.start_tenant(request).expect("a tenant");
    let ended = tenant.wait().expect("an end");
    assert_eq!(ended.exit, Exit::Code(0));
    let (_, counts) = ended.memory.paging.expect("it pages");
    assert!(
        counts.major > 700,
        "the files went through swapped pages: {counts:?}"
    );
    let written = std::fs::read(data.join("out")).expect("read");
    assert_eq!(written.len(), 4 << 20);
    assert!(written.chunks(bytes.len()).all(|chunk| chunk == bytes));
}

/// Opens the nameless swap file again.
fn swap_file(directory: &Path) -> std::fs::File {
    let device = std::fs::metadata(directory).expect("there").dev();
    for entry in std::fs::read_dir("/proc/self/fd").expect("there").flatten() {
        let name = std::fs::read_link(entry.path()).unwrap_or_default();
        let name = name.to_string_lossy();
        let directory = directory.to_string_lossy();
        if name.starts_with(&*directory) && name.ends_with("swap (deleted)") {
            let file = std::fs::File::options().write(true).open(entry.path());
            let file = file.expect("it is ours");
            assert_eq!(file.metadata().expect("there").dev(), device);
            return file;
        }
    }
    panic!("no swap file")
}

#[test]
fn a_swap_file_that_fails_ends_the_tenant_concerned_and_no_other() {
    for storm in [STORM, BULK_STORM] {
        let held = held(2 * MIB, 8 * MIB);
        let storm = start(&held.cell, storm, paging(MIB, 4 * MIB));
        let fits = start(&held.cell, &churn(1, 50, 3), paging(MIB, MIB));
        while storm
            .memory()
            .and_then(|m| m.paging)
            .is_none_or(|(_, c)| c.major < 1000)
        {
            std::thread::sleep(Duration::from_millis(1));
        }
        let swap = swap_file(held.directory.path());
        let ended = loop {
            // Reading finds the end of the file, until a page is written beyond it.
            swap.set_len(0).expect("shorter");
            let ended = storm.wait_for(Duration::from_millis(1));
            if let Some(ended) = ended.expect("the cell is there") {
                break ended;
            }
        };
        assert_eq!(ended.exit.code(), 135);
        let reason = "a page of its memory cannot be had: secondary storage failed";
        assert_eq!(ended.exit, Exit::Memory(reason.into()));
        assert_eq!(fits.wait().expect("an end").exit, Exit::Code(0));
        // What it had can be had again.
        let next = run(&held.cell, &churn(1, 1, 3), paging(MIB, MIB));
        assert_eq!(next.exit, Exit::Code(0));
    }
}

/// Like the other one, but it is the host that writes.
const BULK_STORM: &str = r#"(module (memory (export "memory") 64)
  (func (export "_start")
    (loop $more
      (memory.fill (i32.const 0) (i32.const 0x5A) (i32.const 0x400000))
      (br $more))))"#;

#[test]
fn what_the_cell_does_not_hold_is_refused_with_what_is_missing() {
    let held = held(4 * MIB, 8 * MIB);
    let first = start(&held.cell, STORM, paging(3 * MIB, 4 * MIB));
    let (second, _) = request(&held.cell, STORM, &[], paging(2 * MIB, 4 * MIB));
    let refused = held.cell.start_tenant(second).err().expect("refused");
    assert!(
        matches!(&refused, StartError::Memory(why) if why == "512 frames needed, 256 unreserved"),
        "{refused:?}"
    );
    first.kill();
    first.wait().expect("an end");
    let third = start(&held.cell, STORM, paging(2 * MIB, 4 * MIB));
    third.kill();
    third.wait().expect("an end");
}

#[test]
fn a_start_that_the_cell_refuses_leaves_nothing_promised() {
    let held = held(4 * MIB, 8 * MIB);
    let first = start(&held.cell, STORM, paging(3 * MIB, 4 * MIB));
    let with_files = |reserve| {
        let (mut request, _) = request(&held.cell, STORM, &[], paging(reserve, 4 * MIB));
        request.lease.files.open = 1_000;
        request.surroundings.dirs.push(Directory {
            host: held.directory.path().to_owned(),
            guest: "/".into(),
            write: true,
        });
        request
    };
    // Each is promised descriptors and a thread, and has both back.
    for number in 0..600 {
        let refused = held.cell.start_tenant(with_files(2 * MIB)).err();
        assert!(
            matches!(&refused, Some(StartError::Memory(_))),
            "{number}: {refused:?}"
        );
    }
    first.kill();
    first.wait().expect("an end");
    let last = held.cell.start_tenant(with_files(2 * MIB));
    let last = last.expect("a tenant");
    last.kill();
    last.wait().expect("an end");
}

#[test]
fn more_memory_than_the_host_has_is_refused_before_any_is_taken() {
    let mut config = CellConfig::new(profile());
    config.memory = Some(HeldMemory {
        bytes: 1 << 43,
        for_all: true,
        swap: None,
    });
    let error = Cell::start(config).err().expect("refused").to_string();
    assert!(
        error.contains("`cell.memory`: found 8796093022208 bytes"),
        "{error}"
    );
}

#[test]
fn a_cell_that_holds_nothing_has_no_tenants_that_page() {
    let cell = Cell::start(CellConfig::new(profile())).expect("a cell");
    let (request, _) = request(&cell, STORM, &[], paging(MIB, 4 * MIB));
    let refused = cell.start_tenant(request).err().expect("refused");
    assert!(
        refused
            .to_string()
            .contains("the cell holds no memory to page in"),
        "{refused}"
    );
}

#[test]
fn a_swap_file_that_cannot_be_had_is_named() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("taken");
    std::fs::write(&path, "another's").expect("written");
    let mut config = CellConfig::new(profile());
    config.memory = Some(HeldMemory {
        bytes: MIB,
        for_all: true,
        swap: Some(Swap {
            path: path.clone(),
            bytes: MIB,
        }),
    });
    let error = Cell::start(config).err().expect("refused").to_string();
    assert!(error.contains(&*path.to_string_lossy()), "{error}");
    let left = std::fs::read(&path).map_err(|error| error.kind());
    assert_eq!(left, Ok::<_, ErrorKind>(b"another's".to_vec()));
}

#[test]
fn tasks_and_children_share_the_reservation_of_their_tenant() {
    // Starts a task of itself again and again, which writes to 1 MiB and ends. While the pages of the last one are on their way
    // back, the lease may not pay for the next: then it is tried again, a millisecond later.
    let text = r#"(module
      (import "leasehold_kernel" "task_start" (func $start (param i32 i32) (result i64)))
      (import "leasehold_kernel" "task_wait" (func $join (param i32) (result i64)))
      (import "wasi_snapshot_preview1" "args_sizes_get"
        (func $args (param i32 i32) (result i32)))
      (import "wasi_snapshot_preview1" "poll_oneoff"
        (func $poll (param i32 i32 i32 i32) (result i32)))
      (memory (export "memory") 16)
      (data (i32.const 0) "t\00")
      (func (export "_start") (local $n i32) (local $at i32) (local $task i64) (local $tries i32)
        (drop (call $args (i32.const 16) (i32.const 20)))
        (loop $next
          (i64.store (local.get $at) (i64.const -1))
          (br_if $next (i32.lt_u
            (local.tee $at (i32.add (local.get $at) (i32.const 4096))) (i32.const 0x100000))))
        (if (i32.gt_u (i32.load (i32.const 16)) (i32.const 1)) (then return))
        (i32.store16 (i32.const 0) (i32.const 0x74))
        (loop $next
          (local.set $tries (i32.add (local.get $tries) (i32.const 1)))
          (if (i32.gt_u (local.get $tries) (i32.const 10000)) (then unreachable))
          (local.set $task (call $start (i32.const 0) (i32.const 2)))
          (if (i64.ge_s (local.get $task) (i64.const 0))
            (then (local.set $task (call $join (i32.wrap_i64 (local.get $task)))))
            (else (local.set $task (i64.const 134))))
          (if (i64.eq (local.get $task) (i64.const 134))
            (then
              (i32.store (i32.const 80) (i32.const 1))
              (i64.store (i32.const 88) (i64.const 1000000))
              (drop (call $poll (i32.const 64) (i32.const 256) (i32.const 1) (i32.const 512)))
              (br $next)))
          (if (i64.ne (local.get $task) (i64.const 0)) (then unreachable))
          (br_if $next (i32.lt_u
            (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 10))))))"#;
    let held = held(MIB, 8 * MIB);
    let ended = run(&held.cell, text, paging(MIB, 3 * MIB));
    assert_eq!(ended.exit, Exit::Code(0));
    let (account, counts) = ended.memory.paging.expect("it pages");
    assert_eq!(account.size, 256);
    assert!(counts.evicted > 0, "{counts:?}");
}

#[test]
fn real_programs_run_in_less_than_they_need() {
    let held = held(8 * MIB, 64 * MIB);
    let picture = |lease: Lease| {
        let path = guests().join("thumbnail.wasm");
        let program = held.cell.load_for(&path, &lease);
        let output = Capture::new(1 << 20);
        let input = guests().join("../../guests/test-data/thumbnail/input");
        assert!(input.exists(), "{}", input.display());
        let tenant = held
            .cell
            .start_tenant(StartRequest {
                program: program.expect("the guests are built"),
                lease,
                surroundings: Surroundings {
                    args: vec!["thumbnail".into(), "32".into()],
                    stdin: Input::Bytes(std::fs::read(&input).expect("read").into()),
                    stdout: Output::Capture(output.clone()),
                    ..Surroundings::default()
                },
            })
            .expect("a tenant");
        let ended = tenant.wait().expect("an end");
        assert_eq!(ended.exit, Exit::Code(0));
        (output.bytes(), ended.memory.paging)
    };
    let (expected, _) = picture(paging(8 * MIB, 8 * MIB));
    let (small, counts) = picture(paging(64 << 10, 16 * MIB));
    assert_eq!(small, expected);
    assert!(counts.expect("it pages").1.evicted > 0);
}

/// A component that writes to 200 pages, and then has the host take or return strings of which each is in a page of its
/// own that is out by then: `from` is what it names the function that takes them.
fn scattered(from: (&str, &str), strings: u32, call: &str) -> String {
    let (module, name) = from;
    format!(
        r#"(component
          (import "wasi:http/types@0.2.0" (instance $types
            (export "fields" (type $fields (sub resource)))
            (type $bytes (list u8))
            (type $error (variant (case "invalid-syntax") (case "forbidden") (case "immutable")))
            (export "header-error" (type $header-error (eq $error)))
            (export "field-value" (type $value (eq $bytes)))
            (export "[static]fields.from-list"
              (func (param "entries" (list (tuple string $value)))
                (result (result (own $fields) (error $header-error)))))))
          (import "wasi:cli/environment@0.2.0" (instance $environment
            (export "get-environment" (func (result (list (tuple string string)))))))
          (core module $memory (memory (export "memory") 14)
            (global $page (mut i32) (i32.const 0))
            (func (export "allocate") (param i32 i32 i32 i32) (result i32)
              (if (i32.gt_u (local.get 2) (i32.const 1)) (then (return (i32.const 8192))))
              (global.set $page (i32.add (global.get $page) (i32.const 1)))
              (i32.add (i32.const 65600) (i32.mul (global.get $page) (i32.const 4096)))))
          (core instance $memory (instantiate $memory))
          (core func $from (canon lower (func $types "[static]fields.from-list")
            (memory (core memory $memory "memory")) (realloc (core func $memory "allocate"))))
          (core func $get (canon lower (func $environment "get-environment")
            (memory (core memory $memory "memory")) (realloc (core func $memory "allocate"))))
          (core module $main
            (import "memory" "memory" (memory 14))
            (import "{module}" "{name}" (func $from (param i32 i32 i32)))
            (import "environment" "get" (func $get (param i32)))
            (func (export "run") (result i32) (local $at i32) (local $element i32)
              (loop $list
                (local.set $element (i32.add (i32.const 1024) (i32.mul (local.get $at) (i32.const 8))))
                (i32.store (local.get $element)
                  (i32.add (i32.const 65600) (i32.mul (local.get $at) (i32.const 4096))))
                (i32.store offset=4 (local.get $element) (i32.const 1))
                (br_if $list (i32.lt_u
                  (local.tee $at (i32.add (local.get $at) (i32.const 1))) (i32.const {strings}))))
              (local.set $at (i32.const 0))
              (loop $fill
                (i32.store8 (i32.add (i32.const 65600) (i32.mul (local.get $at) (i32.const 4096)))
                  (i32.const 0x61))
                (br_if $fill (i32.lt_u
                  (local.tee $at (i32.add (local.get $at) (i32.const 1))) (i32.const 200))))
              {call}
              (i32.const 0)))
          (core instance $main (instantiate $main
            (with "memory" (instance $memory))
            (with "{module}" (instance (export "{name}" (func $from))))
            (with "environment" (instance (export "get" (func $get))))))
          (func $run (result (result)) (canon lift (core func $main "run")))
          (instance $command (export "run" (func $run)))
          (export "wasi:cli/run@0.2.0" (instance $command)))"#
    )
}

const AS_BINDINGS_NAME_IT: (&str, &str) = ("wasi:http/types@0.2.0", "[static]fields.from-list");

/// Gives the host so many pairs of strings.
fn given(pairs: u32) -> String {
    format!("(call $from (i32.const 1024) (i32.const {pairs}) (i32.const 16))")
}

/// How a scattering component ends, with 32 pages reserved and 24 variables in its environment.
fn end_of_scattered(text: &str) -> Exit {
    let held = held(2 * MIB, 8 * MIB);
    let lease = paging(32 * 4096, MIB);
    let (mut request, _) = request(&held.cell, text, &[], lease);
    let variables = (0..24).map(|number| (format!("V{number}"), "value".to_owned()));
    request.surroundings.env = variables.collect();
    let tenant = held.cell.start_tenant(request).expect("a tenant");
    tenant.wait().expect("an end").exit
}

#[test]
fn strings_in_pages_that_are_out_are_touched_before_the_host_takes_them() {
    // With 20 pages, more than a step may wait for.
    let text = scattered(AS_BINDINGS_NAME_IT, 20, &given(10));
    assert_eq!(end_of_scattered(&text), Exit::Code(0));
}

#[test]
fn what_is_allocated_for_the_host_is_touched_before_the_host_writes_to_it() {
    let text = scattered(("types", "from"), 1, "(call $get (i32.const 40))");
    assert_eq!(end_of_scattered(&text), Exit::Code(0));
}

#[test]
fn the_host_waits_at_once_for_no_more_pages_than_admission_counts() {
    for from in [("types", "from"), AS_BINDINGS_NAME_IT] {
        // More pages than are reserved: none that was touched before is certain to be there.
        let text = scattered(from, 180, &given(90));
        let end = end_of_scattered(&text);
        let Exit::Memory(message) = &end else {
            panic!("{from:?}: {end:?}");
        };
        assert!(message.contains("waits for more pages"), "{message}");
        assert!(message.contains("memory.reserve"), "{message}");
    }
    // Few strings are no more than admission counts, whatever their function is named.
    let text = scattered(("types", "from"), 4, &given(2));
    assert_eq!(end_of_scattered(&text), Exit::Code(0));
}
