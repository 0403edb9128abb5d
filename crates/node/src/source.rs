//! What a program was loaded from, and whether its file still is that.

use leasehold_cell::Cell;
use leasehold_cell::program::{Digest, Program};
use std::path::Path;
use std::sync::Arc;

/// The contents of a program's file, as a digest. Two that are equal were the same; a file that cannot be read, or is
/// longer than a program may be, equals none.
#[derive(Debug, Clone, Copy)]
pub struct Source(Option<Digest>);

impl Source {
    /// What a program was loaded from.
    pub fn of(program: &Program) -> Self {
        Self(program.digest())
    }

    /// Reads a file, unless the cell knows what it read there before.
    pub(crate) fn read(cell: &Cell, path: &Path) -> Self {
        Self(cell.digest(path).ok())
    }

    /// Whether both were the same.
    pub(crate) fn is(self, other: Self) -> bool {
        self.0.is_some() && self.0 == other.0
    }
}

/// A program, and the file that it was loaded from.
pub(crate) struct Loaded {
    pub(crate) program: Arc<Program>,
    pub(crate) source: Source,
}

#[cfg(test)]
impl Source {
    /// Reads a file.
    pub(crate) fn read_alone(path: &Path) -> Self {
        Self(Digest::read(path).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::Source;

    #[test]
    fn the_same_contents_are_the_same_and_what_cannot_be_read_is_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name);
        for (name, text) in [("a", "one"), ("b", "one"), ("c", "two")] {
            std::fs::write(path(name), text).expect("written");
        }
        let source = |name: &str| Source::read_alone(&path(name));
        assert!(source("a").is(source("b")));
        assert!(!source("a").is(source("c")));
        assert!(!source("none").is(source("none")));
    }

    #[test]
    fn a_file_that_is_no_program_is_not_read() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name);
        let sparse = std::fs::File::create(path("sparse")).expect("made");
        // Reading it takes longer than any test.
        sparse.set_len(1 << 42).expect("sparse");
        let fifo = std::process::Command::new("mkfifo")
            .arg(path("fifo"))
            .status();
        assert!(fifo.expect("mkfifo").success());
        for name in ["sparse", "fifo"] {
            let source = || Source::read_alone(&path(name));
            assert!(!source().is(source()), "{name}");
        }
    }
}
