//! Frames: the units of physical memory, and the stacks of those that hold no page.

use alloc::vec::Vec;

use crate::table::NIL;

/// Bytes of a frame and of a page (SPC §V: 4 KiB page frames).
pub const PAGE: u64 = 4096;

/// A frame of the node's memory, by number from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frame(pub(crate) u32);

impl Frame {
    /// Number of the frame, from 0 to the frames of the node − 1.
    pub const fn index(self) -> u32 {
        self.0
    }
}

/// Frames that hold no page: a reservation's free list, its conserved-page list, or the
/// unreserved frames of the node.
///
/// The order of frames is arbitrary, so a stack suffices: the frame used last is the one most
/// likely in the processor's cache.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stack {
    top: u32,
    /// Only meaningful if there is a top.
    bottom: u32,
    len: u32,
}

impl Stack {
    pub(crate) const EMPTY: Stack = Stack {
        top: NIL,
        bottom: NIL,
        len: 0,
    };

    pub(crate) const fn len(&self) -> u32 {
        self.len
    }
}

/// The chains of all stacks: the frame below each frame.
#[derive(Debug, Clone)]
pub(crate) struct Frames {
    below: Vec<u32>,
}

impl Frames {
    /// All frames of a node, and the stack that holds them.
    pub(crate) fn new(frames: u32) -> (Self, Stack) {
        let mut all = Frames {
            below: alloc::vec![NIL; frames as usize],
        };
        let mut stack = Stack::EMPTY;
        for frame in (0..frames).rev() {
            all.push(&mut stack, Frame(frame));
        }
        (all, stack)
    }

    pub(crate) fn total(&self) -> u32 {
        self.below.len() as u32
    }

    #[inline]
    pub(crate) fn push(&mut self, stack: &mut Stack, frame: Frame) {
        self.below[frame.0 as usize] = stack.top;
        if stack.top == NIL {
            stack.bottom = frame.0;
        }
        stack.top = frame.0;
        stack.len += 1;
    }

    #[inline]
    pub(crate) fn pop(&mut self, stack: &mut Stack) -> Option<Frame> {
        if stack.top == NIL {
            return None;
        }
        let frame = stack.top;
        stack.top = self.below[frame as usize];
        stack.len -= 1;
        Some(Frame(frame))
    }

    /// Moves all frames, in constant time.
    pub(crate) fn append(&mut self, from: &mut Stack, to: &mut Stack) {
        if from.top == NIL {
            return;
        }
        self.below[from.bottom as usize] = to.top;
        let bottom = if to.top == NIL {
            from.bottom
        } else {
            to.bottom
        };
        *to = Stack {
            top: from.top,
            bottom,
            len: from.len + to.len,
        };
        *from = Stack::EMPTY;
    }

    /// The frames of a stack, the top first.
    pub(crate) fn iter(&self, stack: &Stack) -> impl Iterator<Item = Frame> {
        let mut at = stack.top;
        core::iter::from_fn(move || {
            let frame = (at != NIL).then_some(Frame(at))?;
            at = self.below[at as usize];
            Some(frame)
        })
    }
}
