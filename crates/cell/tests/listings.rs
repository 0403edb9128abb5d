//! Listings that preview 1 programs get, of directories and of what is ready: right, and of bounded size.

mod common;

use common::{cell, lease};
use leasehold_cell::{Cell, Ended, Exit, Lease, Surroundings};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

/// Lists its directory through a buffer of `size` bytes; `each` is done when `$at` bytes of whole
/// entries are in it, `last` at the end. It exits with the errno of a call that is refused.
fn lister(size: usize, each: &str, last: &str) -> String {
    format!(
        r#"(module
  (import "wasi_snapshot_preview1" "fd_readdir"
    (func $readdir (param i32 i32 i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write"
    (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_filestat_get"
    (func $stat (param i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 2)
  ;; 0: bytes used; 8: an iovec; 16: bytes written; 32: a file's status; 1024: the buffer
  (func (export "_start")
    (local $cookie i64) (local $at i32) (local $used i32) (local $next i32) (local $count i32)
    (local $errno i32)
    (loop $more
      (if (local.tee $errno (call $readdir (i32.const 3) (i32.const 1024) (i32.const {size})
                              (local.get $cookie) (i32.const 0)))
        (then (call $exit (local.get $errno))))
      (local.set $used (i32.load (i32.const 0)))
      (local.set $at (i32.const 0))
      (block $cut
        (loop $entry
          (br_if $cut (i32.gt_u (i32.add (local.get $at) (i32.const 24)) (local.get $used)))
          (local.set $next (i32.add (i32.add (local.get $at) (i32.const 24))
                             (i32.load offset=1040 (local.get $at))))
          (br_if $cut (i32.gt_u (local.get $next) (local.get $used)))
          (local.set $cookie (i64.load offset=1024 (local.get $at)))
          (local.set $count (i32.add (local.get $count) (i32.const 1)))
          (local.set $at (local.get $next))
          (br $entry)))
      {each}
      (br_if $more (i32.eq (local.get $used) (i32.const {size}))))
    {last}))"#
    )
}

const WRITE: &str = "
      (i32.store (i32.const 8) (i32.const 1024))
      (i32.store (i32.const 12) (local.get $at))
      (drop (call $write (i32.const 1) (i32.const 8) (i32.const 1) (i32.const 16)))";

fn run(cell: &Cell, text: &str, directory: &Path, lease: Lease) -> (Ended, Vec<u8>) {
    let surroundings = Surroundings {
        dirs: vec![common::read_only(directory)],
        ..Surroundings::default()
    };
    let program = cell.compile(text.as_bytes()).expect("compiles");
    common::run(cell, program, lease, surroundings)
}

/// Name, kind and number of each entry that was written.
fn entries(mut bytes: &[u8]) -> BTreeMap<String, (u8, u64)> {
    let mut entries = BTreeMap::new();
    while let Some((head, rest)) = bytes.split_at_checked(24) {
        let number = u64::from_le_bytes(head[8..16].try_into().expect("8 bytes"));
        let length = u32::from_le_bytes(head[16..20].try_into().expect("4 bytes")) as usize;
        let name = String::from_utf8(rest[..length].to_vec()).expect("text");
        let twice = entries.insert(name, (head[20], number));
        assert_eq!(twice, None);
        bytes = &rest[length..];
    }
    assert!(bytes.is_empty());
    entries
}

#[test]
fn a_listing_has_every_entry_once_whatever_the_size_of_the_buffer() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    let mut expected = BTreeMap::from([(".".to_owned(), 3), ("..".to_owned(), 3)]);
    for file in 0..300 {
        // Names of all lengths.
        let name = format!("{file}-{}", "n".repeat(file % 250));
        File::create(path.join(&name)).expect("created");
        expected.insert(name, 4);
    }
    std::fs::create_dir(path.join("below")).expect("created");
    std::os::unix::fs::symlink("/nowhere", path.join("link")).expect("created");
    expected.extend([("below".to_owned(), 3), ("link".to_owned(), 7)]);
    let cell = cell();
    // An entry with the longest name; what libraries use; more than the whole.
    for size in [24 + 255, 1000, 4096, 65_536] {
        let text = lister(size, WRITE, "");
        let (ended, output) = run(&cell, &text, path, Lease::default());
        assert_eq!(ended.exit, Exit::Code(0), "{size}");
        let listed = entries(&output);
        let kinds = listed.iter().map(|(name, (kind, _))| (name.clone(), *kind));
        assert_eq!(kinds.collect::<BTreeMap<_, _>>(), expected, "{size}");
        // A guest cannot distinguish the parent directory from the directory itself.
        assert_eq!(listed["."].1, listed[".."].1);
        let mut numbers: Vec<u64> = listed.values().map(|(_, number)| *number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), expected.len() - 1);
    }
}

#[test]
fn a_file_has_the_same_number_in_a_listing_and_by_itself() {
    let directory = tempfile::tempdir().expect("a directory");
    File::create(directory.path().join("a")).expect("created");
    // One of the three entries has the number that the file says it has.
    let compare = r#"
      (i32.store8 (i32.const 16) (i32.const 97))
      (if (call $stat (i32.const 3) (i32.const 0) (i32.const 16) (i32.const 1) (i32.const 32))
        (then unreachable))
      (local.set $used (i32.const 0))
      (local.set $next (i32.const 0))
      (loop $entry
        (if (i64.eq (i64.load (i32.const 40)) (i64.load offset=1032 (local.get $next)))
          (then (local.set $used (i32.add (local.get $used) (i32.const 1)))))
        (local.set $next (i32.add (i32.add (local.get $next) (i32.const 24))
                           (i32.load offset=1040 (local.get $next))))
        (br_if $entry (i32.lt_u (local.get $next) (local.get $at))))
      (call $exit (i32.sub (local.get $used) (i32.const 1)))"#;
    let text = lister(4096, compare, "unreachable");
    let (ended, _) = run(&cell(), &text, directory.path(), Lease::default());
    assert_eq!(ended.exit, Exit::Code(0));
}

#[test]
fn what_cannot_be_listed_is_an_errno() {
    let directory = tempfile::tempdir().expect("a directory");
    let cell = cell();
    let call = |arguments: &str| {
        let text = format!(
            r#"(module
  (import "wasi_snapshot_preview1" "fd_readdir"
    (func $readdir (param i32 i32 i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 1)
  (func (export "_start") (call $exit (call $readdir {arguments}))))"#
        );
        let (ended, _) = run(&cell, &text, directory.path(), Lease::default());
        ended.exit
    };
    let call = |fd: u32, buffer: u32, length: u32, cookie: i64, result: u32| {
        call(&format!(
            "(i32.const {fd}) (i32.const {buffer}) (i32.const {length}) (i64.const {cookie}) \
             (i32.const {result})"
        ))
    };
    let is_fault =
        |exit| matches!(&exit, Exit::Trap(why) if why.contains("a pointer of a host call"));
    const BAD_DESCRIPTOR: Exit = Exit::Code(8);
    assert_eq!(call(3, 8, 4096, 0, 0), Exit::Code(0));
    assert_eq!(call(3, 8, 0, 0, 0), Exit::Code(0));
    assert_eq!(call(0, 8, 4096, 0, 0), BAD_DESCRIPTOR);
    assert_eq!(call(77, 8, 4096, 0, 0), BAD_DESCRIPTOR);
    assert!(is_fault(call(3, 65_535, 2, 0, 0)));
    assert!(is_fault(call(3, u32::MAX, u32::MAX, 0, 0)));
    assert!(is_fault(call(3, 8, 4096, 0, 65_533)));
    // A cookie past the end is no error: nothing follows it.
    assert_eq!(call(3, 8, 4096, -1, 0), Exit::Code(0));
}

/// The most that this process had resident since this was called last, bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("status");
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next());
    let peak: u64 = peak.and_then(|kib| kib.parse().ok()).expect("a peak");
    // Counts anew from here (`proc_pid_clear_refs(5)`).
    std::fs::write("/proc/self/clear_refs", "5").expect("reset");
    peak << 10
}

#[test]
fn a_directory_of_1e5_entries_is_listed_under_a_small_lease() {
    let directory = tempfile::tempdir().expect("a directory");
    let files = 100_000;
    let first = directory.path().join("entry-of-a-large-directory-0");
    File::create(&first).expect("created");
    for file in 1..files {
        let name = format!("entry-of-a-large-directory-{file}");
        // A link is made faster than a file; a thousand per file are allowed everywhere.
        let path = directory.path().join(name);
        match file % 1000 {
            0 => drop(File::create(path).expect("created")),
            rest => {
                let of = format!("entry-of-a-large-directory-{}", file - rest);
                std::fs::hard_link(directory.path().join(of), path).expect("linked");
            }
        }
    }
    let last = format!(
        "(if (i32.ne (local.get $count) (i32.const {})) (then (call $exit (i32.const 1))))",
        files + 2
    );
    let (cell, text) = (cell(), lister(4096, "", &last));
    // Once for what a first time leaves behind.
    run(
        &cell,
        &text,
        tempfile::tempdir().expect("one").path(),
        Lease::default(),
    );
    let budget_us = 300;
    peak();
    let before = peak();
    let (ended, _) = run(&cell, &text, directory.path(), lease(budget_us, 128));
    let after = peak();
    assert_eq!(ended.exit, Exit::Code(0));
    assert!(ended.reclaimed.predicted_ns <= budget_us * 1000);
    // All names at once would be 5 MB and more.
    assert!(after < before + (2 << 20), "{before} to {after}");
}

#[test]
fn a_pointer_outside_of_the_memory_ends_a_program_whichever_call_has_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let cell = cell();
    let exit = |call: &str| {
        let text = format!(
            r#"(module
  (import "wasi_snapshot_preview1" "fd_readdir"
    (func $readdir (param i32 i32 i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "poll_oneoff"
    (func $poll (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write"
    (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_prestat_get"
    (func $prestat (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "random_get"
    (func $random (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "clock_time_get"
    (func $clock (param i32 i64 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "_start") (drop {call})))"#
        );
        run(&cell, &text, directory.path(), Lease::default()).0.exit
    };
    let (inside, outside) = ("(i32.const 64)", "(i32.const 65536)");
    let calls: [fn(&str) -> String; 9] = [
        |p| format!("(call $readdir (i32.const 3) {p} (i32.const 8) (i64.const 0) (i32.const 0))"),
        |p| format!("(call $readdir (i32.const 3) (i32.const 8) (i32.const 8) (i64.const 0) {p})"),
        |p| format!("(call $poll {p} (i32.const 256) (i32.const 1) (i32.const 0))"),
        |p| format!("(call $poll (i32.const 256) {p} (i32.const 1) (i32.const 0))"),
        |p| format!("(call $poll (i32.const 256) (i32.const 512) (i32.const 1) {p})"),
        |p| format!("(call $write (i32.const 1) {p} (i32.const 1) (i32.const 0))"),
        |p| format!("(call $prestat (i32.const 3) {p})"),
        |p| format!("(call $random {p} (i32.const 1))"),
        |p| format!("(call $clock (i32.const 0) (i64.const 0) {p})"),
    ];
    for call in calls {
        let (within, beyond) = (call(inside), call(outside));
        assert_eq!(exit(&within), Exit::Code(0), "{within}");
        let ended = exit(&beyond);
        assert!(
            matches!(&ended, Exit::Trap(why) if why.contains("out of bounds")),
            "{beyond}: {ended:?}"
        );
    }
}

/// Polls a list of `count` subscriptions, which are by turns a clock that is due, one that is due in an hour, and
/// standard output. Exits with 1 if the events are too many or too few, and with 2 if they are others.
fn poller(count: u32) -> String {
    let events = count - (count + 1) / 3;
    format!(
        r#"(module
  (import "wasi_snapshot_preview1" "poll_oneoff"
    (func $poll (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 2)
  ;; 0: how many events; 1024: subscriptions; 65536: events
  (func (export "_start") (local $index i32) (local $at i32) (local $turn i32) (local $awaited i32)
    (loop $next
      (local.set $at (i32.add (i32.const 1024) (i32.mul (local.get $index) (i32.const 48))))
      (local.set $turn (i32.rem_u (local.get $index) (i32.const 3)))
      (i32.store (local.get $at) (local.get $index))
      (if (i32.eq (local.get $turn) (i32.const 2))
        (then
          (i32.store8 offset=8 (local.get $at) (i32.const 2))
          (i32.store offset=16 (local.get $at) (i32.const 1)))
        (else
          (i32.store offset=16 (local.get $at) (i32.const 1))
          (i64.store offset=24 (local.get $at)
            (i64.mul (i64.extend_i32_u (local.get $turn)) (i64.const 3600000000000)))))
      (local.set $index (i32.add (local.get $index) (i32.const 1)))
      (br_if $next (i32.lt_u (local.get $index) (i32.const {count}))))
    (if (call $poll (i32.const 1024) (i32.const 65536) (i32.const {count}) (i32.const 0))
      (then (call $exit (i32.const 3))))
    (if (i32.ne (i32.load (i32.const 0)) (i32.const {events})) (then (call $exit (i32.const 1))))
    (local.set $at (i32.const 65536))
    (loop $event
      (if (i32.ne (i32.load (local.get $at)) (local.get $awaited)) (then (call $exit (i32.const 2))))
      (local.set $awaited (i32.add (local.get $awaited)
        (select (i32.const 2) (i32.const 1)
          (i32.eqz (i32.rem_u (local.get $awaited) (i32.const 3))))))
      (local.set $at (i32.add (local.get $at) (i32.const 32)))
      (br_if $event
        (i32.lt_u (local.get $at) (i32.const {end}))))))"#,
        end = 65_536 + events * 32,
    )
}

#[test]
fn a_poll_tells_of_all_that_is_ready_in_lists_of_one_step_and_of_several() {
    let directory = tempfile::tempdir().expect("a directory");
    let cell = cell();
    for count in [1, 2, 3, 63, 64, 65, 128, 130, 512] {
        let (ended, _) = run(&cell, &poller(count), directory.path(), Lease::default());
        assert_eq!(ended.exit, Exit::Code(0), "{count} subscriptions");
    }
}
