//! Moving bytes between files and the memory of a guest, a step at a time.

use super::STEP;
use super::class::{Class, Site};
use super::descriptor::Node;
use super::growth::Growth;
use super::pace::Permit;
use crate::host::answer::{Answer, Fail};
use crate::host::linux;
use crate::system::{FilePosition, MOST_PARTS, Part};
use leasehold_slots::address_range::PAGE;
use rustix::io::{Errno, Result};
use std::cell::RefCell;
use std::os::fd::AsFd as _;

/// Buffers of one call that are looked at: as many as Linux takes.
const MOST_BUFFERS: u32 = 1024;

/// Buffers of one step.
const STEP_BUFFERS: usize = MOST_PARTS;

/// Bytes of one step of a tenant that pages: a page, so that two of them may be touched.
const PAGED_STEP: usize = PAGE;

/// Bytes of a buffer's address and length in the memory of a guest.
const BUFFER_BYTES: u32 = 8;

/// The buffers of a call, as a list in the memory of a guest, and how far they were used. Each entry of the list is read
/// once: what is read from a file may be put over the list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Buffers {
    list: u32,
    count: u32,
    index: u32,
    /// What is left of the buffer at `index`, if it was used: where, and how many bytes.
    rest: Option<(usize, usize)>,
    /// Buffers of one step.
    step_buffers: usize,
    /// Bytes of one step.
    step_bytes: usize,
}

/// The buffers of one step: parts of a guest's memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    parts: [Part; STEP_BUFFERS],
    count: usize,
    bytes: usize,
    /// The index of the buffer that each part is of.
    indices: [u32; STEP_BUFFERS],
    /// Bytes of the last part's buffer that are left behind the step.
    left: usize,
    /// The buffers behind all parts.
    end: Buffers,
}

impl Step {
    /// Returns the number of bytes that this step moves.
    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    pub(crate) fn parts(&self) -> &[Part] {
        &self.parts[..self.count]
    }

    /// Returns the buffers behind so many bytes of the step.
    pub(crate) fn after(&self, mut bytes: usize) -> Buffers {
        let last = self.count.saturating_sub(1);
        for (at, part) in self.parts().iter().enumerate() {
            match bytes.checked_sub(part.length) {
                Some(less) => bytes = less,
                None => {
                    let left = if at == last { self.left } else { 0 };
                    let index = self.indices[at];
                    let buffers = Buffers { index, ..self.end };
                    return buffers.behind((part.start, part.length + left), bytes);
                }
            }
        }
        self.end
    }

    /// Copies bytes into the buffers, as many as there is room for.
    pub(crate) fn scatter(&self, memory: &mut [u8], mut bytes: &[u8]) {
        for part in self.parts() {
            let (now, later) = bytes.split_at(bytes.len().min(part.length));
            memory[part.start..part.start + now.len()].copy_from_slice(now);
            bytes = later;
        }
    }

    /// Copies the bytes out of the buffers.
    pub(crate) fn gather(&self, memory: &[u8], into: &mut Vec<u8>) {
        for part in self.parts() {
            into.extend_from_slice(&memory[part.start..part.start + part.length]);
        }
    }
}

impl Buffers {
    /// Creates a cursor over `count` buffers at `list`; those after the 1,024th are left alone.
    pub(crate) fn new(list: u32, count: u32) -> Self {
        Self {
            list,
            count: count.min(MOST_BUFFERS),
            index: 0,
            rest: None,
            step_buffers: STEP_BUFFERS,
            step_bytes: usize::MAX,
        }
    }

    /// Makes a step one buffer and one page long, for a tenant that pages: every page of a buffer may have to
    /// be fetched from the disk.
    pub(crate) fn paged(mut self) -> Self {
        (self.step_buffers, self.step_bytes) = (1, PAGED_STEP);
        self
    }

    fn buffer(&self, memory: &[u8], index: u32) -> Answer<(u32, u32)> {
        let at = u64::from(self.list) + u64::from(index) * u64::from(BUFFER_BYTES);
        let bytes = usize::try_from(at)
            .ok()
            .and_then(|at| memory.get(at..)?.first_chunk::<8>())
            .filter(|_| self.list.is_multiple_of(4))
            .ok_or_else(|| Fail::pointer(self.list, u64::from(self.count) * 8))?;
        let [a, b, c, d, e, f, g, h] = *bytes;
        Ok((
            u32::from_le_bytes([a, b, c, d]),
            u32::from_le_bytes([e, f, g, h]),
        ))
    }

    /// Returns the unused part of the next buffer: where it is and how long.
    pub(crate) fn next(&mut self, memory: &[u8]) -> Answer<Option<(usize, usize)>> {
        if self.rest.is_some() {
            return Ok(self.rest);
        }
        while self.index < self.count {
            let (start, length) = self.buffer(memory, self.index)?;
            let end = u64::from(start) + u64::from(length);
            // An empty buffer may be anywhere.
            if length > 0 && end > memory.len() as u64 {
                return Err(Fail::pointer(start, length.into()));
            }
            if length > 0 {
                return Ok(Some((start as usize, length as usize)));
            }
            self.index += 1;
        }
        Ok(None)
    }

    /// Returns the buffers behind so many bytes of the next one, which is this.
    fn behind(mut self, (start, length): (usize, usize), bytes: usize) -> Self {
        match length.saturating_sub(bytes) {
            0 => (self.index, self.rest) = (self.index + 1, None),
            left => self.rest = Some((start + bytes, left)),
        }
        self
    }

    /// Returns where the next buffers stand in the list: an address, and bytes on two pages at the most.
    pub(crate) fn next_in_list(&self) -> (u32, usize) {
        let at = self
            .list
            .saturating_add(self.index.saturating_mul(BUFFER_BYTES));
        let left = self.count.saturating_sub(self.index) as usize;
        (at, (left * BUFFER_BYTES as usize).min(PAGED_STEP))
    }

    /// Returns the buffers of the next step, of at most `most` bytes.
    pub(crate) fn step(&self, memory: &[u8], most: usize) -> Answer<Step> {
        let most = most.min(self.step_bytes);
        let mut step = Step {
            parts: [Part::default(); STEP_BUFFERS],
            count: 0,
            bytes: 0,
            indices: [0; STEP_BUFFERS],
            left: 0,
            end: *self,
        };
        while step.count < self.step_buffers
            && step.bytes < most
            && let Some((start, length)) = step.end.next(memory)?
        {
            let used = length.min(most - step.bytes);
            step.parts[step.count] = Part {
                start,
                length: used,
            };
            step.indices[step.count] = step.end.index;
            step.left = length - used;
            step.count += 1;
            step.bytes += used;
            step.end = step.end.behind((start, length), used);
        }
        Ok(step)
    }
}

thread_local! {
    /// Bytes on their way to or from memory that the kernel cannot reach by itself.
    static BETWEEN: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The way in which a guest's memory is accessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// The kernel moves the bytes in place.
    Direct,
    /// Through a buffer, because only the cell can fetch pages that are out.
    Copied,
}

/// The result of a try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tried {
    Moved(usize),
    /// The call would wait.
    Blocks,
}

fn tried(result: Result<usize>) -> Result<Tried> {
    match result {
        Ok(bytes) => Ok(Tried::Moved(bytes)),
        Err(Errno::AGAIN | Errno::OPNOTSUPP) => Ok(Tried::Blocks),
        Err(errno) => Err(errno),
    }
}

/// Reads a step of buffers at `offset`, if that does not wait.
pub(crate) fn read_promptly(
    node: &Node,
    (memory, reach): (&mut [u8], Reach),
    step: &Step,
    offset: u64,
) -> Answer<Tried> {
    let flags = match node.class {
        Class::Memory => 0,
        Class::Cached | Class::Layered if node.reads_alone() => libc::RWF_NOWAIT,
        Class::Cached | Class::Layered | Class::Slow => return Ok(Tried::Blocks),
    };
    if reach == Reach::Direct {
        match linux::read(
            node.as_fd(),
            memory,
            step.parts(),
            FilePosition { offset, flags },
        ) {
            Err(Errno::FAULT) => {}
            result => return Ok(tried(result)?),
        }
    }
    BETWEEN.with_borrow_mut(|between| {
        between.resize(STEP, 0);
        let between = &mut between[..step.len()];
        let result = tried(read_into(node, between, offset, flags))?;
        if let Tried::Moved(bytes) = result {
            step.scatter(memory, &between[..bytes]);
        }
        Ok(result)
    })
}

/// Writes a step of buffers at `offset`, or to the end; where that waits for nothing but, at
/// worst, the host's own bookkeeping.
pub(crate) fn write_promptly(
    node: &Node,
    (memory, reach): (&[u8], Reach),
    step: &Step,
    offset: u64,
    append: bool,
) -> Answer<Tried> {
    let flags = append_flag(append);
    let Some(permit) = Permit::for_write(node, step.len()) else {
        return Ok(Tried::Blocks);
    };
    let write = || {
        if reach == Reach::Direct {
            match linux::write(
                node.as_fd(),
                memory,
                step.parts(),
                FilePosition { offset, flags },
            ) {
                Err(Errno::FAULT) => {}
                result => return Ok(result),
            }
        }
        BETWEEN.with_borrow_mut(|between| {
            between.clear();
            step.gather(memory, between);
            Ok::<_, Fail>(write_from(node, between, offset, flags))
        })
    };
    let at = (!append).then_some(offset);
    if let Some(written) = node.write_again(at, step.len(), write) {
        permit.used_again(step.len());
        return Ok(tried(written?)?);
    }
    let state = node.state();
    let growth = Growth::take(node, step.len())?;
    let written = growth.write(Site::Cell(node.class), node, at, write);
    permit.used();
    let Some(written) = written else {
        return Ok(Tried::Blocks);
    };
    let written = tried(written??)?;
    if let Tried::Moved(bytes) = written {
        node.wrote(state, at, bytes);
    }
    Ok(written)
}

/// Reads into `buffer` at `offset` all that the file has there, if that does not wait. A step: no more than [`STEP`] bytes.
///
/// Where only some of it is in memory, all of it is left to another thread: a short read is the end of the file, on
/// which programs rely, and tells nobody what was read before.
pub(crate) fn read_now(node: &Node, buffer: &mut [u8], offset: u64) -> Result<Tried> {
    if !node.is_prompt() {
        return Ok(Tried::Blocks);
    }
    let flags = match node.class {
        Class::Memory => return tried(read_into(node, buffer, offset, 0)),
        Class::Cached | Class::Layered if node.reads_alone() => libc::RWF_NOWAIT,
        Class::Cached | Class::Layered | Class::Slow => return Ok(Tried::Blocks),
    };
    let mut read = 0;
    loop {
        let behind = offset.saturating_add(read as u64);
        match tried(read_into(node, &mut buffer[read..], behind, flags)) {
            Ok(Tried::Moved(more)) => {
                read += more;
                if more == 0 || read == buffer.len() {
                    return Ok(Tried::Moved(read));
                }
            }
            Ok(Tried::Blocks) => return Ok(Tried::Blocks),
            // What is before it counts.
            Err(_) if read > 0 => return Ok(Tried::Blocks),
            Err(errno) => return Err(errno),
        }
    }
}

/// Writes `bytes` at `offset`, or to the end; where that waits for nothing but, at worst, the host's own
/// bookkeeping. A step: no more than [`STEP`] bytes.
pub(crate) fn write_now(node: &Node, bytes: &[u8], offset: u64, append: bool) -> Result<Tried> {
    if !node.is_prompt() {
        return Ok(Tried::Blocks);
    }
    let Some(permit) = Permit::for_write(node, bytes.len()) else {
        return Ok(Tried::Blocks);
    };
    let at = (!append).then_some(offset);
    let write = || write_from(node, bytes, offset, append_flag(append));
    if let Some(written) = node.write_again(at, bytes.len(), write) {
        permit.used_again(bytes.len());
        return tried(written);
    }
    let state = node.state();
    let growth = Growth::take(node, bytes.len())?;
    let written = growth.write(Site::Cell(node.class), node, at, write);
    permit.used();
    let Some(written) = written else {
        return Ok(Tried::Blocks);
    };
    let written = tried(written?)?;
    if let Tried::Moved(bytes) = written {
        node.wrote(state, at, bytes);
    }
    Ok(written)
}

fn append_flag(append: bool) -> libc::c_int {
    match append {
        true => libc::RWF_APPEND,
        false => 0,
    }
}

fn read_into(node: &Node, buffer: &mut [u8], offset: u64, flags: libc::c_int) -> Result<usize> {
    let all = all_of(buffer);
    linux::read(node.as_fd(), buffer, &[all], FilePosition { offset, flags })
}

fn write_from(node: &Node, buffer: &[u8], offset: u64, flags: libc::c_int) -> Result<usize> {
    let all = all_of(buffer);
    linux::write(node.as_fd(), buffer, &[all], FilePosition { offset, flags })
}

fn all_of(buffer: &[u8]) -> Part {
    Part {
        start: 0,
        length: buffer.len(),
    }
}

/// Reads up to `length` bytes at `offset` on a thread that may block, and possibly reads ahead.
pub(crate) fn read(node: &Node, length: usize, offset: u64) -> Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let read = read_into(node, &mut bytes, offset, 0)?;
    bytes.truncate(read);
    node.read_on(offset, read);
    Ok(bytes)
}

/// Writes bytes at `offset`, or to the end, on a thread that may block. Their disk space was
/// charged before.
pub(crate) fn write(
    node: &Node,
    bytes: &[u8],
    offset: u64,
    append: bool,
    growth: Growth,
) -> Result<usize> {
    let at = (!append).then_some(offset);
    let written = growth.write(Site::Blocking, node, at, || {
        write_from(node, bytes, offset, append_flag(append))
    });
    // `None` is for the cell's thread alone.
    written.unwrap_or(Err(Errno::AGAIN))?
}

/// Writes all of `bytes` at `offset`, or to the end, on a thread that may block. Their disk space
/// was charged before. Bytes written before a failure stay.
pub(crate) fn write_all(
    node: &Node,
    mut bytes: &[u8],
    mut offset: u64,
    append: bool,
    growth: Growth,
) -> Result<()> {
    let at = (!append).then_some(offset);
    let written = growth.write(Site::Blocking, node, at, || {
        while !bytes.is_empty() {
            let written = write_from(node, bytes, offset, append_flag(append))?;
            if written == 0 {
                return Err(Errno::IO);
            }
            bytes = &bytes[written..];
            offset = offset.saturating_add(written as u64);
        }
        Ok(())
    });
    // `None` is for the cell's thread alone.
    written.unwrap_or(Err(Errno::AGAIN))?
}

#[cfg(test)]
mod tests {
    use super::{Buffers, STEP_BUFFERS};

    /// Returns a memory with a list of buffers at its beginning.
    fn memory(buffers: &[(u32, u32)]) -> Vec<u8> {
        let mut memory = vec![0; 1 << 16];
        for (index, (start, length)) in buffers.iter().enumerate() {
            memory[8 * index..][..4].copy_from_slice(&start.to_le_bytes());
            memory[8 * index + 4..][..4].copy_from_slice(&length.to_le_bytes());
        }
        memory
    }

    #[test]
    fn bytes_are_spread_over_the_buffers_in_order_and_empty_ones_left_out() {
        let mut memory = memory(&[(1000, 3), (5000, 0), (2000, 4)]);
        let step = Buffers::new(0, 3).step(&memory, 100).expect("inside");
        step.scatter(&mut memory, b"abcdefgh");
        assert_eq!(&memory[1000..1004], b"abc\0");
        assert_eq!(&memory[2000..2005], b"defg\0");
        let rest = step.after(5).step(&memory, 100).expect("inside");
        let mut bytes = Vec::new();
        rest.gather(&memory, &mut bytes);
        assert_eq!(bytes, b"fg");
        let step = step.after(5).step(&memory, 1).expect("inside");
        assert_eq!((step.count, step.bytes), (1, 1));
    }

    #[test]
    fn a_step_takes_a_bounded_number_of_buffers_and_a_call_too() {
        let memory = memory(&[(0, 1); 2000]);
        let (mut buffers, mut all) = (Buffers::new(0, 2000), 0);
        loop {
            let step = buffers.step(&memory, 1 << 16).expect("inside");
            if step.bytes == 0 {
                break;
            }
            assert_eq!((step.count, step.bytes), (STEP_BUFFERS, STEP_BUFFERS));
            all += step.bytes;
            buffers = step.after(step.bytes);
        }
        assert_eq!(all, 1024);
        assert!(buffers.next(&memory).expect("inside").is_none());
    }

    #[test]
    fn a_buffer_may_lie_over_the_list_whatever_is_put_into_it() {
        for most in [1, 7, 8, 100, 1 << 16] {
            let mut memory = memory(&[(0, 40_000)]);
            let mut buffers = Buffers::new(0, 1);
            let mut moved = 0;
            while buffers.next(&memory).expect("read once").is_some() {
                let step = buffers.step(&memory, most).expect("read once");
                step.scatter(&mut memory, &vec![0xff; step.len()]);
                moved += step.len();
                buffers = step.after(step.len());
            }
            assert_eq!(moved, 40_000, "{most}");
        }
    }

    #[test]
    fn what_is_left_behind_any_part_of_a_step_is_moved_next() {
        let list = [(1000, 3), (2000, 0), (3000, 7), (4000, 5), (5000, 9)];
        let mut memory = memory(&list);
        let buffers = list
            .iter()
            .flat_map(|(start, length)| *start..start + length);
        for (value, at) in (1..).zip(buffers) {
            memory[at as usize] = value;
        }
        for most in 1..=24 {
            for used in 1..=most {
                let (mut buffers, mut all) = (Buffers::new(0, 5), Vec::new());
                while buffers.next(&memory).expect("inside").is_some() {
                    let step = buffers.step(&memory, most).expect("inside");
                    let mut bytes = Vec::new();
                    step.gather(&memory, &mut bytes);
                    bytes.truncate(used);
                    buffers = step.after(bytes.len());
                    all.extend(bytes);
                }
                assert_eq!(all, (1..=24).collect::<Vec<u8>>(), "{used} of {most}");
            }
        }
    }

    #[test]
    fn a_buffer_outside_the_memory_is_a_trap() {
        let memory = memory(&[(65_535, 2)]);
        assert!(Buffers::new(0, 1).next(&memory).is_err());
        assert!(Buffers::new(65_532, 1).next(&memory).is_err());
        assert!(Buffers::new(2, 1).next(&memory).is_err());
        assert!(Buffers::new(u32::MAX, u32::MAX).next(&memory).is_err());
    }
}
