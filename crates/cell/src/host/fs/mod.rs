//! Files beneath the directories of a lease.
//!
//! A guest's open files are [descriptors](descriptor) in its [`table`]. [`path`] finds files,
//! [`open`] opens them, and [`transfer`] moves bytes; [`status`], [`listing`], [`window`] and
//! [`change`] do what their names say. Each operation is implemented once, for preview 1 and for
//! components. It is tried on the cell's thread in a form that does not wait, and done on another
//! thread if it would wait ([`attempt`]). Changes on the cell's thread have a bounded [`pace`]. The
//! growth that a tenant causes on a [`disk`] is limited, that of [`directories`] by [`naming`] included.

pub(crate) mod account;
pub(crate) mod attempt;
pub(crate) mod change;
pub(crate) mod class;
mod depth;
pub(crate) mod descriptor;
mod directories;
pub(crate) mod disk;
pub(crate) mod elsewhere;
pub(crate) mod file;
pub(crate) mod growth;
#[cfg(test)]
mod here;
mod last_close;
pub(crate) mod limit;
pub(crate) mod listing;
mod naming;
pub(crate) mod open;
mod pace;
pub(crate) mod pages;
pub(crate) mod path;
pub(crate) mod preopen;
mod read_ahead;
mod shrinks;
pub(crate) mod status;
pub(crate) mod table;
pub(crate) mod transfer;
pub(crate) mod window;
mod young;

/// Most bytes that are read or written in one step: some 15 µs on the file systems of [`class::Class`].
pub(crate) const STEP: usize = 64 << 10;
