//! Objects of the tenant's arena as the host's side of component-model handles.
//!
//! The engine keeps a number (the *representation*) with every handle it gives a guest, and hands
//! it back when the guest uses the handle. 32 bits are less than a [`Handle`], so the number is the
//! object's slot, and the engine guarantees that it is valid.

use crate::guest::Guest;
use crate::local;
use leasehold_kernel::Errno;
use leasehold_reclaim::{Class, Handle, TrustedSlot};
use wasmtime::component::Resource;

/// Makes an object in the guest's arena, and the number that stands for it.
///
/// # Errors
/// When the lease does not pay for it.
pub(crate) fn create<T: 'static, R: 'static>(
    guest: &Guest,
    class: Class<T>,
    object: T,
) -> Result<Resource<R>, Errno> {
    let group = guest.arena()?;
    local::with(|local| {
        let handle = local
            .kernel
            .groups_mut()
            .alloc(group, class, object)
            .map_err(leasehold_kernel::errno)?;
        Ok(Resource::new_own(handle.slot()))
    })
}

/// The object that a number of [`create`] stands for.
///
/// `R` is a resource type of which every representation is made by `create` with this `T`: pollables are made
/// nowhere but in [`super::poll`], listings in [`super::filesystem::directory`], and the resources of
/// `wasi:http` and `wasi:sockets` in their `access`.
pub(crate) fn find<T: 'static, R: 'static>(
    guest: &Guest,
    resource: &Resource<R>,
) -> Option<Handle<T>> {
    let group = guest.arena().ok()?;
    local::with(|local| {
        // SAFETY: the engine checks that a handle is of this resource type and alive in this
        // guest's table, so its representation was made by `create` for this guest's group, and
        // the object is freed only when the engine says that the handle was dropped.
        let slot = unsafe { TrustedSlot::new(group, resource.rep()) };
        local.kernel.groups().handle_at(slot)
    })
}

/// A copy of the object that a handle names, if it is there.
pub(crate) fn get<T: Copy + 'static>(handle: Handle<T>) -> Option<T> {
    local::with(|local| local.kernel.groups().get(handle).copied())
}

/// Puts `object` in the place of the one that a handle names, if it is there.
pub(crate) fn put<T: 'static>(handle: Handle<T>, object: T) {
    local::with(|local| {
        if let Some(place) = local.kernel.groups_mut().get_mut(handle) {
            *place = object;
        }
    });
}

/// Frees the object that a handle names, and returns it if it was there.
pub(crate) fn free<T: 'static>(handle: Handle<T>) -> Option<T> {
    local::with(|local| local.kernel.groups_mut().free(handle))
}
