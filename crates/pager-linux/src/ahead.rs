//! Fault-around: mapping what a sequential reader or writer will touch next.
//!
//! A fault costs a signal (2 µs); a page that is mapped along with others a tenth of that. While
//! faults continue where the last mapping ended, the number of pages mapped ahead doubles each
//! time, as far as the policy [grants them without an eviction](leasehold_pager::Pager::map_ahead).

use leasehold_pager::PageNumber;

/// The prediction of an attachment's next faults.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stream {
    /// The page after those that were mapped last.
    next: PageNumber,
    window: u32,
}

impl Stream {
    /// Predicts nothing before the first fault.
    pub(crate) const fn new() -> Self {
        Stream {
            next: PageNumber::FIRST,
            window: 0,
        }
    }

    /// Records a fault; returns how many pages after it to map ahead, `most` at the most.
    pub(crate) fn fault(&mut self, page: PageNumber, most: u32) -> u32 {
        self.window = if page == self.next && page != PageNumber::FIRST {
            (2 * self.window).clamp(1, most.max(1)).min(most)
        } else {
            0
        };
        self.next = page.next();
        self.window
    }

    /// Records that pages up to `end` were mapped.
    pub(crate) fn mapped_to(&mut self, end: PageNumber) {
        self.next = end;
    }
}

#[cfg(test)]
mod tests {
    use super::Stream;
    use leasehold_pager::PageNumber;

    #[test]
    fn the_window_doubles_while_faults_follow_and_closes_when_they_do_not() {
        let mut stream = Stream::new();
        let mut page = PageNumber::new(4);
        let mut windows = vec![];
        for _ in 0..6 {
            let window = stream.fault(page, 16);
            page = page.plus(window + 1);
            stream.mapped_to(page);
            windows.push(window);
        }
        assert_eq!(windows, [0, 1, 2, 4, 8, 16]);
        assert_eq!(stream.fault(page, 16), 16);
        stream.mapped_to(page.plus(17));
        assert_eq!(stream.fault(page, 16), 0);
        assert_eq!(stream.fault(PageNumber::new(2), 16), 0);
        assert_eq!(stream.fault(PageNumber::new(3), 0), 0);
    }
}
