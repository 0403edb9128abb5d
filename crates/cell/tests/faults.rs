//! Every system call that is made for a tenant fails, the first, the second, and so on, with each error that it can
//! have, beside a neighbour that lives on: only the tenant concerned is refused anything, and the next one is not.

mod common;

use common::paged::{Held, held, paging};
use common::{cell, guest, lease, profile, until};
use leasehold_cell::keyvalue::Store;
use leasehold_cell::{
    Cell, CellConfig, Directory, Ended, Exit, Lease, MapBacking, Output, Program, Rehearsal,
    RehearsedStart, StartError, StartRequest, Surroundings, TenantHandle, WhenRealtime,
};
use leasehold_door::Call;
use leasehold_door::faults::{Gate, Plan, arm, arm_this_thread, disarm, met, spare, spare_none};
use leasehold_lease::SharedPages;
use leasehold_reclaim::Backing as _;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tempfile::TempDir;

const MIB: u64 = 1 << 20;
/// How long a tenant may take. None waits for anything that a failed call does not bring.
const PATIENCE: Duration = Duration::from_secs(30);

/// A plan is the whole process's, and so is one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Fills its memory, writes to its file, reads it, and goes on for ever unless it finds anything else than it wrote,
/// or a call fails. The first eight bytes of the file are the number of rounds.
const NEIGHBOUR: &str = r#"(module
  (import "wasi_snapshot_preview1" "path_open"
    (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_pwrite" (func $write (param i32 i32 i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_pread" (func $read (param i32 i32 i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_sync" (func $sync (param i32) (result i32)))
  (memory (export "memory") 4)
  (data (i32.const 0) "neighbour")
  (data (i32.const 32) "\00\00\01\00\00\20\00\00") ;; 8 KiB at 64 KiB
  (data (i32.const 40) "\00\00\02\00\00\20\00\00") ;; 8 KiB at 128 KiB
  (data (i32.const 48) "\40\00\00\00\08\00\00\00") ;; the number of rounds
  (func $must (param $errno i32) (if (local.get $errno) (then unreachable)))
  (func $value (param $at i32) (param $round i64) (result i64)
    (i64.mul
      (i64.add (i64.extend_i32_u (local.get $at)) (local.get $round))
      (i64.const 0x9E3779B97F4A7C15)))
  (func (export "_start") (local $fd i32) (local $at i32) (local $round i64)
    (call $must (call $open (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 9) (i32.const 1)
      (i64.const 86) (i64.const 0) (i32.const 0) (i32.const 24)))
    (local.set $fd (i32.load (i32.const 24)))
    (loop $rounds
      (local.set $round (i64.add (local.get $round) (i64.const 1)))
      (local.set $at (i32.const 0))
      (loop $fill
        (i64.store (i32.add (local.get $at) (i32.const 65536))
          (call $value (local.get $at) (local.get $round)))
        (br_if $fill (i32.lt_u
          (local.tee $at (i32.add (local.get $at) (i32.const 8))) (i32.const 8192))))
      (call $must (call $write (local.get $fd) (i32.const 32) (i32.const 1) (i64.const 8192) (i32.const 56)))
      (call $must (i32.ne (i32.load (i32.const 56)) (i32.const 8192)))
      (call $must (call $read (local.get $fd) (i32.const 40) (i32.const 1) (i64.const 8192) (i32.const 56)))
      (call $must (i32.ne (i32.load (i32.const 56)) (i32.const 8192)))
      (local.set $at (i32.const 0))
      (loop $check
        (if (i64.ne (i64.load (i32.add (local.get $at) (i32.const 131072)))
                    (call $value (local.get $at) (local.get $round)))
          (then unreachable))
        (br_if $check (i32.lt_u
          (local.tee $at (i32.add (local.get $at) (i32.const 8))) (i32.const 8192))))
      (if (i64.eqz (i64.rem_u (local.get $round) (i64.const 200)))
        (then (call $must (call $sync (local.get $fd)))))
      (i64.store (i32.const 64) (local.get $round))
      (call $must (call $write (local.get $fd) (i32.const 48) (i32.const 1) (i64.const 0) (i32.const 56)))
      (br $rounds))))"#;

/// Does a bit of everything, and returns which of its calls was the first to fail, from 1 on; traps if it finds anything else than it
/// wrote. With 1 for `{paged}` it maps a region and a data set, too.
const EVERYTHING: &str = r#"(module
  (import "wasi_snapshot_preview1" "args_sizes_get" (func $args (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_open"
    (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_pread" (func $read (param i32 i32 i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_close" (func $close (param i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_sync" (func $sync (param i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_advise" (func $advise (param i32 i64 i64 i32) (result i32)))
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
  (import "leasehold_kernel" "channel_create" (func $channel (param i32) (result i64)))
  (import "leasehold_kernel" "channel_try_send"
    (func $send (param i32 i32 i32 i32 i32) (result i64)))
  (import "leasehold_kernel" "channel_try_receive"
    (func $receive (param i32 i32 i32 i32 i32) (result i64)))
  (import "leasehold_kernel" "timer_create" (func $timer (result i64)))
  (import "leasehold_kernel" "timer_set" (func $set (param i32 i64 i64) (result i64)))
  (import "leasehold_kernel" "timer_wait" (func $wait_timer (param i32) (result i64)))
  (import "leasehold_kernel" "region_create" (func $region (param i64) (result i64)))
  (import "leasehold_kernel" "region_write" (func $put (param i32 i64 i32 i32) (result i64)))
  (import "leasehold_kernel" "region_read" (func $get (param i32 i64 i32 i32) (result i64)))
  (import "leasehold_kernel" "region_create_mapped" (func $mapped (param i64) (result i64)))
  (import "leasehold_kernel" "region_map" (func $map (param i32) (result i64)))
  (import "leasehold_kernel" "data_map" (func $data (param i32 i32) (result i64)))
  (import "leasehold_kernel" "capability_drop" (func $drop (param i32) (result i64)))
  (import "leasehold_kernel" "task_start" (func $task (param i32 i32) (result i64)))
  (import "leasehold_kernel" "task_wait" (func $wait_task (param i32) (result i64)))
  (import "leasehold_kernel" "tenant_create" (func $create (param i64 i64) (result i64)))
  (import "leasehold_kernel" "tenant_start" (func $start (param i32 i32 i32) (result i64)))
  (import "leasehold_kernel" "tenant_wait" (func $wait_tenant (param i32) (result i64)))
  (memory (export "memory") 4)
  (data (i32.const 0) "fileotherdirectory.")
  (data (i32.const 32) "\00\10\00\00\00\10\00\00") ;; 4 KiB at 4 KiB
  (data (i32.const 40) "\00\20\00\00\00\10\00\00") ;; 4 KiB at 8 KiB
  (data (i32.const 64) "data") (data (i32.const 72) "again\00")
  (global $failed (mut i32) (i32.const 0))
  (global $calls (mut i32) (i32.const 0))
  (global $base (mut i32) (i32.const 0))
  (func $try (param $errno i32) (result i32)
    (global.set $calls (i32.add (global.get $calls) (i32.const 1)))
    (if (i32.and (i32.ne (local.get $errno) (i32.const 0)) (i32.eqz (global.get $failed)))
      (then (global.set $failed (global.get $calls))))
    (i32.eqz (local.get $errno)))
  (func $kernel (param $answer i64) (result i32)
    (drop (call $try (i64.lt_s (local.get $answer) (i64.const 0))))
    (i32.wrap_i64 (local.get $answer)))
  ;; Writes to all that there is from the base on, in steps, and checks what was written.
  (func $fill (param $seed i32) (local $at i32) (local $end i32)
    (local.set $end (i32.mul (memory.size) (i32.const 65536)))
    (local.set $at (global.get $base))
    (loop $write
      (if (i32.lt_u (local.get $at) (local.get $end))
        (then
          (i32.store (local.get $at) (i32.add (local.get $at) (local.get $seed)))
          (local.set $at (i32.add (local.get $at) (i32.const {stride})))
          (br $write))))
    (call $check (local.get $seed) (local.get $end)))
  (func $check (param $seed i32) (param $end i32) (local $at i32)
    (local.set $at (global.get $base))
    (loop $read
      (if (i32.lt_u (local.get $at) (local.get $end))
        (then
          (if (i32.ne (i32.load (local.get $at)) (i32.add (local.get $at) (local.get $seed)))
            (then unreachable))
          (local.set $at (i32.add (local.get $at) (i32.const {stride})))
          (br $read)))))
  (func $zeros (param $from i32) (local $at i32) (local $end i32)
    (local.set $end (i32.mul (memory.size) (i32.const 65536)))
    (local.set $at (local.get $from))
    (loop $read
      (if (i32.lt_u (local.get $at) (local.get $end))
        (then
          (if (i32.load (local.get $at)) (then unreachable))
          (local.set $at (i32.add (local.get $at) (i32.const {stride})))
          (br $read)))))
  (func $grow (param $pages i32) (local $was i32)
    (local.set $was (memory.grow (local.get $pages)))
    (if (call $try (i32.eq (local.get $was) (i32.const -1)))
      (then (call $zeros (i32.mul (local.get $was) (i32.const 65536))))))
  (func $files (local $fd i32)
    (if (i32.eqz (call $try (call $open (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 4) (i32.const 1)
          (i64.const 0x6001f6) (i64.const 0) (i32.const 0) (i32.const 48))))
      (then (return)))
    (local.set $fd (i32.load (i32.const 48)))
    (memory.fill (i32.const 4096) (i32.const 7) (i32.const 4096))
    (if (call $try (call $write (local.get $fd) (i32.const 32) (i32.const 1) (i32.const 56)))
      (then
        (if (call $try (call $read (local.get $fd) (i32.const 40) (i32.const 1) (i64.const 0) (i32.const 56)))
          (then
            (if (i32.ne (i32.load (i32.const 8200)) (i32.const 0x07070707)) (then unreachable))))))
    (drop (call $try (call $advise (local.get $fd) (i64.const 0) (i64.const 4096) (i32.const 3))))
    (drop (call $try (call $sync (local.get $fd))))
    (drop (call $try (call $stat (local.get $fd) (i32.const 1024))))
    (drop (call $try (call $size (local.get $fd) (i64.const 100))))
    (drop (call $try (call $close (local.get $fd))))
    (drop (call $try
      (call $path_stat (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 4) (i32.const 1024))))
    (drop (call $try
      (call $readdir (i32.const 3) (i32.const 2048) (i32.const 1024) (i64.const 0) (i32.const 56))))
    (if (call $try (call $mkdir (i32.const 3) (i32.const 9) (i32.const 9)))
      (then (drop (call $try (call $rmdir (i32.const 3) (i32.const 9) (i32.const 9))))))
    (if (call $try (call $rename (i32.const 3) (i32.const 0) (i32.const 4)
          (i32.const 3) (i32.const 4) (i32.const 5)))
      (then (drop (call $try (call $unlink (i32.const 3) (i32.const 4) (i32.const 5)))))))
  (func $objects (local $it i32)
    (local.set $it (call $kernel (call $channel (i32.const 4096))))
    (if (i32.gt_s (local.get $it) (i32.const 0))
      (then
        (drop (call $kernel (call $send (local.get $it) (i32.const 0) (i32.const 19) (i32.const 0) (i32.const 0))))
        (drop (call $kernel
          (call $receive (local.get $it) (i32.const 512) (i32.const 64) (i32.const 0) (i32.const 0))))))
    (local.set $it (call $kernel (call $timer)))
    (if (i32.gt_s (local.get $it) (i32.const 0))
      (then
        (if (i32.eqz (call $kernel (call $set (local.get $it) (i64.const 100000) (i64.const 0))))
          (then (drop (call $kernel (call $wait_timer (local.get $it))))))))
    (local.set $it (call $kernel (call $region (i64.const 16384))))
    (if (i32.gt_s (local.get $it) (i32.const 0))
      (then
        (drop (call $kernel (call $put (local.get $it) (i64.const 8192) (i32.const 4096) (i32.const 4096))))
        (drop (call $kernel (call $get (local.get $it) (i64.const 8192) (i32.const 8192) (i32.const 4096))))
        (drop (call $kernel (call $drop (local.get $it))))))
    (local.set $it (call $kernel (call $task (i32.const 72) (i32.const 6))))
    (if (i32.gt_s (local.get $it) (i32.const 0))
      (then (drop (call $try (call $kernel (call $wait_task (local.get $it)))))))
    (local.set $it (call $kernel (call $create (i64.const 50000000) (i64.const 524288))))
    (if (i32.gt_s (local.get $it) (i32.const 0))
      (then
        (if (i32.eqz (call $kernel (call $start (local.get $it) (i32.const 72) (i32.const 6))))
          (then (drop (call $try (call $kernel (call $wait_tenant (local.get $it))))))))))
  (func $maps (local $it i32) (local $at i32)
    (local.set $it (call $kernel (call $mapped (i64.const 8192))))
    (if (i32.gt_s (local.get $it) (i32.const 0))
      (then
        (local.set $at (call $kernel (call $map (local.get $it))))
        (if (i32.gt_s (local.get $at) (i32.const 0))
          (then
            (i32.store (i32.add (local.get $at) (i32.const 5000)) (i32.const 77))
            (if (i32.ne (i32.load (i32.add (local.get $at) (i32.const 5000))) (i32.const 77))
              (then unreachable))))
        (drop (call $kernel (call $drop (local.get $it))))))
    (local.set $at (call $kernel (call $data (i32.const 64) (i32.const 4))))
    (if (i32.gt_s (local.get $at) (i32.const 0))
      (then
        (if (i32.ne (i32.load (i32.add (local.get $at) (i32.const 5000))) (i32.const 0x64646464))
          (then unreachable)))))
  (func (export "_start") (local $end i32)
    (if (i32.eqz (call $try (call $args (i32.const 96) (i32.const 100))))
      (then (call $exit (i32.const 1))))
    (global.set $base (i32.const 65536))
    (if (i32.gt_u (i32.load (i32.const 96)) (i32.const 1))
      (then (call $fill (i32.const 3)) (return)))
    (call $grow (i32.const {grow}))
    (call $fill (i32.const 11))
    (local.set $end (i32.mul (memory.size) (i32.const 65536)))
    (call $files)
    (call $objects)
    (if (i32.const {paged}) (then (call $maps)))
    (call $check (i32.const 11) (local.get $end))
    (call $grow (i32.const 3))
    (call $exit (global.get $failed))))"#;

/// A cell, a neighbour that lives on in it, and the tenants that calls fail for.
struct Scene {
    cell: Cell,
    lease: Lease,
    program: Arc<Program>,
    neighbour: TenantHandle,
    directory: TempDir,
    data: PathBuf,
    has_data: bool,
    /// Of a component: its store of keys and values.
    store: Option<Arc<Store>>,
}

fn writable(directory: &Path) -> Surroundings {
    Surroundings {
        args: vec!["guest".to_owned()],
        dirs: vec![Directory {
            host: directory.to_owned(),
            guest: "/".to_owned(),
            write: true,
        }],
        ..Surroundings::default()
    }
}

impl Scene {
    fn new(cell: Cell, lease: Lease, has_data: bool) -> Self {
        // Each page that a tenant which pages touches is some calls.
        let [paged, grow, stride] = match has_data {
            true => ["1", "2", "16384"],
            false => ["0", "20", "512"],
        };
        let text = EVERYTHING
            .replace("{paged}", paged)
            .replace("{grow}", grow)
            .replace("{stride}", stride);
        let program = cell.compile_for(text.as_bytes(), &lease);
        Self::of(cell, lease, program.expect("a program"), has_data)
    }

    /// A scene with a component that reads and writes files and a store.
    fn of_component(cell: Cell, lease: Lease) -> Self {
        let program = cell.load_for(&guest("interfaces-p2.wasm"), &lease);
        let scene = Self::of(cell, lease, program.expect("a program"), false);
        let path = scene.directory.path().join("store.redb");
        let store = Store::open(&path, 1 << 20).expect("a store");
        Self {
            store: Some(Arc::new(store)),
            ..scene
        }
    }

    fn of(cell: Cell, lease: Lease, program: Arc<Program>, has_data: bool) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let data = directory.path().join("data");
        std::fs::write(&data, vec![b'd'; 12_000]).expect("written");
        let own = directory.path().join("neighbour");
        std::fs::create_dir(&own).expect("made");
        let steady = cell.compile(NEIGHBOUR.as_bytes()).expect("a program");
        let neighbour = cell.start_tenant(StartRequest {
            program: steady,
            lease: common::lease(1_000_000, 4 << 10),
            surroundings: writable(&own),
        });
        let scene = Self {
            cell,
            lease,
            program,
            neighbour: neighbour.expect("a tenant"),
            directory,
            data,
            has_data,
            store: None,
        };
        scene.neighbour_goes_on();
        spare();
        scene
    }

    fn rounds(&self) -> u64 {
        let path = self.directory.path().join("neighbour/neighbour");
        let mut bytes = [0; 8];
        let read = std::fs::File::open(path).and_then(|file| file.read_exact_at(&mut bytes, 0));
        read.map_or(0, |()| u64::from_le_bytes(bytes))
    }

    /// What it computes, writes and reads is right, and its descriptors work: else it would have ended.
    fn neighbour_goes_on(&self) {
        let before = self.rounds();
        until("the neighbour goes on", || {
            let ended = self.neighbour.wait_for(Duration::ZERO).expect("the cell");
            assert!(ended.is_none(), "the neighbour has ended: {ended:?}");
            self.rounds() > before + 1
        });
    }

    /// Runs a tenant to its end.
    fn run(&self) -> Result<Ended, StartError> {
        let directory = tempfile::tempdir_in(self.directory.path()).expect("a directory");
        let mut surroundings = writable(directory.path());
        if self.has_data {
            surroundings
                .data
                .push(("data".to_owned(), self.data.clone()));
        }
        if let Some(store) = &self.store {
            surroundings.args.push("attempts".to_owned());
            surroundings.keyvalue = Some(store.clone());
        }
        let tenant = self.cell.start_tenant(StartRequest {
            program: self.program.clone(),
            lease: self.lease,
            surroundings,
        })?;
        Ok(tenant
            .wait_for(PATIENCE)
            .expect("the cell is there")
            .expect("it waits for nothing for ever"))
    }

    fn undisturbed(&self, after: impl std::fmt::Debug) {
        let ended = self
            .run()
            .unwrap_or_else(|error| panic!("after {after:?}: {error}"));
        assert_eq!(ended.exit, Exit::Code(0), "after {after:?}");
    }

    /// Fails the calls of a plan; returns the kind of the first of them.
    fn fail(&self, plan: Plan) -> Option<(Call, &'static str)> {
        arm(plan);
        let ended = self.run();
        let met = met();
        let counted = disarm();
        let outcome = match &ended {
            Err(_) => "refused",
            Ok(ended) => match &ended.exit {
                Exit::Code(0) => "right",
                Exit::Code(_) => "errno",
                Exit::Trap(why) => {
                    assert!(!why.contains("unreachable"), "{plan:?}, {met:?}: {why}");
                    "trap"
                }
                _ => "ended",
            },
        };
        self.neighbour_goes_on();
        assert!(met.is_some() == (counted > plan.after), "{plan:?}");
        met.map(|met| (met, outcome))
    }

    /// Fails each call in turn, for a while, with each error; after each call, a tenant that is left alone is right.
    fn fail_all(&self, failures: u64) {
        let mut outcomes = BTreeMap::<_, u32>::new();
        arm(Plan {
            after: u64::MAX,
            failures: 1,
            errno: 0,
            only: None,
        });
        self.undisturbed("the start");
        println!("{} calls in all", disarm());
        for after in 0.. {
            let plan = |errno| Plan {
                after,
                failures,
                errno,
                only: None,
            };
            let first = Call::Map.errnos()[0].raw_os_error();
            let Some((met, outcome)) = self.fail(plan(first)) else {
                println!("{after} calls failed in turn, {failures} at a time: {outcomes:?}");
                assert!(after > 20, "{after}");
                break;
            };
            let name = format!("{met:?}");
            *outcomes.entry((name, outcome)).or_default() += 1;
            let others = met.errnos().iter().map(|errno| errno.raw_os_error());
            for errno in others.filter(|errno| *errno != first) {
                if let Some((met, outcome)) = self.fail(plan(errno)) {
                    *outcomes.entry((format!("{met:?}"), outcome)).or_default() += 1;
                }
            }
            self.undisturbed((after, failures, met));
        }
    }

    fn end(self) {
        spare_none();
        self.neighbour.kill();
        let ended = self.neighbour.wait().expect("the cell is there");
        assert_eq!(ended.exit, Exit::Killed);
    }
}

#[test]
fn any_call_for_a_tenant_may_fail_and_its_neighbour_lives_on() {
    let _alone = alone();
    let scene = Scene::new(cell(), lease(1_000_000, 8 << 10), false);
    scene.fail_all(1);
    scene.fail_all(3);
    scene.end();
}

#[test]
fn any_call_for_a_tenant_that_pages_may_fail_and_its_neighbour_lives_on() {
    let _alone = alone();
    let Held { cell, directory } = held(24 * MIB, 16 * MIB);
    let lease = paging(1_000_000, 64 << 10, 2 * MIB, SharedPages::Conserve);
    let scene = Scene::new(cell, lease, true);
    scene.fail_all(1);
    scene.end();
    drop(directory);
}

#[test]
fn any_call_for_a_component_and_its_store_may_fail_and_its_neighbour_lives_on() {
    let _alone = alone();
    let scene = Scene::of_component(cell(), lease(10_000_000, 64 << 10));
    scene.fail_all(1);
    scene.fail_all(3);
    scene.end();
}

fn count(path: &str) -> usize {
    std::fs::read_dir(path).expect("proc").count()
}

/// Starts a cell, and runs a tenant that makes blocking calls; whether nothing was refused.
fn start_and_run(program: &str) -> Result<bool, String> {
    let mut config = CellConfig::new(profile());
    config.realtime = WhenRealtime::ForKills;
    let cell = Cell::start(config).map_err(|error| error.to_string())?;
    let directory = tempfile::tempdir().expect("a directory");
    let started = cell.start_tenant(StartRequest {
        program: cell.compile(program.as_bytes()).expect("a program"),
        lease: lease(1_000_000, 8 << 10),
        surroundings: writable(directory.path()),
    });
    let Ok(tenant) = started else {
        return Ok(false);
    };
    let ended = tenant.wait_for(PATIENCE).expect("the cell is there");
    let ended = ended.expect("it waits for nothing for ever");
    Ok(ended.exit == Exit::Code(0))
}

#[test]
fn a_cell_whose_start_a_failed_call_ends_leaves_nothing_and_the_next_one_starts() {
    let _alone = alone();
    let text = EVERYTHING
        .replace("{paged}", "0")
        .replace("{grow}", "1")
        .replace("{stride}", "4096");
    assert_eq!(start_and_run(&text), Ok(true));
    let idle = || (count("/proc/self/task"), count("/proc/self/fd"));
    let before = idle();
    let (mut refused, mut threads) = (0, 0);
    for after in 0.. {
        let mut reached = false;
        for errno in Call::MakeSwap.errnos() {
            arm(Plan {
                after,
                failures: 1,
                errno: errno.raw_os_error(),
                only: None,
            });
            refused += u32::from(start_and_run(&text).is_err());
            reached |= met().is_some();
            threads += u32::from(met() == Some(Call::StartThread));
            disarm();
            until("no thread or descriptor is left", || idle() <= before);
        }
        assert_eq!(start_and_run(&text), Ok(true));
        if !reached {
            break;
        }
    }
    assert!(refused > 12 && threads > 12, "{refused}, {threads}");
}

#[test]
fn a_job_waits_no_longer_than_the_host_refuses_a_thread_for_it() {
    let _alone = alone();
    let text = EVERYTHING
        .replace("{paged}", "0")
        .replace("{grow}", "1")
        .replace("{stride}", "4096");
    let mut ended = 0;
    for after in 0..6 {
        for failures in [1, 2, 5] {
            arm(Plan {
                after,
                failures,
                errno: Errno::NOMEM.raw_os_error(),
                only: Some(Call::StartThread),
            });
            let right = start_and_run(&text);
            disarm();
            assert_ne!(right, Ok(false), "{after}, {failures}");
            ended += u32::from(right.is_ok());
        }
    }
    assert!(ended >= 6, "{ended}");
}

/// Writes a line to its standard output; returns the error.
const LINE: &str = r#"(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "\08\00\00\00\01\00\00\00\0a")
  (func (export "_start")
    (call $exit (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 16)))))"#;

#[test]
fn output_without_a_thread_is_lost_for_the_tenant_that_it_was_refused_for_alone() {
    let _alone = alone();
    let cell = cell();
    let program = cell.compile(LINE.as_bytes()).expect("a program");
    let run = || {
        let request = StartRequest {
            program: program.clone(),
            lease: Lease::default(),
            surroundings: Surroundings {
                stdout: Output::Stdout,
                ..Surroundings::default()
            },
        };
        let tenant = cell.start_tenant(request).expect("a tenant starts");
        tenant.wait().expect("the cell is there").exit
    };
    arm(Plan {
        after: 0,
        failures: u64::MAX,
        errno: Errno::NOMEM.raw_os_error(),
        only: Some(Call::StartThread),
    });
    assert!(matches!(run(), Exit::Code(1..)));
    assert_eq!(disarm(), 1);
    assert_eq!(run(), Exit::Code(0));
}

#[test]
fn a_range_that_could_not_be_unmapped_is_empty_and_unmapped_later() {
    let _alone = alone();
    const BYTES: usize = 1 << 20;
    let mut backing = MapBacking::default();
    let start = backing.reserve(BYTES).expect("addresses");
    // SAFETY: the range is this test's, writable, and its last byte is within.
    unsafe { start.as_ptr().add(BYTES - 1).write(7) };
    arm_this_thread(Plan {
        after: 0,
        failures: u64::MAX,
        errno: Errno::NOMEM.raw_os_error(),
        only: Some(Call::Unmap),
    });
    // SAFETY: it was reserved, and nothing refers to it.
    unsafe { backing.release(start, BYTES) };
    assert_eq!(disarm(), 1);
    // SAFETY: it is still mapped, and nothing else has it.
    assert_eq!(unsafe { start.as_ptr().add(BYTES - 1).read() }, 0);
    arm_this_thread(Plan {
        after: u64::MAX,
        failures: 0,
        errno: 0,
        only: Some(Call::Unmap),
    });
    let next = backing.reserve(BYTES).expect("addresses");
    assert_eq!(disarm(), 1, "the first range is unmapped now");
    // SAFETY: it was reserved, and nothing refers to it.
    unsafe { backing.release(next, BYTES) };
}

/// Writes to each of 64 pages and reads them, round after round. The tenant does it in its main program, or in this
/// many tasks at the same time.
fn pages(rounds: u64, tasks: u32) -> String {
    format!(
        r#"(module
          (import "leasehold_kernel" "task_start" (func $start (param i32 i32) (result i64)))
          (import "leasehold_kernel" "task_wait" (func $wait (param i32) (result i64)))
          (import "wasi_snapshot_preview1" "args_sizes_get" (func $args (param i32 i32) (result i32)))
          (memory (export "memory") 5)
          (data (i32.const 0x40008) "a task\00")
          (func $work (local $at i32) (local $round i64)
            (loop $rounds
              (local.set $at (i32.const 0))
              (loop $write
                (i32.store (local.get $at) (i32.add (local.get $at) (i32.wrap_i64 (local.get $round))))
                (br_if $write (i32.lt_u
                  (local.tee $at (i32.add (local.get $at) (i32.const 4096))) (i32.const 0x40000))))
              (local.set $at (i32.const 0))
              (loop $read
                (if (i32.ne (i32.load (local.get $at))
                            (i32.add (local.get $at) (i32.wrap_i64 (local.get $round))))
                  (then unreachable))
                (br_if $read (i32.lt_u
                  (local.tee $at (i32.add (local.get $at) (i32.const 4096))) (i32.const 0x40000))))
              (local.set $round (i64.add (local.get $round) (i64.const 1)))
              (br_if $rounds (i64.lt_u (local.get $round) (i64.const {rounds})))))
          (func (export "_start") (local $task i64) (local $left i32)
            (drop (call $args (i32.const 0x40000) (i32.const 0x40004)))
            (local.set $left (i32.const {tasks}))
            (if (i32.or (i32.load (i32.const 0x40000)) (i32.eqz (local.get $left)))
              (then (call $work) (return)))
            (loop $next
              (local.set $task (call $start (i32.const 0x40008) (i32.const 7)))
              (if (i64.lt_s (local.get $task) (i64.const 0)) (then unreachable))
              (i32.store (i32.add (i32.const 0x40010) (i32.mul (local.get $left) (i32.const 4)))
                (i32.wrap_i64 (local.get $task)))
              (br_if $next (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
            (loop $next
              (local.set $left (i32.add (local.get $left) (i32.const 1)))
              (if (i64.ne (i64.const 0) (call $wait (i32.load
                    (i32.add (i32.const 0x40010) (i32.mul (local.get $left) (i32.const 4))))))
                (then unreachable))
              (br_if $next (i32.lt_u (local.get $left) (i32.const {tasks}))))))"#
    )
}

/// Tenants of a cell whose swap file a test makes slow.
struct Pagers(Held);

impl Pagers {
    fn start(&self, text: &str, lease: Lease) -> TenantHandle {
        let program = self.0.cell.compile_for(text.as_bytes(), &lease);
        let request = StartRequest {
            program: program.expect("a program"),
            lease,
            surroundings: Surroundings::default(),
        };
        self.0.cell.start_tenant(request).expect("a tenant")
    }

    fn pages(&self, rounds: u64, tasks: u32) -> TenantHandle {
        let lease = paging(
            100_000,
            32 * 4096,
            u64::from(1 + tasks) * 80 * 4096,
            SharedPages::Conserve,
        );
        self.start(&pages(rounds, tasks), lease)
    }
}

fn end_of(tenant: &TenantHandle) -> Exit {
    let ended = tenant.wait_for(PATIENCE).expect("the cell lives");
    ended.expect("an end").exit
}

#[test]
fn a_disk_that_does_not_answer_holds_up_the_tenants_that_wait_for_it_and_no_others() {
    let _alone = alone();
    let cell = Pagers(held(2 * MIB, 8 * MIB));
    for call in [Call::ReadSwap, Call::WriteSwap] {
        let spin = "(module (func (export \"_start\") (loop (br 0))))";
        let other = cell.start(spin, lease(100_000, 1024));
        let gate = Gate::shut(call);
        let (ends, endless) = (cell.pages(20, 0), cell.pages(u64::MAX, 0));
        until("both wait for the disk", || gate.waiting() == 2);
        // They are ended without it, and others run.
        endless.kill();
        assert_eq!(end_of(&endless), Exit::Killed);
        other.kill();
        assert_eq!(end_of(&other), Exit::Killed);
        assert!(
            ends.wait_for(Duration::ZERO)
                .expect("the cell lives")
                .is_none()
        );
        drop(gate);
        assert_eq!(end_of(&ends), Exit::Code(0));
    }
}

#[test]
fn tasks_that_wait_for_the_same_room_all_get_it_and_find_what_they_wrote() {
    let _alone = alone();
    let cell = Pagers(held(2 * MIB, 8 * MIB));
    let spin = "(module (func (export \"_start\") (loop (br 0))))";
    let other = cell.start(spin, lease(100_000, 1024));
    let several = [cell.pages(20, 4), cell.pages(20, 3)];
    for tenant in several {
        assert_eq!(end_of(&tenant), Exit::Code(0));
    }
    other.kill();
    assert_eq!(end_of(&other), Exit::Killed);
}

/// What host code visits of a page that is out, in a call or an instruction.
const VISITS: [&str; 6] = [
    "(drop (call $random (local.get $at) (i32.const 8)))",
    "(drop (call $random (i32.const 0) (i32.const 0x40000)))",
    "(drop (call $args (local.get $at) (i32.add (local.get $at) (i32.const 4))))",
    "(memory.fill (local.get $at) (i32.const 1) (i32.const 8))",
    "(memory.copy (i32.const 0x40000) (local.get $at) (i32.const 8))",
    "(i32.store (i32.const 0x40020) (local.get $at))
     (i32.store (i32.const 0x40024) (i32.const 8))
     (drop (call $write (i32.const 1) (i32.const 0x40020) (i32.const 1) (i32.const 0x40030)))",
];

/// Writes to each of 64 pages, and then has the host visit each, for ever.
fn visited(visit: &str) -> String {
    format!(
        r#"(module
          (import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))
          (import "wasi_snapshot_preview1" "args_sizes_get" (func $args (param i32 i32) (result i32)))
          (import "wasi_snapshot_preview1" "fd_write"
            (func $write (param i32 i32 i32 i32) (result i32)))
          (memory (export "memory") 5)
          (func (export "_start") (local $at i32)
            (loop $rounds
              (local.set $at (i32.const 0))
              (loop $fill
                (i32.store (local.get $at) (i32.const 1))
                (br_if $fill (i32.lt_u
                  (local.tee $at (i32.add (local.get $at) (i32.const 4096))) (i32.const 0x40000))))
              (local.set $at (i32.const 0))
              (loop $visit
                {visit}
                (br_if $visit (i32.lt_u
                  (local.tee $at (i32.add (local.get $at) (i32.const 4096))) (i32.const 0x40000))))
              (br $rounds))))"#
    )
}

#[test]
fn a_disk_that_does_not_answer_holds_up_no_others_where_host_code_needs_the_page() {
    let _alone = alone();
    let cell = Pagers(held(2 * MIB, 8 * MIB));
    let spin = "(module (func (export \"_start\") (loop (br 0))))";
    let other = cell.start(spin, lease(100_000, 1024));
    let gate = Gate::shut(Call::ReadSwap);
    let waiting = VISITS.map(|visit| {
        let lease = paging(100_000, 32 * 4096, 80 * 4096, SharedPages::Conserve);
        cell.start(&visited(visit), lease)
    });
    until("all wait for the disk", || gate.waiting() == VISITS.len());
    for tenant in waiting.iter().chain([&other]) {
        tenant.kill();
        assert_eq!(end_of(tenant), Exit::Killed);
    }
}

/// A node rehearses starts beside its cell, which waits for the kernel's lock on its mappings.
#[test]
fn a_thread_that_has_rehearsed_a_start_maps_no_memory_for_others() {
    let _alone = alone();
    let rehearse = |budget_us| {
        Rehearsal::new(profile(), Arc::default()).start(&RehearsedStart {
            program: &guest("hello.wasm"),
            lease: &lease(budget_us, 4 << 10),
            surroundings: &Surroundings::default(),
            has_store: false,
            is_handler: false,
            calls: 0,
            addresses: 0,
        })
    };
    rehearse(1_000).expect("it could be started");
    arm(Plan {
        after: u64::MAX,
        failures: 0,
        errno: Errno::NOMEM.raw_os_error(),
        only: Some(Call::Map),
    });
    for _ in 0..50 {
        rehearse(1_000).expect("nothing is left of the one before");
        rehearse(1).expect_err("too little for its memory");
    }
    assert_eq!(disarm(), 0);
}
