//! The work of a process that compiles, and what it says of it.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;

use leasehold_confine::{MAX_PACKET_BYTES, Packet, Thread, narrow};
use wasmparser::Parser;
use wasmtime::Engine;

use super::object::Object;
use super::{EngineKind, Extent, ProgramError};
use crate::artifact::Digest;
use crate::code::Purpose;
use crate::compile_threads;
use crate::compiled::{Rewritten, with_hollow, with_rewritten};
use crate::entry::Content;
use crate::limits::MAX_PROGRAM_BYTES;

/// The first byte of a result, which says what follows.
const MADE: u8 = 0;
const REFUSED: u8 = 1;

/// Compiles what is asked for.
pub(super) fn run(request: Packet, engine: fn(EngineKind) -> anyhow::Result<Engine>) -> Packet {
    match compile(request, engine) {
        Ok((digest, object)) => Packet {
            bytes: [&[MADE], &digest.to_bytes()[..]].concat(),
            file: Some(object),
        },
        Err(error) => {
            let mut bytes = [&[REFUSED], error.to_string().as_bytes()].concat();
            bytes.truncate(MAX_PACKET_BYTES);
            Packet { bytes, file: None }
        }
    }
}

/// What a result says.
///
/// # Errors
/// What the process said of the program.
pub(super) fn outcome(result: Packet) -> Result<Object, ProgramError> {
    match (result.bytes.split_first(), result.file) {
        (Some((&MADE, digest)), Some(file)) if let Some(digest) = Digest::from_bytes(digest) => {
            Object::received(file, digest)
        }
        (Some((_, message)), _) => Err(ProgramError::Elsewhere(
            String::from_utf8_lossy(message).into_owned(),
        )),
        (None, _) => Err(ProgramError::Elsewhere(String::new())),
    }
}

fn compile(
    request: Packet,
    engine: fn(EngineKind) -> anyhow::Result<Engine>,
) -> Result<(Digest, OwnedFd), ProgramError> {
    // Its threads are confined before any of the program is read, and this one.
    compile_threads::start().map_err(failed)?;
    narrow(Thread::Job).map_err(failed)?;
    let asked = request.bytes.first_chunk().zip(request.file);
    let Some((&[extent, purpose, kind], program)) = asked else {
        return Err(failed("no program"));
    };
    let extent = Extent::ALL.get(usize::from(extent));
    let extent = extent.ok_or_else(|| failed("no extent"))?;
    let purpose = Purpose::from_byte(purpose).ok_or_else(|| failed("no purpose"))?;
    let engine = engine(EngineKind(kind)).map_err(failed)?;
    let program = read(program)?;
    let precompile = |rewritten: Rewritten<'_>| {
        let is_component = Parser::is_component(rewritten.binary);
        let code = match is_component {
            true => engine.precompile_component(rewritten.binary),
            false => engine.precompile_module(rewritten.binary),
        };
        let code = code.map_err(ProgramError::Engine)?;
        Content::new(
            code,
            is_component,
            &rewritten.inventory,
            rewritten.image.as_ref(),
        )
        .map_err(failed)
    };
    let content = match extent {
        Extent::Whole => with_rewritten(purpose, &engine, &program, precompile),
        Extent::Outline => with_hollow(purpose, &program, precompile),
    }?;
    let object = Object::write(&content).map_err(failed)?;
    Ok((Digest::of(&program), object))
}

fn read(program: OwnedFd) -> Result<Vec<u8>, ProgramError> {
    let mut bytes = Vec::new();
    let mut program = File::from(program).take(MAX_PROGRAM_BYTES + 1);
    program.read_to_end(&mut bytes).map_err(failed)?;
    match bytes.len() as u64 {
        found if found > MAX_PROGRAM_BYTES => Err(ProgramError::TooLarge { found }),
        _ => Ok(bytes),
    }
}

fn failed(error: impl std::fmt::Display) -> ProgramError {
    ProgramError::Elsewhere(format!("the process that compiles: {error}"))
}
