//! Allowances: the number of links that foreign tenants may make at the expense of an object's
//! group.
//!
//! A *foreign tenant* of an object is a tenant outside the subtree of
//! groups that ends with the object. While it waits for the object, the object's group has a scrub
//! entry to wake it, and its budget pays for that. A hostile service must not spend its client's
//! budget, so the number of such entries is fixed when a capability is delegated. At that time `n`
//! links are charged to the object's group. A wait by the foreign tenant takes one of them and
//! returns it afterwards. When none is left, the *foreign tenant* is refused
//! ([`Errno::Allowance`]).
//!
//! Links move and are never copied: links that are delegated further are taken from the allowance
//! of the delegator. They come back when the capability they were granted with is dropped or its
//! holder ends: to the delegator's allowance or, if the object's owner granted them itself, to its
//! budget. When the owner revokes or drops the capability it granted them from, the charge of all
//! of them is given back in O(1), because the owner's capability has the sum.
//!
//! Capabilities sent through channels carry no links of their own.

use leasehold_abi::Errno;
use leasehold_reclaim::{Backing, Handle};

use crate::capability::{Allowance, Source};
use crate::link::Objects;
use crate::table;

/// Takes one link out: its charge is free for the scrub entry that the caller makes next.
/// O(depth of the delegation).
pub(crate) fn take<B: Backing>(
    groups: &mut Objects<B>,
    handle: Handle<Allowance>,
) -> Result<(), Errno> {
    let allowance = live(groups, handle).ok_or(Errno::Allowance)?;
    let left = allowance.left.checked_sub(1).ok_or(Errno::Allowance)?;
    if let Some(allowance) = groups.get_mut(handle) {
        allowance.left = left;
    }
    tally(groups, allowance.source, |units| units - 1);
    groups.refund(handle.raw().group(), allowance.unit, 1);
    Ok(())
}

/// Puts one link back whose scrub entry was just unlinked. If the allowance was closed or
/// revoked meanwhile, the charge stays given back.
pub(crate) fn put_back<B: Backing>(groups: &mut Objects<B>, handle: Handle<Allowance>) {
    let Some(allowance) = live(groups, handle) else {
        return;
    };
    let charged = groups.charge(handle.raw().group(), allowance.unit, 1);
    debug_assert!(
        charged.is_ok(),
        "the scrub entry's charge was given back just now"
    );
    if charged.is_err() {
        return;
    }
    if let Some(allowance) = groups.get_mut(handle) {
        allowance.left += 1;
    }
    tally(groups, allowance.source, |units| units + 1);
}

/// Sets `n` links aside for a delegation by a tenant that holds them itself.
pub(crate) fn divide<B: Backing>(
    groups: &mut Objects<B>,
    handle: Handle<Allowance>,
    n: u32,
) -> Result<(), Errno> {
    live(groups, handle).ok_or(Errno::Allowance)?;
    let allowance = groups.get_mut(handle).ok_or(Errno::Allowance)?;
    allowance.left = allowance.left.checked_sub(n).ok_or(Errno::Allowance)?;
    allowance.delegated += n;
    Ok(())
}

/// Ends an allowance; its links return to their source, unless a revocation has already returned
/// them.
pub(crate) fn close<B: Backing>(groups: &mut Objects<B>, handle: Handle<Allowance>) {
    let is_live = live(groups, handle).is_some();
    let Some(Allowance {
        left,
        delegated,
        source,
        unit,
    }) = groups.free(handle)
    else {
        return;
    };
    let n = left + delegated;
    if !is_live {
        return;
    }
    match source {
        Source::Owner { .. } => {
            tally(groups, source, |units| units - n);
            groups.refund(handle.raw().group(), unit, u64::from(n));
        }
        Source::Allowance(source) => rejoin(groups, source, n),
    }
}

/// Gives back `n` links that were [divided](divide) from an allowance.
pub(crate) fn rejoin<B: Backing>(groups: &mut Objects<B>, handle: Handle<Allowance>, n: u32) {
    if let Some(allowance) = groups.get_mut(handle) {
        allowance.left += n;
        allowance.delegated -= n;
    }
}

/// Changes the sums of all delegators, up to the owner's capability.
fn tally<B: Backing>(groups: &mut Objects<B>, mut source: Source, change: impl Fn(u32) -> u32) {
    loop {
        match source {
            Source::Owner { key, .. } => {
                if let Some(owner) = table::capability_mut(groups, key) {
                    owner.units = change(owner.units);
                }
                return;
            }
            Source::Allowance(handle) => {
                let Some(allowance) = groups.get_mut(handle) else {
                    return;
                };
                allowance.delegated = change(allowance.delegated);
                source = allowance.source;
            }
        }
    }
}

/// Returns the allowance, if its links are still valid: no allowance or capability on their way was
/// closed or revoked.
fn live<B: Backing>(groups: &Objects<B>, handle: Handle<Allowance>) -> Option<Allowance> {
    let allowance = *groups.get(handle)?;
    let mut source = allowance.source;
    loop {
        match source {
            Source::Owner { key, derived } => {
                let owner = table::capability(groups, key)?;
                return (owner.derived == derived).then_some(allowance);
            }
            Source::Allowance(handle) => source = groups.get(handle)?.source,
        }
    }
}
