//! Any bytes as a program: text, a module, a component, or damage. Nothing panics and nothing is left
//! behind (the leak sanitizer looks), and what is accepted stays within what a program may take
//! before its first instruction.
//!
//! Needs the wasm engine, which takes minutes to build: behind the feature `engine`, so that the
//! other targets do without.
#![no_main]

use std::sync::LazyLock;

use leasehold_cell::profile::Profile;
use leasehold_cell::program::{MAX_DATA_BYTES, MAX_INSTANCES};
use leasehold_cell::{Cell, CellConfig};
use libfuzzer_sys::fuzz_target;

/// Nothing runs in it: its engine compiles.
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
