//! Memory in which file streams keep bytes between calls.
//!
//! A stream keeps none as long as its file does not make it wait. What has to wait is charged when it is
//! begun: a page of what is read ahead, or as many as what is written has. Charged at high water for an
//! execution: pages that were given back are used again.

use crate::local;
use crate::meter::Held;
use leasehold_kernel::TenantId;
use rustix::io::{Errno, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes that are read ahead for a stream.
pub(super) const PAGE: usize = 4096;

/// The pages of one execution.
#[derive(Debug)]
pub(super) struct Buffers {
    tenant: TenantId,
    execution: u64,
    /// Only the cell's thread charges more.
    charged: AtomicU32,
    used: AtomicU32,
}

impl Buffers {
    pub(super) fn new(tenant: TenantId, execution: u64) -> Self {
        Self {
            tenant,
            execution,
            charged: AtomicU32::new(0),
            used: AtomicU32::new(0),
        }
    }

    /// Pages for so many bytes, before they are allocated. To be called on the cell's thread.
    ///
    /// # Errors
    /// `NOMEM` when the lease does not pay for them.
    pub(super) fn lend(self: &Arc<Self>, bytes: usize) -> Result<Lent> {
        let pages = u32::try_from(bytes.div_ceil(PAGE)).map_err(|_| Errno::NOMEM)?;
        let used = self.used.load(Ordering::Acquire) + pages;
        let charged = self.charged.load(Ordering::Relaxed);
        if used > charged {
            let more = used - charged;
            let charge = local::with(|local| {
                local.hold(self.tenant, self.execution, Held::HostPage, more.into())
            });
            charge.map_err(|_| Errno::NOMEM)?;
            self.charged.store(used, Ordering::Relaxed);
        }
        self.used.fetch_add(pages, Ordering::AcqRel);
        Ok(Lent {
            buffers: self.clone(),
            pages,
        })
    }
}

/// Pages that are used until it is dropped, on whatever thread.
#[derive(Debug)]
pub(super) struct Lent {
    buffers: Arc<Buffers>,
    pages: u32,
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.buffers.used.fetch_sub(self.pages, Ordering::AcqRel);
    }
}
