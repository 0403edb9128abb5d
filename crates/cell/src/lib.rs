//! One core of Leasehold: WebAssembly tenants under reclamation budgets and processor reservations.
//!
//! A [`Cell`] is an executor thread with a kernel ([`leasehold_kernel`]), a scheduler of processor
//! reservations ([`leasehold_reserve`]), a wasm engine, and pools of linear memories and stacks.
//! Tenants are started in it under a lease. Ending one, at any instant, takes no longer than its
//! lease was charged: the charge is enforced, the time that charged work takes is calibrated on
//! this host ([`profile`]).
//!
//! Principles:
//!
//! 1. **Charged before it exists.** Memory and table growth, instances, WASI's table, kernel
//!    objects, pollables: each is charged to the tenant's group before it is allocated, and
//!    refused when the budget does not allow it (`meter`, [`profile`]).
//! 2. **Ending is dropping, then cleaning.** A program is a future that owns its store. Dropping
//!    it puts memories and stacks back into their pools at a cost that does not depend on what
//!    is in them; pages are given back afterwards, in slices (`ending`, [`slot`]).
//! 3. **What a guest can multiply is freed as a whole.** Kernel objects, pollables and directory
//!    listings live in the tenant's arena (`wasi`); descriptors and instances, which the engine
//!    frees one by one, are bounded by what was charged for each.
//! 4. **No guest instruction holds the thread.** A guest is stopped between two instructions when
//!    its time is up ([`preempt`]), bulk instructions are split before compilation
//!    ([`leasehold_wasm::bulk_instructions`]), and host calls never wait for another thread or a
//!    device; the largest step of each is stated where it is made.
//! 5. **A tenant pays for its own work.** A scheduler decides which task runs
//!    ([`leasehold_reserve`]); the time of a tenant's start, timers and end is charged to that
//!    tenant's reservation (`dispatch`, `executor`).
//! 6. **A cell shares no mutable memory** with other cells; what crosses threads is in
//!    [`leasehold_crossing`].
//!
//! # Map
//!
//! From the controller to the thread.
//!
//! | concept | file |
//! |---|---|
//! | the controller's side of a cell, and what it asks of the thread | `cell`, `config`, `command` |
//! | why a tenant is not started, told without a start too | `start_error`, `rehearsal`; what a lease refused: `refusals` |
//! | the loop of the thread: the next task, and its host work | `executor` |
//! | processor reservations on a cell | `dispatch`, `promises`; what programs reach: `reaches`; wake-ups: `wake_priority`, `deferral` |
//! | commands are rationed; time that the host takes | `control_share`; `stalls`, `clock` |
//! | limits of the process below which no cell starts | `process_limits` |
//! | real-time priority, for kills too, and a core of the cell's own | `realtime`, `donor`, `realtime_limit`, `host_share`, `own_core` |
//! | the state of the thread, and what executions are built from | `local`, `programs`, `engines`, `engine_parts`, `engine_config`, `linkers`; the process that compiles: `compiler` |
//! | a program, its memory, and what it is given | [`program`], `built`, `code_space`, `outline`, looked at without its functions: `outlines`; `surroundings`, `disk_use`, `given`, `entropy` |
//! | the start of a tenant | `starting`, `build_error` |
//! | an execution: its store, its fiber, its data | `execution`, `fiber`, `guest`, `worker`, `exit` |
//! | what a guest calls: kernel objects, WASI, files | `abi`, `wasi`, `host`; requests: `serving`, each in a tenant of its own: `request_tenant`; calls of its exports: `calls`, `call_bytes` |
//! | host steps: the table, the caps, the watch | [`steps`] |
//! | charges outside of the arena, and limits for a tenant in total | `meter`, `limiter`, `share`, `mappings` |
//! | arenas, linear memories, stacks | `arena_backing`, [`memory`], `pools`; kept for requests: `warm_memories` |
//! | the end of a tenant, and its bound | `ending`, `ended`, `pace`, `discarded`, `kill_bound` |
//! | what an end costs on this host | [`calibrate`], [`profile`], `confidence`; compared with what ends took: `drift` |
//! | the process: heap, system calls, files of the user, text on terminals | `heap`, `system`, [`user_files`], `shown` |
//!
//! ```
//! use leasehold_cell::{Cell, CellConfig, Exit, Lease, StartRequest, Surroundings};
//! use leasehold_cell::profile::Profile;
//! use std::sync::Arc;
//!
//! // Charges nothing; `leasehold_cell::calibrate` measures a real profile.
//! let cell = Cell::start(CellConfig::new(Profile::free()))?;
//! let program = cell.compile(br#"(module (func (export "_start") (loop (br 0))))"#)?;
//! let tenant = cell.start_tenant(StartRequest {
//!     program,
//!     lease: Lease::default(),
//!     surroundings: Surroundings::default(),
//! })?;
//! tenant.kill(); // in the middle of its endless loop
//! assert_eq!(tenant.wait()?.exit, Exit::Killed);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod abi;
mod arena_backing;
mod build_error;
mod built;
pub mod calibrate;
mod call_bytes;
mod calls;
mod cell;
pub mod clock;
mod code_space;
mod command;
mod compiler;
mod confidence;
mod config;
mod control_share;
mod deferral;
mod discarded;
mod disk_use;
mod dispatch;
mod donor;
mod drift;
mod ended;
mod ending;
pub mod engine_config;
mod engine_parts;
mod engines;
mod entropy;
mod execution;
mod executor;
mod exit;
mod fiber;
mod given;
mod guest;
mod heap;
mod host;
mod host_share;
mod kill_bound;
mod limiter;
mod linkers;
mod local;
mod mappings;
pub mod memory;
mod meter;
mod outline;
mod outlines;
mod own_core;
mod pace;
mod pools;
mod process_limits;
pub mod profile;
pub mod program;
mod programs;
mod promises;
mod reaches;
mod realtime;
mod realtime_limit;
mod refusals;
mod rehearsal;
mod request_tenant;
mod serving;
mod share;
mod shown;
mod stalls;
mod start_error;
mod starting;
pub mod steps;
mod surroundings;
mod system;
pub mod user_files;
mod wake_priority;
mod warm_memories;
mod wasi;
mod worker;

pub use arena_backing::MapBacking;
pub use calls::{CallError, ExportedFunction, FunctionError, PendingCall};
pub use cell::{Cell, Killer, PendingStart, TenantHandle};
pub use command::StartRequest;
pub use compiler::Compiler;
pub use confidence::QuantileBound;
pub use config::{CellConfig, PLACES};
pub use control_share::{ControlKind, ControlUse};
pub use disk_use::DiskUse;
pub use dispatch::{BACKGROUND_SLICE, Processor, ProcessorState, claim, contract};
pub use drift::{ClassCosts, CostClass, PresentPrices, Price};
pub use ended::{Ended, Reclaimed};
pub use entropy::open_entropy;
pub use exit::Exit;
pub use host::fs::limit::{Promise as DescriptorPromise, Refused as DescriptorsRefused};
pub use kill_bound::{KillDelay, kill_bound, reservation_for_ends};
pub use leasehold_crossing::Bell;
pub use leasehold_exchange as exchange;
pub use leasehold_keyvalue as keyvalue;
pub use leasehold_lease::Lease;
pub use leasehold_preempt as preempt;
pub use leasehold_reclaim::{Mode, Statement};
pub use leasehold_reserve::{Order, Shielding, Supply};
pub use leasehold_slots::stack_class::StackClass;
pub use leasehold_slots::{slot, stack};
pub use leasehold_wasm::artifact::CodeCache;
pub use leasehold_wasm::refused::{Function, SourcePosition};
pub use leasehold_wasm::{exceptions, image};
pub use meter::Held;
pub use outlines::{InitialMemory, Outlines};
pub use own_core::NoOwnCore;
pub use process_limits::{raise as raise_process_limits, raise_stack};
pub use program::{Program, ProgramError};
pub use realtime::{Realtime, WhenRealtime};
pub use realtime_limit::RealtimeLimit;
pub use refusals::{Refusal, Reservation};
pub use rehearsal::{Rehearsal, RehearsedStart};
pub use serving::{Fresh, Serving};
pub use shown::{escaped, escaped_json, is_obeyed};
pub use start_error::StartError;
pub use surroundings::{Directory, Surroundings};
pub use user_files::user_code_cache;
pub use wasi::capture::Capture;
pub use wasi::stdio::{
    Destination, Input, Output, flush_within as flush_output_within, stdout_failure,
};
pub use wasmtime::component::Val;
pub use wasmtime::component::types::Type;

// The crates that stand alone each say what a page is; here they meet.
const _: () = assert!(
    leasehold_pager::PAGE == leasehold_slots::address_range::PAGE as u64
        && leasehold_reclaim::PAGE == leasehold_slots::address_range::PAGE
        && leasehold_wasm::image::PAGE == leasehold_slots::address_range::PAGE
);
