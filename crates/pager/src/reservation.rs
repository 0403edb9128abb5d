//! Reservations: frames that are guaranteed to a tenant, and that limit it (SPC §II-B).

use alloc::vec::Vec;

use crate::attachment::Attachment;
use crate::frame::Stack;
use crate::lists::{ByAge, List};
use crate::table::{At, Key};

/// Names a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReservationId(pub(crate) Key);

/// The behaviour of a reservation whose frames are used up (SPC §II-B).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Pages of its own make room, even if the node has unreserved frames.
    Hard,
    /// Unreserved frames are borrowed while there are any. They are taken back when they are
    /// reserved.
    Firm,
}

/// The parameters of a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Contract {
    /// Frames of [`PAGE`](crate::PAGE) bytes.
    pub frames: u32,
    /// The behaviour beyond them.
    pub kind: Kind,
    /// Pages that may be attached beyond `frames`, and so may have to be written out. With 0 no
    /// page is ever evicted from this reservation.
    pub swap: u32,
}

impl Contract {
    /// A hard reservation whose tenant may attach any number of pages.
    pub const fn hard(frames: u32) -> Self {
        Contract {
            frames,
            kind: Kind::Hard,
            swap: u32::MAX - frames,
        }
    }

    /// A firm reservation whose tenant may attach any number of pages.
    pub const fn firm(frames: u32) -> Self {
        Contract {
            kind: Kind::Firm,
            ..Contract::hard(frames)
        }
    }

    /// The same with room to write at most `pages` pages out.
    #[must_use]
    pub const fn with_swap(self, pages: u32) -> Self {
        Contract {
            swap: pages,
            ..self
        }
    }
}

/// Where the frames of a reservation are. Always
/// `free + owned + conserved + returned + missing + promised = size - locked + borrowed`. `promised`
/// is 0 once the reservation has begun, and `returned` and `missing` are 0 unless the tenant uses an area of
/// [`Sharing::Plain`](crate::Sharing).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Account {
    /// Frames of the contract.
    pub size: u32,
    /// Frames of the free list.
    pub free: u32,
    /// Frames that hold pages owned by this reservation.
    pub owned: u32,
    /// Frames of the conserved-page list: one for each page that others own (SPC §IV-A).
    pub conserved: u32,
    /// Frames that were given up for areas under an eviction lock: one for each of their pages.
    pub locked: u32,
    /// Frames beyond `size`, borrowed from the node.
    pub borrowed: u32,
    /// Baseline: frames given back to the node, one for each page that others own.
    pub returned: u32,
    /// Baseline: frames that are still to be had from the node, for pages that others evicted.
    pub missing: u32,
    /// Frames that it was promised and does not have yet: it is beginning.
    pub promised: u32,
    /// Pages of its areas that stay: that are locked or being locked, or that it [keeps](crate::Pager::pin_step).
    pub kept: u32,
}

impl Account {
    /// Returns whether the sum holds (invariant 6).
    pub fn balances(&self) -> bool {
        let held = [self.free, self.owned, self.conserved, self.returned];
        let due = [self.missing, self.promised];
        let held = held.iter().chain(&due).copied().map(u64::from).sum::<u64>();
        held + u64::from(self.locked) == u64::from(self.size) + u64::from(self.borrowed)
    }
}

/// The paging counters of a reservation since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Faults that read a page from secondary storage.
    pub major: u64,
    /// Faults that mapped a page which was resident for others.
    pub minor: u64,
    /// Faults that made a page of zeros.
    pub zero: u64,
    /// Pages that were mapped before they were touched.
    pub ahead: u64,
    /// Pages copied because a tenant wrote to its view of them.
    pub copied: u64,
    /// Pages of this reservation evicted from memory to make room in it.
    pub evicted: u64,
    /// Shared pages unmapped from this reservation alone, to make room in it.
    pub unmapped: u64,
    /// Pages written out to make room in this reservation.
    pub written: u64,
    /// Clusters that they were written in.
    pub writes: u64,
    /// Frames that came to be owned because the owner unmapped the page.
    pub inherited: u64,
    /// Baselines: pages that the paging of other tenants took away.
    pub robbed: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct Reservation {
    pub(crate) kind: Kind,
    pub(crate) size: u32,
    /// Most pages that it may have attached.
    pub(crate) attachable: u32,
    /// Pages that it has attached.
    pub(crate) attached: u32,
    pub(crate) locked: u32,
    /// Pages of areas that stay: that are locked or being locked, or that it keeps.
    pub(crate) kept: u32,
    pub(crate) borrowed: u32,
    pub(crate) owned: u32,
    pub(crate) returned: u32,
    pub(crate) missing: u32,
    /// Frames of the contract that it does not have yet.
    pub(crate) promised: u32,
    pub(crate) free: Stack,
    /// The conserved-page list (SPC §IV-A).
    pub(crate) conserved: Stack,
    pub(crate) active: List<ByAge>,
    pub(crate) inactive: List<ByAge>,
    pub(crate) attachments: Vec<At<Attachment>>,
    /// It is being taken back, and serves no faults.
    pub(crate) ending: bool,
    pub(crate) counts: Counts,
}

impl Reservation {
    /// A reservation that has no frames yet.
    pub(crate) fn new(contract: &Contract) -> Self {
        Reservation {
            kind: contract.kind,
            size: contract.frames,
            attachable: contract.frames.saturating_add(contract.swap),
            attached: 0,
            locked: 0,
            kept: 0,
            borrowed: 0,
            owned: 0,
            returned: 0,
            missing: 0,
            promised: contract.frames,
            free: Stack::EMPTY,
            conserved: Stack::EMPTY,
            active: List::EMPTY,
            inactive: List::EMPTY,
            attachments: Vec::new(),
            ending: false,
            counts: Counts::default(),
        }
    }

    pub(crate) fn account(&self) -> Account {
        Account {
            size: self.size,
            free: self.free.len(),
            owned: self.owned,
            conserved: self.conserved.len(),
            locked: self.locked,
            borrowed: self.borrowed,
            returned: self.returned,
            missing: self.missing,
            promised: self.promised,
            kept: self.kept,
        }
    }
}
