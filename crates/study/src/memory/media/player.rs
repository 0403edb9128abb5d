//! A player: an instance of the decoder whose memory is a tenant's view of a shared image.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use leasehold_pager::ReservationId;
use wasmtime::{
    Config, Engine, Instance, LinearMemory, MemoryCreator, MemoryType, Module, Store, TypedFunc,
};

use super::image::{Image, failure, function};
use crate::harness::clock::monotonic_ns;
use crate::memory::paging::Range;
use leasehold_reclaim::PAGE;

/// All that a 32-bit memory can reach, and the engine's guard behind it.
const RESERVATION: u64 = 4 << 30;
const GUARD: u64 = 32 << 20;
pub(super) const REACH: u64 = RESERVATION + GUARD;

/// The engine, and the place of the memory that is made next.
pub(super) struct Decoder {
    module: Module,
    place: Arc<NextMemory>,
}

#[derive(Default)]
struct NextMemory(Mutex<Option<Memory>>);

/// Memory that starts at an address and has so many bytes.
#[derive(Clone, Copy)]
struct Memory {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: a memory is an address; its contents are accessed through the store, which is used by one
// thread only.
unsafe impl Send for Memory {}
// SAFETY: as above; nothing in it changes.
unsafe impl Sync for Memory {}

// SAFETY: `Player::start` hands in the start of a range of `REACH` bytes that outlives the
// store. Its first `bytes` bytes are readable and writable, since faults on them are served, or
// end in a page of zeros; nothing is mapped at the others. It never moves.
unsafe impl LinearMemory for Memory {
    fn byte_size(&self) -> usize {
        self.bytes
    }

    fn byte_capacity(&self) -> usize {
        RESERVATION as usize
    }

    fn grow_to(&mut self, bytes: usize) -> wasmtime::Result<()> {
        match bytes <= self.bytes {
            true => Ok(()),
            false => Err(wasmtime::Error::msg("an image does not grow")),
        }
    }

    fn as_ptr(&self) -> *mut u8 {
        self.start
    }
}

// SAFETY: gives the memory at the place that was set, once, if it is what was asked for. It does
// not start with zeros but with what the module's own data segments made of it.
unsafe impl MemoryCreator for NextMemory {
    fn new_memory(
        &self,
        ty: MemoryType,
        minimum: usize,
        _maximum: Option<usize>,
        reserved: Option<usize>,
        guard: usize,
    ) -> Result<Box<dyn LinearMemory>, String> {
        let memory = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let memory = memory.ok_or("no place for a memory")?;
        let fits = !ty.is_64()
            && minimum == memory.bytes
            && reserved.is_none_or(|bytes| bytes as u64 <= RESERVATION)
            && guard as u64 <= GUARD;
        match fits {
            true => Ok(Box::new(memory)),
            false => Err("the place does not fit the memory".to_owned()),
        }
    }
}

impl Decoder {
    /// # Errors
    /// If the image's module cannot be compiled.
    pub(super) fn new(image: &Image) -> Result<Self> {
        let place = Arc::new(NextMemory::default());
        let mut config = Config::new();
        config
            .memory_reservation(RESERVATION)
            .memory_guard_size(GUARD)
            .guard_before_linear_memory(false)
            .memory_may_move(false)
            .memory_init_cow(false)
            .with_host_memory(place.clone());
        let engine = Engine::new(&config).map_err(failure)?;
        let module = Module::from_binary(&engine, &image.module).map_err(failure)?;
        Ok(Self { module, place })
    }
}

/// A player of the film.
pub(super) struct Player<'a> {
    pub(super) id: ReservationId,
    store: Store<()>,
    decode: TypedFunc<u32, u64>,
    sums: &'a [u64],
    /// The frame that is next.
    frame: usize,
    /// Where its memory is; dropped after the store.
    _range: Range<'a>,
}

impl<'a> Player<'a> {
    /// A player on a range of [`REACH`] bytes at whose start the image's parts are attached.
    ///
    /// # Errors
    /// If the decoder cannot be instantiated.
    pub(super) fn start(
        decoder: &Decoder,
        image: &'a Image,
        range: Range<'a>,
        id: ReservationId,
    ) -> Result<Self> {
        let memory = Memory {
            start: range.start(),
            bytes: image.pages() * PAGE,
        };
        let place = decoder.place.0.lock();
        *place.unwrap_or_else(PoisonError::into_inner) = Some(memory);
        let mut store = Store::new(decoder.module.engine(), ());
        let instance = Instance::new(&mut store, &decoder.module, &[]).map_err(failure)?;
        let decode = function(&instance, &mut store, "decode")?;
        Ok(Self {
            id,
            store,
            decode,
            sums: &image.sums,
            frame: 0,
            _range: range,
        })
    }

    /// Decodes the next frame; how long that took.
    ///
    /// # Errors
    /// If the frame is not what it is in the film.
    pub(super) fn play(&mut self) -> Result<u64> {
        let frame = self.frame % self.sums.len();
        self.frame += 1;
        let begin = monotonic_ns();
        let sum = self.decode.call(&mut self.store, frame as u32);
        let time = monotonic_ns() - begin;
        let sum = sum
            .map_err(failure)
            .with_context(|| format!("frame {frame}"))?;
        ensure!(sum == self.sums[frame], "frame {frame} is another one");
        Ok(time)
    }
}
