//! The engine's configuration: which WebAssembly a tenant may use, and how it is run.
//!
//! A compiled program is bound to these settings. A change of any of them must change
//! [`CONFIG_VERSION`]. Otherwise the engine refuses a stale program of the cache, instead of the
//! cache missing it.

use wasmparser::WasmFeatures;
use wasmtime::{Collector, Config, OptLevel, WasmBacktraceDetails};

use crate::steps::caps;
use leasehold_preempt::{self as preempt, Mechanism};
pub use leasehold_slots::slot::{MEMORY_GUARD, MEMORY_RESERVATION};
use leasehold_slots::stack_class::StackClass;
pub use leasehold_slots::stack_class::{FIBER_STACK, MAX_WASM_STACK};
pub use leasehold_wasm::features::{CONFIG_VERSION, FEATURES};
use std::num::NonZeroUsize;

/// The configuration of every engine that compiles or runs tenants, whose guests are preempted by
/// `mechanism` and have a stack of the smallest class.
///
/// The cell adds its pools (`with_host_memory`, `with_host_stack`); they do not change the code
/// that is generated, so that a program compiled by one engine runs in another.
pub fn engine_config(mechanism: Mechanism) -> Config {
    engine_config_for(mechanism, StackClass::default(), false)
}

/// How long the walk over the deepest stack that has backtraces may take, ns: 32,750 frames of 16 bytes, 65 ns each as
/// measured, and as many below a function that a host call called (`cabi_realloc`). No row counts it. The engine walks
/// for a trap, and when a guest is dropped that waits in a host call: each execution is charged for one walk
/// ([`Held::Backtrace`](crate::Held::Backtrace)).
pub const BACKTRACE_NS: u64 = 4_400_000;

/// The same with stacks of a class, and optionally with backtraces of traps. Neither changes the
/// generated code.
///
/// The engine walks the whole stack for a backtrace, and keeps each frame: 65 ns for each of up to 32,750 in
/// the smallest stack. There is none where the stack is larger than by default.
pub(crate) fn engine_config_for(
    mechanism: Mechanism,
    stack: StackClass,
    backtraces: bool,
) -> Config {
    let mut config = Config::new();
    let frames = NonZeroUsize::new(caps::FRAMES.size());
    config
        .wasm_features(WasmFeatures::all().difference(FEATURES), false)
        .wasm_features(FEATURES, true)
        .max_wasm_stack(stack.guest_bytes())
        .async_stack_size(stack.fiber_bytes())
        .async_stack_zeroing(false)
        .memory_reservation(MEMORY_RESERVATION)
        .memory_guard_size(MEMORY_GUARD)
        .guard_before_linear_memory(false)
        .memory_may_move(false)
        .shared_memory(false)
        // Exceptions are in a heap of the store's, which is a linear memory like any other: asked for,
        // limited and given back. They are never collected: a collection would walk the guest's whole
        // stack in one step.
        .collector(Collector::Null)
        // The engine would map images over slots of the cell's pool without the pool's knowledge.
        .memory_init_cow(false)
        .cranelift_opt_level(OptLevel::Speed)
        // Names of guest functions in a trap's message come from here. Line tables do not, whatever the host's
        // environment says: they are as large as their program likes, and would be parsed for each frame.
        .generate_address_map(true)
        .wasm_backtrace_details(WasmBacktraceDetails::Disable)
        .wasm_backtrace_max_frames(frames.filter(|_| backtraces && stack == StackClass::default()));
    preempt::configure(&mut config, mechanism);
    config
}
