//! Pages that tenants share: the initial memory of a program that several of them run, and data
//! sets. An eviction affects no other tenant, a write makes a private copy, and an end leaves the
//! pages to the others.

mod common;

use common::http::{Server, receive};
use common::lease;
use common::paged::{self, Held, PAGE, end, paged, until};
use leasehold_cell::steps::StepUse;
use leasehold_cell::{
    Cell, Exit, Lease, Rehearsal, RehearsedStart, Serving, StartError, StartRequest, Surroundings,
    TenantHandle,
};
use leasehold_lease::SharedPages;
use leasehold_pager::{Account, Counts, Technique};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pages of the image, which begins behind the first 16 of the memory.
const IMAGE: u32 = 256;

/// A cell that holds `frames` frames.
fn held(frames: u64) -> Held {
    paged::held(frames * PAGE, 64 << 20)
}

/// A lease of two seconds that reserves `frames` and allows 8 MiB.
fn paging(frames: u64, shared: SharedPages) -> Lease {
    paged::paging(2_000_000, frames * PAGE, 8 << 20, shared)
}

/// A module with 2 MiB of memory, the image in it, and this code. `$check` traps unless pages of the
/// image, from the first to before the last, hold what they did at first.
fn program(code: &str) -> String {
    let image: String = (0..IMAGE)
        .map(|page| {
            char::from(b'a' + (page % 26) as u8)
                .to_string()
                .repeat(4096)
        })
        .collect();
    format!(
        r#"(module
          (import "leasehold_kernel" "task_start" (func $start (param i32 i32) (result i64)))
          (import "leasehold_kernel" "task_wait" (func $join (param i32) (result i64)))
          (import "leasehold_kernel" "task_stop" (func $stop (param i32) (result i64)))
          (import "leasehold_kernel" "channel_receive"
            (func $receive (param i32 i32 i32 i32 i32) (result i64)))
          (import "leasehold_kernel" "data_length" (func $length (param i32 i32) (result i64)))
          (import "leasehold_kernel" "data_map" (func $map (param i32 i32) (result i64)))
          (import "wasi_snapshot_preview1" "args_sizes_get"
            (func $args (param i32 i32) (result i32)))
          (memory (export "memory") 32)
          (data (i32.const 65536) "{image}")
          (func $check (param $page i32) (param $to i32)
            (loop $next
              (if (i32.ne
                    (i32.load8_u offset=65543 (i32.shl (local.get $page) (i32.const 12)))
                    (i32.add (i32.const 97) (i32.rem_u (local.get $page) (i32.const 26))))
                (then unreachable))
              (br_if $next (i32.lt_u
                (local.tee $page (i32.add (local.get $page) (i32.const 1)))
                (local.get $to)))))
          {code})"#
    )
}

/// Reads all of the image, `rounds` times or for ever.
fn reader(rounds: Option<u32>) -> String {
    let again = rounds.map_or("(br $more)".to_owned(), |rounds| {
        format!(
            "(br_if $more (i32.lt_u
              (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const {rounds})))"
        )
    });
    program(&format!(
        r#"(func (export "_start") (local $n i32)
          (loop $more (call $check (i32.const 0) (i32.const {IMAGE})) {again}))"#
    ))
}

/// Reads the first half of the image, writes the number to each page of it, and finds them again
/// `rounds` times.
fn writer(number: u32, rounds: u32) -> String {
    let half = IMAGE / 2;
    program(&format!(
        r#"(func (export "_start") (local $n i32) (local $page i32)
          (call $check (i32.const 0) (i32.const {half}))
          (loop $write
            (i32.store offset=65600 (i32.shl (local.get $page) (i32.const 12)) (i32.const {number}))
            (br_if $write (i32.lt_u
              (local.tee $page (i32.add (local.get $page) (i32.const 1))) (i32.const {half}))))
          (loop $more
            (local.set $page (i32.const 0))
            (call $check (i32.const 0) (i32.const {half}))
            (loop $read
              (if (i32.ne (i32.const {number})
                    (i32.load offset=65600 (i32.shl (local.get $page) (i32.const 12))))
                (then unreachable))
              (br_if $read (i32.lt_u
                (local.tee $page (i32.add (local.get $page) (i32.const 1))) (i32.const {half}))))
            (br_if $more (i32.lt_u
              (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const {rounds})))))"#
    ))
}

fn request(cell: &Cell, text: &str, lease: Lease) -> StartRequest {
    let program = cell.compile_for(text.as_bytes(), &lease);
    let program = program.expect("a program");
    let apart = lease.memory.paging.map(|paging| paging.shared) != Some(SharedPages::None);
    assert_eq!(
        program.image().is_some(),
        apart && lease.memory.paging.is_some()
    );
    StartRequest {
        program,
        lease,
        surroundings: Surroundings {
            args: vec!["guest".into()],
            ..Surroundings::default()
        },
    }
}

fn start(cell: &Cell, text: &str, lease: Lease) -> TenantHandle {
    let started = cell.start_tenant(request(cell, text, lease));
    started.expect("a tenant")
}

fn refused(cell: &Cell, text: &str, lease: Lease) -> String {
    let started = cell.start_tenant(request(cell, text, lease));
    match started.err().expect("refused") {
        StartError::Memory(why) => why,
        other => panic!("refused for something else: {other}"),
    }
}

#[test]
fn evicting_a_shared_image_takes_it_from_no_other_tenant() {
    let held = held(1024);
    let roomy = start(
        &held.cell,
        &reader(None),
        paging(512, SharedPages::Conserve),
    );
    let before = until(&roomy, |account, _| account.owned >= IMAGE);
    let tight = start(
        &held.cell,
        &reader(Some(20)),
        paging(64, SharedPages::Conserve),
    );
    let ended = tight.wait().expect("an end");
    assert_eq!(ended.exit, Exit::Code(0));
    let (account, counts) = paged(ended.memory);
    assert!(counts.unmapped > 1000 && counts.minor > 1000, "{counts:?}");
    assert_eq!(counts.major, 0, "its pages were in memory all the time");
    assert!(account.conserved > 0 && account.size == 64, "{account:?}");
    let after = until(&roomy, |_, _| true);
    assert_eq!(paged(after).1.major, paged(before).1.major);
    assert_eq!(after.shared_bytes, u64::from(IMAGE) * PAGE);
    end(&roomy);
}

#[test]
fn a_write_to_a_shared_image_makes_a_copy_that_its_writer_pays_for_and_no_other_sees() {
    let held = held(2048);
    let keep = start(
        &held.cell,
        &reader(None),
        paging(512, SharedPages::Conserve),
    );
    until(&keep, |account, _| account.owned >= IMAGE);
    // The code differs, the image does not: it is one area.
    let writers = [7, 8].map(|number| {
        start(
            &held.cell,
            &writer(number, 50),
            paging(400, SharedPages::Conserve),
        )
    });
    // As large as it needs to be for its copies, and smaller.
    let tight = start(&held.cell, &writer(9, 3), paging(32, SharedPages::Conserve));
    for writer in writers {
        let ended = writer.wait().expect("an end");
        assert_eq!(ended.exit, Exit::Code(0));
        let (_, counts) = paged(ended.memory);
        assert_eq!(counts.copied, u64::from(IMAGE / 2), "{counts:?}");
        assert_eq!(counts.major, 0, "{counts:?}");
    }
    let ended = tight.wait().expect("an end");
    assert_eq!(ended.exit, Exit::Code(0));
    assert!(paged(ended.memory).1.written > 0, "copies are written out");
    // The next one finds what was there at first.
    let fresh = start(
        &held.cell,
        &reader(Some(1)),
        paging(400, SharedPages::Conserve),
    );
    assert_eq!(fresh.wait().expect("an end").exit, Exit::Code(0));
    end(&keep);
}

#[test]
fn the_end_of_an_owner_hands_its_pages_to_the_tenants_that_share_them() {
    let held = held(1024);
    let first = start(
        &held.cell,
        &reader(None),
        paging(512, SharedPages::Conserve),
    );
    until(&first, |account, _| account.owned >= IMAGE);
    let second = start(
        &held.cell,
        &reader(None),
        paging(512, SharedPages::Conserve),
    );
    until(&second, |account, _| account.conserved == IMAGE);
    end(&first);
    let used = until(&second, |account, _| account.conserved == 0);
    let (account, counts) = paged(used);
    assert_eq!(account.owned, IMAGE);
    assert_eq!(counts.inherited, u64::from(IMAGE));
    assert_eq!(counts.major, 0, "it never waited for a page");
    end(&second);
    assert!(held.cell.shared().is_empty());
}

#[test]
fn a_lock_takes_one_frame_for_each_page_however_many_share_it() {
    const RESERVE: u64 = 384;
    // Two reservations, and of the third what the lock of the other two has set free is missing.
    let held = held(3 * RESERVE - u64::from(IMAGE));
    let lock = || {
        start(
            &held.cell,
            &reader(None),
            paging(RESERVE, SharedPages::Lock),
        )
    };
    let first = lock();
    let (account, counts) = paged(until(&first, |_, _| true));
    assert_eq!(account.locked, IMAGE, "before its first instruction");
    assert_eq!(counts.major, u64::from(IMAGE));
    let others = [lock(), lock()];
    for other in &others {
        let (account, counts) = paged(until(other, |_, _| true));
        assert_eq!((account.locked, counts.major), (IMAGE, 0));
        assert_eq!(account.owned + account.conserved, 0, "all of it is locked");
    }
    let used = held.cell.shared();
    assert_eq!((used.len(), used[0].sharers, used[0].locked), (1, 3, true));
    let more = refused(
        &held.cell,
        &reader(None),
        paging(RESERVE, SharedPages::Lock),
    );
    assert_eq!(more, "384 frames needed, 256 unreserved");
    // Any of them may end, the first one too.
    end(&first);
    for other in &others {
        let (account, counts) = paged(until(other, |_, _| true));
        assert_eq!((account.locked, counts.major), (IMAGE, 0));
        end(other);
    }
    let again = lock();
    assert_eq!(paged(until(&again, |_, _| true)).1.major, u64::from(IMAGE));
    end(&again);
}

#[test]
fn a_lock_that_does_not_fit_the_reservation_is_refused_before_the_program_runs() {
    let held = held(1024);
    let size = u64::from(IMAGE);
    let why = refused(&held.cell, &reader(None), paging(size, SharedPages::Lock));
    let expected =
        "the reservation must be larger than the 259 pages locked or needed at once, it has 256";
    assert!(why.contains(expected), "{why}");
    // A rehearsal says the same, and that one frame more is enough.
    let directory = tempfile::tempdir().expect("directory");
    let program = directory.path().join("reader.wat");
    std::fs::write(&program, reader(None)).expect("written");
    let rehearse = |bytes| {
        Rehearsal::new(common::profile(), Arc::default()).start(&RehearsedStart {
            program: &program,
            lease: &paged::paging(2_000_000, bytes, 8 << 20, SharedPages::Lock),
            surroundings: &Surroundings::default(),
            has_store: false,
            is_handler: false,
            calls: 0,
            addresses: 0,
        })
    };
    let foretold = rehearse(size * PAGE).expect_err("too small");
    assert!(foretold.to_string().contains(expected), "{foretold}");
    // A part of a page is a frame.
    let step = 1024;
    let enough = (size + 3) * PAGE + step;
    rehearse(enough).expect("enough");
    rehearse(enough - step).expect_err("too small");
    let lease = paged::paging(2_000_000, enough, 8 << 20, SharedPages::Lock);
    end(&start(&held.cell, &reader(None), lease));
    // Nothing is left of it: all frames can be had.
    let all = start(
        &held.cell,
        &reader(Some(1)),
        paging(1024, SharedPages::Lock),
    );
    assert_eq!(all.wait().expect("an end").exit, Exit::Code(0));
}

#[test]
fn a_tenant_that_answers_requests_pays_for_what_it_shares_when_it_answers_none() {
    let held = held(4096);
    for sharing in [SharedPages::Conserve, SharedPages::Lock] {
        let lease = paged::paging(2_000_000, 2048 * PAGE, 16 << 20, sharing);
        let server = Server::start(&held.cell, "table.wasm", lease, Serving::default());
        let charged = || {
            let statement = server.tenant.statement().expect("it lives");
            let row = statement
                .rows
                .into_iter()
                .find(|row| row.name == "paged_page");
            row.map_or(0, |row| row.count)
        };
        // 2 MiB that it begins with, and no instance.
        assert!(charged() >= 512, "{sharing:?}: {}", charged());
        let before = charged();
        let mut client = server.send("/");
        let answer = receive(&mut client).expect("a response");
        assert_eq!(answer.text(), "0 of 262144 wrong\n");
        drop(client);
        let began = Instant::now();
        while charged() != before {
            assert!(began.elapsed() < Duration::from_secs(20), "{}", charged());
            std::thread::sleep(Duration::from_millis(1));
        }
        end(&server.tenant);
    }
}

#[test]
fn the_rule_locks_what_everybody_uses_and_conserves_what_few_do() {
    let held = held(2048);
    let auto = |text: &str| start(&held.cell, text, paging(384, SharedPages::Auto));
    let all = auto(&reader(None));
    until(&all, |account, _| account.owned >= IMAGE);
    assert!(
        !held.cell.shared()[0].locked,
        "one tenant alone shares nothing"
    );
    let second = auto(&reader(None));
    let used = held.cell.shared();
    assert!(used[0].locked && used[0].sharers == 2, "{used:?}");
    assert_eq!(used[0].choice, Some(Technique::Spel));
    end(&all);
    end(&second);

    let few = r#"(func (export "_start") (loop $on
      (call $check (i32.const 3) (i32.const 9)) (br $on)))"#;
    let few = [0; 3].map(|_| {
        let tenant = auto(&program(few));
        until(&tenant, |account, _| account.owned + account.conserved >= 6);
        tenant
    });
    let used = held.cell.shared();
    assert!(!used[0].locked && used[0].sharers == 3, "{used:?}");
    few.iter().for_each(|tenant| drop(end(tenant)));
}

#[test]
fn a_tenant_that_shares_nothing_has_a_copy_of_its_own() {
    let held = held(1024);
    let own = || start(&held.cell, &reader(None), paging(400, SharedPages::None));
    for tenant in [own(), own()] {
        let used = until(&tenant, |account, _| account.owned >= IMAGE);
        let (account, counts) = paged(used);
        assert_eq!((account.conserved, counts.minor, counts.major), (0, 0, 0));
        assert_eq!(used.shared_bytes, 0);
        assert!(held.cell.shared().is_empty());
        end(&tenant);
    }
}

#[test]
fn tasks_of_a_tenant_find_the_image_too() {
    let held = held(2048);
    // Overwrites what it has read, and starts a task that reads it again.
    let text = program(
        r#"(func (export "_start") (local $task i64)
          (call $check (i32.const 0) (i32.const 256))
          (drop (call $args (i32.const 16) (i32.const 20)))
          (if (i32.gt_u (i32.load (i32.const 16)) (i32.const 1)) (then return))
          (memory.fill (i32.const 65536) (i32.const 0) (i32.const 1048576))
          (i32.store16 (i32.const 0) (i32.const 0x74))
          (local.set $task (call $start (i32.const 0) (i32.const 2)))
          (if (i64.lt_s (local.get $task) (i64.const 0)) (then unreachable))
          (if (i64.ne (call $join (i32.wrap_i64 (local.get $task))) (i64.const 0))
            (then unreachable)))"#,
    );
    let ended = start(&held.cell, &text, paging(300, SharedPages::Conserve)).wait();
    assert_eq!(ended.expect("an end").exit, Exit::Code(0));
    // The task has a copy, made a page a step: each page may have to be fetched from the disk.
    let steps = held.cell.steps().into_iter();
    let of_faults = |step: &StepUse| step.row.row().title() == "cell fault";
    let steps: u64 = steps.filter(of_faults).map(|step| step.steps).sum();
    assert!(steps >= IMAGE.into(), "{steps}");
}

#[test]
fn sharers_that_are_killed_at_any_moment_leave_all_frames_behind() {
    let held = held(800);
    for round in 0..20_u64 {
        let shared = match round % 3 {
            0 => SharedPages::Conserve,
            1 => SharedPages::Lock,
            _ => SharedPages::Auto,
        };
        let tenants: Vec<_> = [400, 300, 100]
            .into_iter()
            .filter(|&frames| shared == SharedPages::Conserve || frames > IMAGE.into())
            .map(|frames| start(&held.cell, &writer(1, u32::MAX), paging(frames, shared)))
            .collect();
        std::thread::sleep(Duration::from_millis(round / 2));
        for tenant in tenants {
            let ended = end(&tenant);
            assert_eq!(ended.exit, Exit::Killed);
            let image = u64::from(IMAGE) * 2000;
            assert!(ended.reclaimed.predicted_ns > image + 512 * 2000);
        }
    }
    let all = start(
        &held.cell,
        &reader(Some(1)),
        paging(800, SharedPages::Conserve),
    );
    assert_eq!(all.wait().expect("an end").exit, Exit::Code(0));
}

/// A file of `bytes` bytes, each the number of its page, from 1 on; written once, since one that was
/// changed is another data set.
fn data(held: &Held, bytes: usize) -> PathBuf {
    let path = held.directory.path().join(format!("{bytes}.bin"));
    if !path.exists() {
        let contents: Vec<u8> = (0..bytes).map(|at| (at / 4096 % 255 + 1) as u8).collect();
        std::fs::write(&path, contents).expect("written");
    }
    path
}

/// Maps the data set `weights` behind what it has grown to, checks all of it, and runs `code`, which
/// finds the address of the data in `$data` and its pages in `$pages`.
fn mapper(code: &str) -> String {
    program(&format!(
        r#"(func $sound (param $data i32) (param $pages i32) (local $page i32)
          (loop $next
            (if (i32.ne
                  (i32.load8_u (i32.add (local.get $data)
                    (i32.shl (local.get $page) (i32.const 12))))
                  (i32.add (i32.const 1) (local.get $page)))
              (then unreachable))
            (br_if $next (i32.lt_u
              (local.tee $page (i32.add (local.get $page) (i32.const 1))) (local.get $pages)))))
        (func (export "_start") (local $data i32) (local $pages i32)
          (i64.store (i32.const 0) (i64.const 0x73746867696577))
          ;; Leaves room behind the last page, which is not used then.
          (drop (memory.grow (i32.const 1)))
          (if (i64.ne (call $length (i32.const 0) (i32.const 3)) (i64.const -13))
            (then unreachable))
          (local.set $pages (i32.wrap_i64 (i64.shr_u
            (i64.add (call $length (i32.const 0) (i32.const 7)) (i64.const 4095))
            (i64.const 12))))
          (local.set $data (i32.wrap_i64 (call $map (i32.const 0) (i32.const 7))))
          (if (i32.ne (local.get $data) (i32.const 0x210000)) (then unreachable))
          (call $sound (local.get $data) (local.get $pages))
          {code})"#
    ))
}

fn start_mapper(held: &Held, code: &str, bytes: usize, lease: Lease) -> TenantHandle {
    let mut request = request(&held.cell, &mapper(code), lease);
    request.surroundings.data = vec![("weights".into(), data(held, bytes))];
    held.cell.start_tenant(request).expect("a tenant")
}

const ON: &str = "(loop $on (call $sound (local.get $data) (local.get $pages)) (br $on))";

#[test]
fn tenants_that_map_a_data_set_have_one_frame_for_each_of_its_pages() {
    let held = held(600);
    let bytes = 100 * 4096 - 7;
    let roomy = start_mapper(&held, ON, bytes, paging(300, SharedPages::Conserve));
    let before = until(&roomy, |account, _| account.owned >= 100);
    let (_, counts) = paged(before);
    let rounds = ON.replace("(br $on)", "").repeat(10);
    let tight = start_mapper(&held, &rounds, bytes, paging(40, SharedPages::Conserve));
    let ended = tight.wait().expect("an end");
    assert_eq!(ended.exit, Exit::Code(0));
    let (_, theirs) = paged(ended.memory);
    assert!(theirs.unmapped > 500, "{theirs:?}");
    // The page with the name that it asked for, and no page of the data.
    assert!(theirs.written <= 1, "{theirs:?}");
    assert_eq!(paged(until(&roomy, |_, _| true)).1.major, counts.major);
    let used = held.cell.shared();
    let weights = used.iter().find(|used| used.name == "weights");
    assert_eq!(weights.expect("it is mapped").pages, 100);
    assert_eq!(weights.expect("it is mapped").peak, 100);
    end(&roomy);
}

#[test]
fn what_is_behind_a_data_set_is_zero_and_memory_grows_on() {
    let held = held(600);
    let code = r#"
      ;; The rest of the last page of the file, of the page of 64 KiB, and another one.
      (if (i32.load offset=28600 (local.get $data)) (then unreachable))
      (if (i32.load offset=28700 (local.get $data)) (then unreachable))
      (i32.store offset=28672 (local.get $data) (i32.const 5))
      (if (i32.ne (memory.grow (i32.const 2)) (i32.const 34)) (then unreachable))
      (i32.store offset=65536 (local.get $data) (i32.const 6))
      (if (i32.ne (i32.load offset=28672 (local.get $data)) (i32.const 5)) (then unreachable))
      (memory.copy (i32.const 8192) (local.get $data) (i32.const 28672))
      (call $sound (i32.const 8192) (local.get $pages))
      (call $check (i32.const 0) (i32.const 256))
      (call $sound (local.get $data) (local.get $pages))"#;
    for shared in [SharedPages::Conserve, SharedPages::None] {
        let tenant = start_mapper(&held, code, 7 * 4096 - 100, paging(300, shared));
        assert_eq!(tenant.wait().expect("an end").exit, Exit::Code(0));
    }
}

#[test]
fn a_tenant_has_a_shared_data_set_once() {
    let held = held(600);
    let code = r#"
      (if (i64.ne (call $map (i32.const 0) (i32.const 7)) (i64.const -14)) (then unreachable))
      (call $sound (local.get $data) (local.get $pages))
      (if (i32.ne (memory.size) (i32.const 34)) (then unreachable))"#;
    let tenant = start_mapper(&held, code, 4096, paging(300, SharedPages::Conserve));
    assert_eq!(tenant.wait().expect("an end").exit, Exit::Code(0));
}

#[test]
fn a_tenant_that_writes_to_a_data_set_is_ended_and_no_other_sees_it() {
    let held = held(600);
    let roomy = start_mapper(&held, ON, 40 * 4096, paging(300, SharedPages::Conserve));
    let reason = "a page of its memory cannot be had: it is read-only data";
    for code in [
        "(i32.store8 offset=9 (local.get $data) (i32.const 9))",
        "(memory.fill (local.get $data) (i32.const 9) (i32.const 8192)) (loop $on (br $on))",
    ] {
        let writer = start_mapper(&held, code, 40 * 4096, paging(200, SharedPages::Conserve));
        let ended = writer.wait().expect("an end");
        assert_eq!(ended.exit, Exit::Memory(reason.into()));
        let reader = start_mapper(&held, "", 40 * 4096, paging(200, SharedPages::Conserve));
        assert_eq!(reader.wait().expect("an end").exit, Exit::Code(0));
    }
    until(&roomy, |_, _| true);
    end(&roomy);
}

/// The engine compiles short copies to instructions of which it expects no fault.
#[test]
fn a_short_copy_to_a_data_set_ends_its_tenant_and_no_other() {
    let held = held(600);
    let roomy = start_mapper(&held, ON, 40 * 4096, paging(300, SharedPages::Conserve));
    let reason = "a page of its memory cannot be had: it is read-only data";
    for code in [
        "(memory.init $few (local.get $data) (i32.const 0) (i32.const 10))",
        "(memory.copy (local.get $data) (i32.const 64) (i32.const 10))",
        "(memory.fill (local.get $data) (i32.const 7) (i32.const 10))",
    ] {
        let text = mapper(code).replacen(
            "(func $sound",
            r#"(data $few "0123456789") (func $sound"#,
            1,
        );
        // A program with a passive segment has no image.
        let mut request = request(&held.cell, &text, paging(250, SharedPages::None));
        request.surroundings.data = vec![("weights".into(), data(&held, 40 * 4096))];
        let writer = held.cell.start_tenant(request).expect("a tenant");
        let ended = writer.wait().expect("an end");
        assert_eq!(ended.exit, Exit::Memory(reason.into()), "{code}");
    }
    until(&roomy, |_, _| true);
    end(&roomy);
}

#[test]
fn a_data_set_under_a_lock_is_read_once_for_all() {
    let held = held(900);
    let frames = 400;
    let bytes = 100 * 4096;
    let first = start_mapper(&held, ON, bytes, paging(frames, SharedPages::Lock));
    until(&first, |account, _| account.locked == IMAGE + 100);
    let second = start_mapper(&held, ON, bytes, paging(frames, SharedPages::Lock));
    let used = until(&second, |account, _| account.locked == IMAGE + 100);
    assert_eq!(paged(used).1.major, 0);
    end(&first);
    end(&second);
    // One that it does not fit is told so, has nothing of it, and continues.
    let small = paging(u64::from(IMAGE) + 60, SharedPages::Lock);
    let text = mapper("").replace(
        "(local.set $data (i32.wrap_i64 (call $map (i32.const 0) (i32.const 7))))",
        "(if (i64.ne (call $map (i32.const 0) (i32.const 7)) (i64.const -6)) (then unreachable))
         (if (i32.ne (memory.size) (i32.const 33)) (then unreachable))
         (return)",
    );
    let mut request = request(&held.cell, &text, small);
    request.surroundings.data = vec![("weights".into(), data(&held, bytes))];
    let tenant = held.cell.start_tenant(request).expect("a tenant");
    assert_eq!(tenant.wait().expect("an end").exit, Exit::Code(0));
}

#[test]
fn a_data_set_that_is_not_there_is_named() {
    let held = held(600);
    let mut request = request(
        &held.cell,
        &reader(None),
        paging(300, SharedPages::Conserve),
    );
    request.surroundings.data = vec![("weights".into(), "no/weights.bin".into())];
    let error = held.cell.start_tenant(request).err().expect("refused");
    let error = error.to_string();
    assert!(error.contains("no/weights.bin"), "{error}");
}

#[test]
fn a_lock_that_a_task_cannot_leave_goes_with_its_tenant() {
    let frames = 1216;
    let held = held(frames);
    // Starts a task that maps the data, stops it when it is told to, and starts one more.
    let text = program(
        r#"(func $task (param $name i32) (result i32)
          (i32.store16 (i32.const 32) (local.get $name))
          (i32.wrap_i64 (call $start (i32.const 32) (i32.const 2))))
        (func (export "_start") (local $task i32)
          (drop (call $args (i32.const 16) (i32.const 20)))
          (if (i32.eq (i32.load (i32.const 16)) (i32.const 2)) (then
            ;; `m` maps the data and waits; `c`, with another argument, looks at the image.
            (i64.store (i32.const 0) (i64.const 0x73746867696577))
            (if (i64.lt_s (call $map (i32.const 0) (i32.const 7)) (i64.const 0))
              (then unreachable))
            (loop $on (br $on))))
          (call $check (i32.const 0) (i32.const 256))
          (if (i32.eq (i32.load (i32.const 16)) (i32.const 3)) (then return))
          (local.set $task (call $task (i32.const 0x6d)))
          (drop (call $receive
            (i32.const 1) (i32.const 64) (i32.const 8) (i32.const 80) (i32.const 0)))
          (drop (call $stop (local.get $task)))
          (drop (call $join (local.get $task)))
          ;; Two empty strings more make it three arguments.
          (i32.store (i32.const 32) (i32.const 0x00630063))
          (local.set $task (i32.wrap_i64 (call $start (i32.const 32) (i32.const 4))))
          (if (i64.ne (call $join (local.get $task)) (i64.const 0)) (then unreachable)))"#,
    );
    let path = data(&held, 100 * 4096);
    let mut request = request(&held.cell, &text, paging(700, SharedPages::Lock));
    request.surroundings.data = vec![("weights".into(), path)];
    let first = held.cell.start_held(request).expect("a tenant");
    let teller = held.cell.compile(
        br#"(module
          (import "leasehold_kernel" "channel_send"
            (func $send (param i32 i32 i32 i32 i32) (result i64)))
          (memory (export "memory") 1)
          (func (export "_start")
            (drop (call $send
              (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 0) (i32.const 0)))))"#,
    );
    let teller = StartRequest {
        program: teller.expect("a program"),
        lease: lease(1_000_000, 64),
        surroundings: Surroundings::default(),
    };
    let teller = held.cell.start_held(teller).expect("a tenant");
    let connected = held.cell.connect(&first, &teller, 1024, 4);
    assert_eq!(connected, Ok((1, 1)));
    first.go();
    let locked = |account: &Account, _: &Counts| account.locked == IMAGE + 100;
    until(&first, locked);
    let second = start_mapper(&held, ON, 100 * 4096, paging(400, SharedPages::Lock));
    until(&second, locked);
    // The frames that the locks set free are in use by another tenant.
    let rest = frames - 16 - 700 - 400 + u64::from(IMAGE) + 100;
    let third = start(
        &held.cell,
        &reader(None),
        paging(rest, SharedPages::Conserve),
    );
    teller.go();
    assert_eq!(first.wait().expect("an end").exit, Exit::Code(0));
    assert_eq!(teller.wait().expect("an end").exit, Exit::Code(0));
    end(&second);
    end(&third);
    let all = start(
        &held.cell,
        &reader(Some(1)),
        paging(frames, SharedPages::Conserve),
    );
    assert_eq!(all.wait().expect("an end").exit, Exit::Code(0));
}
