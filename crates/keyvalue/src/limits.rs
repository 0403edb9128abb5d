//! The limits of keys and values.

/// The most bytes of a key.
pub const KEY_BYTES: usize = 1 << 10;

/// The most bytes of a value.
pub const VALUE_BYTES: usize = 64 << 10;

/// What a pair counts beside its key and its value, bytes.
pub const ENTRY_BYTES: u64 = 128;
