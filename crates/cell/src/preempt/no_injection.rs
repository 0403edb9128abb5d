//! Platforms on which the injected yield is not available: epochs are used.

use super::guest_code::GuestCode;
use std::ffi::c_void;
use std::ptr::NonNull;

pub(super) fn processor_supported() -> Result<(), String> {
    Err("this is not x86-64 Linux".into())
}

pub(super) fn enter(_vmctx: NonNull<c_void>) {}

pub(super) fn leave() {}

pub(super) unsafe fn interrupt(_context: *mut c_void, _code: &GuestCode) -> bool {
    false
}
