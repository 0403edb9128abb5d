//! The armed timers of a tenant: a leftist heap through their own slots.

use leasehold_reclaim::{Backing, Handle};

use crate::link::Objects;
use crate::object::timer::state::{Links, Timer};

type Node = Option<Handle<Timer>>;

/// The armed timers of one tenant.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Heap {
    pub(super) first: Node,
}

impl Heap {
    /// Adds a timer that is in no heap and has its deadline set.
    pub(super) fn insert<B: Backing>(&mut self, groups: &mut Objects<B>, timer: Handle<Timer>) {
        self.first = merge(groups, self.first, Some(timer));
    }

    /// Takes a timer out that is in this heap.
    pub(super) fn remove<B: Backing>(&mut self, groups: &mut Objects<B>, timer: Handle<Timer>) {
        let Some(node) = groups.get_mut(timer) else {
            return;
        };
        let Links {
            left,
            right,
            parent,
            ..
        } = core::mem::replace(&mut node.links, Links::NONE);
        for child in [left, right] {
            set_parent(groups, child, None);
        }
        let merged = merge(groups, left, right);
        set_parent(groups, merged, parent);
        let Some(parent) = parent else {
            self.first = merged;
            return;
        };
        if let Some(node) = groups.get_mut(parent) {
            if node.links.left == Some(timer) {
                node.links.left = merged;
            } else {
                node.links.right = merged;
            }
        }
        balance(groups, Some(parent), true);
    }

    /// The earliest deadline.
    pub(super) fn earliest<B: Backing>(&self, groups: &Objects<B>) -> Option<u64> {
        groups.get(self.first?)?.deadline
    }
}

/// Makes one heap of two, of which the root has no parent. Visits the right spines of both:
/// O(log n).
fn merge<B: Backing>(groups: &mut Objects<B>, a: Node, b: Node) -> Node {
    let (mut a, mut b) = match (a, b) {
        (Some(a), Some(b)) => (a, b),
        (one, other) => return one.or(other),
    };
    let mut above: Node = None;
    let mut root = None;
    loop {
        if key(groups, b) < key(groups, a) {
            (a, b) = (b, a);
        }
        // `a` is the earlier one: it comes here, and the rest to its right.
        set_parent(groups, Some(a), above);
        match above.and_then(|above| groups.get_mut(above)) {
            Some(above) => above.links.right = Some(a),
            None => root = Some(a),
        }
        above = Some(a);
        match groups.get(a).and_then(|a| a.links.right) {
            Some(right) => a = right,
            None => break,
        }
    }
    if let Some(last) = groups.get_mut(a) {
        last.links.right = Some(b);
    }
    set_parent(groups, Some(b), Some(a));
    balance(groups, Some(a), false);
    root
}

/// Puts the child of lower rank to the right, from a node upwards: to the root, or until nothing
/// changes. The ranks that change grow by one per level: O(log n).
fn balance<B: Backing>(groups: &mut Objects<B>, mut at: Node, until_same: bool) {
    while let Some(handle) = at {
        let Some(&Timer { links, .. }) = groups.get(handle) else {
            return;
        };
        let rank = |place: Node| {
            place
                .and_then(|place| groups.get(place))
                .map_or(0, |timer| timer.links.rank)
        };
        let (mut left, mut right) = (links.left, links.right);
        if rank(left) < rank(right) {
            (left, right) = (right, left);
        }
        let new_rank = rank(right) + 1;
        if let Some(timer) = groups.get_mut(handle) {
            timer.links = Links {
                left,
                right,
                rank: new_rank,
                ..links
            };
        }
        if until_same && new_rank == links.rank {
            return;
        }
        at = links.parent;
    }
}

/// The deadline of a timer, if it is armed.
pub(super) fn key<B: Backing>(groups: &Objects<B>, timer: Handle<Timer>) -> Option<u64> {
    groups.get(timer)?.deadline
}

fn set_parent<B: Backing>(groups: &mut Objects<B>, node: Node, parent: Node) {
    if let Some(node) = node.and_then(|node| groups.get_mut(node)) {
        node.links.parent = parent;
    }
}
