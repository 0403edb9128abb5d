//! Platforms on which the injected yield is not available: epochs are used.

use crate::guest_code::GuestCode;
use std::ffi::c_void;
use std::ptr::NonNull;

pub(super) fn processor_supported() -> Result<(), String> {
    Err("this is not x86-64 Linux".into())
}

pub(super) fn name_throws(_throws: fn()) {}

#[inline]
pub(super) fn enter(_vmctx: NonNull<c_void>) {}

#[inline]
pub(super) fn leave() {}

pub(super) unsafe fn interrupt(_context: *mut c_void, _code: &GuestCode) -> bool {
    false
}

pub(super) unsafe fn can_suspend(_context: *const c_void, _code: &GuestCode) -> bool {
    false
}

pub(super) unsafe fn suspend(_context: *mut c_void) {}
