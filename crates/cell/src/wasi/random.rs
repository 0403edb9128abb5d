//! Random numbers for components: a list is filled in blocks, where `wasmtime-wasi` asks for each byte.

use super::view::Wasi;
use crate::steps::caps::RANDOM_LIST;
use crate::steps::{mark, step};
use rand::Rng as _;
use wasmtime::bail;
use wasmtime_wasi::p2::bindings::random::{insecure, random};

impl random::Host for Wasi<'_> {
    fn get_random_bytes(&mut self, len: u64) -> wasmtime::Result<Vec<u8>> {
        mark(step!("wasi:random/random", "get-random-bytes"));
        bytes(len, self.0.transfer_bytes(RANDOM_LIST))
    }

    fn get_random_u64(&mut self) -> wasmtime::Result<u64> {
        mark(step!("wasi:random/random", "get-random-u64"));
        Ok(rand::rng().next_u64())
    }
}

// A source that suffices for one suffices for the other.
impl insecure::Host for Wasi<'_> {
    fn get_insecure_random_bytes(&mut self, len: u64) -> wasmtime::Result<Vec<u8>> {
        mark(step!("wasi:random/insecure", "get-insecure-random-bytes"));
        bytes(len, self.0.transfer_bytes(RANDOM_LIST))
    }

    fn get_insecure_random_u64(&mut self) -> wasmtime::Result<u64> {
        mark(step!("wasi:random/insecure", "get-insecure-random-u64"));
        Ok(rand::rng().next_u64())
    }
}

fn bytes(len: u64, most: u64) -> wasmtime::Result<Vec<u8>> {
    if len > most {
        bail!("requested len {len:?} exceeds limit {most}");
    }
    let mut bytes = vec![0; RANDOM_LIST.size().min(len as usize)];
    rand::rng().fill_bytes(&mut bytes);
    Ok(bytes)
}
