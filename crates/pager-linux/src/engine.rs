//! Policy and mechanism of a cell, together.

use leasehold_pager::Pager;

use crate::backend::Linux;

/// Policy and mechanism of a cell, together.
pub(crate) struct Engine {
    pub(crate) pager: Pager<Linux>,
    /// Most pages mapped ahead of a stream of faults.
    pub(crate) ahead: u32,
}

impl Engine {
    /// The transfers that were waited for where they were needed.
    pub(crate) fn transfers(&self) -> u64 {
        self.pager.backend().transfers
    }

    pub(crate) fn linux(&mut self) -> &mut Linux {
        self.pager.backend_mut()
    }
}
