//! The kernel's objects, as studies make them: every class, in any number, in a kernel of their
//! own.

use std::hint::black_box;

use anyhow::Result;
use leasehold_cell::MapBacking;
use leasehold_cell::profile::Profile;
use leasehold_kernel::{Errno, Kernel, KernelConfig, Rights, Selector, TenantId};
use leasehold_reclaim::{Config, Mode};
use serde_json::Value;

use crate::harness::experiment::Options;

/// The reclamation budget of a tenant that is to be refused nothing, in nanoseconds.
pub(crate) const AMPLE_NS: u64 = 10_000_000_000_000_000;
/// The budget of each child: more than an empty tenant costs on any host.
pub(crate) const CHILD_NS: u64 = 1_000_000;
/// Bytes of a channel's buffer, and of a region.
pub(crate) const BYTES: u32 = 64;

/// A class of kernel objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    Semaphore,
    /// With a buffer of [`BYTES`].
    Channel,
    /// Of [`BYTES`].
    Region,
    Timer,
    /// A task's object; what it runs is not the kernel's.
    Task,
    /// A child with a group, a budget of [`CHILD_NS`] and a table of its own.
    Tenant,
    /// Derived from one semaphore.
    Capability,
}

impl Class {
    /// Every class, the paper's first.
    pub(crate) const ALL: [Class; 7] = [
        Class::Semaphore,
        Class::Channel,
        Class::Region,
        Class::Timer,
        Class::Task,
        Class::Tenant,
        Class::Capability,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Class::Semaphore => "semaphore",
            Class::Channel => "channel",
            Class::Region => "region",
            Class::Timer => "timer",
            Class::Task => "task",
            Class::Tenant => "tenant",
            Class::Capability => "capability",
        }
    }

    /// Makes `n` of them for `tenant`, and for capabilities the semaphore that they lead to.
    ///
    /// # Errors
    /// The kernel's, if it refuses one.
    pub(crate) fn make(
        self,
        kernel: &mut Kernel<MapBacking>,
        tenant: TenantId,
        n: usize,
    ) -> Result<(), Errno> {
        // The class is decided outside of the loop: creation is timed.
        match self {
            Class::Semaphore => repeat(n, || kernel.semaphore_create(tenant, 0)),
            Class::Channel => repeat(n, || kernel.channel_create(tenant, BYTES)),
            Class::Region => repeat(n, || kernel.region_create(tenant, u64::from(BYTES))),
            Class::Timer => repeat(n, || kernel.timer_create(tenant)),
            Class::Task => repeat(n, || kernel.task_create(tenant)),
            Class::Tenant => repeat(n, || kernel.tenant_create(tenant, CHILD_NS, 0)),
            Class::Capability => {
                let original = kernel.semaphore_create(tenant, 0)?;
                repeat(n, || {
                    kernel.capability_derive(tenant, original, Rights::READ)
                })
            }
        }
    }
}

fn repeat(n: usize, mut make: impl FnMut() -> Result<Selector, Errno>) -> Result<(), Errno> {
    for _ in 0..n {
        black_box(make()?);
    }
    Ok(())
}

/// The profile that the study was given, or one that charges nothing.
///
/// # Errors
/// If it is no profile.
pub(crate) fn profile(options: &Options) -> Result<Profile> {
    if options.profile.is_empty() {
        return Ok(Profile::free());
    }
    Ok(serde_json::from_value(Value::Object(
        options.profile.clone(),
    ))?)
}

/// A kernel without a cell around it, of which an arena keeps up to `keep_resident` bytes.
pub(crate) fn kernel(profile: &Profile, mode: Mode, keep_resident: usize) -> Kernel<MapBacking> {
    let config = KernelConfig {
        reclaim: Config {
            arena_bytes: 2 << 30,
            keep_resident,
            mode,
            max_groups: 1 << 20,
        },
        max_executions: 1,
        max_channel_bytes: BYTES,
        max_region_bytes: u64::from(BYTES),
        timer_floor_ns: 0,
    };
    Kernel::new(config, profile.kernel_costs(), MapBacking::default())
}
