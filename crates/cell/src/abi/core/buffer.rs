//! Ranges of guest memory that calls copy from and to.

use super::call::Call;
use crate::guest::Guest;
use crate::host::yield_point::yield_point;
use crate::memory::fetch_pages;
use leasehold_kernel::Errno;
use leasehold_slots::address_range::PAGE;
use std::ops::Range;
use wasmtime::Memory;

/// A range of guest memory that has been checked to lie inside it.
pub(super) struct Buffer {
    memory: Memory,
    range: Range<usize>,
}

impl Buffer {
    /// `length` bytes at `start` in the caller's memory.
    ///
    /// # Errors
    /// When they are not all there, or the caller has no memory.
    pub(super) fn new(caller: &mut Call<'_>, start: i32, length: u32) -> Result<Self, Errno> {
        let memory = Guest::memory(caller).ok_or(Errno::Invalid)?;
        let start = start as u32 as usize;
        let end = start.checked_add(length as usize).ok_or(Errno::Invalid)?;
        if end > memory.data_size(&*caller) {
            return Err(Errno::Invalid);
        }
        Ok(Self {
            memory,
            range: start..end,
        })
    }

    /// All of it, in the step that the call is in.
    pub(super) fn bytes<'a>(&self, caller: &'a Call<'_>) -> &'a [u8] {
        &self.memory.data(caller)[self.range.clone()]
    }

    /// The same, to be written to.
    pub(super) fn bytes_mut<'a>(&self, caller: &'a mut Call<'_>) -> &'a mut [u8] {
        &mut self.memory.data_mut(caller)[self.range.clone()]
    }

    /// Whether each of its pages may have to be fetched from the disk, so that one step must not touch
    /// them all; a range this short lies on two at the most.
    pub(super) fn is_elsewhere(&self, caller: &Call<'_>) -> bool {
        self.range.len() > PAGE && caller.data().limiter.pages()
    }

    /// Copies it into the host's memory, a page a step; a call may hold `call_bytes`.
    ///
    /// # Errors
    /// When it is longer.
    pub(super) async fn fetch(&self, caller: &mut Call<'_>) -> Result<Vec<u8>, Errno> {
        let mut copy = self.room(caller)?;
        let mut done = 0;
        for page in self.pages() {
            let now = done..done + page.len();
            done = now.end;
            self.fetch_page(caller, &page).await;
            copy[now].copy_from_slice(&self.memory.data_mut(&mut *caller)[page]);
            yield_point().await;
        }
        Ok(copy)
    }

    /// Allocates zeros of its length in the host's memory.
    ///
    /// # Errors
    /// When a call may not have so many.
    pub(super) fn room(&self, caller: &mut Call<'_>) -> Result<Vec<u8>, Errno> {
        let length = self.range.len();
        match length as u64 <= caller.data_mut().call_bytes {
            true => Ok(vec![0; length]),
            false => Err(Errno::TooLarge),
        }
    }

    /// Writes the filled [`room`](Self::room), or its beginning, to guest memory, a page a step.
    pub(super) async fn put(&self, caller: &mut Call<'_>, bytes: &[u8]) {
        let mut rest = bytes;
        for page in self.pages() {
            let (now, later) = rest.split_at(rest.len().min(page.len()));
            let to = page.start..page.start + now.len();
            self.fetch_page(caller, &page).await;
            self.memory.data_mut(&mut *caller)[to].copy_from_slice(now);
            rest = later;
            if rest.is_empty() {
                break;
            }
            yield_point().await;
        }
    }

    async fn fetch_page(&self, caller: &mut Call<'_>, page: &Range<usize>) {
        let memory = self.memory.data_ptr(&*caller) as usize;
        fetch_pages(memory + page.start..memory + page.end).await;
    }

    /// Its parts, each on one page.
    fn pages(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let Range { start, end } = self.range;
        let mut next = start;
        std::iter::from_fn(move || {
            let from = next;
            next = (from / PAGE + 1).saturating_mul(PAGE).min(end);
            (from < end).then_some(from..next)
        })
    }
}
