//! The userfaultfd of a cell: putting pages into page tables, and protecting them.

use leasehold_door::{Call, pass};
use std::io;
use std::os::fd::OwnedFd;

use linux_raw_sys::general::{
    UFFD_USER_MODE_ONLY, UFFDIO_COPY_MODE_WP, UFFDIO_REGISTER_MODE_MINOR,
    UFFDIO_REGISTER_MODE_MISSING, UFFDIO_REGISTER_MODE_WP, uffdio_api, uffdio_continue,
    uffdio_copy, uffdio_range, uffdio_register, uffdio_writeprotect, uffdio_zeropage,
};
use linux_raw_sys::ioctl::{
    UFFDIO_API, UFFDIO_CONTINUE, UFFDIO_COPY, UFFDIO_REGISTER, UFFDIO_UNREGISTER,
    UFFDIO_WRITEPROTECT, UFFDIO_ZEROPAGE,
};
use rustix::io::Errno;
use rustix::ioctl::{Updater, ioctl};
use rustix::mm::UserfaultfdFlags;

use crate::span::{BYTES, Span};

/// `UFFDIO_CONTINUE_MODE_WP`, since Linux 6.4: map protected from writing.
const CONTINUE_MODE_WP: u64 = 2;
/// `UFFDIO_WRITEPROTECT_MODE_WP`: protect, rather than unprotect.
const WRITEPROTECT_MODE_WP: u64 = 1;
/// `UFFD_API`.
const API: u64 = 0xAA;

/// Not all pages could be put in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stopped {
    /// Pages that were.
    pub(crate) done: u32,
    pub(crate) errno: Errno,
}

/// Resolves faults of memory that is registered with it, in whichever thread asks.
#[derive(Debug)]
pub(crate) struct Userfault {
    fd: OwnedFd,
}

impl Userfault {
    /// Opens one, for faults of user mode only: every user may do that, and a system call with an
    /// unmapped page fails (as it would anyway, since no thread waits for messages).
    pub(crate) fn open() -> Result<Self, Errno> {
        let user_mode_only = UserfaultfdFlags::from_bits_retain(UFFD_USER_MODE_ONLY);
        let flags = UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK | user_mode_only;
        pass(Call::Userfault)?;
        // SAFETY: opening it changes no memory; what registering does is said there.
        let fd = unsafe { rustix::mm::userfaultfd(flags) }?;
        Ok(Userfault { fd })
    }

    /// Asks for features; returns all that the kernel has.
    pub(crate) fn enable(&self, features: u64) -> Result<u64, Errno> {
        let mut api = uffdio_api {
            api: API,
            features,
            ioctls: 0,
        };
        pass(Call::Userfault)?;
        // SAFETY: the value is of the type that this request updates.
        unsafe { ioctl(&self.fd, Updater::<UFFDIO_API, _>::new(&mut api)) }?;
        Ok(api.features)
    }

    /// Takes over the faults of a shared mapping: on pages that the file has not, and on pages
    /// that it has; with `writes`, also on writes to pages that are protected.
    pub(crate) fn register(&self, span: Span, writes: bool) -> io::Result<()> {
        let modes = if writes {
            UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_MINOR | UFFDIO_REGISTER_MODE_WP
        } else {
            UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_MINOR
        };
        let mut register = uffdio_register {
            range: range(span),
            mode: modes.into(),
            ioctls: 0,
        };
        pass(Call::Register)?;
        // SAFETY: the value is of the type that this request updates, and the mapping is one
        // of guest memory, whose faults are to be resolved here.
        unsafe { ioctl(&self.fd, Updater::<UFFDIO_REGISTER, _>::new(&mut register)) }?;
        Ok(())
    }

    /// Leaves the faults of a mapping to the kernel again. If writes were trapped, this takes
    /// time for each mapped page.
    pub(crate) fn unregister(&self, span: Span) -> io::Result<()> {
        let mut range = range(span);
        pass(Call::Unregister)?;
        // SAFETY: the value is of the type that this request reads.
        unsafe { ioctl(&self.fd, Updater::<UFFDIO_UNREGISTER, _>::new(&mut range)) }?;
        Ok(())
    }

    /// Puts pages into the page table that the file has.
    pub(crate) fn map_cached(&self, span: Span, protect: bool) -> Result<(), Stopped> {
        advance(span, Call::Continue, |span| {
            let mut request = uffdio_continue {
                range: range(span),
                mode: if protect { CONTINUE_MODE_WP } else { 0 },
                mapped: 0,
            };
            // SAFETY: the value is of the type that this request updates; pages appear in guest
            // memory only.
            let result =
                unsafe { ioctl(&self.fd, Updater::<UFFDIO_CONTINUE, _>::new(&mut request)) };
            (result, request.mapped)
        })
    }

    /// Gives the file pages of zeros that it has not, and puts them into the page table.
    pub(crate) fn map_zeros(&self, span: Span) -> Result<(), Stopped> {
        advance(span, Call::Zero, |span| {
            let mut request = uffdio_zeropage {
                range: range(span),
                mode: 0,
                zeropage: 0,
            };
            // SAFETY: as for `map_cached`.
            let result =
                unsafe { ioctl(&self.fd, Updater::<UFFDIO_ZEROPAGE, _>::new(&mut request)) };
            (result, request.zeropage)
        })
    }

    /// Gives the file copies of pages at `from` that it has not, and puts them into the page
    /// table.
    pub(crate) fn map_copies(&self, span: Span, from: Span, protect: bool) -> Result<(), Stopped> {
        debug_assert!(from.bytes() >= span.bytes());
        let offset = from.start().wrapping_sub(span.start());
        advance(span, Call::Copy, |span| {
            let mut request = uffdio_copy {
                dst: span.start() as u64,
                src: span.start().wrapping_add(offset) as u64,
                len: span.bytes() as u64,
                mode: if protect {
                    UFFDIO_COPY_MODE_WP.into()
                } else {
                    0
                },
                copy: 0,
            };
            // SAFETY: as for `map_cached`; what is read is memory of this process.
            let result = unsafe { ioctl(&self.fd, Updater::<UFFDIO_COPY, _>::new(&mut request)) };
            (result, request.copy)
        })
    }

    /// Makes writes to pages fault, or no longer.
    pub(crate) fn protect(&self, span: Span, protect: bool) -> Result<(), Errno> {
        let mut request = uffdio_writeprotect {
            range: range(span),
            mode: if protect { WRITEPROTECT_MODE_WP } else { 0 },
        };
        loop {
            pass(Call::Protect)?;
            // SAFETY: the value is of the type that this request reads.
            let result = unsafe {
                ioctl(
                    &self.fd,
                    Updater::<UFFDIO_WRITEPROTECT, _>::new(&mut request),
                )
            };
            match result {
                Err(Errno::AGAIN | Errno::INTR) => {}
                other => return other,
            }
        }
    }
}

fn range(span: Span) -> uffdio_range {
    uffdio_range {
        start: span.start() as u64,
        len: span.bytes() as u64,
    }
}

/// Repeats a request that may stop half-way (`EAGAIN`, with the bytes done) until all is done.
fn advance(
    span: Span,
    call: Call,
    mut request: impl FnMut(Span) -> (Result<(), Errno>, i64),
) -> Result<(), Stopped> {
    let mut done = 0;
    while done < span.pages() {
        pass(call).map_err(|errno| Stopped { done, errno })?;
        let (result, bytes) = request(span.part(done, span.pages()));
        match result {
            Ok(()) => return Ok(()),
            Err(_) if bytes > 0 => done += (bytes as usize / BYTES) as u32,
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => return Err(Stopped { done, errno }),
        }
    }
    Ok(())
}
