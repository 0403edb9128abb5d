//! What studies are made of: how they run, measure, compare and report. Nothing here imports a study.
//!
//! | concept | file |
//! |---|---|
//! | a study, its options, its outcome | `experiment` |
//! | a report: rows, findings, a figure; when and on what it was measured | `report`, `provenance`, `host` |
//! | quantiles and medians, units, random draws | `samples`, `unit`, `random` |
//! | figures; a schedule as one; the page of all studies; results as documents | `plot`, `lanes`, `page`, `results` |
//! | how far a measurement is, for a person who waits | `progress` |
//! | clocks, and time that the host took | `clock`, `taken` |
//! | the measuring thread: its processor, its priority | `affinity`, `priority` |
//! | tenants of a real cell that compete for its processor | `contest` |
//! | kernel objects of every class, mapped pages | `objects`, `mapping` |
//! | stock wasmtime, the other side of a comparison | `stock` |
//! | a neighbour whose latency during an event is compared with its usual one | `neighbour` |
//! | the command that starts this program again, in a role | `child_command` |

pub(crate) mod affinity;
pub(crate) mod child_command;
pub mod clock;
pub(crate) mod contest;
pub(crate) mod experiment;
pub(crate) mod host;
pub mod lanes;
pub(crate) mod mapping;
pub mod neighbour;
pub(crate) mod objects;
pub(crate) mod page;
pub mod plot;
pub(crate) mod priority;
pub mod progress;
pub(crate) mod provenance;
pub(crate) mod random;
pub mod report;
pub mod results;
pub mod samples;
pub(crate) mod stock;
pub mod taken;
pub mod unit;
