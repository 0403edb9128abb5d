//! The control interface: its routes, and where it can be reached.

pub mod tcp;
