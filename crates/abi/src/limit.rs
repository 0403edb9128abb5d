//! Limits of the interface that both sides have buffers for.

/// The largest size of the arguments of a started task or child tenant, in bytes; the 0 byte after
/// each argument included.
pub const ARGUMENT_BYTES: usize = 4096;

/// The largest number of capabilities in one message.
pub const MESSAGE_CAPABILITIES: usize = 4;
