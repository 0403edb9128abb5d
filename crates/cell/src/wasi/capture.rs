//! Output that is kept in memory, in chunks, so that a write never copies earlier output.

use leasehold_crossing::{Mutex, MutexGuard};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::AsyncWrite;
use wasmtime_wasi::async_trait;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamError, StreamResult};

/// Bytes of a chunk.
const CHUNK: usize = 64 << 10;

/// The output of a tenant, kept in memory. Clones share it.
#[derive(Debug, Clone)]
pub struct Capture(Arc<Captured>);

#[derive(Debug)]
struct Captured {
    /// Bytes, at most.
    capacity: usize,
    /// All but the last are full.
    chunks: Mutex<Vec<Vec<u8>>>,
}

impl Capture {
    /// A buffer of at most `capacity` bytes; writing more is an error to the tenant. Memory is taken as it is
    /// written to, in chunks of 64 KiB.
    pub fn new(capacity: usize) -> Self {
        Self(Arc::new(Captured {
            capacity,
            chunks: Mutex::default(),
        }))
    }

    /// Returns a copy of the output so far. The tenant never waits for more than a chunk of the
    /// copy.
    pub fn bytes(&self) -> Vec<u8> {
        let mut all = Vec::new();
        // Written bytes never change, so each chunk is consistent.
        while let Some(chunk) = self.chunks().get(all.len() / CHUNK) {
            all.extend_from_slice(&chunk[all.len() % CHUNK..]);
            if all.len() % CHUNK != 0 {
                break;
            }
        }
        all
    }

    /// Bytes that can still be written.
    pub(crate) fn room(&self) -> usize {
        self.0.capacity - written(&self.chunks())
    }

    /// Writes what there is room for of `bytes`, and returns how much that was.
    pub(crate) fn put(&self, bytes: &[u8]) -> usize {
        let mut chunks = self.chunks();
        let room = self.0.capacity - written(&chunks);
        let taken = bytes.len().min(room);
        let mut rest = &bytes[..taken];
        while !rest.is_empty() {
            if chunks.last().is_none_or(|last| last.len() == CHUNK) {
                chunks.push(Vec::with_capacity(CHUNK.min(self.0.capacity)));
            }
            let Some(last) = chunks.last_mut() else {
                break;
            };
            let (now, later) = rest.split_at(rest.len().min(CHUNK - last.len()));
            last.extend_from_slice(now);
            rest = later;
        }
        taken
    }

    fn chunks(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.0.chunks.lock()
    }
}

fn written(chunks: &[Vec<u8>]) -> usize {
    let last = chunks.last().map_or(0, Vec::len);
    chunks.len().saturating_sub(1) * CHUNK + last
}

impl IsTerminal for Capture {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Capture {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

#[async_trait]
impl Pollable for Capture {
    async fn ready(&mut self) {}
}

impl OutputStream for Capture {
    fn write(&mut self, bytes: bytes::Bytes) -> StreamResult<()> {
        match self.put(&bytes) == bytes.len() {
            true => Ok(()),
            // It is full for good: another execution of the tenant may have written since check-write.
            false => Err(StreamError::Closed),
        }
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        match self.room() {
            // It is full for good.
            0 => Err(StreamError::Closed),
            room => Ok(room),
        }
    }
}

impl AsyncWrite for Capture {
    fn poll_write(
        self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Poll::Ready(Ok(self.put(bytes)))
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(
        self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::{CHUNK, Capture};

    #[test]
    fn what_was_written_is_what_is_read_whatever_the_sizes_of_writes() {
        for size in [1, 1000, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK] {
            let capacity = 2 * CHUNK + 5;
            let capture = Capture::new(capacity);
            let all: Vec<u8> = (0..4 * CHUNK).map(|at| (at % 251) as u8).collect();
            let mut taken = 0;
            while capture.room() > 0 {
                assert_eq!(capture.bytes(), all[..taken]);
                taken += capture.put(&all[taken..][..size.min(4 * CHUNK - taken)]);
                if size < 1000 {
                    taken += capture.put(&all[taken..taken + 999]);
                }
            }
            assert_eq!((taken, capture.put(b"more")), (capacity, 0));
            assert_eq!(capture.bytes(), all[..capacity]);
        }
    }

    #[test]
    fn a_write_moves_nothing_that_was_written_before() {
        let capture = Capture::new(64 * CHUNK);
        capture.put(&[1; CHUNK + 1]);
        let places = |capture: &Capture| {
            let chunks = capture.chunks();
            [chunks[0].as_ptr(), chunks[1].as_ptr()]
        };
        let before = places(&capture);
        capture.put(&vec![2; 60 * CHUNK]);
        assert_eq!(places(&capture), before);
    }
}
