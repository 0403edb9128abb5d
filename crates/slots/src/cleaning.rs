//! Makes dirty memory read as zero again, or as what was shown in it, in bounded steps.

use std::io;
use std::ops::Range;

use crate::address_range::{AddressRange, BLOCK, LOOK_PAGES, PAGE};
use crate::present::Presence;
use crate::restoring::{Action, Restoring};
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
    /// What is to be in the part that is overwritten, if not zeros alone.
    restoring: Option<Restoring>,
}

/// Pages that show a file or have a copy, of which a step gives back so many at the most: 20 to 40 µs.
const SHOWN_STEP: usize = 256;

/// Blocks at which a step looks for them.
const SHOWN_BLOCKS: usize = 4;

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
            restoring: None,
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
            restoring: None,
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

    /// Memory of which only the first `kept` bytes stay accessible, and are as their next user wants them.
    pub(crate) fn restoring(taken: Taken, kept: usize, restoring: Restoring) -> Dirty {
        debug_assert_eq!(restoring.start(), taken.accessible().start);
        Dirty {
            restoring: Some(restoring),
            ..Self::leaving(taken, kept)
        }
    }

    /// Has memory that is being restored cleaned instead. Pages that were visited are visited again.
    pub(crate) fn forgo(&mut self) {
        if let Some(restoring) = self.restoring.take() {
            let end = match self.discard.is_empty() {
                true => self.clear.end,
                false => self.discard.end,
            };
            self.discard = restoring.start()..end;
            self.clear = end..end;
            self.shown = Some(restoring.shown());
        }
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
            let done = match self.restoring {
                Some(_) => self.restore(reservation, most)?,
                // SAFETY: it was accessible to the user that has given it up, and still is; there is one
                // `Dirty` for it.
                None => unsafe { reservation.clear(self.clear.start, self.clear.len(), most) }?,
            };
            self.clear.start += done;
            return Ok(());
        }
        let end = self.discard.end;
        let block = (end - 1) / BLOCK * BLOCK;
        // In the middle of a block it is known that too many are there.
        if let (Some(_), Some(forbidden)) = (&self.shown, self.forbidden)
            && forbidden == end
            && let Some(start) = self.shown_step(reservation)
        {
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

    /// Restores the first pages that are to be overwritten, up to as many as a page table has; returns their bytes. Two
    /// system calls, and one for each run of pages that are read from the file or given back.
    fn restore(&mut self, reservation: &AddressRange, most: usize) -> io::Result<usize> {
        let Some(restoring) = &mut self.restoring else {
            return Ok(self.clear.len());
        };
        let (start, shown) = (self.clear.start, restoring.shown());
        let mut found = [Presence::Absent; LOOK_PAGES];
        let bytes = self.clear.len().min(LOOK_PAGES * PAGE);
        let found = reservation.presence(start, bytes, &mut found)?;
        let plan = restoring.plan(start, found, most);
        let mut at = start;
        for run in plan.actions().chunk_by(|a, b| a == b) {
            let length = run.len() * PAGE;
            match run[0] {
                Action::Leave => {}
                Action::Discard => reservation.discard(at, length)?,
                // SAFETY: resident, by what was found; it was accessible to the user that has given it up, and still is;
                // there is one `Dirty` for it.
                Action::Zero => unsafe { reservation.zero(at, length) },
                Action::ReadBack => {
                    let from = at - shown.start;
                    // SAFETY: as above.
                    unsafe { reservation.read_back(at, length, restoring.contents(), from) }?;
                }
            }
            at += length;
        }
        restoring.done(&plan);
        Ok(at - start)
    }

    /// Where blocks begin that can be mapped anew at once, since few of their pages are there; `None` if the last block alone
    /// has too many, or it cannot be seen.
    fn shown_step(&self, reservation: &AddressRange) -> Option<usize> {
        let (mut end, mut start, mut there) = (self.discard.end, None, 0);
        for _ in 0..SHOWN_BLOCKS {
            let least = ((end - 1) / BLOCK * BLOCK).max(self.discard.start);
            there += reservation.present(least, end - least)?;
            if there > SHOWN_STEP {
                break;
            }
            start = Some(least);
            if least == self.discard.start {
                break;
            }
            end = least;
        }
        start
    }

    /// Where the next pages to be given back begin: `least` or behind it. Each page of a file counts as one with memory.
    fn next(&self, reservation: &AddressRange, least: usize, most: usize) -> io::Result<usize> {
        let end = self.discard.end;
        let least = match &self.shown {
            Some(shown) if (shown.start + 1..=shown.end).contains(&end) => {
                let least = least.max(shown.start);
                return Ok(least.max(end.saturating_sub(most * PAGE)));
            }
            Some(shown) if end > shown.end => least.max(shown.end),
            _ => least,
        };
        Ok(end - reservation.suffix(least, end - least, most)?)
    }
}
