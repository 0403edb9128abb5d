//! What the tests of preemption share: the settings of engines, and programs.

use crate::guest_code::{Bodies, GuestProgram};
use crate::mechanism::{Mechanism, configure};
use leasehold_slots::slot::{MEMORY_GUARD, MEMORY_RESERVATION};
use leasehold_slots::stack_class::StackClass;
use leasehold_wasm::code::Code;
use leasehold_wasm::features::FEATURES;
use std::fmt;
use wasmparser::WasmFeatures;
use wasmtime::{Collector, Config};

/// The configuration of a cell's engines.
pub(crate) fn engine_config(mechanism: Mechanism) -> Config {
    let stack = StackClass::default();
    let mut config = Config::new();
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
        .collector(Collector::Null)
        .memory_init_cow(false)
        .wasm_backtrace_max_frames(None);
    configure(&mut config, mechanism);
    config
}

/// Compiled code whose guests are preempted.
pub(crate) struct Program {
    code: Code,
    bodies: Bodies,
}

impl Program {
    pub(crate) fn new(code: Code) -> Self {
        let bodies = match &code {
            Code::Module(module) => Bodies::of(module.text(), module.functions()),
            Code::Component(component) => Bodies::of(component.text(), component.functions()),
        };
        Self { code, bodies }
    }

    pub(crate) fn code(&self) -> &Code {
        &self.code
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bodies.fmt(f)
    }
}

impl GuestProgram for Program {
    fn bodies(&self) -> &Bodies {
        &self.bodies
    }
}
