//! Why a call was refused.

use core::fmt;

macro_rules! errors {
    ($($(#[$documentation:meta])* $variant:ident = $number:literal, $name:literal, $reason:literal;)*) => {
        /// Why a call was refused. A refused call has no effect (but see [`Errno::Memory`]).
        ///
        /// The numbers are stable: functions of core modules return them negated.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum Errno {
            $($(#[$documentation])* $variant = $number,)*
        }

        impl Errno {
            /// Every error, in the order of their numbers.
            pub const ALL: [Errno; [$($number),*].len()] = [$(Errno::$variant),*];

            /// Returns the name that `wit/kernel.wit` gives the error.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Errno::$variant => $name,)*
                }
            }

            /// Returns the error with this number, if there is one.
            #[must_use]
            pub const fn from_number(number: u64) -> Option<Errno> {
                match number {
                    $($number => Some(Errno::$variant),)*
                    _ => None,
                }
            }
        }

        impl fmt::Display for Errno {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Errno::$variant => $reason,)*
                })
            }
        }
    };
}

errors! {
    /// The selector names no capability of the caller: it never did, or it was dropped.
    BadSelector = 1, "bad-selector", "no such capability";
    /// The capability is for an object of another class.
    BadClass = 2, "bad-class", "capability of another class";
    /// The capability does not carry the right that the call needs.
    Rights = 3, "rights", "the capability does not carry the right";
    /// The object has ended, or the capability was revoked.
    Gone = 4, "gone", "the object has ended or the capability was revoked";
    /// The reclamation budget does not pay for it (BRR §III).
    Budget = 5, "budget", "the reclamation budget does not pay for it";
    /// The arena is full, or the memory reservation is used up. This is the one refusal after
    /// which more may be *charged* than before (a table that has already grown keeps its room);
    /// no object, capability or link has appeared.
    Memory = 6, "memory", "out of memory";
    /// The capability table has reached its bound.
    TableFull = 7, "table-full", "the capability table is full";
    /// The channel has no room now.
    Full = 8, "full", "the channel is full";
    /// Nothing to take now.
    Empty = 9, "empty", "nothing to take";
    /// Beyond what the object, or the caller's buffer, can hold.
    TooLarge = 10, "too-large", "too large";
    /// Too many derivations or tenants inside one another.
    Depth = 11, "depth", "too deeply nested";
    /// The owner of the object has not granted so many links to foreign tenants.
    Allowance = 12, "allowance", "no link left in the allowance";
    /// An argument makes no sense.
    Invalid = 13, "invalid", "invalid argument";
    /// The object is in use.
    Busy = 14, "busy", "busy";
    /// A limit of this cell is reached.
    Limit = 15, "limit", "a limit of the cell is reached";
}

impl Errno {
    /// Returns the stable number.
    #[must_use]
    pub const fn number(self) -> u32 {
        self as u32
    }
}

impl core::error::Error for Errno {}

#[cfg(test)]
mod tests {
    use super::Errno;

    #[test]
    fn numbers_begin_at_one_and_leave_none_out() {
        for (errno, number) in Errno::ALL.into_iter().zip(1_u32..) {
            assert_eq!(errno.number(), number);
            assert_eq!(Errno::from_number(number.into()), Some(errno));
        }
        assert_eq!(Errno::from_number(0), None);
        assert_eq!(Errno::from_number(Errno::ALL.len() as u64 + 1), None);
    }
}
