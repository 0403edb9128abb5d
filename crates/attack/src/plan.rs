//! An attack as data.

use serde::{Deserialize, Serialize};

/// A program that attacks, and the lease that it has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// A core module or a component.
    pub form: Form,
    /// The terms of its lease.
    pub terms: Terms,
    /// The behaviour of its `cabi_realloc`; only for a component.
    pub realloc: Realloc,
    /// Its actions, in this order.
    pub blocks: Vec<Block>,
    /// How it ends.
    pub ending: Ending,
}

/// The form of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// A core module with WASI preview 1 and the module `leasehold_kernel`.
    Core,
    /// A component with WASI preview 2 and the package `leasehold:kernel`.
    Component,
}

/// The terms of the attacker's lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Terms {
    /// Reclamation budget, ms.
    pub budget_ms: u32,
    /// Linear memory, MiB.
    pub memory_mib: u32,
    /// Whether it has a reservation of 1 ms in every 10 ms, of the lowest priority.
    pub reserved: bool,
    /// Whether it pages: it has a mebibyte of its memory reserved.
    #[serde(default)]
    pub pages: bool,
}

/// The behaviour of a component's `cabi_realloc`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Realloc {
    /// Returns the same place each time.
    Place,
    /// Never returns.
    Loop,
    /// Traps.
    Trap,
    /// Grows the memory by a page, and returns a place.
    Grow,
    /// Returns an address outside the memory.
    Outside,
    /// Returns the same place each time, but takes `turns` of a loop while a step of the last block, its
    /// `step`-th from 0 on, is taken; for ever with 2³² - 1.
    Late {
        /// Turns of the loop.
        turns: u32,
        /// The step.
        step: u32,
    },
}

/// Steps, and the number of their repetitions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Block {
    /// The number of repetitions; 0 is for ever.
    pub repeat: u32,
    /// The steps of each repetition.
    pub steps: Vec<Step>,
}

/// One thing that a program does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// Calls a function of the host.
    Call(Call),
    /// Grows its memory by so many pages of 64 KiB.
    Grow(u32),
    /// Writes a byte of each page of 4 KiB of this many.
    Touch(u32),
    /// Fills so many KiB of its memory in one instruction.
    Fill(u32),
    /// Grows its table by so many elements.
    GrowTable(u32),
    /// Computes for so many rounds.
    Spin(u32),
}

impl Step {
    /// A call with the arguments of these lists, one after the other.
    pub(crate) fn call(module: &str, name: &str, arguments: &[&[Argument]]) -> Self {
        let arguments = arguments.concat();
        debug_assert!(arguments.len() <= usize::from(SLOTS));
        Self::Call(Call {
            module: module.to_owned(),
            name: name.to_owned(),
            arguments,
        })
    }
}

/// A call of a function of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// The module or interface that it is imported from.
    pub module: String,
    /// Its name there.
    pub name: String,
    /// Its arguments: one for each parameter of the core function.
    pub arguments: Vec<Argument>,
}

/// An argument of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Argument {
    /// This number.
    Number(i64),
    /// The address of this place.
    At(Place),
    /// The result of the n-th call before this one, modulo `SLOTS`.
    Result(u8),
    /// The word in the slot of that call, at an offset of so many words.
    Word(u8, u8),
    /// The word at the address that stands in the slot of that call: an element of a list.
    Element(u8),
    /// The number of repetitions of the block so far.
    Round,
}

/// The number of calls that are remembered.
pub(crate) const SLOTS: u8 = 16;

/// A place in the memory of an attacker, made ready before it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// The slot of this call: where its results go.
    Slot,
    /// The name of a file: one byte.
    Name,
    /// A path of three parts.
    Path,
    /// A path that leaves the directory.
    Outside,
    /// 1,024 buffers of 64 KiB each.
    Vectors,
    /// 1,024 copies of the handle that the last call returned, or has in its slot.
    Handles,
    /// Zeros.
    Zeros,
    /// The rest of the memory: letters and slashes.
    Rest,
    /// The end of it, where no result goes: the names of directories in each other, each of 63 letters.
    Down,
}

impl Place {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Slot,
        Self::Name,
        Self::Path,
        Self::Outside,
        Self::Vectors,
        Self::Handles,
        Self::Zeros,
        Self::Rest,
        Self::Down,
    ];
}

/// How an attacker ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    /// It is killed, so many µs after it was started.
    Kill(u32),
    /// It returns; if it does not by then, it is killed.
    Return,
    /// It traps.
    Trap,
    /// It calls itself until its stack is full.
    Overflow,
}
