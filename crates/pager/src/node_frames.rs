//! The frames of a node that no reservation has, and how many of the others are borrowed.

use crate::frame::{Frame, Frames, Stack};
use crate::refused::Refused;

/// The frames of a node. Those that hold no page are on stacks: the unreserved ones here, the others
/// with their reservations.
#[derive(Debug, Clone)]
pub(crate) struct NodeFrames {
    stacks: Frames,
    unreserved: Stack,
    /// Frames that firm reservations have beyond their size.
    borrowed: u32,
    /// Frames that reservations were promised and do not have yet: never more than the unreserved
    /// and borrowed ones together.
    promised: u32,
}

impl NodeFrames {
    /// A node of `frames` frames, all unreserved.
    pub(crate) fn new(frames: u32) -> Self {
        let (stacks, unreserved) = Frames::new(frames);
        NodeFrames {
            stacks,
            unreserved,
            borrowed: 0,
            promised: 0,
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

    pub(crate) const fn promised(&self) -> u32 {
        self.promised
    }

    /// Unreserved and borrowed frames that were not promised.
    pub(crate) const fn left(&self) -> u32 {
        self.unreserved.len() + self.borrowed - self.promised
    }

    /// Promises `n` frames.
    ///
    /// # Errors
    /// [`Refused::Frames`] if fewer are left.
    pub(crate) const fn promise(&mut self, n: u32) -> Result<(), Refused> {
        let left = self.left();
        if n > left {
            return Err(Refused::Frames { needed: n, left });
        }
        self.promised += n;
        Ok(())
    }

    /// Takes an unreserved frame that was promised.
    pub(crate) fn take_promised(&mut self) -> Option<Frame> {
        let frame = self.stacks.pop(&mut self.unreserved)?;
        self.promised -= 1;
        Some(frame)
    }

    /// Gives up a promise of `n` frames.
    pub(crate) const fn forgo(&mut self, n: u32) {
        self.promised -= n;
    }

    /// Takes an unreserved frame for good, unless each that could be had was promised.
    pub(crate) fn take(&mut self) -> Option<Frame> {
        match self.left() {
            0 => None,
            _ => self.stacks.pop(&mut self.unreserved),
        }
    }

    /// Makes a frame unreserved.
    pub(crate) fn put(&mut self, frame: Frame) {
        self.stacks.push(&mut self.unreserved, frame);
    }

    /// Takes an unreserved frame that is to be given back. None is lent that was promised.
    pub(crate) fn lend(&mut self) -> Option<Frame> {
        if self.unreserved.len() <= self.promised {
            return None;
        }
        let frame = self.stacks.pop(&mut self.unreserved)?;
        self.borrowed += 1;
        Some(frame)
    }

    /// Takes a lent frame back.
    pub(crate) fn take_back(&mut self, frame: Frame) {
        self.put(frame);
        self.borrowed -= 1;
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

    fn set_aside(node: &mut NodeFrames, free: &mut Stack, n: u32) {
        node.promise(n).expect("so many are left");
        for _ in 0..n {
            let frame = node.take_promised().expect("it was promised");
            node.push(free, frame);
        }
    }

    #[test]
    fn what_was_promised_is_neither_lent_nor_taken() {
        let mut node = NodeFrames::new(4);
        node.promise(3).expect("four are left");
        assert!(node.promise(2).is_err());
        let lent = node.lend().expect("one was not promised");
        assert!(node.lend().is_none());
        assert_eq!((node.unreserved(), node.borrowed(), node.left()), (3, 1, 1));
        let taken = node.take().expect("what is lent comes back");
        assert!(node.take().is_none());
        node.put(taken);
        node.take_back(lent);
        assert_eq!(node.left(), 1);
        node.forgo(3);
        assert_eq!(node.left(), 4);
    }

    #[test]
    fn every_frame_is_unreserved_reserved_or_lent() {
        let mut node = NodeFrames::new(8);
        let mut free = Stack::EMPTY;
        set_aside(&mut node, &mut free, 5);
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
        set_aside(&mut node, &mut free, 2);
        while let Some(frame) = node.lend() {
            node.push(&mut free, frame);
        }
        assert_eq!((node.unreserved(), node.borrowed()), (0, 2));
        assert!(node.take().is_none());
        node.release(&mut free, 2);
        assert_eq!((node.unreserved(), free.len(), node.borrowed()), (4, 0, 0));
    }
}
