//! Serving a fault: from an address to a page in the page table, or the reason why there is none.

use leasehold_pager::{AttachmentId, Fault, PAGE, PageNumber, Refused};
use rustix::io::Errno;

use crate::engine::Engine;
use crate::fetch::Want;
use crate::refusal::Reason;

/// An access that faulted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) address: usize,
    pub(crate) write: bool,
    /// The page is mapped, and protected from this access.
    pub(crate) protection: bool,
}

/// How far the pager is with a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultPhase {
    /// It begins to serve it.
    Begins,
    /// Code that cannot be suspended has waited for the disk.
    Waited,
    /// It has served or denied it, or found that it is another's.
    Over,
}

/// The result of serving it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Served {
    /// It can be repeated.
    Done,
    /// It can be repeated when what is [wanted](crate::backend::Linux::wanted) is over.
    Waits,
    /// Nothing is attached there.
    Elsewhere,
    /// The page was denied. The attachment is the page's, if it still exists.
    Denied(Option<AttachmentId>, Reason),
}

impl Engine {
    /// Serves a fault, or says what it would wait for. Neither reads nor writes the store, unless the access has waited
    /// for both in vain.
    pub(crate) fn serve_or_wait(&mut self, access: Access) -> Served {
        if let Some(want) = self.wants(access) {
            let linux = self.linux();
            let waited = linux.fetches.wait_again(access.address);
            linux.wanted = waited.and_then(|waited| linux.fetch(want, waited));
            if linux.wanted.is_some() {
                return Served::Waits;
            }
        }
        self.linux().suspends = Some(access.address);
        let served = self.serve(access);
        self.linux().suspends = None;
        served
    }

    /// The same for code that cannot be suspended: what would have to wait is denied.
    pub(crate) fn serve_or_deny(&mut self, access: Access) -> Served {
        match self.serve_or_wait(access) {
            Served::Waits => {
                let linux = self.linux();
                linux.wanted = None;
                let id = linux.find(access.address).map(|(at, _)| linux.view(at).id);
                Served::Denied(id, Reason::Waits)
            }
            served => served,
        }
    }

    /// Serves a fault. Allocates nothing but a block at the first touch among 512 pages; reads and writes the
    /// store if it must.
    pub(crate) fn serve(&mut self, access: Access) -> Served {
        self.linux().note_written();
        let Some((attached, page)) = self.linux().find(access.address) else {
            return self.elsewhere(access.address);
        };
        if self.linux().view(attached).lost {
            return Served::Done;
        }
        self.linux().writing = access.write;
        let shown = self.linux().shown_by(attached, page);
        let result = if !page.is_within(self.linux().view(attached).accessible) {
            Err(Refused::OutOfRange.into())
        } else if access.write && self.linux().view(shown).is_read_only() {
            Err(Reason::ReadOnly)
        } else if access.protection && !self.linux().view(shown).is_original() {
            self.written(shown, page)
        } else if shown != attached || (access.write && self.linux().view(shown).is_original()) {
            self.copy(attached, page)
        } else {
            self.page_in(attached, page)
        };
        self.linux().settle();
        self.linux().writing = false;
        let failure = self.linux().take_failure();
        let shown = self.linux().shown_by(attached, page);
        let view = self.linux().view(shown);
        let (id, present) = (view.id, view.present.get(page));
        match (result, failure) {
            (Err(Reason::Refused(Refused::Writing)), _) => Served::Waits,
            (Err(reason), _) => Served::Denied(Some(id), reason),
            // The page that could not be mapped was one mapped ahead, or one of another attachment.
            (Ok(()), _) if present => Served::Done,
            (Ok(()), Some(reason)) => Served::Denied(Some(id), reason),
            // Only a page that the kernel refused is missing, and that has a reason.
            (Ok(()), None) => Served::Denied(Some(id), Reason::Kernel(Errno::FAULT)),
        }
    }

    /// What serving the access would wait for first.
    fn wants(&mut self, access: Access) -> Option<Want> {
        let (attached, page) = self.linux().find(access.address)?;
        let view = self.linux().view(attached);
        if access.protection || view.lost || !page.is_within(view.accessible) {
            return None;
        }
        let shown = self.linux().shown_by(attached, page);
        let want = Want {
            offset: self.linux().place_to_read(shown, page)?,
            address: access.address,
        };
        (!self.linux().fetches.is_over(want)).then_some(want)
    }

    /// Addresses at which nothing is attached: they are not this pager's, unless something that
    /// was attached there lingers.
    fn elsewhere(&mut self, address: usize) -> Served {
        if self.linux().holders.lingers_in(address..address + 1) {
            return Served::Denied(None, Reason::Refused(Refused::Stale));
        }
        Served::Elsewhere
    }

    /// Puts memory of the process's own in place of a page that cannot be had; returns whether that
    /// was possible. The second time in a reservation, all of the attachment is replaced: page by
    /// page, a guest with denied pages would take as many mappings as it has pages.
    pub(crate) fn substitute(&mut self, address: usize) -> bool {
        let linux = self.linux();
        let Some((attached, page)) = linux.find(address) else {
            return false;
        };
        let view = linux.view(attached);
        let (span, holder) = (view.page_at(page), view.holder);
        if !linux.holders.is_patched(holder) && span.substitute().is_ok() {
            linux.holders.patch(holder);
            let shown = linux.shown_by(attached, page);
            linux.view(shown).present.put(page, false);
            return true;
        }
        linux.replace(attached) || linux.substitute_page(attached, page, span).is_ok()
    }

    /// Compares what is noted of pages with what the kernel and the policy know.
    ///
    /// # Panics
    /// If they differ.
    pub(crate) fn audit(&mut self) {
        self.pager.audit().expect("the policy's invariants");
        let linux = self.linux();
        let areas = linux.areas.iter().flatten().map(|memory| &memory.cached);
        let all = areas.chain(linux.file.limbo());
        let head = linux.ballast.head();
        let (mut used, mut taken) = (0, 0);
        for (cached, within) in all.map(|cached| cached.audit(head)) {
            used += cached;
            taken += within;
        }
        assert_eq!(head.taken(), taken, "pages of the head that areas have");
        let held = linux.ballast.held();
        assert_eq!(held.used, used, "frames in use");
        let resident = linux.file.resident_bytes().expect("a size");
        let pages = u64::from(used) + u64::from(held.ballast);
        assert_eq!(
            pages * PAGE,
            resident,
            "pages of all areas, and prepared ones"
        );
        let sum = held.used + held.lent + held.ballast;
        // Released pages may wait to be given back, at most 64.
        assert!(sum <= held.frames + 64, "{held:?}");
    }

    /// Marks a clean page as dirty at its first write.
    fn written(&mut self, attached: u32, page: PageNumber) -> Result<(), Reason> {
        let linux = self.linux();
        let view = linux.view(attached);
        let (area, span) = (view.area, view.page_at(page));
        linux.memory(area).dirty.put(page, true);
        linux.userfault.protect(span, false).map_err(Reason::Kernel)
    }

    /// A page that is not in the page table.
    fn page_in(&mut self, attached: u32, page: PageNumber) -> Result<(), Reason> {
        let id = self.linux().view(attached).id;
        match self.pager.fault(id, page)? {
            // It was unmapped only to find out whether it would be touched again.
            Fault::Present => self.linux().restore(attached, page),
            Fault::Minor | Fault::Zero | Fault::Major => self.map_ahead(attached, id, page),
        }
        Ok(())
    }

    fn map_ahead(&mut self, attached: u32, id: AttachmentId, page: PageNumber) {
        let most = self.ahead;
        let view = self.linux().view(attached);
        let left = view.end().since(page.next());
        let window = view.stream.fault(page, most).min(left);
        let mut end = page.next();
        while end <= page.plus(window)
            && self.linux().shown_by(attached, end) == attached
            && self.pager.map_ahead(id, end)
        {
            end = end.next();
        }
        self.linux().view(attached).stream.mapped_to(end);
    }
}
