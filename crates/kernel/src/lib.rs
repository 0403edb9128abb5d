//! Capabilities and kernel objects of one cell, built on reclamation groups; `no_std`.
//!
//! Guests access everything through *capabilities*: numbers that name an object and some rights on
//! it, in the table of the tenant that uses them. Everything that a guest can create (semaphores,
//! channels, regions, timers, tasks, child tenants, further capabilities) lives in the reclamation
//! group of its tenant, and is charged before it is allocated. The end of a tenant removes any
//! number of objects without visiting them.
//!
//! # Principles
//!
//! 1. **The end of a tenant is charged in advance.** Its work is its scrub entries: one for each
//!    execution, each waiting *foreign tenant* (a tenant that does not end with the object), and
//!    each capability that came with links (BRR §III, §IV). Everything else is freed with the
//!    arena.
//! 2. **Validity by ancestry.** A derived capability is valid while all it was derived from is,
//!    which is checked at every use, in at most [`DERIVATION_DEPTH`] steps. So revoking is O(1)
//!    wherever the derived ones are, and an ended tenant's capabilities need no scrubbing.
//! 3. **An object lives as long as its original capability**, the one that its creator got.
//!    Nothing counts references.
//! 4. **Links between groups can be severed from both sides.** A waiter's place in a queue is in
//!    the record of its execution, outside of every group: ending the object's owner wakes the
//!    waiter ([`Wake::Gone`]), ending the waiter takes it out of the queue.
//! 5. **A foreign tenant spends no more of a budget than the owner granted.** Waiting for an object
//!    of another tree takes a link out of the allowance that came with the capability, charged to
//!    the owner when it delegated it. When none is left, the foreign tenant is refused
//!    ([`Errno::Allowance`]), and can still use the calls that do not wait. Capabilities that are
//!    sent through a channel carry no links: a service polls the objects that a client sends.
//! 6. **A woken execution's request is reserved.** The resource that it waits for is set aside when
//!    it is woken, and taken when it repeats the call, with its rights checked again. If it does
//!    not repeat the call, the reservation passes to the next waiter.
//! 7. **A refused call changes nothing**; see [`Errno::Memory`] for the one exception.
//! 8. **Timers are queued per tenant**, a tenant among its parent's timers: ending a tenant takes
//!    out one entry.
//!
//! # Map
//! | concept | file |
//! |---|---|
//! | capability, rights, capability table | `capability`, `table` |
//! | derivation, delegation and revocation | `delegation`; validity by ancestry: `derivation` |
//! | allowance of a foreign tenant | `allowance` |
//! | kernel objects: semaphore, channel, region, timer, task, child tenant | `object`, a file each |
//! | links that leave a group, for its scrub list | `link` |
//! | tenants and their executions | `tenant`, `execution`, `exit`; names of both: `id` |
//! | waiting for an object, and being woken | `wait`, `queue` |
//! | the order in which timers fire | `deadline` |
//! | the end of a tenant | `end` |
//! | system calls, and the errors of refused ones | `syscall`, `refusal`; the state that they act on: `kernel` |
//!
//! # Example
//!
//! ```
//! use leasehold_kernel::{Errno, ExecutionId, Kernel, KernelConfig, KernelCosts, Outcome, Rights, Wake};
//! use leasehold_reclaim::{Config, CostModel, HeapBacking, Mode};
//!
//! let reclaim = Config {
//!     arena_bytes: 1 << 20,
//!     keep_resident: 1 << 20,
//!     mode: Mode::Grouped,
//!     max_groups: 16,
//! };
//! let config = KernelConfig {
//!     reclaim,
//!     max_executions: 16,
//!     max_channel_bytes: 1 << 16,
//!     max_region_bytes: 1 << 20,
//!     timer_floor_ns: 50_000,
//! };
//! let model = CostModel { root_ps: 9_000, group_ps: 900, scrub_ps: 50_000, chunk_ps: 500, page_ps: 70_000 };
//! let costs = KernelCosts {
//!     model,
//!     semaphore_ps: 800,
//!     channel_ps: 2_000,
//!     region_ps: 800,
//!     timer_ps: 3_500,
//!     task_ps: 900,
//!     tenant_ps: 5_000,
//!     capability_ps: 600,
//!     parcel_ps: 6_000,
//!     execution_ps: 1_000,
//! };
//! let mut kernel = Kernel::new(config, costs, HeapBacking);
//!
//! // A client lets a service wait for its semaphore, once at a time.
//! let client = kernel.admit(10_000, 0)?;
//! let service = kernel.admit(10_000, 0)?;
//! let own = kernel.semaphore_create(client, 0)?;
//! let theirs = kernel.connect(client, own, service, Rights::READ, 1)?;
//!
//! let worker = ExecutionId(1);
//! kernel.register_execution(service, worker)?;
//! assert_eq!(kernel.semaphore_down(service, worker, theirs)?, Outcome::Blocked);
//!
//! // The client ends: one link to sever, whatever else it had.
//! let outcome = kernel.end(client, &mut |_| unreachable!("it ran nothing"))?;
//! assert_eq!(outcome.scrubbed, 1);
//! assert_eq!(kernel.next_wake(), Some((worker, Wake::Gone)));
//! assert_eq!(kernel.semaphore_down(service, worker, theirs), Err(Errno::Gone));
//! # Ok::<(), Errno>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod allowance;
mod capability;
mod deadline;
mod delegation;
mod derivation;
mod end;
mod execution;
mod exit;
mod id;
mod kernel;
mod link;
mod object;
mod queue;
mod refusal;
mod syscall;
mod table;
mod tenant;
mod wait;

pub use capability::{ObjectClass, Selector};
pub use derivation::DERIVATION_DEPTH;
pub use end::{End, Host};
pub use execution::Wake;
pub use id::{ExecutionId, TenantId};
pub use kernel::{Account, Kernel, KernelConfig, KernelCosts, Outcome};
pub use leasehold_abi::{Errno, MESSAGE_CAPABILITIES, Received, Rights};
pub use link::Link;
pub use object::channel::{CAPABILITY_BYTES, HEADER_BYTES};
pub use object::region::{RegionId, RegionMapping};
pub use refusal::errno;
pub use syscall::{Call, Reply};
pub use tenant::record::{Memory, TENANT_DEPTH};
