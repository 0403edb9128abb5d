//! The operation of a neighbour's loop.

use leasehold_reclaim::PAGE;
use std::hint::black_box;
use std::ptr::null_mut;
use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use rustix::process::{Pid, WaitOptions, waitpid};

/// Dependent multiplications of one `compute`: about 200 µs.
const MULTIPLICATIONS: u64 = 150_000;
/// Pages that one `mmap` maps, touches and unmaps: some microseconds, so that it is far less than
/// one in a hundred into which an interrupt of the host falls. With 16 pages and 250 ticks a second
/// it is one in a hundred, give or take a quarter, and the 99th percentile is with the ticks or
/// without them.
const PAGES: usize = 4;

/// A kind of operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// Computes without the kernel: feels only the loss of its processor and of caches.
    Compute,
    /// Maps pages, writes to each and unmaps them: feels locks of its address space, allocation
    /// of pages, and interrupts that invalidate translations.
    Map,
    /// Forks a process that exits at once and waits for it, as BRR §II does: feels the locks and
    /// caches of the whole kernel. Only in a process of its own.
    Spawn,
}

impl Load {
    /// The name of this load as an argument and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Map => "mmap",
            Self::Spawn => "spawn",
        }
    }

    /// Does one operation.
    pub(super) fn operate(self) -> Result<()> {
        match self {
            Self::Compute => {
                compute();
                Ok(())
            }
            Self::Map => map(),
            Self::Spawn => spawn(),
        }
    }
}

impl FromStr for Load {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> Result<Self> {
        match [Self::Compute, Self::Map, Self::Spawn]
            .into_iter()
            .find(|load| load.name() == name)
        {
            Some(load) => Ok(load),
            None => bail!("no such load: {name}"),
        }
    }
}

fn compute() {
    let mut state = black_box(1u64);
    for _ in 0..MULTIPLICATIONS {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
    }
    black_box(state);
}

fn map() -> Result<()> {
    // SAFETY: the kernel chooses an unused place; nothing existing is replaced.
    let memory = unsafe {
        mmap_anonymous(
            null_mut(),
            PAGES * PAGE,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE,
        )
    }
    .context("mapping pages")?;
    for page in 0..PAGES {
        // SAFETY: within the mapping just made, which is writable and private.
        unsafe { memory.cast::<u8>().add(page * PAGE).write_volatile(1) };
    }
    // SAFETY: exactly the mapping made above, into which no reference exists.
    unsafe { munmap(memory, PAGES * PAGE) }.context("unmapping pages")
}

fn spawn() -> Result<()> {
    // SAFETY: the child only leaves by `_exit`, which may be called after a fork in any process.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: ends this process without running anything of it.
        unsafe { libc::_exit(0) }
    }
    ensure!(child > 0, "forking: {}", std::io::Error::last_os_error());
    waitpid(Pid::from_raw(child), WaitOptions::empty()).context("waiting for the fork")?;
    Ok(())
}
