//! The number of the request that a writer works for.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What an execution works for, as those know it that read what it writes: the number of a request, or
/// nothing. The host sets it, and it stands beside the bytes, so that no guest can choose it. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Tag(Arc<AtomicU64>);

impl Tag {
    /// From now on what is written belongs to this request, or to none.
    pub fn set(&self, request: Option<NonZeroU64>) {
        self.0
            .store(request.map_or(0, NonZeroU64::get), Ordering::Relaxed);
    }

    /// Returns the request that is worked for.
    pub fn get(&self) -> Option<NonZeroU64> {
        NonZeroU64::new(self.0.load(Ordering::Relaxed))
    }
}
