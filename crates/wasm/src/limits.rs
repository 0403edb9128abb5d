//! What a program may have, and the caps on what the engine does for one in a single step.
//!
//! Those on which the time to load depends are in [`load_limits`](crate::load_limits).

use crate::bulk_instructions::TABLE_CHUNK;

/// Largest file that is read as a program, in bytes.
pub const MAX_PROGRAM_BYTES: u64 = 256 << 20;

/// Bytes of a page of linear memory.
pub const WASM_PAGE: u64 = 64 << 10;

/// Most core instances that one run of a program may make. wasmtime frees the instances of a store
/// one by one, so that their number must be small; real components have up to about 40.
pub const MAX_INSTANCES: u64 = 100;

/// Most bytes of active data segments that starting a program may copy. More than
/// [`DATA`] of a module are copied by the guest itself, in steps. A JavaScript or
/// Python engine has 10 to 20 MiB.
pub const MAX_DATA_BYTES: u64 = 64 << 20;

/// Largest text of a program, in bytes.
pub const MAX_TEXT_BYTES: u64 = 16 << 20;

/// A limit on one argument of a host step, or on what one step of a longer operation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cap {
    /// What is limited.
    pub what: &'static str,
    /// How much of it.
    pub most: u64,
    /// The treatment of a call that exceeds it.
    pub beyond: Beyond,
}

/// The treatment of a call whose argument exceeds its cap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beyond {
    /// The guest traps with a message that names the cap.
    Trap,
    /// The call returns an error and changes nothing.
    Error,
    /// The call does a part, and its result says how much.
    Part,
    /// The call goes on in further steps, between which the guest can be preempted.
    Steps,
    /// The program, or its start, is refused.
    Refused,
    /// An I/O thread makes the call.
    Elsewhere,
}

impl Beyond {
    /// The word in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Trap => "trap",
            Self::Error => "error",
            Self::Part => "done in part",
            Self::Steps => "further steps",
            Self::Refused => "refused",
            Self::Elsewhere => "on an I/O thread",
        }
    }
}

impl Cap {
    /// A cap on `what`.
    pub const fn new(what: &'static str, most: u64, beyond: Beyond) -> Self {
        Self { what, most, beyond }
    }

    /// The cap as a number of bytes or things in memory.
    pub const fn size(&self) -> usize {
        self.most as usize
    }
}

const KIB: u64 = 1024;

/// Elements of active segments that a program sets when it starts, at most, where the compiler does not lay them
/// out: each is some bytes of code.
pub const MAX_SET_ELEMENTS: u64 = 64 << 10;

/// Bytes of active data segments that the engine copies for one program; more are copied by the guest.
pub const DATA: Cap = Cap::new("bytes", 64 * KIB, Beyond::Steps);

/// Pages of the host that these may lie on, one for each at the least: the first touch of each is a fault. 64 KiB in one piece lie on
/// as many. Each instance of a program of several has its share of this.
pub const DATA_PAGES: Cap = Cap::new("pages of data", 17, Beyond::Steps);

/// Elements of active segments that the engine copies for one program. More are copied by the
/// [start function](crate::initial_segments).
pub const ELEMENTS: Cap = Cap::new("elements", TABLE_CHUNK as u64, Beyond::Steps);

/// Pages of the host that these segments may lie on, one for each at the least, as [`DATA_PAGES`].
pub const ELEMENT_PAGES: Cap = Cap::new("pages of elements", 17, Beyond::Steps);

/// Most bytes for a string that one component passes to another one, in UTF-8: the engine copies it in one step.
pub const STRING: Cap = Cap::new(
    "bytes of a string between components",
    64 * KIB,
    Beyond::Trap,
);

/// The same of a program in which a component has strings in UTF-16 or Latin-1, which the engine translates
/// character by character.
pub const WIDE_STRING: Cap = Cap::new(
    "bytes of a string between components that is not in UTF-8 everywhere",
    8 * KIB,
    Beyond::Trap,
);

/// Most instances of components inside of a program, which the engine makes one by one.
pub const COMPONENTS: Cap = Cap::new("components", 256, Beyond::Refused);

/// Globals of one program: the engine makes them one by one. Programs that are linked at run time have one for
/// each function that they take from elsewhere.
pub const GLOBALS: Cap = Cap::new("globals", 8192, Beyond::Refused);

/// Segments of elements, and passive ones of data, of one program.
pub const SEGMENTS: Cap = Cap::new(
    "segments of elements, and passive ones of data",
    1024,
    Beyond::Refused,
);

/// Handlers of exceptions around one instruction: the engine looks at them one by one.
pub const HANDLERS: Cap = Cap::new(
    "handlers of exceptions around an instruction",
    512,
    Beyond::Refused,
);

/// Bytes of a function's or module's name.
pub const NAME: Cap = Cap::new("bytes of a name", 256, Beyond::Part);
