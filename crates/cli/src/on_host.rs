//! What the host grants to a cell.

use leasehold_cell::Realtime;
use leasehold_confine::InForce;

/// The host's grants to the cell, for reports.
pub(crate) struct OnHost<'a> {
    pub(crate) realtime: &'a Realtime,
    pub(crate) confined: &'a InForce,
}
