//! Whether a capability is valid: what it was derived from, up to the original.

use leasehold_abi::Errno;
use leasehold_reclaim::{Backing, Handle};

use crate::capability::{Capability, Derivation, Origin, Target};
use crate::link::Objects;
use crate::table;

/// How long a chain of derivations can be.
pub const DERIVATION_DEPTH: u8 = 16;

/// Follows a capability to its original: what it gives access to, if nothing on the way was
/// revoked or dropped, and the allowance that waits through it draw on, which is the nearest one.
/// At most [`DERIVATION_DEPTH`] steps.
#[inline]
pub(crate) fn trace<B: Backing>(
    groups: &Objects<B>,
    capability: &Capability,
) -> Result<Target, Errno> {
    match capability.origin {
        Origin::Object(object) => Ok(Target {
            object,
            allowance: None,
        }),
        Origin::Derived(derivation) => trace_derivation(groups, derivation),
    }
}

fn trace_derivation<B: Backing>(
    groups: &Objects<B>,
    mut derivation: Handle<Derivation>,
) -> Result<Target, Errno> {
    let mut allowance = None;
    loop {
        let &Derivation {
            object,
            parent,
            derived,
            granted,
        } = groups.get(derivation).ok_or(Errno::Gone)?;
        let parent = table::capability(groups, parent).ok_or(Errno::Gone)?;
        if parent.derived != derived {
            return Err(Errno::Gone);
        }
        allowance = allowance.or(granted.map(|granted| granted.allowance));
        match parent.origin {
            Origin::Object(_) => return Ok(Target { object, allowance }),
            Origin::Derived(above) => derivation = above,
        }
    }
}
