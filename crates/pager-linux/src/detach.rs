//! Gives addresses back soon, and their contents later.
//!
//! Unmapping takes 70 ns for each page, and dropping a page of a memfd another 300: too long for the
//! moment at which a tenant ends. So the page tables of its attachments are moved aside, which
//! leaves the addresses free, and unmapped later. Both are done in steps of a bounded number of
//! attachments and resident pages.
//!
//! Moving is a matter of whole page tables if writes were never trapped. If they were, the kernel
//! visits every entry to take the trap off (10 ns each). What is locked and moved is counted twice against what a user
//! may lock, for good: where there is a limit, it is unlocked before (200 ns for each page). Addresses at which copies are shown
//! are many mappings, and are unmapped in place.
//!
//! A step that the kernel refuses changes nothing that the next one relies on: the next call
//! repeats it. Until the last step is taken, the addresses are unused.

use std::io;

use leasehold_pager::{AttachmentId, Ending, PageNumber, Refused, ReservationId};

use crate::attached::Role;
use crate::backend::Linux;
use crate::engine::Engine;
use crate::error::{Error, system};
use crate::present::TABLE;
use crate::span::{BYTES, Span};

/// Attachments whose addresses are freed in one step at the most: some five system calls each, 15 to 25 µs on a virtual
/// machine.
const ATTACHMENTS: u32 = 4;
/// Blocks of copies whose addresses are freed in one system call at the most: each may be a
/// mapping of its own.
const BLOCKS: u32 = 64;
/// Page tables that are freed or moved in one step at the most: 4 µs each were measured. A page may have one of
/// its own.
const TABLES: u32 = 16;

/// An attachment on its way aside.
#[derive(Debug)]
struct Moving {
    attached: u32,
    /// Where its page tables go, if they are moved.
    to: Option<Span>,
    /// The first page whose addresses are not free yet.
    next: PageNumber,
    /// No other tenant has the area: its frames are freed with the entries.
    drops: bool,
    /// It is to be unlocked before it is moved.
    unlocks: bool,
}

/// The result of a step on an attachment.
#[derive(Debug, Clone, Copy)]
struct Part {
    /// Resident pages whose addresses are free now.
    pages: u32,
    /// Page tables that they were in.
    tables: u32,
    /// Nothing of the attachment is left.
    all: bool,
}

/// Page tables moved aside.
#[derive(Debug)]
struct Aside {
    attached: u32,
    span: Span,
    /// The first page that is not unmapped yet.
    next: PageNumber,
    /// No other tenant has the area: its frames are freed with the entries.
    drops: bool,
}

impl Drop for Aside {
    fn drop(&mut self) {
        let rest = self.span.part(self.next.get(), self.span.pages());
        if !rest.is_empty() {
            // Only when the pager is dropped before the reservation: no page is visible there.
            let _ = rest.unmap();
        }
    }
}

/// A reservation on its way out.
#[derive(Debug)]
pub(crate) struct Retirement {
    id: ReservationId,
    /// Attachments whose addresses are still to be freed.
    todo: Vec<AttachmentId>,
    moving: Option<Moving>,
    aside: Vec<Aside>,
    /// All its addresses are free.
    retired: bool,
}

impl Engine {
    /// Begins to end a reservation: it serves no faults from here on, and areas that only it has
    /// cannot be attached again. Takes a step for each of its attachments.
    pub(crate) fn begin_retirement(&mut self, id: ReservationId) -> Result<Retirement, Refused> {
        self.pager.end_step(id, 0)?;
        let linux = self.linux();
        linux.settle();
        let todo = linux.holders.attachments(id).to_vec();
        for at in &todo {
            linux.view(at.index()).gone = true;
        }
        Ok(Retirement {
            id,
            // Copies are seen at the addresses of their originals, which come first.
            aside: Vec::with_capacity(todo.len()),
            todo,
            moving: None,
            retired: false,
        })
    }

    /// Frees the addresses of some attachments, with `limit` resident pages at the most.
    ///
    /// # Errors
    /// The kernel's; it can be tried again.
    pub(crate) fn retire_step(
        &mut self,
        retirement: &mut Retirement,
        limit: u32,
    ) -> Result<Ending, Error> {
        if retirement.retired {
            return Ok(Ending::Done);
        }
        let linux = self.linux();
        linux.settle();
        linux.tidy();
        let (mut pages, mut tables) = (limit.max(1), TABLES);
        for _ in 0..ATTACHMENTS {
            if retirement.moving.is_none() && retirement.todo.is_empty() {
                return self.retire_lingering(retirement);
            }
            let Some(moving) = linux.next_moving(retirement)? else {
                continue;
            };
            let moved = linux.move_part(moving, pages, tables)?;
            if moved.all
                && let Some(moved) = retirement.moving.take()
            {
                linux.has_moved(retirement, &moved);
            }
            pages = pages.saturating_sub(moved.pages.max(1));
            tables = tables.saturating_sub(moved.tables);
            if pages == 0 || tables == 0 {
                break;
            }
        }
        Ok(Ending::More)
    }

    /// Frees addresses that could not be freed when something was detached, one after the other.
    fn retire_lingering(&mut self, retirement: &mut Retirement) -> Result<Ending, Error> {
        let linux = self.linux();
        let Some((at, span)) = linux.holders.next_lingering(retirement.id) else {
            retirement.retired = true;
            return Ok(Ending::Done);
        };
        linux.forbid_lingering(retirement.id, at, span)?;
        Ok(Ending::More)
    }

    /// Visits `limit` pages of a retired reservation at the most: unmaps them first, then takes
    /// them from the policy.
    ///
    /// # Errors
    /// The kernel's; it can be tried again.
    pub(crate) fn end_step(
        &mut self,
        retirement: &mut Retirement,
        limit: u32,
    ) -> Result<Ending, Error> {
        if !retirement.retired {
            self.retire_step(retirement, limit)?;
            return Ok(Ending::More);
        }
        if let Some(aside) = retirement.aside.last_mut() {
            let unmapped = self.linux().unmap_aside(aside, limit);
            if unmapped.map_err(system("unmap the pages of an ended tenant"))? {
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
    /// Repeats refused calls to unmap and to punch.
    pub(crate) fn tidy(&mut self) {
        while let Some(span) = self.unwanted.pop() {
            if span.unmap().is_err() {
                self.unwanted.push(span);
                break;
            }
        }
        self.file.settle(&mut self.ballast);
        self.renew_spare();
    }

    /// Records that the addresses of a detached attachment could not be made inaccessible. They
    /// stay unused, and no extent is used again until they are.
    pub(crate) fn linger(&mut self, id: ReservationId, at: Option<AttachmentId>, span: Span) {
        self.file.stale_mappings += 1;
        self.holders.lingers(id, at, span);
    }

    /// Makes the last addresses of an attachment without mapped pages inaccessible: those of a
    /// bounded number of page tables.
    ///
    /// # Errors
    /// The kernel's; it can be tried again.
    pub(crate) fn shorten(&mut self, attached: u32) -> Result<Ending, Error> {
        let view = self.view(attached);
        let (span, to) = (view.span, view.accessible);
        let from = to.saturating_sub(TABLES * TABLE);
        if from < to {
            span.part(from, to)
                .forbid()
                .map_err(system("take a mapping back"))?;
            self.view(attached).accessible = from;
        }
        Ok(match from {
            0 => Ending::Done,
            _ => Ending::More,
        })
    }

    /// Makes addresses inaccessible that [linger](Self::linger).
    pub(crate) fn forbid_lingering(
        &mut self,
        id: ReservationId,
        at: Option<AttachmentId>,
        span: Span,
    ) -> Result<(), Error> {
        span.forbid().map_err(system("take a mapping back"))?;
        self.holders.has_left(id, at, span);
        self.file.stale_mappings -= 1;
        self.file.settle(&mut self.ballast);
        Ok(())
    }

    /// The attachment that is on its way, or the next one; `None` if nothing is mapped there, or all have gone.
    fn next_moving<'a>(
        &mut self,
        retirement: &'a mut Retirement,
    ) -> Result<Option<&'a mut Moving>, Error> {
        if retirement.moving.is_none()
            && let Some(at) = retirement.todo.last()
        {
            let attached = at.index();
            let begun = self.begin_moving(attached);
            retirement.moving = begun.map_err(system("take addresses back"))?;
            retirement.todo.pop();
        }
        Ok(retirement.moving.as_mut())
    }

    /// Finds a place for the page tables of an attachment; `None` if nothing is mapped there.
    fn begin_moving(&mut self, attached: u32) -> io::Result<Option<Moving>> {
        let view = self.view(attached);
        let (area, span) = (view.area, view.span);
        let used = span.part(0, view.accessible);
        let is_plain = match &view.role {
            Role::Direct | Role::ReadOnly => !view.lost,
            Role::Original { .. } => false,
            // It was seen at the addresses of the original.
            Role::Copies { .. } => return Ok(None),
        };
        let is_read_only = view.is_read_only();
        let memory = self.memory(area);
        let (drops, tracked) = (memory.attached.len() == 1, memory.is_tracked());
        if used.is_empty() {
            self.forget_range(attached, span);
            return Ok(None);
        }
        let mut moving = Moving {
            attached,
            to: None,
            next: PageNumber::FIRST,
            drops,
            unlocks: self.ballast.is_limited(),
        };
        // Kernels take the trap off when the entries move.
        let untrapped = tracked || is_read_only || self.userfault.unregister(used).is_ok();
        if is_plain
            && untrapped
            && let Ok((to, rest)) = Span::reserve_like(used)
        {
            moving.to = Some(to);
            rest.into_iter().for_each(|rest| self.unmap_unwanted(rest));
        }
        Ok(Some(moving))
    }

    /// Frees the next addresses of an attachment, at which `limit` pages in `tables` page tables are resident at the
    /// most, or those of some more up to the end of a page table.
    fn move_part(&mut self, moving: &mut Moving, limit: u32, tables: u32) -> Result<Part, Error> {
        let view = self.view(moving.attached);
        let (from, all) = (moving.next, view.end());
        let used = view.span.part(0, view.accessible);
        let to = self.end_of_part(moving, used, (limit, tables));
        let tables = self.view(moving.attached).present.tables_in(from, to);
        let part = used.addresses_of(from, to);
        let moved = moving.to.filter(|_| from < to).map(|aside| {
            let unlocked = match moving.unlocks {
                true => part.unlock(),
                false => Ok(()),
            };
            let moved = unlocked.and_then(|()| part.move_to(aside.addresses_of(from, to)));
            (aside, moved.is_ok())
        });
        if let Some((aside, false)) = moved {
            // Something else was put in the middle, or the kernel has no mapping to spare: what
            // was not moved is unmapped in place. Pages that were moved are unmapped there.
            moving.to = None;
            self.unmap_unwanted(aside);
            self.clear_present(moving.attached, PageNumber::FIRST, from);
        }
        if let Err(error) = part.forbid() {
            // Its faults may be the kernel's by now.
            let area = self.view(moving.attached).area;
            self.memory(area).cached.has_strays();
            return Err(system("take addresses back")(error));
        }
        let mut pages = 0;
        if moving.to.is_none() {
            pages = self.clear_present(moving.attached, from, to);
        } else {
            let present = &self.view(moving.attached).present;
            pages += present.count_in(from, to);
        }
        moving.next = to;
        Ok(Part {
            pages,
            tables,
            all: to == all,
        })
    }

    /// Where a part ends that begins where the last one did, with so many resident pages and page tables at the most.
    fn end_of_part(&self, moving: &Moving, used: Span, (limit, tables): (u32, u32)) -> PageNumber {
        let view = self.attached[moving.attached as usize].as_ref();
        let view = view.expect("an attachment");
        let (from, all) = (moving.next, view.end());
        if let Role::Original {
            copies,
            block,
            broken,
        } = &view.role
        {
            let copies = self.attached[*copies as usize].as_ref();
            let copies = copies.expect("an attachment");
            let to = view.present.after(from, all, limit, tables);
            let to = copies.present.after(from, to, limit, tables);
            let most = PageNumber::new(from.get().saturating_add(BLOCKS << block));
            return if broken.is_clear() { to } else { to.min(most) };
        }
        let to = view.present.after(from, all, limit, tables);
        if to == all || moving.to.is_none() {
            return to;
        }
        // Whole page tables move in one piece.
        let table = TABLE * BYTES as u32;
        let beyond = used.after(to.get()) as u64 % u64::from(table);
        let more = if beyond == 0 {
            0
        } else {
            (u64::from(table) - beyond) / BYTES as u64
        };
        all.min(to.plus(more as u32))
    }

    /// Clears the records of visible pages of an attachment; returns how many there were.
    fn clear_present(&mut self, attached: u32, from: PageNumber, to: PageNumber) -> u32 {
        let view = self.view(attached);
        let mut cleared = view.present.give_back(from, to);
        if let Role::Original { copies, .. } = view.role {
            cleared += self.view(copies).present.give_back(from, to);
        }
        cleared
    }

    /// Records that all addresses of an attachment are free.
    fn has_moved(&mut self, retirement: &mut Retirement, moved: &Moving) {
        let span = self.view(moved.attached).span;
        self.forget_range(moved.attached, span);
        if let Some(aside) = moved.to {
            retirement.aside.push(Aside {
                attached: moved.attached,
                span: aside,
                next: PageNumber::FIRST,
                drops: moved.drops,
            });
        }
    }

    /// Unmaps the next pages, of which `limit` are mapped at the most; returns whether that was
    /// all.
    ///
    /// # Errors
    /// The kernel's; it can be tried again.
    fn unmap_aside(&mut self, aside: &mut Aside, limit: u32) -> io::Result<bool> {
        let view = self.attached[aside.attached as usize].as_ref();
        let view = view.expect("an attachment");
        let area = view.area;
        let memory = self.areas[area as usize].as_ref().expect("an area");
        let all = PageNumber::new(aside.span.pages());
        let limit = limit.max(1);
        let to = match aside.drops {
            true => memory.cached.after(aside.next, all, limit),
            false => all,
        };
        let mut to = view.present.after(aside.next, to, limit, TABLES);
        if aside.drops {
            // Takes them out of the page table as well.
            to = self.drop_pages(area, aside.next, to)?;
        }
        aside.span.addresses_of(aside.next, to).unmap()?;
        let from = std::mem::replace(&mut aside.next, to);
        self.view(aside.attached).present.give_back(from, to);
        Ok(to == all)
    }
}
