//! The controller of a cell: the tenants' desired state, and the interface that operators use.

pub mod metrics;
pub mod trace;
pub mod view;
