//! Which WebAssembly a tenant may use.

use wasmparser::WasmFeatures;

/// Version of the engine's settings, of which [`FEATURES`] is one, and of how programs are read; part of the key of a cached program,
/// and of notes of what programs reach.
pub const CONFIG_VERSION: u32 = 21;

/// The WebAssembly features that a program may use.
///
/// Left out, because the engine would then allocate on the host for the guest without asking the
/// lease, or because a bulk operation could not be split: structures and arrays, 64-bit memories
/// and tables, stack switching, the component model's asynchronous functions; and the exceptions
/// that preceded WebAssembly 3.0, which the engine does not implement. Of threads only the atomic
/// instructions are offered. A shared memory is refused [when a program is
/// counted](crate::load_limits), the engine is built without shared memories, and instructions that
/// wait for another thread (`atomics`) are replaced.
pub const FEATURES: WasmFeatures = WasmFeatures::WASM2
    .union(WasmFeatures::EXCEPTIONS)
    .union(WasmFeatures::THREADS)
    .union(WasmFeatures::TAIL_CALL)
    .union(WasmFeatures::EXTENDED_CONST)
    .union(WasmFeatures::MULTI_MEMORY)
    .union(WasmFeatures::RELAXED_SIMD)
    .union(WasmFeatures::COMPONENT_MODEL);
