//! Pages that an execution's lease is charged for waiting and writing.
//!
//! The data that a stream keeps between calls is charged first: a page for reading ahead, or the
//! pages of pending writes. The growth of a file through a descriptor is charged until the
//! descriptor is closed, because closing a file without a name frees its pages. Charges are at high
//! water: returned pages are used again.

use crate::local;
use crate::meter::Held;
use leasehold_kernel::TenantId;
use leasehold_slots::address_range::PAGE;
use rustix::io::{Errno, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The pages of one execution.
#[derive(Debug)]
pub(crate) struct Pages {
    tenant: TenantId,
    execution: u64,
    held: Held,
    /// The pages that are charged; only the cell's thread charges more.
    charged: AtomicU32,
    used: AtomicU32,
}

impl Pages {
    /// Creates the account with no page charged; each will be charged as one of `held`.
    pub(crate) fn new(tenant: TenantId, execution: u64, held: Held) -> Self {
        Self {
            tenant,
            execution,
            held,
            charged: AtomicU32::new(0),
            used: AtomicU32::new(0),
        }
    }

    /// Lends pages for so many bytes. To be called on the cell's thread.
    ///
    /// # Errors
    /// `NOMEM` when the lease does not pay for them.
    pub(crate) fn lend(self: &Arc<Self>, bytes: usize) -> Result<Lent> {
        let pages = u32::try_from(bytes.div_ceil(PAGE)).map_err(|_| Errno::NOMEM)?;
        let used = self.used.load(Ordering::Acquire).checked_add(pages);
        let used = used.ok_or(Errno::NOMEM)?;
        let charged = self.charged.load(Ordering::Relaxed);
        if used > charged {
            let more = used - charged;
            let charge = local::with(|local| {
                local.hold(self.tenant, self.execution, self.held, more.into())
            });
            charge.map_err(|_| Errno::NOMEM)?;
            self.charged.store(used, Ordering::Relaxed);
        }
        self.used.fetch_add(pages, Ordering::AcqRel);
        Ok(Lent {
            pages: self.clone(),
            count: pages,
        })
    }
}

/// Pages that are used until it is dropped, on whatever thread.
#[derive(Debug)]
pub(crate) struct Lent {
    pages: Arc<Pages>,
    count: u32,
}

impl Lent {
    /// Returns the number of pages.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Moves `count` of its pages, or all of them, to `other`, which is of the same execution; returns
    /// how many.
    pub(super) fn move_to(&mut self, other: &mut Option<Lent>, count: u32) -> u32 {
        let count = count.min(self.count);
        self.count -= count;
        match other {
            Some(other) => other.count += count,
            None => {
                *other = Some(Lent {
                    pages: self.pages.clone(),
                    count,
                });
            }
        }
        count
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.pages.used.fetch_sub(self.count, Ordering::AcqRel);
    }
}
