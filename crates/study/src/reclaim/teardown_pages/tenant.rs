//! A program with any number of resident pages, and one life of it in a cell or in stock wasmtime.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use leasehold_cell::profile::Profile;
use leasehold_cell::{
    Capture, Cell, CellConfig, Exit, Lease, Output, Program, StartRequest, Surroundings,
    TenantHandle,
};
use leasehold_lease::{ByteSize, Nanoseconds};

use crate::harness::stock::{self, Allocation, Invocation, Limits, Stock};

/// Pages of 4 KiB in a page of WebAssembly.
const PAGES_PER_WASM_PAGE: usize = 16;
/// The program's line when all its pages are resident.
const READY: &str = "ready";
/// The whole of a 32-bit memory: 10⁶ pages leave little of it.
const MEMORY_BYTES: usize = 4 << 30;
/// More than 10⁶ pages are charged on any host.
const BUDGET: Nanoseconds = Nanoseconds::new(10_000_000_000).expect("10 s are in range");
/// Linear memories of the cell: a tenant may take a quarter of the places.
const SLOTS: usize = 8;
/// Of what the program prints.
const OUTPUT_BYTES: usize = 1 << 10;
const PATIENCE: Duration = Duration::from_secs(60);
/// The interval between two checks whether the program is ready.
const LOOK: Duration = Duration::from_micros(200);

/// The time of one end.
pub(super) struct End {
    pub(super) reusable_ns: u64,
    pub(super) reclaimed_ns: u64,
    /// The values that only a cell states.
    pub(super) charge: Option<Charge>,
}

/// The bound of an end, and what it came to.
pub(super) struct Charge {
    /// Processor time that was charged in advance.
    pub(super) predicted_ns: u64,
    /// Processor time until everything was given back.
    pub(super) cpu_ns: u64,
}

/// A module that writes to `pages` pages of its memory, says so, and sleeps.
pub(super) fn program(pages: usize) -> String {
    let wasm_pages = pages.div_ceil(PAGES_PER_WASM_PAGE);
    format!(
        r#"(module
            (import "wasi_snapshot_preview1" "fd_write"
                (func $write (param i32 i32 i32 i32) (result i32)))
            (import "wasi_snapshot_preview1" "poll_oneoff"
                (func $poll (param i32 i32 i32 i32) (result i32)))
            (memory (export "memory") {wasm_pages})
            (data (i32.const 0) "\10\00\00\00\06\00\00\00")
            (data (i32.const 16) "{READY}\n")
            ;; A subscription to the monotonic clock in 10^12 ns.
            (data (i32.const 80) "\01\00\00\00\00\00\00\00\00\10\a5\d4\e8\00\00\00")
            (func (export "_start") (local $page i32)
                (loop $next
                    (i32.store8 offset=4095
                        (i32.shl (local.get $page) (i32.const 12)) (i32.const 1))
                    (local.set $page (i32.add (local.get $page) (i32.const 1)))
                    (br_if $next (i32.lt_u (local.get $page) (i32.const {pages}))))
                (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))
                (drop (call $poll
                    (i32.const 64) (i32.const 128) (i32.const 1) (i32.const 12)))))"#
    )
}

/// A cell whose tenants are ended.
pub(super) struct InCell(Cell);

impl InCell {
    /// # Errors
    /// If the host refuses a cell.
    pub(super) fn new(profile: Profile, core: Option<usize>) -> Result<Self> {
        let mut config = CellConfig::new(profile);
        config.cpu = core;
        config.max_memories = SLOTS;
        Ok(Self(Cell::start(config)?))
    }

    /// # Errors
    /// If it is no program.
    pub(super) fn compile(&self, program: &str) -> Result<Arc<Program>> {
        Ok(self.0.compile(program.as_bytes())?)
    }

    /// Starts a tenant, lets it write to its pages, and ends it.
    ///
    /// # Errors
    /// If the cell refuses it, or gave back fewer pages than the tenant wrote to.
    pub(super) fn end(&self, program: &Arc<Program>, pages: usize) -> Result<End> {
        let output = Capture::new(OUTPUT_BYTES);
        let tenant = self.0.start_tenant(StartRequest {
            program: program.clone(),
            lease: lease()?,
            surroundings: Surroundings {
                stdout: Output::Capture(output.clone()),
                ..Surroundings::default()
            },
        })?;
        wait_until_ready(&tenant, &output)?;
        tenant.kill();
        let ended = tenant.wait()?;
        let reclaimed = ended.reclaimed;
        ensure!(ended.exit == Exit::Killed, "it ended: {:?}", ended.exit);
        ensure!(
            reclaimed.pages >= pages as u64,
            "of {pages} pages that were written to, {} were given back",
            reclaimed.pages
        );
        Ok(End {
            reusable_ns: reclaimed.reusable.wall_ns,
            reclaimed_ns: reclaimed.returned.wall_ns,
            charge: Some(Charge {
                predicted_ns: reclaimed.predicted_ns,
                cpu_ns: reclaimed.returned.cpu_ns,
            }),
        })
    }
}

fn lease() -> Result<Lease> {
    let mut lease = Lease::default();
    lease.reclaim.budget = BUDGET;
    lease.memory.reserve = ByteSize::new(MEMORY_BYTES as u64).context("4 GiB are in range")?;
    Ok(lease)
}

fn wait_until_ready(tenant: &TenantHandle, output: &Capture) -> Result<()> {
    let begin = Instant::now();
    while !output.bytes().starts_with(READY.as_bytes()) {
        if let Some(ended) = tenant.wait_for(LOOK)? {
            bail!("it ended before it was ready: {:?}", ended.exit);
        }
        ensure!(
            begin.elapsed() < PATIENCE,
            "it was not ready in {PATIENCE:?}"
        );
    }
    Ok(())
}

/// Stock wasmtime, whose programs are ended.
pub(super) struct InStock(Stock);

const LIMITS: Limits = Limits {
    memory_bytes: MEMORY_BYTES,
    table_elements: 1000,
};

impl InStock {
    /// # Errors
    /// If the host refuses what the allocator takes.
    pub(super) fn new(allocation: Allocation, core: Option<usize>) -> Result<Self> {
        Ok(Self(Stock::new(allocation, LIMITS, core)?))
    }

    /// # Errors
    /// If it is no program.
    pub(super) fn compile(&self, program: &str) -> Result<stock::Program> {
        self.0.load(program.as_bytes())
    }

    /// Starts a program, lets it write to its pages, and ends it.
    ///
    /// # Errors
    /// If it ends before it is ready.
    pub(super) fn end(&self, program: &stock::Program) -> Result<End> {
        let running = self.0.start(
            program,
            Invocation {
                args: vec!["pages".to_owned()],
                dirs: Vec::new(),
                stdin: bytes::Bytes::new(),
                limits: LIMITS,
                blocking: false,
            },
        )?;
        running.wait_for_output(READY, PATIENCE)?;
        let times = running.kill().times;
        // The store gives all its memory back before its place can be used again.
        let dropped_ns = times.dropped_ns - times.stopped_ns;
        Ok(End {
            reusable_ns: dropped_ns,
            reclaimed_ns: dropped_ns,
            charge: None,
        })
    }
}
