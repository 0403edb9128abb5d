//! `wasi:filesystem` directory listings in the tenant's arena.
//!
//! `wasmtime-wasi` reads a whole directory into a vector of strings: one with a million files is a
//! million strings to free when its reader is killed, uncharged. Here a listing is a window of
//! fixed size on the directory, charged before anything is read into it, and refilled when the
//! guest has reached its end.

use super::files::fail;
use crate::guest::Guest;
use crate::host::fs::class::Class;
use crate::host::fs::descriptor::Node;
use crate::host::fs::window::{self, DirectoryPosition, Verdict, WINDOW};
use crate::host::io;
use crate::local;
use crate::wasi::objects::Listing;
use crate::wasi::rep;
use leasehold_kernel::Errno;
use leasehold_reclaim::Handle;
use rustix::fs::FileType;
use std::os::fd::AsFd as _;
use wasmtime::Result;
use wasmtime::component::Resource;
use wasmtime::error::Context as _;
use wasmtime_wasi::p2::bindings::filesystem::types::{
    DescriptorType, DirectoryEntry, DirectoryEntryStream, ErrorCode,
};
use wasmtime_wasi::p2::{FsError, FsResult};

/// Begins to list the directory with this number; nothing is read yet.
pub(super) fn open(guest: &mut Guest, directory: u32) -> FsResult<Resource<DirectoryEntryStream>> {
    let system = guest.files().map_err(FsError::trap)?;
    let open = system.entry(directory).map_err(FsError::trap)?;
    let again = open.again();
    let directory = system.table.put_again(again);
    // The interface's word for «the host does not have the memory for this».
    let directory = directory.map_err(|_| ErrorCode::InsufficientMemory)?;
    let listing = charge(guest, directory);
    listing.map_err(
        |_| match guest.files().map(|system| system.table.close(directory)) {
            Ok(_) => ErrorCode::InsufficientMemory.into(),
            Err(trap) => FsError::trap(trap),
        },
    )
}

/// Charges for a listing and makes it; nothing has been read.
fn charge(guest: &Guest, directory: u32) -> Result<Resource<DirectoryEntryStream>, Errno> {
    let group = guest.arena()?;
    let (class, window) = local::with(|local| {
        let window = local
            .kernel
            .groups_mut()
            .alloc_bytes(group, WINDOW)
            .map_err(leasehold_kernel::errno)?;
        Ok::<_, Errno>((local.classes.listing, window))
    })?;
    let listing = Listing {
        window,
        used: 0,
        next: 0,
        place: DirectoryPosition::Before(0),
        directory,
    };
    rep::create(guest, class, listing).inspect_err(|_| {
        local::with(|local| local.kernel.groups_mut().free_bytes(window));
    })
}

/// The next entry, or `None` after the last; reads another window when it has to.
pub(super) async fn read(
    guest: &mut Guest,
    listing: &Resource<DirectoryEntryStream>,
) -> FsResult<Option<DirectoryEntry>> {
    let handle = rep::find::<Listing, _>(guest, listing);
    let handle = handle.context("unknown directory listing");
    let handle = handle.map_err(FsError::trap)?;
    loop {
        let (entry, listing) = next(handle).map_err(FsError::trap)?;
        let place = match listing.place {
            DirectoryPosition::Before(place) if entry.is_none() => place,
            _ => return Ok(entry),
        };
        let system = guest.files().map_err(FsError::trap)?;
        let open = system.entry(listing.directory).map_err(FsError::trap)?;
        let node = open.node.clone();
        let window = match node.class {
            Class::Memory => Window::read(&node, place),
            _ => {
                let account = system.account().clone();
                let read = node.elsewhere().during(move || Window::read(&node, place));
                io::run(&account, read).await
            }
        };
        show(handle, &window.map_err(fail)?).map_err(FsError::trap)?;
    }
}

/// The next entry of the window, if there is one left, and the listing.
fn next(handle: Handle<Listing>) -> Result<(Option<DirectoryEntry>, Listing)> {
    local::with(|local| {
        let groups = local.kernel.groups_mut();
        let listing = *groups.get(handle).context("unknown directory listing")?;
        if listing.next == listing.used {
            return Ok((None, listing));
        }
        let bytes = groups
            .bytes(listing.window)
            .context("unknown directory listing")?;
        let entry = &bytes[listing.next..listing.used];
        let length = usize::from(u16::from_le_bytes([entry[1], entry[2]]));
        let name = String::from_utf8_lossy(&entry[3..3 + length]).into_owned();
        let type_ = decode(entry[0]);
        if let Some(listing) = groups.get_mut(handle) {
            listing.next += 3 + length;
        }
        Ok((Some(DirectoryEntry { type_, name }), listing))
    })
}

/// Puts another window in the place of the one that was read to its end.
fn show(handle: Handle<Listing>, window: &Window) -> Result<()> {
    local::with(|local| {
        let groups = local.kernel.groups_mut();
        let listing = groups
            .get_mut(handle)
            .context("unknown directory listing")?;
        listing.next = 0;
        listing.used = window.entries.len();
        listing.place = window.next;
        let extent = listing.window;
        let bytes = groups
            .bytes_mut(extent)
            .context("unknown directory listing")?;
        bytes[..window.entries.len()].copy_from_slice(&window.entries);
        Ok(())
    })
}

/// Ends a listing.
pub(super) fn close(guest: &mut Guest, listing: &Resource<DirectoryEntryStream>) -> Result<()> {
    let Some(handle) = rep::find::<Listing, _>(guest, listing) else {
        return Ok(());
    };
    let listing = local::with(|local| {
        let groups = local.kernel.groups_mut();
        let listing = groups.free(handle)?;
        groups.free_bytes(listing.window);
        Some(listing)
    });
    if let Some(listing) = listing {
        let closed = guest.files()?.table.close(listing.directory);
        closed.map_err(|_| wasmtime::Error::msg("unknown directory"))?;
    }
    Ok(())
}

/// The part of a directory that was read at once. Its entries are no longer than the kernel's,
/// which take 17 bytes more each.
struct Window {
    entries: Vec<u8>,
    next: DirectoryPosition,
}

impl Window {
    /// Reads what begins at `place`; it holds no more than a window. In memory some 20 µs; elsewhere it
    /// may block.
    fn read(directory: &Node, place: u64) -> rustix::io::Result<Window> {
        let mut entries = Vec::with_capacity(WINDOW);
        let next = window::read(directory.as_fd(), place, |entry| {
            if entry.is_dots() {
                return Ok(Verdict::Left);
            }
            let Some(kind) = entry.kind()? else {
                return Ok(Verdict::Left);
            };
            let name = entry.text()?.as_bytes();
            let length = u16::try_from(name.len()).map_err(|_| rustix::io::Errno::NAMETOOLONG)?;
            entries.push(encode(descriptor_type(kind)));
            entries.extend_from_slice(&length.to_le_bytes());
            entries.extend_from_slice(name);
            Ok(Verdict::Taken)
        })?;
        Ok(Window { entries, next })
    }
}

fn descriptor_type(kind: FileType) -> DescriptorType {
    match kind {
        FileType::RegularFile => DescriptorType::RegularFile,
        FileType::Directory => DescriptorType::Directory,
        FileType::Symlink => DescriptorType::SymbolicLink,
        FileType::Fifo => DescriptorType::Fifo,
        FileType::Socket => DescriptorType::Socket,
        FileType::CharacterDevice => DescriptorType::CharacterDevice,
        FileType::BlockDevice => DescriptorType::BlockDevice,
        FileType::Unknown => DescriptorType::Unknown,
    }
}

const KINDS: [DescriptorType; 8] = [
    DescriptorType::Unknown,
    DescriptorType::BlockDevice,
    DescriptorType::CharacterDevice,
    DescriptorType::Directory,
    DescriptorType::Fifo,
    DescriptorType::SymbolicLink,
    DescriptorType::RegularFile,
    DescriptorType::Socket,
];

fn encode(kind: DescriptorType) -> u8 {
    KINDS.iter().position(|other| *other == kind).unwrap_or(0) as u8
}

fn decode(kind: u8) -> DescriptorType {
    KINDS
        .get(usize::from(kind))
        .copied()
        .unwrap_or(DescriptorType::Unknown)
}
