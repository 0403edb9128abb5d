//! Which fields are of one connection, and go no further than it.

/// Fields of one connection, besides those that `Connection` names.
const HOP_BY_HOP: [&str; 7] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
    "te",
];

/// Returns whether a field, whose name is in lower case, is one of its connection alone.
pub fn is_hop_by_hop(name: &str) -> bool {
    HOP_BY_HOP.contains(&name)
}
