//! A bounded ring of bytes between two threads: one writes, the other reads, and neither waits.
//!
//! A body of a request or of a response crosses in it. Its memory is bounded by the capacity and is
//! allocated in segments as the writer reaches them: a body of 100 bytes costs one segment.
//!
//! The bytes are in atomic words, so that this needs neither a lock nor `unsafe`. A lock would let
//! a thread of low priority hold up a cell in the middle of a copy.

use crate::sync::Arc;
use crate::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use crate::waker_slot::WakerSlot;
use std::sync::OnceLock;
use std::task::Waker;

/// Bytes of a segment.
#[cfg(not(loom))]
const SEGMENT: usize = 4096;
#[cfg(loom)]
const SEGMENT: usize = 8;

const WORD: usize = size_of::<u64>();

/// In [`Shared::end`]: more may be written. Otherwise [`FINISHED`], or [`FAILED`] or [`CUT`] and the reason.
const OPEN: u16 = 0;
const FINISHED: u16 = 1;
const FAILED: u16 = 0x100;
const CUT: u16 = 0x200;

type Segment = Box<[AtomicU64]>;

struct Shared {
    capacity: usize,
    segments: Box<[OnceLock<Segment>]>,
    /// Bytes written and read since the beginning; the difference is what the ring has.
    written: AtomicU64,
    read: AtomicU64,
    /// How the writer ended.
    end: AtomicU16,
    /// The reader takes no more.
    closed: AtomicBool,
    reader: WakerSlot,
    writer: WakerSlot,
}

/// Why the last of a [`RingWriter`] came without its [`RingWriter::finish`]: it was dropped.
pub const DROPPED: u8 = 0;

/// What a [`RingReader`] got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// This many bytes, more than none.
    Bytes(usize),
    /// Nothing yet.
    Nothing,
    /// The writer has finished, and everything was read.
    Finished,
    /// The writer failed, for a reason of its own. What was not read is lost, unless the writer has cut the ring:
    /// then it was read before.
    Failed(u8),
}

/// A ring of `capacity` bytes, at least 1, and its two ends. Allocates for the ends and for one
/// pointer for each 4 KiB of capacity.
pub fn ring(capacity: usize) -> (RingWriter, RingReader) {
    let capacity = capacity.max(1);
    let shared = Arc::new(Shared {
        capacity,
        segments: (0..capacity.div_ceil(SEGMENT))
            .map(|_| OnceLock::new())
            .collect(),
        written: AtomicU64::new(0),
        read: AtomicU64::new(0),
        end: AtomicU16::new(OPEN),
        closed: AtomicBool::new(false),
        reader: WakerSlot::new(),
        writer: WakerSlot::new(),
    });
    let writer = RingWriter {
        shared: shared.clone(),
        written: 0,
    };
    (writer, RingReader { shared, read: 0 })
}

/// The most bytes of memory that a ring of `capacity` bytes takes.
pub const fn ring_bytes(capacity: usize) -> usize {
    let segments = capacity.div_ceil(SEGMENT);
    size_of::<Shared>() + segments * (SEGMENT + size_of::<OnceLock<Segment>>())
}

impl Shared {
    /// The segment of the ring's byte at `offset`, the place in it, and how many of `most` bytes
    /// from there on are in it and before the ring's end.
    fn place(&self, offset: usize, most: usize) -> (&OnceLock<Segment>, usize, usize) {
        let within = offset % SEGMENT;
        let n = most.min(SEGMENT - within).min(self.capacity - offset);
        (&self.segments[offset / SEGMENT], within, n)
    }

    fn offset(&self, position: u64) -> usize {
        (position % self.capacity as u64) as usize
    }
}

fn empty_segment() -> Segment {
    (0..SEGMENT / WORD).map(|_| AtomicU64::new(0)).collect()
}

/// Copies `bytes` into words from byte `at` on. Only the writer stores, and no byte that is not
/// read yet is changed, so that relaxed loads and stores of whole words are enough.
fn store(words: &[AtomicU64], mut at: usize, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let (word, within) = (&words[at / WORD], at % WORD);
        if within == 0 && bytes.len() >= WORD {
            let chunks = bytes.chunks_exact(WORD);
            let whole = chunks.len() * WORD;
            for (word, chunk) in words[at / WORD..].iter().zip(chunks) {
                let chunk = <[u8; WORD]>::try_from(chunk).unwrap_or_default();
                word.store(u64::from_le_bytes(chunk), Ordering::Relaxed);
            }
            (at, bytes) = (at + whole, &bytes[whole..]);
            continue;
        }
        let n = bytes.len().min(WORD - within);
        let mut value = word.load(Ordering::Relaxed).to_le_bytes();
        value[within..within + n].copy_from_slice(&bytes[..n]);
        word.store(u64::from_le_bytes(value), Ordering::Relaxed);
        (at, bytes) = (at + n, &bytes[n..]);
    }
}

/// Copies words from byte `at` on into `bytes`.
fn load(words: &[AtomicU64], mut at: usize, mut bytes: &mut [u8]) {
    while !bytes.is_empty() {
        let within = at % WORD;
        if within == 0 && bytes.len() >= WORD {
            let whole = bytes.len() / WORD * WORD;
            let (now, rest) = bytes.split_at_mut(whole);
            for (word, chunk) in words[at / WORD..].iter().zip(now.chunks_exact_mut(WORD)) {
                chunk.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
            }
            (at, bytes) = (at + whole, rest);
            continue;
        }
        let n = bytes.len().min(WORD - within);
        let value = words[at / WORD].load(Ordering::Relaxed).to_le_bytes();
        let (now, rest) = bytes.split_at_mut(n);
        now.copy_from_slice(&value[within..within + n]);
        (at, bytes) = (at + n, rest);
    }
}

/// The end that writes. Dropping it before it has finished fails the ring with [`DROPPED`].
pub struct RingWriter {
    shared: Arc<Shared>,
    written: u64,
}

impl RingWriter {
    /// How many bytes [`RingWriter::write`] would take now; `None` once the reader takes no more,
    /// or this end has finished or failed.
    pub fn room(&self) -> Option<usize> {
        let over = self.shared.closed.load(Ordering::Acquire)
            || self.shared.end.load(Ordering::Relaxed) != OPEN;
        let read = self.shared.read.load(Ordering::Acquire);
        let waiting = self.written.saturating_sub(read);
        (!over).then(|| self.shared.capacity - waiting as usize)
    }

    /// Writes as much of `bytes` as fits, wakes the reader, and returns how much that was; `None`
    /// as for [`RingWriter::room`]. Never waits; the cost grows with the bytes, and with a segment
    /// of 4 KiB that is allocated the first time that it is reached.
    pub fn write(&mut self, bytes: &[u8]) -> Option<usize> {
        let fits = self.room()?.min(bytes.len());
        self.put(&bytes[..fits]);
        if fits > 0 {
            self.publish();
        }
        Some(fits)
    }

    /// Writes these parts if there is room for all, so that the reader never finds less than all of them, and returns whether
    /// there was; `None` as for [`RingWriter::room`]. The cost is that of [`RingWriter::write`].
    pub fn write_whole(&mut self, parts: &[&[u8]]) -> Option<bool> {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        if bytes > self.room()? {
            return Some(false);
        }
        parts.iter().for_each(|part| self.put(part));
        self.publish();
        Some(true)
    }

    /// Writes bytes for which there is room, of which the reader does not know yet.
    fn put(&mut self, bytes: &[u8]) {
        let mut done = 0;
        while done < bytes.len() {
            let offset = self.shared.offset(self.written);
            let (segment, at, n) = self.shared.place(offset, bytes.len() - done);
            let words = segment.get_or_init(empty_segment);
            store(words, at, &bytes[done..done + n]);
            self.written += n as u64;
            done += n;
        }
    }

    fn publish(&self) {
        self.shared.written.store(self.written, Ordering::Release);
        self.shared.reader.wake();
    }

    /// Takes back all that was written, which the reader must not read before it is told of it by other means; `false` if
    /// it has read some of it already: then nothing is taken back.
    pub fn take_back(&mut self) -> bool {
        if self.shared.read.load(Ordering::Acquire) > 0 {
            return false;
        }
        self.written = 0;
        self.shared.written.store(0, Ordering::Release);
        true
    }

    /// Whether there is room, or never will be. Otherwise `waker` is woken when half of the ring is
    /// free, or the reader takes no more.
    pub fn poll_room(&self, waker: &Waker) -> bool {
        if self.room() != Some(0) {
            return true;
        }
        self.shared.writer.register(waker);
        self.room() != Some(0)
    }

    /// Whether half of the ring is free, or the reader takes no more. Otherwise `waker` is woken then.
    pub fn poll_half(&self, waker: &Waker) -> bool {
        if self.is_half_free() {
            return true;
        }
        self.shared.writer.register(waker);
        self.is_half_free()
    }

    fn is_half_free(&self) -> bool {
        self.room()
            .is_none_or(|room| room >= self.shared.capacity / 2)
    }

    /// Whether the reader takes no more.
    pub fn is_closed(&self) -> bool {
        self.shared.closed.load(Ordering::Acquire)
    }

    /// Ends the ring: nothing more is written, and the reader still gets what is in it.
    pub fn finish(&mut self) {
        self.end(FINISHED);
    }

    /// Ends the ring with a failure: the reader gets `reason` and nothing more.
    pub fn fail(&mut self, reason: u8) {
        self.end(FAILED | u16::from(reason));
    }

    /// Ends the ring with a failure behind what was written: the reader gets what is in it, and then `reason`.
    pub fn cut(&mut self, reason: u8) {
        self.end(CUT | u16::from(reason));
    }

    /// The first end counts, except that a ring which has finished can still fail.
    fn end(&mut self, how: u16) {
        if self.shared.end.load(Ordering::Relaxed) < FAILED {
            self.shared.end.store(how, Ordering::Release);
            self.shared.reader.wake();
        }
    }
}

impl Drop for RingWriter {
    fn drop(&mut self) {
        if self.shared.end.load(Ordering::Relaxed) == OPEN {
            self.fail(DROPPED);
        }
    }
}

/// The end that reads. Dropping it tells the writer that no more is taken.
pub struct RingReader {
    shared: Arc<Shared>,
    read: u64,
}

impl RingReader {
    /// Reads into `into`, and wakes the writer if half of the ring is free. Never waits; the cost
    /// grows with the bytes. Reading into an empty buffer only says how the ring is.
    pub fn read(&mut self, into: &mut [u8]) -> Received {
        // The end is read first: what was written before it is then seen.
        let end = self.shared.end.load(Ordering::Acquire);
        let waiting = self.waiting();
        if end >= FAILED && (end < CUT || waiting == 0) {
            return Received::Failed((end & 0xff) as u8);
        }
        if waiting == 0 && end == FINISHED {
            return Received::Finished;
        }
        let n = waiting.min(into.len());
        let mut done = 0;
        while done < n {
            let offset = self.shared.offset(self.read);
            let (segment, at, some) = self.shared.place(offset, n - done);
            let Some(words) = segment.get() else { break };
            load(words, at, &mut into[done..done + some]);
            self.read += some as u64;
            done += some;
        }
        if done == 0 {
            return Received::Nothing;
        }
        self.shared.read.store(self.read, Ordering::Release);
        // Waking the writer for each byte would cost more than the byte.
        if waiting - done <= self.shared.capacity / 2 {
            self.shared.writer.wake();
        }
        Received::Bytes(done)
    }

    /// Bytes that can be read now.
    pub fn waiting(&self) -> usize {
        let written = self.shared.written.load(Ordering::Acquire);
        // Less only if it was taken back from a reader that was not to read yet.
        written.saturating_sub(self.read) as usize
    }

    /// How many bytes are left, once the writer has finished; `None` before, and if it failed.
    pub fn remaining(&self) -> Option<usize> {
        let finished = self.shared.end.load(Ordering::Acquire) == FINISHED;
        finished.then(|| self.waiting())
    }

    /// Whether a read would return anything but [`Received::Nothing`]. Otherwise `waker` is woken
    /// when it would.
    pub fn poll_readable(&self, waker: &Waker) -> bool {
        if self.is_readable() {
            return true;
        }
        self.shared.reader.register(waker);
        self.is_readable()
    }

    fn is_readable(&self) -> bool {
        self.shared.end.load(Ordering::Acquire) != OPEN || self.waiting() > 0
    }

    /// Tells the writer that no more is taken.
    pub fn close(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
        self.shared.writer.wake();
    }
}

impl Drop for RingReader {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::{DROPPED, Received, ring};
    use loom::future::block_on;
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicBool, Ordering};
    use loom::thread;
    use std::future::poll_fn;
    use std::task::Poll;

    fn ready(ready: bool) -> Poll<()> {
        match ready {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }

    #[test]
    fn a_reader_that_waits_gets_what_is_written_and_the_end() {
        loom::model(|| {
            let (mut writer, mut reader) = ring(1);
            let writing = thread::spawn(move || {
                assert_eq!(writer.write(&[7]), Some(1));
                writer.finish();
            });
            block_on(poll_fn(|cx| ready(reader.poll_readable(cx.waker()))));
            let mut buffer = [0];
            assert_eq!(reader.read(&mut buffer), Received::Bytes(1));
            assert_eq!(buffer, [7]);
            block_on(poll_fn(|cx| ready(reader.poll_readable(cx.waker()))));
            assert_eq!(reader.read(&mut buffer), Received::Finished);
            writing.join().expect("writer");
        });
    }

    #[test]
    fn what_was_taken_back_is_nothing_to_a_reader_that_is_told_afterwards() {
        loom::model(|| {
            let (mut writer, mut reader) = ring(2);
            let told = Arc::new(AtomicBool::new(false));
            let tell = told.clone();
            let writing = thread::spawn(move || {
                assert_eq!(writer.write(&[1, 2]), Some(2));
                assert!(writer.take_back());
                assert_eq!(writer.room(), Some(2));
                assert_eq!(writer.write(&[3]), Some(1));
                tell.store(true, Ordering::Release);
                writer.finish();
            });
            // Before that it may look, and does not read.
            let mut buffer = [0; 2];
            let seen = match told.load(Ordering::Acquire) {
                true => reader.read(&mut buffer),
                false => reader.read(&mut []),
            };
            assert!(
                matches!(seen, Received::Bytes(1) | Received::Nothing),
                "{seen:?}"
            );
            writing.join().expect("writer");
            if seen == Received::Nothing {
                assert_eq!(reader.read(&mut buffer), Received::Bytes(1));
            }
            assert_eq!(buffer[0], 3);
            assert_eq!(reader.read(&mut buffer), Received::Finished);
        });
    }

    #[test]
    fn a_writer_that_waits_gets_the_room_that_is_read() {
        loom::model(|| {
            let (mut writer, mut reader) = ring(1);
            assert_eq!(writer.write(&[1]), Some(1));
            let reading = thread::spawn(move || {
                let mut buffer = [0];
                assert_eq!(reader.read(&mut buffer), Received::Bytes(1));
                assert_eq!(buffer, [1]);
                reader
            });
            block_on(poll_fn(|cx| ready(writer.poll_room(cx.waker()))));
            assert_eq!(writer.write(&[2]), Some(1));
            let mut reader = reading.join().expect("reader");
            let mut buffer = [0];
            assert_eq!(reader.read(&mut buffer), Received::Bytes(1));
            assert_eq!(buffer, [2]);
        });
    }

    // Both sides wait here. The two tests above are exhaustive for one side each; this one follows
    // schedules with at most two preemptions, of which there are few enough.
    #[test]
    fn all_bytes_arrive_in_order_though_the_ring_is_smaller_than_they() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            let (mut writer, mut reader) = ring(1);
            let writing = thread::spawn(move || {
                let mut left: &[u8] = &[1, 2];
                while !left.is_empty() {
                    block_on(poll_fn(|cx| ready(writer.poll_room(cx.waker()))));
                    let n = writer.write(left).expect("the reader is there");
                    left = &left[n..];
                }
                writer.finish();
            });
            let (mut got, mut buffer) = (Vec::new(), [0; 1]);
            loop {
                // Deadlocks under the model if a wake-up is lost.
                block_on(poll_fn(|cx| ready(reader.poll_readable(cx.waker()))));
                match reader.read(&mut buffer) {
                    Received::Bytes(n) => got.extend_from_slice(&buffer[..n]),
                    Received::Finished => break,
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(got, [1, 2]);
            writing.join().expect("writer");
        });
    }

    #[test]
    fn a_writer_that_waits_learns_that_its_reader_has_gone() {
        loom::model(|| {
            let (mut writer, reader) = ring(1);
            assert_eq!(writer.write(&[1]), Some(1));
            let going = thread::spawn(move || drop(reader));
            block_on(poll_fn(|cx| ready(writer.poll_room(cx.waker()))));
            assert_eq!(writer.room(), None);
            going.join().expect("reader");
        });
    }

    #[test]
    fn a_reader_that_waits_learns_that_its_writer_has_gone() {
        loom::model(|| {
            let (writer, mut reader) = ring(1);
            let going = thread::spawn(move || drop(writer));
            block_on(poll_fn(|cx| ready(reader.poll_readable(cx.waker()))));
            assert_eq!(reader.read(&mut [0]), Received::Failed(DROPPED));
            going.join().expect("writer");
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{DROPPED, Received, SEGMENT, ring};
    use std::task::Waker;

    /// Deterministic lengths that cross words, segments and the ring's end at every offset.
    fn lengths() -> impl Iterator<Item = usize> {
        (0u64..).map(|n| (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 53) as usize)
    }

    #[test]
    fn a_cut_is_read_behind_what_was_written_and_a_failure_at_once() {
        let (mut writer, mut reader) = ring(8);
        writer.write(b"abc");
        writer.cut(7);
        writer.fail(8);
        assert_eq!((writer.room(), reader.remaining()), (None, None));
        assert!(reader.poll_readable(Waker::noop()));
        let mut read = [0; 2];
        assert_eq!(reader.read(&mut read), Received::Bytes(2));
        assert_eq!(reader.read(&mut read), Received::Bytes(1));
        assert_eq!(reader.read(&mut read), Received::Failed(7));
        let (mut writer, mut reader) = ring(8);
        writer.write(b"abc");
        writer.fail(8);
        assert_eq!(reader.read(&mut read), Received::Failed(8));
    }

    #[test]
    fn what_was_written_is_taken_back_unless_some_was_read() {
        let (mut writer, mut reader) = ring(8);
        writer.write(b"abcdefgh");
        assert_eq!(writer.room(), Some(0));
        assert!(writer.take_back());
        assert_eq!((writer.room(), reader.waiting()), (Some(8), 0));
        writer.write(b"xy");
        let mut read = [0; 8];
        assert_eq!(reader.read(&mut read), Received::Bytes(2));
        assert_eq!(&read[..2], b"xy");
        writer.write(b"z");
        assert!(!writer.take_back());
        assert_eq!(reader.read(&mut read), Received::Bytes(1));
    }

    #[test]
    fn what_is_read_is_what_was_written_at_every_offset() {
        for capacity in [
            1,
            7,
            8,
            9,
            SEGMENT - 1,
            SEGMENT,
            SEGMENT + 1,
            3 * SEGMENT + 5,
        ] {
            let (mut writer, mut reader) = ring(capacity);
            let (mut put, mut got) = (0u32, 0u32);
            let mut buffer = vec![0; 4096];
            for (give, take) in lengths().zip(lengths().skip(7)).take(3000) {
                let bytes: Vec<u8> = (put..).take(give).map(|n| (n % 251) as u8).collect();
                put += writer.write(&bytes).expect("open") as u32;
                assert!(put - got <= capacity as u32);
                assert_eq!(reader.waiting(), (put - got) as usize);
                match reader.read(&mut buffer[..take]) {
                    Received::Bytes(n) => {
                        let expected: Vec<u8> = (got..).take(n).map(|n| (n % 251) as u8).collect();
                        assert_eq!(&buffer[..n], expected);
                        got += n as u32;
                    }
                    other => assert_eq!(
                        (other, take.min((put - got) as usize)),
                        (Received::Nothing, 0)
                    ),
                }
            }
            assert!(put > 1000);
        }
    }

    #[test]
    fn a_writer_gets_no_more_than_the_capacity_ahead_of_its_reader() {
        let (mut writer, mut reader) = ring(10);
        assert_eq!(writer.write(&[1; 12]), Some(10));
        assert_eq!(writer.room(), Some(0));
        assert!(!writer.poll_room(Waker::noop()));
        assert_eq!(reader.read(&mut [0; 4]), Received::Bytes(4));
        assert_eq!(writer.room(), Some(4));
    }

    #[test]
    fn a_finished_ring_is_read_to_its_end_and_a_failed_one_is_not() {
        let (mut writer, mut reader) = ring(10);
        writer.write(&[1, 2]);
        assert_eq!(reader.remaining(), None);
        writer.finish();
        assert_eq!(reader.remaining(), Some(2));
        assert_eq!(writer.write(&[3]), None);
        assert_eq!(reader.read(&mut [0; 8]), Received::Bytes(2));
        assert_eq!(reader.read(&mut [0; 8]), Received::Finished);
        drop(writer);
        assert_eq!(reader.read(&mut [0; 8]), Received::Finished);

        let (mut writer, mut reader) = ring(10);
        writer.write(&[1, 2]);
        writer.fail(7);
        assert_eq!(reader.read(&mut [0; 8]), Received::Failed(7));

        let (writer, mut reader) = ring(10);
        drop(writer);
        assert_eq!(reader.read(&mut []), Received::Failed(DROPPED));
    }

    #[test]
    fn a_reader_that_takes_no_more_is_seen_by_the_writer() {
        let (mut writer, mut reader) = ring(10);
        reader.close();
        assert!(writer.is_closed());
        assert_eq!(writer.write(&[1]), None);
        assert!(writer.poll_room(Waker::noop()));
    }
}
