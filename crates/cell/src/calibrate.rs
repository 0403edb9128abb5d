//! Measuring what reclaiming costs on this host, what the host adds to that by itself
//! (`interruption`), and what a preemption takes (`preemption`).
//!
//! Every number is taken from real reclamations by the code that will do them later: tenants that
//! hold a known amount of one thing are ended, in a cell or (for what lives in arenas and groups)
//! in a kernel, and the processor time of their end, less that of an empty tenant's, is divided by
//! the amount. Medians over many ends.
//!
//! An end alternates with other guests, which evict its data from the processor's caches; the end
//! pays for the resulting misses. The caches are therefore cold here too: in the cell a tenant that
//! writes to more memory than such a cache holds takes every other turn, and in the kernel the same
//! amount is written before each end. Where nothing has run for a while, shared caches and translations of addresses are
//! cold as well: so the end of an empty tenant is also measured after a pause of its cell, in which most tenants end.

mod effort;
mod interruption;
mod paged;
mod preemption;
mod transfer;

use crate::arena_backing::MapBacking;
use crate::cell::{Cell, TenantHandle};
use crate::clock::thread_cpu_ns;
use crate::command::StartRequest;
use crate::config::CellConfig;
use crate::control_share::ControlKind;
use crate::engine_config::BACKTRACE_NS;
use crate::exit::Exit;
use crate::meter::Held;
use crate::profile::{Costs, FACTOR, FORMAT, Host, Profile, StepTime};
use crate::program::Program;
use crate::steps::caps::COPIED_REGION;
use crate::surroundings::{Directory, Surroundings};
use anyhow::{Context, Result, bail, ensure};
pub use effort::Effort;
use effort::median;
use leasehold_kernel::{ExecutionId, Kernel, KernelConfig, KernelCosts, Rights, TenantId};
use leasehold_lease::{ByteSize, Lease, Nanoseconds};
use leasehold_pager::PAGE;
use leasehold_preempt::Mechanism;
use leasehold_reclaim::{Config, CostModel, Mode};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use wasmtime_wasi::filesystem::{Descriptor, Dir, OpenMode};
use wasmtime_wasi::{FsPerms, ResourceTable};

/// How far one stored cost is from what is measured now.
#[derive(Debug, Clone, PartialEq)]
pub struct Drift {
    /// The thing that is taken back.
    pub name: String,
    /// Its stored median, ps.
    pub stored_ps: u64,
    /// Its median now, ps.
    pub now_ps: u64,
    /// Whether what is charged (the stored median times [`FACTOR`]) still covers it.
    pub holds: bool,
}

impl Drift {
    /// The ratio of the present median to the stored one.
    pub fn ratio(&self) -> f64 {
        self.now_ps as f64 / self.stored_ps.max(1) as f64
    }
}

/// Measures this host; tells `progress` what is being measured.
///
/// # Errors
/// When a cell cannot be started, or a program of the measurement does not run.
pub fn calibrate(effort: Effort, progress: &mut dyn FnMut(&str)) -> Result<Profile> {
    let bench = Bench::new(effort)?;
    let mut held = BTreeMap::new();

    progress("the end of an empty tenant");
    let after_a_pause = end_after_a_pause(WAITS, effort)?;
    let empty = bench.end_of(EMPTY)?.max(after_a_pause);

    progress("linear memory");
    let memories = bench.per_unit(MEMORIES, &[], 15)?;
    // Of a memory, the first pages are overwritten and the others given back: what is dearer counts. Pages that were written
    // to in any order lie apart from each other, and freeing them takes longer.
    let kept = bench.per_unit(&touching(PAGES_KEPT), &[], PAGES_KEPT)?;
    let apart = bench.per_unit_of(&scattered(), &[], PAGES_SCATTERED, bench.samples / 3)?;
    let pages = kept.max(apart);
    held.insert(Held::Memory.name().to_owned(), memories);
    held.insert(Held::MemoryPage.name().to_owned(), pages);

    progress("linear memory that pages");
    held.insert(Held::PagedPage.name().to_owned(), paged::page(effort)?);

    progress("transfers of pages");
    let transfer = transfer::transfer(effort)?;

    progress("tables and instances");
    held.insert(
        Held::TableElement.name().to_owned(),
        bench.per_unit(TABLE, &[], TABLE_ELEMENTS)?,
    );
    held.insert(
        Held::Instance.name().to_owned(),
        bench.per_unit(&instances(INSTANCES), &[], INSTANCES)?,
    );

    progress("programs");
    let store = bench.per_unit(&tasks(FOR_A_MILLISECOND), &[], TASKS_STARTED)?;
    let waiting = end_after_a_pause(&tasks(FOR_EVER), effort)?;
    let store = store.max(waiting.saturating_sub(after_a_pause) / TASKS_STARTED);
    held.insert(Held::Store.name().to_owned(), store);

    progress("descriptors");
    let directory = Directory {
        host: std::env::temp_dir(),
        guest: "/".to_owned(),
        write: false,
    };
    let entries = bench.per_unit(DESCRIPTORS, &[directory], DESCRIPTORS_OPENED)?;
    held.insert(Held::Descriptor.name().to_owned(), entries);
    held.insert(Held::WasiEntry.name().to_owned(), wasi_entry(effort)?);

    progress("host memory");
    let page = host_page(effort);
    held.insert(Held::HostPage.name().to_owned(), page);
    held.insert(Held::FilePage.name().to_owned(), page * FILE_PAGE);
    let backtrace = BACKTRACE_NS * 1_000 / FACTOR;
    held.insert(Held::Backtrace.name().to_owned(), backtrace);

    progress("kernel objects");
    let arena_page = arena_page(effort)?;
    let scrub = scrub(effort)?;
    let (group, chunk) = groups(effort)?;

    progress("interruptions by the host");
    let interruption = interruption::interruption(effort)?;

    progress("kills");
    let kill = bench.kills()?;

    progress("preemption");
    let preemption = preemption::preemption(effort, Mechanism::from_environment())?;

    Ok(Profile {
        steps: std::collections::BTreeMap::new(),
        format: FORMAT,
        host: Host::here(),
        method: format!(
            "medians of {} ends with cold caches, thread processor time; charged {FACTOR} times, \
             and for each tenant as many times what the host added to one in 10,000 pieces of work",
            effort.samples()
        ),
        median_ps: Costs {
            // One program is part of every tenant and charged by itself.
            tenant: empty.saturating_sub(store),
            group,
            scrub,
            chunk,
            arena_page,
            held,
        },
        interruption: Some(interruption),
        preemption: Some(preemption),
        transfer,
        kill,
    })
}

/// Measures again and compares.
///
/// # Errors
/// Like [`calibrate`].
pub fn check(
    stored: &Profile,
    effort: Effort,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<Drift>> {
    let now = calibrate(effort, progress)?;
    let interruption = drift("interruption", (stored, &now), |profile| {
        Some(profile.interruption?.p9999_ns)
    });
    let preemption = drift("preemption", (stored, &now), |profile| {
        Some(profile.preemption.as_ref()?.per_preemption_ns())
    });
    let kill = drift("kill", (stored, &now), |profile| Some(profile.kill?.p99_ns));
    let list = |costs: &Costs| {
        let own = [
            ("tenant", costs.tenant),
            ("descendant group", costs.group),
            ("scrub entry", costs.scrub),
            ("arena chunk", costs.chunk),
            ("arena page", costs.arena_page),
        ];
        let held = costs
            .held
            .iter()
            .map(|(name, ps)| (name.replace('_', " "), *ps));
        own.map(|(name, ps)| (name.to_owned(), ps))
            .into_iter()
            .chain(held)
            .collect::<Vec<_>>()
    };
    let (stored, now) = (list(&stored.median_ps), list(&now.median_ps));
    let drifts = stored
        .into_iter()
        .zip(now)
        .map(|((name, stored_ps), (_, now_ps))| Drift {
            name,
            stored_ps,
            now_ps,
            // A nanosecond is below what can be told apart.
            holds: now_ps <= FACTOR * stored_ps + 1000,
        });
    let others = [interruption, preemption, kill].into_iter().flatten();
    Ok(drifts.chain(others).collect())
}

/// Compares a cost that is charged, or relied on, at its measured value with the stored one. It
/// holds while it is at most twice the stored cost. `None` if either was not measured.
fn drift(
    name: &str,
    (stored, now): (&Profile, &Profile),
    ns: impl Fn(&Profile) -> Option<u64>,
) -> Option<Drift> {
    let (stored_ps, now_ps) = (ns(stored)? * 1000, ns(now)? * 1000);
    Some(Drift {
        name: name.to_owned(),
        stored_ps,
        now_ps,
        holds: now_ps <= FACTOR * stored_ps,
    })
}

/// The cost of freeing a page of a file, in pages of the host's heap: a stated ceiling. Where it was measured it took 0.5 µs
/// on ext4 and up to 1 µs on tmpfs, of which a page of the heap took 0.4.
const FILE_PAGE: u64 = 2;

/// More bytes than a processor's private caches hold; shared caches are not cooled.
const CACHE_BYTES: usize = 8 << 20;

/// Evicts everything from the processor's private caches.
fn cool(memory: &mut [u8]) {
    for line in memory.chunks_mut(64) {
        line[0] = line[0].wrapping_add(1);
    }
    std::hint::black_box(memory);
}

/// A guest that does the same in an endless loop.
fn cooler() -> String {
    format!(
        r#"(module (memory (export "memory") {})
  (func (export "_start") (local $at i32)
    (loop $next
      (i32.store8 (local.get $at) (i32.add (i32.load8_u (local.get $at)) (i32.const 1)))
      (local.set $at (i32.rem_u (i32.add (local.get $at) (i32.const 64)) (i32.const {CACHE_BYTES})))
      (br $next))))"#,
        CACHE_BYTES >> 16
    )
}

/// A cell that charges nothing, for tenants that hold known amounts.
struct Bench {
    /// Ends the tenant below when it is dropped.
    cell: Cell,
    samples: usize,
}

impl Bench {
    fn new(effort: Effort) -> Result<Self> {
        let bench = Self {
            cell: Cell::start(CellConfig::new(Profile::free()))?,
            samples: effort.samples(),
        };
        let cooler = bench.compile(&cooler())?;
        // The handle is not needed: it runs as long as the cell does.
        start(&bench.cell, &cooler, &[])?;
        Ok(bench)
    }

    /// Median cost of ending a tenant that runs `text` to its end, ps.
    fn end_of(&self, text: &str) -> Result<u64> {
        let program = self.compile(text)?;
        // Once for the pools: their first users touch fresh memory.
        self.end_once(&program, &[])?;
        let ends: Result<Vec<u64>> = (0..self.samples)
            .map(|_| self.end_once(&program, &[]))
            .collect();
        Ok(median(ends?) * 1000)
    }

    fn compile(&self, text: &str) -> Result<Arc<Program>> {
        self.cell
            .compile(text.as_bytes())
            .context("a calibration program")
    }

    fn end_once(&self, program: &Arc<Program>, dirs: &[Directory]) -> Result<u64> {
        let ended = start(&self.cell, program, dirs)?.wait()?;
        if ended.exit != Exit::Code(0) {
            bail!("a calibration program ended with {:?}", ended.exit);
        }
        Ok(ended.reclaimed.returned.cpu_ns)
    }

    /// How long the cell takes to obey a kill of a guest that runs.
    fn kills(&self) -> Result<Option<StepTime>> {
        let spin = self.compile(SPIN)?;
        let taken = || {
            let uses = self.cell.control().into_iter();
            uses.filter(|(kind, _)| *kind == ControlKind::Kill)
                .map(|(_, uses)| uses.taken_ns)
                .sum::<u64>()
        };
        let mut samples = Vec::new();
        for _ in 0..4 * self.samples {
            let tenant = start(&self.cell, &spin, &[])?;
            let before = taken();
            tenant.kill();
            tenant.wait()?;
            samples.push(taken() - before);
        }
        Ok(StepTime::of(samples))
    }

    /// Median cost of one of the `units` that a tenant running `text` holds at its end, ps. Takes
    /// turns with an empty tenant, so that both see the same machine.
    fn per_unit(&self, text: &str, dirs: &[Directory], units: u64) -> Result<u64> {
        self.per_unit_of(text, dirs, units, self.samples)
    }

    /// The same of so many ends.
    fn per_unit_of(
        &self,
        text: &str,
        dirs: &[Directory],
        units: u64,
        samples: usize,
    ) -> Result<u64> {
        let (full, empty) = (self.compile(text)?, self.compile(EMPTY)?);
        self.end_once(&full, dirs)?;
        let mut ends = (Vec::new(), Vec::new());
        for _ in 0..samples {
            ends.0.push(self.end_once(&full, dirs)?);
            ends.1.push(self.end_once(&empty, &[])?);
        }
        let difference = median(ends.0).saturating_sub(median(ends.1));
        Ok((difference * 1000).div_ceil(units))
    }
}

fn start(cell: &Cell, program: &Arc<Program>, dirs: &[Directory]) -> Result<TenantHandle> {
    Ok(cell.start_tenant(StartRequest {
        program: program.clone(),
        lease: lease_of_measurements(),
        surroundings: Surroundings {
            // Its tasks have more than that.
            args: vec!["calibrate".to_owned()],
            dirs: dirs.to_vec(),
            ..Surroundings::default()
        },
    })?)
}

/// Median cost of ending a tenant that runs `text` and waits for ever, in a cell that has done nothing for [`PAUSE`], ps.
fn end_after_a_pause(text: &str, effort: Effort) -> Result<u64> {
    let cell = Cell::start(CellConfig::new(Profile::free()))?;
    let program = cell
        .compile(text.as_bytes())
        .context("a calibration program")?;
    let mut ends = Vec::new();
    for _ in 0..effort.samples().div_ceil(5) {
        let tenant = start(&cell, &program, &[])?;
        std::thread::sleep(PAUSE);
        tenant.kill();
        ends.push(tenant.wait()?.reclaimed.returned.cpu_ns);
    }
    Ok(median(ends) * 1000)
}

/// Long enough for whatever else runs on the host to take the caches, other virtual machines included. On one an end took
/// 0.02 ms without a pause, 0.45 after 200 ms, and 0.7 after 600.
const PAUSE: Duration = Duration::from_millis(500);

const WAITS: &str = r#"(module
  (import "leasehold_kernel" "semaphore_create" (func $create (param i32) (result i64)))
  (import "leasehold_kernel" "semaphore_down" (func $down (param i32) (result i64)))
  (memory (export "memory") 0)
  (func (export "_start")
    (drop (call $down (i32.wrap_i64 (call $create (i32.const 0)))))))"#;

const SPIN: &str = r#"(module (func (export "_start") (loop $l (br $l))))"#;

const EMPTY: &str = r#"(module (memory (export "memory") 0) (func (export "_start")))"#;

const MEMORIES: &str = r#"(module
  (memory (export "memory") 1)
  (memory 1) (memory 1) (memory 1) (memory 1) (memory 1) (memory 1) (memory 1) (memory 1)
  (memory 1) (memory 1) (memory 1) (memory 1) (memory 1) (memory 1) (memory 1)
  (func (export "_start")))"#;

/// 256 MiB, most of which is given back, and 4 MiB, which are overwritten.
const PAGES_SCATTERED: u64 = 65_536;
const PAGES_KEPT: u64 = 1024;

/// Writes one byte to each of `pages` pages.
fn touching(pages: u64) -> String {
    format!(
        r#"(module (memory (export "memory") {})
  (func (export "_start") (local $at i32)
    (loop $next
      (i32.store8 (local.get $at) (i32.const 1))
      (br_if $next (i32.lt_u
        (local.tee $at (i32.add (local.get $at) (i32.const 4096)))
        (i32.const {}))))))"#,
        pages / 16,
        pages * 4096
    )
}

/// Writes one byte to each of [`PAGES_SCATTERED`] pages, in an order in which none lies near the next: that of a linear
/// congruential generator, whose period is their number (Hull and Dobell, 1962).
fn scattered() -> String {
    format!(
        r#"(module (memory (export "memory") {})
  (func (export "_start") (local $page i32)
    (loop $next
      (i32.store8 (i32.shl (local.get $page) (i32.const 12)) (i32.const 1))
      (br_if $next (local.tee $page
        (i32.and
          (i32.add (i32.mul (local.get $page) (i32.const 20077)) (i32.const 12345))
          (i32.const {})))))))"#,
        PAGES_SCATTERED / 16,
        PAGES_SCATTERED - 1
    )
}

const TABLE_ELEMENTS: u64 = 500_000;
const TABLE: &str = r#"(module (memory (export "memory") 0)
  (table $t 500000 funcref) (elem declare func $f) (func $f)
  (func (export "_start")
    (table.fill $t (i32.const 0) (ref.func $f) (i32.const 500000))))"#;

const INSTANCES: u64 = 90;

fn instances(count: u64) -> String {
    let more = "(core instance (instantiate $m))".repeat(usize::try_from(count).unwrap_or(0));
    format!(
        r#"(component
             (core module $m (func (export "run") (result i32) i32.const 0))
             (core instance $i (instantiate $m)) {more}
             (func $run (result (result)) (canon lift (core func $i "run")))
             (instance $r (export "run" (func $run)))
             (export "wasi:cli/run@0.2.0" (instance $r)))"#
    )
}

const TASKS_STARTED: u64 = 16;

/// Starts tasks that block, and then does `last`; with an argument, it is such a task.
fn tasks(last: &str) -> String {
    format!(
        r#"(module
  (import "leasehold_kernel" "task_start" (func $start (param i32 i32) (result i64)))
  (import "leasehold_kernel" "semaphore_create" (func $create (param i32) (result i64)))
  (import "leasehold_kernel" "semaphore_down" (func $down (param i32) (result i64)))
  (import "wasi_snapshot_preview1" "args_sizes_get"
    (func $args (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "poll_oneoff"
    (func $poll (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "t\00")
  (func $block (drop (call $down (i32.wrap_i64 (call $create (i32.const 0))))))
  (func (export "_start") (local $n i32)
    (drop (call $args (i32.const 16) (i32.const 20)))
    (if (i32.gt_u (i32.load (i32.const 16)) (i32.const 1)) (then (call $block)))
    (loop $next
      (if (i64.lt_s (call $start (i32.const 0) (i32.const 2)) (i64.const 0)) (then unreachable))
      (br_if $next (i32.lt_u
        (local.tee $n (i32.add (local.get $n) (i32.const 1)))
        (i32.const {TASKS_STARTED}))))
    {last}))"#
    )
}

const FOR_EVER: &str = "(call $block)";

/// So that the tasks get to run and block.
const FOR_A_MILLISECOND: &str = "
    (i32.store (i32.const 80) (i32.const 1))
    (i64.store (i32.const 88) (i64.const 1000000))
    (drop (call $poll (i32.const 64) (i32.const 256) (i32.const 1) (i32.const 512)))";

/// Opens the directory that it was given again and again.
const DESCRIPTORS_OPENED: u64 = 256;
const DESCRIPTORS: &str = r#"(module
  (import "wasi_snapshot_preview1" "path_open"
    (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) ".")
  (func (export "_start") (local $n i32)
    (loop $next
      (if (call $open (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 2)
            (i64.const 0) (i64.const 0) (i32.const 0) (i32.const 8))
        (then unreachable))
      (br_if $next (i32.lt_u
        (local.tee $n (i32.add (local.get $n) (i32.const 1)))
        (i32.const 256))))))"#;

/// The lease of a program that is measured.
fn lease_of_measurements() -> Lease {
    let mut lease = Lease::default();
    lease.files.open = 2 * DESCRIPTORS_OPENED as u32;
    lease
}

/// Median cost of giving back a place in `wasmtime-wasi`'s table with an open directory in it, ps.
fn wasi_entry(effort: Effort) -> Result<u64> {
    let directory = || -> Result<_> {
        let opened = std::fs::File::open(std::env::temp_dir())?;
        let (permissions, mode) = (FsPerms::ReadOnly, OpenMode::READ);
        Ok(Dir::new(opened, permissions, mode, false))
    };
    let mut cache = vec![0; CACHE_BYTES];
    let ends = (0..effort.samples()).map(|_| {
        let mut table = ResourceTable::new();
        for _ in 0..DESCRIPTORS_OPENED {
            table.push(Descriptor::Dir(directory()?))?;
        }
        cool(&mut cache);
        let began = thread_cpu_ns();
        drop(table);
        Ok(thread_cpu_ns() - began)
    });
    Ok(median(ends.collect::<Result<_>>()?) * 1000 / DESCRIPTORS_OPENED)
}

/// Median cost of giving back a page of the host's heap, ps.
fn host_page(effort: Effort) -> u64 {
    const PAGES: usize = 256;
    // A smaller block may lie in a gap of the heap, and then nothing is given back.
    const BLOCK: usize = 64 << 20;
    let mut cache = vec![0; CACHE_BYTES];
    let ends = (0..effort.samples()).map(|_| {
        let mut memory = Vec::with_capacity(BLOCK);
        memory.resize(PAGES * PAGE as usize, 1u8);
        std::hint::black_box(&memory);
        cool(&mut cache);
        let began = thread_cpu_ns();
        drop(memory);
        thread_cpu_ns() - began
    });
    (median(ends.collect()) * 1000).div_ceil(PAGES as u64)
}

const BUDGET: u64 = Nanoseconds::MAX.get();
const MEMORY: u64 = ByteSize::MAX.get();

fn kernel(keep_resident: usize) -> Kernel<MapBacking> {
    let config = KernelConfig {
        reclaim: Config {
            arena_bytes: 1 << 30,
            keep_resident,
            mode: Mode::Grouped,
            max_groups: 1 << 16,
        },
        max_executions: 1 << 12,
        max_channel_bytes: 1 << 20,
        max_region_bytes: 1 << 30,
        timer_floor_ns: 1,
    };
    let model = CostModel {
        root_ps: 0,
        group_ps: 0,
        scrub_ps: 0,
        chunk_ps: 0,
        page_ps: 0,
    };
    let costs = KernelCosts {
        model,
        semaphore_ps: 0,
        channel_ps: 0,
        region_ps: 0,
        timer_ps: 0,
        task_ps: 0,
        tenant_ps: 0,
        capability_ps: 0,
        parcel_ps: 0,
        execution_ps: 0,
    };
    Kernel::new(config, costs, MapBacking::default())
}

/// Processor time of ending a tenant of a kernel, ns.
fn end(kernel: &mut Kernel<MapBacking>, tenant: TenantId, cache: &mut [u8]) -> Result<u64> {
    cool(cache);
    let began = thread_cpu_ns();
    kernel.end(tenant, &mut |_: ExecutionId| {})?;
    Ok(thread_cpu_ns() - began)
}

/// Median cost of giving back a page of an arena, ps.
///
/// The pages are those of regions as large as a program's may be, and more than the kernel's lists of free
/// pages and the processor's caches hold: of few pages, each costs half as much.
fn arena_page(effort: Effort) -> Result<u64> {
    const REGION: u64 = COPIED_REGION.most;
    const REGIONS: u64 = 1024;
    const PAGES: u64 = REGION / PAGE;
    let (mut kernel, mut cache) = (kernel(0), vec![0; CACHE_BYTES]);
    let mut once = |regions: u64| -> Result<u64> {
        let tenant = kernel.admit(BUDGET, MEMORY)?;
        for _ in 0..regions {
            let region = kernel.region_create(tenant, REGION)?;
            // Touch every page.
            for page in 0..PAGES {
                kernel.region_write(tenant, region, page * PAGE, &[1])?;
            }
        }
        end(&mut kernel, tenant, &mut cache)
    };
    let empty: Result<Vec<u64>> = (0..effort.samples()).map(|_| once(1)).collect();
    let full: Result<Vec<u64>> = (0..effort.samples()).map(|_| once(REGIONS)).collect();
    let difference = median(full?).saturating_sub(median(empty?));
    Ok((difference * 1000).div_ceil((REGIONS - 1) * PAGES))
}

/// Median cost of severing a scrub entry, ps: the wait of a foreign tenant, the most expensive
/// kind.
fn scrub(effort: Effort) -> Result<u64> {
    const WAITS: u32 = 1000;
    let (mut kernel, mut cache) = (kernel(1 << 30), vec![0; CACHE_BYTES]);
    let mut execution = 0;
    let mut once = |waits: u32| -> Result<u64> {
        let client = kernel.admit(BUDGET, MEMORY)?;
        let service = kernel.admit(BUDGET, MEMORY)?;
        let semaphore = kernel.semaphore_create(client, 0)?;
        let theirs = kernel.connect(client, semaphore, service, Rights::READ, waits.max(1))?;
        for _ in 0..waits {
            execution += 1;
            kernel.register_execution(service, ExecutionId(execution))?;
            kernel.semaphore_down(service, ExecutionId(execution), theirs)?;
        }
        let cost = end(&mut kernel, client, &mut cache)?;
        let mut woken = 0;
        while kernel.next_wake().is_some() {
            woken += 1;
        }
        ensure!(woken == waits, "{woken} of {waits} waiters were woken");
        kernel.end(service, &mut |_| {})?;
        Ok(cost)
    };
    let none: Result<Vec<u64>> = (0..effort.samples()).map(|_| once(0)).collect();
    let many: Result<Vec<u64>> = (0..effort.samples()).map(|_| once(WAITS)).collect();
    let difference = median(many?).saturating_sub(median(none?));
    Ok((difference * 1000).div_ceil(u64::from(WAITS)))
}

/// Median costs of ending a descendant's group, and of a chunk of its own, ps.
fn groups(effort: Effort) -> Result<(u64, u64)> {
    const CHILDREN: u64 = 1000;
    let (mut kernel, mut cache) = (kernel(1 << 30), vec![0; CACHE_BYTES]);
    let mut once = |children: u64, objects: bool| -> Result<u64> {
        let root = kernel.admit(BUDGET, MEMORY)?;
        let middle = kernel.tenant_create(root, BUDGET / 2, 0)?;
        let tenant = kernel.tenant_of(root, middle)?;
        for _ in 0..children {
            let child = kernel.tenant_create(tenant, BUDGET / 4 / CHILDREN, 0)?;
            if objects {
                let child = kernel.tenant_of(tenant, child)?;
                kernel.region_create(child, PAGE)?;
            }
        }
        let cost = end(&mut kernel, tenant, &mut cache)?;
        kernel.end(root, &mut |_| {})?;
        Ok(cost)
    };
    let mut sample = |children, objects| -> Result<u64> {
        let ends: Result<Vec<u64>> = (0..effort.samples())
            .map(|_| once(children, objects))
            .collect();
        Ok(median(ends?))
    };
    let none = sample(0, false)?;
    let groups = sample(CHILDREN, false)?;
    let chunks = sample(CHILDREN, true)?;
    let per_child = |ns: u64, less: u64| (ns.saturating_sub(less) * 1000).div_ceil(CHILDREN);
    Ok((per_child(groups, none), per_child(chunks, groups)))
}

#[cfg(test)]
mod tests {
    use super::{FOR_EVER, TASKS_STARTED, calibrate, check, host_page, start, tasks};
    use crate::calibrate::effort::Effort;
    use crate::cell::Cell;
    use crate::config::CellConfig;
    use crate::meter::Held;
    use crate::profile::Profile;
    use std::time::Duration;

    #[test]
    fn every_cost_of_this_host_is_measured() {
        let profile = calibrate(Effort::Quick, &mut |_| {}).expect("calibrated");
        for held in [
            Held::Store,
            Held::MemoryPage,
            Held::WasiEntry,
            Held::HostPage,
        ] {
            assert!(
                profile.median_ps.held[held.name()] > 0,
                "{} costs nothing",
                held.name()
            );
        }
        assert!(profile.median_ps.scrub > 0 && profile.median_ps.arena_page > 0);
        let kill = profile.kill.expect("measured");
        assert!(kill.p50_ns > 0 && profile.kill_ns() == kill.bound_ns());
    }

    #[test]
    fn as_many_tasks_wait_as_their_cost_is_divided_by() {
        let cell = Cell::start(CellConfig::new(Profile::free())).expect("a cell");
        let program = cell.compile(tasks(FOR_EVER).as_bytes());
        let tenant = start(&cell, &program.expect("a program"), &[]).expect("a tenant");
        std::thread::sleep(Duration::from_millis(200));
        tenant.kill();
        let scrubbed = tenant.wait().expect("an end").reclaimed.scrubbed;
        // Each waits for an object of its own, and so does the program that started them.
        assert_eq!(scrubbed, TASKS_STARTED + 1);
    }

    #[test]
    fn a_gap_in_the_heap_does_not_make_its_pages_cheap() {
        // Blocks of the heap, not mappings of their own, with one behind them that keeps them there.
        let blocks: Vec<Vec<u8>> = (0..128).map(|_| vec![1; 64 << 10]).collect();
        let last = std::hint::black_box(vec![1u8; 64 << 10]);
        drop(std::hint::black_box(blocks));
        let ps = host_page(Effort::Quick);
        assert!(ps > 50_000, "{ps} ps for a page that the system takes back");
        drop(last);
    }

    #[test]
    fn a_profile_that_is_much_too_cheap_does_not_hold() {
        let mut profile = calibrate(Effort::Quick, &mut |_| {}).expect("calibrated");
        for ps in profile.median_ps.held.values_mut() {
            *ps /= 1000;
        }
        let drifts = check(&profile, Effort::Quick, &mut |_| {}).expect("checked");
        assert!(drifts.iter().any(|drift| !drift.holds));
    }
}
