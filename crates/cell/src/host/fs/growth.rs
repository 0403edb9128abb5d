//! The growth that a write may cause on a disk, charged before the write is made.

use super::class::Site;
use super::descriptor::Node;
use super::last_close::{Grows, pages_of};
use super::pages::Lent;
use super::table::Files;
use crate::host::linux;
use leasehold_slots::address_range::PAGE;
use rustix::io::{Errno, Result};
use std::os::fd::AsFd as _;
use std::sync::Arc;

/// The disk space that a write may take, charged before the write. Dropping it refunds the unused
/// part.
#[must_use = "what is taken is for a write"]
pub(crate) struct Growth {
    /// What the growth takes of the disk's share; none for a file whose disk use is not counted.
    taken: Option<Taken>,
}

struct Taken {
    files: Arc<Files>,
    /// Bytes that are taken.
    bytes: u64,
    /// Bytes that are still to be taken, when files are closed that have them.
    awaited: u64,
    /// Bytes of the write.
    asked: u64,
    lent: Lent,
    /// Pages among them that an extent is charged.
    extent_pages: u32,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.files.account().disk().give_bytes(self.bytes);
    }
}

impl Growth {
    /// Takes what writing `bytes` to a file may need. To be called on the cell's thread. While files of
    /// the tenant are being closed that have the space, the write waits for them, on another thread.
    ///
    /// # Errors
    /// `DQUOT` when the lease does not allow for it.
    pub(crate) fn take(node: &Node, bytes: usize) -> Result<Self> {
        let Some(files) = node.files().filter(|_| bytes > 0) else {
            return Ok(Self { taken: None });
        };
        // The write may begin and end in the middle of a page.
        let most = (bytes.div_ceil(PAGE) + 1) * PAGE;
        let extent_pages = node.extent_pages();
        let lent = files.grown().lend(most + extent_pages as usize * PAGE);
        let lent = lent.map_err(|_| Errno::DQUOT)?;
        let most = most as u64;
        let account = files.account();
        let is_closing = !account.is_closed();
        let (now, awaited) = match account.disk().take_now(most, is_closing) {
            Some(taken) => taken.map(|()| (most, 0))?,
            None => (0, most),
        };
        Ok(Self {
            taken: Some(Taken {
                files: files.clone(),
                bytes: now,
                awaited,
                asked: bytes as u64,
                lent,
                extent_pages,
            }),
        })
    }

    /// Makes a write at an offset, or to the end, and counts what it took; `None` if that cannot be done
    /// here and now.
    ///
    /// # Errors
    /// `INVAL` for an offset that no file has. When it is not known what the file takes, or closing it would
    /// not be paid for, or the closes that were waited for did not give enough back. Nothing is written then.
    pub(super) fn write<T>(
        self,
        site: Site,
        node: &Node,
        at: Option<u64>,
        write: impl FnOnce() -> T,
    ) -> Option<Result<T>> {
        let Some(mut taken) = self.taken else {
            return Some(Ok(write()));
        };
        let files = taken.files.clone();
        let (account, disk) = (files.account(), files.account().disk());
        if at.is_some_and(|at| i64::try_from(at).is_err()) {
            return Some(Err(Errno::INVAL));
        }
        if taken.awaited > 0 {
            if site != Site::Blocking {
                return None;
            }
            let is_closing = || !account.is_closed();
            if let Err(errno) = disk.take_after_closes(taken.awaited, is_closing) {
                return Some(Err(errno));
            }
            taken.bytes += std::mem::take(&mut taken.awaited);
        }
        let _together = disk.together(site)?;
        let _turn = match node.shrinks() {
            Some(shrinks) => Some(shrinks.turn(site)?),
            None => None,
        };
        let size = || linux::measure(node.as_fd());
        let before = match size() {
            Ok(before) => before,
            Err(errno) => return Some(Err(errno)),
        };
        let at = at.unwrap_or(before.bytes);
        let end = at.saturating_add(taken.asked);
        let had = before.bytes.max(before.on_disk);
        let has = had.max(end);
        let grows = Grows {
            paid: taken.lent.count(),
            pages: pages_of(has) - pages_of(had),
            begins: node.begins_extent(at),
        };
        if let Err(errno) = node.check_growth(has, grows) {
            return Some(Err(errno));
        }
        let written = write();
        let grown = match size() {
            Ok(after) if after.on_disk >= before.on_disk => after.on_disk - before.on_disk,
            // Another process may have made the file smaller: the amount that this write took is not known.
            Ok(_) | Err(_) => taken.bytes,
        };
        match taken.bytes.checked_sub(grown) {
            // The drop of `taken` gives the rest back.
            Some(rest) => taken.bytes = rest,
            // A file system may take more than was charged: the blocks are taken already.
            None => {
                disk.add_bytes(grown - taken.bytes);
                taken.bytes = 0;
            }
        }
        let pages = u32::try_from(pages_of(grown)).unwrap_or(u32::MAX);
        if grown > 0 {
            // The pages that were lent for an extent stay with it.
            let extent = if grows.begins { taken.extent_pages } else { 0 };
            node.pay(&mut taken.lent, pages.saturating_add(extent));
            let is_whole = grown / PAGE as u64 >= taken.asked / PAGE as u64;
            node.grew(pages, is_whole.then_some(end), grows.begins);
        } else if !grows.begins {
            node.goes_on(end);
        }
        Some(Ok(written))
    }
}
