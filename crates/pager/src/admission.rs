//! Admission: whether reservations and locked areas fit in the node's memory together.
//!
//! Purely arithmetic, on what is known before anything starts. Conserved frames need no term: they
//! are part of the reservations (SPC §IV-A), which is why SPC saves nothing, and needs no
//! assumption about the use of pages.

use alloc::vec::Vec;

use crate::rule::{Technique, choose};

/// How the pages of a planned area are to be managed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Management {
    /// Not at all: evicting a page evicts it for all. For comparison.
    None,
    /// By one technique.
    By(Technique),
    /// By the technique that takes fewer frames.
    Auto,
}

/// A sharer of a planned area.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Sharer {
    /// Which of the plan's reservations: what [`Plan::reservation`] returned.
    pub reservation: usize,
    /// Pages of the area that it uses on average (`Avg(S)`).
    pub average: u32,
}

#[derive(Debug, Clone)]
struct PlannedArea {
    pages: u32,
    management: Management,
    sharers: Vec<Sharer>,
}

/// Reservations and shared areas that are to be on one node together.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    reservations: Vec<u32>,
    areas: Vec<PlannedArea>,
}

/// The frames that an admitted plan takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admitted {
    /// Size of each reservation: as planned, and enlarged for areas under an eviction lock.
    pub reservations: Vec<u32>,
    /// For each area, the technique; `None` if it is not managed.
    pub techniques: Vec<Option<Technique>>,
    /// Frames of the node that all this takes.
    pub physical: u64,
    /// The part of them that is conserved if every sharer uses its average of shared pages.
    pub conserved: u64,
    /// Frames that eviction locks save: `(n−1)·Max(S)` for each locked area.
    pub saved: u64,
}

/// A plan that does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{needed} frames needed, the node has {frames}")]
pub struct NotAdmitted {
    /// Frames that the plan takes.
    pub needed: u64,
    /// Frames that there are.
    pub frames: u64,
}

impl Plan {
    /// A plan of nothing.
    pub const fn new() -> Self {
        Plan {
            reservations: Vec::new(),
            areas: Vec::new(),
        }
    }

    /// Adds a reservation of as many frames as its tenant needs if no area is locked (`MR`);
    /// returns its number.
    pub fn reservation(&mut self, frames: u32) -> usize {
        self.reservations.push(frames);
        self.reservations.len() - 1
    }

    /// Adds a shared area of `pages` pages (`Max(S)`).
    ///
    /// # Panics
    /// If a sharer is not of this plan, or uses more pages than there are.
    pub fn area(&mut self, pages: u32, management: Management, sharers: &[Sharer]) {
        for sharer in sharers {
            assert!(
                sharer.reservation < self.reservations.len(),
                "no sharer of this plan"
            );
            assert!(sharer.average <= pages, "more used than there is");
        }
        self.areas.push(PlannedArea {
            pages,
            management,
            sharers: sharers.to_vec(),
        });
    }

    /// Adds up the frames of the plan, and compares them with a node of `frames` frames.
    ///
    /// `Σ MR'` less what areas save. Locking an area of `Max(S)` pages makes `MR' = MR + Max(S) −
    /// Avg(S)` of each sharer's `MR`, so that it has as many frames left for private pages as
    /// before, and saves `(n−1)·Max(S)` (SPC §IV-C).
    ///
    /// # Errors
    /// [`NotAdmitted`] if the node has fewer frames.
    pub fn check(&self, frames: u64) -> Result<Admitted, NotAdmitted> {
        let techniques: Vec<_> = self.areas.iter().map(PlannedArea::technique).collect();
        let reservations = self.enlarged(&techniques);
        let mut physical: u64 = reservations.iter().map(|&frames| u64::from(frames)).sum();
        let (mut conserved, mut saved) = (0, 0);
        for (area, technique) in self.areas.iter().zip(&techniques) {
            match technique {
                Some(Technique::Spc) => conserved += area.used_in_common(),
                Some(Technique::Spel) => saved += area.copies(),
                None => physical = physical.saturating_sub(area.used_in_common()),
            }
        }
        physical -= saved;
        if physical > frames {
            return Err(NotAdmitted {
                needed: physical,
                frames,
            });
        }
        Ok(Admitted {
            reservations,
            techniques,
            physical,
            conserved,
            saved,
        })
    }

    fn enlarged(&self, techniques: &[Option<Technique>]) -> Vec<u32> {
        let mut sizes = self.reservations.clone();
        let mut locked = alloc::vec![0u32; sizes.len()];
        for (area, technique) in self.areas.iter().zip(techniques) {
            if *technique == Some(Technique::Spel) {
                for sharer in &area.sharers {
                    let size = &mut sizes[sharer.reservation];
                    *size = size.saturating_add(area.pages - sharer.average);
                    let locked = &mut locked[sharer.reservation];
                    *locked = locked.saturating_add(area.pages);
                }
            }
        }
        for (size, locked) in sizes.iter_mut().zip(locked) {
            // A reservation must exceed its locked pages (SPC §IV-B).
            *size = (*size).max(locked.saturating_add(u32::from(locked > 0)));
        }
        sizes
    }
}

impl PlannedArea {
    fn technique(&self) -> Option<Technique> {
        let averages = self.sharers.iter().map(|sharer| u64::from(sharer.average));
        match self.management {
            Management::None => None,
            Management::By(technique) => Some(technique),
            Management::Auto => Some(choose(self.pages.into(), averages.sum())),
        }
    }

    /// Frames that hold further copies of the area's pages, if every sharer's part is within the
    /// largest one.
    fn used_in_common(&self) -> u64 {
        let averages = self.sharers.iter().map(|sharer| u64::from(sharer.average));
        averages.clone().sum::<u64>() - averages.max().unwrap_or(0)
    }

    fn copies(&self) -> u64 {
        (self.sharers.len() as u64).saturating_sub(1) * u64::from(self.pages)
    }
}
