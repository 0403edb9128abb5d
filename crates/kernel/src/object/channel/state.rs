//! A channel.

use leasehold_abi::MESSAGE_CAPABILITIES;
use leasehold_reclaim::{Extent, Handle};

use crate::capability::Transfer;
use crate::queue::Queue;

/// A bounded queue of messages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Channel {
    pub(super) buffer: Extent,
    /// Bytes of the buffer.
    pub(super) capacity: u32,
    /// Where the first message starts, and how many bytes the messages take in the buffer.
    pub(super) first: u32,
    pub(super) filled: u32,
    /// The part of the capacity that the messages take: `filled`, and their capabilities.
    pub(super) used: u32,
    pub(crate) messages: u32,
    /// Parcels of those messages that have capabilities, in order.
    pub(in crate::object) parcels: Option<Parcels>,
    pub(crate) senders: Queue,
    pub(crate) receivers: Queue,
}

#[derive(Debug, Clone, Copy)]
pub(in crate::object) struct Parcels {
    pub(in crate::object) first: Handle<Parcel>,
    pub(super) last: Handle<Parcel>,
}

/// The capabilities of one message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parcel {
    pub(super) transfers: [Option<Transfer>; MESSAGE_CAPABILITIES],
    pub(in crate::object) next: Option<Handle<Parcel>>,
}

impl Channel {
    /// The rest of the capacity.
    pub(crate) const fn room(&self) -> u32 {
        self.capacity - self.used
    }

    pub(crate) const fn buffer(&self) -> Extent {
        self.buffer
    }
}
