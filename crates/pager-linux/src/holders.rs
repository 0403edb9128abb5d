//! The attachments of each reservation, and its shares of finite resources.
//!
//! The policy divides frames. This module divides kernel mappings and places in the store: a
//! reservation gets a share of each when it is made, and takes from it before a mapping or a place
//! exists. So no tenant can take what another one was promised.

use std::collections::BTreeMap;
use std::ops::Range;

use leasehold_pager::{AttachmentId, ReservationId};

use crate::span::Span;

/// Shares of a reservation, beside its frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Kernel mappings (VMAs) that its attachments may cause.
    pub mappings: u32,
    /// Places in the store: pages of areas [made for it](crate::Paging::create_area_for).
    pub places: u32,
}

impl Limits {
    /// Kernel mappings that a reservation may cause beyond its share: where locking stopped in the
    /// middle of an attachment, a page of the process's own in the middle of one, what is being moved
    /// aside, and one for each attachment that went before its neighbours in the same step.
    pub const SPARE: u32 = 24;
}

/// Of a share: what it is, and how much of it is taken.
#[derive(Debug, Clone, Copy)]
struct Share {
    /// `None` without a limit.
    most: Option<u32>,
    taken: u32,
}

impl Share {
    fn left(self) -> u32 {
        self.most
            .map_or(u32::MAX, |most| most.saturating_sub(self.taken))
    }

    /// Takes `n`, or nothing: then it returns what is left.
    fn take(&mut self, n: u32) -> Result<(), u32> {
        let left = self.left();
        if n > left {
            return Err(left);
        }
        self.taken = self.taken.saturating_add(n);
        Ok(())
    }

    fn give(&mut self, n: u32) {
        self.taken = self.taken.saturating_sub(n);
    }
}

/// A reservation's own.
#[derive(Debug)]
struct Holder {
    mappings: Share,
    places: Share,
    attachments: Vec<AttachmentId>,
    /// A page of the process's own is in the middle of one of them.
    patched: bool,
    /// Attachments that the policy has detached and whose addresses could not be made
    /// inaccessible yet.
    lingering: Vec<(Option<AttachmentId>, Span)>,
}

/// Every reservation's.
#[derive(Debug, Default)]
pub(crate) struct Holders(BTreeMap<ReservationId, Holder>);

impl Holders {
    pub(crate) fn open(&mut self, id: ReservationId, limits: Option<Limits>) {
        let share = |most| Share { most, taken: 0 };
        let holder = Holder {
            mappings: share(limits.map(|limits| limits.mappings)),
            places: share(limits.map(|limits| limits.places)),
            attachments: Vec::new(),
            patched: false,
            lingering: Vec::new(),
        };
        self.0.insert(id, holder);
    }

    /// The reservation has gone; returns the places that it had a share of.
    pub(crate) fn close(&mut self, id: ReservationId) -> u32 {
        let gone = self.0.remove(&id);
        gone.and_then(|gone| gone.places.most).unwrap_or(0)
    }

    /// Returns whether the places of a reservation are a share that was promised to it.
    pub(crate) fn has_places(&self, id: ReservationId) -> bool {
        let holder = self.0.get(&id);
        holder.is_some_and(|holder| holder.places.most.is_some())
    }

    pub(crate) fn mappings_left(&self, id: ReservationId) -> u32 {
        self.0.get(&id).map_or(0, |holder| holder.mappings.left())
    }

    pub(crate) fn mappings_taken(&self, id: ReservationId) -> u32 {
        self.0.get(&id).map_or(0, |holder| holder.mappings.taken)
    }

    /// Takes mappings for a reservation.
    ///
    /// # Errors
    /// How many it has left, and how many there are in its share.
    pub(crate) fn take_mappings(&mut self, id: ReservationId, n: u32) -> Result<(), (u32, u32)> {
        let mappings = &mut self.0.get_mut(&id).ok_or((0, 0))?.mappings;
        let share = mappings.most.unwrap_or(u32::MAX);
        mappings.take(n).map_err(|left| (left, share))
    }

    pub(crate) fn give_mappings(&mut self, id: ReservationId, n: u32) {
        if let Some(holder) = self.0.get_mut(&id) {
            holder.mappings.give(n);
        }
    }

    /// Takes places for a reservation, or returns how many it has left.
    pub(crate) fn take_places(&mut self, id: ReservationId, n: u32) -> Result<(), u32> {
        let holder = self.0.get_mut(&id).ok_or(0_u32)?;
        holder.places.take(n)
    }

    pub(crate) fn give_places(&mut self, id: ReservationId, n: u32) {
        if let Some(holder) = self.0.get_mut(&id) {
            holder.places.give(n);
        }
    }

    pub(crate) fn attached(&mut self, id: ReservationId, at: AttachmentId) {
        if let Some(holder) = self.0.get_mut(&id) {
            holder.attachments.push(at);
        }
    }

    /// A step for each attachment of the reservation.
    pub(crate) fn detached(&mut self, id: ReservationId, at: AttachmentId) {
        if let Some(holder) = self.0.get_mut(&id)
            && let Some(place) = holder.attachments.iter().rposition(|&own| own == at)
        {
            holder.attachments.swap_remove(place);
        }
    }

    pub(crate) fn attachments(&self, id: ReservationId) -> &[AttachmentId] {
        self.0.get(&id).map_or(&[], |holder| &holder.attachments)
    }

    pub(crate) fn is_patched(&self, id: ReservationId) -> bool {
        self.0.get(&id).is_some_and(|holder| holder.patched)
    }

    pub(crate) fn patch(&mut self, id: ReservationId) {
        if let Some(holder) = self.0.get_mut(&id) {
            holder.patched = true;
        }
    }

    /// The addresses of a detached attachment, or of one that did not come about, are still mapped.
    pub(crate) fn lingers(&mut self, id: ReservationId, at: Option<AttachmentId>, span: Span) {
        if let Some(holder) = self.0.get_mut(&id) {
            holder.lingering.push((at, span));
        }
    }

    /// The reservation of an attachment that lingers, and where.
    pub(crate) fn lingering(&self, at: AttachmentId) -> Option<(ReservationId, Span)> {
        self.0.iter().find_map(|(&id, holder)| {
            let mut lingering = holder.lingering.iter();
            let found = lingering.find(|(other, _)| *other == Some(at));
            found.map(|&(_, span)| (id, span))
        })
    }

    /// The lingering parts of a reservation, one after the other.
    pub(crate) fn next_lingering(&self, id: ReservationId) -> Option<(Option<AttachmentId>, Span)> {
        self.0.get(&id)?.lingering.last().copied()
    }

    /// Something lingers at one of these addresses.
    pub(crate) fn lingers_in(&self, addresses: Range<usize>) -> bool {
        let mut all = self.0.values().flat_map(|holder| &holder.lingering);
        all.any(|(_, span)| span.start() < addresses.end && addresses.start < span.end())
    }

    /// Addresses that lingered are inaccessible.
    pub(crate) fn has_left(&mut self, id: ReservationId, at: Option<AttachmentId>, span: Span) {
        if let Some(holder) = self.0.get_mut(&id) {
            holder.lingering.retain(|&other| other != (at, span));
        }
    }
}
