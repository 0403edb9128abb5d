//! What is reserved for the ends of background tenants.

use crate::clock::monotonic_ns;
use crate::dispatch::{Dispatcher, Share, Work};
use leasehold_reserve::{Contract, Refused, TaskId};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Background tenants that are being taken back, and what is reserved for that.
pub(super) struct Ends {
    /// The task of the reservation; `None` without one.
    pub(super) task: Option<(Share, TaskId)>,
    /// Their keys, in the order in which they ended.
    pub(super) queue: VecDeque<u64>,
    /// Whether the reservation can be kept beside those of tenants.
    pub(super) fit: Arc<AtomicBool>,
}

impl Ends {
    /// Sets the reservation up, if there is to be one.
    ///
    /// # Errors
    /// When the cell has no place for it.
    pub(super) fn new(
        contract: Option<&Contract>,
        fit: Arc<AtomicBool>,
        dispatcher: &mut Dispatcher,
    ) -> Result<Self, Refused> {
        let reserve = |contract| {
            let share = dispatcher.share(Some(contract), monotonic_ns())?;
            let task = dispatcher.add(&share, Work::Ends)?;
            Ok((share, task))
        };
        Ok(Self {
            task: contract.map(reserve).transpose()?,
            queue: VecDeque::new(),
            fit,
        })
    }
}
