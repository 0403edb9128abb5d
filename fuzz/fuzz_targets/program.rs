//! Any bytes as a program: text, a module, a component, or damage. Nothing panics and nothing is left
//! behind (the leak sanitizer looks), and what is accepted stays within what a program may take
//! before its first instruction.
//!
//! It needs the wasm engine, which takes minutes to build, so it is behind the feature `engine` and
//! the other targets build without it.
#![no_main]

use std::sync::LazyLock;

use leasehold_cell::profile::Profile;
use leasehold_cell::program::{MAX_DATA_BYTES, MAX_INSTANCES};
use leasehold_cell::{Cell, CellConfig};
use libfuzzer_sys::fuzz_target;

/// No program runs in it: only its engine compiles.
static CELL: LazyLock<Cell> =
    LazyLock::new(|| Cell::start(CellConfig::new(Profile::free())).expect("a cell starts"));

fuzz_target!(|bytes: &[u8]| {
    match CELL.compile(bytes) {
        Ok(program) => {
            let inventory = program.inventory();
            assert!(inventory.instances <= MAX_INSTANCES);
            assert!(inventory.data_bytes <= MAX_DATA_BYTES);
            // Every page of 64 KiB that is declared is counted.
            assert!(inventory.memory_bytes.is_multiple_of(1 << 16));
            assert!(inventory.memories > 0 || inventory.memory_bytes == 0);
        }
        // One line for people.
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
