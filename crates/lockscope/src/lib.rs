//! LockScope: how isolated two workloads are, and through which kernel object they meet.
//!
//! The paper behind it, Anjali and Swift, *Locked In, Leaked Out: Measuring Isolation via Kernel
//! Locks* (cited as LockScope), observes that what workloads share in a kernel is guarded by
//! locks: the locks that both take are the places where one can disturb the other.
//!
//! # Principles
//! 1. **Whatever was not seen is said.** Every table that can overflow counts what it lost, every
//!    report shows the counts, and a recording that saw waits only says so ([`Mode`], [`Losses`]).
//! 2. **A trace is a sum, not a log.** The kernel adds up, for each lock, call site and workload
//!    ([`Use`]); nothing is sent while the workloads run.
//! 3. **Recording and reading are apart.** A [`Trace`] has all that reports need; it can be read
//!    where it was not recorded, without root and without a BPF compiler. Recording is the feature
//!    `tracer`.
//! 4. **A shared lock is one that both use at a time.** An address that was given away is another
//!    lock ([`locks`]).
//! 5. **One number, in units of what is lost.** [`Score`] is the share of its time that a workload
//!    loses to the other one, as nines.
//!
//! # Map
//! | concept | file |
//! |---|---|
//! | lock primitives, by their functions | `primitive` |
//! | tracer: probes in the kernel, one record for each lock and call site | `tracer`; its programs are in `bpf/` |
//! | trace, and its file | `trace`, `format` |
//! | lock identity: one lock from its initialisation to the end of its object | `sharing` (`Lock`); in the kernel `bpf/object.h` |
//! | private, shared and incidentally shared locks | `sharing` |
//! | static analysis: the object and the field that a lock is | `analyze`, `place`; the analyzer is the crate `leasehold-locksite` |
//! | counts and rates, by object and subsystem | `report`; as a picture: `stacked_bars`; its letters and colours: `style` |
//! | platforms of workloads, and their comparison | `platform`, `compare` |
//! | what would separate two workloads | `separation`; a trace as if they were separated so: `replay` |
//! | a worker beside thrashers | `command/interfere` (of the program) |
//! | the metric of isolation | `score` |
//! | two workloads that slow each other | `together` |
//! | predicted against measured losses, as a picture | `scatter` |
//! | whether a score comes true: predicted and measured slowdowns | `agreement` |
//! | causal isolation: what a longer hold of one lock costs | `cause`, `slope`; injected by `tracer` (`delayer`), predicted by `prolonged` |
//!
//! # Example
//! ```
//! use leasehold_lockscope::{Class, Primitive, Report, Score, Trace, Use, Workload, WorkloadId};
//!
//! let workload = |name: &str| Workload { name: name.into(), what: String::new(), ran_ns: 0, own_ns: 0 };
//! let taken = |workload, lock| Use {
//!     lock,
//!     workload: WorkloadId(workload),
//!     acquired: 1_000,
//!     last_ns: 1_000_000_000,
//!     ..Use::default()
//! };
//! let spin_lock = Primitive {
//!     name: "_raw_spin_lock".into(),
//!     class: Class::Spin,
//!     access: Default::default(),
//!     tries: false,
//! };
//! let trace = Trace {
//!     duration_ns: 1_000_000_000,
//!     workloads: vec![workload("a"), workload("b")],
//!     primitives: vec![spin_lock],
//!     uses: vec![taken(0, 0x1000), taken(1, 0x1000), taken(1, 0x2000)],
//!     ..Trace::default()
//! };
//! let report = Report::of(&trace);
//! assert_eq!((report.shared.locks, report.shared.per_second), (1, 2_000.0));
//! // A lock that moves between two caches a thousand times a second costs a ten-thousandth.
//! assert!((Score::of(&trace).score - 4.0).abs() < 1e-3);
//! ```

#![forbid(unsafe_code)]

mod agreement;
mod analyze;
mod cause;
mod compare;
mod format;
mod place;
#[cfg(feature = "tracer")]
pub mod platform;
#[cfg(feature = "tracer")]
mod primitive;
mod prolonged;
mod replay;
mod report;
mod scatter;
mod score;
mod separation;
mod sharing;
mod slope;
mod stacked_bars;
mod style;
mod together;
mod trace;
#[cfg(feature = "tracer")]
pub mod tracer;

pub use agreement::{Agreement, Block, Measured, Pair};
pub use analyze::{AnalyzeError, analyze};
pub use cause::{Cause, DelayBlock, DelayPoint, Finding, tau_of_causes};
pub use compare::{Cell, Comparison, Spread};
pub use format::{Malformed, TraceError, VERSION};
pub use place::{Object, Place};
pub use prolonged::{Candidate, Predicted};
pub use replay::{Cheapest, Replay};
pub use report::{Mapped, ObjectRow, Report, Total, WorkloadRow};
pub use scatter::{Scatter, ScatterPoint};
pub use score::{Exposure, MOST, MOVE_NS, Score};
pub use separation::Separation;
pub use sharing::{Acquisitions, Kind, Lock, Usage, locks};
pub use slope::Slope;
pub use stacked_bars::{Bar, StackedBars};
pub use trace::{
    Access, Class, Kernel, Losses, Mode, Module, PlaceId, Primitive, PrimitiveId, Stack, StackId,
    Symbol, Trace, Use, Workload, WorkloadId,
};
