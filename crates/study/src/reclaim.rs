//! Studies of reclamation (BRR): what ending costs, what being able to end costs, and whether an end keeps
//! its bound.
//!
//! | question | file |
//! |---|---|
//! | the cost of an end: a Linux process, kernel objects, written pages | `processes`, `bulk`, `teardown_pages` |
//! | the cost before an end: creating objects, starting programs, host calls | `alloc`, `startup`, `calls` |
//! | whether ends and kills keep their bounds | `deadline`, `kill` |
//! | what a neighbour feels of a hostile tenant's end | `rogue` |
//! | whether a tenant finds data of its predecessor | `freshness` |

pub(crate) mod alloc;
pub(crate) mod bulk;
pub(crate) mod calls;
pub(crate) mod deadline;
pub(crate) mod freshness;
pub(crate) mod kill;
pub(crate) mod processes;
pub mod rogue;
pub(crate) mod startup;
pub(crate) mod teardown_pages;
