//! Bounded byte pipes from cells to one destination that may block. Tenants' output reaches a terminal, a
//! file or another process through it, and a cell's thread never waits.
//!
//! Each tenant has a pipe of its own. The writing side never blocks: it takes as many bytes as fit and signals
//! when there is room again. The reading side is one thread for each destination, which writes out what is in
//! the pipes in turns of [`TURN`](crate::TURN) bytes. So what a tenant writes waits for at most one turn of
//! each other tenant, whatever they write and however slowly the destination takes it.

use crate::backlog::{Backlog, PROMISE, PipeId, Source, Turn, Until, Written};
use crate::bell::Bell;
use crate::output_time::OutputTime;
use crate::sync::{Arc, Condvar, Mutex, MutexGuard, lock, wait};
use crate::tag::Tag;
use std::io::{ErrorKind, Write};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::Waker;

/// The pipes that lead to one destination; clones share them.
#[derive(Clone)]
pub struct Funnel {
    shared: Arc<(Mutex<Backlog>, Condvar)>,
    bell: Option<Bell>,
}

impl Default for Funnel {
    fn default() -> Self {
        Self::new()
    }
}

impl Funnel {
    /// A funnel for a thread that [drains](Self::drain) it.
    pub fn new() -> Self {
        Self {
            shared: Arc::new((Mutex::new(Backlog::default()), Condvar::new())),
            bell: None,
        }
    }

    /// A funnel for a thread that empties several ones with [`take_now`](Self::take_now): the bell rings when
    /// something was written.
    pub fn rung_by(bell: &Bell) -> Self {
        Self {
            bell: Some(bell.clone()),
            ..Self::new()
        }
    }

    /// The pipe of the tenant with this time, which writing its output out is added to. A tenant has one,
    /// however often this is called.
    pub fn pipe(&self, time: &OutputTime) -> Pipe {
        self.tagged_pipe(time, &Tag::default())
    }

    /// The same for a writer whose bytes belong to the request of `tag`. The last line of each request ends
    /// with it.
    pub fn tagged_pipe(&self, time: &OutputTime, tag: &Tag) -> Pipe {
        self.open(Source::Tenant(time.clone()), tag.clone())
    }

    fn open(&self, source: Source, tag: Tag) -> Pipe {
        let id = self.backlog().open(source);
        Pipe(Arc::new(End {
            funnel: self.clone(),
            id,
            tag,
            begun: AtomicU64::new(0),
            promised: AtomicUsize::new(0),
        }))
    }

    /// Writes all of `bytes` into the host's pipe with this name, or nothing if they do not fit or the
    /// destination has failed; whether it did. Never blocks. No tenant pays for writing them out.
    pub fn put(&self, name: &str, bytes: &[u8]) -> bool {
        self.open(Source::Host(name.to_owned()), Tag::default())
            .write_whole(bytes)
    }

    /// Tells the reading side that a pipe has something.
    fn announce(&self) {
        match &self.bell {
            Some(bell) => bell.ring(),
            None => self.shared.1.notify_all(),
        }
    }

    /// Bytes that were written and are not out yet; none once the destination has failed.
    pub fn unwritten(&self) -> u64 {
        self.backlog().unwritten()
    }

    /// Returns why the destination has failed, if it has. The contents of the pipes are then lost,
    /// and no writer was told.
    pub fn failure(&self) -> Option<ErrorKind> {
        self.backlog().failure()
    }

    /// Nothing can be written any more: writing is an error, and waiting ends.
    pub fn fail(&self, failure: ErrorKind) {
        let woken = self.backlog().fail(failure);
        self.shared.1.notify_all();
        woken.into_iter().for_each(Waker::wake);
    }

    /// No more is written: the drain ends when it has written everything out.
    pub fn close(&self) {
        self.backlog().close();
        self.shared.1.notify_all();
    }

    /// Blocks the calling thread until everything written so far is out, or the destination has
    /// failed.
    pub fn flush_blocking(&self) {
        let mut backlog = self.backlog();
        let marks = backlog.marks();
        while backlog.failure().is_none() && !backlog.is_past(&marks) {
            backlog = self.wait(backlog);
        }
    }

    fn wait<'a>(&'a self, backlog: MutexGuard<'a, Backlog>) -> MutexGuard<'a, Backlog> {
        wait(&self.shared.1, &self.shared.0, backlog, None)
    }

    fn backlog(&self) -> MutexGuard<'_, Backlog> {
        lock(&self.shared.0)
    }

    fn end_turn(&self, turn: &Turn) {
        let woken = self.backlog().end_turn(turn);
        self.shared.1.notify_all();
        woken.into_iter().for_each(Waker::wake);
    }

    /// Calls `with` with what the pipes hold and the request that it belongs to, in turns, and charges each
    /// tenant with the time that this took on `cpu_ns`, the calling thread's processor time. Takes at least
    /// what was there when it was called. Never blocks. One thread at a time may call it.
    pub fn take_now(
        &self,
        mut with: impl FnMut(Option<NonZeroU64>, &[u8]),
        cpu_ns: impl Fn() -> u64,
    ) {
        let mut left = self.unwritten();
        let mut bytes = Vec::new();
        while left > 0 {
            let began_ns = cpu_ns();
            let Some(turn) = self.backlog().begin_turn(&mut bytes) else {
                return;
            };
            let mut rest = &bytes[..];
            for run in turn.runs() {
                let part;
                (part, rest) = rest.split_at(run.bytes);
                with(run.request, part);
            }
            turn.charge(cpu_ns().saturating_sub(began_ns));
            left = left.saturating_sub(turn.bytes() as u64);
            self.end_turn(&turn);
        }
        // A pipe that had something all the time has not rung.
        if self.unwritten() > 0 {
            self.announce();
        }
    }

    /// Begins the next turn; blocks while all pipes are empty. `None` when they are closed and empty.
    fn next_turn(&self, into: &mut Vec<u8>) -> Option<Turn> {
        let mut backlog = self.backlog();
        loop {
            let turn = backlog.begin_turn(into);
            if turn.is_some() || backlog.is_closed() {
                return turn;
            }
            backlog = self.wait(backlog);
        }
    }

    /// Writes everything that comes through the pipes to `destination`, in turns, until they are closed or the
    /// destination fails. The time that passes meanwhile on `cpu_ns`, the calling thread's processor time, is
    /// charged to the tenants that wrote it. Blocks the calling thread: give it a thread of its own.
    pub fn drain(&self, mut destination: impl Write, cpu_ns: impl Fn() -> u64) {
        let mut bytes = Vec::new();
        let mut began_ns = cpu_ns();
        while let Some(turn) = self.next_turn(&mut bytes) {
            let result = destination
                .write_all(&bytes)
                .and_then(|()| destination.flush());
            // Before a tenant learns that its output is out.
            let now_ns = cpu_ns();
            turn.charge(now_ns.saturating_sub(began_ns));
            began_ns = now_ns;
            match result {
                Ok(()) => self.end_turn(&turn),
                Err(error) => return self.fail(error.kind()),
            }
        }
    }
}

/// The end of a tenant's pipe that is written to; clones share it.
#[derive(Clone)]
pub struct Pipe(Arc<End>);

struct End {
    funnel: Funnel,
    id: PipeId,
    tag: Tag,
    /// The request of a line that was begun here and has no end yet; 0 if there is none. Only the thread that
    /// writes uses it.
    begun: AtomicU64,
    /// Bytes that were promised here and not written yet. Only the thread that writes uses it.
    promised: AtomicUsize,
}

impl End {
    /// Writes as much of `bytes` as fits, or, if they have to be `whole`, nothing if not all of them do.
    fn write(&self, bytes: &[u8], whole: bool) -> Option<usize> {
        let request = self.request();
        self.put(bytes, request, whole)
    }

    /// The request of what is written next. A line of the one before is over.
    fn request(&self) -> Option<NonZeroU64> {
        let request = self.tag.get();
        if request.map_or(0, NonZeroU64::get) != self.begun.load(Ordering::Relaxed) {
            self.finish_line();
        }
        request
    }

    fn put(&self, bytes: &[u8], request: Option<NonZeroU64>, whole: bool) -> Option<usize> {
        let mut backlog = self.funnel.backlog();
        if whole && backlog.room(self.id, request)? < bytes.len() {
            return Some(0);
        }
        let written = backlog.write(self.id, bytes, request)?;
        drop(backlog);
        Some(self.was_put(bytes, request, written))
    }

    /// Writes all of `bytes` if no more were promised; the promise is for so much less afterwards.
    fn write_promised(&self, bytes: &[u8]) -> Option<bool> {
        let request = self.request();
        let promised = self.promised.load(Ordering::Relaxed);
        let Some(left) = promised.checked_sub(bytes.len()) else {
            return self
                .put(bytes, request, true)
                .map(|written| written == bytes.len());
        };
        let written = self
            .funnel
            .backlog()
            .write_promised(self.id, bytes, request)?;
        self.promised.store(left, Ordering::Relaxed);
        self.was_put(bytes, request, written);
        Some(true)
    }

    /// Tells the reading side, and remembers whether a line has begun. Returns how many bytes were put in.
    fn was_put(&self, bytes: &[u8], request: Option<NonZeroU64>, written: Written) -> usize {
        if let Some(last) = bytes[..written.bytes].last() {
            let begun = request.filter(|_| *last != b'\n');
            let begun = begun.map_or(0, NonZeroU64::get);
            self.begun.store(begun, Ordering::Relaxed);
        }
        if written.is_first {
            self.funnel.announce();
        }
        written.bytes
    }

    /// Ends the line that a request has begun, if there is room. Lines of no request are left as they are.
    fn finish_line(&self) {
        if let Some(request) = NonZeroU64::new(self.begun.swap(0, Ordering::Relaxed)) {
            let _ = self.put(b"\n", Some(request), true);
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.finish_line();
        self.funnel.backlog().close_end(self.id);
    }
}

impl Pipe {
    /// How many bytes [`write`](Self::write) would take now; `None` once the destination has failed.
    pub fn room(&self) -> Option<usize> {
        // Before the room is known, so that it is for what the caller writes alone.
        let request = self.0.request();
        self.0.funnel.backlog().room(self.0.id, request)
    }

    /// How many bytes [`write_promised`](Self::write_promised) will take in total before this is called again,
    /// whatever other ends of the pipe write meanwhile: at most [`PROMISE`]. `None` once the destination has
    /// failed.
    pub fn promise(&self) -> Option<usize> {
        let promised = self.room()?.min(PROMISE);
        self.0.promised.store(promised, Ordering::Relaxed);
        Some(promised)
    }

    /// Writes all of `bytes` if they were [promised](Self::promise) or fit, else nothing; whether it did. `None`
    /// once the destination has failed.
    pub fn write_promised(&self, bytes: &[u8]) -> Option<bool> {
        self.0.write_promised(bytes)
    }

    /// Writes as much of `bytes` as fits and returns how much that was; `None` once the
    /// destination has failed.
    pub fn write(&self, bytes: &[u8]) -> Option<usize> {
        self.0.write(bytes, false)
    }

    /// Writes all of `bytes`, or nothing if they do not fit or the destination has failed; whether it
    /// did. Never blocks.
    pub fn write_whole(&self, bytes: &[u8]) -> bool {
        self.0.write(bytes, true) == Some(bytes.len())
    }

    /// The request is over: the line that it has begun here ends.
    pub fn finish_line(&self) {
        self.0.finish_line();
    }

    /// True if `until` holds now or the destination has failed; otherwise `waker` is called when the pipe has
    /// changed.
    pub fn poll(&self, waker: &Waker, until: Until) -> bool {
        let until = (until, self.0.tag.get());
        self.0.funnel.backlog().poll(self.0.id, waker, until)
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::{Funnel, OutputTime};
    use crate::backlog::TURN;
    use loom::thread;
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    /// Its lock is never contended: no thread of a model is interrupted between two places that the model knows.
    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl Sink {
        fn bytes(&self) -> Vec<u8> {
            self.0.lock().expect("sink").clone()
        }
    }

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("sink").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn drained() -> (Funnel, Sink, thread::JoinHandle<()>) {
        let (funnel, sink) = (Funnel::new(), Sink::default());
        let drain = {
            let (funnel, sink) = (funnel.clone(), sink.clone());
            thread::spawn(move || funnel.drain(sink, || 0))
        };
        (funnel, sink, drain)
    }

    /// Explores every interleaving in which threads are interrupted at most three times.
    fn model(check: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(check);
    }

    #[test]
    fn everything_written_before_close_arrives_in_order() {
        loom::model(|| {
            let (funnel, sink, drain) = drained();
            let pipe = funnel.pipe(&OutputTime::default());
            assert_eq!(pipe.write(b"a"), Some(1));
            assert_eq!(pipe.write(b"b"), Some(1));
            funnel.close();
            drain.join().expect("drain");
            assert_eq!(sink.bytes(), b"ab");
        });
    }

    #[test]
    fn a_line_waits_for_one_turn_of_another_pipe_at_most() {
        model(|| {
            let (funnel, sink, drain) = drained();
            let flood = funnel.pipe(&OutputTime::default());
            let line = funnel.pipe(&OutputTime::default());
            assert_eq!(flood.write(&[b'x'; 3 * TURN]), Some(3 * TURN));
            assert_eq!(line.write(b"-"), Some(1));
            let out = sink.bytes().len();
            funnel.close();
            drain.join().expect("drain");
            let bytes = sink.bytes();
            let at = bytes.iter().position(|&byte| byte == b'-').expect("out");
            assert!(at <= out + TURN, "{at} of {out}");
            assert_eq!(bytes.len(), 3 * TURN + 1);
        });
    }

    #[test]
    fn what_two_tenants_write_at_once_is_out_when_each_has_flushed() {
        model(|| {
            let (funnel, sink, drain) = drained();
            let write = |funnel: &Funnel, sink: &Sink, byte: u8| {
                let pipe = funnel.pipe(&OutputTime::default());
                assert_eq!(pipe.write(&[byte]), Some(1));
                funnel.flush_blocking();
                assert!(sink.bytes().contains(&byte));
            };
            let other = (funnel.clone(), sink.clone());
            let writer = thread::spawn(move || write(&other.0, &other.1, b'a'));
            write(&funnel, &sink, b'b');
            writer.join().expect("writer");
            funnel.close();
            drain.join().expect("drain");
            assert_eq!(sink.bytes().len(), 2);
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{Funnel, OutputTime, Tag, Until};
    use crate::backlog::{CAPACITY, PROMISE, TURN};
    use crate::bell::Bell;
    use std::cell::Cell;
    use std::num::NonZeroU64;
    use std::sync::mpsc::{Receiver, channel};
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

    /// Hands on what is written, one write for each that the reader receives.
    struct Slow(std::sync::mpsc::SyncSender<Vec<u8>>);

    impl std::io::Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let sent = self.0.send(bytes.to_vec());
            sent.map_err(|_| std::io::ErrorKind::BrokenPipe)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// A funnel whose reader takes something only when it is received.
    fn slow() -> (Funnel, Receiver<Vec<u8>>) {
        let (sender, reader) = std::sync::mpsc::sync_channel(0);
        let funnel = Funnel::new();
        let drain = funnel.clone();
        std::thread::spawn(move || drain.drain(Slow(sender), || 0));
        (funnel, reader)
    }

    #[test]
    fn a_line_comes_out_within_one_turn_of_each_other_tenant_although_they_write_without_end() {
        const FLOODS: usize = 5;
        let (funnel, reader) = slow();
        let floods = [(); FLOODS].map(|()| funnel.pipe(&OutputTime::default()));
        let quiet = funnel.pipe(&OutputTime::default());
        let flood = || {
            for pipe in &floods {
                let _ = pipe.write(&[b'x'; CAPACITY]);
            }
        };
        flood();
        for round in 0..50 {
            // The reader is in the middle of a round.
            for _ in 0..round % FLOODS {
                let _ = reader.recv();
                flood();
            }
            assert_eq!(quiet.write(b"line\n"), Some(5));
            let mut bytes = 0;
            while let Ok(turn) = reader.recv()
                && turn != b"line\n"
            {
                bytes += turn.len();
                flood();
            }
            assert!(bytes <= FLOODS * TURN, "{bytes}");
        }
    }

    #[test]
    fn a_tenant_that_waits_for_room_is_woken_once_for_many_turns() {
        let (funnel, reader) = slow();
        let pipe = funnel.pipe(&OutputTime::default());
        let (woken, wakes) = channel();
        struct Wake(std::sync::mpsc::Sender<()>);
        impl std::task::Wake for Wake {
            fn wake(self: std::sync::Arc<Self>) {
                // The test may have ended.
                let _ = self.0.send(());
            }
        }
        let waker = Waker::from(std::sync::Arc::new(Wake(woken)));
        while pipe.room() != Some(0) {
            let _ = pipe.write(&[b'x'; CAPACITY]);
        }
        assert!(!pipe.poll(&waker, Until::Room));
        let mut turns = 0;
        while wakes.try_recv().is_err() {
            assert_eq!(reader.recv().map(|turn| turn.len()), Ok(TURN));
            turns += 1;
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert!(turns >= CAPACITY / TURN / 2, "{turns}");
        assert!(pipe.poll(&waker, Until::Room));
    }

    #[test]
    fn what_an_end_was_promised_fits_once_whatever_other_ends_write_meanwhile() {
        let funnel = Funnel::new();
        let time = OutputTime::default();
        let (first, other) = (funnel.pipe(&time), funnel.pipe(&time));
        let promised = first.promise().expect("a destination");
        assert_eq!(promised, PROMISE);
        assert_eq!(other.write(&[0; 2 * CAPACITY]), Some(CAPACITY));
        assert_eq!(other.promise(), Some(0));
        assert_eq!(first.write_promised(&vec![1; promised + 1]), Some(false));
        assert_eq!(first.write_promised(&vec![1; promised - 1]), Some(true));
        assert_eq!(first.write_promised(&[1]), Some(true));
        assert_eq!(
            first.write_promised(&[1]),
            Some(false),
            "beyond the promise"
        );
        assert_eq!(first.room(), Some(0));
        let mut out = Vec::new();
        funnel.take_now(|_, bytes| out.extend_from_slice(bytes), || 0);
        assert_eq!(out.len(), CAPACITY + PROMISE);
        assert_eq!(out[CAPACITY..], [1; PROMISE]);
        assert_eq!(
            first.write_promised(&[1; 2 * PROMISE]),
            Some(true),
            "it fits"
        );
    }

    #[test]
    fn a_writer_gets_no_more_than_the_capacity_ahead_of_its_destination() {
        let funnel = Funnel::new();
        let pipe = funnel.pipe(&OutputTime::default());
        assert_eq!(pipe.write(&vec![1; CAPACITY + 5]), Some(CAPACITY));
        assert_eq!(pipe.write(&[1]), Some(0));
        assert_eq!(pipe.room(), Some(0));
        assert!(!pipe.poll(Waker::noop(), Until::Room));
        let other = funnel.pipe(&OutputTime::default());
        assert_eq!(other.room(), Some(CAPACITY), "of another tenant");
    }

    #[test]
    fn several_funnels_are_emptied_by_one_bell() {
        let bell = Bell::default();
        let funnels = [Funnel::rung_by(&bell), Funnel::rung_by(&bell)];
        let time = OutputTime::default();
        let pipes = [funnels[0].pipe(&time), funnels[1].pipe(&time)];
        let now = Cell::new(0);
        let take = |at: usize| {
            let mut taken = Vec::new();
            let cpu_ns = || now.replace(now.get() + 50);
            funnels[at].take_now(|_, bytes| taken.extend_from_slice(bytes), cpu_ns);
            taken
        };
        assert_eq!(pipes[1].write(b"b"), Some(1));
        bell.wait();
        assert_eq!((take(0), take(1)), (vec![], b"b".to_vec()));
        assert_eq!(pipes[0].write(b"a"), Some(1));
        bell.wait();
        assert_eq!(take(0), b"a");
        assert_eq!(time.take(), 100);
        assert!(funnels.iter().all(|funnel| funnel.unwritten() == 0));
    }

    #[test]
    fn what_is_written_while_a_funnel_is_emptied_rings_again() {
        let bell = Bell::default();
        let funnel = Funnel::rung_by(&bell);
        let pipe = funnel.pipe(&OutputTime::default());
        assert_eq!(pipe.write(b"a\n"), Some(2));
        bell.wait();
        funnel.take_now(|_, _| assert_eq!(pipe.write(b"b\n"), Some(2)), || 0);
        bell.wait();
        assert_eq!(funnel.unwritten(), 2);
    }

    #[test]
    fn lines_of_requests_that_are_written_in_parts_at_once_are_told_apart_and_end_with_them() {
        let funnel = Funnel::new();
        let time = OutputTime::default();
        let tags = [Tag::default(), Tag::default()];
        let pipes = [0, 1].map(|at| funnel.tagged_pipe(&time, &tags[at]));
        tags[0].set(NonZeroU64::new(1));
        tags[1].set(NonZeroU64::new(2));
        for (at, text) in [(0, "on"), (1, "tw"), (0, "e\nmo"), (1, "o\n"), (0, "re")] {
            assert_eq!(pipes[at].write(text.as_bytes()), Some(text.len()));
        }
        // The next request of the first one, the end of the second's, and the end of both writers.
        tags[0].set(NonZeroU64::new(3));
        assert_eq!(pipes[0].write(b"next"), Some(4));
        assert_eq!(pipes[1].write(b"last"), Some(4));
        pipes[1].finish_line();
        tags[1].set(None);
        assert_eq!(pipes[1].write(b"no request"), Some(10));
        drop(pipes);
        let mut texts = std::collections::BTreeMap::new();
        let add = |request: Option<NonZeroU64>, bytes: &[u8]| {
            let text: &mut Vec<u8> = texts.entry(request.map(NonZeroU64::get)).or_default();
            text.extend_from_slice(bytes);
        };
        funnel.take_now(add, || 0);
        assert_eq!(texts[&Some(1)], b"one\nmore\n");
        assert_eq!(texts[&Some(2)], b"two\nlast\n");
        assert_eq!(texts[&Some(3)], b"next\n");
        assert_eq!(texts[&None], b"no request");
    }

    #[test]
    fn a_line_is_written_whole_or_not_at_all() {
        let funnel = Funnel::new();
        assert!(funnel.put("host", &vec![1; CAPACITY - 2]));
        assert!(!funnel.put("host", &[2; 3]));
        assert!(funnel.put("host", &[2; 2]));
        assert!(funnel.put("other", &[2; 3]), "it has a pipe of its own");
        assert_eq!(funnel.unwritten(), CAPACITY as u64 + 3);
    }

    #[test]
    fn a_destination_that_fails_is_an_error_to_the_writer_and_blocks_no_thread() {
        let funnel = Funnel::new();
        let [pipe, idle] = [(); 2].map(|()| funnel.pipe(&OutputTime::default()));
        assert_eq!(pipe.write(b"lost"), Some(4));
        let drain = funnel.clone();
        let thread = std::thread::spawn(move || drain.drain(Broken, || 0));
        funnel.flush_blocking();
        thread.join().expect("drain ends");
        assert_eq!(pipe.write(b"more"), None);
        assert_eq!(
            idle.room(),
            None,
            "also of a tenant that has written nothing"
        );
        assert!(funnel.failure().is_some());
        assert_eq!(funnel.unwritten(), 0);
        assert!(pipe.poll(Waker::noop(), Until::Room));
        assert!(pipe.poll(Waker::noop(), Until::Out));
    }

    #[test]
    fn the_time_of_the_writing_thread_is_that_of_the_tenant_whose_output_it_writes() {
        let funnel = Funnel::new();
        let [one, other] = [(); 2].map(|()| OutputTime::default());
        assert_eq!(funnel.pipe(&one).write(b"abc"), Some(3));
        assert_eq!(funnel.pipe(&other).write(b"d"), Some(1));
        assert!(funnel.put("", b"host"));
        funnel.close();
        // The n-th look at the clock is 100 n² ns: the three turns take 100, 300 and 500 ns.
        let looks = Cell::new(0_u64);
        funnel.drain(std::io::sink(), || {
            100 * looks.replace(looks.get() + 1).pow(2)
        });
        assert_eq!((one.take(), other.take()), (100, 300));
    }
}
