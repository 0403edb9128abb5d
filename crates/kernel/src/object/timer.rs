//! Timers: one-shot and periodic.

pub(crate) mod state;

use leasehold_abi::{Errno, Rights};
use leasehold_reclaim::{Backing, Handle};

use crate::capability::{ObjectClass, Selector};
use crate::id::{ExecutionId, TenantId};
use crate::kernel::{Kernel, Outcome};
use crate::object::timer::state::Timer;
use crate::wait::Side;

impl<B: Backing> Kernel<B> {
    /// Creates a timer that is not set.
    ///
    /// # Errors
    /// [`Errno::Budget`], [`Errno::Memory`], [`Errno::TableFull`].
    pub fn timer_create(&mut self, caller: TenantId) -> Result<Selector, Errno> {
        self.create(
            caller,
            ObjectClass::Timer,
            self.classes.timer,
            Timer::new(caller),
        )
    }

    /// Sets a timer to fire at `now_ns + after_ns` and then every `period_ns`, if that is not 0.
    /// Replaces an earlier setting; expiries that were not waited for yet stay counted. Times below
    /// [`timer_floor_ns`](crate::KernelConfig::timer_floor_ns) are raised to it. Needs
    /// [`Rights::WRITE`]. O(log n) in the armed timers of the object's owner.
    ///
    /// # Errors
    /// Those of using a capability.
    pub fn timer_set(
        &mut self,
        caller: TenantId,
        timer: Selector,
        now_ns: u64,
        after_ns: u64,
        period_ns: u64,
    ) -> Result<(), Errno> {
        let target = self.resolve(caller, timer, ObjectClass::Timer, Rights::WRITE)?;
        let handle = Handle::<Timer>::from_raw(target.object);
        let owner = self.groups.get(handle).ok_or(Errno::Gone)?.owner;
        let floor = self.config.timer_floor_ns;
        self.disarm(owner, handle);
        if let Some(timer) = self.groups.get_mut(handle) {
            timer.period = if period_ns == 0 {
                0
            } else {
                period_ns.max(floor)
            };
        }
        self.arm(owner, handle, now_ns.saturating_add(after_ns.max(floor)));
        self.announce(owner);
        Ok(())
    }

    /// How often a timer has fired since it was last waited for, or waits until it does. Needs
    /// [`Rights::READ`].
    ///
    /// # Errors
    /// Those of using a capability, and of [waiting](Outcome::Blocked).
    pub fn timer_wait(
        &mut self,
        caller: TenantId,
        execution: ExecutionId,
        timer: Selector,
    ) -> Result<Outcome<u64>, Errno> {
        self.blocking(caller, execution, |kernel, call| {
            let target = kernel.resolve(caller, timer, ObjectClass::Timer, Rights::READ)?;
            let has_reserved = call.has_reserved(target.object, Side::Timer);
            let timer = kernel
                .groups
                .get_mut(Handle::<Timer>::from_raw(target.object));
            let timer = timer.ok_or(Errno::Gone)?;
            if timer
                .waiters
                .admits(u32::from(timer.fired > 0), 1, has_reserved)
            {
                return Ok(Outcome::Done(core::mem::take(&mut timer.fired)));
            }
            kernel.block(caller, execution, call, &target, Side::Timer, 1)
        })
    }
}
