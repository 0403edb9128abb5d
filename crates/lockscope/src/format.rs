//! The trace file: `docs/lockscope.md` describes it byte by byte.
//!
//! ```text
//! offset  bytes  what
//!      0      8  "LOCKSCPE"
//!      8      4  version of the format, little endian
//!     12      4  CRC-32 of the body, little endian
//!     16      8  length of the body, little endian
//!     24      …  body: the `Trace` in postcard's encoding
//! ```

use std::fs::{File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::trace::Trace;

/// The first bytes of every trace file.
const MAGIC: [u8; 8] = *b"LOCKSCPE";
/// Version that this crate writes, and the only one that it reads.
pub const VERSION: u32 = 3;
const HEADER: usize = 24;
/// As many as a recording can have.
const WORKLOADS: usize = 16;
/// Larger files are refused: no recording comes near it (a full table of uses takes some 10 MiB).
const LARGEST: u64 = 1 << 30;

/// A trace file that cannot be written or read. One line that names the file.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The system refused.
    #[error("{}: cannot {doing} the trace: {source}", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// `read` or `write`.
        doing: &'static str,
        /// Why.
        source: io::Error,
    },
    /// It is not a trace, or not one that can be read.
    #[error("{}: {fault}", file.display())]
    Malformed {
        /// The file.
        file: PathBuf,
        /// The defect.
        fault: Malformed,
    },
}

/// What is wrong with the bytes of a trace.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Malformed {
    /// The first bytes are others.
    #[error("not a lockscope trace: it does not start with \"LOCKSCPE\"")]
    NotATrace,
    /// Another version.
    #[error("version {found} of the format; allowed: {VERSION}")]
    Version {
        /// What the file says.
        found: u32,
    },
    /// Bytes are missing, or there are more than announced.
    #[error("{found} bytes of body; the header announces {announced}")]
    Length {
        /// What there is.
        found: u64,
        /// What the header says.
        announced: u64,
    },
    /// Too large.
    #[error("{found} bytes; allowed: {LARGEST}")]
    TooLarge {
        /// Length of the file.
        found: u64,
    },
    /// The bytes are not those that were written.
    #[error("the checksum does not match: the file is damaged")]
    Checksum,
    /// The body is not a trace in postcard's encoding.
    #[error("the body cannot be decoded: {0}")]
    Body(String),
    /// More workloads than a recording can have.
    #[error("{found} workloads; allowed: {WORKLOADS}")]
    Workloads {
        /// How many there are.
        found: usize,
    },
    /// A number refers to nothing.
    #[error("{what} {index} of use {at} does not exist: there are {count}")]
    Dangling {
        /// What it should be a number of.
        what: &'static str,
        /// The number.
        index: u64,
        /// The use that has it.
        at: usize,
        /// How many there are.
        count: usize,
    },
}

impl Trace {
    /// The bytes of a trace file.
    ///
    /// # Panics
    /// Never: encoding into memory cannot fail.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let body = postcard::to_allocvec(self).expect("memory takes every value");
        let mut bytes = Vec::with_capacity(HEADER + body.len());
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(crc32fast::hash(&body).to_le_bytes());
        bytes.extend((body.len() as u64).to_le_bytes());
        bytes.extend(body);
        bytes
    }

    /// The trace that `bytes` of a trace file are. What it refers to exists; what it counts may be
    /// any number.
    ///
    /// # Errors
    /// The first thing that is wrong with them.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let (header, body) = bytes.split_at_checked(HEADER).ok_or(Malformed::NotATrace)?;
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| header[at + i]));
        if header[..8] != MAGIC {
            return Err(Malformed::NotATrace);
        }
        let found = word(8);
        if found != VERSION {
            return Err(Malformed::Version { found });
        }
        let announced = u64::from(word(16)) | u64::from(word(20)) << 32;
        let found = body.len() as u64;
        if found != announced {
            return Err(Malformed::Length { found, announced });
        }
        if crc32fast::hash(body) != word(12) {
            return Err(Malformed::Checksum);
        }
        let (trace, rest): (Self, _) =
            postcard::take_from_bytes(body).map_err(|error| Malformed::Body(error.to_string()))?;
        if !rest.is_empty() {
            return Err(Malformed::Body(format!("{} bytes too many", rest.len())));
        }
        trace.check()?;
        Ok(trace)
    }

    /// Whether everything that is referred to exists.
    fn check(&self) -> Result<(), Malformed> {
        let found = self.workloads.len();
        if found > WORKLOADS {
            return Err(Malformed::Workloads { found });
        }
        for (at, used) in self.uses.iter().enumerate() {
            let within = |what, index: u64, count: usize| match index < count as u64 {
                true => Ok(()),
                false => Err(Malformed::Dangling {
                    what,
                    index,
                    at,
                    count,
                }),
            };
            within("workload", used.workload.0.into(), self.workloads.len())?;
            within("primitive", used.primitive.0.into(), self.primitives.len())?;
            if let Some(stack) = used.stack {
                within("stack", stack.0.into(), self.stacks.len())?;
            }
            if let Some(place) = used.place {
                within("place", place.0.into(), self.places.len())?;
            }
        }
        Ok(())
    }

    /// Writes the trace to `file`: all of it or, on an error, nothing; what was there before is
    /// then still there.
    ///
    /// # Errors
    /// The directory does not exist, the disk is full, …
    pub fn write(&self, file: &Path) -> Result<(), TraceError> {
        let failed = |source| TraceError::Io {
            file: file.to_owned(),
            doing: "write",
            source,
        };
        // As readable as other files: recording takes root, reading does not.
        let mut new = tempfile::Builder::new()
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(directory_of(file))
            .map_err(failed)?;
        new.write_all(&self.encode()).map_err(failed)?;
        new.as_file().sync_all().map_err(failed)?;
        new.persist(file).map_err(|error| failed(error.error))?;
        Ok(())
    }

    /// Whether a trace can be written to `file`, as far as can be told before there is one.
    ///
    /// # Errors
    /// The directory does not exist or cannot be written to, or `file` is a directory.
    pub fn check_writable(file: &Path) -> Result<(), TraceError> {
        let failed = |source| TraceError::Io {
            file: file.to_owned(),
            doing: "write",
            source,
        };
        if file.is_dir() {
            return Err(failed(io::ErrorKind::IsADirectory.into()));
        }
        tempfile::tempfile_in(directory_of(file)).map_err(failed)?;
        Ok(())
    }

    /// Reads the trace in `file`.
    ///
    /// # Errors
    /// It cannot be read, or is not a trace.
    pub fn read(file: &Path) -> Result<Self, TraceError> {
        let failed = |source| TraceError::Io {
            file: file.to_owned(),
            doing: "read",
            source,
        };
        let malformed = |fault| TraceError::Malformed {
            file: file.to_owned(),
            fault,
        };
        let mut bytes = Vec::new();
        let opened = File::open(file).map_err(failed)?;
        let mut limited = opened.take(LARGEST + 1);
        limited.read_to_end(&mut bytes).map_err(failed)?;
        let found = bytes.len() as u64;
        if found > LARGEST {
            return Err(malformed(Malformed::TooLarge { found }));
        }
        Self::decode(&bytes).map_err(malformed)
    }
}

fn directory_of(file: &Path) -> &Path {
    match file.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}
