//! Many leftist heaps (Crane 1972) through one pool of nodes: the earliest key of a heap is found
//! in constant time, adding and taking out any node takes O(log n) in the worst case, and nothing
//! is allocated after construction. A node is in one heap of the pool at most.

use alloc::vec::Vec;

use crate::id::{Index, NOWHERE};
use crate::places::at_mut;

#[derive(Debug, Clone, Copy)]
struct Node {
    key: u64,
    left: Index,
    right: Index,
    /// The node above; of a root, nothing.
    parent: Index,
    /// Nodes on the shortest way down to a missing child; zero: not in a heap.
    rank: u32,
}

const OUTSIDE: Node = Node {
    key: 0,
    left: NOWHERE,
    right: NOWHERE,
    parent: NOWHERE,
    rank: 0,
};

/// The heaps, and their nodes: those that have been used.
#[derive(Debug)]
pub(crate) struct Heaps {
    roots: Vec<Index>,
    nodes: Vec<Node>,
}

impl Heaps {
    /// `heaps` empty heaps for nodes below `nodes`.
    pub(crate) fn new(heaps: u32, nodes: u32) -> Self {
        Heaps {
            roots: Vec::with_capacity(heaps as usize),
            nodes: Vec::with_capacity(nodes as usize),
        }
    }

    #[inline]
    fn root(&self, heap: Index) -> Index {
        self.roots.get(heap as usize).copied().unwrap_or(NOWHERE)
    }

    /// The node with the smallest key, and the key.
    #[inline]
    pub(crate) fn first(&self, heap: Index) -> Option<(u64, Index)> {
        let root = self.root(heap);
        (root != NOWHERE).then(|| (self.nodes[root as usize].key, root))
    }

    /// The smallest key of all nodes but one.
    pub(crate) fn first_but(&self, heap: Index, node: Index) -> Option<u64> {
        let (key, root) = self.first(heap)?;
        if root != node {
            return Some(key);
        }
        let Node { left, right, .. } = self.nodes[root as usize];
        [left, right]
            .into_iter()
            .filter(|&child| child != NOWHERE)
            .map(|child| self.nodes[child as usize].key)
            .min()
    }

    #[inline]
    pub(crate) fn contains(&self, node: Index) -> bool {
        let node = self.nodes.get(node as usize);
        node.is_some_and(|node| node.rank != 0)
    }

    /// Adds a node that is in no heap.
    pub(crate) fn insert(&mut self, heap: Index, node: Index, key: u64) {
        debug_assert!(!self.contains(node), "node {node} is in a heap already");
        *at_mut(&mut self.nodes, node, OUTSIDE) = Node {
            key,
            rank: 1,
            ..OUTSIDE
        };
        let root = self.merge(self.root(heap), node);
        self.set_root(heap, root);
    }

    /// Takes a node out of `heap`, if it is in it.
    pub(crate) fn remove(&mut self, heap: Index, node: Index) {
        if !self.contains(node) {
            return;
        }
        let taken = core::mem::replace(&mut self.nodes[node as usize], OUTSIDE);
        self.set_parent(taken.left, NOWHERE);
        self.set_parent(taken.right, NOWHERE);
        let merged = self.merge(taken.left, taken.right);
        if taken.parent == NOWHERE {
            self.set_root(heap, merged);
            return;
        }
        self.set_parent(merged, taken.parent);
        let above = &mut self.nodes[taken.parent as usize];
        if above.left == node {
            above.left = merged;
        } else {
            above.right = merged;
        }
        self.balance(taken.parent, true);
    }

    /// Takes the first node of a heap if its key is `until` or less.
    pub(crate) fn pop_until(&mut self, heap: Index, until: u64) -> Option<Index> {
        let (key, node) = self.first(heap)?;
        if key > until {
            return None;
        }
        self.remove(heap, node);
        Some(node)
    }

    /// Empties a heap without visiting its nodes: each must be [`reset`](Self::reset) before it
    /// is used again.
    pub(crate) fn clear(&mut self, heap: Index) {
        *at_mut(&mut self.roots, heap, NOWHERE) = NOWHERE;
    }

    /// Makes a node one that is in no heap, without looking at the heap it may claim to be in.
    pub(crate) fn reset(&mut self, node: Index) {
        *at_mut(&mut self.nodes, node, OUTSIDE) = OUTSIDE;
    }

    fn set_root(&mut self, heap: Index, root: Index) {
        *at_mut(&mut self.roots, heap, NOWHERE) = root;
        self.set_parent(root, NOWHERE);
    }

    fn set_parent(&mut self, node: Index, parent: Index) {
        if node != NOWHERE {
            self.nodes[node as usize].parent = parent;
        }
    }

    fn rank(&self, node: Index) -> u32 {
        if node == NOWHERE {
            0
        } else {
            self.nodes[node as usize].rank
        }
    }

    /// Makes one heap of two, and returns its root. Visits the right spines of both: O(log n).
    fn merge(&mut self, mut a: Index, mut b: Index) -> Index {
        if a == NOWHERE {
            return b;
        }
        if b == NOWHERE {
            return a;
        }
        let mut above = NOWHERE;
        let mut root = NOWHERE;
        while a != NOWHERE {
            if self.nodes[b as usize].key < self.nodes[a as usize].key {
                core::mem::swap(&mut a, &mut b);
            }
            // `a` is the earlier one: it comes here, and the rest to its right.
            self.set_parent(a, above);
            if above == NOWHERE {
                root = a;
            } else {
                self.nodes[above as usize].right = a;
            }
            above = a;
            a = self.nodes[a as usize].right;
        }
        self.nodes[above as usize].right = b;
        self.set_parent(b, above);
        self.balance(above, false);
        root
    }

    /// Puts the child of lower rank to the right, from a node upwards: to the root, or until a
    /// rank stays as it was. Ranks that change grow by one per level: O(log n).
    fn balance(&mut self, mut at: Index, until_same: bool) {
        while at != NOWHERE {
            let Node {
                left, right, rank, ..
            } = self.nodes[at as usize];
            let (of_left, of_right) = (self.rank(left), self.rank(right));
            let node = &mut self.nodes[at as usize];
            if of_left < of_right {
                (node.left, node.right) = (right, left);
            }
            node.rank = of_left.min(of_right) + 1;
            if until_same && node.rank == rank {
                return;
            }
            at = node.parent;
        }
    }
}
