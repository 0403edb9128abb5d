//! Makes dirty memory read as zero again, in bounded steps.

use std::io;
use std::ops::Range;

use crate::address_range::{AddressRange, BLOCK, PAGE};
use crate::taken::Taken;

/// The accessible part of a range that its last user has given up.
///
/// Most of it is given back to the system; a part is overwritten with zeros instead, which costs
/// less than the faults of the next user would.
#[derive(Debug)]
pub(crate) struct Dirty {
    /// Still to be given back. Shrinks from its end, so that what has been made inaccessible
    /// behind it stays one mapping.
    discard: Range<usize>,
    /// Still to be overwritten. Shrinks from its start.
    clear: Range<usize>,
    /// Where pages are inaccessible from, if given-back pages are to become so; `None` leaves
    /// them accessible.
    forbidden: Option<usize>,
    /// Where pages of a file are shown, if they are in the range. It is mapped anew then, block by block, and not only made
    /// inaccessible: what is left and right of a file has no pages in common, and would never be one mapping again.
    shown: Option<Range<usize>>,
    /// So many faults there have been at the most, each of which gave memory to one page; `None` if that is not known.
    touched: Option<usize>,
}

/// Pages that a fault in a file makes accessible at once: Linux maps those around that are there, too
/// (`fault_around_bytes`). To take one away costs about as much as a page with memory.
const FAULT_AROUND: usize = 16;

/// Pages of a file, and copies of them, that a step gives back if few of them are copies: 30 to 60 µs.
const SHOWN_STEP: usize = 256;

/// Copies among them at the most.
const SHOWN_COPIES: usize = SHOWN_STEP / 2;

/// Bytes that are mapped anew in one step if hardly any page of them has memory: each of their page tables, which may be
/// there, costs about as much as a few pages.
const HIDDEN_AT_ONCE: usize = 16 * BLOCK;

impl Dirty {
    /// Memory that stays accessible when it is clean, and of which the last `kept` bytes are overwritten.
    /// All bounds are multiples of the page size.
    pub(crate) fn staying(taken: Taken, kept: usize) -> Dirty {
        let Range { start, end } = taken.accessible();
        let clear = end - kept.min(end - start)..end;
        Dirty {
            discard: start..clear.start,
            clear,
            forbidden: None,
            shown: None,
            touched: None,
        }
    }

    /// Memory of which only the first `kept` bytes, which are overwritten, stay accessible. Everything
    /// behind it to the next multiple of [`BLOCK`] must have belonged to the same user.
    pub(crate) fn leaving(taken: Taken, kept: usize) -> Dirty {
        let Range { start, end } = taken.accessible();
        let clear = start..start + kept.min(end - start);
        Dirty {
            discard: clear.end..end,
            clear,
            forbidden: Some(end),
            shown: None,
            touched: None,
        }
    }

    /// Memory in which [contents](crate::contents::Contents) are shown at these addresses. Nothing of it stays
    /// accessible.
    pub(crate) fn showing(taken: Taken, shown: Range<usize>) -> Dirty {
        let Range { start, end } = taken.accessible();
        debug_assert!(shown.start >= start && shown.end <= end);
        Dirty {
            shown: Some(shown),
            ..Self::leaving(taken, 0)
        }
    }

    /// The same, of which so many pages have got memory at the most.
    pub(crate) fn with_touched(self, touched: Option<usize>) -> Dirty {
        Dirty { touched, ..self }
    }

    /// Where its first byte is, before any step.
    pub(crate) fn start(&self) -> usize {
        self.discard.start.min(self.clear.start)
    }

    /// Pages that steps have still to visit.
    pub(crate) fn pages(&self) -> usize {
        (self.discard.len() + self.clear.len()) / PAGE
    }

    /// Cleans at most `pages` pages that have memory, at least one if any is left, and those
    /// without between them, up to the end of a page table: three system calls, or two and one per run
    /// of pages that are to be overwritten but are not resident.
    ///
    /// # Errors
    ///
    /// The system's; then the same pages are still to be visited.
    pub(crate) fn step(&mut self, reservation: &AddressRange, pages: usize) -> io::Result<()> {
        let most = pages.max(1);
        if self.discard.is_empty() {
            // SAFETY: it was accessible to the user that has given it up, and still is; there is one
            // `Dirty` for it.
            let done = unsafe { reservation.clear(self.clear.start, self.clear.len(), most) }?;
            self.clear.start += done;
            return Ok(());
        }
        let end = self.discard.end;
        let block = (end - 1) / BLOCK * BLOCK;
        if self.shown.is_some()
            && let Some(forbidden) = self.forbidden
            && self.touched_at_most(SHOWN_STEP / FAULT_AROUND)
        {
            let least = (block + BLOCK).saturating_sub(HIDDEN_AT_ONCE);
            let start = least.max(self.discard.start);
            reservation.hide(start, forbidden - start)?;
            self.forbidden = Some(start);
            self.discard.end = start;
            return Ok(());
        }
        let start = self.next(reservation, block.max(self.discard.start), most)?;
        if let Some(forbidden) = self.forbidden {
            // The last slice of a block covers the block again: its page table goes too.
            let covered = if start == block { block + BLOCK } else { end };
            reservation.discard(start, covered - start)?;
            if start == block || start == self.discard.start {
                match self.shown {
                    Some(_) => reservation.hide(start, forbidden - start)?,
                    None => reservation.forbid(start, forbidden - start)?,
                }
                self.forbidden = Some(start);
            }
        } else {
            reservation.discard(start, end - start)?;
        }
        self.discard.end = start;
        Ok(())
    }

    fn touched_at_most(&self, pages: usize) -> bool {
        self.touched.is_some_and(|touched| touched <= pages)
    }

    /// Where the next pages to be given back begin: `least` or behind it. Whether a page of a file has a copy cannot be
    /// seen, so that each counts as if it had.
    fn next(&self, reservation: &AddressRange, least: usize, most: usize) -> io::Result<usize> {
        let end = self.discard.end;
        let least = match &self.shown {
            Some(shown) if (shown.start + 1..=shown.end).contains(&end) => {
                let least = least.max(shown.start);
                let most = match self.touched_at_most(SHOWN_COPIES) {
                    true => most.max(SHOWN_STEP),
                    false => most,
                };
                return Ok(least.max(end.saturating_sub(most * PAGE)));
            }
            Some(shown) if end > shown.end => least.max(shown.end),
            _ => least,
        };
        if self.touched_at_most(most) {
            return Ok(least);
        }
        Ok(end - reservation.suffix(least, end - least, most)?)
    }
}
