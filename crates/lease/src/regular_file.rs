//! Files that operators name: a program, a lease file, a token, a certificate.
//!
//! The path of such a file can name anything by the time it is opened: a FIFO that has no writer, a device
//! that has no end, a file longer than the host's memory. [`RegularFile`] is the one door to them.

use std::fs::{File, FileType, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// A file that an operator named, open for reading: a regular one.
#[derive(Debug)]
pub struct RegularFile {
    file: File,
    metadata: Metadata,
}

/// Why a file that an operator named is not read. Its path is said by the error that has this one as its source.
#[derive(Debug, thiserror::Error)]
pub enum RegularFileError {
    /// The system refuses it.
    #[error(transparent)]
    System(#[from] io::Error),
    /// The path names something else.
    #[error("found {found}; allowed: a regular file")]
    Kind {
        /// What it names.
        found: &'static str,
    },
    /// The file is too long.
    #[error("found {found} bytes; allowed: at most {most}")]
    Length {
        /// How many bytes the file has, or how many were read when that became too many.
        found: u64,
        /// The longest that is allowed.
        most: u64,
    },
}

impl RegularFile {
    /// Opens the file at `path`, without waiting for another process.
    ///
    /// # Errors
    /// The system's; and [`RegularFileError::Kind`] if the path names anything but a regular file.
    pub fn open(path: &Path) -> Result<Self, RegularFileError> {
        // Some devices act on being opened.
        check_kind(std::fs::metadata(path)?.file_type())?;
        let file = File::options()
            .read(true)
            // The path may name a FIFO by now, whose opener would wait for a writer.
            .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
            .open(path)?;
        let metadata = file.metadata()?;
        check_kind(metadata.file_type())?;
        Ok(Self { file, metadata })
    }

    /// Returns what the system knew of the file when it was opened.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Reads the whole file. A file that is longer than `most` bytes is refused before any of it is read, and
    /// one that grows beyond them meanwhile is read no further.
    ///
    /// # Errors
    /// The system's; and [`RegularFileError::Length`].
    pub fn read(self, most: u64) -> Result<Vec<u8>, RegularFileError> {
        let length = self.metadata.len();
        self.reader(most)?.read_to_vec(length)
    }

    /// Passes the whole file to `take`, a block at a time, as [`read`](Self::read) does.
    ///
    /// # Errors
    /// As those of [`read`](Self::read).
    pub fn for_each_block(
        self,
        most: u64,
        mut take: impl FnMut(&[u8]),
    ) -> Result<(), RegularFileError> {
        let mut bounded = self.reader(most)?;
        let mut block = vec![0; BLOCK_BYTES];
        loop {
            match bounded.fill(&mut block)? {
                0 => return bounded.check_end(),
                filled => take(&block[..filled]),
            }
        }
    }

    /// Returns the file itself, for a use that does not read it whole.
    #[must_use]
    pub fn into_file(self) -> File {
        self.file
    }

    fn reader(self, most: u64) -> Result<Bounded, RegularFileError> {
        let found = self.metadata.len();
        if found > most {
            return Err(RegularFileError::Length { found, most });
        }
        // One byte more than is allowed tells a file that has grown.
        let file = self.file.take(most.saturating_add(1));
        Ok(Bounded { file, most })
    }
}

impl From<RegularFileError> for io::Error {
    fn from(error: RegularFileError) -> Self {
        match error {
            RegularFileError::System(error) => error,
            RegularFileError::Kind { .. } => Self::new(io::ErrorKind::InvalidInput, error),
            RegularFileError::Length { .. } => Self::new(io::ErrorKind::FileTooLarge, error),
        }
    }
}

const BLOCK_BYTES: usize = 64 << 10;

/// A file that is read to its end, which comes after `most` bytes at the latest.
struct Bounded {
    file: io::Take<File>,
    most: u64,
}

impl Bounded {
    fn read_to_vec(mut self, expected: u64) -> Result<Vec<u8>, RegularFileError> {
        let mut bytes = Vec::with_capacity(usize::try_from(expected).unwrap_or(0));
        self.file.read_to_end(&mut bytes)?;
        self.check_end()?;
        Ok(bytes)
    }

    /// Fills a block, unless the file ends before it is full.
    fn fill(&mut self, block: &mut [u8]) -> Result<usize, RegularFileError> {
        let mut filled = 0;
        while let Some(rest) = block.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.file.read(rest) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(filled)
    }

    fn check_end(self) -> Result<(), RegularFileError> {
        match self.file.limit() {
            0 => Err(RegularFileError::Length {
                found: self.most.saturating_add(1),
                most: self.most,
            }),
            _ => Ok(()),
        }
    }
}

fn check_kind(kind: FileType) -> Result<(), RegularFileError> {
    let found = match kind {
        kind if kind.is_file() => return Ok(()),
        kind if kind.is_dir() => "a directory",
        kind if kind.is_fifo() => "a FIFO",
        kind if kind.is_socket() => "a socket",
        _ => "a device",
    };
    Err(RegularFileError::Kind { found })
}

#[cfg(test)]
mod tests {
    use super::{RegularFile, RegularFileError};
    use std::fs::File;
    use std::io::{self, Write};
    use std::path::Path;
    use std::process::Command;

    fn read(path: &Path, most: u64) -> Result<Vec<u8>, RegularFileError> {
        RegularFile::open(path)?.read(most)
    }

    #[test]
    fn what_is_no_regular_file_is_refused_and_not_waited_for() {
        let directory = tempfile::tempdir().expect("a directory");
        let fifo = directory.path().join("fifo");
        let made = Command::new("mkfifo").arg(&fifo).status().expect("mkfifo");
        assert!(made.success());
        let socket = directory.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("bound");
        for (path, found) in [
            (fifo.as_path(), "a FIFO"),
            (&socket, "a socket"),
            (directory.path(), "a directory"),
            (Path::new("/dev/zero"), "a device"),
        ] {
            let error = read(path, 10).expect_err("no regular file");
            let expected = format!("found {found}; allowed: a regular file");
            assert_eq!(error.to_string(), expected);
            assert_eq!(io::Error::from(error).kind(), io::ErrorKind::InvalidInput);
        }
    }

    #[test]
    fn a_file_that_is_too_long_is_refused_before_it_is_read() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("file");
        let file = File::create(&path).expect("made");
        // Reading it would take longer than the test may, and more memory than there is.
        file.set_len(1 << 42).expect("sparse");
        let error = read(&path, 10).expect_err("too long");
        assert_eq!(
            error.to_string(),
            "found 4398046511104 bytes; allowed: at most 10"
        );
        file.set_len(10).expect("cut");
        assert_eq!(read(&path, 10).expect("it fits"), [0; 10]);
    }

    #[test]
    fn a_file_that_grows_is_read_no_further_than_is_allowed() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("file");
        let mut file = File::create(&path).expect("made");
        let opened = [(); 2].map(|()| RegularFile::open(&path).expect("opened"));
        file.write_all(&[1; 100]).expect("written");
        for (opened, is_whole) in opened.into_iter().zip([true, false]) {
            let read = match is_whole {
                true => opened.read(10).map(drop),
                false => opened.for_each_block(10, |_| {}),
            };
            assert!(
                matches!(
                    read,
                    Err(RegularFileError::Length {
                        found: 11,
                        most: 10
                    })
                ),
                "{read:?}"
            );
        }
    }

    #[test]
    fn blocks_are_the_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("file");
        let content: Vec<u8> = (0..200_000_u32).map(|at| at as u8).collect();
        std::fs::write(&path, &content).expect("written");
        let mut blocks = Vec::new();
        RegularFile::open(&path)
            .and_then(|file| file.for_each_block(1 << 20, |block| blocks.extend_from_slice(block)))
            .expect("read");
        assert_eq!(blocks, content);
        assert_eq!(read(&path, 1 << 20).expect("read"), content);
    }
}
