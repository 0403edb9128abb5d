//! What one exchange may hold.

use leasehold_crossing::ring_bytes;

/// What one exchange may hold in the host's memory, fixed when it is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExchangeLimits {
    /// The most bytes of a head, and of trailers, in each direction.
    pub head_bytes: u32,
    /// The most bytes of a body that one side has written and the other has not read, in each
    /// direction.
    pub window_bytes: u32,
}

impl ExchangeLimits {
    /// What is small and fixed: the halves, their counters and wakers, and what an allocator adds.
    const FIXED: u64 = 2048;

    /// The most bytes of the host's memory that the exchange ever holds: heads, trailers and
    /// windows of both directions, and the halves.
    pub const fn held_bytes(&self) -> u64 {
        let heads = 4 * self.head_bytes as u64;
        let windows = 2 * ring_bytes(self.window_bytes as usize) as u64;
        heads + windows + Self::FIXED
    }
}

impl Default for ExchangeLimits {
    /// Heads of 16 KiB and windows of 64 KiB.
    fn default() -> Self {
        Self {
            head_bytes: 16 * 1024,
            window_bytes: 64 * 1024,
        }
    }
}
