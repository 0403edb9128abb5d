//! Reclamation groups with a time budget, group arenas and scrub lists: they end a tenant in
//! bounded time, for any number of objects.
//!
//! *Bounded Resource Reclamation* (BRR) is the paper behind it. The paper proposes the budget and
//! the arena and leaves the accounting as future work; here every class is accounted for, including
//! scrub entries and nested groups. The crate is `no_std`, single-threaded and free of clocks: it
//! takes the costs as a parameter ([`CostModel`]) and counts its steps ([`Outcome`]).
//!
//! # Principles
//! 1. **Charged before the fact.** Everything that must be taken back later is charged to the
//!    group's reclamation budget when it is made (BRR §III). Charges never exceed the budget, and a
//!    refused request changes nothing ([`Refused`]).
//! 2. **Budgets are carved, not shared.** A child's budget leaves its parent's when the child is
//!    opened and returns when it ends, so that a charge touches one record, and no group can
//!    promise time that an ancestor does not have.
//! 3. **Objects are never visited.** They live in the arena of their root group and are freed with
//!    it (BRR §IV, fig. 5). Ending a root takes its scrub entries plus a constant number of steps,
//!    for any number of objects and child groups; memory is given back by the page.
//! 4. **Handles go stale by themselves.** A handle carries the generations of its group and of its
//!    slot, checked at every use, so that a remaining handle needs no work. Only links that need
//!    action go on a scrub list, and each is charged.
//! 5. **The high water is charged.** A slot that was freed stays with its group, and is free of
//!    charge to the next object of its class; its page is still to be given back. For the same
//!    reason the charge for pages that a child touched stays with its parent.
//! 6. **Ending is work like any other.** It runs in steps of bounded size ([`Reclaim::step`]), so
//!    that it can be preempted and charged, and it distinguishes *slot reusable* from *pages
//!    returned* ([`Progress`]).
//! 7. **The baseline is built in.** [`Mode::Individual`] takes objects back one by one, in the
//!    same build (BRR fig. 7 and fig. 8).
//!
//! # Map
//! | concept | file |
//! |---|---|
//! | reclamation budget: charge, carve, refuse | `budget`; its units `nanos`; what a unit of each class costs `cost`, `class` |
//! | reclamation group, and the reclamation tree of groups | `group` (a record), `groups` (all of a cell) |
//! | group arena: chunks of one address range | `arena`; where the range comes from `backing` |
//! | slots and extents: what a group hands out of its chunks | `slots`, `extent` |
//! | objects and their handles, which go stale | `object`, `handle`, `instance` |
//! | scrub list | `scrub` |
//! | bulk reclamation: ending a group in steps | `reclaim`; one by one, the baseline: `individual` |
//! | accounts: what a group was charged for | `statement`, `tally` |
//!
//! # Example
//! ```
//! use leasehold_reclaim::{Config, CostModel, Groups, HeapBacking, Mode, Nanos, Refused};
//!
//! let config = Config {
//!     arena_bytes: 1 << 20,
//!     keep_resident: 64 << 10,
//!     mode: Mode::Grouped,
//!     max_groups: 100,
//! };
//! // Picoseconds, as calibrated on this host.
//! let costs = CostModel {
//!     root_ps: 1_000_000,
//!     group_ps: 60_000,
//!     scrub_ps: 50_000,
//!     chunk_ps: 100_000,
//!     page_ps: 100_000,
//! };
//! let mut groups = Groups::<_, &str>::new(config, costs, HeapBacking);
//! let semaphore = groups.register::<u64>("semaphore", 400);
//!
//! // A tenant that may take two microseconds to end.
//! let tenant = groups.open_root(Nanos(2_000))?;
//! let first = groups.alloc(tenant, semaphore, 1)?;
//! groups.link(tenant, "wake the waiter")?;
//!
//! // It cannot make more than can be taken back in that time …
//! let refused = loop {
//!     if let Err(refused) = groups.alloc(tenant, semaphore, 0) {
//!         break refused;
//!     }
//! };
//! assert!(matches!(refused, Refused::Budget { .. }));
//!
//! // … and when it ends, only its links are visited.
//! let mut severed = Vec::new();
//! let outcome = groups.reclaim(tenant, &mut |_: &mut Groups<_, _>, link| severed.push(link));
//! assert_eq!(severed, ["wake the waiter"]);
//! assert_eq!(outcome.steps, 3);
//! assert_eq!(groups.get(first), None);
//! # Ok::<(), Refused>(())
//! ```
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
mod tally;

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
pub use slots::TrustedSlot;
pub use statement::{Row, Statement};
