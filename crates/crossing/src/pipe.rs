//! A bounded byte pipe from a cell to a thread that may block. A tenant's output reaches a
//! terminal, a file or another process through it, and the cell's thread never waits.
//!
//! The writing side never blocks: it takes as many bytes as fit and signals when there is room
//! again. The reading side is one [`Drain`] thread per destination that writes to the host.

use crate::bell::Bell;
use crate::sync::{Arc, Condvar, Mutex, lock};
use std::collections::VecDeque;
use std::io::{ErrorKind, Write};
use std::task::Waker;

/// The most bytes of a guest that its destination has not taken yet.
pub const CAPACITY: usize = 64 * 1024;

struct State {
    bytes: VecDeque<u8>,
    /// Written out by the drain so far, and put in so far: equal when everything is out.
    drained: u64,
    written: u64,
    closed: bool,
    /// Why the destination failed: what is written from now on is an error.
    failure: Option<ErrorKind>,
    waiting: Vec<Waker>,
}

/// One end of a pipe; clones share it.
#[derive(Clone)]
pub struct Pipe {
    shared: Arc<(Mutex<State>, Condvar)>,
    bell: Option<Bell>,
}

impl Default for Pipe {
    fn default() -> Self {
        Self::new()
    }
}

impl Pipe {
    /// An empty pipe of [`CAPACITY`] bytes.
    pub fn new() -> Self {
        let state = State {
            bytes: VecDeque::new(),
            drained: 0,
            written: 0,
            closed: false,
            failure: None,
            waiting: Vec::new(),
        };
        Self {
            shared: Arc::new((Mutex::new(state), Condvar::new())),
            bell: None,
        }
    }

    /// An empty pipe for a thread that drains several ones with [`Pipe::take_now`]: each write rings the
    /// bell.
    pub fn rung_by(bell: &Bell) -> Self {
        Self {
            bell: Some(bell.clone()),
            ..Self::new()
        }
    }

    /// Tells the reading side that something was written.
    fn announce(&self) {
        match &self.bell {
            Some(bell) => bell.ring(),
            None => self.shared.1.notify_all(),
        }
    }

    /// Takes everything that is in the pipe out of it, to the end of `into`, and counts it as written out;
    /// whether there was anything. Never blocks.
    pub fn take_now(&self, into: &mut Vec<u8>) -> bool {
        let mut state = lock(&self.shared.0);
        let (front, back) = state.bytes.as_slices();
        let taken = front.len() + back.len();
        into.extend_from_slice(front);
        into.extend_from_slice(back);
        state.bytes.clear();
        drop(state);
        if taken > 0 {
            self.taken(taken as u64, None);
        }
        taken > 0
    }

    /// How many bytes [`Pipe::write`] would take now; `None` once the destination has failed.
    pub fn room(&self) -> Option<usize> {
        let state = lock(&self.shared.0);
        (state.failure.is_none()).then(|| CAPACITY - state.bytes.len())
    }

    /// Writes as much of `bytes` as fits and returns how much that was; `None` once the
    /// destination has failed.
    pub fn write(&self, bytes: &[u8]) -> Option<usize> {
        let mut state = lock(&self.shared.0);
        if state.failure.is_some() {
            return None;
        }
        let n = bytes.len().min(CAPACITY - state.bytes.len());
        state.bytes.extend(&bytes[..n]);
        state.written += n as u64;
        drop(state);
        self.announce();
        Some(n)
    }

    /// Writes all of `bytes`, or nothing if they do not fit or the destination has failed; whether it
    /// did. Never blocks.
    pub fn write_whole(&self, bytes: &[u8]) -> bool {
        let mut state = lock(&self.shared.0);
        if state.failure.is_some() || bytes.len() > CAPACITY - state.bytes.len() {
            return false;
        }
        state.bytes.extend(bytes);
        state.written += bytes.len() as u64;
        drop(state);
        self.announce();
        true
    }

    /// Bytes that were written and are not out yet; none once the destination has failed.
    pub fn unwritten(&self) -> u64 {
        let state = lock(&self.shared.0);
        match state.failure {
            Some(_) => 0,
            None => state.written - state.drained,
        }
    }

    /// Returns why the destination has failed, if it has. The contents of the pipe are then lost,
    /// and no writer was told.
    pub fn failure(&self) -> Option<ErrorKind> {
        lock(&self.shared.0).failure
    }

    /// True if `ready` holds now; otherwise `waker` is called when the pipe has changed.
    pub fn poll(&self, waker: &Waker, ready: impl Fn(Progress) -> bool) -> bool {
        let mut state = lock(&self.shared.0);
        let progress = Progress {
            room: CAPACITY - state.bytes.len(),
            unwritten: state.written - state.drained,
            broken: state.failure.is_some(),
        };
        if progress.broken || ready(progress) {
            return true;
        }
        // One waker per waiting execution at most: a waker that is already there is replaced.
        match state
            .waiting
            .iter_mut()
            .find(|other| other.will_wake(waker))
        {
            Some(other) => other.clone_from(waker),
            None => state.waiting.push(waker.clone()),
        }
        false
    }

    /// No more is written: the drain ends when it has written everything out.
    pub fn close(&self) {
        lock(&self.shared.0).closed = true;
        self.shared.1.notify_all();
    }

    /// Blocks the calling thread until everything written so far is out, or the destination has
    /// failed.
    pub fn flush_blocking(&self) {
        let mut state = lock(&self.shared.0);
        let target = state.written;
        while state.drained < target && state.failure.is_none() {
            state = match self.shared.1.wait(state) {
                Ok(state) => state,
                Err(poisoned) => poisoned.into_inner(),
            };
        }
    }

    /// Takes everything that is in the pipe; blocks while it is empty. `None` when it is closed
    /// and empty.
    fn take(&self, into: &mut Vec<u8>) -> Option<()> {
        let mut state = lock(&self.shared.0);
        while state.bytes.is_empty() {
            if state.closed {
                return None;
            }
            state = match self.shared.1.wait(state) {
                Ok(state) => state,
                Err(poisoned) => poisoned.into_inner(),
            };
        }
        into.clear();
        let (front, back) = state.bytes.as_slices();
        into.extend_from_slice(front);
        into.extend_from_slice(back);
        state.bytes.clear();
        Some(())
    }

    fn taken(&self, bytes: u64, failure: Option<ErrorKind>) {
        let mut state = lock(&self.shared.0);
        state.drained += bytes;
        state.failure = state.failure.or(failure);
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        self.shared.1.notify_all();
        for waker in waiting {
            waker.wake();
        }
    }

    /// Writes everything that comes through the pipe to `destination`, until it is closed.
    /// Blocks the calling thread: give it a thread of its own.
    pub fn drain(&self, mut destination: impl Write) {
        let mut buffer = Vec::new();
        while self.take(&mut buffer).is_some() {
            let result = destination
                .write_all(&buffer)
                .and_then(|()| destination.flush());
            self.taken(buffer.len() as u64, result.err().map(|error| error.kind()));
        }
    }
}

/// How far a pipe is, for [`Pipe::poll`].
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// Bytes that can be written now.
    pub room: usize,
    /// Bytes written into the pipe and not yet out at the destination.
    pub unwritten: u64,
    /// The destination has failed.
    pub broken: bool,
}

#[cfg(all(test, loom))]
mod model {
    use super::Pipe;
    use loom::thread;
    use std::io::Write;

    struct Sink(loom::sync::Arc<loom::sync::Mutex<Vec<u8>>>);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("sink").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn everything_written_before_close_arrives_in_order() {
        loom::model(|| {
            let pipe = Pipe::new();
            let out = loom::sync::Arc::new(loom::sync::Mutex::new(Vec::new()));
            let drain = {
                let (pipe, sink) = (pipe.clone(), Sink(out.clone()));
                thread::spawn(move || pipe.drain(sink))
            };
            assert_eq!(pipe.write(b"a"), Some(1));
            assert_eq!(pipe.write(b"b"), Some(1));
            pipe.close();
            drain.join().expect("drain");
            assert_eq!(*out.lock().expect("out"), b"ab");
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{CAPACITY, Pipe};
    use crate::bell::Bell;
    use std::task::Waker;

    struct Broken;

    impl std::io::Write for Broken {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_writer_gets_no_more_than_the_capacity_ahead_of_its_destination() {
        let pipe = Pipe::new();
        assert_eq!(pipe.write(&vec![1; CAPACITY + 5]), Some(CAPACITY));
        assert_eq!(pipe.write(&[1]), Some(0));
        assert_eq!(pipe.room(), Some(0));
        assert!(!pipe.poll(Waker::noop(), |progress| progress.room > 0));
    }

    #[test]
    fn several_pipes_are_drained_by_one_bell() {
        let bell = Bell::default();
        let pipes = [Pipe::rung_by(&bell), Pipe::rung_by(&bell)];
        assert_eq!(pipes[1].write(b"b"), Some(1));
        bell.wait();
        let mut taken = Vec::new();
        assert!(!pipes[0].take_now(&mut taken));
        assert!(pipes[1].take_now(&mut taken));
        assert_eq!(pipes[0].write(b"a"), Some(1));
        bell.wait();
        assert!(pipes[0].take_now(&mut taken));
        assert_eq!(taken, b"ba");
        assert!(pipes.iter().all(|pipe| pipe.unwritten() == 0));
    }

    #[test]
    fn a_line_is_written_whole_or_not_at_all() {
        let pipe = Pipe::new();
        assert!(pipe.write_whole(&vec![1; CAPACITY - 2]));
        assert!(!pipe.write_whole(&[2; 3]));
        assert!(pipe.write_whole(&[2; 2]));
        assert_eq!(pipe.unwritten(), CAPACITY as u64);
    }

    #[test]
    fn a_destination_that_fails_is_an_error_to_the_writer_and_blocks_no_thread() {
        let pipe = Pipe::new();
        assert_eq!(pipe.write(b"lost"), Some(4));
        let drain = pipe.clone();
        let thread = std::thread::spawn(move || drain.drain(Broken));
        pipe.flush_blocking();
        assert_eq!(pipe.write(b"more"), None);
        assert!(pipe.failure().is_some());
        assert!(pipe.poll(Waker::noop(), |_| false));
        pipe.close();
        thread.join().expect("drain ends");
    }
}
