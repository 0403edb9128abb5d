//! Data sets: what a core module can map of the host's files.
//!
//! Components have no such call: the component model gives functions no address in the memory of
//! their caller.

use super::buffer::Buffer;
use super::call::{Call, MODULE, answer};
use crate::abi::blocking::let_executor_act;
use crate::guest::Guest;
use crate::memory::{self, DataSet, Mapped};
use crate::steps::{mark, step};
use leasehold_kernel::Errno;
use leasehold_pager::Refused;
use leasehold_pager_linux::Error;
use leasehold_wasm::limits::WASM_PAGE;
use wasmtime::{Linker, Result};

pub(super) fn link(linker: &mut Linker<Guest>) -> Result<()> {
    linker.func_wrap(
        MODULE,
        "data_length",
        |mut caller: Call<'_>, name: i32, length: i32| {
            mark(step!(MODULE, "data_length"));

            answer(find(&mut caller, name, length).map(|data| data.bytes()))
        },
    )?;
    linker.func_wrap_async(
        MODULE,
        "data_map",
        |mut caller: Call<'_>, (name, length): (i32, i32)| {
            mark(step!(MODULE, "data_map"));

            Box::new(async move { answer(map(&mut caller, name, length).await) })
        },
    )?;
    Ok(())
}

/// The data set with the name in guest memory.
fn find(caller: &mut Call<'_>, name: i32, length: i32) -> Result<DataSet, Errno> {
    let name = Buffer::new(caller, name, length as u32)?;
    let name = name.bytes(caller);
    caller.data().data(name).cloned().ok_or(Errno::Invalid)
}

/// Grows the caller's memory by a data set, and has it locked if its lease says so; returns where it
/// begins.
async fn map(caller: &mut Call<'_>, name: i32, length: i32) -> Result<u64, Errno> {
    let data = find(caller, name, length)?;
    let Mapped {
        address,
        mut joining,
    } = grow(caller, data)?;
    // Some pages at a time, so that other tenants can preempt it.
    while !memory::lock_step(&mut joining).map_err(|_| Errno::Memory)? {
        let_executor_act().await;
    }
    Ok(address as u64)
}

fn grow(caller: &mut Call<'_>, data: DataSet) -> Result<Mapped, Errno> {
    let guest = Guest::memory(caller).ok_or(Errno::Invalid)?;
    if !caller.data().limiter.pages() {
        return Err(Errno::Invalid);
    }
    let pages = data.bytes().div_ceil(WASM_PAGE);
    let mut grown = false;
    let mapped = memory::map_data(data, || {
        grown = guest.grow(&mut *caller, pages).is_ok();
    });
    match mapped {
        Some(Ok(mapped)) if grown => Ok(mapped),
        Some(Err(Error::Refused(Refused::Attached))) => Err(Errno::Busy),
        // Refused by the lease, or for want of frames.
        _ => Err(Errno::Memory),
    }
}
