//! The rights of a capability.

use core::fmt;
use core::ops::{BitAnd, BitOr};

/// A set of rights. Deriving and delegating can only take members away.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Rights(u8);

impl Rights {
    /// No right at all.
    pub const NONE: Rights = Rights(0);
    /// Down, receive, read, wait.
    pub const READ: Rights = Rights(1);
    /// Up, send, write, set; for a tenant: put capabilities into its table.
    pub const WRITE: Rights = Rights(2);
    /// Derive and delegate.
    pub const GRANT: Rights = Rights(4);
    /// Stop or end.
    pub const END: Rights = Rights(8);
    /// Every right.
    pub const ALL: Rights = Rights(15);

    /// Returns the set with these bits, or `None` if one of them is no right.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Option<Rights> {
        if bits <= Rights::ALL.0 as u32 {
            Some(Rights(bits as u8))
        } else {
            None
        }
    }

    /// Returns the bits of the set.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0 as u32
    }

    /// Returns whether every right in `other` is in this set.
    #[must_use]
    #[inline]
    pub const fn contains(self, other: Rights) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitAnd for Rights {
    type Output = Rights;
    fn bitand(self, other: Rights) -> Rights {
        Rights(self.0 & other.0)
    }
}

impl BitOr for Rights {
    type Output = Rights;
    fn bitor(self, other: Rights) -> Rights {
        Rights(self.0 | other.0)
    }
}

impl fmt::Debug for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = ["READ", "WRITE", "GRANT", "END"];
        let mut set = f.debug_set();
        for (bit, name) in names.iter().enumerate() {
            if self.0 & (1 << bit) != 0 {
                set.entry(&format_args!("{name}"));
            }
        }
        set.finish()
    }
}
