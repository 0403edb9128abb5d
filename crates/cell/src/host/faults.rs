//! Every error of the kernel for a guest's files reaches that guest only.

use super::linux::faults::Turn;
use crate::cell::Cell;
use crate::command::StartRequest;
use crate::config::CellConfig;
use crate::exit::Exit;
use crate::profile::Profile;
use crate::program::Program;
use crate::surroundings::{Directory, Surroundings};
use leasehold_door::Call;
use leasehold_lease::Lease;
use rustix::io::Errno;
use std::path::Path;
use std::sync::Arc;

/// Makes every kind of file call, and exits with the number of failed calls.
const EVERYTHING: &str = r#"(module
  (import "wasi_snapshot_preview1" "path_open"
    (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_pread" (func $read (param i32 i32 i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_close" (func $close (param i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_sync" (func $sync (param i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_readdir"
    (func $readdir (param i32 i32 i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_filestat_get" (func $stat (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_filestat_set_size" (func $size (param i32 i64) (result i32)))
  (import "wasi_snapshot_preview1" "path_filestat_get"
    (func $path_stat (param i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_create_directory"
    (func $mkdir (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_remove_directory"
    (func $rmdir (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_rename"
    (func $rename (param i32 i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_unlink_file" (func $unlink (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "fileotherdirectory.")
  (data (i32.const 32) "\00\10\00\00\00\10\00\00") ;; 4 KiB at 4 KiB
  (global $failed (mut i32) (i32.const 0))
  (func $try (param $errno i32)
    (if (local.get $errno)
      (then (global.set $failed (i32.add (global.get $failed) (i32.const 1))))))
  (func (export "_start") (local $fd i32)
    (i32.store (i32.const 48) (i32.const 99))
    (call $try (call $open (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 4) (i32.const 1)
      (i64.const 66) (i64.const 0) (i32.const 0) (i32.const 48)))
    (local.set $fd (i32.load (i32.const 48)))
    (call $try (call $write (local.get $fd) (i32.const 32) (i32.const 1) (i32.const 56)))
    (call $try (call $read (local.get $fd) (i32.const 32) (i32.const 1) (i64.const 0) (i32.const 56)))
    (call $try (call $sync (local.get $fd)))
    (call $try (call $stat (local.get $fd) (i32.const 1024)))
    (call $try (call $size (local.get $fd) (i64.const 100)))
    (call $try (call $close (local.get $fd)))
    (call $try (call $path_stat (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 4) (i32.const 1024)))
    (call $try (call $readdir (i32.const 3) (i32.const 2048) (i32.const 1024) (i64.const 0) (i32.const 56)))
    (call $try (call $mkdir (i32.const 3) (i32.const 9) (i32.const 9)))
    (call $try (call $rmdir (i32.const 3) (i32.const 9) (i32.const 9)))
    (call $try (call $rename (i32.const 3) (i32.const 0) (i32.const 4)
      (i32.const 3) (i32.const 4) (i32.const 5)))
    (call $try (call $unlink (i32.const 3) (i32.const 4) (i32.const 5)))
    (call $exit (global.get $failed))))"#;

fn exit(cell: &Cell, program: &Arc<Program>, directory: &Path) -> Exit {
    let request = StartRequest {
        program: program.clone(),
        lease: Lease::default(),
        surroundings: Surroundings {
            dirs: vec![Directory {
                host: directory.to_owned(),
                guest: "/".to_owned(),
                write: true,
            }],
            ..Surroundings::default()
        },
    };
    let tenant = cell.start_tenant(request).expect("a tenant starts");
    tenant.wait().expect("the cell is there").exit
}

#[test]
fn a_call_that_fails_is_an_errno_for_its_tenant_and_nothing_for_the_next() {
    let turn = Turn::take();
    let cell = Cell::start(CellConfig::new(Profile::free())).expect("a cell");
    let program = cell.compile(EVERYTHING.as_bytes()).expect("it compiles");
    for base in [std::env::temp_dir(), "/dev/shm".into()] {
        let directory = tempfile::tempdir_in(&base).expect("a directory");
        assert_eq!(exit(&cell, &program, directory.path()), Exit::Code(0));
        // Advice that the kernel does not take is no error of a guest's.
        turn.fail(Call::AdviseFile, Errno::NOMEM, u32::MAX);
        assert_eq!(exit(&cell, &program, directory.path()), Exit::Code(0));
        turn.fail(Call::AdviseFile, Errno::NOMEM, 0);
        for call in [
            Call::Status,
            Call::Read,
            Call::Write,
            Call::List,
            Call::Resize,
            Call::Sync,
            Call::Change,
            Call::Open,
        ] {
            for errno in [Errno::NOMEM, Errno::MFILE, Errno::NOSPC, Errno::IO] {
                let directory = tempfile::tempdir_in(&base).expect("a directory");
                // Whichever of its calls fails, and if all do. The first opens belong to its start.
                let opens_first = matches!(call, Call::Open | Call::Status);
                if !opens_first {
                    turn.fail(call, errno, u32::MAX);
                    let failed = exit(&cell, &program, directory.path());
                    assert!(
                        matches!(failed, Exit::Code(1..)),
                        "{call:?} {errno}: {failed:?}"
                    );
                    turn.fail(call, errno, 1);
                    let failed = exit(&cell, &program, directory.path());
                    assert!(
                        matches!(failed, Exit::Code(1..)),
                        "{call:?} {errno}: {failed:?}"
                    );
                }
                // A signal changes nothing.
                turn.fail(call, Errno::INTR, 5);
                let directory = tempfile::tempdir_in(&base).expect("a directory");
                let undisturbed = exit(&cell, &program, directory.path());
                assert_eq!(undisturbed, Exit::Code(0), "{call:?}");
                turn.fail(call, errno, 0);
                let next = exit(&cell, &program, directory.path());
                assert_eq!(next, Exit::Code(0), "after {call:?} {errno}");
            }
        }
    }
}

#[test]
fn a_directory_that_cannot_be_opened_is_a_refused_start_and_the_cell_lives() {
    let turn = Turn::take();
    let cell = Cell::start(CellConfig::new(Profile::free())).expect("a cell");
    let program = cell.compile(EVERYTHING.as_bytes()).expect("it compiles");
    let directory = tempfile::tempdir().expect("a directory");
    for errno in [Errno::NOMEM, Errno::MFILE, Errno::IO] {
        turn.fail(Call::Open, errno, 1);
        let request = StartRequest {
            program: program.clone(),
            lease: Lease::default(),
            surroundings: Surroundings {
                dirs: vec![Directory {
                    host: directory.path().to_owned(),
                    guest: "/".to_owned(),
                    write: true,
                }],
                ..Surroundings::default()
            },
        };
        assert!(cell.start_tenant(request).is_err(), "{errno}");
        assert_eq!(exit(&cell, &program, directory.path()), Exit::Code(0));
    }
}

/// Creates a file, and asks for it to be on the disk.
const SYNC: &str = r#"(module
  (import "wasi_snapshot_preview1" "path_open"
    (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_sync" (func $sync (param i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "file")
  (func (export "_start")
    (if (call $open (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 4) (i32.const 1)
          (i64.const 0x50) (i64.const 0) (i32.const 0) (i32.const 8))
      (then unreachable))
    (drop (call $sync (i32.load (i32.const 8))))))"#;

#[test]
fn a_report_counts_the_calls_that_have_not_returned() {
    let turn = Turn::take();
    let cell = Cell::start(CellConfig::new(Profile::free())).expect("a cell");
    let program = cell.compile(SYNC.as_bytes()).expect("it compiles");
    let directory = tempfile::tempdir().expect("a directory");
    let start = || {
        let request = StartRequest {
            program: program.clone(),
            lease: Lease::default(),
            surroundings: Surroundings {
                dirs: vec![Directory {
                    host: directory.path().to_owned(),
                    guest: "/".to_owned(),
                    write: true,
                }],
                ..Surroundings::default()
            },
        };
        cell.start_tenant(request).expect("a tenant starts")
    };
    turn.hold(Call::Sync);
    let tenant = start();
    turn.wait_held();
    tenant.kill();
    let ended = tenant.wait().expect("the cell is there");
    assert_eq!(ended.reclaimed.calls_under_way, 1);
    turn.release();
    let ended = start().wait().expect("the cell is there");
    assert_eq!(ended.reclaimed.calls_under_way, 0);
}
