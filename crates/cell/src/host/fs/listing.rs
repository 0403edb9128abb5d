//! Directories as preview 1 lists them: from a buffer of the execution's, filled a window at a time.
//!
//! A cookie is the host kernel's number of a position in the directory. Any number that a guest
//! passes is used in its own directory only.

use super::descriptor::Node;
use super::status::{device, file_type, number};
use crate::host::linux;
use rustix::fs::{FileType, RawDir, StatxFlags};
use rustix::io::{Errno, Result};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd};
use wasmtime_wasi::p1::types::Filetype;

/// Bytes of an entry in front of its name.
pub(crate) const DIRENT_BYTES: usize = 24;

/// Entries are read until they take so much.
const WINDOW: usize = 8 << 10;

/// Bytes that the kernel is asked for at once.
const KERNEL_WINDOW: usize = 4 << 10;

/// Most bytes of a window: an entry is at most 4 bytes longer than the kernel's, which takes 24 at the
/// least.
pub(crate) const MOST_BYTES: usize = WINDOW + KERNEL_WINDOW + KERNEL_WINDOW / 6;

/// Entries of a directory from a place on, as the guest wants them.
#[derive(Debug)]
pub(crate) struct Window {
    first: u64,
    bytes: Vec<u8>,
    is_end: bool,
}

impl Window {
    /// Reads the entries from `place` on. In memory some 60 µs at most; elsewhere it may block.
    pub(crate) fn read(directory: &Node, place: u64) -> Result<Self> {
        let trusts = directory.class.lists_numbers(directory.as_fd())?;
        let own = linux::status(directory.as_fd(), StatxFlags::BASIC_STATS)?;
        let own_number = number(device(&own), own.stx_ino);
        let mut bytes = Vec::with_capacity(MOST_BYTES);
        let mut add = |name: &[u8], next: u64, number: u64, kind: Filetype| {
            let mut head = [0; DIRENT_BYTES];
            head[..8].copy_from_slice(&next.to_le_bytes());
            head[8..16].copy_from_slice(&number.to_le_bytes());
            // A name is at most 255 bytes long.
            head[16..20].copy_from_slice(&(name.len() as u32).to_le_bytes());
            head[20] = kind as u8;
            bytes.extend_from_slice(&head);
            bytes.extend_from_slice(name);
            bytes.len()
        };
        // A descriptor of its own: the guest's may be for finding files only.
        let listed = linux::open_again(directory.as_fd())?;
        match linux::seek(listed.as_fd(), place) {
            // No position has such a number: it is past the last entry.
            Err(Errno::INVAL | Errno::OVERFLOW) => {
                return Ok(Self {
                    first: place,
                    bytes: Vec::new(),
                    is_end: true,
                });
            }
            result => result?,
        }
        linux::list()?;
        let mut buffer = [MaybeUninit::uninit(); KERNEL_WINDOW];
        let mut found = RawDir::new(&listed, &mut buffer);
        let mut used = 0;
        let mut is_end = true;
        while let Some(entry) = found.next() {
            let entry = entry?;
            let (name, next) = (entry.file_name(), entry.next_entry_cookie());
            if name == c"." || name == c".." {
                // A guest learns nothing about the parent of its directory.
                used = add(name.to_bytes(), next, own_number, Filetype::Directory);
            } else if trusts && entry.file_type() != FileType::Unknown {
                let number = number(device(&own), entry.ino());
                let kind = listed_type(entry.file_type());
                used = add(name.to_str_bytes()?, next, number, kind);
            } else if let Some((kind, number)) = identity(listed.as_fd(), name)? {
                used = add(name.to_str_bytes()?, next, number, kind);
            }
            if used >= WINDOW && found.is_buffer_empty() {
                is_end = false;
                break;
            }
        }
        Ok(Self {
            first: place,
            bytes,
            is_end,
        })
    }

    /// Returns the entries after `cookie`, if they are in the window, and whether they are the last
    /// of the directory.
    pub(crate) fn after(&self, cookie: u64) -> Option<(&[u8], bool)> {
        let mut rest = &*self.bytes;
        let mut at = self.first;
        while at != cookie {
            let (next, after) = split(rest)?;
            (at, rest) = (next, after);
        }
        (self.is_end || !rest.is_empty()).then_some((rest, self.is_end))
    }
}

/// Returns the cookie of the first entry, and what follows it.
fn split(entries: &[u8]) -> Option<(u64, &[u8])> {
    let (next, _) = entries.split_first_chunk::<8>()?;
    let length = entries.get(16..)?.first_chunk::<4>()?;
    let rest = entries.get(DIRENT_BYTES + u32::from_le_bytes(*length) as usize..)?;
    Some((u64::from_le_bytes(*next), rest))
}

/// Returns the cookie of the last of these entries.
pub(crate) fn last_cookie(mut entries: &[u8]) -> Option<u64> {
    let mut last = None;
    while let Some((next, rest)) = split(entries) {
        (last, entries) = (Some(next), rest);
    }
    last
}

fn listed_type(kind: FileType) -> Filetype {
    match kind {
        FileType::Socket => Filetype::SocketStream,
        kind => file_type(kind),
    }
}

/// Returns the kind of an entry and its file's number; `None` if it has gone meanwhile.
fn identity(directory: BorrowedFd<'_>, name: &std::ffi::CStr) -> Result<Option<(Filetype, u64)>> {
    match linux::status_at(directory, name, StatxFlags::BASIC_STATS) {
        Ok(status) => {
            let kind = listed_type(super::class::kind_of(&status));
            Ok(Some((kind, number(device(&status), status.stx_ino))))
        }
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// A name, which the interface wants in UTF-8.
trait Text {
    fn to_str_bytes(&self) -> Result<&[u8]>;
}

impl Text for std::ffi::CStr {
    fn to_str_bytes(&self) -> Result<&[u8]> {
        match self.to_str() {
            Ok(text) => Ok(text.as_bytes()),
            Err(_) => Err(Errno::ILSEQ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{MOST_BYTES, Window, last_cookie};
    use crate::host::fs::class::Class;
    use crate::host::fs::descriptor::Node;
    use rustix::fs::FileType;
    use std::fs::File;

    fn node(path: &std::path::Path) -> Node {
        let fd = crate::host::linux::open_ambient(path).expect("a directory");
        let class = Class::of(std::os::fd::AsFd::as_fd(&fd)).expect("a file system");
        Node::new(fd, FileType::Directory, class)
    }

    #[test]
    fn past_every_number_of_an_entry_there_is_nothing() {
        let _turn = crate::host::linux::faults::Turn::take();
        for base in [std::env::temp_dir(), "/dev/shm".into()] {
            let directory = tempfile::tempdir_in(base).expect("a directory");
            File::create(directory.path().join("file")).expect("created");
            let node = node(directory.path());
            for place in [1 << 63, u64::MAX] {
                let window = Window::read(&node, place).expect("read");
                let after = window.after(place).expect("here");
                assert_eq!(after, (&[][..], true), "{place}");
            }
        }
    }

    #[test]
    fn an_entry_has_the_type_and_the_number_of_its_file() {
        let _turn = crate::host::linux::faults::Turn::take();
        for base in [env!("CARGO_MANIFEST_DIR"), "/dev/shm"] {
            let directory = tempfile::tempdir_in(base).expect("a directory");
            File::create(directory.path().join("file")).expect("created");
            std::fs::create_dir(directory.path().join("directory")).expect("created");
            std::os::unix::fs::symlink("file", directory.path().join("link")).expect("linked");
            let node = node(directory.path());
            let window = Window::read(&node, 0).expect("read");
            let (mut entries, mut found) = (&*window.bytes, 0);
            while let Some((_, rest)) = super::split(entries) {
                let entry = &entries[..entries.len() - rest.len()];
                let name = std::ffi::CString::new(&entry[super::DIRENT_BYTES..]).expect("a name");
                entries = rest;
                // A guest learns nothing about the parent.
                if name.as_c_str() == c".." {
                    continue;
                }
                found += 1;
                let fd = std::os::fd::AsFd::as_fd(&node);
                let (kind, number) = super::identity(fd, &name).expect("known").expect("there");
                assert_eq!(entry[8..16], number.to_le_bytes(), "{name:?}");
                assert_eq!(entry[20], kind as u8, "{name:?}");
            }
            assert_eq!(found, 4);
        }
    }

    #[test]
    fn windows_follow_each_other_without_gaps() {
        let _turn = crate::host::linux::faults::Turn::take();
        for base in [std::env::temp_dir(), "/dev/shm".into()] {
            let directory = tempfile::tempdir_in(base).expect("a directory");
            for file in 0..1000 {
                let path = directory.path().join(format!("file-{file}"));
                File::create(path).expect("created");
            }
            let node = node(directory.path());
            let (mut cookie, mut count, mut windows) = (0, 0, 0);
            loop {
                let window = Window::read(&node, cookie).expect("read");
                assert!(window.bytes.len() <= MOST_BYTES);
                windows += 1;
                // Entry by entry, as a guest with a small buffer would.
                while let Some((entries, is_end)) = window.after(cookie) {
                    let Some((next, rest)) = super::split(entries) else {
                        assert!(is_end);
                        break;
                    };
                    count += 1;
                    if rest.is_empty() {
                        assert_eq!(last_cookie(entries), Some(next));
                    }
                    cookie = next;
                }
                if window.is_end {
                    break;
                }
            }
            assert_eq!(count, 1002);
            assert!(windows > 1);
        }
    }
}
