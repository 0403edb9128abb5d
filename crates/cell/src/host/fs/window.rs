//! A window on a directory of the host: the entries that are read at once.
//!
//! A directory may have millions of entries, and the listing guest may be ended at any entry. So no
//! directory is read as a whole: a listing keeps the kernel's number of the position where its
//! window ends, and reads the next window from there.

use super::class::kind_of;
use crate::host::linux;
use crate::steps::caps;
use rustix::fs::{FileType, RawDir, StatxFlags};
use rustix::io::{Errno, Result};
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};

/// Bytes that are read at once: some hundred entries.
pub(crate) const WINDOW: usize = caps::WINDOW.size();

/// A position in a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DirectoryPosition {
    /// To before the entry that the host's kernel calls by this number; 0 is the first.
    Before(u64),
    End,
}

/// One entry.
pub(crate) struct Entry<'a> {
    /// The directory, to ask for more.
    pub(crate) directory: BorrowedFd<'a>,
    pub(crate) name: &'a CStr,
    kind: FileType,
}

impl Entry<'_> {
    /// Whether it is the directory itself or the one above.
    pub(crate) fn is_dots(&self) -> bool {
        self.name == c"." || self.name == c".."
    }

    /// Returns the kind of file; `None` if the entry has gone meanwhile.
    pub(crate) fn kind(&self) -> Result<Option<FileType>> {
        match self.kind {
            // Not every file system has types in its listings.
            FileType::Unknown => {
                match linux::status_at(self.directory, self.name, StatxFlags::TYPE) {
                    Ok(status) => Ok(Some(kind_of(&status))),
                    Err(Errno::NOENT) => Ok(None),
                    Err(errno) => Err(errno),
                }
            }
            kind => Ok(Some(kind)),
        }
    }

    /// Returns the entry's name, which the interface wants in UTF-8.
    pub(crate) fn text(&self) -> Result<&str> {
        self.name.to_str().map_err(|_| Errno::ILSEQ)
    }
}

/// The decision about an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Left out.
    Left,
    /// Taken; there is room for more.
    Taken,
    /// Taken, as the last one.
    Enough,
}

/// Passes the entries from `place` on to `visit`, until it has enough, or a window was read and at
/// least one entry taken. Returns the position reached. May block.
pub(crate) fn read(
    directory: BorrowedFd<'_>,
    place: u64,
    mut visit: impl FnMut(&Entry<'_>) -> Result<Verdict>,
) -> Result<DirectoryPosition> {
    // A descriptor of its own: the guest's may be for finding files only, and its position is
    // not to be moved.
    let directory = linux::open_again(directory)?;
    linux::seek(directory.as_fd(), place)?;
    linux::list()?;
    let mut buffer = [MaybeUninit::uninit(); WINDOW];
    let mut found = RawDir::new(&directory, &mut buffer);
    let mut taken = false;
    while let Some(entry) = found.next() {
        let entry = entry?;
        let next = entry.next_entry_cookie();
        let verdict = visit(&Entry {
            directory: directory.as_fd(),
            name: entry.file_name(),
            kind: entry.file_type(),
        })?;
        taken |= verdict != Verdict::Left;
        // Another turn would read a further window.
        if verdict == Verdict::Enough || taken && found.is_buffer_empty() {
            return Ok(DirectoryPosition::Before(next));
        }
    }
    Ok(DirectoryPosition::End)
}

#[cfg(test)]
mod tests {
    use super::{DirectoryPosition, Verdict, WINDOW, read};
    use std::fs::File;
    use std::os::fd::AsFd as _;
    use std::path::Path;

    fn directory(files: usize) -> tempfile::TempDir {
        let directory = tempfile::tempdir().expect("a directory");
        for file in 0..files {
            File::create(directory.path().join(format!("file-{file}"))).expect("created");
        }
        directory
    }

    /// Returns all names, read window by window, and the most of a window.
    fn names(directory: &Path, enough: usize) -> (Vec<String>, usize) {
        let directory = File::open(directory).expect("opened");
        let (mut names, mut most) = (Vec::new(), 0);
        let mut place = DirectoryPosition::Before(0);
        while let DirectoryPosition::Before(at) = place {
            let before = names.len();
            place = read(directory.as_fd(), at, |entry| {
                if entry.is_dots() {
                    return Ok(Verdict::Left);
                }
                names.push(entry.text()?.to_owned());
                Ok(match names.len() - before == enough {
                    true => Verdict::Enough,
                    false => Verdict::Taken,
                })
            })
            .expect("read");
            most = most.max(names.len() - before);
        }
        names.sort();
        (names, most)
    }

    #[test]
    fn every_entry_is_shown_once_whatever_is_taken_at_a_time() {
        let _turn = crate::host::linux::faults::Turn::take();
        let directory = directory(1000);
        let mut expected: Vec<_> = (0..1000).map(|file| format!("file-{file}")).collect();
        expected.sort();
        for enough in [1, 7, usize::MAX] {
            let (names, most) = names(directory.path(), enough);
            assert_eq!(names, expected, "{enough}");
            // An entry takes 24 bytes at the least.
            assert!(most <= enough.min(WINDOW / 24), "{most} of {enough}");
        }
    }

    #[test]
    fn an_empty_directory_is_at_its_end_at_once() {
        let _turn = crate::host::linux::faults::Turn::take();
        let (names, _) = names(directory(0).path(), usize::MAX);
        assert_eq!(names, Vec::<String>::new());
    }
}
