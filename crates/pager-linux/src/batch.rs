//! Deferred system calls, so that neighbours share one.
//!
//! No tenant runs within one operation of the pager, so changes of page-table entries are
//! collected, and made before it returns. Released frames may wait longer, because they are not
//! visible.

use crate::span::Span;
use leasehold_pager::PageNumber;

/// Most spans that wait.
pub(crate) const MOST: usize = 64;

/// Spans whose page-table entries are to be removed.
#[derive(Debug)]
pub(crate) struct Zaps {
    spans: [Option<Span>; MOST],
    len: usize,
}

impl Zaps {
    pub(crate) const fn new() -> Self {
        Zaps {
            spans: [None; MOST],
            len: 0,
        }
    }

    /// Adds a span, as part of its neighbour if that came right before; returns whether there was
    /// room.
    pub(crate) fn push(&mut self, span: Span) -> bool {
        if let Some(last) = self.len.checked_sub(1)
            && let Some(joined) = self.spans[last].and_then(|before| before.join(span))
        {
            self.spans[last] = Some(joined);
            return true;
        }
        if self.len == MOST {
            return false;
        }
        self.spans[self.len] = Some(span);
        self.len += 1;
        true
    }

    /// Takes all spans out.
    pub(crate) fn drain(&mut self, mut each: impl FnMut(Span)) {
        for span in &mut self.spans[..self.len] {
            span.take().into_iter().for_each(&mut each);
        }
        self.len = 0;
    }
}

/// Runs of released pages in a batch at the most: each is a system call, of 5 µs and more.
const MOST_RUNS: usize = 8;

/// Released pages whose frames are to be given back, as pairs of area and page.
#[derive(Debug)]
pub(crate) struct Releases {
    pages: [(u32, PageNumber); MOST],
    len: usize,
    /// Runs that they are of, at the most: in the order in which they came.
    runs: usize,
}

impl Releases {
    pub(crate) const fn new() -> Self {
        Releases {
            pages: [(0, PageNumber::FIRST); MOST],
            len: 0,
            runs: 0,
        }
    }

    /// Adds a page; returns whether the batch is full now.
    pub(crate) fn push(&mut self, area: u32, page: PageNumber) -> bool {
        let joins = self.pages[..self.len]
            .last()
            .is_some_and(|&(of, last)| of == area && (last.next() == page || page.next() == last));
        self.runs += usize::from(!joins);
        self.pages[self.len] = (area, page);
        self.len += 1;
        self.len == MOST || self.runs == MOST_RUNS
    }

    /// Takes all out, as runs `(area, from, to)` of neighbours.
    pub(crate) fn drain(&mut self, mut each: impl FnMut(u32, PageNumber, PageNumber)) {
        let pages = &mut self.pages[..self.len];
        pages.sort_unstable();
        let mut run: Option<(u32, PageNumber, PageNumber)> = None;
        for &mut (area, page) in pages {
            match &mut run {
                Some((of, _, to)) if *of == area && page <= *to => *to = page.next(),
                _ => {
                    if let Some((area, from, to)) = run.replace((area, page, page.next())) {
                        each(area, from, to);
                    }
                }
            }
        }
        if let Some((area, from, to)) = run {
            each(area, from, to);
        }
        (self.len, self.runs) = (0, 0);
    }
}

/// How the pages of a run come into the page table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// They are cached.
    Cached,
    /// They are not, and hold zeros.
    Zeros,
}

/// Pages of one attachment that are to be put into its page table in one go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) attached: u32,
    pub(crate) from: PageNumber,
    pub(crate) to: PageNumber,
    pub(crate) source: Source,
    /// Writes to them trap.
    pub(crate) protect: bool,
}

impl Run {
    /// Adds the next page, if it is that and comes in the same way.
    pub(crate) fn extend(&mut self, other: Run) -> bool {
        let joined = Run {
            to: other.to,
            ..*self
        };
        let follows = other.from == self.to;
        let alike = Run {
            from: self.from,
            ..other
        } == joined;
        if follows && alike {
            *self = joined;
        }
        follows && alike
    }

    pub(crate) fn has(&self, attached: u32, page: PageNumber) -> bool {
        self.attached == attached && (self.from..self.to).contains(&page)
    }
}

#[cfg(test)]
mod tests {
    use super::{Releases, Run, Source};
    use leasehold_pager::PageNumber;

    #[test]
    fn released_neighbours_become_runs() {
        let mut releases = Releases::new();
        for page in [(1, 5), (0, 3), (1, 4), (1, 7), (0, 2)] {
            assert!(!releases.push(page.0, PageNumber::new(page.1)));
        }
        let mut runs = vec![];
        releases.drain(|area, from, to| runs.push((area, from.get(), to.get())));
        assert_eq!(runs, [(0, 2, 4), (1, 4, 6), (1, 7, 8)]);
        releases.drain(|_, _, _| panic!("drained twice"));
    }

    #[test]
    fn a_batch_is_full_of_neighbours_later_than_of_pages_apart() {
        let mut releases = Releases::new();
        let full = |releases: &mut Releases, apart: u32| {
            let pushed = (0u32..)
                .take_while(|page| !releases.push(0, PageNumber::new(page * apart)))
                .count();
            releases.drain(|_, _, _| {});
            pushed + 1
        };
        assert_eq!(full(&mut releases, 1), super::MOST);
        assert_eq!(full(&mut releases, 512), super::MOST_RUNS);
    }

    #[test]
    fn only_the_next_page_of_the_same_kind_joins_a_run() {
        let page = |at, protect| Run {
            attached: 1,
            from: PageNumber::new(at),
            to: PageNumber::new(at + 1),
            source: Source::Zeros,
            protect,
        };
        let mut run = page(4, false);
        assert!(!run.extend(page(6, false)));
        assert!(!run.extend(page(5, true)));
        assert!(run.extend(page(5, false)));
        let has = |attached, page| run.has(attached, PageNumber::new(page));
        assert!(has(1, 4) && has(1, 5) && !has(1, 6) && !has(0, 4));
    }
}
