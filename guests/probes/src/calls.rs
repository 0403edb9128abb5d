//! Functions of WASI preview 1 for a program without a library.

mod import {
    #[link(wasm_import_module = "wasi_snapshot_preview1")]
    unsafe extern "C" {
        pub(super) fn clock_time_get(clock: u32, precision_ns: u64, now: *mut u64) -> u32;
        pub(super) safe fn sched_yield() -> u32;
        pub(super) fn random_get(buffer: *mut u8, length: usize) -> u32;
        pub(super) fn fd_write(
            fd: u32,
            list: *const super::Piece,
            count: usize,
            done: *mut usize,
        ) -> u32;
        pub(super) fn fd_pread(
            fd: u32,
            list: *const super::Piece,
            count: usize,
            offset: u64,
            done: *mut usize,
        ) -> u32;
        pub(super) fn fd_pwrite(
            fd: u32,
            list: *const super::Piece,
            count: usize,
            offset: u64,
            done: *mut usize,
        ) -> u32;
        pub(super) fn fd_filestat_get(fd: u32, status: *mut u8) -> u32;
        pub(super) fn fd_readdir(
            fd: u32,
            buffer: *mut u8,
            length: usize,
            cookie: u64,
            done: *mut usize,
        ) -> u32;
        pub(super) safe fn fd_close(fd: u32) -> u32;
        pub(super) fn path_filestat_get(
            fd: u32,
            flags: u32,
            path: *const u8,
            length: usize,
            status: *mut u8,
        ) -> u32;
        pub(super) fn path_open(
            fd: u32,
            lookup: u32,
            path: *const u8,
            length: usize,
            open: u32,
            rights: u64,
            inherited: u64,
            flags: u32,
            opened: *mut u32,
        ) -> u32;
        pub(super) fn path_unlink_file(fd: u32, path: *const u8, length: usize) -> u32;
        pub(super) fn path_create_directory(fd: u32, path: *const u8, length: usize) -> u32;
        pub(super) fn path_remove_directory(fd: u32, path: *const u8, length: usize) -> u32;
        pub(super) fn poll_oneoff(
            subscriptions: *const u8,
            events: *mut u8,
            count: usize,
            happened: *mut usize,
        ) -> u32;
    }
}

/// `iovec` and `ciovec`.
#[repr(C)]
struct Piece {
    start: *mut u8,
    length: usize,
}

/// The first directory that a program is given.
pub const DIRECTORY: u32 = 3;

const CREATE: u32 = 1;
/// All rights to a file.
const RIGHTS: u64 = 0x0fff_ffff;

/// A refusal, with its errno.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused(pub u32);

fn answer(errno: u32) -> Result<(), Refused> {
    match errno {
        0 => Ok(()),
        errno => Err(Refused(errno)),
    }
}

/// Room for the results of calls.
pub struct Room {
    bytes: [u8; 4096],
    status: [u64; 8],
    count: usize,
}

impl Room {
    /// Empty.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            bytes: [0; 4096],
            status: [0; 8],
            count: 0,
        }
    }

    fn piece(&mut self, length: usize) -> Piece {
        Piece {
            start: self.bytes.as_mut_ptr(),
            length: length.min(self.bytes.len()),
        }
    }

    /// Reads the monotonic clock.
    ///
    /// # Errors
    /// The host's error.
    pub fn clock_time_get(&mut self) -> Result<(), Refused> {
        // SAFETY: the host writes eight bytes there.
        answer(unsafe { import::clock_time_get(1, 0, self.status.as_mut_ptr()) })
    }

    /// Lets others run.
    ///
    /// # Errors
    /// The host's error.
    pub fn sched_yield(&mut self) -> Result<(), Refused> {
        answer(import::sched_yield())
    }

    /// Sixteen random bytes.
    ///
    /// # Errors
    /// The host's error.
    pub fn random_get(&mut self) -> Result<(), Refused> {
        // SAFETY: the host writes sixteen bytes there.
        answer(unsafe { import::random_get(self.bytes.as_mut_ptr(), 16) })
    }

    /// Writes a byte where the file is.
    ///
    /// # Errors
    /// The host's error.
    pub fn fd_write(&mut self, fd: u32) -> Result<(), Refused> {
        let piece = self.piece(1);
        // SAFETY: the piece is this object's, and the host writes a size there.
        answer(unsafe { import::fd_write(fd, &piece, 1, &mut self.count) })
    }

    /// Reads a page of a file from its beginning.
    ///
    /// # Errors
    /// The host's error.
    pub fn fd_pread(&mut self, fd: u32) -> Result<(), Refused> {
        let piece = self.piece(4096);
        // SAFETY: as for `fd_write`.
        answer(unsafe { import::fd_pread(fd, &piece, 1, 0, &mut self.count) })
    }

    /// Writes a page at the beginning of a file.
    ///
    /// # Errors
    /// The host's error.
    pub fn fd_pwrite(&mut self, fd: u32) -> Result<(), Refused> {
        let piece = self.piece(4096);
        // SAFETY: as for `fd_write`.
        answer(unsafe { import::fd_pwrite(fd, &piece, 1, 0, &mut self.count) })
    }

    /// The status of an open file.
    ///
    /// # Errors
    /// The host's error.
    pub fn fd_filestat_get(&mut self, fd: u32) -> Result<(), Refused> {
        // SAFETY: the host writes 64 bytes there.
        answer(unsafe { import::fd_filestat_get(fd, self.status.as_mut_ptr().cast()) })
    }

    /// The first entries of the directory, a page of them.
    ///
    /// # Errors
    /// The host's error.
    pub fn fd_readdir(&mut self, fd: u32) -> Result<(), Refused> {
        // SAFETY: the host writes as many bytes there, and a size.
        answer(unsafe { import::fd_readdir(fd, self.bytes.as_mut_ptr(), 4096, 0, &mut self.count) })
    }

    /// The status of a name.
    ///
    /// # Errors
    /// The host's error.
    pub fn path_filestat_get(&mut self, path: &str) -> Result<(), Refused> {
        let status = self.status.as_mut_ptr().cast();
        // SAFETY: the host reads the name and writes 64 bytes.
        answer(unsafe {
            import::path_filestat_get(DIRECTORY, 0, path.as_ptr(), path.len(), status)
        })
    }

    /// Opens a name, and closes it again.
    ///
    /// # Errors
    /// The host's error.
    pub fn path_open_and_close(&mut self, path: &str) -> Result<(), Refused> {
        close(open(path, 0)?)
    }

    /// Creates a file, closes it and removes it.
    ///
    /// # Errors
    /// The host's error.
    pub fn create_and_unlink(&mut self, path: &str) -> Result<(), Refused> {
        close(open(path, CREATE)?)?;
        // SAFETY: the host reads the name.
        answer(unsafe { import::path_unlink_file(DIRECTORY, path.as_ptr(), path.len()) })
    }

    /// Makes a directory and removes it.
    ///
    /// # Errors
    /// The host's error.
    pub fn mkdir_and_rmdir(&mut self, path: &str) -> Result<(), Refused> {
        // SAFETY: the host reads the name.
        answer(unsafe { import::path_create_directory(DIRECTORY, path.as_ptr(), path.len()) })?;
        // SAFETY: as before.
        answer(unsafe { import::path_remove_directory(DIRECTORY, path.as_ptr(), path.len()) })
    }

    /// Waits for a clock that has been reached already.
    ///
    /// # Errors
    /// The host's error.
    pub fn poll_oneoff(&mut self) -> Result<(), Refused> {
        // The user's data, the kind (a clock), which clock, timeout, precision, flags: of eight bytes
        // each but for the kind and the clock.
        let subscription: [u64; 6] = [0, 0, 1, 0, 0, 0];
        let events = self.bytes.as_mut_ptr();
        // SAFETY: the host reads 48 bytes and writes 32, and a size.
        answer(unsafe {
            import::poll_oneoff(subscription.as_ptr().cast(), events, 1, &mut self.count)
        })
    }
}

impl Default for Room {
    fn default() -> Self {
        Self::new()
    }
}

/// Creates a file, or opens the one that is there.
///
/// # Errors
/// The host's error.
pub fn create(path: &str) -> Result<u32, Refused> {
    open(path, CREATE)
}

fn open(path: &str, flags: u32) -> Result<u32, Refused> {
    let mut fd = 0;
    // SAFETY: the host reads the name and writes a number.
    answer(unsafe {
        let (start, length) = (path.as_ptr(), path.len());
        import::path_open(
            DIRECTORY, 1, start, length, flags, RIGHTS, RIGHTS, 0, &mut fd,
        )
    })?;
    Ok(fd)
}

fn close(fd: u32) -> Result<(), Refused> {
    answer(import::fd_close(fd))
}
