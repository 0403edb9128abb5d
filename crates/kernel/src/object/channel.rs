//! Channels: bounded queues of messages, which are bytes and capabilities.
//!
//! The buffer is a ring, allocated and charged whole when the channel is made, so that a sender
//! cannot make the channel's owner pay for bytes. Capabilities on their way cannot be bytes
//! (handles are never made from numbers): the message that carries some has a *parcel* in the
//! owner's group. Each capability takes [`CAPABILITY_BYTES`] of the capacity, which bounds what
//! foreign tenants can make the owner pay for parcels.

pub(crate) mod state;

use leasehold_abi::{Errno, MESSAGE_CAPABILITIES, Received, Rights};
use leasehold_reclaim::{Backing, Handle};

use crate::capability::{ObjectClass, Selector, Transfer};
use crate::id::{ExecutionId, TenantId};
use crate::kernel::{Kernel, Outcome};
use crate::object::channel::state::{Channel, Parcel, Parcels};
use crate::queue::Queue;
use crate::refusal::errno;
use crate::wait::Side;

/// The part of a channel's capacity that a message takes beside its bytes and capabilities.
pub const HEADER_BYTES: u32 = 8;
/// The part of a channel's capacity that each capability in a message takes.
pub const CAPABILITY_BYTES: u32 = 64;

/// The head of a message in the buffer.
#[derive(Debug, Clone, Copy)]
struct Header {
    length: u32,
    capabilities: u32,
}

impl Header {
    const fn footprint(self) -> u32 {
        HEADER_BYTES + self.length + self.capabilities * CAPABILITY_BYTES
    }
}

impl<B: Backing> Kernel<B> {
    /// Creates a channel of `capacity` bytes, the [headers](HEADER_BYTES) and
    /// [capabilities](CAPABILITY_BYTES) of messages included. O(capacity): the buffer is
    /// cleared.
    ///
    /// # Errors
    /// [`Errno::Invalid`] if no message would fit, [`Errno::TooLarge`] beyond
    /// [`max_channel_bytes`](crate::KernelConfig::max_channel_bytes), [`Errno::Budget`],
    /// [`Errno::Memory`], [`Errno::TableFull`].
    pub fn channel_create(&mut self, caller: TenantId, capacity: u32) -> Result<Selector, Errno> {
        if capacity < HEADER_BYTES {
            return Err(Errno::Invalid);
        }
        if capacity > self.config.max_channel_bytes {
            return Err(Errno::TooLarge);
        }
        let buffer = self.buffer(caller, u64::from(capacity), self.costs.channel_ps)?;
        let channel = Channel {
            buffer,
            capacity,
            first: 0,
            filled: 0,
            used: 0,
            messages: 0,
            parcels: None,
            senders: Queue::default(),
            receivers: Queue::default(),
        };
        let created = self.create(caller, ObjectClass::Channel, self.classes.channel, channel);
        if created.is_err() {
            self.groups.free_bytes(buffer);
        }
        created
    }

    /// Sends a message, or waits for room. Needs [`Rights::WRITE`] on the channel and
    /// [`Rights::GRANT`] on each capability, which the receiver gets with the same rights, to be
    /// used without waiting for a foreign tenant's object (it carries no links). Senders are served
    /// in order.
    ///
    /// # Errors
    /// [`Errno::TooLarge`] if it can never fit, [`Errno::Invalid`] with more than
    /// [`MESSAGE_CAPABILITIES`], [`Errno::Budget`] and [`Errno::Memory`] if the channel's owner
    /// cannot pay for a parcel, those of using and delegating a capability, and of
    /// [waiting](Outcome::Blocked).
    pub fn channel_send(
        &mut self,
        caller: TenantId,
        execution: ExecutionId,
        channel: Selector,
        bytes: &[u8],
        capabilities: &[Selector],
    ) -> Result<Outcome<()>, Errno> {
        self.blocking(caller, execution, |kernel, call| {
            let target = kernel.resolve(caller, channel, ObjectClass::Channel, Rights::WRITE)?;
            let transfers = kernel.pack(caller, capabilities)?;
            let has_reserved = call.has_reserved(target.object, Side::Send);
            let handle = Handle::from_raw(target.object);
            let need = kernel.footprint(handle, bytes, capabilities)?;
            if kernel.put(handle, bytes, transfers, has_reserved)? {
                return Ok(Outcome::Done(()));
            }
            kernel.block(caller, execution, call, &target, Side::Send, need)
        })
    }

    /// Sends a message without waiting. Like [`channel_send`](Self::channel_send).
    ///
    /// # Errors
    /// [`Errno::Full`] if it would have to wait, and those of `channel_send`.
    pub fn channel_try_send(
        &mut self,
        caller: TenantId,
        channel: Selector,
        bytes: &[u8],
        capabilities: &[Selector],
    ) -> Result<(), Errno> {
        let target = self.resolve(caller, channel, ObjectClass::Channel, Rights::WRITE)?;
        let transfers = self.pack(caller, capabilities)?;
        let handle = Handle::from_raw(target.object);
        self.footprint(handle, bytes, capabilities)?;
        if self.put(handle, bytes, transfers, false)? {
            Ok(())
        } else {
            Err(Errno::Full)
        }
    }

    /// Receives the next message into the given buffers, or waits for one. Needs
    /// [`Rights::READ`]. O(bytes of the message).
    ///
    /// # Errors
    /// [`Errno::TooLarge`] if the message does not fit the buffers, and those of putting
    /// capabilities into the caller's table ([`Errno::Budget`], [`Errno::Memory`],
    /// [`Errno::TableFull`]): the message stays in the channel. Those of using a capability,
    /// and of [waiting](Outcome::Blocked).
    pub fn channel_receive(
        &mut self,
        caller: TenantId,
        execution: ExecutionId,
        channel: Selector,
        bytes: &mut [u8],
        capabilities: &mut [Selector],
    ) -> Result<Outcome<Received>, Errno> {
        self.blocking(caller, execution, |kernel, call| {
            let target = kernel.resolve(caller, channel, ObjectClass::Channel, Rights::READ)?;
            let has_reserved = call.has_reserved(target.object, Side::Receive);
            let handle = Handle::from_raw(target.object);
            match kernel.take(caller, handle, has_reserved, bytes, capabilities)? {
                Some(received) => Ok(Outcome::Done(received)),
                None => kernel.block(caller, execution, call, &target, Side::Receive, 1),
            }
        })
    }

    /// Receives the next message without waiting. Like
    /// [`channel_receive`](Self::channel_receive).
    ///
    /// # Errors
    /// [`Errno::Empty`] if it would have to wait, and those of `channel_receive`.
    pub fn channel_try_receive(
        &mut self,
        caller: TenantId,
        channel: Selector,
        bytes: &mut [u8],
        capabilities: &mut [Selector],
    ) -> Result<Received, Errno> {
        let target = self.resolve(caller, channel, ObjectClass::Channel, Rights::READ)?;
        let handle = Handle::from_raw(target.object);
        self.take(caller, handle, false, bytes, capabilities)?
            .ok_or(Errno::Empty)
    }

    /// The part of a channel's capacity that a message takes.
    fn footprint(
        &self,
        channel: Handle<Channel>,
        bytes: &[u8],
        capabilities: &[Selector],
    ) -> Result<u32, Errno> {
        let channel = self.groups.get(channel).ok_or(Errno::Gone)?;
        let need = u32::try_from(bytes.len())
            .ok()
            .and_then(|length| length.checked_add(HEADER_BYTES))
            .and_then(|need| need.checked_add(capabilities.len() as u32 * CAPABILITY_BYTES));
        need.filter(|&need| need <= channel.capacity)
            .ok_or(Errno::TooLarge)
    }

    fn pack(
        &self,
        from: TenantId,
        capabilities: &[Selector],
    ) -> Result<[Option<Transfer>; MESSAGE_CAPABILITIES], Errno> {
        let mut transfers = [None; MESSAGE_CAPABILITIES];
        if capabilities.len() > MESSAGE_CAPABILITIES {
            return Err(Errno::Invalid);
        }
        for (transfer, &capability) in transfers.iter_mut().zip(capabilities) {
            *transfer = Some(self.transfer(from, capability, Rights::ALL)?);
        }
        Ok(transfers)
    }

    /// Puts a message into a channel; returns whether there was room.
    fn put(
        &mut self,
        handle: Handle<Channel>,
        bytes: &[u8],
        transfers: [Option<Transfer>; MESSAGE_CAPABILITIES],
        has_reserved: bool,
    ) -> Result<bool, Errno> {
        let channel = *self.groups.get(handle).ok_or(Errno::Gone)?;
        let capabilities = transfers.iter().flatten().count() as u32;
        // The caller has checked that the footprint fits 32 bits.
        let header = Header {
            length: bytes.len() as u32,
            capabilities,
        };
        if !channel
            .senders
            .admits(channel.room(), header.footprint(), has_reserved)
        {
            return Ok(false);
        }
        let mut parcels = channel.parcels;
        if capabilities > 0 {
            let parcel = Parcel {
                transfers,
                next: None,
            };
            let owner = handle.raw().group();
            let parcel = self
                .groups
                .alloc(owner, self.classes.parcel, parcel)
                .map_err(errno)?;
            if let Some(last) = parcels.and_then(|parcels| self.groups.get_mut(parcels.last)) {
                last.next = Some(parcel);
            }
            let first = parcels.map_or(parcel, |parcels| parcels.first);
            parcels = Some(Parcels {
                first,
                last: parcel,
            });
        }
        let buffer = self.groups.bytes_mut(channel.buffer).ok_or(Errno::Gone)?;
        let end = wrap(channel.first + channel.filled, channel.capacity);
        let mut head = [0; HEADER_BYTES as usize];
        head[..4].copy_from_slice(&header.length.to_le_bytes());
        head[4..].copy_from_slice(&header.capabilities.to_le_bytes());
        let end = write_ring(buffer, end, &head);
        write_ring(buffer, end, bytes);
        let channel = self.groups.get_mut(handle).ok_or(Errno::Gone)?;
        channel.parcels = parcels;
        channel.filled += HEADER_BYTES + header.length;
        channel.used += header.footprint();
        channel.messages += 1;
        if channel.receivers.list.first.is_some() {
            self.executions
                .settle(&mut self.groups, handle.raw(), Side::Receive);
        }
        Ok(true)
    }

    /// Takes the first message out of a channel; `None` if there is none to be had.
    fn take(
        &mut self,
        caller: TenantId,
        handle: Handle<Channel>,
        has_reserved: bool,
        bytes: &mut [u8],
        capabilities: &mut [Selector],
    ) -> Result<Option<Received>, Errno> {
        let channel = *self.groups.get(handle).ok_or(Errno::Gone)?;
        if !channel.receivers.admits(channel.messages, 1, has_reserved) {
            return Ok(None);
        }
        let buffer = self.groups.bytes(channel.buffer).ok_or(Errno::Gone)?;
        let mut head = [0; HEADER_BYTES as usize];
        let start = read_ring(buffer, channel.first, &mut head);
        let [a, b, c, d, e, f, g, h] = head;
        let header = Header {
            length: u32::from_le_bytes([a, b, c, d]),
            capabilities: u32::from_le_bytes([e, f, g, h]),
        };
        let (length, count) = (header.length as usize, header.capabilities as usize);
        if bytes.len() < length || capabilities.len() < count {
            return Err(Errno::TooLarge);
        }
        let start = read_ring(buffer, start, &mut bytes[..length]);
        let mut parcels = channel.parcels;
        if count > 0 {
            let first = parcels.ok_or(Errno::Gone)?.first;
            let parcel = *self.groups.get(first).ok_or(Errno::Gone)?;
            self.unpack(caller, &parcel.transfers, &mut capabilities[..count])?;
            self.groups.free(first);
            parcels = parcel
                .next
                .zip(parcels)
                .map(|(first, parcels)| Parcels { first, ..parcels });
        }
        let channel = self.groups.get_mut(handle).ok_or(Errno::Gone)?;
        channel.parcels = parcels;
        channel.first = start;
        channel.filled -= HEADER_BYTES + header.length;
        channel.used -= header.footprint();
        channel.messages -= 1;
        if channel.senders.list.first.is_some() {
            self.executions
                .settle(&mut self.groups, handle.raw(), Side::Send);
        }
        Ok(Some(Received {
            length: header.length,
            capabilities: header.capabilities,
        }))
    }

    /// Puts the capabilities of a message into the receiver's table: all or none.
    fn unpack(
        &mut self,
        to: TenantId,
        transfers: &[Option<Transfer>],
        selectors: &mut [Selector],
    ) -> Result<(), Errno> {
        let count = selectors.len() as u64;
        if count > 1 {
            let ps = self.costs.capability_ps.saturating_mul(count);
            self.vacancy(to, ps)?;
            self.afford(self.group_of(to)?, count, ps)?;
        }
        for (at, transfer) in transfers.iter().flatten().take(selectors.len()).enumerate() {
            match self.receive(to, *transfer) {
                Ok(selector) => selectors[at] = selector,
                Err(errno) => {
                    for &received in &selectors[..at] {
                        let dropped = self.capability_drop(to, received);
                        debug_assert_eq!(dropped, Ok(()), "it was received just now");
                    }
                    return Err(errno);
                }
            }
        }
        Ok(())
    }
}

const fn wrap(at: u32, capacity: u32) -> u32 {
    if at >= capacity { at - capacity } else { at }
}

/// Copies `bytes` into the ring from `at` on; returns where they end. They must fit.
fn write_ring(ring: &mut [u8], at: u32, bytes: &[u8]) -> u32 {
    let at = at as usize;
    let (front, back) = bytes.split_at(bytes.len().min(ring.len() - at));
    ring[at..at + front.len()].copy_from_slice(front);
    ring[..back.len()].copy_from_slice(back);
    wrap((at + bytes.len()) as u32, ring.len() as u32)
}

/// Copies `bytes` out of the ring from `at` on; returns where they end.
fn read_ring(ring: &[u8], at: u32, bytes: &mut [u8]) -> u32 {
    let at = at as usize;
    let split = bytes.len().min(ring.len() - at);
    let length = bytes.len();
    let (front, back) = bytes.split_at_mut(split);
    front.copy_from_slice(&ring[at..at + split]);
    back.copy_from_slice(&ring[..back.len()]);
    wrap((at + length) as u32, ring.len() as u32)
}
