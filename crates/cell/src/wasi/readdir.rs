//! Preview 1's `fd_readdir`: from a window on the directory into the guest's own memory.
//!
//! `wasmtime-wasi` reads the whole directory for every call, asks the host for each entry's
//! metadata, and then hands out what fits in the guest's buffer: a directory of a million files is
//! a million strings, uncharged, and a guest that reads it through a small buffer makes it do so
//! again for every few entries. Here a call reads no more at a time than a window
//! ([`super::window`]), which is less than any lease pays for as the memory of a call, and writes
//! what it found where the guest wants it.
//!
//! A cookie is the number by which the host's kernel calls the place, as it would be without a host
//! in between: whatever a guest passes, it is the guest's own directory that is read.

use super::preview1::{FAULT, SUCCESS};
use super::window::{self, Entry, Place, Verdict, WINDOW};
use crate::guest::Guest;
use rustix::fs::{FileType, Stat, fstat};
use std::fs::File;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use wasmtime::component::Resource;
use wasmtime::error::Context as _;
use wasmtime::{Caller, Result, bail};
use wasmtime_wasi::WasiView as _;
use wasmtime_wasi::filesystem::Descriptor;
use wasmtime_wasi::p1::types::{Errno, Filetype};
use wasmtime_wasi::p1::wasi_snapshot_preview1::{
    WasiSnapshotPreview1 as _, fd_close, fd_prestat_get, path_open,
};
use wasmtime_wasi::p2::bindings::filesystem::types::ErrorCode;
use wasmtime_wasi::runtime::spawn_blocking;
use wiggle::GuestMemory;

/// Bytes of an entry in front of its name.
const DIRENT_BYTES: usize = 24;

/// Writes entries of the directory `fd` from `cookie` on to `buffer`, and to `result` how many bytes
/// they take; less than `length` only if there are no more. The last entry may be cut off.
///
/// # Errors
/// Traps, as `wasmtime-wasi` does. What the guest did wrong is an errno.
pub(super) async fn fd_readdir(
    caller: &mut Caller<'_, Guest>,
    fd: u32,
    buffer: u32,
    length: u32,
    cookie: u64,
    result: u32,
) -> Result<i32> {
    let Some(memory) = Guest::memory(caller) else {
        bail!("the module exports no memory")
    };
    let (buffer, length) = (buffer as usize, length as usize);
    let result = result as usize;
    let size = memory.data_size(&*caller);
    if buffer + length > size || result + 4 > size {
        return Ok(FAULT);
    }
    let directory = match open(caller.data_mut(), fd).await? {
        Ok(directory) => directory,
        Err(errno) => return Ok(errno),
    };
    let mut used = 0;
    let mut place = Place::Before(cookie);
    while let Place::Before(at) = place
        && used < length
    {
        let (directory, room) = (Arc::clone(&directory), length - used);
        let dirents = match spawn_blocking(move || Dirents::read(&directory, at, room)).await {
            Ok(dirents) => dirents,
            Err(code) => return Ok(Errno::from(code) as i32),
        };
        let bytes = &dirents.bytes[..dirents.bytes.len().min(room)];
        let to = buffer + used;
        memory.data_mut(&mut *caller)[to..to + bytes.len()].copy_from_slice(bytes);
        used += bytes.len();
        place = dirents.next;
    }
    // No more than `length`, which is 32 bits.
    memory.data_mut(&mut *caller)[result..result + 4].copy_from_slice(&(used as u32).to_le_bytes());
    Ok(SUCCESS)
}

/// Entries as the guest wants them.
struct Dirents {
    bytes: Vec<u8>,
    next: Place,
}

impl Dirents {
    /// Reads what begins at `place`, until `room` bytes are full or a window was read. On a thread
    /// that may block; holds hardly more than a window: an entry is up to 4 bytes longer than the
    /// kernel's, which takes 24 at the least.
    fn read(directory: &File, place: u64, room: usize) -> Result<Dirents, ErrorCode> {
        let mut bytes = Vec::with_capacity(room.min(WINDOW + WINDOW / 6));
        let next = window::read(directory, place, |entry| {
            let Some((kind, number)) = identity(directory, entry)? else {
                return Ok(Verdict::Left);
            };
            let name = entry.text()?.as_bytes();
            let mut head = [0; DIRENT_BYTES];
            head[..8].copy_from_slice(&entry.next.to_le_bytes());
            head[8..16].copy_from_slice(&number.to_le_bytes());
            // A name is at most 255 bytes long.
            head[16..20].copy_from_slice(&(name.len() as u32).to_le_bytes());
            head[20] = kind as u8;
            bytes.extend_from_slice(&head);
            bytes.extend_from_slice(name);
            Ok(match bytes.len() < room {
                true => Verdict::Taken,
                false => Verdict::Enough,
            })
        })?;
        Ok(Dirents { bytes, next })
    }
}

/// The kind of an entry and its file's number; `None` if it has gone meanwhile. A guest is not told
/// of what is above its directory: that has the directory's own number.
fn identity(directory: &File, entry: &Entry<'_>) -> Result<Option<(Filetype, u64)>, ErrorCode> {
    if entry.is_dots() {
        let status = fstat(directory).map_err(std::io::Error::from)?;
        return Ok(Some((Filetype::Directory, number(&status))));
    }
    let Some(status) = entry.status()? else {
        return Ok(None);
    };
    let kind = match FileType::from_raw_mode(status.st_mode) {
        FileType::RegularFile => Filetype::RegularFile,
        FileType::Directory => Filetype::Directory,
        FileType::Symlink => Filetype::SymbolicLink,
        FileType::CharacterDevice => Filetype::CharacterDevice,
        FileType::BlockDevice => Filetype::BlockDevice,
        FileType::Socket => Filetype::SocketStream,
        FileType::Fifo | FileType::Unknown => Filetype::Unknown,
    };
    Ok(Some((kind, number(&status))))
}

/// What a guest sees for an inode: the same number that `wasmtime-wasi` shows it for the file
/// elsewhere.
fn number(status: &Stat) -> u64 {
    let mut hasher = DefaultHasher::new();
    (status.st_dev, status.st_ino).hash(&mut hasher);
    hasher.finish()
}

/// A placeholder in the resource table.
struct Probe;

/// Guest memory of the calls below, aligned as the guest's would be.
#[repr(align(8))]
struct Scratch([u8; 16]);

impl Scratch {
    /// Where the path of the directory itself is, and where results go.
    const PATH: i32 = 0;
    const RESULT: i32 = 8;

    fn new() -> Self {
        let mut bytes = [0; 16];
        bytes[Self::PATH as usize] = b'.';
        Self(bytes)
    }

    fn memory(&mut self) -> GuestMemory<'_> {
        GuestMemory::Unshared(&mut self.0)
    }

    fn result(&self) -> i32 {
        let at = Self::RESULT as usize;
        let mut result = [0; 4];
        result.copy_from_slice(&self.0[at..at + 4]);
        i32::from_le_bytes(result)
    }
}

/// The host's directory behind a descriptor of the guest's, or an errno.
///
/// `wasmtime-wasi` does not say which entry of its resource table a preview 1 descriptor is. So the
/// directory is opened once more, through `wasmtime-wasi` with all its checks, and looked up under
/// the number that the table is about to hand out; then that descriptor is closed again. Should the
/// table number its entries in another way one day, nothing is found there: only what was just made
/// can be where nothing was.
async fn open(guest: &mut Guest, fd: u32) -> Result<Result<Arc<File>, i32>> {
    const OPEN_DIRECTORY: i32 = 1 << 1;
    const MAY_READ: i64 = 1 << 1;
    let mut scratch = Scratch::new();
    let fd = fd.cast_signed();
    let wasi = guest.charged_wasi();
    // Of what a call may copy out of guest memory, this one needs its path.
    wasi.set_hostcall_fuel(size_of::<Scratch>());
    // The first call of a guest fills the table with what the guest was started with. This one does
    // nothing else, and what it answers does not matter.
    fd_prestat_get(wasi, &mut scratch.memory(), fd, Scratch::RESULT)?;
    let table = wasi.ctx().table;
    let next = match table.push(Probe) {
        Ok(probe) => {
            let next = probe.rep();
            table.delete(probe)?;
            next
        }
        // All places that the lease pays for are taken.
        Err(_) => return Ok(Err(Errno::Nomem as i32)),
    };
    let errno = path_open(
        wasi,
        &mut scratch.memory(),
        fd,
        0,
        Scratch::PATH,
        1,
        OPEN_DIRECTORY,
        MAY_READ,
        0,
        0,
        Scratch::RESULT,
    )
    .await?;
    if errno != SUCCESS {
        return Ok(Err(errno));
    }
    let opened = Resource::<Descriptor>::new_borrow(next);
    let directory = match wasi.ctx().table.get(&opened) {
        Ok(Descriptor::Dir(directory)) => Some(Arc::clone(&directory.dir)),
        _ => None,
    };
    let copy = scratch.result();
    fd_close(wasi, &mut scratch.memory(), copy).await?;
    let directory = directory.context("a directory that was just opened is not in the table")?;
    Ok(Ok(directory))
}
