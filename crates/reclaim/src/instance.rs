//! The identity of a `Groups` in its process, to which handles belong.
//!
//! Handles are checked by comparing numbers, and a match leads to raw memory, so a handle of one
//! [`Groups`](crate::Groups) must never match a record of another. Each instance therefore holds
//! a number that is part of its group identifiers, and when a number is handed on, its next
//! holder starts at generations that the last one had not reached.

use core::sync::atomic::{AtomicU32, Ordering};

/// Bits of a group identifier that tell the record; the rest tell the instance.
pub(crate) const INDEX_BITS: u32 = 20;
const INSTANCES: usize = 1 << (32 - INDEX_BITS);

/// A number that is held, or used up.
const HELD: u32 = u32::MAX;
/// Beyond this generation a number is not handed on, so that every holder has plenty left.
const USED_UP: u32 = 0xF000_0000;

/// For each number that is free: a generation that none of its holders has gone beyond.
static REACHED: [AtomicU32; INSTANCES] = [const { AtomicU32::new(0) }; INSTANCES];

/// The number of one `Groups`, held until it is dropped.
#[derive(Debug)]
pub(crate) struct Instance {
    number: u16,
    /// No handle of the number exists with a generation beyond this one.
    pub(crate) reached: u32,
}

impl Instance {
    /// Takes a free number.
    ///
    /// # Panics
    /// If 4,096 instances exist at once in this process.
    pub(crate) fn take() -> Self {
        for (number, reached) in (0u16..).zip(&REACHED) {
            // Acquire/Release: the new holder sees the generation its predecessor left.
            let before = reached.swap(HELD, Ordering::AcqRel);
            if before != HELD {
                return Instance {
                    number,
                    reached: before,
                };
            }
        }
        panic!("more than {INSTANCES} reclamation group tables in one process");
    }

    pub(crate) const fn number(&self) -> u16 {
        self.number
    }

    /// The number as the high bits of group identifiers.
    pub(crate) const fn bits(&self) -> u32 {
        (self.number as u32) << INDEX_BITS
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if self.reached < USED_UP {
            REACHED[usize::from(self.number)].store(self.reached, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Instance;

    #[test]
    fn a_number_is_never_held_twice_at_once() {
        let (first, second) = (Instance::take(), Instance::take());
        assert_ne!(first.number(), second.number());
    }
}
