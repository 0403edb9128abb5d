//! Sizes of stacks: a few classes, each with a pool of stacks and an engine of its own.
//!
//! How much stack a guest may use is a setting of the engine, which computes the limit when it enters
//! the guest. Compiled code does not depend on it, so that a program is compiled once for all classes,
//! if it is kept on disk. A lease gets the smallest class that is at least what it says, and is charged
//! for all pages of such a stack.

use crate::address_range::PAGE;
use leasehold_lease::{Lease, Memory};
use wasmtime::Engine;

/// The part of a fiber's stack that host calls need besides the guest's parts, bytes.
const HOST_BYTES: usize = 512 * 1024;

/// Bytes of stack that guest code may use, unless its lease says otherwise ([`StackClass`]).
pub const MAX_WASM_STACK: usize = 512 * 1024;

/// Bytes of such a [fiber's stack](StackClass::fiber_bytes).
pub const FIBER_STACK: usize = StackClass::SMALLEST.fiber_bytes();

/// A size of stacks: 512 KiB for the guest, doubled some times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StackClass(u8);

impl StackClass {
    /// How many there are.
    pub const COUNT: usize = 8;

    /// The smallest class, the default of a lease.
    pub const SMALLEST: Self = Self(0);

    /// The largest.
    pub const LARGEST: Self = Self(Self::COUNT as u8 - 1);

    /// All of them, the smallest first.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..Self::COUNT as u8).map(Self)
    }

    /// Returns the smallest class with at least `bytes` bytes for the guest, or the largest class.
    pub fn of_bytes(bytes: u64) -> Self {
        let has = |class: &Self| class.guest_bytes() as u64 >= bytes;
        Self::all().find(has).unwrap_or(Self::LARGEST)
    }

    /// Returns the class of a tenant with this lease.
    pub fn of(lease: &Lease) -> Self {
        Self::of_bytes(lease.memory.stack.get())
    }

    /// Returns the class of an engine's programs.
    #[inline]
    pub fn of_engine(engine: &Engine) -> Self {
        Self::of_bytes(engine.get_max_wasm_stack() as u64)
    }

    /// Its number, from 0 on.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Bytes of stack that guest code may use.
    #[inline]
    pub const fn guest_bytes(self) -> usize {
        MAX_WASM_STACK << self.0
    }

    /// Bytes of a fiber's stack: what host calls need, and the guest's part twice. The engine gives a guest
    /// that a host call calls (`cabi_realloc`) as much again, from where the host is; the guest that made the
    /// call may have used up its own.
    #[inline]
    pub const fn fiber_bytes(self) -> usize {
        2 * self.guest_bytes() + HOST_BYTES
    }

    /// Pages of a fiber's stack, all of which cleaning visits: what a lease is charged for it.
    #[inline]
    pub const fn pages(self) -> usize {
        self.fiber_bytes() / PAGE
    }
}

const _: () = assert!(
    StackClass(0).guest_bytes() as u64 == Memory::MIN_STACK.get()
        && StackClass::LARGEST.guest_bytes() as u64 == Memory::MAX_STACK.get(),
    "the classes are what leases grant"
);

#[cfg(test)]
mod tests {
    use super::StackClass;

    #[test]
    fn a_lease_gets_the_smallest_class_that_is_large_enough() {
        for (bytes, guest) in [
            (1, 512 << 10),
            (512 << 10, 512 << 10),
            ((512 << 10) + 1, 1 << 20),
            (3 << 20, 4 << 20),
            (64 << 20, 64 << 20),
            (1 << 40, 64 << 20),
        ] {
            assert_eq!(StackClass::of_bytes(bytes).guest_bytes(), guest, "{bytes}");
        }
    }
}
