//! Selectors, and the operations on any capability.

use leasehold_abi::{Errno, Rights};

use crate::abi;
use crate::answer::{done, selector};

/// The name of a capability in the capability table of this tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Selector(u32);

impl Selector {
    /// The tenant itself.
    pub const SELF: Selector = Selector(0);

    /// The capability with this number: one that the controller endowed (1, 2, …), or that
    /// another task of the tenant told.
    #[must_use]
    pub const fn new(number: u32) -> Selector {
        Selector(number)
    }

    /// The number.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }

    /// A new capability to the same object, with no more than `rights`.
    ///
    /// # Errors
    /// [`Errno::Rights`] without [`Rights::GRANT`]; [`Errno::Budget`], [`Errno::Memory`] or
    /// [`Errno::TableFull`] when the lease does not cover one more capability.
    pub fn derive(self, rights: Rights) -> Result<Selector, Errno> {
        selector(abi::capability_derive(self.0, rights.bits()))
    }

    /// Gives the capability up.
    ///
    /// # Errors
    /// [`Errno::BadSelector`] if it names nothing.
    pub fn release(self) -> Result<(), Errno> {
        done(abi::capability_drop(self.0))
    }

    /// Invalidates everything derived from the capability, whichever tenants hold it, in constant
    /// time.
    ///
    /// # Errors
    /// [`Errno::BadSelector`] if it names nothing.
    pub fn revoke(self) -> Result<(), Errno> {
        done(abi::capability_revoke(self.0))
    }
}

/// Defines a kernel object's type: a selector whose class is known.
macro_rules! object {
    ($(#[$documentation:meta])* $name:ident) => {
        $(#[$documentation])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name($crate::Selector);

        impl $name {
            /// The object that `selector` names: endowed, granted or received. The kernel checks
            /// the class at every use.
            #[must_use]
            pub const fn from_selector(selector: $crate::Selector) -> Self {
                Self(selector)
            }

            /// The capability, to derive from, delegate, revoke or release.
            #[must_use]
            pub const fn selector(self) -> $crate::Selector {
                self.0
            }
        }
    };
}
pub(crate) use object;
