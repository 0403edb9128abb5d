//! The lines that tenants write: bounded in length, in rate, and in how many are kept.

use crate::view::{LogLine, LogStream};
use jiff::Timestamp;
use leasehold_cell::{Bell, Destination, Output};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::watch;

/// Lines that are kept of a tenant.
const KEPT: usize = 1000;
/// The longest line, bytes; the rest of a longer one is left out.
const LONGEST: usize = 4096;
/// Lines of different requests without an end yet, of each stream. Before there is another one, that of the
/// oldest request ends where it is.
const MOST_BEGUN: usize = 256;
/// Lines a second of one tenant, and how many at once.
const RATE: f64 = 500.0;
const BURST: f64 = 2000.0;

/// Writes a line of a tenant to the process's own output. It must not block.
pub type Printer = Arc<dyn Fn(&str, &LogLine) + Send + Sync>;

/// The logs of all tenants, and the thread that reads what they write.
pub struct Logs {
    bell: Bell,
    printer: Printer,
    all: Mutex<HashMap<String, Arc<Log>>>,
}

impl Logs {
    /// Logs that are not read yet.
    pub fn new(printer: Printer) -> Arc<Self> {
        Arc::new(Self {
            bell: Bell::default(),
            printer,
            all: Mutex::default(),
        })
    }

    /// Starts the thread that reads them, confined as the calling one.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn begin(self: &Arc<Self>) -> io::Result<()> {
        let (bell, weak) = (self.bell.clone(), Arc::downgrade(self));
        let thread = std::thread::Builder::new().name("leasehold-logs".to_owned());
        thread.spawn(move || {
            loop {
                bell.wait();
                let Some(logs) = weak.upgrade() else {
                    return;
                };
                let all: Vec<_> = logs.all().values().cloned().collect();
                all.iter().for_each(|log| log.collect());
            }
        })?;
        Ok(())
    }

    /// Returns the log of a tenant, if it has one.
    pub fn get(&self, tenant: &str) -> Option<Arc<Log>> {
        self.all().get(tenant).cloned()
    }

    /// Returns the log of a tenant, and makes it if there is none.
    pub fn of(&self, tenant: &str) -> Arc<Log> {
        let mut all = self.all();
        let new = || {
            Arc::new(Log {
                tenant: tenant.to_owned(),
                printer: self.printer.clone(),
                stdout: Destination::rung_by(&self.bell),
                stderr: Destination::rung_by(&self.bell),
                state: Mutex::new(State::new()),
                newest: watch::Sender::new(0),
            })
        };
        all.entry(tenant.to_owned()).or_insert_with(new).clone()
    }

    pub(crate) fn forget(&self, tenant: &str) {
        self.all().remove(tenant);
    }

    /// Reads everything that tenants wrote, lines without an end included.
    pub fn finish(&self) {
        let all: Vec<_> = self.all().values().cloned().collect();
        all.iter().for_each(|log| log.finish());
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Arc<Log>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        self.bell.ring();
    }
}

/// The log of a tenant.
pub struct Log {
    tenant: String,
    printer: Printer,
    stdout: Destination,
    stderr: Destination,
    state: Mutex<State>,
    /// The number of the newest line.
    newest: watch::Sender<u64>,
}

struct State {
    /// Lines without an end yet: of standard output, and of standard error.
    begun: [Parts; 2],
    kept: VecDeque<LogLine>,
    written: u64,
    tokens: f64,
    refilled: Instant,
    /// Lines that were dropped since the last message on dropped lines.
    dropped: u64,
}

/// The number of a request, if a line belongs to one.
type Request = Option<NonZeroU64>;

/// The lines of a stream without an end yet: one of each request.
#[derive(Default)]
struct Parts(BTreeMap<Request, Begun>);

impl Parts {
    /// Adds what was read of a request, and returns the lines that have an end.
    fn add(&mut self, request: Request, bytes: &[u8]) -> Vec<(Request, String)> {
        let mut lines = Vec::new();
        if !self.0.contains_key(&request) && self.0.len() == MOST_BEGUN {
            // Requests are numbered in their order, and bytes of none come first.
            let oldest = self.0.keys().find(|request| request.is_some()).copied();
            lines.extend(oldest.and_then(|oldest| self.rest(oldest)));
        }
        let begun = self.0.entry(request).or_default();
        lines.extend(begun.add(bytes).into_iter().map(|line| (request, line)));
        if begun.is_empty() {
            self.0.remove(&request);
        }
        lines
    }

    /// Takes what there is of the line of a request.
    fn rest(&mut self, request: Request) -> Option<(Request, String)> {
        let mut begun = self.0.remove(&request)?;
        begun.rest().map(|line| (request, line))
    }

    /// Takes what there is of all lines.
    fn rests(&mut self) -> Vec<(Request, String)> {
        let all: Vec<_> = self.0.keys().copied().collect();
        let rests = all.into_iter().map(|request| self.rest(request));
        rests.flatten().collect()
    }
}

/// A line without an end yet.
#[derive(Default)]
struct Begun {
    bytes: Vec<u8>,
    left_out: usize,
}

impl Begun {
    /// Adds what was read, and returns the lines that have an end.
    fn add(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut lines = Vec::new();
        let mut parts = bytes.split(|byte| *byte == b'\n').peekable();
        while let Some(part) = parts.next() {
            let room = LONGEST - self.bytes.len();
            self.bytes.extend_from_slice(&part[..part.len().min(room)]);
            self.left_out += part.len().saturating_sub(room);
            if parts.peek().is_some() {
                lines.push(self.take());
            }
        }
        lines
    }

    fn take(&mut self) -> String {
        let mut line = String::from_utf8_lossy(&self.bytes).into_owned();
        if line.ends_with('\r') {
            line.pop();
        }
        if self.left_out > 0 {
            line.push_str(&format!(" … {} bytes more", self.left_out));
        }
        self.bytes.clear();
        self.left_out = 0;
        line
    }

    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn rest(&mut self) -> Option<String> {
        (!self.bytes.is_empty()).then(|| self.take())
    }
}

impl State {
    fn new() -> Self {
        Self {
            begun: Default::default(),
            kept: VecDeque::new(),
            written: 0,
            tokens: BURST,
            refilled: Instant::now(),
            dropped: 0,
        }
    }

    /// Whether another line may be written now.
    fn pays(&mut self) -> bool {
        let now = Instant::now();
        let since = now.duration_since(self.refilled).as_secs_f64();
        self.refilled = now;
        self.tokens = (self.tokens + since * RATE).min(BURST);
        let pays = self.tokens >= 1.0;
        if pays {
            self.tokens -= 1.0;
        }
        pays
    }
}

impl Log {
    /// Returns the outputs to which the tenant's standard output and standard error go.
    pub fn outputs(&self) -> (Output, Output) {
        (
            Output::To(self.stdout.clone()),
            Output::To(self.stderr.clone()),
        )
    }

    /// Adds what the host says about the tenant, a line for each; it is never dropped.
    pub fn say(&self, text: &str) {
        let mut state = self.state();
        for line in text.lines() {
            self.keep(&mut state, LogStream::Host, (None, line.to_owned()));
        }
    }

    /// Reads what the tenant wrote so far.
    pub(crate) fn collect(&self) {
        self.read(false);
    }

    /// Reads what the tenant wrote, as `read`; a line without an end counts as a line.
    pub(crate) fn finish(&self) {
        self.read(true);
    }

    fn read(&self, ends: bool) {
        let mut state = self.state();
        let streams = [
            (&self.stdout, LogStream::Stdout),
            (&self.stderr, LogStream::Stderr),
        ];
        for (at, (destination, stream)) in streams.into_iter().enumerate() {
            destination.take(|request, bytes| {
                let lines = state.begun[at].add(request, bytes);
                self.take(&mut state, stream, lines);
            });
            if ends {
                let rests = state.begun[at].rests();
                self.take(&mut state, stream, rests);
            }
        }
        if ends {
            self.say_dropped(&mut state);
        }
    }

    /// Keeps the lines that the tenant may write now.
    fn take(&self, state: &mut State, stream: LogStream, lines: Vec<(Request, String)>) {
        for line in lines {
            match state.pays() {
                true => {
                    self.say_dropped(state);
                    self.keep(state, stream, line);
                }
                false => state.dropped += 1,
            }
        }
    }

    fn say_dropped(&self, state: &mut State) {
        let dropped = std::mem::take(&mut state.dropped);
        if dropped > 0 {
            let said = format!("{dropped} lines were dropped: a tenant may write {RATE} a second");
            self.keep(state, LogStream::Host, (None, said));
        }
    }

    fn keep(&self, state: &mut State, stream: LogStream, (request, line): (Request, String)) {
        let line = LogLine {
            at: Timestamp::now(),
            stream,
            line,
            request: request.map(NonZeroU64::get),
        };
        (self.printer)(&self.tenant, &line);
        if state.kept.len() == KEPT {
            state.kept.pop_front();
        }
        state.kept.push_back(line);
        state.written += 1;
        self.newest.send_replace(state.written);
    }

    /// Returns the lines after the `since`-th that are still kept, at most the last `most`, and the number of
    /// the newest.
    pub fn after(&self, since: u64, most: usize) -> (u64, Vec<LogLine>) {
        let state = self.state();
        let new = usize::try_from(state.written.saturating_sub(since)).unwrap_or(usize::MAX);
        let shown = new.min(most).min(state.kept.len());
        let lines = state.kept.range(state.kept.len() - shown..);
        (state.written, lines.cloned().collect())
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{BURST, Begun, KEPT, LONGEST, Log, Logs, MOST_BEGUN, Parts};
    use crate::view::LogStream;
    use leasehold_cell::Output;
    use std::num::NonZeroU64;
    use std::sync::Arc;

    fn write(log: &Log, bytes: &[u8]) {
        match log.outputs().0 {
            Output::To(destination) => assert!(destination.put(bytes)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_line_is_kept_until_it_ends_and_a_long_one_is_cut() {
        let mut begun = Begun::default();
        assert!(begun.add(b"ha").is_empty());
        assert_eq!(begun.add(b"lf\nwhole\r\nbe"), ["half", "whole"]);
        assert_eq!(begun.rest().as_deref(), Some("be"));
        begun.add(&[b'x'; LONGEST + 7]);
        assert!(begun.add(b"\n")[0].ends_with(" … 7 bytes more"));
        assert_eq!(begun.rest(), None);
    }

    #[test]
    fn lines_of_requests_are_put_together_apart_from_each_other_and_so_many_at_a_time() {
        let mut parts = Parts::default();
        let [none, one, two] = [0, 1, 2].map(NonZeroU64::new);
        assert!(parts.add(one, b"on").is_empty());
        assert!(parts.add(none, b"nei").is_empty());
        assert_eq!(parts.add(two, b"two\nmo"), [(two, "two".to_owned())]);
        assert_eq!(parts.add(one, b"e\n"), [(one, "one".to_owned())]);
        assert_eq!(parts.add(none, b"ther\n"), [(none, "neither".to_owned())]);
        let more = 3..MOST_BEGUN as u64 + 2;
        assert!(
            more.clone()
                .all(|at| parts.add(NonZeroU64::new(at), b"x").is_empty())
        );
        let last = NonZeroU64::new(more.end);
        assert_eq!(
            parts.add(last, b"x"),
            [(two, "mo".to_owned())],
            "the oldest ends"
        );
        assert_eq!(parts.rests().len(), MOST_BEGUN);
        assert!(parts.0.is_empty());
    }

    #[test]
    fn what_is_written_too_fast_is_dropped_counted_and_said() {
        let logs = Logs::new(Arc::new(|_, _| ()));
        let log = logs.of("a");
        let count = BURST as usize + 100;
        for _ in 0..count {
            write(&log, b"line\n");
        }
        log.finish();
        let (_, lines) = log.after(0, usize::MAX);
        assert_eq!(lines.len(), KEPT);
        let said = lines.iter().find(|line| line.stream == LogStream::Host);
        assert!(said.is_some_and(|line| line.line.contains("lines were dropped")));
    }

    #[test]
    fn a_reader_gets_what_is_new_to_it() {
        let logs = Logs::new(Arc::new(|_, _| ()));
        let log = logs.of("a");
        write(&log, b"one\ntwo\nthree");
        log.finish();
        let (newest, lines) = log.after(0, 2);
        assert_eq!(newest, 3);
        assert_eq!(
            lines.iter().map(|line| &*line.line).collect::<Vec<_>>(),
            ["two", "three"]
        );
        assert!(log.after(newest, 9).1.is_empty());
    }
}
