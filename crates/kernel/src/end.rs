//! Ending tenants: in bounded steps.
//!
//! The end of a tenant takes its one entry out of the deadlines above it, tells its parent, and
//! reclaims its group, which severs the links on the scrub lists and nothing else. The objects of
//! the tenant and its descendants are not visited, except in [`Mode::Individual`], the baseline.
//! That mode first sweeps the capability tables: it drops each capability as its holder would,
//! which takes its object off every queue, one by one.

use leasehold_abi::Errno;
use leasehold_reclaim::{Backing, Handle, Mode, Outcome, Progress, RawHandle, Reclaim, Sever};

use crate::allowance;
use crate::capability::{ObjectClass, Origin};
use crate::execution::Executions;
use crate::id::{ExecutionId, TenantId};
use crate::kernel::Kernel;
use crate::link::{Granted, Link, Objects};
use crate::object::tenant::state::Child;
use crate::tenant::record::Tenant;

/// The cell's operations for the end of a tenant.
pub trait Host {
    /// The execution's tenant has ended: it must not run again, nor call the kernel. Called
    /// once for each execution of the tenant and of those below it; the kernel has forgotten
    /// it already.
    fn stop_execution(&mut self, execution: ExecutionId);
}

impl<F: FnMut(ExecutionId)> Host for F {
    fn stop_execution(&mut self, execution: ExecutionId) {
        self(execution);
    }
}

/// Severs the links of an ending group. O(1) each, except that one freed place in a channel may
/// wake several senders.
struct Severing<'a, H> {
    executions: &'a mut Executions,
    host: &'a mut H,
}

impl<B: Backing, H: Host> Sever<B, Link> for Severing<'_, H> {
    fn sever(&mut self, groups: &mut Objects<B>, link: Link) {
        match link {
            Link::Stop(id) => {
                if self.executions.remove(groups, id).is_some() {
                    self.host.stop_execution(id);
                }
            }
            Link::Wake(id) => self.executions.wake_foreign(groups, id),
            Link::Close(Granted(allowance)) => allowance::close(groups, allowance),
        }
    }
}

/// The end of a tenant, in progress.
///
/// In [`Mode::Grouped`] the tenant is unusable from the beginning. If the end is not stepped to
/// [`Progress::Reusable`], memory and budget stay with the dead tenant until its root ends.
#[derive(Debug)]
#[must_use = "a tenant that has only begun to end keeps its memory"]
pub struct End {
    /// The group that is swept now, in [`Mode::Individual`], up to the tenant itself.
    sweep: Option<TenantId>,
    tenant: TenantId,
    reclaim: Option<Reclaim>,
    swept: Outcome,
}

impl End {
    /// The work done so far.
    pub fn outcome(&self) -> Outcome {
        let done = self
            .reclaim
            .as_ref()
            .map(Reclaim::outcome)
            .unwrap_or_default();
        Outcome {
            steps: done.steps + self.swept.steps,
            scrubbed: done.scrubbed + self.swept.scrubbed,
            groups: done.groups + self.swept.groups,
            objects: done.objects + self.swept.objects,
            ..done
        }
    }
}

impl<B: Backing> Kernel<B> {
    /// Begins to end a tenant and all tenants below it.
    ///
    /// # Errors
    /// [`Errno::Gone`] if it has ended already.
    pub fn begin_end(&mut self, tenant: TenantId) -> Result<End, Errno> {
        self.tenant(tenant)?;
        let mut end = End {
            sweep: None,
            tenant,
            reclaim: None,
            swept: Outcome::default(),
        };
        match self.config.reclaim.mode {
            Mode::Grouped => end.reclaim = Some(self.begin_reclaim(tenant)?),
            Mode::Individual => end.sweep = Some(tenant),
        }
        Ok(end)
    }

    /// Continues the end of a tenant: up to `limit` units of work (at least one), or one slice of
    /// pages.
    pub fn step_end(&mut self, end: &mut End, host: &mut impl Host, limit: u32) -> Progress {
        let mut left = limit.max(1);
        while let Some(tenant) = end.sweep {
            if left == 0 {
                return Progress::Working;
            }
            left -= 1;
            end.swept.steps += 1;
            end.sweep = self.sweep(end, tenant, host);
            if end.sweep.is_none() && end.reclaim.is_none() {
                let Ok(reclaim) = self.begin_reclaim(end.tenant) else {
                    return Progress::Done;
                };
                end.reclaim = Some(reclaim);
            }
        }
        let Some(reclaim) = &mut end.reclaim else {
            return Progress::Done;
        };
        let mut severing = Severing {
            executions: &mut self.executions,
            host,
        };
        reclaim.step(&mut self.groups, &mut severing, left.max(1))
    }

    /// Ends a tenant and all tenants below it, pages returned included.
    ///
    /// Work: for a top-level tenant, the scrub entries of its tree (its executions, the foreign
    /// tenants that wait, the links it was granted) and the pages of its arena that are not kept;
    /// for a child, also the tenants below it.
    ///
    /// # Errors
    /// [`Errno::Gone`] if it has ended already.
    pub fn end(&mut self, tenant: TenantId, host: &mut impl Host) -> Result<Outcome, Errno> {
        let mut end = self.begin_end(tenant)?;
        while self.step_end(&mut end, host, u32::MAX) != Progress::Done {}
        Ok(end.outcome())
    }

    fn begin_reclaim(&mut self, tenant: TenantId) -> Result<Reclaim, Errno> {
        let &Tenant {
            group,
            parent,
            memory,
            ..
        } = self.tenant(tenant)?;
        self.forget_deadlines(tenant);
        let reclaim = self.groups.begin_reclaim(group).ok_or(Errno::Gone)?;
        if let Some(parent) = parent {
            self.child_ended(&parent, memory.reserved);
        }
        Ok(reclaim)
    }

    /// Drops the next capability of an ending tenant, or ends it if none is left; returns the
    /// tenant to continue with.
    fn sweep(&mut self, end: &mut End, at: TenantId, host: &mut impl Host) -> Option<TenantId> {
        let &Tenant {
            swept: index,
            table,
            parent,
            ..
        } = self.tenant(at).ok()?;
        if index < table.end() {
            let Some((place, &held)) = table.at(&self.groups, index) else {
                self.tenant_mut(at).ok()?.swept += 1;
                return Some(at);
            };
            if let (Origin::Object(object), 1..) = (held.origin, index) {
                if held.class == ObjectClass::Tenant
                    && let Some(child) = self.living_child(object)
                {
                    return Some(child);
                }
                self.end_object(object, held.class);
                end.swept.objects += 1;
            }
            self.vacate(at, place, index).ok()?;
            self.tenant_mut(at).ok()?.swept += 1;
            return Some(at);
        }
        if at == end.tenant {
            return None;
        }
        let reclaim = self.begin_reclaim(at).ok();
        if let Some(mut reclaim) = reclaim {
            let mut severing = Severing {
                executions: &mut self.executions,
                host,
            };
            while reclaim.step(&mut self.groups, &mut severing, u32::MAX) != Progress::Done {}
            let Outcome {
                steps,
                scrubbed,
                groups,
                objects,
                ..
            } = reclaim.outcome();
            end.swept.steps += steps;
            end.swept.scrubbed += scrubbed;
            end.swept.groups += groups;
            end.swept.objects += objects;
        }
        parent.map(|parent| parent.tenant)
    }

    fn living_child(&self, child: RawHandle) -> Option<TenantId> {
        let tenant = self.groups.get(Handle::<Child>::from_raw(child))?.tenant?;
        self.tenant(tenant).is_ok().then_some(tenant)
    }
}
