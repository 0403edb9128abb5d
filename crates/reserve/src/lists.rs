//! Many first-in, first-out lists through one pool of nodes: everything takes constant time, and
//! nothing is allocated after construction. A node is on one list of the pool at most.

use alloc::vec::Vec;

use crate::id::{Index, NOWHERE};
use crate::places::at_mut;

#[derive(Debug, Clone, Copy)]
struct Links {
    next: Index,
    previous: Index,
    list: Index,
}

#[derive(Debug, Clone, Copy)]
struct Ends {
    first: Index,
    last: Index,
}

const EMPTY: Ends = Ends {
    first: NOWHERE,
    last: NOWHERE,
};
const UNLINKED: Links = Links {
    next: NOWHERE,
    previous: NOWHERE,
    list: NOWHERE,
};

/// The lists, and the links of their nodes: of those that have been used.
#[derive(Debug)]
pub(crate) struct Lists {
    ends: Vec<Ends>,
    links: Vec<Links>,
}

impl Lists {
    /// `lists` empty lists for nodes below `nodes`.
    pub(crate) fn new(lists: u32, nodes: u32) -> Self {
        Lists {
            ends: Vec::with_capacity(lists as usize),
            links: Vec::with_capacity(nodes as usize),
        }
    }

    #[inline]
    fn ends(&self, list: Index) -> Ends {
        self.ends.get(list as usize).copied().unwrap_or(EMPTY)
    }

    #[inline]
    fn ends_mut(&mut self, list: Index) -> &mut Ends {
        at_mut(&mut self.ends, list, EMPTY)
    }

    #[inline]
    fn links(&self, node: Index) -> Links {
        self.links.get(node as usize).copied().unwrap_or(UNLINKED)
    }

    #[inline]
    pub(crate) fn first(&self, list: Index) -> Option<Index> {
        Some(self.ends(list).first).filter(|&first| first != NOWHERE)
    }

    #[inline]
    pub(crate) fn next(&self, node: Index) -> Option<Index> {
        Some(self.links(node).next).filter(|&next| next != NOWHERE)
    }

    #[inline]
    pub(crate) fn is_empty(&self, list: Index) -> bool {
        self.ends(list).first == NOWHERE
    }

    /// Returns whether a list has two nodes or more.
    #[inline]
    pub(crate) fn has_several(&self, list: Index) -> bool {
        let Ends { first, last } = self.ends(list);
        first != last
    }

    #[inline]
    pub(crate) fn contains(&self, node: Index) -> bool {
        self.links(node).list != NOWHERE
    }

    /// Adds a node that is on no list.
    #[inline]
    pub(crate) fn push_back(&mut self, list: Index, node: Index) {
        debug_assert!(!self.contains(node), "node {node} is on a list already");
        let previous = core::mem::replace(&mut self.ends_mut(list).last, node);
        let links = Links {
            next: NOWHERE,
            previous,
            list,
        };
        *at_mut(&mut self.links, node, UNLINKED) = links;
        match previous {
            NOWHERE => self.ends[list as usize].first = node,
            previous => self.links[previous as usize].next = node,
        }
    }

    /// Takes a node off the list it is on, if it is on one.
    #[inline]
    pub(crate) fn remove(&mut self, node: Index) {
        let Links {
            next,
            previous,
            list,
        } = self.links(node);
        if list == NOWHERE {
            return;
        }
        self.links[node as usize] = UNLINKED;
        match previous {
            NOWHERE => self.ends[list as usize].first = next,
            previous => self.links[previous as usize].next = next,
        }
        match next {
            NOWHERE => self.ends[list as usize].last = previous,
            next => self.links[next as usize].previous = previous,
        }
    }

    /// Puts the first node of a list last.
    #[inline]
    pub(crate) fn rotate(&mut self, list: Index) {
        if let Some(first) = self.first(list) {
            self.remove(first);
            self.push_back(list, first);
        }
    }

    /// Empties a list without visiting its nodes, which keep links that mean nothing: each must
    /// be [`reset`](Self::reset) before it is used again.
    pub(crate) fn clear(&mut self, list: Index) {
        *self.ends_mut(list) = EMPTY;
    }

    /// Makes a node one that is on no list, without looking at the list it may claim to be on.
    pub(crate) fn reset(&mut self, node: Index) {
        *at_mut(&mut self.links, node, UNLINKED) = UNLINKED;
    }

    /// Moves all nodes of a list, in order, in front of another. The nodes themselves are not
    /// visited: afterwards only [`pop_front`](Self::pop_front) and this may be used on either.
    pub(crate) fn splice(&mut self, from: Index, to: Index) {
        let Ends { first, last } = core::mem::replace(self.ends_mut(from), EMPTY);
        if first == NOWHERE {
            return;
        }
        let front = core::mem::replace(&mut self.ends_mut(to).first, first);
        self.links[last as usize].next = front;
        match front {
            NOWHERE => self.ends[to as usize].last = last,
            front => self.links[front as usize].previous = last,
        }
    }

    /// Takes the first node of a list, whatever list the node claims to be on.
    pub(crate) fn pop_front(&mut self, list: Index) -> Option<Index> {
        let first = self.first(list)?;
        let next = self.links[first as usize].next;
        self.links[first as usize] = UNLINKED;
        let ends = &mut self.ends[list as usize];
        ends.first = next;
        match next {
            NOWHERE => ends.last = NOWHERE,
            next => self.links[next as usize].previous = NOWHERE,
        }
        Some(first)
    }
}
