//! The front.
