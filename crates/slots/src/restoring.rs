//! What has to be done with dirty memory so that it holds again what was shown in it.
//!
//! A memory that shows [contents](crate::contents::Contents) and is to be used again by instances of the same program need
//! not be taken apart. Of the pages that its user wrote to, those behind which the file is are read from it again, and the
//! others are overwritten with zeros: which those are, the page tables say ([`present`](crate::present)). They keep their
//! memory, so that the next user takes no fault for them, and pages that were only read stay mapped.

use std::ops::Range;

use crate::address_range::{LOOK_PAGES, PAGE};
use crate::contents::Contents;
use crate::present::Presence;

/// Runs of pages for which a step asks the system: each takes as long as some ten pages do in one run.
const RUNS: usize = 16;

/// A memory whose user has given it up, and that is to be as it was made.
#[derive(Debug)]
pub(crate) struct Restoring {
    /// Where the memory begins in the reservation.
    start: usize,
    contents: Contents,
    /// Pages that may still keep their memory; that of others is given back.
    kept: usize,
}

/// What is done with a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// It is as it was.
    Leave,
    /// Its memory is given back: it is shown, or zero, without it.
    Discard,
    /// It gets what the file has.
    ReadBack,
    /// It is overwritten with zeros.
    Zero,
}

/// What a step does.
#[derive(Debug)]
pub(crate) struct Plan {
    actions: [Action; LOOK_PAGES],
    pages: usize,
    /// Pages that may keep their memory after it.
    kept: usize,
}

impl Plan {
    /// For each of its pages.
    pub(crate) fn actions(&self) -> &[Action] {
        &self.actions[..self.pages]
    }
}

impl Restoring {
    /// A memory that begins there and shows `contents`, of which at most `kept` bytes keep their memory.
    pub(crate) fn new(start: usize, contents: Contents, kept: usize) -> Self {
        Self {
            start,
            contents,
            kept: kept / PAGE,
        }
    }

    /// Where the memory begins.
    pub(crate) fn start(&self) -> usize {
        self.start
    }

    pub(crate) fn contents(&self) -> &Contents {
        &self.contents
    }

    /// Where they are shown.
    pub(crate) fn shown(&self) -> Range<usize> {
        let bytes = self.contents.bytes();
        self.start + bytes.start..self.start + bytes.end
    }

    /// What to do with the first of the pages from `at` on, of which this was found: with at most `most` that have memory,
    /// others between them, and at most 16 runs of pages that are read from the file or given back.
    pub(crate) fn plan(&self, at: usize, found: &[Presence], most: usize) -> Plan {
        let mut plan = Plan {
            actions: [Action::Leave; LOOK_PAGES],
            pages: 0,
            kept: self.kept,
        };
        let (shown, mut with_memory) = (self.shown(), 0);
        let (mut runs, mut last) = (0, Action::Leave);
        for (&presence, action) in found.iter().zip(&mut plan.actions) {
            // Where no memory is kept, one call takes all up to the next page that was written to: what is shown is shown again.
            let goes_on = plan.kept == 0 && last == Action::Discard;
            let has_memory = matches!(presence, Presence::Own | Presence::Swapped)
                || goes_on && presence == Presence::Shown;
            if has_memory && with_memory == most {
                break;
            }
            let next = match presence {
                Presence::Absent | Presence::Shown if goes_on => Action::Discard,
                Presence::Absent | Presence::Shown => Action::Leave,
                // To overwrite it would be a fault that reads it.
                Presence::Swapped => Action::Discard,
                Presence::Own if plan.kept == 0 => Action::Discard,
                Presence::Own => match shown.contains(&(at + plan.pages * PAGE)) {
                    true => Action::ReadBack,
                    false => Action::Zero,
                },
            };
            if next != last && matches!(next, Action::ReadBack | Action::Discard) {
                if runs == RUNS {
                    break;
                }
                runs += 1;
            }
            with_memory += usize::from(has_memory);
            plan.kept -= usize::from(matches!(next, Action::ReadBack | Action::Zero));
            (*action, last) = (next, next);
            plan.pages += 1;
        }
        plan
    }

    /// A plan was carried out.
    pub(crate) fn done(&mut self, plan: &Plan) {
        self.kept = plan.kept;
    }
}

#[cfg(test)]
mod tests {
    use super::{Action, Restoring};
    use crate::address_range::PAGE;
    use crate::contents::Contents;
    use crate::present::Presence::{Absent, Own, Shown, Swapped};
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
    use std::fs::File;
    use std::sync::Arc;

    /// A memory at page 10 that shows 4 pages from its page 2 on.
    fn restoring(kept: usize) -> Restoring {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(memfd_create("contents", flags).expect("a file"));
        file.set_len(4 * PAGE as u64).expect("as long");
        fcntl_add_seals(
            &file,
            SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW,
        )
        .expect("sealed");
        let contents = Contents::new(Arc::new(file), 2, 4).expect("sealed");
        Restoring::new(10 * PAGE, contents, kept * PAGE)
    }

    #[test]
    fn pages_that_were_written_to_get_what_they_held_and_no_others_are_touched() {
        let found = [Own, Absent, Shown, Own, Own, Absent, Own, Swapped];
        let plan = restoring(100).plan(10 * PAGE, &found, 64);
        use Action::{Discard, Leave, ReadBack, Zero};
        let expected = [Zero, Leave, Leave, ReadBack, ReadBack, Leave, Zero, Discard];
        assert_eq!(plan.actions(), expected);
        // From the middle of the memory on.
        let plan = restoring(100).plan(15 * PAGE, &[Own, Own], 64);
        assert_eq!(plan.actions(), [ReadBack, Zero]);
    }

    #[test]
    fn no_more_pages_keep_their_memory_than_may() {
        let mut restoring = restoring(2);
        let plan = restoring.plan(10 * PAGE, &[Own; 3], 64);
        assert_eq!(
            plan.actions(),
            [Action::Zero, Action::Zero, Action::Discard]
        );
        restoring.done(&plan);
        let plan = restoring.plan(13 * PAGE, &[Own], 64);
        assert_eq!(plan.actions(), [Action::Discard]);
    }

    #[test]
    fn a_step_asks_the_system_for_no_more_runs_of_pages_than_it_may() {
        let found = [Swapped, Absent].repeat(100);
        let plan = restoring(1000).plan(10 * PAGE, &found, 64);
        assert_eq!(plan.actions().len(), 2 * super::RUNS);
        // One run is one, however long it is.
        let plan = restoring(1000).plan(10 * PAGE, &[Swapped; 64], 64);
        assert_eq!(plan.actions().len(), 64);
    }

    #[test]
    fn pages_that_keep_no_memory_are_given_back_with_what_is_between_them() {
        let found = [Absent, Shown, Own, Shown, Absent, Own, Shown, Own];
        let plan = restoring(0).plan(10 * PAGE, &found, 4);
        use Action::{Discard, Leave};
        let expected = [Leave, Leave, Discard, Discard, Discard, Discard, Discard];
        assert_eq!(plan.actions(), expected, "four pages that are there");
    }

    #[test]
    fn a_step_visits_no_more_pages_with_memory_than_it_may() {
        let found = [Shown, Own, Absent, Swapped, Own, Absent];
        let plan = restoring(9).plan(10 * PAGE, &found, 2);
        assert_eq!(plan.actions().len(), 4);
    }
}
