//! The streams of an execution that are not to be dropped yet.

use crate::local;
use crate::meter::Held;
use crate::steps::caps::ENTRIES;
use leasehold_kernel::{Errno, TenantId};
use wasmtime::error::Context as _;
use wasmtime::{Result, bail};

/// The number of pollables of each stream of an execution, by the stream's place in the resource
/// table. A stream must not be dropped before them, because another stream would take its place.
/// Takes a page of the host's memory from the first pollable on.
#[derive(Debug, Default)]
pub(crate) struct Watched(Option<Box<[u32; ENTRIES.size()]>>);

impl Watched {
    fn count_mut(&mut self, place: u32) -> Option<&mut u32> {
        self.0.as_mut()?.get_mut(place as usize)
    }

    /// Counts one more pollable of the stream at `place`.
    pub(super) fn add(&mut self, (tenant, execution): (TenantId, u64), place: u32) -> Result<()> {
        if self.0.is_none() {
            local::with(|local| local.hold(tenant, execution, Held::HostPage, 1))
                .map_err(unpaid)?;
            self.0 = Some(Box::new([0; ENTRIES.size()]));
        }
        let count = self.count_mut(place).context("unknown stream")?;
        *count = count.checked_add(1).context("too many pollables")?;
        Ok(())
    }

    /// Counts one pollable less.
    pub(super) fn remove(&mut self, place: u32) {
        if let Some(count) = self.count_mut(place) {
            *count = count.saturating_sub(1);
        }
    }

    /// Fails, which traps, unless the stream at `place` can be dropped.
    ///
    /// # Errors
    /// When there is a pollable of it.
    pub(crate) fn check_drop(&self, place: u32) -> Result<()> {
        let count = self
            .0
            .as_ref()
            .and_then(|counts| counts.get(place as usize));
        if count.is_some_and(|count| *count > 0) {
            bail!("a stream is dropped before a pollable of it: resource has children");
        }
        Ok(())
    }
}

pub(super) fn unpaid(errno: Errno) -> wasmtime::Error {
    wasmtime::Error::new(errno).context("the lease does not pay for a pollable")
}
