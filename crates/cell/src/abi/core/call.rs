//! A call of the kernel by a core module, and its answer.

use crate::guest::Guest;
use crate::local::{self, CellKernel};
use leasehold_kernel::{Errno, Selector, TenantId};
use wasmtime::{Caller, Result};

pub(super) use leasehold_abi::MODULE;

pub(super) type Call<'a> = Caller<'a, Guest>;

/// Returns a call's value for the guest: the result, or the negated error number.
pub(super) fn answer(result: Result<u64, Errno>) -> i64 {
    leasehold_abi::encode(result)
}

/// A call that does not block and uses no memory.
pub(super) fn call(
    caller: &Call<'_>,
    f: impl FnOnce(&mut CellKernel, TenantId) -> Result<u64, Errno>,
) -> i64 {
    let tenant = caller.data().tenant;
    answer(local::call(|kernel| f(kernel, tenant)))
}

pub(super) fn selector(raw: i32) -> Selector {
    Selector(raw as u32)
}

pub(super) fn raw(selector: Selector) -> u64 {
    u64::from(selector.0)
}
