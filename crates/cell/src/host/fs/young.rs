//! Directories in which few names can have been looked up.
//!
//! Removing a directory makes the kernel forget every name that was looked up in it and is missing, all
//! in one call, and no call tells how many these are. But each was looked up by a call of its own, and
//! this process counts its calls ([`linux::look_ups`]). So a directory that was made fewer calls ago than
//! [`MOST`] is removed in bounded time.

use super::status::{Identity, identity};
use crate::host::linux;
use leasehold_crossing::Mutex;
use rustix::fs::{Statx, StatxFlags};
use std::collections::VecDeque;

/// Most names that can be missing in a young directory; the kernel forgets one in some 100 ns.
const MOST: u64 = 128;

/// Directories that are remembered: the last that were made.
const REMEMBERED: usize = 8;

/// The seconds and nanoseconds at which a file was made. An inode's number is given to other files later.
type Birth = (i64, u32);

#[derive(Debug)]
struct Young {
    identity: Identity,
    birth: Birth,
    /// Look-ups of the process before it was made.
    look_ups: u64,
}

/// The last directories that one tenant has made.
#[derive(Debug, Default)]
pub(super) struct YoungDirectories(Mutex<VecDeque<Young>>);

fn birth(status: &Statx) -> Option<Birth> {
    let known = StatxFlags::from_bits_retain(status.stx_mask).contains(StatxFlags::BTIME);
    known.then_some((status.stx_btime.tv_sec, status.stx_btime.tv_nsec))
}

impl YoungDirectories {
    /// Remembers a directory that was made after so many look-ups.
    pub(super) fn remember(&self, status: &Statx, look_ups: u64) {
        let Some(birth) = birth(status) else { return };
        let mut made = self.0.lock();
        if made.len() == REMEMBERED {
            made.pop_front();
        }
        made.push_back(Young {
            identity: identity(status),
            birth,
            look_ups,
        });
    }

    /// Whether at most [`MOST`] names can have been looked up in it.
    pub(super) fn contains(&self, status: &Statx) -> bool {
        let now = linux::look_ups();
        let made = self.0.lock();
        made.iter().any(|young| {
            young.identity == identity(status)
                && Some(young.birth) == birth(status)
                && now.wrapping_sub(young.look_ups) <= MOST
        })
    }
}
