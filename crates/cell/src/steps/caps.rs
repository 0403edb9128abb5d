//! The largest arguments of host steps: what a row's longest step was measured at, and what the
//! functions themselves enforce.

use leasehold_lease::{STRINGS_BYTES, STRINGS_MOST};
use leasehold_wasm::bulk_instructions::{CHUNK, TABLE_CHUNK};
pub use leasehold_wasm::limits::{
    Beyond, COMPONENTS, Cap, DATA, DATA_PAGES, ELEMENT_PAGES, ELEMENTS, GLOBALS, HANDLERS, NAME,
    SEGMENTS, STRING, WIDE_STRING,
};

const KIB: u64 = 1024;

/// Bytes that the canonical ABI lifts for one call of a component, without a lease's `call_bytes`.
pub const CALL: Cap = Cap::new("bytes lifted", 128 * KIB, Beyond::Trap);

/// Bytes that the results of a call of an exported function count as, and its arguments, without a lease's
/// `call_bytes`: as many as each value has on the host, and its text. Less where a byte takes longer.
pub const VALUES: Cap = Cap::new("bytes of values", 32 * KIB, Beyond::Trap);

/// Types around one another in a parameter or result of an exported function.
pub const NESTED: Cap = Cap::new("types around a type", 24, Beyond::Refused);

/// Calls of exported functions that wait for a tenant.
pub const CALLS_WAITING: Cap = Cap::new("calls that wait", 64, Beyond::Error);

/// Pollables in a list, and subscriptions of `poll_oneoff`.
pub const POLL_LIST: Cap = Cap::new("pollables", 512, Beyond::Trap);

/// Subscriptions of one `poll_oneoff`.
pub const SUBSCRIPTIONS: Cap = Cap::new("subscriptions", 512, Beyond::Error);

/// Random bytes that one step makes.
pub const RANDOM_STEP: Cap = Cap::new("random bytes", 16 * KIB, Beyond::Steps);

/// Random bytes that one call of a component returns.
pub const RANDOM_LIST: Cap = Cap::new("random bytes", 64 * KIB, Beyond::Trap);

/// Bytes that one call moves through a stream or a descriptor.
pub const TRANSFER: Cap = Cap::new("bytes", 64 * KIB, Beyond::Part);

/// Bytes that one step of a call of preview 1 moves.
pub const TRANSFER_STEP: Cap = Cap::new("bytes", 64 * KIB, Beyond::Steps);

/// Bytes that `check-write` permits, and that a write may have.
pub const PERMITTED: Cap = Cap::new("bytes", 64 * KIB, Beyond::Trap);

/// Buffers of one scattered read or gathered write.
pub const IOVECS: Cap = Cap::new("buffers", 1024, Beyond::Part);

/// Bytes of a path.
pub const PATH: Cap = Cap::new("bytes of path", 4096, Beyond::Error);

/// Directories that a path leads through on the cell's thread, with those above its start: the kernel looks at each of
/// them, once for the path and once for what the process may reach.
pub const LEVELS: Cap = Cap::new("levels of directories", 64, Beyond::Elsewhere);

/// The same on any thread. Some kernels cannot be preempted meanwhile, not even by a thread with real-time priority: 80 µs.
pub const ALL_LEVELS: Cap = Cap::new("levels of directories", 512, Beyond::Error);

/// Bytes of a path by which the cell's thread changes a directory: it is resolved up to four times.
pub const CHANGED_PATH: Cap = Cap::new("bytes of path", 256, Beyond::Elsewhere);

/// Bytes of a symbolic link's target. A path may lead through 40 links, each a walk of half as many
/// names as it has bytes. Some kernels cannot be preempted during the walk, even by a thread with
/// real-time priority.
pub const LINK: Cap = Cap::new("bytes that a link says", 255, Beyond::Error);

/// Bytes of a file that the cell's thread closes, empties or removes: as many as that may free, in some
/// 40 µs.
pub const FREED: Cap = Cap::new("bytes of file", 256 * KIB, Beyond::Elsewhere);

/// Bytes of a tenant's arguments, or of its environment.
pub const STRINGS: Cap = Cap::new("bytes of strings", STRINGS_BYTES as u64, Beyond::Refused);

/// Arguments of a tenant, or variables of its environment: each is a block of the host's heap.
pub const STRING_COUNT: Cap = Cap::new("strings", STRINGS_MOST as u64, Beyond::Refused);

/// Bytes of the arguments of a task or a child tenant.
pub const ARGUMENTS: Cap = Cap::new(
    "bytes of arguments",
    leasehold_abi::ARGUMENT_BYTES as u64,
    Beyond::Error,
);

/// Bytes of a message.
pub const MESSAGE: Cap = Cap::new("bytes", 64 * KIB, Beyond::Error);

/// Capabilities in a message.
pub const MESSAGE_CAPABILITIES: Cap = Cap::new(
    "capabilities",
    leasehold_abi::MESSAGE_CAPABILITIES as u64,
    Beyond::Error,
);

/// Bytes that one call copies between a region and a guest.
pub const REGION_COPY: Cap = Cap::new("bytes", 64 * KIB, Beyond::Error);

/// Bytes of a region that is copied, and of a channel's buffer: they are cleared when it is made, and may lie
/// on pages that the host has to find first.
pub const COPIED_REGION: Cap = Cap::new("bytes of a region", 128 * KIB, Beyond::Error);

/// Streams and error values of an execution in the engine's resource table: dropping its store drops
/// them in one step.
pub const ENTRIES: Cap = Cap::new("streams", 1024, Beyond::Error);

/// Bytes that fields of HTTP count as: names, values, and 32 for each entry, as in RFC 9113.
pub const FIELDS: Cap = Cap::new("bytes of fields", 16 * KIB, Beyond::Trap);

/// Bytes of a line in which a message of `wasi:logging` is written.
pub const LOG_LINE: Cap = Cap::new("bytes of a line", 4 * KIB, Beyond::Part);

/// Bytes of a key of a store.
pub const KEY: Cap = Cap::new(
    "bytes of a key",
    leasehold_keyvalue::KEY_BYTES as u64,
    Beyond::Error,
);

/// Bytes of a value of a store.
pub const VALUE: Cap = Cap::new(
    "bytes of a value",
    leasehold_keyvalue::VALUE_BYTES as u64,
    Beyond::Error,
);

/// Keys that one call names.
pub const KEYS: Cap = Cap::new("keys", 1024, Beyond::Error);

/// Bytes of the keys and values that one call gets.
pub const ANSWER: Cap = Cap::new("bytes of keys and values", 64 * KIB, Beyond::Error);

/// Keys of a page of them.
pub const KEY_PAGE: Cap = Cap::new("keys of a page", 256, Beyond::Part);

/// Bytes of such a page.
pub const KEY_PAGE_BYTES: Cap = Cap::new("bytes of a page", 16 * KIB, Beyond::Part);

/// Executions of a tenant that answer requests at a time.
pub const WORKERS: Cap = Cap::new("executions", 64, Beyond::Refused);

/// Requests that a tenant has under way to other hosts.
pub const REQUESTS: Cap = Cap::new("requests", 64, Beyond::Error);

/// Datagrams that one call sends, and gets.
pub const DATAGRAMS: Cap = Cap::new("datagrams", 16, Beyond::Part);

/// Bytes of the datagrams that one call gets: another is taken while the largest has room.
pub const RECEIVED: Cap = Cap::new("bytes of datagrams", 80 * KIB, Beyond::Part);

/// Bytes of linear memory that one engine instruction touches.
pub const BULK: Cap = Cap::new("bytes", CHUNK as u64, Beyond::Steps);

/// Elements that one engine instruction touches.
pub const TABLE_BULK: Cap = Cap::new("elements", TABLE_CHUNK as u64, Beyond::Steps);

/// Elements up to which a table grows: the engine moves all of them now and then.
pub const TABLE_ELEMENTS: Cap = Cap::new("elements of the table", 1024 * KIB, Beyond::Error);

/// Elements by which one instruction grows a table.
pub const TABLE_GROWTH: Cap = Cap::new("elements", 4 * KIB, Beyond::Error);

/// Names of directory entries in the window that one step reads, bytes.
pub const WINDOW: Cap = Cap::new("bytes of entries", 3 * KIB, Beyond::Steps);

/// Strings and lists of a result that are not in a list: each may lie on a page of its own.
pub const POINTERS: Cap = Cap::new("strings and lists", 32, Beyond::Refused);

/// Component-model handles of a program at a time.
pub const HANDLES: Cap = Cap::new("handles", 64 * KIB, Beyond::Trap);

/// The same in all tables together, each of which may once have had all: the engine drops the tables in one step.
pub const ALL_HANDLES: Cap = Cap::new("places for handles", 128 * KIB, Beyond::Trap);

/// Handles of a program whose components may lend each other some: the engine takes back what was lent in a call
/// in one step.
pub const LENDS: Cap = Cap::new("handles that are lent", 4 * KIB, Beyond::Trap);

/// Frames of a trap's backtrace.
pub const FRAMES: Cap = Cap::new("frames", 20, Beyond::Part);

/// Bytes of a trap's message.
pub const TRAP_MESSAGE: Cap = Cap::new("bytes of message", 8 * KIB, Beyond::Part);

/// Pages that one step gives back, pins or takes away.
pub const PAGES: Cap = Cap::new(
    "pages",
    leasehold_slots::range_pool::STEP_PAGES as u64,
    Beyond::Steps,
);

/// Pages that an idle cell takes from the host in one step.
pub const HELD: Cap = Cap::new("pages", 8, Beyond::Steps);

/// Frames that one step sets aside for a tenant; one that was borrowed counts as 64.
pub const RESERVED: Cap = Cap::new("frames", 4096, Beyond::Steps);

/// Timers that one step fires.
pub const TIMERS: Cap = Cap::new("timers", 8, Beyond::Steps);

/// Scrub entries that one step severs.
pub const SCRUBS: Cap = Cap::new("scrub entries", 16, Beyond::Steps);
