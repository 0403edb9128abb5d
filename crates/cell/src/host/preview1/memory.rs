//! The memory of a guest, as a host function sees it.

use crate::guest::Guest;
use crate::host::answer::{Answer, Fail};
use crate::memory::fetch_pages;
use wasmtime::{Caller, Error};

/// The memory of the module that calls.
pub(crate) struct Memory<'a>(pub(crate) &'a mut [u8]);

/// Returns the memory of the calling module, and the host's state of the guest.
///
/// # Errors
/// A trap when the module exports no memory.
#[inline]
pub(crate) fn parts<'a>(caller: &'a mut Caller<'_, Guest>) -> Answer<(Memory<'a>, &'a mut Guest)> {
    let memory = Guest::memory(caller).ok_or_else(no_memory)?;
    let (memory, guest) = memory.data_and_store_mut(caller);
    Ok((Memory(memory), guest))
}

/// Has the pages of a part of the memory fetched that the next step visits, if the tenant pages.
pub(crate) async fn fetch(caller: &mut Caller<'_, Guest>, pointer: u32, length: usize) {
    if !caller.data().limiter.pages() {
        return;
    }
    let addresses = parts(caller).map(|(memory, _)| {
        let all = memory.0.as_ptr_range();
        let start = all.start as usize + pointer as usize;
        start..start.saturating_add(length).min(all.end as usize)
    });
    if let Ok(addresses) = addresses {
        fetch_pages(addresses).await;
    }
}

#[cold]
fn no_memory() -> Fail {
    Fail::Trap(Error::msg("the module exports no memory"))
}

impl Memory<'_> {
    /// Returns `length` bytes at `pointer`.
    ///
    /// # Errors
    /// A trap when they are not inside the memory.
    #[inline]
    pub(crate) fn bytes(&self, pointer: u32, length: u32) -> Answer<&[u8]> {
        let start = pointer as usize;
        self.0
            .get(start..start + length as usize)
            .ok_or_else(|| Fail::pointer(pointer, length.into()))
    }

    /// Returns `length` bytes at `pointer`, to be changed.
    ///
    /// # Errors
    /// A trap when they are not inside the memory.
    #[inline]
    pub(crate) fn bytes_mut(&mut self, pointer: u32, length: u32) -> Answer<&mut [u8]> {
        let start = pointer as usize;
        self.0
            .get_mut(start..start + length as usize)
            .ok_or_else(|| Fail::pointer(pointer, length.into()))
    }

    /// Writes a value of `ALIGNMENT` bytes' alignment.
    ///
    /// # Errors
    /// A trap when it does not fit or is not aligned.
    #[inline]
    pub(crate) fn write<const N: usize>(
        &mut self,
        pointer: u32,
        alignment: u32,
        bytes: &[u8; N],
    ) -> Answer {
        if !pointer.is_multiple_of(alignment) {
            return Err(Fail::pointer(pointer, N as u64));
        }
        // `N` is the size of a type.
        self.bytes_mut(pointer, N as u32)?.copy_from_slice(bytes);
        Ok(())
    }

    /// Writes a 32-bit number.
    ///
    /// # Errors
    /// A trap when it does not fit or is not aligned.
    #[inline]
    pub(crate) fn write_u32(&mut self, pointer: u32, value: u32) -> Answer {
        self.write(pointer, 4, &value.to_le_bytes())
    }

    /// Writes a 64-bit number.
    ///
    /// # Errors
    /// A trap when it does not fit or is not aligned.
    #[inline]
    pub(crate) fn write_u64(&mut self, pointer: u32, value: u64) -> Answer {
        self.write(pointer, 8, &value.to_le_bytes())
    }
}
