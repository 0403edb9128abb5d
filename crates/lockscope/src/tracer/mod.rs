//! The tracer: BPF programs inside the kernel's lock functions, which add up what chosen workloads
//! do (LockScope §4.1).
//!
//! The programs (`bpf/`) fill tables that were allocated before. While they are attached nothing
//! here touches those tables: reading them would switch the programs off on that processor. They
//! are detached first, read afterwards, and printed last, since printing takes locks too.

mod cache_line;
mod calibrate;
mod cgroup;
mod delayer;
mod error;
mod guard;
mod kernel;
mod launch;
mod layout;
mod loading;
mod objects;
mod offer;
mod output;
mod recorder;
mod symbols;
mod target;

pub use cgroup::{Cgroup, Hierarchy};
pub use delayer::{Delayed, Delayer, LONGEST_DELAY_NS};
pub use error::TracerError;
pub use guard::{Guard, guard};
pub use launch::{Launched, Manners, become_workload};
pub use offer::{ModeChoice, Offer};
pub use recorder::{Options, Recorder};
pub use target::Target;
