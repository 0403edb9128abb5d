//! The timeouts of servers by the deadlines that they will have: a treap (Seidel and Aragon 1996)
//! in the order of deadlines, in which every node knows the earliest timeout below it. The most
//! urgent expired timeout and the earliest timeout among more urgent servers are found in one
//! descent: O(log n) expected, and independent of the tenants' behaviour, since the shape depends
//! only on random numbers, and these on the seed of the scheduler.

use alloc::vec;
use alloc::vec::Vec;

use crate::contract::Nanos;
use crate::id::{Index, NEVER, NOWHERE};
use crate::random::SplitMix;
use crate::urgency::Urgency;

#[derive(Debug, Clone, Copy)]
struct Node {
    deadline: Nanos,
    timeout: Nanos,
    /// The earliest timeout of this node and all below it.
    earliest: Nanos,
    left: Index,
    right: Index,
    /// Nodes with greater weight are above; zero: not in the treap.
    weight: u32,
}

const OUTSIDE: Node = Node {
    deadline: 0,
    timeout: NEVER,
    earliest: NEVER,
    left: NOWHERE,
    right: NOWHERE,
    weight: 0,
};

/// Invariants: nodes are in the order of `(deadline, place)` from left to right; none has a
/// greater weight than the one above it; `earliest` is what it says.
#[derive(Debug)]
pub(crate) struct Deadlines {
    nodes: Vec<Node>,
    root: Index,
    random: SplitMix,
}

impl Deadlines {
    pub(crate) fn new(servers: u32, seed: u64) -> Self {
        Deadlines {
            nodes: vec![OUTSIDE; servers as usize],
            root: NOWHERE,
            random: SplitMix::new(seed),
        }
    }

    /// Sets the timeout of a server, and the deadline it will have then; in place of those it
    /// may have had.
    pub(crate) fn set(&mut self, deadline: Urgency, server: Index, at: Nanos) {
        self.remove(server);
        self.nodes[server as usize] = Node {
            deadline: deadline.deadline(),
            timeout: at,
            earliest: at,
            weight: self.next_weight(),
            ..OUTSIDE
        };
        let (left, right) = self.split(self.root, (deadline.deadline(), server));
        let left = self.join(left, server);
        self.root = self.join(left, right);
    }

    /// Takes a server's timeout out, if it has one.
    pub(crate) fn remove(&mut self, server: Index) {
        let node = self.nodes[server as usize];
        if node.weight != 0 {
            self.root = self.without(self.root, (node.deadline, server));
            self.nodes[server as usize] = OUTSIDE;
        }
    }

    /// The earliest timeout of all.
    #[inline]
    pub(crate) fn earliest(&self) -> Nanos {
        self.earliest_of(self.root)
    }

    /// The earliest timeout among those that will have an earlier deadline.
    pub(crate) fn earliest_above(&self, urgency: Urgency) -> Nanos {
        let mut at = self.root;
        let mut earliest = NEVER;
        while at != NOWHERE {
            let node = &self.nodes[at as usize];
            if node.deadline < urgency.deadline() {
                earliest = earliest.min(node.timeout).min(self.earliest_of(node.left));
                at = node.right;
            } else {
                at = node.left;
            }
        }
        earliest
    }

    /// The server with the earliest deadline among those whose timeouts have expired.
    pub(crate) fn most_urgent_expired(&self, now: Nanos) -> Option<(Urgency, Index)> {
        let mut at = self.root;
        if self.earliest_of(at) > now {
            return None;
        }
        loop {
            let node = &self.nodes[at as usize];
            if self.earliest_of(node.left) <= now {
                at = node.left;
            } else if node.timeout <= now {
                return Some((Urgency::of_deadline(node.deadline), at));
            } else {
                at = node.right;
            }
        }
    }

    #[inline]
    fn earliest_of(&self, at: Index) -> Nanos {
        if at == NOWHERE {
            NEVER
        } else {
            self.nodes[at as usize].earliest
        }
    }

    fn key(&self, at: Index) -> (Nanos, Index) {
        (self.nodes[at as usize].deadline, at)
    }

    /// Works `earliest` out again.
    fn settle(&mut self, at: Index) {
        let Node {
            timeout,
            left,
            right,
            ..
        } = self.nodes[at as usize];
        self.nodes[at as usize].earliest = timeout
            .min(self.earliest_of(left))
            .min(self.earliest_of(right));
    }

    /// Splits a treap into what is below `key` and what is not.
    fn split(&mut self, at: Index, key: (Nanos, Index)) -> (Index, Index) {
        if at == NOWHERE {
            return (NOWHERE, NOWHERE);
        }
        let parts = if self.key(at) < key {
            let (left, right) = self.split(self.nodes[at as usize].right, key);
            self.nodes[at as usize].right = left;
            (at, right)
        } else {
            let (left, right) = self.split(self.nodes[at as usize].left, key);
            self.nodes[at as usize].left = right;
            (left, at)
        };
        self.settle(at);
        parts
    }

    /// Makes one treap of two, of which the first is before the second.
    fn join(&mut self, left: Index, right: Index) -> Index {
        if left == NOWHERE {
            return right;
        }
        if right == NOWHERE {
            return left;
        }
        let above = if self.nodes[left as usize].weight > self.nodes[right as usize].weight {
            self.nodes[left as usize].right = self.join(self.nodes[left as usize].right, right);
            left
        } else {
            self.nodes[right as usize].left = self.join(left, self.nodes[right as usize].left);
            right
        };
        self.settle(above);
        above
    }

    /// A treap without the node at `key`, which is in it.
    fn without(&mut self, at: Index, key: (Nanos, Index)) -> Index {
        let Node { left, right, .. } = self.nodes[at as usize];
        if self.key(at) == key {
            return self.join(left, right);
        }
        if key < self.key(at) {
            self.nodes[at as usize].left = self.without(left, key);
        } else {
            self.nodes[at as usize].right = self.without(right, key);
        }
        self.settle(at);
        at
    }

    /// The next weight; never zero.
    fn next_weight(&mut self) -> u32 {
        (self.random.bits() >> 32) as u32 | 1
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;
    use alloc::vec;

    use proptest::prelude::{Strategy, any, prop, proptest};

    use super::Deadlines;
    use crate::id::NEVER;
    use crate::urgency::Urgency;

    fn steps() -> impl Strategy<Value = alloc::vec::Vec<(u32, u64, u64, bool)>> {
        prop::collection::vec((0..12u32, 0..20u64, 0..20u64, any::<bool>()), 0..200)
    }

    /// The place at the top after the same has been put in.
    fn root(seed: u64) -> u32 {
        let mut tree = Deadlines::new(64, seed);
        for server in 0..64 {
            tree.set(Urgency::of_deadline(server.into()), server, 1);
        }
        tree.root
    }

    #[test]
    fn the_shape_follows_from_the_seed() {
        assert_eq!(root(7), root(7));
        let roots: BTreeSet<u32> = (0..100).map(root).collect();
        assert!(roots.len() > 20, "{roots:?}");
    }

    proptest! {
        #[test]
        fn deadlines_answer_as_a_list_would(steps in steps(), seed in any::<u64>()) {
            let mut tree = Deadlines::new(12, seed);
            let mut list = vec![None; 12];
            for (server, deadline, at, is_set) in steps {
                if is_set {
                    tree.set(Urgency::of_deadline(deadline), server, at);
                    list[server as usize] = Some((deadline, server, at));
                } else {
                    tree.remove(server);
                    list[server as usize] = None;
                }
                let all = || list.iter().flatten().copied();
                for probe in 0..21 {
                    let above = all().filter(|entry| entry.0 < probe).map(|entry| entry.2).min();
                    assert_eq!(
                        tree.earliest_above(Urgency::of_deadline(probe)),
                        above.unwrap_or(NEVER)
                    );
                    let expired = all().filter(|entry| entry.2 <= probe).min();
                    assert_eq!(
                        tree.most_urgent_expired(probe),
                        expired.map(|(deadline, server, _)| (Urgency::of_deadline(deadline), server))
                    );
                }
                assert_eq!(tree.earliest(), all().map(|entry| entry.2).min().unwrap_or(NEVER));
            }
        }
    }
}
