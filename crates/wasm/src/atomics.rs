//! Replaces the instructions that wait for or notify other threads, because a guest has one thread.
//!
//! Atomic instructions are offered, shared memories are not. The engine is built without support
//! for shared memories, and so has no code for `memory.atomic.wait32`, `memory.atomic.wait64` and
//! `memory.atomic.notify`. On a memory that is not shared the first two trap and the last wakes no
//! thread, after the same checks of their address as an atomic load makes. So before a module is
//! compiled, each of them is replaced:
//!
//! ```text
//! address count          memory.atomic.notify   →   drop       i32.atomic.load drop i32.const 0
//! address value timeout  memory.atomic.wait32   →   drop drop  i32.atomic.load unreachable
//! address value timeout  memory.atomic.wait64   →   drop drop  i64.atomic.load unreachable
//! ```
//!
//! 1. *The meaning stays.* An address that is not aligned or out of bounds traps as it did.
//! 2. *None of them is a call of the host.*
//! 3. *Nothing else changes* ([`in_place`](crate::in_place)). Only `metadata.code.*` sections are dropped, whose offsets into
//!    functions would be wrong.

use std::borrow::Cow;

use wasm_encoder::{Instruction, MemArg};
use wasmparser::{BinaryReaderError, Operator};

use crate::core_modules::rewrite_core_modules;
use crate::in_place::replace_in_place;

/// Whether an instruction waits for another thread or notifies one.
pub(crate) fn awaits(operator: &Operator<'_>) -> bool {
    matches!(
        operator,
        Operator::MemoryAtomicNotify { .. }
            | Operator::MemoryAtomicWait32 { .. }
            | Operator::MemoryAtomicWait64 { .. }
    )
}

/// Rewrites a module, or every core module in a component. Bytes that need no change are returned as
/// they are.
///
/// # Errors
///
/// The parser's, if `wasm` is not well-formed.
pub(crate) fn wait_for_none(wasm: &[u8]) -> Result<Cow<'_, [u8]>, BinaryReaderError> {
    rewrite_core_modules(wasm, &mut |module| replace_in_place(module, replacement))
}

/// The replacement of an instruction, if there is one.
fn replacement(operator: &Operator<'_>) -> Option<Vec<Instruction<'static>>> {
    use Instruction as I;
    let at = |argument: wasmparser::MemArg| MemArg {
        offset: argument.offset,
        align: argument.align.into(),
        memory_index: argument.memory,
    };
    Some(match *operator {
        Operator::MemoryAtomicNotify { memarg } => vec![
            I::Drop,
            I::I32AtomicLoad(at(memarg)),
            I::Drop,
            I::I32Const(0),
        ],
        Operator::MemoryAtomicWait32 { memarg } => vec![
            I::Drop,
            I::Drop,
            I::I32AtomicLoad(at(memarg)),
            I::Unreachable,
        ],
        Operator::MemoryAtomicWait64 { memarg } => vec![
            I::Drop,
            I::Drop,
            I::I64AtomicLoad(at(memarg)),
            I::Unreachable,
        ],
        _ => return None,
    })
}
