//! The changes that are under way and that wait, and the tenants that they may bring.

use super::orders::Asked;
use std::collections::{BTreeSet, VecDeque};

/// Changes that wait for the one before.
const CHANGES: usize = 64;

/// The tenants that a change may bring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Brings {
    /// The change only concerns tenants that are there.
    Nothing,
    /// The change brings the tenants with these names.
    These(BTreeSet<String>),
    /// The change reads the lease file, which may have a tenant of any name.
    AnyOfFile,
}

/// Whether a tenant that is not there comes with a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Coming {
    /// No change brings it.
    No,
    /// A lease file that is being read, or is about to be, may have it.
    Perhaps,
    /// A change brings it.
    Yes,
}

impl Brings {
    /// The tenant with this name.
    pub(super) fn one(name: &str) -> Self {
        Self::These(BTreeSet::from([name.to_owned()]))
    }

    fn has(&self, name: &str) -> Coming {
        match self {
            Self::These(names) if names.contains(name) => Coming::Yes,
            Self::AnyOfFile => Coming::Perhaps,
            Self::Nothing | Self::These(_) => Coming::No,
        }
    }
}

/// A change that was asked for, made by an `M`.
pub(super) struct Change<M> {
    pub(super) asked: Asked,
    pub(super) brings: Brings,
    pub(super) make: M,
}

/// The change that is under way, and those that wait for it.
pub(super) struct Changes<M> {
    /// When the change under way was asked for, and the tenants that it may bring.
    present: Option<(Asked, Brings)>,
    waiting: VecDeque<Change<M>>,
}

impl<M> Default for Changes<M> {
    fn default() -> Self {
        Self {
            present: None,
            waiting: VecDeque::new(),
        }
    }
}

impl<M> Changes<M> {
    /// Adds a change. Returns it if it is to be made at once.
    pub(super) fn add(&mut self, change: Change<M>) -> Option<M> {
        if self.present.is_none() {
            self.present = Some((change.asked, change.brings));
            return Some(change.make);
        }
        // A change beyond that is dropped with its sender, which tells the thread that asked.
        if self.waiting.len() < CHANGES {
            self.waiting.push_back(change);
        }
        None
    }

    /// Ends the change under way, and returns the next one with the instant at which it was asked for.
    pub(super) fn next(&mut self) -> Option<(Asked, M)> {
        let Some(next) = self.waiting.pop_front() else {
            self.present = None;
            return None;
        };
        self.present = Some((next.asked, next.brings));
        Some((next.asked, next.make))
    }

    /// States which tenants the change under way brings: now it is known.
    pub(super) fn brings(&mut self, names: BTreeSet<String>) {
        if let Some((_, brings)) = &mut self.present {
            *brings = Brings::These(names);
        }
    }

    /// Whether a tenant that is not there comes with the change under way, or with one that waits, of those that were
    /// asked for when they `may` bring it.
    pub(super) fn coming(&self, name: &str, may: impl Fn(Asked) -> bool) -> Coming {
        let present = self.present.iter().map(|(asked, brings)| (*asked, brings));
        let waiting = self.waiting.iter();
        let all = present.chain(waiting.map(|change| (change.asked, &change.brings)));
        all.filter(|(asked, _)| may(*asked))
            .map(|(_, brings)| brings.has(name))
            .max()
            .unwrap_or(Coming::No)
    }
}

#[cfg(test)]
mod tests {
    use super::{Brings, CHANGES, Change, Changes, Coming};
    use crate::supervisor::orders::{Order, Orders};
    use std::collections::BTreeSet;

    fn change(brings: Brings) -> Change<()> {
        Change {
            asked: Orders::default().now(),
            brings,
            make: (),
        }
    }

    fn coming(changes: &Changes<()>, name: &str) -> Coming {
        changes.coming(name, |_| true)
    }

    #[test]
    fn a_tenant_comes_as_long_as_a_change_under_way_or_one_that_waits_may_bring_it() {
        let mut changes = Changes::default();
        assert_eq!(coming(&changes, "shop"), Coming::No);
        assert!(changes.add(change(Brings::AnyOfFile)).is_some());
        assert!(changes.add(change(Brings::one("shop"))).is_none());
        assert!(changes.add(change(Brings::Nothing)).is_none());
        assert_eq!(coming(&changes, "shop"), Coming::Yes, "a put waits");
        assert_eq!(coming(&changes, "cart"), Coming::Perhaps, "a file is read");
        changes.brings(BTreeSet::from(["till".to_owned()]));
        assert_eq!(coming(&changes, "cart"), Coming::No, "the file was read");
        assert_eq!(coming(&changes, "till"), Coming::Yes);
        assert!(changes.next().is_some(), "the put");
        assert_eq!(coming(&changes, "till"), Coming::No);
        assert_eq!(coming(&changes, "shop"), Coming::Yes);
        assert!(changes.next().is_some(), "the one that brings nothing");
        assert_eq!(coming(&changes, "shop"), Coming::No);
        assert!(changes.next().is_none());
    }

    #[test]
    fn a_tenant_that_was_deleted_comes_only_with_what_was_asked_for_later() {
        let mut orders = Orders::default();
        let mut changes = Changes::default();
        let before = orders.now();
        changes.add(change(Brings::one("shop")));
        orders.give("shop", Order::Delete);
        assert_eq!(changes.coming("shop", |asked| asked > before), Coming::No);
        let mut later = change(Brings::one("shop"));
        later.asked = orders.now();
        changes.add(later);
        assert_eq!(changes.coming("shop", |asked| asked > before), Coming::Yes);
    }

    #[test]
    fn a_change_that_finds_no_place_brings_nothing() {
        let mut changes = Changes::default();
        for _ in 0..=CHANGES {
            changes.add(change(Brings::Nothing));
        }
        changes.add(change(Brings::one("shop")));
        assert_eq!(coming(&changes, "shop"), Coming::No);
    }
}
