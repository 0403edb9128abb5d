//! Secondary storage: one request at a time, first come, first served.

use super::task::Nanos;
use crate::write_out::CLUSTER;

/// How long storage takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disk {
    /// To read a page.
    pub read: Nanos,
    /// To write a cluster.
    pub write: Nanos,
}

/// 0.3 ms for a page, and as much for each of the eight pages of a cluster.
///
/// The paper has a 7200 rpm disk and does not say how long a fault took. Eight pages read ahead
/// at half a rotation would be 0.52 ms a page, streaming 0.04 ms. At 0.3 ms its figure 9 comes
/// out as reported: one missed deadline in every period of τ2, which misses none itself.
impl Default for Disk {
    fn default() -> Self {
        Disk::with_page(300_000)
    }
}

impl Disk {
    /// A disk that takes `page` nanoseconds for a page, be it read, or written in a full cluster.
    pub const fn with_page(page: Nanos) -> Self {
        Disk {
            read: page,
            write: page * CLUSTER as Nanos,
        }
    }
}

/// The present operation of the disk.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Queue {
    free_at: Nanos,
}

impl Queue {
    /// Hands a request in; returns when it will be done.
    pub(crate) fn request(&mut self, now: Nanos, takes: Nanos) -> Nanos {
        self.free_at = self.free_at.max(now) + takes;
        self.free_at
    }
}
