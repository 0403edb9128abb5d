//! System calls that no crate of the tree wraps, each behind a function that is safe to call.

use rustix::io::{Errno, Result};
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// Parts of a memory that one call takes at the most.
pub(crate) const MOST_PARTS: usize = 16;

/// A part of a memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) start: usize,
    pub(crate) length: usize,
}

/// Where in a file a call reads or writes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FilePosition {
    pub(crate) offset: u64,
    /// `RWF_NOWAIT`, `RWF_APPEND`.
    pub(crate) flags: libc::c_int,
}

impl FilePosition {
    /// `preadv2` takes -1 for the file's own position, and anything else negative for invalid.
    fn offset(self) -> Result<libc::off_t> {
        libc::off_t::try_from(self.offset).map_err(|_| Errno::INVAL)
    }
}

/// The parts of a memory as the kernel takes them.
struct Vectors {
    vectors: [libc::iovec; MOST_PARTS],
    count: libc::c_int,
}

impl Vectors {
    /// Parts of the `bytes` bytes at `start`.
    fn of((start, bytes): (*mut u8, usize), parts: &[Part]) -> Result<Self> {
        let nothing = libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        };
        let mut vectors = [nothing; MOST_PARTS];
        let wanted = vectors.get_mut(..parts.len()).ok_or(Errno::INVAL)?;
        for (vector, part) in wanted.iter_mut().zip(parts) {
            let end = part.start.checked_add(part.length);
            end.filter(|end| *end <= bytes).ok_or(Errno::FAULT)?;
            vector.iov_base = start.wrapping_add(part.start).cast();
            vector.iov_len = part.length;
        }
        let count = libc::c_int::try_from(parts.len()).map_err(|_| Errno::INVAL)?;
        Ok(Self { vectors, count })
    }
}

/// Makes the kernel take a page from those of this core, and give it back.
///
/// # Errors
/// None that is known of.
#[inline]
pub(crate) fn take_and_give_back_a_page() -> Result<()> {
    let mut unused = 0_u8;
    // SAFETY: the kernel looks at no page, and writes nothing to `unused`, since the range is empty. It takes
    // a page for its answer before it knows that there is none.
    match unsafe { libc::mincore(std::ptr::null_mut(), 0, &raw mut unused) } {
        0 => Ok(()),
        _ => Err(last_error()),
    }
}

/// Reads into parts of a memory, one after another; they may overlap. Pages of the memory that the
/// kernel cannot reach are an error (`EFAULT`).
#[inline]
pub(crate) fn read(
    file: BorrowedFd<'_>,
    memory: &mut [u8],
    parts: &[Part],
    place: FilePosition,
) -> Result<usize> {
    let to = Vectors::of((memory.as_mut_ptr(), memory.len()), parts)?;
    let (file, offset) = (file.as_raw_fd(), place.offset()?);
    // SAFETY: `count` vectors are there, and each is a part of `memory`, which is borrowed for writing.
    transferred(unsafe { libc::preadv2(file, to.vectors.as_ptr(), to.count, offset, place.flags) })
}

/// Writes parts of a memory, one after another. Pages of the memory that the kernel cannot reach are an
/// error (`EFAULT`).
#[inline]
pub(crate) fn write(
    file: BorrowedFd<'_>,
    memory: &[u8],
    parts: &[Part],
    place: FilePosition,
) -> Result<usize> {
    let from = Vectors::of((memory.as_ptr().cast_mut(), memory.len()), parts)?;
    let (file, offset) = (file.as_raw_fd(), place.offset()?);
    // SAFETY: `count` vectors are there, and each is a part of `memory`, which the kernel only reads.
    transferred(unsafe {
        libc::pwritev2(file, from.vectors.as_ptr(), from.count, offset, place.flags)
    })
}

#[inline]
fn transferred(result: libc::ssize_t) -> Result<usize> {
    usize::try_from(result).map_err(|_| last_error())
}

/// Gives the calling thread a scheduling policy, and this priority under it.
pub(crate) fn set_scheduler(policy: libc::c_int, priority: libc::c_int) -> Result<()> {
    let parameters = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: 0 is the calling thread, and the parameters are read during the call only.
    match unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(last_error()),
    }
}

/// The scheduling policy of the calling thread.
#[cfg(test)]
pub(crate) fn scheduler() -> libc::c_int {
    // SAFETY: 0 is the calling thread; no memory is involved.
    unsafe { libc::sched_getscheduler(0) }
}

fn last_error() -> Errno {
    let error = std::io::Error::last_os_error();
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::{FilePosition, MOST_PARTS, Part, read, write};
    use rustix::io::Errno;
    use std::os::fd::AsFd as _;

    const START: FilePosition = FilePosition {
        offset: 0,
        flags: 0,
    };

    fn part(start: usize, length: usize) -> Part {
        Part { start, length }
    }

    #[test]
    fn parts_are_written_and_read_in_their_order_and_may_overlap() {
        let file = tempfile::tempfile().expect("a file");
        let parts = [part(4, 2), part(0, 3)];
        assert_eq!(write(file.as_fd(), b"abcdef", &parts, START), Ok(5));
        let mut memory = *b"------";
        let parts = [part(1, 4), part(2, 1)];
        assert_eq!(read(file.as_fd(), &mut memory, &parts, START), Ok(5));
        assert_eq!(&memory, b"-ecab-");
    }

    #[test]
    fn a_part_that_is_not_inside_of_the_memory_is_refused() {
        let file = tempfile::tempfile().expect("a file");
        let mut memory = [0; 8];
        for outside in [part(0, 9), part(8, 1), part(9, 0), part(usize::MAX, 2)] {
            let parts = [part(0, 1), outside];
            let read = read(file.as_fd(), &mut memory, &parts, START);
            assert_eq!(read, Err(Errno::FAULT), "{outside:?}");
            let written = write(file.as_fd(), &memory, &parts, START);
            assert_eq!(written, Err(Errno::FAULT), "{outside:?}");
        }
        assert_eq!(file.metadata().expect("there").len(), 0);
        let many = [part(0, 1); MOST_PARTS + 1];
        assert_eq!(
            write(file.as_fd(), &memory, &many, START),
            Err(Errno::INVAL)
        );
    }
}
