//! The system calls as plain data: every call that a guest can make, and its answers.

use leasehold_abi::{Errno, Received, Rights};
use leasehold_reclaim::Backing;

use crate::capability::Selector;
use crate::id::{ExecutionId, TenantId};
use crate::kernel::{Account, Kernel, Outcome};
use crate::object::region::RegionMapping;

/// A call by a guest. The fields are named as in the methods of [`Kernel`] that do the work.
#[derive(Debug)]
#[expect(missing_docs, reason = "each variant is the method of the same name")]
pub enum Call<'a> {
    CapabilityDerive {
        capability: Selector,
        rights: Rights,
    },
    CapabilityDrop {
        capability: Selector,
    },
    CapabilityRevoke {
        capability: Selector,
    },
    SemaphoreCreate {
        value: u32,
    },
    SemaphoreUp {
        semaphore: Selector,
        n: u32,
    },
    SemaphoreDown {
        semaphore: Selector,
    },
    SemaphoreTryDown {
        semaphore: Selector,
    },
    ChannelCreate {
        capacity: u32,
    },
    ChannelSend {
        channel: Selector,
        bytes: &'a [u8],
        capabilities: &'a [Selector],
    },
    ChannelTrySend {
        channel: Selector,
        bytes: &'a [u8],
        capabilities: &'a [Selector],
    },
    ChannelReceive {
        channel: Selector,
        bytes: &'a mut [u8],
        capabilities: &'a mut [Selector],
    },
    ChannelTryReceive {
        channel: Selector,
        bytes: &'a mut [u8],
        capabilities: &'a mut [Selector],
    },
    RegionCreate {
        length: u64,
    },
    RegionCreateMapped {
        length: u64,
    },
    RegionMapping {
        region: Selector,
    },
    RegionLength {
        region: Selector,
    },
    RegionRead {
        region: Selector,
        offset: u64,
        into: &'a mut [u8],
    },
    RegionWrite {
        region: Selector,
        offset: u64,
        from: &'a [u8],
    },
    TimerCreate,
    TimerSet {
        timer: Selector,
        now_ns: u64,
        after_ns: u64,
        period_ns: u64,
    },
    TimerWait {
        timer: Selector,
    },
    TaskCreate,
    TaskWait {
        task: Selector,
    },
    TaskStop {
        task: Selector,
    },
    TenantCreate {
        budget_ns: u64,
        memory_bytes: u64,
    },
    TenantOf {
        tenant: Selector,
    },
    TenantGrant {
        tenant: Selector,
        capability: Selector,
        rights: Rights,
        links: u32,
    },
    TenantWait {
        tenant: Selector,
    },
    TenantEnd {
        tenant: Selector,
    },
    TenantStatement,
}

/// The answer to a [`Call`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// Done, without a value.
    Done,
    /// The execution waits ([`Outcome::Blocked`]).
    Blocked,
    /// A new capability.
    Selector(Selector),
    /// The part of a region that can be mapped.
    Mapping(RegionMapping),
    /// The length of a region in bytes.
    Length(u64),
    /// A message.
    Received(Received),
    /// How often a timer has fired.
    Expirations(u64),
    /// How a task or tenant has exited.
    Exit(i32),
    /// A tenant, which the cell is to start a program in, or to end.
    Tenant(TenantId),
    /// An execution that the cell is to stop, if there is one.
    Stop(Option<ExecutionId>),
    /// The caller's reclamation budget.
    Statement(Account),
}

impl From<()> for Reply {
    fn from((): ()) -> Self {
        Reply::Done
    }
}

impl From<Selector> for Reply {
    fn from(selector: Selector) -> Self {
        Reply::Selector(selector)
    }
}

fn outcome<T>(outcome: Outcome<T>, done: impl FnOnce(T) -> Reply) -> Reply {
    match outcome {
        Outcome::Done(value) => done(value),
        Outcome::Blocked => Reply::Blocked,
    }
}

impl<B: Backing> Kernel<B> {
    /// Makes a call for an execution of the tenant `caller`. Work: that of the call.
    ///
    /// # Errors
    /// Those of the call.
    pub fn call(
        &mut self,
        caller: TenantId,
        execution: ExecutionId,
        call: Call<'_>,
    ) -> Result<Reply, Errno> {
        Ok(match call {
            Call::CapabilityDerive { capability, rights } => {
                self.capability_derive(caller, capability, rights)?.into()
            }
            Call::CapabilityDrop { capability } => self.capability_drop(caller, capability)?.into(),
            Call::CapabilityRevoke { capability } => {
                self.capability_revoke(caller, capability)?.into()
            }
            Call::SemaphoreCreate { value } => self.semaphore_create(caller, value)?.into(),
            Call::SemaphoreUp { semaphore, n } => self.semaphore_up(caller, semaphore, n)?.into(),
            Call::SemaphoreDown { semaphore } => outcome(
                self.semaphore_down(caller, execution, semaphore)?,
                Reply::from,
            ),
            Call::SemaphoreTryDown { semaphore } => {
                self.semaphore_try_down(caller, semaphore)?.into()
            }
            Call::ChannelCreate { capacity } => self.channel_create(caller, capacity)?.into(),
            Call::ChannelSend {
                channel,
                bytes,
                capabilities,
            } => outcome(
                self.channel_send(caller, execution, channel, bytes, capabilities)?,
                Reply::from,
            ),
            Call::ChannelTrySend {
                channel,
                bytes,
                capabilities,
            } => self
                .channel_try_send(caller, channel, bytes, capabilities)?
                .into(),
            Call::ChannelReceive {
                channel,
                bytes,
                capabilities,
            } => outcome(
                self.channel_receive(caller, execution, channel, bytes, capabilities)?,
                Reply::Received,
            ),
            Call::ChannelTryReceive {
                channel,
                bytes,
                capabilities,
            } => Reply::Received(self.channel_try_receive(caller, channel, bytes, capabilities)?),
            Call::RegionCreate { length } => self.region_create(caller, length)?.into(),
            Call::RegionCreateMapped { length } => {
                self.region_create_mapped(caller, length)?.into()
            }
            Call::RegionMapping { region } => Reply::Mapping(self.region_mapping(caller, region)?),
            Call::RegionLength { region } => Reply::Length(self.region_length(caller, region)?),
            Call::RegionRead {
                region,
                offset,
                into,
            } => self.region_read(caller, region, offset, into)?.into(),
            Call::RegionWrite {
                region,
                offset,
                from,
            } => self.region_write(caller, region, offset, from)?.into(),
            Call::TimerCreate => self.timer_create(caller)?.into(),
            Call::TimerSet {
                timer,
                now_ns,
                after_ns,
                period_ns,
            } => self
                .timer_set(caller, timer, now_ns, after_ns, period_ns)?
                .into(),
            Call::TimerWait { timer } => outcome(
                self.timer_wait(caller, execution, timer)?,
                Reply::Expirations,
            ),
            Call::TaskCreate => self.task_create(caller)?.into(),
            Call::TaskWait { task } => {
                outcome(self.task_wait(caller, execution, task)?, Reply::Exit)
            }
            Call::TaskStop { task } => Reply::Stop(self.task_stop(caller, task)?),
            Call::TenantCreate {
                budget_ns,
                memory_bytes,
            } => self.tenant_create(caller, budget_ns, memory_bytes)?.into(),
            Call::TenantOf { tenant } => Reply::Tenant(self.tenant_of(caller, tenant)?),
            Call::TenantGrant {
                tenant,
                capability,
                rights,
                links,
            } => self
                .tenant_grant(caller, tenant, capability, rights, links)?
                .into(),
            Call::TenantWait { tenant } => {
                outcome(self.tenant_wait(caller, execution, tenant)?, Reply::Exit)
            }
            Call::TenantEnd { tenant } => Reply::Tenant(self.tenant_end(caller, tenant)?),
            Call::TenantStatement => Reply::Statement(self.account(caller)?),
        })
    }
}
