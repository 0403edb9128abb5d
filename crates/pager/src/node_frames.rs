//! The frames of a node that no reservation has, and how many of the others are borrowed.

use crate::frame::{Frame, Frames, Stack};

/// The frames of a node. Those that hold no page are on stacks: the unreserved ones here, the others
/// with their reservations.
#[derive(Debug, Clone)]
pub(crate) struct NodeFrames {
    stacks: Frames,
    unreserved: Stack,
    /// Frames that firm reservations have beyond their size.
    borrowed: u32,
}

impl NodeFrames {
    /// A node of `frames` frames, all unreserved.
    pub(crate) fn new(frames: u32) -> Self {
        let (stacks, unreserved) = Frames::new(frames);
        NodeFrames {
            stacks,
            unreserved,
            borrowed: 0,
        }
    }

    pub(crate) fn total(&self) -> u32 {
        self.stacks.total()
    }

    pub(crate) const fn unreserved(&self) -> u32 {
        self.unreserved.len()
    }

    pub(crate) const fn borrowed(&self) -> u32 {
        self.borrowed
    }

    /// Takes an unreserved frame.
    pub(crate) fn take(&mut self) -> Option<Frame> {
        self.stacks.pop(&mut self.unreserved)
    }

    /// Makes a frame unreserved.
    pub(crate) fn put(&mut self, frame: Frame) {
        self.stacks.push(&mut self.unreserved, frame);
    }

    /// Takes an unreserved frame that is to be given back.
    pub(crate) fn lend(&mut self) -> Option<Frame> {
        let frame = self.take()?;
        self.borrowed += 1;
        Some(frame)
    }

    /// Takes a lent frame back.
    pub(crate) fn take_back(&mut self, frame: Frame) {
        self.put(frame);
        self.borrowed -= 1;
    }

    /// Moves `n` unreserved frames, which must be there, to a reservation.
    pub(crate) fn set_aside(&mut self, to: &mut Stack, n: u32) {
        self.stacks.shift(&mut self.unreserved, to, n);
    }

    /// Makes all frames of a reservation unreserved, `borrowed` of which were lent. Constant time.
    pub(crate) fn release(&mut self, from: &mut Stack, borrowed: u32) {
        self.stacks.append(from, &mut self.unreserved);
        self.borrowed -= borrowed;
    }

    /// Puts a frame on a reservation's stack.
    #[inline]
    pub(crate) fn push(&mut self, stack: &mut Stack, frame: Frame) {
        self.stacks.push(stack, frame);
    }

    /// Takes a frame off a reservation's stack.
    #[inline]
    pub(crate) fn pop(&mut self, stack: &mut Stack) -> Option<Frame> {
        self.stacks.pop(stack)
    }

    /// The frames of a reservation's stack, the top first.
    pub(crate) fn iter(&self, stack: &Stack) -> impl Iterator<Item = Frame> {
        self.stacks.iter(stack)
    }

    /// The unreserved frames.
    pub(crate) fn iter_unreserved(&self) -> impl Iterator<Item = Frame> {
        self.stacks.iter(&self.unreserved)
    }
}

#[cfg(test)]
mod tests {
    use super::NodeFrames;
    use crate::frame::Stack;
    use alloc::vec::Vec;

    #[test]
    fn every_frame_is_unreserved_reserved_or_lent() {
        let mut node = NodeFrames::new(8);
        let mut free = Stack::EMPTY;
        node.set_aside(&mut free, 5);
        assert_eq!((node.unreserved(), free.len(), node.borrowed()), (3, 5, 0));
        let lent = node.lend().expect("three are unreserved");
        node.push(&mut free, lent);
        assert_eq!((node.unreserved(), free.len(), node.borrowed()), (2, 6, 1));
        let back = node.pop(&mut free).expect("it has six");
        node.take_back(back);
        assert_eq!((node.unreserved(), free.len(), node.borrowed()), (3, 5, 0));
        let mut all: Vec<_> = node.iter(&free).chain(node.iter_unreserved()).collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len() as u32, node.total());
    }

    #[test]
    fn what_ends_gives_back_what_it_had_and_what_it_borrowed() {
        let mut node = NodeFrames::new(4);
        let mut free = Stack::EMPTY;
        node.set_aside(&mut free, 2);
        while let Some(frame) = node.lend() {
            node.push(&mut free, frame);
        }
        assert_eq!((node.unreserved(), node.borrowed()), (0, 2));
        assert!(node.take().is_none());
        node.release(&mut free, 2);
        assert_eq!((node.unreserved(), free.len(), node.borrowed()), (4, 0, 0));
    }
}
