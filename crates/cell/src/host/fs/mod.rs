//! Files beneath the directories of a lease.
//!
//! [`descriptor`] is what a guest has open, in its [`table`]; [`path`] finds files, [`transfer`] moves
//! bytes, [`status`], [`listing`] and [`change`] are what their names say. Each of them makes the system
//! calls that it is made of wherever it is called: on the cell's thread where the kernel is told not to
//! wait, on another where it may.

pub(crate) mod account;
pub(crate) mod change;
pub(crate) mod descriptor;
pub(crate) mod limit;
pub(crate) mod listing;
pub(crate) mod path;
pub(crate) mod status;
pub(crate) mod table;
pub(crate) mod transfer;

/// Most bytes that are read or written in one step: some 15 µs on the file systems of [`descriptor::Class`].
pub(crate) const STEP: usize = 64 << 10;
