//! Why a program is refused.

use std::io;
use std::path::{Path, PathBuf};

use leasehold_confine::JobError;
use leasehold_lease::RegularFileError;
use thiserror::Error;
use wasmparser::BinaryReaderError;

use crate::limits::{self, MAX_DATA_BYTES, MAX_INSTANCES, MAX_PROGRAM_BYTES, MAX_TEXT_BYTES};
use crate::refused::{self, SourcePosition};

/// Why a program was refused. Each is one line that says what is wrong with the file.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// More than [`MAX_PROGRAM_BYTES`].
    #[error("the program has {found} bytes; allowed: at most {MAX_PROGRAM_BYTES}")]
    TooLarge {
        /// How many bytes the file has.
        found: u64,
    },
    /// More than [`MAX_TEXT_BYTES`] of text.
    #[error("the program's text has more than {MAX_TEXT_BYTES} bytes")]
    TextTooLarge,
    /// Neither the binary format nor its text.
    #[error("not WebAssembly: the file starts neither with the magic number nor with text")]
    NotWasm,
    /// Text that does not parse.
    #[error("invalid WebAssembly text: {0}")]
    Text(String),
    /// Truncated, damaged or invalid.
    #[error("invalid WebAssembly at byte {offset}: {message}")]
    Corrupt {
        /// Where, in bytes from the start of the file (of the translated binary, for text).
        offset: u64,
        /// What the validator said.
        message: String,
    },
    /// Valid, with features that are switched off.
    #[error(
        "uses WebAssembly features that Leasehold does not offer: {}{}{}",
        names.join(", "),
        place.as_ref().map_or_else(String::new, |place| format!(", {place}")),
        refused::advice(names)
    )]
    Features {
        /// Names of the features.
        names: Vec<String>,
        /// Where they are used first.
        place: Option<SourcePosition>,
    },
    /// Imports what Leasehold does not offer.
    #[error("made for another world: nothing here offers {}", imports.join(", "))]
    World {
        /// The unknown imports.
        imports: Vec<String>,
    },
    /// Has no entry point.
    #[error("not a command: it does not export {0}")]
    NoEntry(&'static str),
    /// It does not export the interface of a program that answers HTTP requests.
    #[error("it answers no requests: it does not export wasi:http/incoming-handler@0.2")]
    NoHandler,
    /// Its entry point cannot be called as one.
    #[error("{0} is not the entry point of a command, which takes nothing and returns {1}")]
    EntryType(&'static str, &'static str),
    /// More core instances than [`MAX_INSTANCES`].
    #[error("makes {count} core instances; allowed: at most {MAX_INSTANCES}")]
    TooManyInstances {
        /// How many; saturates.
        count: u64,
    },
    /// More bytes of active data segments than [`MAX_DATA_BYTES`].
    #[error("copies {bytes} bytes of data when it starts; allowed: at most {MAX_DATA_BYTES}")]
    TooMuchData {
        /// How many, over all instances; saturates.
        bytes: u64,
    },
    /// More elements of active segments that the compiler does not lay out than a program may set when it starts.
    #[error(
        "copies {count} elements to tables of which the compiler does not know the contents; allowed: at most {}",
        limits::MAX_SET_ELEMENTS
    )]
    TooManyElements {
        /// How many, over all instances; saturates.
        count: u64,
    },
    /// More of something than a program may have: of what the engine makes one by one in the step that
    /// makes the instances, or of what takes time to [load](crate::load_limits).
    #[error("has {count} {what}; allowed: at most {most}")]
    TooManyParts {
        /// What there is too much of.
        what: &'static str,
        /// How many; for loading, at least how many. Saturates.
        count: u64,
        /// How many there may be.
        most: u64,
    },
    /// More machine code and initial memory than the lease allows.
    #[error(
        "takes {bytes} bytes for its machine code and initial memory; allowed: at most {allowed} (memory.code)"
    )]
    CodeTooLarge {
        /// How many.
        bytes: u64,
        /// How many there may be.
        allowed: u64,
    },
    /// More machine code and initial memory than there is room for in the cell.
    #[error(
        "takes {bytes} bytes for its machine code and initial memory; left: {left} of the {most} that the programs of \
         the cell may take (cell.code)"
    )]
    NoCodeSpace {
        /// How many.
        bytes: u64,
        /// How many there are.
        left: u64,
        /// How many all programs may take.
        most: u64,
    },
    /// Instantiates something that the program does not contain.
    #[error("instantiates a module or component that it does not contain")]
    Opaque,
    /// It imports something with a type that is not the one offered.
    #[error("{0:#}")]
    Link(wasmtime::Error),
    /// The engine refused a program that had passed validation.
    #[error("the engine refused the program: {0:#}")]
    Engine(wasmtime::Error),
    /// What a [process that compiles](crate::compiler::Compiler) said of a program that it refused.
    #[error("{0}")]
    Elsewhere(String),
    /// That process did not come to an end, or there was none.
    #[error("loading the program: {0}")]
    Compiler(JobError),
    /// The host refused a thread that compiles.
    #[error("threads for compiling: {0}")]
    Threads(io::Error),
}

/// The longest line, and the most lines, of a message that quotes a program's text, bytes.
const LINE: usize = 200;
const LINES: usize = 8;

impl ProgramError {
    /// The parser's message, which quotes lines of the text, each cut: a program can be one line.
    pub(crate) fn of_text(message: &str) -> Self {
        let cut = |line: &str| match line.len() {
            0..=LINE => line.to_owned(),
            _ => format!("{}…", &line[..line.floor_char_boundary(LINE)]),
        };
        let lines: Vec<String> = message.lines().take(LINES).map(cut).collect();
        Self::Text(lines.join("\n"))
    }

    /// Whether the host is the reason, and not the program.
    #[must_use]
    pub fn is_of_host(&self) -> bool {
        let job = matches!(self, Self::Compiler(JobError::System(_) | JobError::Gone));
        job || matches!(self, Self::Threads(_))
    }

    pub(crate) fn unreadable(path: &Path, error: RegularFileError) -> Self {
        match error {
            RegularFileError::Length { found, .. } => Self::TooLarge { found },
            error => Self::Read {
                path: path.to_owned(),
                source: error.into(),
            },
        }
    }
}

impl From<BinaryReaderError> for ProgramError {
    fn from(error: BinaryReaderError) -> ProgramError {
        ProgramError::Corrupt {
            offset: error.offset() as u64,
            message: error.message().to_owned(),
        }
    }
}
