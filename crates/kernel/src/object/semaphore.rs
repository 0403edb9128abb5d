//! Counting semaphores.

pub(crate) mod state;

use leasehold_abi::{Errno, Rights};
use leasehold_reclaim::{Backing, Handle};

use crate::capability::{ObjectClass, Selector};
use crate::id::{ExecutionId, TenantId};
use crate::kernel::{Kernel, Outcome};
use crate::object::semaphore::state::Semaphore;
use crate::queue::Queue;
use crate::wait::Side;

impl<B: Backing> Kernel<B> {
    /// Creates a semaphore.
    ///
    /// # Errors
    /// [`Errno::Budget`], [`Errno::Memory`], [`Errno::TableFull`].
    #[inline]
    pub fn semaphore_create(&mut self, caller: TenantId, value: u32) -> Result<Selector, Errno> {
        let semaphore = Semaphore {
            value,
            waiters: Queue::default(),
        };
        self.create(
            caller,
            ObjectClass::Semaphore,
            self.classes.semaphore,
            semaphore,
        )
    }

    /// Adds `n` to the value and wakes as many waiters. Needs [`Rights::WRITE`].
    ///
    /// # Errors
    /// [`Errno::Limit`] if the value would leave 32 bits, and those of using a capability
    /// ([`Errno::BadSelector`], [`Errno::BadClass`], [`Errno::Rights`], [`Errno::Gone`]).
    pub fn semaphore_up(
        &mut self,
        caller: TenantId,
        semaphore: Selector,
        n: u32,
    ) -> Result<(), Errno> {
        let target = self.resolve(caller, semaphore, ObjectClass::Semaphore, Rights::WRITE)?;
        let handle = Handle::<Semaphore>::from_raw(target.object);
        let semaphore = self.groups.get_mut(handle).ok_or(Errno::Gone)?;
        semaphore.value = semaphore.value.checked_add(n).ok_or(Errno::Limit)?;
        if semaphore.waiters.list.first.is_some() {
            self.executions
                .settle(&mut self.groups, target.object, Side::Semaphore);
        }
        Ok(())
    }

    /// Takes 1 from the value, or waits for it. Needs [`Rights::READ`].
    ///
    /// # Errors
    /// Those of using a capability, and of [waiting](Outcome::Blocked).
    pub fn semaphore_down(
        &mut self,
        caller: TenantId,
        execution: ExecutionId,
        semaphore: Selector,
    ) -> Result<Outcome<()>, Errno> {
        self.blocking(caller, execution, |kernel, call| {
            let target = kernel.resolve(caller, semaphore, ObjectClass::Semaphore, Rights::READ)?;
            let has_reserved = call.has_reserved(target.object, Side::Semaphore);
            if kernel.take_down(Handle::from_raw(target.object), has_reserved)? {
                return Ok(Outcome::Done(()));
            }
            kernel.block(caller, execution, call, &target, Side::Semaphore, 1)
        })
    }

    /// Takes 1 from the value without waiting. Needs [`Rights::READ`].
    ///
    /// # Errors
    /// [`Errno::Empty`] if it would have to wait, and those of using a capability.
    pub fn semaphore_try_down(
        &mut self,
        caller: TenantId,
        semaphore: Selector,
    ) -> Result<(), Errno> {
        let target = self.resolve(caller, semaphore, ObjectClass::Semaphore, Rights::READ)?;
        if self.take_down(Handle::from_raw(target.object), false)? {
            Ok(())
        } else {
            Err(Errno::Empty)
        }
    }

    fn take_down(&mut self, handle: Handle<Semaphore>, has_reserved: bool) -> Result<bool, Errno> {
        let semaphore = self.groups.get_mut(handle).ok_or(Errno::Gone)?;
        let taken = semaphore.waiters.admits(semaphore.value, 1, has_reserved);
        semaphore.value -= u32::from(taken);
        Ok(taken)
    }
}
