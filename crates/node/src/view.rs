//! The types of the control interface on the wire, as JSON.
//!
//! Times are integers in nanoseconds with names that end in `_ns`, sizes are bytes with names that
//! end in `_bytes`, and instants (`at`, `since`) are RFC 3339 in UTC. A field that is absent has no
//! value now: a tenant that does not run has no processor state.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// All that a page or a scraper asks for at once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Snapshot {
    /// When it was taken.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// The node.
    pub node: Node,
    /// Its tenants, in the order in which they became known.
    pub tenants: Vec<Tenant>,
    /// The last ends, at most 100, the newest last.
    pub ends: Vec<End>,
    /// The host steps that were observed, by row.
    pub steps: Vec<Step>,
    /// What ends cost beside what was charged for them, by class.
    pub costs: Vec<Cost>,
    /// The time that the controller's commands took of the cell's thread, by kind.
    pub control: Vec<Control>,
    /// The number of the newest event; 0 if there was none.
    pub last_event: u64,
}

/// A node: one cell with what is around it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Node {
    /// The version of Leasehold.
    pub version: String,
    /// When its tenants were first allowed to run.
    #[schema(value_type = String, format = DateTime)]
    pub started_at: Timestamp,
    /// The time since then.
    pub uptime_ns: u64,
    /// How the cell orders processor reservations: `fixed-priority` or `earliest-deadline`.
    pub order: String,
    /// Whether the cell's thread runs before all ordinary threads: `granted`, `not asked`, or why
    /// the system refused it.
    pub realtime: String,
    /// The core that is the cell's own.
    pub own_core: Option<u64>,
    /// What confines the process, as `leasehold run --report` says it.
    pub confinement: String,
    /// Whether the reservations of all tenants that are wanted can be kept together.
    pub schedulable: bool,
    /// The part of a processor that is reserved by them.
    pub utilization: f64,
    /// Where clients reach its tenants.
    pub listeners: Vec<Listener>,
}

/// A listener.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Listener {
    /// Its name in the lease file.
    pub name: String,
    /// Its address and port.
    pub address: String,
    /// Whether it speaks TLS.
    pub tls: bool,
}

/// All tenants.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Tenants {
    /// In the order in which they became known.
    pub tenants: Vec<Tenant>,
}

/// A tenant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Tenant {
    /// Its name.
    pub name: String,
    /// What is wanted of it.
    pub desired: Desired,
    /// What it does.
    pub state: State,
    /// Since when it has been running, restarting or ended.
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// The program.
    pub component: String,
    /// How often it was started again after a failure.
    pub restarts: u32,
    /// How it ended, if it is not running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
    /// Its reclamation account.
    pub reclaim: Reclaim,
    /// Its processor reservation; a tenant without one runs in the background.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    /// What it got of the processor, while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processor: Option<Processor>,
    /// Its memory.
    pub memory: Memory,
    /// How long its end takes at most, from its kill.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_bound: Option<EndBound>,
    /// How it answers requests, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<Http>,
    /// The requests that it sends, while it runs, if its lease allows any.
    pub outgoing: Option<Outgoing>,
    /// Its last end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_end: Option<End>,
}

/// What is wanted of a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Desired {
    /// That it runs, until it ends by itself.
    Running,
    /// That it does not.
    Stopped,
}

/// What a tenant does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Its program is being loaded, or its start is under way.
    Starting,
    /// It runs now.
    Running,
    /// It is ready, but another tenant runs.
    Ready,
    /// It waits for something.
    Blocked,
    /// Its processor budget is used up; it waits for a replenishment.
    Depleted,
    /// It takes no further request, and ends when those under way are over.
    Draining,
    /// It was killed, and something is still being taken back.
    Ending,
    /// It failed, and is started again after a pause.
    Restarting,
    /// It has ended.
    Ended,
}

impl State {
    /// Returns the name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Ready => "ready",
            Self::Blocked => "blocked",
            Self::Depleted => "depleted",
            Self::Draining => "draining",
            Self::Ending => "ending",
            Self::Restarting => "restarting",
            Self::Ended => "ended",
        }
    }
}

/// How a program ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Exit {
    /// In which way.
    pub kind: ExitKind,
    /// The code, if it ended with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// The reason of a trap or refusal, with its backtrace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// In which way a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ExitKind {
    /// By itself, with a code.
    Code,
    /// It was killed.
    Killed,
    /// It trapped.
    Trap,
    /// Its lease did not pay for something that it cannot do without.
    Lease,
    /// Its memory could not be fetched or written.
    Memory,
}

/// A reclamation account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reclaim {
    /// What taking everything back may cost.
    pub budget_ns: u64,
    /// What taking everything back now is predicted to cost, while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charged_ns: Option<u64>,
}

/// A processor reservation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Cpu {
    /// Processor time in each period.
    pub budget_ns: u64,
    /// The period.
    pub period_ns: u64,
    /// The priority; a larger number goes first.
    pub priority: u32,
    /// The policy of its budget: `sporadic` or `deferrable`.
    pub policy: String,
    /// `budget_ns` by `period_ns`.
    pub utilization: f64,
}

/// What a tenant got of the processor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Processor {
    /// What it does: running, ready, blocked or depleted.
    pub state: State,
    /// The budget of its reservation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_ns: Option<u64>,
    /// The period of its reservation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period_ns: Option<u64>,
    /// What is left of the budget before the next replenishment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_ns: Option<u64>,
    /// Its counters since it was started.
    pub supply: Supply,
}

/// Counters of the processor time that a tenant got.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Supply {
    /// Processor time that it ran.
    pub used_ns: u64,
    /// Times that it was chosen after something else had run.
    pub dispatches: u64,
    /// Replenishments of its budget.
    pub replenishments: u64,
    /// Times that something else was chosen while it could have run.
    pub preemptions: u64,
    /// Times that its budget was used up.
    pub depletions: u64,
    /// Budgets that it did not get although it was ready.
    pub misses: u64,
    /// The most that it ever ran beyond its budget.
    pub overrun_max_ns: u64,
}

/// The memory of a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Memory {
    /// Linear memory that is reserved.
    pub reserve_bytes: u64,
    /// The limit on its linear memory.
    pub limit_bytes: u64,
    /// Linear memory that it has, while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_bytes: Option<u64>,
}

/// How long an end takes at most, wall time from its kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EndBound {
    /// Until nothing of the tenant runs.
    pub effect_ns: u64,
    /// Until everything was taken back; absent where nothing bounds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub returned_ns: Option<u64>,
}

impl EndBound {
    /// Returns what bounds an end that had the tenants of both bounds beside it.
    pub(crate) fn or_longer(self, other: Self) -> Self {
        let both = self.returned_ns.zip(other.returned_ns);
        Self {
            effect_ns: self.effect_ns.max(other.effect_ns),
            returned_ns: both.map(|(one, other)| one.max(other)),
        }
    }
}

/// How a tenant answers requests, and how they went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Http {
    /// Its routes, as the lease file states them.
    pub routes: Vec<String>,
    /// The listeners that its requests come from.
    pub listeners: Vec<String>,
    /// How many requests it answers at a time.
    pub concurrency: u32,
    /// How many wait beside those.
    pub queue: u32,
    /// How many wait now.
    pub waiting: u64,
    /// How many are under way now, those that wait not among them.
    pub active: u64,
    /// How many ended, by outcome; all outcomes are there.
    pub outcomes: BTreeMap<String, u64>,
    /// How long those that were answered took.
    pub latency: Latency,
}

/// The requests that a tenant sends to other hosts, since its last start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Outgoing {
    /// How many may be under way at a time.
    pub concurrency: u32,
    /// How many are.
    pub active: u32,
    /// How many ended, by outcome; all outcomes are there.
    pub outcomes: BTreeMap<String, u64>,
    /// Processor time of the I/O thread that the tenant was charged for.
    pub processor_ns: u64,
}

/// Times of requests, from the head of the request to the end of its response.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Latency {
    /// How many there were.
    pub count: u64,
    /// The sum of all.
    pub sum_ns: u64,
    /// The median.
    pub p50_ns: u64,
    /// 90 % took no longer.
    pub p90_ns: u64,
    /// 99 % took no longer.
    pub p99_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

/// The requests of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Requests {
    /// How many wait now.
    pub waiting: u64,
    /// How many are under way now.
    pub active: u64,
    /// How many ended, by outcome.
    pub outcomes: BTreeMap<String, u64>,
    /// How long those that were answered took.
    pub latency: Latency,
    /// The last ones that ended, at most 100, the newest last.
    pub last: Vec<Request>,
}

/// A request that is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Request {
    /// Its number.
    pub id: u64,
    /// When it was over.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// The client's address.
    pub remote: String,
    /// The listener.
    pub listener: String,
    /// The method.
    pub method: String,
    /// The host that it asked for.
    pub host: String,
    /// Path and query, cut after 512 bytes.
    pub path: String,
    /// The status of the response, if one was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Bytes of the response's body.
    pub body_bytes: u64,
    /// From its head to the end of its response.
    pub elapsed_ns: u64,
    /// How long it waited for the tenant, if it got there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued_ns: Option<u64>,
    /// Processor time of the guest for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest_ns: Option<u64>,
    /// How it ended: the name of an outcome.
    pub outcome: String,
}

/// An end of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct End {
    /// The tenant's name.
    pub tenant: String,
    /// When the controller learned of it.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// How its program ended.
    pub exit: Exit,
    /// What the end was predicted to cost: what had been charged.
    pub predicted_ns: u64,
    /// The processor time that it cost.
    pub measured_ns: u64,
    /// Wall time from the kill until nothing of it ran any more.
    pub effect_ns: u64,
    /// Wall time until its slots could be used again.
    pub reusable_ns: u64,
    /// Wall time until everything was taken back.
    pub wall_ns: u64,
    /// The bound on `wall_ns`; absent where nothing bounds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_ns: Option<u64>,
    /// Whether `wall_ns` is within the bound; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within_bound: Option<bool>,
    /// The tenant's reclamation budget.
    pub budget_ns: u64,
    /// Blocking calls that had not returned when everything else was taken back.
    pub calls_under_way: u32,
}

/// Something that happened. Events are numbered from 1, without gaps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Its number.
    pub seq: u64,
    /// When it happened.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// What happened.
    pub kind: EventKind,
    /// The tenant that it happened to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// A text to read: the reason of a refusal, the row of a step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The end, of an event `ended`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<End>,
    /// How many events a reader did not get, of an event `lagged`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed: Option<u64>,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    /// A tenant was started.
    Started,
    /// A tenant has ended, and everything was taken back.
    Ended,
    /// A tenant failed, and is started again after a pause.
    Restarting,
    /// A start, or a change, was refused.
    Refused,
    /// A tenant was replaced by a new one.
    Replaced,
    /// A tenant was put: it became known, or its lease changed.
    Put,
    /// A tenant was deleted.
    Deleted,
    /// A tenant takes no further request.
    Draining,
    /// A host step took longer than its row.
    StepBeyondRow,
    /// Ends cost more than is charged: new leases are charged more.
    Drift,
    /// The lease file was read again.
    Reloaded,
    /// This reader was too slow, and did not get some events.
    Lagged,
}

impl EventKind {
    /// Returns the name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Ended => "ended",
            Self::Restarting => "restarting",
            Self::Refused => "refused",
            Self::Replaced => "replaced",
            Self::Put => "put",
            Self::Deleted => "deleted",
            Self::Draining => "draining",
            Self::StepBeyondRow => "step-beyond-row",
            Self::Drift => "drift",
            Self::Reloaded => "reloaded",
            Self::Lagged => "lagged",
        }
    }
}

/// The reclamation account of a tenant, by class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Statement {
    /// The budget.
    pub budget_ns: u64,
    /// What is charged: to the tenant itself, and as budgets of its children.
    pub charged_ns: u64,
    /// The rest.
    pub left_ns: u64,
    /// What is charged for, children included.
    pub rows: Vec<StatementRow>,
}

/// The charges of one class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StatementRow {
    /// The name of the class.
    pub class: String,
    /// Units that are charged for.
    pub count: u64,
    /// What taking them back is predicted to cost.
    pub reclamation_ns: u64,
}

/// How a tenant uses its memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MemoryUse {
    /// Linear memory that it has, its descendants' included.
    pub linear_bytes: u64,
    /// Linear memory that is reserved.
    pub reserve_bytes: u64,
    /// The limit on it.
    pub limit_bytes: u64,
    /// Memory that it has in common with others, and that is in frames.
    pub shared_bytes: u64,
    /// Memory of which the swap file has a copy.
    pub swapped_bytes: u64,
    /// Where the frames of its reservation are, and what paging did, if it pages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paging: Option<PagingUse>,
}

/// The frames of a tenant that pages, and its faults so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PagingUse {
    /// Frames of its own pages.
    pub owned_bytes: u64,
    /// Frames kept for pages that others own.
    pub conserved_bytes: u64,
    /// Frames given up for areas that are locked.
    pub locked_bytes: u64,
    /// Frames that it has left.
    pub free_bytes: u64,
    /// Frames beyond its reservation.
    pub borrowed_bytes: u64,
    /// Faults on new pages.
    pub zero_faults: u64,
    /// Faults on pages that others had.
    pub minor_faults: u64,
    /// Faults on pages that were read back.
    pub major_faults: u64,
    /// Pages that were taken from it.
    pub evicted: u64,
    /// Pages that were written to the swap file.
    pub written: u64,
}

/// A line that a tenant wrote, or that was said about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogLine {
    /// When it was read.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// Where it came from.
    pub stream: LogStream,
    /// The text, without the end of the line.
    pub line: String,
    /// The number of the request that it belongs to, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<u64>,
}

/// Where a line of a log came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LogStream {
    /// The tenant's standard output.
    Stdout,
    /// The tenant's standard error.
    Stderr,
    /// The host: traps, refusals, lines that were dropped.
    Host,
}

impl LogStream {
    /// Returns the name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::Host => "host",
        }
    }
}

/// The observations of one row of the table of host steps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Step {
    /// The row.
    pub row: String,
    /// How many steps there were.
    pub steps: u64,
    /// The longest that was not disturbed.
    pub longest_ns: u64,
    /// How long a step may be as calibrated, with what the host may add.
    pub limit_ns: u64,
    /// How many were longer; of those after the row was raised, how many were longer than that, too.
    pub exceeded: u64,
    /// How many were perhaps longer only since the host took the processor.
    pub disturbed: u64,
    /// How long a step may be for new leases, if too many were longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raised_ns: Option<u64>,
}

/// What ends of one class cost beside their charges.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Cost {
    /// The class.
    pub class: String,
    /// How many ends there were.
    pub samples: u64,
    /// How many took longer than was charged.
    pub exceeded: u64,
    /// How often the price of new leases was raised for it.
    pub drifts: u64,
    /// What new leases are charged, as a multiple of the profile's price.
    pub price: f64,
}

/// What one kind of command took of the cell's thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Control {
    /// The kind.
    pub kind: String,
    /// How many there were.
    pub count: u64,
    /// The time of all.
    pub total_ns: u64,
    /// The longest.
    pub longest_ns: u64,
}

/// The answer to a whole lease file that is valid.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Validated {
    /// Always true: an invalid one is answered with an error.
    pub valid: bool,
    /// The names of its tenants.
    pub tenants: Vec<String>,
}

/// The answer to a whole lease file that was tested for admission: as `leasehold admit --json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
pub struct Admission(pub Value);

/// What a reload changed, or would change: each tenant of the lease file, and each that was there, is in one
/// of these.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reloaded {
    /// Tenants that go on as they are.
    pub kept: Vec<String>,
    /// Tenants that go on with other routes, listeners, or another `restart`.
    pub adjusted: Vec<String>,
    /// Tenants that are new.
    pub added: Vec<String>,
    /// Tenants whose place a new one takes: the program, or anything else of the table, is another.
    pub replaced: Vec<String>,
    /// Tenants that take no further request, and end.
    pub removed: Vec<String>,
}

impl std::fmt::Display for Reloaded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let lists = [
            ("kept", &self.kept),
            ("adjusted", &self.adjusted),
            ("added", &self.added),
            ("replaced", &self.replaced),
            ("removed", &self.removed),
        ];
        let parts = lists
            .into_iter()
            .filter(|(_, names)| !names.is_empty())
            .map(|(what, names)| format!("{what} {}", names.join(", ")));
        f.write_str(&parts.collect::<Vec<_>>().join("; "))
    }
}

/// The body of each answer with a status of 400 and above.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorView,
}

/// An error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorView {
    /// Its kind.
    pub kind: ErrorKind,
    /// A text to read: what was found, and what is allowed.
    pub message: String,
    /// The line of a lease file, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// The column there, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<u64>,
}

/// The kind of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorKind {
    /// There is no such tenant, or no such path: 404.
    NotFound,
    /// A request is malformed: 400.
    BadRequest,
    /// A lease is malformed, or names what may not be used: 400.
    BadLease,
    /// A program cannot be loaded: 422.
    BadProgram,
    /// There is no file of a program: 422.
    MissingProgram,
    /// The reservations cannot be kept, or the cell has no room: 409.
    Refused,
    /// It does not fit to what the tenant does now: 409.
    Conflict,
    /// The peer may not use the interface: 401.
    Unauthorized,
    /// Too much at once: 503.
    Busy,
    /// The node is ending: 503.
    Ending,
    /// The host failed: 500.
    Internal,
}
