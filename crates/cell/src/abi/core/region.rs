//! Regions: bytes that tenants share, to be copied by calls or mapped.
//!
//! Components can only copy: the component model gives functions no address in the memory of their
//! caller.

use super::buffer::Buffer;
use super::call::{Call, MODULE, answer, call, raw, selector};
use crate::abi::blocking::let_executor_act;
use crate::guest::Guest;
use crate::local;
use crate::memory::places::Request;
use crate::memory::region::{self, Refusal};
use crate::meter::Held;
use crate::steps::caps::{COPIED_REGION, REGION_COPY};
use crate::steps::{mark, step};
use leasehold_kernel::{Errno, RegionMapping, Selector, TenantId};
use leasehold_reclaim::GroupId;
use leasehold_wasm::limits::WASM_PAGE;
use wasmtime::{Linker, Memory, Result};

/// Linear memories that a mapped region is charged as, besides its pages: it is attached, and what
/// comes after it.
const MEMORIES: u64 = 2;

pub(super) fn link(linker: &mut Linker<Guest>) -> Result<()> {
    link_copied(linker)?;
    linker.func_wrap_async(
        MODULE,
        "region_create_mapped",
        |mut caller: Call<'_>, (length,): (i64,)| {
            mark(step!(MODULE, "region_create_mapped"));

            Box::new(async move { answer(create(&mut caller, length as u64).await.map(raw)) })
        },
    )?;
    linker.func_wrap(MODULE, "region_map", |mut caller: Call<'_>, region: i32| {
        mark(step!(MODULE, "region_map"));

        answer(map(&mut caller, selector(region)).map(|address| address as u64))
    })?;
    linker.func_wrap_async(
        MODULE,
        "region_map_at",
        |mut caller: Call<'_>, (region, address): (i32, i32)| {
            mark(step!(MODULE, "region_map_at"));

            Box::new(async move { answer(map_at(&mut caller, selector(region), address).await) })
        },
    )?;
    Ok(())
}

fn link_copied(linker: &mut Linker<Guest>) -> Result<()> {
    linker.func_wrap(MODULE, "region_create", |caller: Call<'_>, length: i64| {
        mark(step!(MODULE, "region_create"));

        call(&caller, |kernel, tenant| {
            if length as u64 > COPIED_REGION.most {
                return Err(Errno::TooLarge);
            }
            kernel.region_create(tenant, length as u64).map(raw)
        })
    })?;
    linker.func_wrap(MODULE, "region_length", |caller: Call<'_>, region: i32| {
        mark(step!(MODULE, "region_length"));

        call(&caller, |kernel, tenant| {
            kernel.region_length(tenant, selector(region))
        })
    })?;
    linker.func_wrap_async(
        MODULE,
        "region_read",
        |mut caller: Call<'_>, read: (i32, i64, i32, i32)| {
            mark(step!(MODULE, "region_read"));

            Box::new(async move { answer(read_region(&mut caller, read).await) })
        },
    )?;
    linker.func_wrap_async(
        MODULE,
        "region_write",
        |mut caller: Call<'_>, write: (i32, i64, i32, i32)| {
            mark(step!(MODULE, "region_write"));

            Box::new(async move { answer(write_region(&mut caller, write).await) })
        },
    )?;
    Ok(())
}

/// (region, offset, address, length)
type Copy = (i32, i64, i32, i32);

/// The range of the caller's memory that is copied from or to.
fn range(caller: &mut Call<'_>, (_, _, start, length): Copy) -> Result<Buffer, Errno> {
    let length = length as u32;
    match u64::from(length) <= REGION_COPY.most {
        true => Buffer::new(caller, start, length),
        false => Err(Errno::TooLarge),
    }
}

/// Copies out of a region, of which all is read in one step.
async fn read_region(caller: &mut Call<'_>, copy: Copy) -> Result<u64, Errno> {
    let buffer = range(caller, copy)?;
    let tenant = caller.data().tenant;
    let read = |bytes: &mut [u8]| {
        local::call(|kernel| kernel.region_read(tenant, selector(copy.0), copy.1 as u64, bytes))
    };
    if buffer.is_elsewhere(caller) {
        let mut room = buffer.room(caller)?;
        read(&mut room)?;
        buffer.put(caller, &room).await;
    } else {
        read(buffer.bytes_mut(caller))?;
    }
    Ok(0)
}

/// Copies into a region, of which all is written in one step.
async fn write_region(caller: &mut Call<'_>, copy: Copy) -> Result<u64, Errno> {
    let buffer = range(caller, copy)?;
    let tenant = caller.data().tenant;
    let write = |bytes: &[u8]| {
        local::call(|kernel| kernel.region_write(tenant, selector(copy.0), copy.1 as u64, bytes))
    };
    match buffer.is_elsewhere(caller) {
        true => write(&buffer.fetch(caller).await?)?,
        false => write(buffer.bytes_mut(caller))?,
    }
    Ok(0)
}

impl From<Refusal> for Errno {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Gone => Errno::Gone,
            Refusal::Busy => Errno::Busy,
            Refusal::TooMany => Errno::Limit,
            Refusal::NoPlace => Errno::Invalid,
            Refusal::Memory => Errno::Memory,
        }
    }
}

/// Creates a region and grows the caller's memory by it, which keeps it resident.
async fn create(caller: &mut Call<'_>, length: u64) -> Result<Selector, Errno> {
    let guest = paged_memory(caller)?;
    let tenant = caller.data().tenant;
    let created = local::with(|local| local.kernel.region_create_mapped(tenant, length))?;
    let made = make(caller, guest, created).await;
    if made.is_err() {
        // The partial region is dropped with its capability, which the tenant holds.
        local::with(|local| local.kernel.capability_drop(tenant, created)).ok();
    }
    made.map(|()| created)
}

async fn make(caller: &mut Call<'_>, guest: Memory, created: Selector) -> Result<(), Errno> {
    let request = request(caller, created)?;
    find(caller, guest, &request)?;
    grow(caller, guest, request, region::create)?;
    // Some pages at a time, so that other tenants can preempt it.
    while !region::pin_step(request.region)? {
        let_executor_act().await;
    }
    Ok(())
}

/// Grows the caller's memory by a region, unless it is mapped already; returns its start.
fn map(caller: &mut Call<'_>, mapped: Selector) -> Result<usize, Errno> {
    let guest = paged_memory(caller)?;
    let request = request(caller, mapped)?;
    match find(caller, guest, &request)? {
        Some(offset) => Ok(offset),
        None => grow(caller, guest, request, region::map),
    }
}

/// Maps a region in the caller's memory in place of a revoked one with as many pages.
async fn map_at(caller: &mut Call<'_>, mapped: Selector, address: i32) -> Result<u64, Errno> {
    let guest = paged_memory(caller)?;
    // The executor first unmaps regions that the caller may no longer access.
    let_executor_act().await;
    let request = request(caller, mapped)?;
    let (root, start) = home(caller, guest);
    let offset = address as u32 as usize;
    region::replace(root, (start, offset), request)?;
    // Then it maps the region.
    let_executor_act().await;
    match find(caller, guest, &request) {
        Ok(Some(_)) => Ok(0),
        _ => Err(Errno::Gone),
    }
}

/// The caller's memory, if its tenant pages.
fn paged_memory(caller: &mut Call<'_>) -> Result<Memory, Errno> {
    let guest = Guest::memory(caller).ok_or(Errno::Invalid)?;
    match caller.data().limiter.pages() {
        true => Ok(guest),
        false => Err(Errno::Invalid),
    }
}

/// The caller's top-level group, and where its memory starts.
fn home(caller: &Call<'_>, guest: Memory) -> (GroupId, usize) {
    (
        caller.data().limiter.root(),
        guest.data_ptr(caller) as usize,
    )
}

/// Where a region is in the caller's memory, if it is there.
fn find(caller: &Call<'_>, guest: Memory, request: &Request) -> Result<Option<usize>, Errno> {
    let (root, start) = home(caller, guest);
    Ok(region::find(root, start, request, &allowed)?)
}

/// The mapping that a capability of a tenant allows now.
fn allowed(tenant: TenantId, selector: Selector) -> Option<RegionMapping> {
    local::with(|local| local.kernel.region_mapping(tenant, selector).ok())
}

/// The mapping that a capability of the caller allows.
fn request(caller: &Call<'_>, mapped: Selector) -> Result<Request, Errno> {
    let tenant = caller.data().tenant;
    let mapping = local::with(|local| local.kernel.region_mapping(tenant, mapped))?;
    Ok(Request {
        region: mapping.region,
        length: mapping.length,
        by: (tenant, mapped),
        writable: mapping.writable,
    })
}

/// Grows the caller's memory by a region; returns where it begins.
fn grow(
    caller: &mut Call<'_>,
    guest: Memory,
    request: Request,
    by: impl FnOnce(Request, &mut dyn FnMut()) -> Option<Result<usize, Refusal>>,
) -> Result<usize, Errno> {
    let (tenant, execution) = caller.data().identity();
    local::with(|local| local.hold(tenant, execution, Held::Memory, MEMORIES))?;
    let pages = request.length.div_ceil(WASM_PAGE);
    let mut grown = false;
    let mapped = by(request, &mut || {
        grown = guest.grow(&mut *caller, pages).is_ok();
    });
    let mapped = match mapped {
        Some(Ok(offset)) if grown => Ok(offset),
        Some(Err(refusal)) => Err(refusal.into()),
        // Refused by the lease.
        _ => Err(Errno::Memory),
    };
    if mapped.is_err() {
        local::with(|local| local.release(tenant, execution, Held::Memory, MEMORIES));
    }
    mapped
}
