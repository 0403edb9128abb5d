//! The kernel mappings (VMAs) of the process, promised before they are made.
//!
//! A process may have `vm.max_map_count` of them, 65,530 unless the host says otherwise, and any
//! call that needs one more fails. They are therefore a resource like any other. A cell claims the
//! most that its pools can take when it starts. A top-level tenant claims what its lease states
//! when it is admitted. A part is left to the host. A claimed mapping is never refused.

use std::sync::{Mutex, OnceLock, PoisonError};

/// The mappings that stay for the host: code of programs, threads, the heap's large allocations
/// ([`HEAP`]), libraries.
const HOST: u64 = 8192;

/// Large allocations of the heap that are mappings of their own, at the most; others are pieces of
/// larger ones, of up to a gibibyte, which few of the host's mappings are left for.
pub(crate) const HEAP: i32 = 4096;

/// The most mappings that a memory in a pool takes: a slot its accessible part, what is
/// inaccessible behind it, one more while it is cleaned, and two more for contents that are shown in the midst of it.
pub(crate) const MEMORY: u64 = 5;

/// The most mappings that a stack in a pool takes: itself and its guard.
pub(crate) const STACK: u64 = 2;

/// The mappings that a top-level tenant takes besides: its arena, and the code of its program in
/// five pieces.
pub(crate) const TENANT: u64 = 8;

/// The kernel's default limit of a process.
const DEFAULT: u64 = 65_530;

/// The mappings promised in this process.
static PROMISED: Mutex<u64> = Mutex::new(0);

/// Mappings that are promised until this is dropped.
#[derive(Debug)]
#[must_use = "the promise lasts as long as this"]
pub(crate) struct Mappings(u64);

/// They cannot be promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "{needed} kernel mappings needed, {left} left of the {most} that vm.max_map_count allows, of \
     which {HOST} are kept for the host"
)]
pub(crate) struct TooMany {
    needed: u64,
    left: u64,
    most: u64,
}

impl Mappings {
    /// Promises `n` mappings.
    ///
    /// # Errors
    /// [`TooMany`] if others were promised so many that they cannot be had.
    pub(crate) fn claim(n: u64) -> Result<Self, TooMany> {
        let mut promised = promised();
        *promised = promised_with(*promised, n)?;
        Ok(Self(n))
    }
}

/// What is promised with `n` more.
fn promised_with(promised: u64, n: u64) -> Result<u64, TooMany> {
    let most = most();
    let left = most.saturating_sub(HOST).saturating_sub(promised);
    match n <= left {
        true => Ok(promised + n),
        false => Err(TooMany {
            needed: n,
            left,
            most,
        }),
    }
}

/// Mappings of a process with one cell, in which nothing else was promised: they only say whether there are enough.
#[derive(Debug)]
pub(crate) struct Rehearsed(u64);

impl Rehearsed {
    /// The mappings of a cell's pools, with room for so many memories, and stacks of one class.
    pub(crate) fn of_cell(memories: usize) -> Self {
        Self((MEMORY + STACK) * memories as u64)
    }

    /// Adds the promise of `n`.
    ///
    /// # Errors
    /// [`TooMany`] if they could not be had.
    pub(crate) fn add(&mut self, n: u64) -> Result<(), TooMany> {
        self.0 = promised_with(self.0, n)?;
        Ok(())
    }
}

impl Drop for Mappings {
    fn drop(&mut self) {
        *promised() -= self.0;
    }
}

fn promised() -> std::sync::MutexGuard<'static, u64> {
    // A panic cannot leave a single number inconsistent.
    PROMISED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the kernel's limit of a process at the time of the first call.
fn most() -> u64 {
    static MOST: OnceLock<u64> = OnceLock::new();
    *MOST.get_or_init(|| {
        let read = std::fs::read_to_string("/proc/sys/vm/max_map_count");
        let read = read.ok().and_then(|text| text.trim().parse().ok());
        read.unwrap_or(DEFAULT)
    })
}

#[cfg(test)]
mod tests {
    use super::{HOST, Mappings, most};

    #[test]
    fn no_more_is_promised_than_there_is_and_what_is_given_back_can_be_promised_again() {
        assert!(most() > HOST, "{}", most());
        // Other tests have cells.
        let half = Mappings::claim(most() / 2).expect("half of all");
        let refused = Mappings::claim(most() / 2).expect_err("the host has a part");
        assert!(refused.left < most() / 2, "{refused}");
        assert!(
            refused.to_string().contains("vm.max_map_count"),
            "{refused}"
        );
        drop(half);
        drop(Mappings::claim(most() / 2).expect("it was given back"));
    }
}
