//! `wasi:filesystem` directory listings in the tenant's arena.
//!
//! `wasmtime-wasi` reads a whole directory into a vector of strings: one with a million files is a
//! million strings to free when its reader is killed, uncharged. Here a listing is a window of
//! fixed size on the directory, charged before anything is read into it, and read again when the
//! guest has come to its end.

use super::rep;
use super::window::{self, Place, Verdict, WINDOW};
use crate::guest::Guest;
use crate::local;
use crate::steps::{mark, step};
use leasehold_kernel::Errno;
use leasehold_reclaim::{Extent, Handle};
use rustix::fs::FileType;
use std::fs::File;
use std::sync::Arc;
use wasmtime::component::{Linker, Resource, ResourceType};
use wasmtime::error::Context as _;
use wasmtime::{Result, StoreContextMut};
use wasmtime_wasi::filesystem::Descriptor;
use wasmtime_wasi::p2::bindings::filesystem::types::{DescriptorType, DirectoryEntry, ErrorCode};
use wasmtime_wasi::runtime::spawn_blocking;

/// A listing: entries of (kind, length of the name, name) in `window`, of which `next` is the
/// next, and where in the directory the next window begins.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Listing {
    window: Extent,
    used: usize,
    next: usize,
    place: Place,
    /// The [`Directory`] in the guest's resource table.
    directory: u32,
}

/// The directory of a listing: in the resource table, which is charged for the descriptor that it
/// keeps open.
struct Directory(Arc<File>);

const INTERFACE: &str = "wasi:filesystem/types@0.2.12";

/// Replaces the three functions of directory listings in a linker that has
/// `wasi:filesystem/types`.
pub(crate) fn link(linker: &mut Linker<Guest>) -> Result<()> {
    linker.allow_shadowing(true);
    let mut types = linker.instance(INTERFACE)?;
    types.resource(
        "directory-entry-stream",
        ResourceType::host::<Listing>(),
        |mut store: StoreContextMut<'_, Guest>, rep| {
            mark(step!(
                "wasi:filesystem/types",
                "[resource-drop]directory-entry-stream"
            ));
            close(store.data_mut(), &Resource::new_own(rep))
        },
    )?;
    types.func_wrap(
        "[method]descriptor.read-directory",
        |mut store: StoreContextMut<'_, Guest>, (directory,): (Resource<Descriptor>,)| {
            mark(step!(
                "wasi:filesystem/types",
                "[method]descriptor.read-directory"
            ));
            Ok((open(store.data_mut(), &directory)?,))
        },
    )?;
    types.func_wrap_async(
        "[method]directory-entry-stream.read-directory-entry",
        |mut store: StoreContextMut<'_, Guest>, (listing,): (Resource<Listing>,)| {
            mark(step!(
                "wasi:filesystem/types",
                "[method]directory-entry-stream.read-directory-entry"
            ));
            Box::new(async move { Ok((read(store.data_mut(), &listing).await?,)) })
        },
    )?;
    linker.allow_shadowing(false);
    Ok(())
}

fn open(
    guest: &mut Guest,
    directory: &Resource<Descriptor>,
) -> Result<Result<Resource<Listing>, ErrorCode>> {
    let table = guest.charged_table();
    let file = match table.get(directory)? {
        Descriptor::Dir(directory) => Arc::clone(&directory.dir),
        Descriptor::File(_) => return Ok(Err(ErrorCode::NotDirectory)),
    };
    let directory = table.push(Directory(file))?;
    match charge(guest, directory.rep()) {
        Ok(listing) => Ok(Ok(listing)),
        Err(_) => {
            guest.charged_table().delete(directory)?;
            // The interface's word for «the host does not have the memory for this».
            Ok(Err(ErrorCode::InsufficientMemory))
        }
    }
}

/// Charges for a listing and makes it; nothing has been read.
fn charge(guest: &Guest, directory: u32) -> Result<Resource<Listing>, Errno> {
    let (class, window) = local::with(|local| {
        let group = local.kernel.group_of(guest.tenant)?;
        let window = local.kernel.groups_mut().alloc_bytes(group, WINDOW)?;
        Ok::<_, Errno>((local.classes.listing, window))
    })?;
    let listing = Listing {
        window,
        used: 0,
        next: 0,
        place: Place::Before(0),
        directory,
    };
    rep::create(guest, class, listing).inspect_err(|_| {
        local::with(|local| local.kernel.groups_mut().free_bytes(window));
    })
}

/// The next entry, or `None` after the last; reads another window when it has to.
async fn read(
    guest: &mut Guest,
    listing: &Resource<Listing>,
) -> Result<Result<Option<DirectoryEntry>, ErrorCode>> {
    let handle = rep::find::<Listing, _>(guest, listing).context("unknown directory listing")?;
    loop {
        let (entry, listing) = next(handle)?;
        let place = match listing.place {
            Place::Before(place) if entry.is_none() => place,
            _ => return Ok(Ok(entry)),
        };
        let directory = Resource::<Directory>::new_borrow(listing.directory);
        let directory = Arc::clone(&guest.charged_table().get(&directory)?.0);
        match spawn_blocking(move || Window::read(&directory, place)).await {
            Ok(window) => show(handle, &window)?,
            Err(error) => return Ok(Err(error)),
        }
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

fn close(guest: &mut Guest, listing: &Resource<Listing>) -> Result<()> {
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
        let directory = Resource::<Directory>::new_own(listing.directory);
        guest.charged_table().delete(directory)?;
    }
    Ok(())
}

/// What was read of a directory at once. Its entries are no longer than the kernel's, which take 17
/// bytes more each.
struct Window {
    entries: Vec<u8>,
    next: Place,
}

impl Window {
    /// Reads what begins at `place`. On a thread that may block; it holds no more than a window.
    fn read(directory: &File, place: u64) -> Result<Window, ErrorCode> {
        let mut entries = Vec::with_capacity(WINDOW);
        let next = window::read(directory, place, |entry| {
            if entry.is_dots() {
                return Ok(Verdict::Left);
            }
            let Some(kind) = entry.kind()? else {
                return Ok(Verdict::Left);
            };
            let name = entry.text()?.as_bytes();
            let length = u16::try_from(name.len()).map_err(|_| ErrorCode::NameTooLong)?;
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
