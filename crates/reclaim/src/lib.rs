//! Reclamation groups with a time budget, group arenas and scrub lists (BRR); no_std
#![no_std]

extern crate alloc;

mod arena;
mod backing;
mod budget;
mod class;
mod cost;
mod extent;
mod group;
mod groups;
mod handle;
mod individual;
mod instance;
mod nanos;
mod object;
mod reclaim;
mod scrub;
mod slots;
mod statement;

pub use backing::{Backing, HeapBacking};
pub use budget::Refused;
pub use class::{Class, MAX_CLASSES, Resource};
pub use cost::{Config, CostModel, Mode, PAGE};
pub use group::GroupId;
pub use groups::Groups;
pub use handle::{Extent, Handle, LinkId, RawHandle};
pub use nanos::{Nanos, Picos};
pub use object::OBJECT_MAX;
pub use reclaim::{Outcome, Progress, Reclaim, SLICE, Sever};
pub use statement::{Row, Statement};
