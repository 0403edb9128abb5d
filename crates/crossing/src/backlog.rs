//! What waits in the pipes of a funnel, and the pipe whose turn is next. A state machine without threads:
//! [`Funnel`](crate::Funnel) is its lock.

use crate::output_time::OutputTime;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::ErrorKind;
use std::num::NonZeroU64;
use std::task::Waker;

/// The most bytes of a pipe that its destination has not taken yet, but for [promises](PROMISE).
pub const CAPACITY: usize = 64 * 1024;

/// The most bytes of a pipe that are written out before the other pipes have their turn.
pub const TURN: usize = 4 * 1024;

/// The most bytes that are promised to an end of a pipe. It can write them although other ends have filled the
/// pipe meanwhile, which then has so much more than its capacity for each end at most.
pub const PROMISE: usize = TURN;

/// A tenant that waits for room is woken when no more than this is left in its pipe: once for many turns.
const WAKE_AT: usize = CAPACITY / 2;

/// The most changes of the request in a pipe. One that is written to by several executions in turns, a few
/// bytes each, is full at this number: what says whose the bytes are takes memory, too.
const MOST_RUNS: usize = 4 * 1024;

/// Pipes of tenants that have ended whose output has not been written out. With one more, a tenant that
/// starts continues the oldest of them. So tenants that start and end beside a reader that does not read
/// take a bounded amount of memory.
const MOST_ABANDONED: usize = 64;

/// The writer of a pipe.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Source {
    /// A tenant, which pays for writing its output out.
    Tenant(OutputTime),
    /// The host, about a tenant of this name or about itself. No tenant pays.
    Host(String),
}

/// The number of a pipe. No other pipe of the funnel ever has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PipeId(u64);

/// What a writer waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// A byte can be written.
    Room,
    /// Everything that was written into the pipe is out.
    Out,
}

/// Bytes that follow each other and belong to one request, or to none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) request: Option<NonZeroU64>,
    pub(crate) bytes: usize,
}

struct PipeState {
    source: Source,
    /// Ends that can write.
    ends: usize,
    bytes: VecDeque<u8>,
    /// The requests that the bytes belong to.
    runs: VecDeque<Run>,
    /// Bytes at the front that an ended tenant has written: no tenant pays for them.
    inherited: usize,
    /// Put in so far, and written out so far: equal when everything is out.
    written: u64,
    out: u64,
    /// It is in the list of pipes whose turn comes, or has its turn.
    is_listed: bool,
    /// Its waiting executions are woken at the end of its turn.
    is_wake_due: bool,
    waiting: Vec<Waker>,
}

impl PipeState {
    fn new(source: Source) -> Self {
        Self {
            source,
            ends: 0,
            bytes: VecDeque::new(),
            runs: VecDeque::new(),
            inherited: 0,
            written: 0,
            out: 0,
            is_listed: false,
            is_wake_due: false,
            waiting: Vec::new(),
        }
    }

    fn room(&self, request: Option<NonZeroU64>) -> usize {
        let continues = self.runs.back().is_some_and(|run| run.request == request);
        match continues || self.runs.len() < MOST_RUNS {
            true => CAPACITY.saturating_sub(self.bytes.len()),
            false => 0,
        }
    }

    /// Puts in bytes that there is room for, or that were promised.
    fn put(&mut self, bytes: &[u8], request: Option<NonZeroU64>) {
        self.bytes.extend(bytes);
        self.written += bytes.len() as u64;
        match self.runs.back_mut() {
            Some(run) if run.request == request => run.bytes += bytes.len(),
            _ if bytes.is_empty() => {}
            _ => self.runs.push_back(Run {
                request,
                bytes: bytes.len(),
            }),
        }
    }

    /// Takes out the runs of the first `bytes`.
    fn take_runs(&mut self, mut bytes: usize) -> Vec<Run> {
        let mut taken = Vec::new();
        while bytes > 0
            && let Some(run) = self.runs.front_mut()
        {
            let part = run.bytes.min(bytes);
            taken.push(Run {
                bytes: part,
                ..*run
            });
            bytes -= part;
            run.bytes -= part;
            if run.bytes == 0 {
                self.runs.pop_front();
            }
        }
        taken
    }

    fn is_ready(&self, until: Until, request: Option<NonZeroU64>) -> bool {
        match until {
            Until::Room => self.room(request) > 0,
            Until::Out => self.out == self.written,
        }
    }

    /// Bytes of the next turn: whole lines if there is the end of one, else as much as a turn has. Lines of the
    /// host are never cut: they say of which tenant they are.
    fn next_bytes(&self) -> usize {
        let is_end = |&byte: &u8| byte == b'\n';
        let most = self.bytes.len().min(TURN);
        let last = self.bytes.range(..most).rposition(is_end);
        match (last, &self.source) {
            (Some(last), _) => last + 1,
            (None, Source::Tenant(_)) => most,
            (None, Source::Host(_)) => {
                let end = self.bytes.iter().position(is_end);
                end.map_or(self.bytes.len(), |end| end + 1)
            }
        }
    }
}

/// The contents of all pipes of a funnel.
#[derive(Default)]
pub(crate) struct Backlog {
    pipes: BTreeMap<PipeId, PipeState>,
    by_source: HashMap<Source, PipeId>,
    /// The pipes with bytes in the order of their turns, but for the one that has its turn.
    turns: VecDeque<PipeId>,
    /// Tenants' pipes without an end to write to, whose bytes are not out; the oldest first.
    abandoned: VecDeque<PipeId>,
    next: u64,
    /// Bytes of all pipes that are not out.
    unwritten: u64,
    is_closed: bool,
    failure: Option<ErrorKind>,
}

impl Backlog {
    /// Opens another end of the pipe of `source`.
    pub(crate) fn open(&mut self, source: Source) -> PipeId {
        let id = match self.by_source.get(&source) {
            Some(&id) => id,
            None => self.add(source),
        };
        self.abandoned.retain(|&other| other != id);
        self.pipe(id).ends += 1;
        id
    }

    fn add(&mut self, source: Source) -> PipeId {
        let is_tenant = matches!(source, Source::Tenant(_));
        let oldest = (is_tenant && self.abandoned.len() >= MOST_ABANDONED)
            .then(|| self.abandoned.pop_front());
        let id = match oldest.flatten() {
            Some(id) => {
                let pipe = self.pipe(id);
                pipe.inherited = pipe.bytes.len();
                let before = std::mem::replace(&mut pipe.source, source.clone());
                self.by_source.remove(&before);
                id
            }
            None => {
                let id = PipeId(self.next);
                self.next += 1;
                self.pipes.insert(id, PipeState::new(source.clone()));
                id
            }
        };
        self.by_source.insert(source, id);
        id
    }

    /// Closes an end. The pipe stays until its contents are out.
    pub(crate) fn close_end(&mut self, id: PipeId) {
        let pipe = self.pipe(id);
        pipe.ends -= 1;
        if pipe.ends > 0 {
            return;
        }
        // They belonged to executions that have ended.
        pipe.waiting.clear();
        if pipe.is_listed && matches!(pipe.source, Source::Tenant(_)) {
            self.abandoned.push_back(id);
        }
        self.remove_if_unused(id);
    }

    fn remove_if_unused(&mut self, id: PipeId) {
        let is_unused = |pipe: &PipeState| pipe.ends == 0 && !pipe.is_listed;
        if self.pipes.get(&id).is_some_and(is_unused)
            && let Some(pipe) = self.pipes.remove(&id)
        {
            self.by_source.remove(&pipe.source);
            self.abandoned.retain(|&other| other != id);
        }
    }

    /// The pipe of an open end.
    fn pipe(&mut self, id: PipeId) -> &mut PipeState {
        self.pipes
            .get_mut(&id)
            .expect("a pipe is there as long as it has an end or bytes")
    }

    /// Bytes that [`write`](Self::write) would take; `None` once the destination has failed.
    pub(crate) fn room(&mut self, id: PipeId, request: Option<NonZeroU64>) -> Option<usize> {
        match self.failure {
            Some(_) => None,
            None => Some(self.pipe(id).room(request)),
        }
    }

    /// Takes as much of `bytes`, which belong to `request`, as fits and returns how much that was; `None` once
    /// the destination has failed.
    pub(crate) fn write(
        &mut self,
        id: PipeId,
        bytes: &[u8],
        request: Option<NonZeroU64>,
    ) -> Option<Written> {
        let room = self.room(id, request)?;
        Some(self.put(id, &bytes[..bytes.len().min(room)], request))
    }

    /// Takes all of `bytes`, which were [promised](PROMISE), although the pipe may be full; `None` once the
    /// destination has failed.
    pub(crate) fn write_promised(
        &mut self,
        id: PipeId,
        bytes: &[u8],
        request: Option<NonZeroU64>,
    ) -> Option<Written> {
        match self.failure {
            Some(_) => None,
            None => Some(self.put(id, bytes, request)),
        }
    }

    fn put(&mut self, id: PipeId, bytes: &[u8], request: Option<NonZeroU64>) -> Written {
        let pipe = self.pipe(id);
        pipe.put(bytes, request);
        let is_first = !pipe.is_listed && !bytes.is_empty();
        if is_first {
            pipe.is_listed = true;
            self.turns.push_back(id);
        }
        self.unwritten += bytes.len() as u64;
        Written {
            bytes: bytes.len(),
            is_first,
        }
    }

    /// Whether `until` holds, or never will. Otherwise `waker` is called when it may.
    pub(crate) fn poll(
        &mut self,
        id: PipeId,
        waker: &Waker,
        (until, request): (Until, Option<NonZeroU64>),
    ) -> bool {
        if self.failure.is_some() {
            return true;
        }
        let pipe = self.pipe(id);
        if pipe.is_ready(until, request) {
            return true;
        }
        // One waker for each waiting execution at most: one that is there already is replaced.
        match pipe.waiting.iter_mut().find(|other| other.will_wake(waker)) {
            Some(other) => other.clone_from(waker),
            None => pipe.waiting.push(waker.clone()),
        }
        false
    }

    /// Begins the next turn: moves its bytes into `into`, in the place of what is there. `None` if all pipes
    /// are empty. Each turn is ended before the next one begins.
    pub(crate) fn begin_turn(&mut self, into: &mut Vec<u8>) -> Option<Turn> {
        into.clear();
        let id = self.turns.pop_front()?;
        let pipe = self.pipe(id);
        let before = pipe.bytes.len();
        let bytes = pipe.next_bytes();
        into.extend(pipe.bytes.drain(..bytes));
        let runs = pipe.take_runs(bytes);
        pipe.is_wake_due = before > WAKE_AT && pipe.bytes.len() <= WAKE_AT;
        let inherited = bytes.min(pipe.inherited);
        pipe.inherited -= inherited;
        let payer = match &pipe.source {
            Source::Tenant(time) => Some(time.clone()),
            Source::Host(_) => None,
        };
        Some(Turn {
            id,
            bytes,
            runs,
            own: bytes - inherited,
            payer,
        })
    }

    /// The bytes of a turn are out. Returns the executions that can go on. A pipe with more bytes has its next
    /// turn after all pipes that have bytes now.
    #[must_use]
    pub(crate) fn end_turn(&mut self, turn: &Turn) -> Vec<Waker> {
        let Some(pipe) = self.pipes.get_mut(&turn.id).filter(|pipe| pipe.is_listed) else {
            // The destination has failed meanwhile.
            return Vec::new();
        };
        pipe.out += turn.bytes as u64;
        self.unwritten -= turn.bytes as u64;
        let is_due = std::mem::take(&mut pipe.is_wake_due) || pipe.out == pipe.written;
        let woken = match is_due {
            true => std::mem::take(&mut pipe.waiting),
            false => Vec::new(),
        };
        match pipe.bytes.is_empty() {
            true => pipe.is_listed = false,
            false => self.turns.push_back(turn.id),
        }
        self.remove_if_unused(turn.id);
        woken
    }

    /// The destination has failed: what is in the pipes is lost, and everything that is written from now on is
    /// an error. Returns the executions that wait.
    #[must_use]
    pub(crate) fn fail(&mut self, failure: ErrorKind) -> Vec<Waker> {
        self.failure.get_or_insert(failure);
        self.turns.clear();
        self.abandoned.clear();
        self.unwritten = 0;
        let mut woken = Vec::new();
        for pipe in self.pipes.values_mut() {
            pipe.bytes = VecDeque::new();
            pipe.runs = VecDeque::new();
            pipe.out = pipe.written;
            pipe.is_listed = false;
            woken.append(&mut pipe.waiting);
        }
        self.pipes.retain(|_, pipe| pipe.ends > 0);
        let pipes = &self.pipes;
        self.by_source.retain(|_, id| pipes.contains_key(id));
        woken
    }

    pub(crate) fn failure(&self) -> Option<ErrorKind> {
        self.failure
    }

    /// Bytes that were written and are not out yet; none once the destination has failed.
    pub(crate) fn unwritten(&self) -> u64 {
        self.unwritten
    }

    /// How far each pipe with bytes that are not out must come for them to be.
    pub(crate) fn marks(&self) -> Vec<(PipeId, u64)> {
        let unfinished = self.pipes.iter().filter(|(_, pipe)| pipe.is_listed);
        unfinished.map(|(&id, pipe)| (id, pipe.written)).collect()
    }

    /// Whether all pipes have come so far.
    pub(crate) fn is_past(&self, marks: &[(PipeId, u64)]) -> bool {
        let is_out = |(id, mark): &(PipeId, u64)| {
            let pipe = self.pipes.get(id);
            pipe.is_none_or(|pipe| pipe.out >= *mark)
        };
        marks.iter().all(is_out)
    }

    /// No more is written.
    pub(crate) fn close(&mut self) {
        self.is_closed = true;
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }
}

/// What a write has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Written {
    /// Bytes that were taken.
    pub(crate) bytes: usize,
    /// The pipe had no turn before and has one now.
    pub(crate) is_first: bool,
}

/// A pipe's turn: bytes that were taken out of it to be written out.
#[derive(Debug)]
pub(crate) struct Turn {
    id: PipeId,
    bytes: usize,
    runs: Vec<Run>,
    /// Those of the pipe's present tenant.
    own: usize,
    payer: Option<OutputTime>,
}

impl Turn {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The requests that its bytes belong to, in their order.
    pub(crate) fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Charges the tenant with the processor time that writing the bytes out took, ns.
    pub(crate) fn charge(&self, cpu_ns: u64) {
        if let Some(payer) = &self.payer {
            let part = u128::from(cpu_ns) * self.own as u128 / self.bytes.max(1) as u128;
            // No more than `cpu_ns`.
            payer.add(part as u64);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{Backlog, CAPACITY, MOST_ABANDONED, MOST_RUNS, PipeId, Source, TURN};
    use crate::output_time::OutputTime;
    use std::num::NonZeroU64;

    /// The text of the next turn.
    fn turn(backlog: &mut Backlog) -> String {
        let mut bytes = Vec::new();
        if let Some(turn) = backlog.begin_turn(&mut bytes) {
            let _ = backlog.end_turn(&turn);
        }
        String::from_utf8(bytes).expect("text")
    }

    fn tenants<const N: usize>(backlog: &mut Backlog) -> [PipeId; N] {
        [(); N].map(|()| backlog.open(Source::Tenant(OutputTime::default())))
    }

    fn write(backlog: &mut Backlog, id: PipeId, bytes: &[u8]) -> usize {
        backlog.write(id, bytes, None).expect("no failure").bytes
    }

    #[test]
    fn a_line_waits_for_one_turn_of_each_other_pipe_whatever_they_hold() {
        let mut backlog = Backlog::default();
        let [quiet, one, other] = tenants(&mut backlog);
        for id in [one, other] {
            assert_eq!(write(&mut backlog, id, &[b'x'; 2 * CAPACITY]), CAPACITY);
        }
        // One has its turn when the line is written, and goes on to write.
        let mut bytes = Vec::new();
        let current = backlog.begin_turn(&mut bytes).expect("a turn");
        write(&mut backlog, quiet, b"line\n");
        write(&mut backlog, one, &[b'x'; TURN]);
        let _ = backlog.end_turn(&current);
        assert_eq!(turn(&mut backlog).len(), TURN);
        assert_eq!(turn(&mut backlog), "line\n");
    }

    #[test]
    fn a_turn_ends_with_a_line_and_cuts_only_a_line_that_is_longer_than_a_turn() {
        let mut backlog = Backlog::default();
        let [id] = tenants(&mut backlog);
        let long = "x".repeat(TURN + 1);
        write(&mut backlog, id, format!("a\nb\n{long}\npart").as_bytes());
        assert_eq!(turn(&mut backlog), "a\nb\n");
        assert_eq!(turn(&mut backlog), long[..TURN]);
        assert_eq!(turn(&mut backlog), "x\n");
        assert_eq!(turn(&mut backlog), "part");
        assert_eq!(
            (turn(&mut backlog), backlog.unwritten()),
            (String::new(), 0)
        );
    }

    #[test]
    fn a_line_of_the_host_is_never_cut() {
        let mut backlog = Backlog::default();
        let host = backlog.open(Source::Host("shop".to_owned()));
        let [tenant] = tenants(&mut backlog);
        let long = format!("shop | {}\n", "x".repeat(3 * TURN));
        write(
            &mut backlog,
            host,
            format!("{long}shop | next\n").as_bytes(),
        );
        write(&mut backlog, tenant, b"line\n");
        assert_eq!(turn(&mut backlog), long);
        assert_eq!(turn(&mut backlog), "line\n");
        assert_eq!(turn(&mut backlog), "shop | next\n");
    }

    #[test]
    fn every_order_of_writes_and_turns_keeps_each_pipes_order_and_gives_every_pipe_its_turn() {
        // Each digit of the number is an event: a line of one of two pipes, or a turn.
        for events in 0..3_u32.pow(8) {
            let mut backlog = Backlog::default();
            let ids: [PipeId; 2] = tenants(&mut backlog);
            let (mut put, mut out) = (
                [String::new(), String::new()],
                [String::new(), String::new()],
            );
            let mut take = |backlog: &mut Backlog| {
                let text = turn(backlog);
                let of = usize::from(text.starts_with('b'));
                out[of].push_str(&text);
                (!text.is_empty()).then_some(of)
            };
            let mut waits = [0; 2];
            for at in 0..8 {
                let event = (events / 3_u32.pow(at) % 3) as usize;
                let Some(&id) = ids.get(event) else {
                    let of = take(&mut backlog);
                    for (pipe, waits) in waits.iter_mut().enumerate() {
                        let is_waiting = backlog.pipe(ids[pipe]).is_listed && of != Some(pipe);
                        *waits = if is_waiting { *waits + 1 } else { 0 };
                        assert!(*waits <= 1, "{events}: pipe {pipe} waited for two turns");
                    }
                    continue;
                };
                let line = format!("{}{at}\n", ["a", "b"][event]);
                write(&mut backlog, id, line.as_bytes());
                put[event].push_str(&line);
            }
            while take(&mut backlog).is_some() {}
            assert_eq!(out, put);
        }
    }

    #[test]
    fn bytes_keep_the_request_that_they_belong_to_and_the_memory_for_that_is_bounded() {
        let mut backlog = Backlog::default();
        let [id] = tenants(&mut backlog);
        let requests = [NonZeroU64::new(7), None];
        let mut taken = 0;
        for at in 0..MOST_RUNS {
            let written = backlog.write(id, b"ab", requests[at % 2]);
            taken += written.expect("no failure").bytes;
        }
        assert_eq!(taken, 2 * MOST_RUNS);
        let refused = backlog.write(id, b"c", requests[0]);
        assert_eq!(refused.expect("no failure").bytes, 0, "one run more");
        let more = backlog.write(id, b"c", requests[1]);
        assert_eq!(more.expect("no failure").bytes, 1, "the last run goes on");
        let (mut bytes, mut of) = (Vec::new(), [0; 2]);
        while let Some(turn) = backlog.begin_turn(&mut bytes) {
            assert_eq!(
                turn.runs().iter().map(|run| run.bytes).sum::<usize>(),
                bytes.len()
            );
            for run in turn.runs() {
                of[usize::from(run.request.is_none())] += run.bytes;
            }
            let _ = backlog.end_turn(&turn);
        }
        assert_eq!(of, [MOST_RUNS, MOST_RUNS + 1]);
    }

    #[test]
    fn the_pipe_of_a_tenant_that_has_ended_stays_until_its_contents_are_out() {
        let mut backlog = Backlog::default();
        let [id] = tenants(&mut backlog);
        write(&mut backlog, id, b"last words\n");
        backlog.close_end(id);
        assert_eq!(turn(&mut backlog), "last words\n");
        assert!(backlog.pipes.is_empty() && backlog.by_source.is_empty());
        assert!(backlog.abandoned.is_empty());
    }

    #[test]
    fn tenants_that_end_before_their_output_is_read_take_a_bounded_number_of_pipes() {
        let mut backlog = Backlog::default();
        for _ in 0..10 * MOST_ABANDONED {
            let [id] = tenants(&mut backlog);
            write(&mut backlog, id, b"line\n");
            backlog.close_end(id);
        }
        assert!(backlog.pipes.len() <= MOST_ABANDONED + 1);
        assert_eq!(backlog.by_source.len(), backlog.pipes.len());
        assert_eq!(backlog.unwritten(), 10 * MOST_ABANDONED as u64 * 5);
        // What others have written is not paid for by the tenant that continues their pipe.
        let heir = OutputTime::default();
        let id = backlog.open(Source::Tenant(heir.clone()));
        let inherited = backlog.pipe(id).bytes.len();
        write(&mut backlog, id, &vec![b'\n'; inherited]);
        let mut bytes = Vec::new();
        while let Some(turn) = backlog.begin_turn(&mut bytes) {
            turn.charge(100);
            let _ = backlog.end_turn(&turn);
        }
        assert_eq!(heir.take(), 50);
        backlog.close_end(id);
        assert!(backlog.pipes.is_empty() && backlog.abandoned.is_empty());
    }
}
