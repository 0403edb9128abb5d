//! The rows: everything that runs on a cell's thread for a guest.

use super::caps::{
    ALL_HANDLES, ALL_LEVELS, ANSWER, ARGUMENTS, BULK, CALL, CALLS_WAITING, CHANGED_PATH,
    COMPONENTS, COPIED_REGION, Cap, DATA, DATA_PAGES, DATAGRAMS, ELEMENT_PAGES, ELEMENTS, FIELDS,
    FRAMES, FREED, GLOBALS, HANDLERS, HANDLES, HELD, IOVECS, KEY, KEY_PAGE, KEY_PAGE_BYTES, KEYS,
    LENDS, LEVELS, LINK, LOG_LINE, MESSAGE, MESSAGE_CAPABILITIES, NAME, NESTED, PAGES, PATH,
    PERMITTED, POINTERS, POLL_LIST, RANDOM_LIST, RANDOM_STEP, RECEIVED, REGION_COPY, REQUESTS,
    RESERVED, SCRUBS, SEGMENTS, STRING, STRING_COUNT, STRINGS, SUBSCRIPTIONS, TABLE_BULK,
    TABLE_ELEMENTS, TABLE_GROWTH, TIMERS, TRANSFER, TRANSFER_STEP, TRAP_MESSAGE, VALUE, VALUES,
    WIDE_STRING, WINDOW, WORKERS,
};
use crate::meter::Held;
use std::sync::LazyLock;

/// Longest step of a row that was not calibrated, ns.
pub const CEILING_NS: u64 = 100_000;

/// One host step: the caps on its arguments, and its bounds.
#[derive(Debug)]
pub struct Row {
    /// The interface or module that a guest imports it from; [`ENGINE`] or [`CELL`] for what no guest
    /// imports.
    pub interface: &'static str,
    /// The function, or the operation.
    pub name: &'static str,
    /// Limits on its arguments, enforced.
    pub caps: &'static [Cap],
    /// How long one step takes at those caps.
    pub longest: Longest,
    /// The resources that it may hold while it waits, besides the charged classes.
    pub holds: &'static str,
    /// The classes that the lease is charged for it.
    pub takes: &'static [Held],
    /// The threads that it runs on.
    pub runs: Runs,
}

/// The longest step of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Longest {
    /// [`CEILING_NS`], unless the profile has a [time](crate::profile::StepTime) that was measured at the
    /// caps.
    Ceiling,
    /// The time that a page fault with a disk transfer takes on this host: a quantity of the
    /// profile.
    Fault,
}

/// Where a host step runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runs {
    /// On the cell's thread.
    Cell,
    /// The parts that may block run on an I/O thread, the rest on the cell's.
    CellAndIo,
}

impl Runs {
    /// The words in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cell => "cell",
            Self::CellAndIo => "cell, I/O thread",
        }
    }
}

impl Row {
    const fn new(interface: &'static str, name: &'static str) -> Self {
        Self {
            interface,
            name,
            caps: &[],
            longest: Longest::Ceiling,
            holds: "",
            takes: &[],
            runs: Runs::Cell,
        }
    }

    const fn caps(mut self, caps: &'static [Cap]) -> Self {
        self.caps = caps;
        self
    }

    const fn takes(mut self, takes: &'static [Held]) -> Self {
        self.takes = takes;
        self
    }

    const fn holds(mut self, holds: &'static str) -> Self {
        self.holds = holds;
        self
    }

    const fn io(mut self) -> Self {
        self.runs = Runs::CellAndIo;
        self
    }

    const fn fault(mut self) -> Self {
        self.longest = Longest::Fault;
        self
    }

    /// Its name with its interface, as reports show it.
    pub fn title(&self) -> String {
        format!("{} {}", self.interface, self.name)
    }
}

/// The place of a row in the [`TABLE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowId(pub(super) u16);

impl RowId {
    /// The row.
    pub fn row(self) -> &'static Row {
        &TABLE[self.0 as usize]
    }

    /// The row under which its steps are counted, and its time is measured: interfaces that the engine's
    /// library brings as a whole count under one row. It is the row itself for all others.
    pub fn counted_as(self) -> Self {
        static COUNTED: LazyLock<Vec<RowId>> =
            LazyLock::new(|| RowId::all().map(RowId::find_counted).collect());
        COUNTED[self.0 as usize]
    }

    fn find_counted(self) -> Self {
        let row = self.row();
        let (interface, name) = match (row.interface, row.name) {
            (ENVIRONMENT, _) => (ENVIRONMENT, "get-environment"),
            (EXIT, _) => (EXIT, "exit"),
            (WALL, _) => (WALL, "now"),
            // No program is given one that it could drop.
            ("wasi:cli/terminal-input", _) => ("wasi:cli/terminal-stdin", "get-terminal-stdin"),
            ("wasi:cli/terminal-output", _) => ("wasi:cli/terminal-stdout", "get-terminal-stdout"),
            // Parts of a step, as far as the engine does them.
            (ENGINE, "data segments" | "element segments") => (ENGINE, "instantiate"),
            _ => return self,
        };
        Self::find(interface, name).unwrap_or(self)
    }

    /// All rows in the order of the table.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..TABLE.len() as u16).map(Self)
    }

    /// The row with this interface and name.
    pub const fn find(interface: &str, name: &str) -> Option<Self> {
        let mut place = 0;
        while place < TABLE.len() {
            let row = &TABLE[place];
            if same(row.name, name) && same(row.interface, interface) {
                return Some(Self(place as u16));
            }
            place += 1;
        }
        None
    }
}

const fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() != b.len() {
        return false;
    }
    let mut at = a.len();
    // From the end, where names of one interface differ.
    while at > 0 {
        at -= 1;
        if a[at] != b[at] {
            return false;
        }
    }
    true
}

/// The [`RowId`] of an interface and a name; a row that is missing is an error of the compiler.
macro_rules! step {
    ($interface:expr, $name:expr) => {
        const {
            match $crate::steps::RowId::find($interface, $name) {
                Some(row) => row,
                None => panic!("no row with this interface and name"),
            }
        }
    };
}
pub(crate) use step;

/// Module of WASI preview 1.
pub const PREVIEW1: &str = "wasi_snapshot_preview1";

/// Module of the kernel's functions for core modules.
pub const KERNEL: &str = leasehold_abi::MODULE;

/// Steps of the engine itself.
pub const ENGINE: &str = "engine";

/// Steps of the cell itself.
pub const CELL: &str = "cell";

const ENVIRONMENT: &str = "wasi:cli/environment";
const EXIT: &str = "wasi:cli/exit";
const IO_ERROR: &str = "wasi:io/error";
const IO_POLL: &str = "wasi:io/poll";
const IO_STREAMS: &str = "wasi:io/streams";
const MONOTONIC: &str = "wasi:clocks/monotonic-clock";
const WALL: &str = "wasi:clocks/wall-clock";
const FILES: &str = "wasi:filesystem/types";
const HTTP: &str = "wasi:http/types";
const HTTP_OUT: &str = "wasi:http/outgoing-handler";
const STORE: &str = "wasi:keyvalue/store";
const TCP: &str = "wasi:sockets/tcp";
const UDP: &str = "wasi:sockets/udp";
const LOOKUP: &str = "wasi:sockets/ip-name-lookup";

const fn row(interface: &'static str, name: &'static str) -> Row {
    Row::new(interface, name)
}

const ENTRY: &[Held] = &[Held::WasiEntry];
const STREAM: &[Held] = &[Held::WasiEntry, Held::HostPage];
const DESCRIPTOR: &[Held] = &[Held::Descriptor];
const PROGRAM: &[Held] = &[
    Held::Store,
    Held::Instance,
    Held::TableElement,
    Held::Memory,
    Held::MemoryPage,
    Held::HostPage,
];

/// Every host step. The order has no meaning.
pub static TABLE: &[Row] = &ROWS;

static ROWS: [Row; 354] = [
    // WASI preview 1.
    row(PREVIEW1, "args_get").caps(&[STRINGS, STRING_COUNT]),
    row(PREVIEW1, "args_sizes_get").caps(&[STRINGS, STRING_COUNT]),
    row(PREVIEW1, "environ_get").caps(&[STRINGS, STRING_COUNT]),
    row(PREVIEW1, "environ_sizes_get").caps(&[STRINGS, STRING_COUNT]),
    row(PREVIEW1, "clock_res_get"),
    row(PREVIEW1, "clock_time_get"),
    row(PREVIEW1, "fd_advise").io(),
    row(PREVIEW1, "fd_allocate").io(),
    row(PREVIEW1, "fd_datasync").io(),
    row(PREVIEW1, "fd_sync").io(),
    row(PREVIEW1, "fd_filestat_set_size").io(),
    row(PREVIEW1, "fd_filestat_set_times").io(),
    row(PREVIEW1, "fd_filestat_get").io(),
    row(PREVIEW1, "fd_close").caps(&[FREED]).io(),
    row(PREVIEW1, "fd_fdstat_get"),
    row(PREVIEW1, "fd_fdstat_set_flags"),
    row(PREVIEW1, "fd_fdstat_set_rights"),
    row(PREVIEW1, "fd_prestat_get"),
    row(PREVIEW1, "fd_renumber"),
    row(PREVIEW1, "fd_seek"),
    row(PREVIEW1, "fd_tell"),
    row(PREVIEW1, "fd_prestat_dir_name").caps(&[PATH]),
    row(PREVIEW1, "fd_read")
        .caps(&[IOVECS, TRANSFER_STEP])
        .holds("a buffer of a transfer")
        .io(),
    row(PREVIEW1, "fd_pread")
        .caps(&[IOVECS, TRANSFER_STEP])
        .holds("a buffer of a transfer")
        .io(),
    row(PREVIEW1, "fd_write")
        .caps(&[IOVECS, TRANSFER_STEP])
        .holds("a buffer of a transfer")
        .io(),
    row(PREVIEW1, "fd_pwrite")
        .caps(&[IOVECS, TRANSFER_STEP])
        .holds("a buffer of a transfer")
        .io(),
    row(PREVIEW1, "fd_readdir")
        .caps(&[WINDOW])
        .holds("a window of entries")
        .io(),
    row(PREVIEW1, "path_create_directory")
        .caps(&[PATH, LEVELS, ALL_LEVELS, CHANGED_PATH])
        .holds("paths")
        .io(),
    row(PREVIEW1, "path_filestat_get")
        .caps(&[PATH, LEVELS, ALL_LEVELS])
        .holds("paths")
        .io(),
    row(PREVIEW1, "path_filestat_set_times")
        .caps(&[PATH, LEVELS, ALL_LEVELS, CHANGED_PATH])
        .holds("paths")
        .io(),
    row(PREVIEW1, "path_link")
        .caps(&[PATH, LEVELS, ALL_LEVELS, CHANGED_PATH])
        .holds("paths")
        .io(),
    row(PREVIEW1, "path_readlink")
        .caps(&[PATH, LEVELS, ALL_LEVELS, CHANGED_PATH])
        .holds("paths")
        .io(),
    row(PREVIEW1, "path_remove_directory")
        .caps(&[PATH, LEVELS, ALL_LEVELS, CHANGED_PATH])
        .holds("paths")
        .io(),
    row(PREVIEW1, "path_rename")
        .caps(&[PATH, LEVELS, ALL_LEVELS, CHANGED_PATH, FREED])
        .holds("paths")
        .io(),
    row(PREVIEW1, "path_symlink")
        .caps(&[LINK, PATH, LEVELS, ALL_LEVELS, CHANGED_PATH])
        .holds("paths")
        .io(),
    row(PREVIEW1, "path_unlink_file")
        .caps(&[PATH, LEVELS, ALL_LEVELS, CHANGED_PATH, FREED])
        .holds("paths")
        .io(),
    row(PREVIEW1, "path_open")
        .caps(&[PATH, LEVELS, ALL_LEVELS, CHANGED_PATH, FREED])
        .takes(&[Held::Descriptor])
        .holds("a path")
        .io(),
    row(PREVIEW1, "poll_oneoff").caps(&[SUBSCRIPTIONS]),
    row(PREVIEW1, "proc_exit"),
    row(PREVIEW1, "proc_raise"),
    row(PREVIEW1, "random_get").caps(&[RANDOM_STEP]),
    row(PREVIEW1, "sched_yield"),
    row(PREVIEW1, "sock_accept"),
    row(PREVIEW1, "sock_recv").caps(&[IOVECS]),
    row(PREVIEW1, "sock_send").caps(&[IOVECS]),
    row(PREVIEW1, "sock_shutdown"),
    // WASI preview 2: the command line.
    row(ENVIRONMENT, "get-environment").caps(&[STRINGS, STRING_COUNT]),
    row(ENVIRONMENT, "get-arguments").caps(&[STRINGS, STRING_COUNT]),
    row(ENVIRONMENT, "initial-cwd"),
    row(EXIT, "exit"),
    row(EXIT, "exit-with-code"),
    row("wasi:cli/stdin", "get-stdin").takes(ENTRY),
    row("wasi:cli/stdout", "get-stdout").takes(ENTRY),
    row("wasi:cli/stderr", "get-stderr").takes(ENTRY),
    row("wasi:cli/terminal-stdin", "get-terminal-stdin").takes(ENTRY),
    row("wasi:cli/terminal-stdout", "get-terminal-stdout").takes(ENTRY),
    row("wasi:cli/terminal-stderr", "get-terminal-stderr").takes(ENTRY),
    row("wasi:cli/terminal-input", "[resource-drop]terminal-input"),
    row("wasi:cli/terminal-output", "[resource-drop]terminal-output"),
    // Clocks and random numbers.
    row(MONOTONIC, "now"),
    row(MONOTONIC, "resolution"),
    row(MONOTONIC, "subscribe-instant").holds("a slot of the arena"),
    row(MONOTONIC, "subscribe-duration").holds("a slot of the arena"),
    row(WALL, "now"),
    row(WALL, "resolution"),
    row("wasi:random/random", "get-random-bytes").caps(&[RANDOM_LIST]),
    row("wasi:random/random", "get-random-u64"),
    row("wasi:random/insecure", "get-insecure-random-bytes").caps(&[RANDOM_LIST]),
    row("wasi:random/insecure", "get-insecure-random-u64"),
    row("wasi:random/insecure-seed", "insecure-seed"),
    // Streams and polling.
    row(IO_ERROR, "[method]error.to-debug-string").caps(&[NAME]),
    row(IO_ERROR, "[resource-drop]error"),
    row(IO_POLL, "poll").caps(&[POLL_LIST]),
    row(IO_POLL, "[method]pollable.ready"),
    row(IO_POLL, "[method]pollable.block"),
    row(IO_POLL, "[resource-drop]pollable"),
    row(IO_STREAMS, "[method]input-stream.read")
        .caps(&[TRANSFER])
        .holds("a buffer of a transfer")
        .io(),
    row(IO_STREAMS, "[method]input-stream.blocking-read")
        .caps(&[TRANSFER])
        .holds("a buffer of a transfer")
        .io(),
    row(IO_STREAMS, "[method]input-stream.skip")
        .caps(&[TRANSFER])
        .holds("a buffer of a transfer")
        .io(),
    row(IO_STREAMS, "[method]input-stream.blocking-skip")
        .caps(&[TRANSFER])
        .holds("a buffer of a transfer")
        .io(),
    row(IO_STREAMS, "[method]input-stream.subscribe").holds("a slot of the arena"),
    row(IO_STREAMS, "[resource-drop]input-stream").io(),
    row(IO_STREAMS, "[method]output-stream.check-write").caps(&[PERMITTED]),
    row(IO_STREAMS, "[method]output-stream.write")
        .caps(&[PERMITTED])
        .holds("a buffer of a transfer")
        .io(),
    row(IO_STREAMS, "[method]output-stream.blocking-write-and-flush")
        .caps(&[PERMITTED])
        .holds("a buffer of a transfer")
        .io(),
    row(IO_STREAMS, "[method]output-stream.write-zeroes")
        .caps(&[PERMITTED])
        .holds("a buffer of a transfer")
        .io(),
    row(
        IO_STREAMS,
        "[method]output-stream.blocking-write-zeroes-and-flush",
    )
    .caps(&[PERMITTED])
    .holds("a buffer of a transfer")
    .io(),
    row(IO_STREAMS, "[method]output-stream.flush").io(),
    row(IO_STREAMS, "[method]output-stream.blocking-flush").io(),
    row(IO_STREAMS, "[method]output-stream.subscribe").holds("a slot of the arena"),
    row(IO_STREAMS, "[method]output-stream.splice")
        .caps(&[TRANSFER])
        .holds("a buffer of a transfer")
        .io(),
    row(IO_STREAMS, "[method]output-stream.blocking-splice")
        .caps(&[TRANSFER])
        .holds("a buffer of a transfer")
        .io(),
    row(IO_STREAMS, "[resource-drop]output-stream").io(),
    // Files.
    row(FILES, "[method]descriptor.read-via-stream")
        .takes(STREAM)
        .holds("a page that is read ahead"),
    row(FILES, "[method]descriptor.write-via-stream")
        .takes(STREAM)
        .holds("what waits to be written"),
    row(FILES, "[method]descriptor.append-via-stream")
        .takes(STREAM)
        .holds("what waits to be written"),
    row(FILES, "[method]descriptor.advise").io(),
    row(FILES, "[method]descriptor.sync-data").io(),
    row(FILES, "[method]descriptor.get-flags"),
    row(FILES, "[method]descriptor.get-type"),
    row(FILES, "[method]descriptor.set-size").io(),
    row(FILES, "[method]descriptor.set-times").io(),
    row(FILES, "[method]descriptor.sync").io(),
    row(FILES, "[method]descriptor.stat").io(),
    row(FILES, "[method]descriptor.is-same-object").io(),
    row(FILES, "[method]descriptor.metadata-hash").io(),
    row(FILES, "[method]descriptor.read")
        .caps(&[TRANSFER])
        .holds("a buffer of a transfer")
        .io(),
    row(FILES, "[method]descriptor.write")
        .caps(&[TRANSFER])
        .holds("a buffer of a transfer")
        .io(),
    row(FILES, "[method]descriptor.read-directory")
        .takes(DESCRIPTOR)
        .holds("a window of entries")
        .io(),
    row(FILES, "[method]descriptor.create-directory-at")
        .caps(&[PATH, LEVELS, ALL_LEVELS, CHANGED_PATH])
        .holds("paths")
        .io(),
    row(FILES, "[method]descriptor.stat-at")
        .caps(&[PATH, LEVELS, ALL_LEVELS])
        .holds("paths")
        .io(),
    row(FILES, "[method]descriptor.set-times-at")
        .caps(&[PATH, LEVELS, ALL_LEVELS, CHANGED_PATH])
        .holds("paths")
        .io(),
    row(FILES, "[method]descriptor.link-at")
        .caps(&[PATH, LEVELS, ALL_LEVELS, CHANGED_PATH])
        .holds("paths")
        .io(),
    row(FILES, "[method]descriptor.readlink-at")
        .caps(&[PATH, LEVELS, ALL_LEVELS, CHANGED_PATH])
        .holds("paths")
        .io(),
    row(FILES, "[method]descriptor.remove-directory-at")
        .caps(&[PATH, LEVELS, ALL_LEVELS, CHANGED_PATH])
        .holds("paths")
        .io(),
    row(FILES, "[method]descriptor.rename-at")
        .caps(&[PATH, LEVELS, ALL_LEVELS, CHANGED_PATH, FREED])
        .holds("paths")
        .io(),
    row(FILES, "[method]descriptor.symlink-at")
        .caps(&[LINK, PATH, LEVELS, ALL_LEVELS, CHANGED_PATH])
        .holds("paths")
        .io(),
    row(FILES, "[method]descriptor.unlink-file-at")
        .caps(&[PATH, LEVELS, ALL_LEVELS, CHANGED_PATH, FREED])
        .holds("paths")
        .io(),
    row(FILES, "[method]descriptor.metadata-hash-at")
        .caps(&[PATH, LEVELS, ALL_LEVELS])
        .holds("paths")
        .io(),
    row(FILES, "[method]descriptor.open-at")
        .caps(&[PATH, LEVELS, ALL_LEVELS, CHANGED_PATH, FREED])
        .takes(DESCRIPTOR)
        .holds("a path")
        .io(),
    row(FILES, "[resource-drop]descriptor").caps(&[FREED]).io(),
    row(FILES, "[method]directory-entry-stream.read-directory-entry")
        .caps(&[WINDOW])
        .io(),
    row(FILES, "[resource-drop]directory-entry-stream").io(),
    row(FILES, "filesystem-error-code"),
    row("wasi:filesystem/preopens", "get-directories")
        .caps(&[STRINGS, STRING_COUNT])
        .takes(DESCRIPTOR),
    // HTTP: the requests that a guest answers, and those that it sends.
    row(HTTP, "[constructor]fields").holds("a slot of the arena"),
    row(HTTP, "[static]fields.from-list")
        .caps(&[FIELDS])
        .holds("fields in the arena"),
    row(HTTP, "[method]fields.get").caps(&[FIELDS]),
    row(HTTP, "[method]fields.has").caps(&[FIELDS]),
    row(HTTP, "[method]fields.set")
        .caps(&[FIELDS])
        .holds("fields in the arena"),
    row(HTTP, "[method]fields.delete").caps(&[FIELDS]),
    row(HTTP, "[method]fields.append")
        .caps(&[FIELDS])
        .holds("fields in the arena"),
    row(HTTP, "[method]fields.entries").caps(&[FIELDS]),
    row(HTTP, "[method]fields.clone")
        .caps(&[FIELDS])
        .holds("fields in the arena"),
    row(HTTP, "[resource-drop]fields"),
    row(HTTP, "[method]incoming-request.method").caps(&[FIELDS]),
    row(HTTP, "[method]incoming-request.path-with-query").caps(&[FIELDS]),
    row(HTTP, "[method]incoming-request.scheme"),
    row(HTTP, "[method]incoming-request.authority").caps(&[FIELDS]),
    row(HTTP, "[method]incoming-request.headers")
        .caps(&[FIELDS])
        .holds("fields in the arena"),
    row(HTTP, "[method]incoming-request.consume").holds("a slot of the arena"),
    row(HTTP, "[resource-drop]incoming-request"),
    row(HTTP, "[constructor]outgoing-request").holds("a slot of the arena"),
    row(HTTP, "[method]outgoing-request.body")
        .caps(&[REQUESTS])
        .takes(&[Held::HostPage])
        .holds("a slot of the arena, and a request's bodies"),
    row(HTTP, "[method]outgoing-request.method").caps(&[FIELDS]),
    row(HTTP, "[method]outgoing-request.set-method")
        .caps(&[FIELDS])
        .holds("fields in the arena"),
    row(HTTP, "[method]outgoing-request.path-with-query").caps(&[FIELDS]),
    row(HTTP, "[method]outgoing-request.set-path-with-query")
        .caps(&[FIELDS])
        .holds("fields in the arena"),
    row(HTTP, "[method]outgoing-request.scheme").caps(&[FIELDS]),
    row(HTTP, "[method]outgoing-request.set-scheme")
        .caps(&[FIELDS])
        .holds("fields in the arena"),
    row(HTTP, "[method]outgoing-request.authority").caps(&[FIELDS]),
    row(HTTP, "[method]outgoing-request.set-authority")
        .caps(&[FIELDS])
        .holds("fields in the arena"),
    row(HTTP, "[method]outgoing-request.headers")
        .caps(&[FIELDS])
        .holds("fields in the arena"),
    row(HTTP, "[resource-drop]outgoing-request"),
    row(HTTP, "[constructor]request-options").holds("a slot of the arena"),
    row(HTTP, "[method]request-options.connect-timeout"),
    row(HTTP, "[method]request-options.set-connect-timeout"),
    row(HTTP, "[method]request-options.first-byte-timeout"),
    row(HTTP, "[method]request-options.set-first-byte-timeout"),
    row(HTTP, "[method]request-options.between-bytes-timeout"),
    row(HTTP, "[method]request-options.set-between-bytes-timeout"),
    row(HTTP, "[resource-drop]request-options"),
    row(HTTP_OUT, "handle")
        .caps(&[FIELDS, REQUESTS])
        .takes(&[Held::HostPage])
        .holds("a request, its bodies and its response"),
    row(HTTP, "[constructor]outgoing-response").holds("a slot of the arena"),
    row(HTTP, "[method]outgoing-response.status-code"),
    row(HTTP, "[method]outgoing-response.set-status-code"),
    row(HTTP, "[method]outgoing-response.headers")
        .caps(&[FIELDS])
        .holds("fields in the arena"),
    row(HTTP, "[method]outgoing-response.body").holds("a slot of the arena"),
    row(HTTP, "[resource-drop]outgoing-response"),
    row(HTTP, "[static]response-outparam.set").caps(&[FIELDS]),
    row(HTTP, "[resource-drop]response-outparam"),
    row(HTTP, "[method]incoming-response.status"),
    row(HTTP, "[method]incoming-response.headers")
        .caps(&[FIELDS])
        .holds("fields in the arena"),
    row(HTTP, "[method]incoming-response.consume").holds("a slot of the arena"),
    row(HTTP, "[resource-drop]incoming-response"),
    row(HTTP, "[method]future-incoming-response.subscribe").holds("a slot of the arena"),
    row(HTTP, "[method]future-incoming-response.get")
        .caps(&[FIELDS])
        .holds("fields in the arena"),
    row(HTTP, "[resource-drop]future-incoming-response"),
    row(HTTP, "[method]incoming-body.stream").takes(ENTRY),
    row(HTTP, "[static]incoming-body.finish").holds("a slot of the arena"),
    row(HTTP, "[resource-drop]incoming-body"),
    row(HTTP, "[method]future-trailers.subscribe").holds("a slot of the arena"),
    row(HTTP, "[method]future-trailers.get")
        .caps(&[FIELDS])
        .holds("fields in the arena"),
    row(HTTP, "[resource-drop]future-trailers"),
    row(HTTP, "[method]outgoing-body.write").takes(ENTRY),
    row(HTTP, "[static]outgoing-body.finish").caps(&[FIELDS]),
    row(HTTP, "[resource-drop]outgoing-body"),
    row(HTTP, "http-error-code"),
    // What a lease gives beside these.
    row("wasi:config/store", "get").caps(&[STRINGS, STRING_COUNT]),
    row("wasi:config/store", "get-all").caps(&[STRINGS, STRING_COUNT]),
    row("wasi:logging/logging", "log").caps(&[CALL, LOG_LINE]),
    row(STORE, "open").holds("a slot of the arena"),
    row(STORE, "[method]bucket.get")
        .caps(&[KEY, VALUE])
        .holds("pages of the store, and the value")
        .io(),
    row(STORE, "[method]bucket.set")
        .caps(&[KEY, VALUE])
        .holds("pages of the store, and the value")
        .io(),
    row(STORE, "[method]bucket.delete")
        .caps(&[KEY])
        .holds("pages of the store")
        .io(),
    row(STORE, "[method]bucket.exists")
        .caps(&[KEY])
        .holds("pages of the store, and the value")
        .io(),
    row(STORE, "[method]bucket.list-keys")
        .caps(&[KEY_PAGE, KEY_PAGE_BYTES])
        .holds("pages of the store, and a page of keys")
        .io(),
    row(STORE, "[resource-drop]bucket"),
    row("wasi:keyvalue/atomics", "increment")
        .caps(&[KEY])
        .holds("pages of the store, and the value")
        .io(),
    row("wasi:keyvalue/batch", "get-many")
        .caps(&[KEY, KEYS, ANSWER])
        .holds("pages of the store, and the values")
        .io(),
    row("wasi:keyvalue/batch", "set-many")
        .caps(&[KEY, VALUE, KEYS])
        .holds("pages of the store, and the values")
        .io(),
    row("wasi:keyvalue/batch", "delete-many")
        .caps(&[KEY, KEYS])
        .holds("pages of the store")
        .io(),
    row("wasi:sockets/network", "[resource-drop]network"),
    row("wasi:sockets/instance-network", "instance-network").holds("a slot of the arena"),
    row(LOOKUP, "resolve-addresses")
        .caps(&[CALL, REQUESTS])
        .takes(&[Held::HostPage])
        .holds("a slot of the arena"),
    row(
        LOOKUP,
        "[method]resolve-address-stream.resolve-next-address",
    ),
    row(LOOKUP, "[method]resolve-address-stream.subscribe").holds("a slot of the arena"),
    row(LOOKUP, "[resource-drop]resolve-address-stream"),
    row("wasi:sockets/tcp-create-socket", "create-tcp-socket").holds("a slot of the arena"),
    row("wasi:sockets/udp-create-socket", "create-udp-socket").holds("a slot of the arena"),
    row(TCP, "[method]tcp-socket.start-bind"),
    row(TCP, "[method]tcp-socket.finish-bind"),
    row(TCP, "[method]tcp-socket.start-connect")
        .caps(&[REQUESTS])
        .takes(&[Held::HostPage])
        .holds("what goes over the connection"),
    row(TCP, "[method]tcp-socket.finish-connect").takes(ENTRY),
    row(TCP, "[method]tcp-socket.start-listen")
        .caps(&[REQUESTS])
        .takes(&[Held::HostPage])
        .holds("a socket that listens"),
    row(TCP, "[method]tcp-socket.finish-listen")
        .caps(&[REQUESTS])
        .takes(&[Held::HostPage])
        .holds("what goes over the next connection"),
    row(TCP, "[method]tcp-socket.accept")
        .caps(&[REQUESTS])
        .takes(&[Held::HostPage, Held::WasiEntry])
        .holds("a slot of the arena, what goes over the next connection"),
    row(TCP, "[method]tcp-socket.local-address"),
    row(TCP, "[method]tcp-socket.remote-address"),
    row(TCP, "[method]tcp-socket.is-listening"),
    row(TCP, "[method]tcp-socket.address-family"),
    row(TCP, "[method]tcp-socket.set-listen-backlog-size"),
    row(TCP, "[method]tcp-socket.keep-alive-enabled"),
    row(TCP, "[method]tcp-socket.set-keep-alive-enabled"),
    row(TCP, "[method]tcp-socket.keep-alive-idle-time"),
    row(TCP, "[method]tcp-socket.set-keep-alive-idle-time"),
    row(TCP, "[method]tcp-socket.keep-alive-interval"),
    row(TCP, "[method]tcp-socket.set-keep-alive-interval"),
    row(TCP, "[method]tcp-socket.keep-alive-count"),
    row(TCP, "[method]tcp-socket.set-keep-alive-count"),
    row(TCP, "[method]tcp-socket.hop-limit"),
    row(TCP, "[method]tcp-socket.set-hop-limit"),
    row(TCP, "[method]tcp-socket.receive-buffer-size"),
    row(TCP, "[method]tcp-socket.set-receive-buffer-size"),
    row(TCP, "[method]tcp-socket.send-buffer-size"),
    row(TCP, "[method]tcp-socket.set-send-buffer-size"),
    row(TCP, "[method]tcp-socket.subscribe").holds("a slot of the arena"),
    row(TCP, "[method]tcp-socket.shutdown"),
    row(TCP, "[resource-drop]tcp-socket"),
    row(UDP, "[method]udp-socket.start-bind")
        .caps(&[REQUESTS])
        .takes(&[Held::HostPage])
        .holds("datagrams on their way"),
    row(UDP, "[method]udp-socket.finish-bind"),
    row(UDP, "[method]udp-socket.stream").holds("two slots of the arena"),
    row(UDP, "[method]udp-socket.local-address"),
    row(UDP, "[method]udp-socket.remote-address"),
    row(UDP, "[method]udp-socket.address-family"),
    row(UDP, "[method]udp-socket.unicast-hop-limit"),
    row(UDP, "[method]udp-socket.set-unicast-hop-limit"),
    row(UDP, "[method]udp-socket.receive-buffer-size"),
    row(UDP, "[method]udp-socket.set-receive-buffer-size"),
    row(UDP, "[method]udp-socket.send-buffer-size"),
    row(UDP, "[method]udp-socket.set-send-buffer-size"),
    row(UDP, "[method]udp-socket.subscribe").holds("a slot of the arena"),
    row(UDP, "[method]incoming-datagram-stream.receive")
        .caps(&[DATAGRAMS, RECEIVED])
        .holds("the datagrams"),
    row(UDP, "[method]incoming-datagram-stream.subscribe").holds("a slot of the arena"),
    row(UDP, "[method]outgoing-datagram-stream.check-send"),
    row(UDP, "[method]outgoing-datagram-stream.send").caps(&[CALL, DATAGRAMS, TRANSFER]),
    row(UDP, "[method]outgoing-datagram-stream.subscribe").holds("a slot of the arena"),
    row(UDP, "[resource-drop]udp-socket"),
    row(UDP, "[resource-drop]incoming-datagram-stream"),
    row(UDP, "[resource-drop]outgoing-datagram-stream"),
    // The kernel, for core modules and for components.
    row(KERNEL, "capability_derive").holds("a slot of the arena"),
    row("leasehold:kernel/capability", "derive").holds("a slot of the arena"),
    row(KERNEL, "capability_drop"),
    row("leasehold:kernel/capability", "drop"),
    row(KERNEL, "capability_revoke"),
    row("leasehold:kernel/capability", "revoke"),
    row(KERNEL, "semaphore_create").holds("a slot of the arena"),
    row("leasehold:kernel/semaphore", "create").holds("a slot of the arena"),
    row(KERNEL, "semaphore_up"),
    row("leasehold:kernel/semaphore", "up"),
    row(KERNEL, "semaphore_down"),
    row("leasehold:kernel/semaphore", "down"),
    row(KERNEL, "semaphore_try_down"),
    row("leasehold:kernel/semaphore", "try-down"),
    row(KERNEL, "channel_create")
        .caps(&[COPIED_REGION])
        .holds("a slot of the arena"),
    row("leasehold:kernel/channel", "create")
        .caps(&[COPIED_REGION])
        .holds("a slot of the arena"),
    row(KERNEL, "channel_send")
        .caps(&[MESSAGE, MESSAGE_CAPABILITIES])
        .holds("a message in the arena"),
    row("leasehold:kernel/channel", "send")
        .caps(&[MESSAGE, MESSAGE_CAPABILITIES])
        .holds("a message in the arena"),
    row(KERNEL, "channel_try_send")
        .caps(&[MESSAGE, MESSAGE_CAPABILITIES])
        .holds("a message in the arena"),
    row("leasehold:kernel/channel", "try-send")
        .caps(&[MESSAGE, MESSAGE_CAPABILITIES])
        .holds("a message in the arena"),
    row(KERNEL, "channel_receive").caps(&[MESSAGE, MESSAGE_CAPABILITIES]),
    row("leasehold:kernel/channel", "receive").caps(&[MESSAGE, MESSAGE_CAPABILITIES]),
    row(KERNEL, "channel_try_receive").caps(&[MESSAGE, MESSAGE_CAPABILITIES]),
    row("leasehold:kernel/channel", "try-receive").caps(&[MESSAGE, MESSAGE_CAPABILITIES]),
    row(KERNEL, "region_create")
        .caps(&[COPIED_REGION])
        .holds("bytes of the arena"),
    row("leasehold:kernel/region", "create")
        .caps(&[COPIED_REGION])
        .holds("bytes of the arena"),
    row(KERNEL, "region_length"),
    row("leasehold:kernel/region", "length"),
    row(KERNEL, "region_read").caps(&[REGION_COPY]),
    row("leasehold:kernel/region", "read").caps(&[REGION_COPY]),
    row(KERNEL, "region_write").caps(&[REGION_COPY]),
    row("leasehold:kernel/region", "write").caps(&[REGION_COPY]),
    row(KERNEL, "region_create_mapped")
        .caps(&[PAGES])
        .takes(&[Held::Memory, Held::PagedPage]),
    row(KERNEL, "region_map").takes(&[Held::Memory, Held::PagedPage]),
    row(KERNEL, "region_map_at").caps(&[PAGES]),
    row(KERNEL, "data_length").caps(&[NAME]),
    row(KERNEL, "data_map")
        .caps(&[NAME, PAGES])
        .takes(&[Held::Memory, Held::PagedPage]),
    row(KERNEL, "timer_create").holds("a slot of the arena"),
    row("leasehold:kernel/timer", "create").holds("a slot of the arena"),
    row(KERNEL, "timer_set"),
    row("leasehold:kernel/timer", "set"),
    row(KERNEL, "timer_wait"),
    row("leasehold:kernel/timer", "wait"),
    row(KERNEL, "task_start").caps(&[ARGUMENTS]).takes(PROGRAM),
    row("leasehold:kernel/task", "start")
        .caps(&[ARGUMENTS])
        .takes(PROGRAM),
    row(KERNEL, "task_wait"),
    row("leasehold:kernel/task", "wait"),
    row(KERNEL, "task_stop"),
    row("leasehold:kernel/task", "stop"),
    row(KERNEL, "tenant_create").holds("a group"),
    row("leasehold:kernel/tenant", "create").holds("a group"),
    row(KERNEL, "tenant_start")
        .caps(&[ARGUMENTS])
        .takes(PROGRAM),
    row("leasehold:kernel/tenant", "start")
        .caps(&[ARGUMENTS])
        .takes(PROGRAM),
    row(KERNEL, "tenant_grant").holds("a slot of the arena"),
    row("leasehold:kernel/tenant", "grant").holds("a slot of the arena"),
    row(KERNEL, "tenant_wait"),
    row("leasehold:kernel/tenant", "wait"),
    row(KERNEL, "tenant_end"),
    row("leasehold:kernel/tenant", "end"),
    row(KERNEL, "tenant_statement"),
    row("leasehold:kernel/tenant", "statement"),
    // Steps of the engine that no call names.
    row(ENGINE, "instruction")
        .caps(&[CALL, BULK, TABLE_BULK, LENDS])
        .holds("what a call lifts and lowers"),
    row(ENGINE, "memory.grow").takes(&[Held::Memory, Held::MemoryPage]),
    row(ENGINE, "table.grow")
        .caps(&[TABLE_GROWTH, TABLE_ELEMENTS])
        .takes(&[Held::TableElement]),
    row(ENGINE, "throw").caps(&[HANDLERS]),
    row(ENGINE, "string").caps(&[STRING, WIDE_STRING]),
    row(ENGINE, "instantiate")
        .caps(&[GLOBALS, SEGMENTS, COMPONENTS])
        .takes(PROGRAM),
    row(ENGINE, "call")
        .caps(&[VALUES, NESTED, POINTERS, CALLS_WAITING])
        .holds("arguments and results of a call"),
    row(ENGINE, "data segments").caps(&[DATA, DATA_PAGES]),
    row(ENGINE, "element segments").caps(&[ELEMENTS, ELEMENT_PAGES]),
    row(ENGINE, "yield"),
    row(ENGINE, "trap").caps(&[FRAMES, NAME, TRAP_MESSAGE]),
    row(ENGINE, "store drop").caps(&[HANDLES, ALL_HANDLES, REQUESTS]),
    // Steps of the cell for a tenant.
    row(CELL, "fault").fault(),
    row(CELL, "detach").caps(&[PAGES]),
    row(CELL, "withdraw regions").caps(&[PAGES]),
    row(CELL, "admit"),
    row(CELL, "start: reserve").caps(&[RESERVED]).fault(),
    row(CELL, "start: charge").takes(PROGRAM),
    row(CELL, "start: share").caps(&[PAGES]),
    row(CELL, "start: surround").caps(&[STRINGS, STRING_COUNT]),
    row(CELL, "start: open a directory"),
    row(CELL, "start: assemble"),
    row(CELL, "end: begin"),
    row(CELL, "end: sever").caps(&[SCRUBS]),
    row(CELL, "end: give back").caps(&[PAGES]),
    row(CELL, "hold again").caps(&[HELD]),
    row(CELL, "task end"),
    row(CELL, "wake"),
    row(CELL, "timers").caps(&[TIMERS]),
    row(CELL, "serve: build").takes(PROGRAM),
    row(CELL, "serve: request")
        .caps(&[FIELDS])
        .holds("a request in the arena"),
    row(CELL, "serve: response"),
    row(CELL, "serve: stop").caps(&[WORKERS]),
];
