//! The objects of a guest's handles: made, read, changed and freed.

use super::object::Object;
use crate::guest::Guest;
use crate::local;
use crate::wasi::rep;
use leasehold_kernel::Errno;
use leasehold_reclaim::Handle;
use wasmtime::Result;
use wasmtime::component::Resource;
use wasmtime::error::Context as _;

/// Makes an object in the arena of the guest's execution.
///
/// # Errors
/// When the lease does not pay for it.
pub(super) fn make<R: 'static>(guest: &Guest, object: Object) -> Result<Resource<R>, Errno> {
    let class = local::with(|local| local.classes.socket);
    rep::create(guest, class, object)
}

/// Turns a refusal into a trap, where the interface has no way to say it.
pub(super) fn unpaid(errno: Errno) -> wasmtime::Error {
    wasmtime::Error::new(errno).context("the lease does not pay for an object of wasi:sockets")
}

/// The handle of an object.
pub(super) fn handle<R: 'static>(guest: &Guest, resource: &Resource<R>) -> Result<Handle<Object>> {
    rep::find(guest, resource).context("unknown object of wasi:sockets")
}

/// Frees an object and returns it.
pub(super) fn take<R: 'static>(guest: &Guest, resource: &Resource<R>) -> Result<Object> {
    let handle = handle(guest, resource)?;
    rep::free(handle).context("unknown object of wasi:sockets")
}

/// The error of a handle whose object is of another kind, which is a defect.
pub(super) fn confused() -> wasmtime::Error {
    wasmtime::Error::msg("an object of wasi:sockets of another kind")
}
