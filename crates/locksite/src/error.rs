//! Errors of reading a kernel's debug information.

use std::path::PathBuf;

/// Why a kernel, one of its modules, or its source could not be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A file is not an ELF file that can be used.
    #[error("{}: not a usable ELF file: {source}", path.display())]
    Elf {
        /// The file.
        path: PathBuf,
        /// The defect.
        source: object::Error,
    },
    /// Debug information is malformed.
    #[error("{}: malformed debug information: {source}", path.display())]
    Dwarf {
        /// The file.
        path: PathBuf,
        /// The defect.
        source: gimli::Error,
    },
    /// A file has no debug information.
    #[error(
        "{}: no section .debug_info: found a stripped file, expected that of the -dbg package",
        path.display()
    )]
    Stripped {
        /// The file.
        path: PathBuf,
    },
    /// A module was named of which there is no debug file.
    #[error("no {module}.ko.debug or {module}.ko below {}", searched.display())]
    NoModule {
        /// The module's name, as in `/proc/modules`.
        module: String,
        /// The directory that was searched.
        searched: PathBuf,
    },
    /// A directory should have the configuration of a kernel.
    #[error("{}: no config-* in it, which the package of a kernel's image has", path.display())]
    NoConfig {
        /// The directory.
        path: PathBuf,
    },
    /// The directory given as kernel source is not one.
    #[error("{}: not a kernel source tree: it has no include/linux/spinlock.h", path.display())]
    NoSource {
        /// The directory.
        path: PathBuf,
    },
}
