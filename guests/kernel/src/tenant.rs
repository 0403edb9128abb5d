//! Child tenants, with leases carved from the caller's.

use leasehold_abi::Errno;

use crate::abi;
use crate::answer::{done, result, selector};
use crate::capability::object;
use crate::start::encoded;
use crate::{Rights, Selector};

object! {
    /// A child tenant: isolated from its parent except for granted capabilities, and ended with it.
    Tenant
}

/// The reclamation budget of a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statement {
    /// What the lease allows, in nanoseconds.
    pub budget_ns: u64,
    /// What has been charged, children's budgets included, in nanoseconds.
    pub charged_ns: u64,
    /// The rest, in nanoseconds.
    pub left_ns: u64,
}

impl Statement {
    /// That of the calling tenant.
    ///
    /// # Errors
    /// None on a host that keeps the interface.
    pub fn read() -> Result<Statement, Errno> {
        let mut words = [0; 3];
        // SAFETY: `words` is borrowed mutably for the whole call, which writes the three words.
        done(unsafe { abi::tenant_statement(&raw mut words) })?;
        let [budget_ns, charged_ns, left_ns] = words;
        Ok(Statement {
            budget_ns,
            charged_ns,
            left_ns,
        })
    }
}

impl Tenant {
    /// A child whose lease is carved from the caller's: `reclaim_ns` nanoseconds of reclamation,
    /// `memory_bytes` bytes of memory.
    ///
    /// # Errors
    /// [`Errno::Depth`]; what the lease does not cover.
    pub fn create(reclaim_ns: u64, memory_bytes: u64) -> Result<Tenant, Errno> {
        selector(abi::tenant_create(reclaim_ns, memory_bytes)).map(Tenant)
    }

    /// Runs the caller's program as the child's, with `arguments` after the program's name.
    ///
    /// # Errors
    /// [`Errno::Busy`] if it runs already; [`Errno::TooLarge`] beyond
    /// [`ARGUMENT_BYTES`](crate::ARGUMENT_BYTES); what the child's lease does not cover.
    pub fn start(self, arguments: &[&str]) -> Result<(), Errno> {
        encoded(arguments, |bytes| {
            // SAFETY: the range is borrowed for the whole call, which only reads it.
            done(unsafe { abi::tenant_start(self.0.number(), bytes.as_ptr(), bytes.len()) })
        })
    }

    /// Delegates `capability` to the child; `links` is the number of waits and other links that
    /// foreign tenants may make through it at the caller's expense. Returns the selector in the
    /// child's table.
    ///
    /// # Errors
    /// [`Errno::Rights`]; what the leases of the two do not cover.
    pub fn grant(
        self,
        capability: Selector,
        rights: Rights,
        links: u32,
    ) -> Result<Selector, Errno> {
        selector(abi::tenant_grant(
            self.0.number(),
            capability.number(),
            rights.bits(),
            links,
        ))
    }

    /// Waits until the child has exited; returns its exit code.
    ///
    /// # Errors
    /// [`Errno::Gone`]; [`Errno::Rights`]; [`Errno::Budget`] if no budget pays for the wait.
    pub fn wait(self) -> Result<i32, Errno> {
        result(abi::tenant_wait(self.0.number())).map(|code| code as i32)
    }

    /// Ends the child and everything below it.
    ///
    /// # Errors
    /// [`Errno::Rights`] without [`Rights::END`]; [`Errno::Gone`].
    pub fn end(self) -> Result<(), Errno> {
        done(abi::tenant_end(self.0.number()))
    }
}
