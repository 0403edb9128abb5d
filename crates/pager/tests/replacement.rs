//! Replacement against a model with queues.

use std::collections::{BTreeSet, VecDeque};

use leasehold_pager::{Contract, Fault, MemoryBackend, PageNumber, Pager, Sharing};
use proptest::prelude::{any, prop, proptest};
use proptest::prop_assert_eq;

/// First in, first out, with a second chance; a third of the pages inactive.
#[derive(Default)]
struct Queues {
    active: VecDeque<PageNumber>,
    inactive: VecDeque<PageNumber>,
    referenced: BTreeSet<PageNumber>,
}

impl Queues {
    fn victim(&mut self) -> PageNumber {
        loop {
            while self.inactive.len() * 2 < self.active.len() {
                let oldest = self.active.pop_front().expect("an active page");
                self.referenced.remove(&oldest);
                self.inactive.push_back(oldest);
            }
            let oldest = self.inactive.pop_front().expect("an inactive page");
            if !self.referenced.remove(&oldest) {
                return oldest;
            }
            self.active.push_back(oldest);
        }
    }

    fn holds(&self, page: PageNumber) -> bool {
        self.active.contains(&page) || self.inactive.contains(&page)
    }
}

proptest! {
    #[test]
    fn the_page_that_goes_is_the_one_that_the_queues_say(
        frames in 1u32..12,
        touches in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        let mut pager = Pager::new(frames, MemoryBackend::new(frames));
        let id = pager.reserve(&Contract::hard(frames)).expect("frames");
        let area = pager.create_area(20, Sharing::Conserve).expect("an area");
        let at = pager.attach(id, area).expect("room to swap");
        let mut queues = Queues::default();
        for touch in touches {
            let page = PageNumber::new(u32::from(touch) % 20);
            let present = pager.fault(at, page).expect("a frame") == Fault::Present;
            prop_assert_eq!(present, queues.holds(page));
            if !present {
                if queues.active.len() + queues.inactive.len() == frames as usize {
                    queues.victim();
                }
                queues.active.push_back(page);
            }
            queues.referenced.insert(page);
            prop_assert_eq!(pager.backend_mut().load(at, page), Some(0));
            for page in PageNumber::range(0..20) {
                prop_assert_eq!(pager.backend().is_mapped(at, page), queues.holds(page));
            }
        }
    }
}
