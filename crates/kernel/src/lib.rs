//! Capabilities and kernel objects of one cell, built on reclamation groups; `no_std`.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod allowance;
mod capability;
mod deadline;
mod end;
mod errno;
mod execution;
mod kernel;
mod link;
mod object;
mod revoke;
mod rights;
mod syscall;
mod table;
mod tenant;
mod wait;

pub use capability::{ObjectClass, Selector};
pub use end::{End, Host};
pub use errno::Errno;
pub use execution::{ExecutionId, Wake};
pub use kernel::{Account, Kernel, KernelConfig, KernelCosts, Outcome};
pub use link::Link;
pub use object::channel::{CAPABILITY_BYTES, HEADER_BYTES, MESSAGE_CAPABILITIES, Received};
pub use revoke::DERIVATION_DEPTH;
pub use rights::Rights;
pub use syscall::{Call, Reply};
pub use tenant::{Memory, TENANT_DEPTH, TenantId};
