//! Why a request was refused.

use crate::backend::StoreError;

/// A refused request: no reservation has more or fewer frames, and no other tenant lost a page.
/// Pages of the requester's own may have been evicted, and borrowed frames may have returned to the
/// node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The node has too few unreserved frames.
    #[error("{needed} frames needed, {left} unreserved")]
    Frames {
        /// Frames that were asked for.
        needed: u32,
        /// Unreserved frames, those that firm reservations have borrowed included.
        left: u32,
    },
    /// The area is larger than what the reservation may still attach: its frames and its swap
    /// space, less the areas that it has.
    #[error("{needed} pages to attach, room for {left}")]
    Swap {
        /// Pages of the area.
        needed: u32,
        /// Pages that the reservation may still attach.
        left: u32,
    },
    /// A reservation must be larger than all its locked areas (SPC §IV-B, §V) and its
    /// [kept](crate::Pager::pin_step) ones, by as much as an access needs [at once](crate::Pager::with_at_once).
    #[error(
        "the reservation must be larger than the {needed} pages locked or needed at once, it has {size}"
    )]
    TooSmall {
        /// Pages of all those areas, with the one in question, and those that an access needs at once, less one.
        needed: u32,
        /// Frames of the reservation.
        size: u32,
    },
    /// A reservation or an area of nothing.
    #[error("nothing was asked for")]
    Empty,
    /// The page lies beyond the end of its area.
    #[error("the page is beyond the end of the area")]
    OutOfRange,
    /// The reservation has the area already.
    #[error("the area is attached already")]
    Attached,
    /// The area is not attached.
    #[error("no reservation has attached the area")]
    Unattached,
    /// The area has an eviction lock already.
    #[error("the area is locked already")]
    Locked,
    /// A sharer [keeps](crate::Pager::pin_step) the area's pages: there is nothing to lock.
    #[error("a sharer keeps the pages of the area")]
    Kept,
    /// The attachments are not of the same reservation.
    #[error("the attachments are of different reservations")]
    Foreign,
    /// The area has no eviction lock.
    #[error("the area is not locked")]
    NotLocked,
    /// The area's pages are not managed ([`Sharing::Conserve`](crate::Sharing)), so they cannot
    /// be locked, and a firm reservation cannot share them [plainly](crate::Sharing::Plain).
    #[error("the area is shared without management")]
    Unmanaged,
    /// No frame is available: others evicted pages that were counted here, and the node has no
    /// frames to compensate. Happens with [`Sharing::Plain`](crate::Sharing) only.
    #[error("no frame is left in the reservation")]
    Starved,
    /// The contents of the page could not be saved when the last tenant that had it mapped ended.
    #[error("the page was lost")]
    Lost,
    /// Secondary storage failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A page that would make room is being written out: the request can be repeated when that is over.
    #[error("a page that would make room is being written out")]
    Writing,
    /// A sharer of the area is being taken back: the lock can be changed when that is done.
    #[error("a sharer of the area is ending")]
    Ending,
    /// The reservation, area or attachment has gone.
    #[error("the reservation, area or attachment has gone")]
    Stale,
}
