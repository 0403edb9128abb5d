//! The host's own accesses to the memory of tenants.
//!
//! Host code that reads or writes guest memory faults like the guest, and is served like it. Faults
//! of the kernel are not served: a system call with the address of an unmapped page fails with
//! `EFAULT`, because a signal cannot resolve faults of kernel mode. So a buffer is mapped first.

use leasehold_pager::PAGE;

use crate::engine::Engine;
use crate::fault::{Access, Served};
use crate::refusal::{Denied, Reason};
use crate::span::BYTES;

/// Pages that are mapped for one system call at the most.
const MOST: usize = 64;

impl Engine {
    /// Maps a buffer as far as it goes; returns the bytes from `address` on that are mapped.
    pub(crate) fn touch(
        &mut self,
        address: usize,
        bytes: usize,
        write: bool,
    ) -> Result<usize, Denied> {
        if bytes == 0 {
            return Ok(0);
        }
        let first = address / BYTES * BYTES;
        let pages = (address + bytes - first).div_ceil(BYTES).min(MOST);
        for page in 0..pages {
            let at = first + page * BYTES;
            if self.is_accessible(at, write) {
                continue;
            }
            match self.serve(self.access(at, write)) {
                Served::Done | Served::Elsewhere | Served::Waits => {}
                // Pages mapped before the denied one can be used.
                Served::Denied(..) if page > 0 => break,
                Served::Denied(attachment, reason) => {
                    return Err(denied(address.max(at), attachment, reason));
                }
            }
        }
        // Later pages may have taken the place of earlier ones in a small reservation.
        let mapped = (0..pages).take_while(|page| self.is_accessible(first + page * BYTES, write));
        let mut mapped = mapped.count();
        if mapped == 0 {
            if let Served::Denied(attachment, reason) = self.serve(self.access(first, write)) {
                return Err(denied(address, attachment, reason));
            }
            mapped = 1;
        }
        Ok((first + mapped * BYTES - address).min(bytes))
    }

    pub(crate) fn access(&self, address: usize, write: bool) -> Access {
        Access {
            address,
            write,
            protection: write && self.is_accessible(address, false),
        }
    }

    /// Returns whether an access would not fault. Addresses without an attachment count as
    /// accessible.
    pub(super) fn is_accessible(&self, address: usize, write: bool) -> bool {
        let linux = self.pager.backend();
        let Some((attached, page)) = linux.find(address) else {
            return true;
        };
        linux.is_mapped(attached, page, write)
    }
}

fn denied(
    address: usize,
    attachment: Option<leasehold_pager::AttachmentId>,
    reason: Reason,
) -> Denied {
    Denied {
        address,
        attachment,
        reason,
    }
}

const _: () = assert!(BYTES as u64 == PAGE);
