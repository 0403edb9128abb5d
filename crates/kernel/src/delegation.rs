//! Derivation, delegation, revocation: validity by ancestry.
//!
//! A derived capability stores its parent's place and the parent's derivation number. It is valid
//! if all its ancestors still exist with the same numbers, which is checked at every use, level by
//! level. So revoking, dropping a capability and ending its holder invalidate everything derived
//! from it, in whichever tenants it is, in O(1), and need no scrub entry (the semantics are M³'s
//! recursive revocation, BRR §IV, without its walk).

use leasehold_abi::{Errno, Rights};
use leasehold_reclaim::{Backing, Handle};

use crate::allowance;
use crate::capability::{
    Allowance, Capability, CapabilityKey, Derivation, Granted, ObjectClass, Origin, Selector,
    Source, Transfer,
};
use crate::derivation::{DERIVATION_DEPTH, trace};
use crate::id::TenantId;
use crate::kernel::{Kernel, KernelCosts};
use crate::link::{self, Link, Objects};
use crate::refusal::errno;
use crate::table;
use crate::tenant::record::Tenant;

impl<B: Backing> Kernel<B> {
    /// Makes a capability to the same object with at most the given rights. Needs
    /// [`Rights::GRANT`].
    ///
    /// # Errors
    /// Those of using a capability, [`Errno::Depth`] beyond [`DERIVATION_DEPTH`],
    /// [`Errno::Budget`], [`Errno::Memory`], [`Errno::TableFull`].
    pub fn capability_derive(
        &mut self,
        caller: TenantId,
        capability: Selector,
        rights: Rights,
    ) -> Result<Selector, Errno> {
        let transfer = self.transfer(caller, capability, rights)?;
        self.receive(caller, transfer)
    }

    /// Drops a capability; everything derived from it is invalid. If it is the original, its object
    /// ends: its waiters are woken with [`Errno::Gone`].
    ///
    /// O(waiters) for an original, of a channel also O(messages with capabilities), which its
    /// capacity bounds; O(log n) for a timer; O(1) otherwise.
    ///
    /// # Errors
    /// [`Errno::BadSelector`], [`Errno::Rights`] for [`Selector::OWN`], and [`Errno::Busy`] for
    /// the original of a tenant that has not ended.
    pub fn capability_drop(&mut self, caller: TenantId, capability: Selector) -> Result<(), Errno> {
        let (key, &held) = self.find(caller, capability)?;
        if capability.index() == Selector::OWN.index() {
            return Err(Errno::Rights);
        }
        if let Origin::Object(object) = held.origin {
            if held.class == ObjectClass::Tenant && self.child_lives(Handle::from_raw(object)) {
                return Err(Errno::Busy);
            }
            self.end_object(object, held.class);
        }
        self.vacate(caller, key, capability.index())
    }

    /// Invalidates everything derived from a capability, wherever it went; the capability
    /// itself stays valid. O(1).
    ///
    /// # Errors
    /// [`Errno::BadSelector`], [`Errno::Rights`] for [`Selector::OWN`].
    pub fn capability_revoke(
        &mut self,
        caller: TenantId,
        capability: Selector,
    ) -> Result<(), Errno> {
        let (key, held) = self.find(caller, capability)?;
        if capability.index() == Selector::OWN.index() {
            return Err(Errno::Rights);
        }
        let units = held.units;
        // After 2^32 revocations a number would repeat, and a derivation that was kept for all of
        // them would become valid again. The call is refused instead.
        let derived = held.derived.checked_add(1).ok_or(Errno::Limit)?;
        if let Some(held) = table::capability_mut(&mut self.groups, key) {
            held.derived = derived;
            held.units = 0;
        }
        self.groups
            .refund(self.group_of(caller)?, self.classes.grant, u64::from(units));
        Ok(())
    }

    /// Delegates a capability from one tenant to another, on behalf of the controller: `from` needs
    /// [`Rights::GRANT`] on it. `links` waits by foreign tenants are charged to the object's owner
    /// ([`Errno::Allowance`]).
    ///
    /// # Errors
    /// Those of [`capability_derive`](Self::capability_derive), for either tenant, and
    /// [`Errno::Allowance`] if `from` neither owns the object nor has as many links itself.
    pub fn connect(
        &mut self,
        from: TenantId,
        capability: Selector,
        to: TenantId,
        rights: Rights,
        links: u32,
    ) -> Result<Selector, Errno> {
        let transfer = self.transfer(from, capability, rights)?;
        if links == 0 {
            return self.receive(to, transfer);
        }
        let granted = self.grant_links(from, to, &transfer, links)?;
        let received = self.receive_granted(to, transfer, Some(granted));
        if received.is_err() {
            self.end_grant(granted);
        }
        received
    }

    /// Begins a delegation: checks the capability and [`Rights::GRANT`].
    pub(crate) fn transfer(
        &self,
        from: TenantId,
        selector: Selector,
        rights: Rights,
    ) -> Result<Transfer, Errno> {
        let (parent, &from) = self.find(from, selector)?;
        if !from.rights.contains(Rights::GRANT) {
            return Err(Errno::Rights);
        }
        if from.depth >= DERIVATION_DEPTH {
            return Err(Errno::Depth);
        }
        let target = trace(&self.groups, &from)?;
        self.groups.group_of(target.object).ok_or(Errno::Gone)?;
        Ok(Transfer {
            parent,
            from,
            rights: rights & from.rights,
            target,
        })
    }

    /// Completes a delegation without links.
    pub(crate) fn receive(&mut self, to: TenantId, transfer: Transfer) -> Result<Selector, Errno> {
        self.receive_granted(to, transfer, None)
    }

    /// Completes a delegation: one more capability in `to`'s table, charged to `to`.
    fn receive_granted(
        &mut self,
        to: TenantId,
        transfer: Transfer,
        granted: Option<Granted>,
    ) -> Result<Selector, Errno> {
        let Transfer {
            parent,
            from,
            rights,
            target,
        } = transfer;
        let (group, vacancy) = self.vacancy(to, self.costs.capability_ps)?;
        let derivation = Derivation {
            object: target.object,
            parent,
            derived: from.derived,
            granted,
        };
        let derivation = self
            .groups
            .alloc(group, self.classes.derivation, derivation)
            .map_err(errno)?;
        let capability = Capability {
            origin: Origin::Derived(derivation),
            derived: 0,
            units: 0,
            class: from.class,
            rights,
            depth: from.depth + 1,
        };
        self.install(to, vacancy, capability)
    }

    /// Makes the allowance of a delegation.
    fn grant_links(
        &mut self,
        from: TenantId,
        to: TenantId,
        transfer: &Transfer,
        n: u32,
    ) -> Result<Granted, Errno> {
        let unit = self.classes.grant;
        let payer = transfer.target.object.group();
        let own = self.group_of(from)? == payer;
        let holder = self.group_of(to)?;
        let KernelCosts {
            model,
            capability_ps,
            ..
        } = self.costs;
        let links = if own { u64::from(n) + 1 } else { 1 };
        // For either side what both need, which is right if they are the same.
        let all_ps = model
            .scrub_ps
            .saturating_mul(links)
            .saturating_add(model.page_ps);
        let all_ps = all_ps.saturating_add(capability_ps.saturating_mul(2));
        self.vacancy(to, all_ps)?;
        self.afford(payer, 3, all_ps)?;
        if holder != payer {
            let held_ps = [model.page_ps, model.scrub_ps, capability_ps];
            self.afford(
                holder,
                2,
                held_ps.iter().fold(0, |sum, ps| sum.saturating_add(*ps)),
            )?;
        }
        let source = if own {
            // The sum must not leave 32 bits, were links ever so cheap.
            transfer.from.units.checked_add(n).ok_or(Errno::Limit)?;
            self.groups
                .charge(payer, unit, u64::from(n))
                .map_err(errno)?;
            Source::Owner {
                key: transfer.parent,
                derived: transfer.from.derived,
            }
        } else {
            let allowance = transfer.target.allowance.ok_or(Errno::Allowance)?;
            allowance::divide(&mut self.groups, allowance, n)?;
            Source::Allowance(allowance)
        };
        let undo = |groups: &mut Objects<B>| match source {
            Source::Owner { .. } => groups.refund(payer, unit, u64::from(n)),
            Source::Allowance(allowance) => allowance::rejoin(groups, allowance, n),
        };
        let allowance = Allowance {
            left: n,
            delegated: 0,
            source,
            unit,
        };
        let allowance = match self.groups.alloc(payer, self.classes.allowance, allowance) {
            Ok(allowance) => allowance,
            Err(refused) => {
                undo(&mut self.groups);
                return Err(errno(refused));
            }
        };
        if let Source::Owner { key, .. } = source
            && let Some(owner) = table::capability_mut(&mut self.groups, key)
        {
            owner.units += n;
        }
        let mut granted = Granted {
            allowance,
            close: None,
        };
        if holder != payer {
            match self
                .groups
                .link(holder, Link::Close(link::Granted(allowance)))
            {
                Ok(close) => granted.close = Some(close),
                Err(refused) => {
                    self.end_grant(granted);
                    return Err(errno(refused));
                }
            }
        }
        Ok(granted)
    }

    /// Gives back the links that came with a capability which is no more.
    fn end_grant(&mut self, granted: Granted) {
        if let Some(close) = granted.close {
            self.groups.unlink(close);
        }
        allowance::close(&mut self.groups, granted.allowance);
    }

    /// Takes a capability out of its table, with what hangs on it.
    pub(crate) fn vacate(
        &mut self,
        tenant: TenantId,
        key: CapabilityKey,
        index: u32,
    ) -> Result<(), Errno> {
        let &Tenant {
            group, mut table, ..
        } = self.tenant(tenant)?;
        let held = table
            .vacate(&mut self.groups, key, index)
            .ok_or(Errno::BadSelector)?;
        self.tenant_mut(tenant)?.table = table;
        self.groups
            .refund(group, self.classes.grant, u64::from(held.units));
        if let Origin::Derived(derivation) = held.origin
            && let Some(Derivation {
                granted: Some(granted),
                ..
            }) = self.groups.free(derivation)
        {
            self.end_grant(granted);
        }
        Ok(())
    }
}
