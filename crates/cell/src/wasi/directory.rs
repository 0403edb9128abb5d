//! `wasi:filesystem` directory listings in the tenant's arena.
//!
//! `wasmtime-wasi` keeps the rest of a listing as a vector of strings: a directory with a million
//! files is a million strings to free when its reader is killed, uncharged. Here a listing is one
//! extent of the tenant's arena, charged by its size before it is kept.

use super::rep;
use crate::guest::Guest;
use crate::local;
use leasehold_kernel::Errno;
use leasehold_reclaim::Extent;
use wasmtime::component::{Linker, Resource, ResourceType};
use wasmtime::error::Context as _;
use wasmtime::{Result, StoreContextMut};
use wasmtime_wasi::filesystem::{Descriptor, WasiFilesystemView as _};
use wasmtime_wasi::p2::bindings::filesystem::types::{
    DescriptorType, DirectoryEntry, ErrorCode, HostDescriptor,
};

/// The rest of a directory listing: entries of (kind, length of the name, name) in `entries`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Listing {
    entries: Extent,
    used: usize,
    next: usize,
}

const INTERFACE: &str = "wasi:filesystem/types@0.2.12";

/// Replaces the three functions of directory listings in a linker that has
/// `wasi:filesystem/types`.
pub(crate) fn link(linker: &mut Linker<Guest>) -> Result<()> {
    linker.allow_shadowing(true);
    let mut types = linker.instance(INTERFACE)?;
    types.resource(
        "directory-entry-stream",
        ResourceType::host::<Listing>(),
        |store: StoreContextMut<'_, Guest>, rep| {
            close(store.data(), &Resource::new_own(rep));
            Ok(())
        },
    )?;
    types.func_wrap_async(
        "[method]descriptor.read-directory",
        |mut store: StoreContextMut<'_, Guest>, (directory,): (Resource<Descriptor>,)| {
            Box::new(async move { Ok((open(store.data_mut(), directory).await?,)) })
        },
    )?;
    types.func_wrap(
        "[method]directory-entry-stream.read-directory-entry",
        |store: StoreContextMut<'_, Guest>, (listing,): (Resource<Listing>,)| {
            Ok((Ok::<_, ErrorCode>(next(store.data(), &listing)?),))
        },
    )?;
    linker.allow_shadowing(false);
    Ok(())
}

async fn open(
    guest: &mut Guest,
    directory: Resource<Descriptor>,
) -> Result<Result<Resource<Listing>, ErrorCode>> {
    let mut filesystem = guest.filesystem();
    let iterator = match filesystem.read_directory(directory).await {
        Ok(stream) => filesystem.table.delete(stream)?,
        Err(error) => return error.downcast().map(Err),
    };
    let mut bytes = Vec::new();
    for entry in iterator {
        let DirectoryEntry { type_, name } = match entry {
            Ok(entry) => entry,
            Err(error) => return error.downcast().map(Err),
        };
        let Ok(length) = u16::try_from(name.len()) else {
            return Ok(Err(ErrorCode::NameTooLong));
        };
        bytes.push(encode(type_));
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(name.as_bytes());
    }
    match keep(guest, &bytes) {
        Ok(listing) => Ok(Ok(listing)),
        // The interface's word for «the host does not have the memory for this».
        Err(_) => Ok(Err(ErrorCode::InsufficientMemory)),
    }
}

fn keep(guest: &Guest, bytes: &[u8]) -> Result<Resource<Listing>, Errno> {
    let (class, entries) = local::with(|local| {
        let group = local.kernel.group_of(guest.tenant)?;
        let groups = local.kernel.groups_mut();
        let entries = groups.alloc_bytes(group, bytes.len().max(1))?;
        if let Some(place) = groups.bytes_mut(entries) {
            place[..bytes.len()].copy_from_slice(bytes);
        }
        Ok::<_, Errno>((local.classes.listing, entries))
    })?;
    rep::create(
        guest,
        class,
        Listing {
            entries,
            used: bytes.len(),
            next: 0,
        },
    )
    .inspect_err(|_| {
        local::with(|local| local.kernel.groups_mut().free_bytes(entries));
    })
}

fn next(guest: &Guest, listing: &Resource<Listing>) -> Result<Option<DirectoryEntry>> {
    let handle = rep::find::<Listing, _>(guest, listing).context("unknown directory listing")?;
    local::with(|local| {
        let groups = local.kernel.groups_mut();
        let listing = *groups.get(handle).context("unknown directory listing")?;
        if listing.next == listing.used {
            return Ok(None);
        }
        let bytes = groups
            .bytes(listing.entries)
            .context("unknown directory listing")?;
        let entry = &bytes[listing.next..listing.used];
        let length = usize::from(u16::from_le_bytes([entry[1], entry[2]]));
        let name = String::from_utf8_lossy(&entry[3..3 + length]).into_owned();
        let type_ = decode(entry[0]);
        if let Some(listing) = groups.get_mut(handle) {
            listing.next += 3 + length;
        }
        Ok(Some(DirectoryEntry { type_, name }))
    })
}

fn close(guest: &Guest, listing: &Resource<Listing>) {
    let Some(handle) = rep::find::<Listing, _>(guest, listing) else {
        return;
    };
    local::with(|local| {
        let groups = local.kernel.groups_mut();
        if let Some(listing) = groups.free(handle) {
            groups.free_bytes(listing.entries);
        }
    });
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
