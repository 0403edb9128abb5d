//! Giving addresses back at once, and what was in them later.
//!
//! Unmapping takes 70 ns for each page, and dropping a page of a memfd another 300: too long for the
//! moment at which a tenant ends. So the page tables of its attachments are moved aside in one
//! piece, which leaves the addresses free, and unmapped in steps of a bounded number of pages.
//!
//! Moving is a matter of whole page tables if writes were never trapped. If they were, the kernel
//! visits every entry to take the trap off (10 ns each). Addresses at which copies are shown
//! are many mappings, and are unmapped in place.

use std::io;

use leasehold_pager::{AttachmentId, Ending, Refused, ReservationId};

use crate::attached::Role;
use crate::backend::Linux;
use crate::bits::Bits;
use crate::fault::Engine;
use crate::span::Span;

/// Page tables moved aside.
#[derive(Debug)]
struct Aside {
    attached: u32,
    span: Span,
    /// Pages that were unmapped already.
    done: u32,
    /// Nobody else has the area: its frames go with the entries.
    drops: bool,
}

impl Drop for Aside {
    fn drop(&mut self) {
        let rest = self.span.part(self.done, self.span.pages());
        if !rest.is_empty() {
            let _ = rest.unmap();
        }
    }
}

/// A reservation on its way out.
#[derive(Debug)]
pub(crate) struct Retirement {
    pub(crate) id: ReservationId,
    aside: Vec<Aside>,
}

impl Engine {
    /// Frees the addresses of a reservation's attachments.
    pub(crate) fn retire(
        &mut self,
        id: ReservationId,
        attachments: &[AttachmentId],
    ) -> io::Result<Retirement> {
        // From here on it serves no faults, and nobody can attach what only it has.
        self.pager
            .end_step(id, 0)
            .map_err(|_| io::ErrorKind::NotFound)?;
        let linux = self.linux();
        linux.settle();
        let mut aside = Vec::with_capacity(attachments.len());
        for at in attachments {
            let attached = at.index();
            let Some(span) = linux.move_aside(attached)? else {
                continue;
            };
            let area = linux.view(attached).area;
            let drops = linux.memory(area).attached.len() == 1;
            aside.push(Aside {
                attached,
                span,
                done: 0,
                drops,
            });
        }
        Ok(Retirement { id, aside })
    }

    /// Visits `limit` pages of a retired reservation at the most: unmaps them first, then takes
    /// them from the policy.
    pub(crate) fn end_step(
        &mut self,
        retirement: &mut Retirement,
        limit: u32,
    ) -> Result<Ending, Refused> {
        if let Some(aside) = retirement.aside.last_mut() {
            if self.linux().unmap_aside(aside, limit) {
                retirement.aside.pop();
            }
            return Ok(Ending::More);
        }
        let ending = self.pager.end_step(retirement.id, limit)?;
        self.linux().settle();
        self.linux().settle_releases();
        Ok(ending)
    }
}

impl Linux {
    /// Makes the addresses of an attachment inaccessible, and moves what was mapped there to
    /// others, if there was anything.
    fn move_aside(&mut self, attached: u32) -> io::Result<Option<Span>> {
        let view = self.view(attached);
        view.gone = true;
        let (area, used) = (view.area, view.span.part(0, view.accessible));
        let plain = match &view.role {
            Role::Direct | Role::ReadOnly => true,
            Role::Original { .. } => false,
            // It was seen at the addresses of the original.
            Role::Copies { .. } => return Ok(None),
        };
        self.ranges.retain(|&(.., other)| other != attached);
        if used.is_empty() {
            return Ok(None);
        }
        if !plain {
            self.view(attached).present = Bits::default();
            used.forbid()?;
            return Ok(None);
        }
        // Kernels take the trap off when the entries move.
        let trapped = self.memory(area).is_tracked() || self.view(attached).is_read_only();
        if !trapped {
            self.userfault.unregister(used)?;
        }
        let aside = Span::reserve_like(used)?;
        if used.move_to(aside).is_err() {
            // Something else was put in the middle.
            aside.unmap()?;
            self.view(attached).present = Bits::default();
            used.forbid()?;
            return Ok(None);
        }
        used.forbid()?;
        Ok(Some(aside))
    }

    /// Unmaps the next pages, of which `limit` are mapped at the most; says whether that was all.
    fn unmap_aside(&mut self, aside: &mut Aside, limit: u32) -> bool {
        let view = self.view(aside.attached);
        let area = view.area;
        let all = aside.span.pages();
        let memory = self.areas[area as usize].as_ref().expect("an area");
        let view = self.attached[aside.attached as usize].as_ref();
        let view = view.expect("an attachment");
        let resident = if aside.drops {
            &memory.cached
        } else {
            &view.present
        };
        let to = resident.after(aside.done, all, limit.max(1));
        let part = aside.span.part(aside.done, to);
        if let Err(error) = part.unmap() {
            // More mappings than the process may have: leave the addresses, the pages go anyway.
            if part.forbid().is_err() && !aside.drops {
                panic!("pages of an ended tenant cannot be unmapped: {error}");
            }
        }
        let from = std::mem::replace(&mut aside.done, to);
        self.view(aside.attached).present.clear(from, to);
        if aside.drops {
            self.drop_pages(area, from, to);
        }
        to == all
    }
}
