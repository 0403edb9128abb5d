//! Writing pages out, in clusters.
//!
//! A page that must be written before it is evicted takes the next ones in line with it: they
//! stay mapped, and if they are not written to again, evicting them costs no input or output.

use crate::area::Sharing;
use crate::backend::{Backend, Held, Writing};
use crate::lists::{ByAge, List, Mapping};
use crate::pager::Pager;
use crate::refused::Refused;
use crate::table::At;

/// Pages that are written out together at most.
pub const CLUSTER: usize = 8;
/// Mappings that are looked at to fill a cluster.
const LOOKS: usize = 4 * CLUSTER;

impl<B: Backend> Pager<B> {
    /// Makes sure that secondary storage has what a page holds.
    pub(crate) fn save(&mut self, victim: At<Mapping>) -> Result<(), Refused> {
        let held = self.held_by(victim);
        if !self.backend.is_dirty(held) {
            return Ok(());
        }
        let mut cluster = [held; CLUSTER];
        let mut filled = 1;
        let mut next = List::<ByAge>::after(&self.mappings, victim);
        for _ in 0..LOOKS {
            let Some(at) = next.filter(|_| filled < CLUSTER) else {
                break;
            };
            let other = self.held_by(at);
            if self.would_be_written(at) && self.backend.is_dirty(other) {
                cluster[filled] = other;
                filled += 1;
            }
            next = List::<ByAge>::after(&self.mappings, at);
        }
        let cluster = &cluster[..filled];
        let writing = self.backend.write(cluster)?;
        if writing == Writing::Waits {
            return Err(Refused::Writing);
        }
        for Held { page, .. } in cluster {
            let area = self.areas.find(page.area.0).expect("it is mapped");
            let area = self.areas.at_mut(area);
            area.page_mut(page.number).stored = true;
        }
        let reservation = self.holder(victim);
        let counts = &mut self.reservations.at_mut(reservation).counts;
        counts.written += filled as u64;
        counts.writes += 1;
        match writing {
            Writing::Done => Ok(()),
            Writing::Begun | Writing::Waits => Err(Refused::Writing),
        }
    }

    /// Returns whether evicting the page now would write it out: a shared one is only unmapped,
    /// unless it is not managed.
    fn would_be_written(&self, at: At<Mapping>) -> bool {
        self.sharers_of(at) == 1 || self.sharing_of(at) != Sharing::Conserve
    }

    fn held_by(&self, mapping: At<Mapping>) -> Held {
        let mapping = self.mappings.at(mapping);
        let area = self.attachments.at(mapping.attachment).area;
        Held {
            page: self.name(area, mapping.page),
            frame: self.areas.at(area).frame(mapping.page),
        }
    }
}
