//! The image of a program that has got ready: its memory, and itself without what made it.

use leasehold_reclaim::PAGE;
use std::ops::Range;

use anyhow::{Context, Result, anyhow, ensure};
use wasm_encoder::{MemorySection, MemoryType, RawSection};
use wasmparser::{Parser, Payload};
use wasmtime::{Engine, Instance, Module, Store, TypedFunc, Val};

const WASM_PAGE: usize = 64 << 10;

/// A decoder with a film, ready to decode.
pub(super) struct Image {
    /// The program, whose memory starts as large as `memory` and with nothing in it.
    pub(super) module: Vec<u8>,
    /// The contents of the memory.
    pub(super) memory: Vec<u8>,
    /// Its parts, from the first page to the last.
    pub(super) parts: Vec<Part>,
    /// The result of decoding each frame.
    pub(super) sums: Vec<u64>,
}

/// Pages of an image that serve one purpose.
#[derive(Debug, Clone)]
pub(super) struct Part {
    pub(super) name: &'static str,
    pub(super) pages: Range<usize>,
    /// Whether it is only read.
    pub(super) read: bool,
}

impl Image {
    /// Runs a program until it has a film of `frames` frames, and has decoded each of them once.
    ///
    /// # Errors
    /// If it is no such program.
    pub(super) fn take(program: &[u8], frames: u32) -> Result<Self> {
        let engine = Engine::default();
        let module = Module::from_binary(&engine, program).map_err(failure)?;
        let mut store = Store::new(&engine, ());
        let instance = Instance::new(&mut store, &module, &[]).map_err(failure)?;
        let prepare: TypedFunc<u32, ()> = function(&instance, &mut store, "prepare")?;
        prepare.call(&mut store, frames).map_err(failure)?;
        let decode: TypedFunc<u32, u64> = function(&instance, &mut store, "decode")?;
        let sums = (0..frames).map(|frame| decode.call(&mut store, frame).map_err(failure));
        let sums = sums.collect::<Result<_>>()?;
        let mut address = |name| -> Result<usize> {
            let address: TypedFunc<(), u32> = function(&instance, &mut store, name)?;
            Ok(address.call(&mut store, ()).map_err(failure)? as usize)
        };
        let film = address("film_start")?..address("film_end")?;
        let mut end = |name| match instance.get_global(&mut store, name) {
            Some(global) => match global.get(&mut store) {
                Val::I32(end) => Ok(end.cast_unsigned() as usize),
                other => Err(anyhow!("the global {name} is {other:?}")),
            },
            None => Err(anyhow!("the decoder has no global {name}")),
        };
        let (data, heap) = (end("__data_end")?, end("__heap_base")?);
        ensure!(
            data <= heap && heap <= film.start,
            "the memory is laid out otherwise"
        );
        let memory = instance.get_memory(&mut store, "memory");
        let memory = memory
            .context("the decoder has no memory")?
            .data(&store)
            .to_vec();
        Ok(Self {
            module: without_data(program, memory.len() / WASM_PAGE)?,
            parts: parts(data, &film, memory.len()),
            memory,
            sums,
        })
    }

    pub(super) fn pages(&self) -> usize {
        self.memory.len() / PAGE
    }
}

/// The linker puts the stack first, then the program's data; what follows is the heap, with the
/// film in its middle. Pages that two parts share belong to the one that is written to.
fn parts(data: usize, film: &Range<usize>, end: usize) -> Vec<Part> {
    /// As the guests' linker is told.
    const STACK: usize = 64 << 10;
    let tables = STACK / PAGE..data / PAGE;
    let film = film.start.div_ceil(PAGE)..film.end / PAGE;
    let part = |name, pages, read| Part { name, pages, read };
    let parts = [
        part("stack", 0..tables.start, false),
        part("tables", tables.clone(), true),
        part("buffers", tables.end..film.start, false),
        part("film", film.clone(), true),
        part("rest", film.end..end / PAGE, false),
    ];
    parts
        .into_iter()
        .filter(|part| !part.pages.is_empty())
        .collect()
}

/// The program without its data segments, for a memory that has them already and is as large as
/// it has become.
fn without_data(program: &[u8], wasm_pages: usize) -> Result<Vec<u8>> {
    let mut module = wasm_encoder::Module::new();
    let mut mutable = 0;
    for payload in Parser::new(0).parse_all(program) {
        match payload? {
            Payload::DataSection(_) | Payload::DataCountSection { .. } => {}
            Payload::MemorySection(_) => {
                let mut memories = MemorySection::new();
                memories.memory(MemoryType {
                    minimum: wasm_pages as u64,
                    maximum: None,
                    memory64: false,
                    shared: false,
                    page_size_log2: None,
                });
                module.section(&memories);
            }
            payload => {
                if let Payload::GlobalSection(globals) = &payload {
                    for global in globals.clone() {
                        mutable += usize::from(global?.ty.mutable);
                    }
                }
                if let Some((id, range)) = payload.as_section() {
                    let data = &program[range];
                    module.section(&RawSection { id, data });
                }
            }
        }
    }
    // The stack's pointer is where it was before; others would have to be set.
    ensure!(mutable <= 1, "the decoder has {mutable} mutable globals");
    Ok(module.finish())
}

pub(super) fn function<P: wasmtime::WasmParams, R: wasmtime::WasmResults>(
    instance: &Instance,
    store: &mut Store<()>,
    name: &str,
) -> Result<TypedFunc<P, R>> {
    let function = instance.get_typed_func(store, name);
    function.map_err(|error| anyhow!("the decoder's {name}: {error:#}"))
}

pub(super) fn failure(error: wasmtime::Error) -> anyhow::Error {
    anyhow!("{error:#}")
}
