//! The memory that a cell holds for its tenants, and its division among them.
//!
//! A cell that is told how much of the host's memory it has ([`HeldMemory`]) holds that much from
//! the start, and every top-level tenant takes its reservation out of it before it runs. Most
//! tenants fit their reservation: their linear memories are anonymous [slots](leasehold_slots::slot), as in a
//! cell that holds nothing, and cost nothing more. Only a tenant whose limit exceeds its
//! reservation *pages*: its linear memories are attached areas (`paged`), and pages beyond its
//! frames are in the swap file (SPC §II-B). Its descendants share its reservation.
//!
//! Tenants that page share pages: the [initial memory](leasehold_wasm::image) of a program that several of
//! them run, data sets that they map (`data`), and regions (`region`) through which they communicate.
//! How the first two are kept in memory is up to their leases (`shared`).
//!
//! Everything here belongs to the cell's thread, like `local`. It is a separate state
//! because faults are served while the other is borrowed.

mod areas;
mod attaching;
mod available;
mod data;
mod denied;
mod grants;
mod growth;
mod paged;
mod parts;
pub(crate) mod places;
mod ranges;
pub(crate) mod region;
mod shared;
mod state;
mod tenancy;
mod transfer;
mod unheld;

/// The memory that the host can spare.
pub use available::available;
/// The host memory that a cell really holds, and whether it is locked.
pub use leasehold_pager_linux::Held as HeldFrames;
pub use shared::SharedUse;
pub use tenancy::{MemoryUse, swap_for};
pub use unheld::Unheld;

pub(crate) use data::{DataSet, Mapped, map_data};
pub(crate) use growth::mappings_enough;
pub(crate) use paged::{Ahead, Memories, claim, detach, for_tenant, make_ahead};
pub(crate) use parts::Left;
pub(crate) use shared::{Joining, check_image, join_image, lock_step, shared};
pub(crate) use state::Tenancy;
pub(crate) use tenancy::{admit, end, lend, page_class, reserve_step, restore, usage};
pub(crate) use transfer::{AwaitedTransfer, begin_poll, end_poll, fetch_pages};

use crate::host::io::pool::MOST_TENANTS;
use crate::meter::Held;
use crate::profile::Profile;
use crate::steps::{begin, caps, may_wait, on_fault, step};
use areas::Shared;
use leasehold_pager::{CLUSTER, PAGE};
use leasehold_pager_linux::{AT_ONCE, Handlers, Locking, Options, Paging, Reason, SwapFile};
use places::Regions;
use ranges::Ranges;
use rustix::process::{Resource, getrlimit};
use state::{CellMemory, MEMORY, with};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The host memory of a cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldMemory {
    /// Bytes that the reservations of its tenants share: held from the start.
    pub bytes: u64,
    /// Whether tenants that do not page take their reservations out of these bytes, too. The cell
    /// then holds the part of a reservation that the tenant has not grown to. If not, their
    /// reservations are only limits.
    pub for_all: bool,
    /// The file for pages beyond reservations; without it no tenant pages.
    pub swap: Option<Swap>,
}

/// The swap file of a cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Swap {
    /// The directory of the file. The file disappears with the cell, however the cell ends.
    pub path: PathBuf,
    /// Its length: allocated when the cell starts, so that running out shows then.
    pub bytes: u64,
}

impl HeldMemory {
    /// Checks what can be known before a cell holds it, of a host that can spare `available` bytes. Takes nothing.
    ///
    /// # Errors
    /// [`Unheld`] says which part the host does not provide.
    pub fn check(&self, available: Option<u64>) -> Result<(), Unheld> {
        if let Some(swap) = &self.swap {
            let pages = u32::try_from(swap.bytes.div_ceil(PAGE)).unwrap_or(u32::MAX);
            SwapFile::check(&swap.path, pages).map_err(Unheld::Swap)?;
        }
        if let Some(allowed) = getrlimit(Resource::Fsize).current
            && allowed < leasehold_pager_linux::PAGE_FILE_BYTES
        {
            return Err(Unheld::FileSize { allowed });
        }
        match available {
            Some(available) if self.bytes > available => Err(Unheld::Memory {
                asked: self.bytes,
                available,
            }),
            _ => Ok(()),
        }
    }
}

/// Gives this thread the memory of a cell with room for `memories` linear memories, until
/// [`leave`].
///
/// # Errors
/// When the host does not have the memory, or lacks something that paging needs.
pub(crate) fn enter(
    held: Option<&HeldMemory>,
    profile: &Profile,
    memories: usize,
) -> anyhow::Result<()> {
    let Some(held) = held else {
        return Ok(());
    };
    let charged = profile.is_free() || profile.charge_ps(Held::PagedPage) > 0;
    if held.swap.is_some() && !charged {
        anyhow::bail!(
            "the profile of this host does not say what paging costs: `leasehold calibrate` \
             measures it, or says why it cannot"
        );
    }
    held.check(available())?;
    let frames = u32::try_from(held.bytes / PAGE).map_err(|_| {
        anyhow::anyhow!(
            "`cell.memory`: found {} bytes; allowed: at most 16TiB",
            held.bytes
        )
    })?;
    let mut options = Options::new(frames);
    options.locking = Locking::IfAllowed;
    options.at_once = AT_ONCE;
    options.handlers = Handlers {
        on_denied: denied::on_denied,
        on_fault,
        may_wait,
        can_suspend: leasehold_preempt::can_suspend,
        suspend: leasehold_preempt::suspend,
    };
    if let Some(swap) = &held.swap {
        let pages = u32::try_from(swap.bytes.div_ceil(PAGE)).map_err(|_| {
            anyhow::anyhow!(
                "`memory.swap`: found {} bytes; allowed: at most 16TiB",
                swap.bytes
            )
        })?;
        // Whole clusters, one of which pages are written out anew, and those that threads are writing.
        options.clusters_at_once = MOST_TENANTS as u32;
        let more = (2 + options.clusters_at_once) * CLUSTER as u32;
        let pages = pages.saturating_add(more);
        let file = SwapFile::create(&swap.path, pages).map_err(Unheld::Swap)?;
        options.store = Some(Box::new(file));
    }
    let paging = Paging::open(options)
        .map_err(|error| anyhow::anyhow!("holding {} bytes of memory: {error}", held.bytes))?;
    let memory = CellMemory {
        paging,
        for_all: held.for_all,
        ranges: Ranges::new(memories)?,
        tenancies: BTreeMap::new(),
        left: Vec::new(),
        shared: Shared::default(),
        regions: Regions::default(),
        aside: Vec::new(),
    };
    MEMORY.with(|cell| *cell.borrow_mut() = Some(memory));
    Ok(())
}

/// Takes the memory away from this thread.
pub(crate) fn leave() {
    drop(MEMORY.with(|cell| cell.borrow_mut().take()));
}

/// Replaces frames that came back to the cell, so that it holds again what it promised: a bounded
/// step for an idle cell. Returns true if more is left.
pub(crate) fn hold_again() -> bool {
    // A page takes 3 us, and 10 in a virtual machine whose host must find memory for it.
    const STEP: u32 = caps::HELD.most as u32;
    let held = with(|memory| {
        let retried = memory.retry();
        if memory.paging.is_whole() {
            return Ok(!retried);
        }
        let _step = begin(step!("cell", "hold again"));
        let all = memory.paging.refill(STEP)?;
        Ok::<bool, leasehold_pager_linux::Error>(all && !retried)
    });
    match held {
        Some(Ok(all)) => !all,
        // The host has no memory to spare now: frames are allocated when they are used.
        Some(Err(error)) => {
            tracing::debug!(%error, "the cell does not hold all its memory");
            false
        }
        None => false,
    }
}

/// The memory that is really held.
pub(crate) fn held() -> Option<HeldFrames> {
    with(|memory| memory.paging.held())
}

/// Why the guest that was polled last was denied a page, if it was. Some nanoseconds.
pub(crate) fn take_denied() -> Option<String> {
    let denied = with(|memory| memory.paging.take_denied()).flatten()?;
    let hint = match denied.reason {
        Reason::Waits => "; more of `memory.reserve` keeps the pages of a call in memory",
        _ => "",
    };
    let reason = denied.reason;
    Some(format!(
        "a page of its memory cannot be had: {reason}{hint}"
    ))
}
