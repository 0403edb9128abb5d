//! The few functions of WASI preview 1 that the hostile guests need.

use core::ptr;

mod import {
    #[link(wasm_import_module = "wasi_snapshot_preview1")]
    unsafe extern "C" {
        pub(super) fn args_sizes_get(count: *mut usize, bytes: *mut usize) -> u32;
        pub(super) fn args_get(pointers: *mut *const u8, bytes: *mut u8) -> u32;
        pub(super) fn fd_write(
            fd: u32,
            ranges: *const super::Range,
            count: usize,
            written: *mut usize,
        ) -> u32;
        pub(super) fn fd_prestat_dir_name(fd: u32, name: *mut u8, length: usize) -> u32;
        pub(super) fn fd_prestat_get(fd: u32, prestat: *mut super::Prestat) -> u32;
        pub(super) fn path_open(
            directory: u32,
            lookup: u32,
            path: *const u8,
            length: usize,
            open: u32,
            rights: u64,
            inherited: u64,
            flags: u32,
            fd: *mut u32,
        ) -> u32;
        pub(super) fn poll_oneoff(
            subscriptions: *const super::Subscription,
            events: *mut super::Event,
            count: usize,
            happened: *mut usize,
        ) -> u32;
        pub(super) fn clock_time_get(clock: u32, precision_ns: u64, now: *mut u64) -> u32;
        pub(super) safe fn proc_exit(code: u32) -> !;
    }
}

/// `ciovec`.
#[repr(C)]
struct Range {
    start: *const u8,
    length: usize,
}

/// `prestat`; the only kind is a directory.
#[repr(C)]
#[derive(Default)]
struct Prestat {
    kind: u32,
    name_length: usize,
}

/// `subscription`, the clock kind.
#[repr(C)]
struct Subscription {
    user_data: u64,
    kind: u64,
    clock: u32,
    timeout_ns: u64,
    precision_ns: u64,
    flags: u16,
}

/// `event`, which is not read.
#[repr(C, align(8))]
struct Event([u8; 32]);

/// Ends the program.
pub fn exit(code: u32) -> ! {
    import::proc_exit(code)
}

const MONOTONIC: u32 = 1;

/// Sleeps for `nanoseconds`, or not at all if the host refuses.
pub fn nap(nanoseconds: u64) {
    wait(nanoseconds, 0);
}

/// Sleeps until [`now`] is `instant`, or not at all if the host refuses.
pub fn nap_until(instant: u64) {
    const ABSOLUTE: u16 = 1;
    wait(instant, ABSOLUTE);
}

fn wait(timeout_ns: u64, flags: u16) {
    let subscription = Subscription {
        user_data: 0,
        kind: 0,
        clock: MONOTONIC,
        timeout_ns,
        precision_ns: 0,
        flags,
    };
    let mut event = Event([0; 32]);
    let mut happened = 0;
    // SAFETY: one subscription to read, room for one event and one count to write.
    unsafe {
        import::poll_oneoff(
            &raw const subscription,
            &raw mut event,
            1,
            &raw mut happened,
        )
    };
}

/// Nanoseconds of the monotonic clock; 0 if the host refuses.
#[must_use]
pub fn now() -> u64 {
    let mut now = 0;
    // SAFETY: one instant to write.
    unsafe { import::clock_time_get(MONOTONIC, 0, &raw mut now) };
    now
}

/// Writes to standard output; bytes that the host does not take are lost.
pub(crate) fn write_stdout(bytes: &[u8]) {
    let range = Range {
        start: bytes.as_ptr(),
        length: bytes.len(),
    };
    let mut written = 0;
    // SAFETY: one range to read, itself borrowed for the call, and one count to write.
    unsafe { import::fd_write(1, &raw const range, 1, &raw mut written) };
}

/// Reads the argument vector: the strings into `bytes`, each ended by a 0 byte. `None` if the
/// host refuses or there are more than the two slices hold. Returns the count.
pub(crate) fn read_arguments(pointers: &mut [*const u8], bytes: &mut [u8]) -> Option<usize> {
    let (mut count, mut length) = (0, 0);
    // SAFETY: two counts to write.
    let refused = unsafe { import::args_sizes_get(&raw mut count, &raw mut length) } != 0;
    if refused || count > pointers.len() || length > bytes.len() {
        return None;
    }
    // SAFETY: the host writes `count` pointers and `length` bytes, which fit.
    let refused = unsafe { import::args_get(pointers.as_mut_ptr(), bytes.as_mut_ptr()) } != 0;
    (!refused).then_some(count)
}

/// A file descriptor. Never closed: the host must do that.
#[derive(Clone, Copy)]
pub struct Descriptor(u32);

impl Descriptor {
    /// The directory that the host opened in advance under `name`.
    #[must_use]
    pub fn preopened(name: &str) -> Option<Descriptor> {
        const FIRST: u32 = 3;
        let mut prestat = Prestat::default();
        let mut found = [0; 256];
        for fd in FIRST.. {
            // SAFETY: one prestat to write.
            if unsafe { import::fd_prestat_get(fd, &raw mut prestat) } != 0 {
                return None;
            }
            let Some(room) = found.get_mut(..prestat.name_length) else {
                continue;
            };
            // SAFETY: the host writes `name_length` bytes, which fit.
            unsafe { import::fd_prestat_dir_name(fd, room.as_mut_ptr(), room.len()) };
            if room == name.as_bytes() {
                return Some(Descriptor(fd));
            }
        }
        None
    }

    /// Opens the file `name` in the directory for reading, making it if there is none.
    ///
    /// # Errors
    /// The `errno` of WASI preview 1.
    pub fn open(self, name: &str) -> Result<Descriptor, u32> {
        const CREATE: u32 = 1;
        const READ: u64 = 1 << 1;
        let mut fd = 0;
        // SAFETY: `name` is borrowed for the call, which reads it and writes one descriptor.
        let errno = unsafe {
            import::path_open(
                self.0,
                0,
                name.as_ptr(),
                name.len(),
                CREATE,
                READ,
                0,
                0,
                ptr::from_mut(&mut fd),
            )
        };
        if errno == 0 {
            Ok(Descriptor(fd))
        } else {
            Err(errno)
        }
    }
}
