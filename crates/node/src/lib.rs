//! The controller of a cell: the tenants' desired state, and the interface that operators use.

pub mod api;
pub mod page;
pub mod token;
pub mod view;
