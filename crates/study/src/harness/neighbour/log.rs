//! A log of operations in shared memory: written by one thread without system calls, so that
//! logging does not disturb what is logged, and read by another process when the writer is done.

use std::fs::{File, OpenOptions};
use std::mem::size_of;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::operation::Operation;

/// Operations that are kept; older ones are overwritten and counted as lost. 64 MiB, of which
/// only what is written is ever resident in a short run.
const CAPACITY: u64 = 1 << 22;
const BYTES: usize = size_of::<Header>() + CAPACITY as usize * size_of::<Entry>();

#[repr(C, align(64))]
struct Header {
    /// Operations ever logged.
    logged: AtomicU64,
    /// Not zero when the writer is to stop.
    stop: AtomicU64,
}

#[repr(C)]
struct Entry {
    start_ns: AtomicU64,
    duration_ns: AtomicU64,
}

/// The log; dropping it unmaps the memory.
pub(super) struct Log {
    memory: NonNull<Header>,
    file: OwnedFd,
}

// SAFETY: the mapping is not bound to a thread, and everything in it is atomic.
unsafe impl Send for Log {}
// SAFETY: as above.
unsafe impl Sync for Log {}

impl Log {
    /// An empty log.
    pub(super) fn create() -> Result<Self> {
        let file = memfd_create("leasehold-neighbour", MemfdFlags::CLOEXEC)
            .context("creating shared memory")?;
        ftruncate(&file, BYTES as u64).context("sizing shared memory")?;
        Self::map(file, MapFlags::SHARED)
    }

    /// The log of another process, with every page resident so that writing never faults.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let file: File = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .with_context(|| format!("opening {}", path.display()))?;
        ensure!(
            file.metadata()?.len() == BYTES as u64,
            "{} is no log",
            path.display()
        );
        Self::map(file.into(), MapFlags::SHARED | MapFlags::POPULATE)
    }

    fn map(file: OwnedFd, flags: MapFlags) -> Result<Self> {
        // SAFETY: the kernel chooses an unused place; nothing existing is replaced.
        let memory = unsafe {
            mmap(
                null_mut(),
                BYTES,
                ProtFlags::READ | ProtFlags::WRITE,
                flags,
                &file,
                0,
            )
        }
        .context("mapping shared memory")?;
        let memory = NonNull::new(memory.cast()).context("shared memory mapped at zero")?;
        Ok(Self { memory, file })
    }

    /// Where another process of the same user can open this log while this one lives.
    pub(super) fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()).into()
    }

    fn header(&self) -> &Header {
        // SAFETY: the mapping is as long as `Header` and the entries, aligned to a page, zeroed
        // at first, and lives as long as `self`; atomics are valid for every content.
        unsafe { self.memory.as_ref() }
    }

    fn entry(&self, number: u64) -> &Entry {
        // SAFETY: the entries follow the header, whose size is a multiple of their alignment, and
        // the index is less than their number; for the rest see `header`.
        unsafe {
            &*self
                .memory
                .add(1)
                .cast::<Entry>()
                .as_ptr()
                .add((number % CAPACITY) as usize)
        }
    }

    /// Logs an operation. One writer only.
    pub(super) fn push(&self, operation: Operation) {
        let number = self.logged();
        let entry = self.entry(number);
        entry.start_ns.store(operation.start_ns, Ordering::Relaxed);
        entry
            .duration_ns
            .store(operation.duration_ns, Ordering::Relaxed);
        self.header().logged.store(number + 1, Ordering::Release);
    }

    /// How many operations were ever logged.
    pub(super) fn logged(&self) -> u64 {
        self.header().logged.load(Ordering::Acquire)
    }

    /// Tells the writer to stop after the operation it is at.
    pub(super) fn stop(&self) {
        self.header().stop.store(1, Ordering::Relaxed);
    }

    /// Whether the writer is to stop.
    pub(super) fn stopped(&self) -> bool {
        self.header().stop.load(Ordering::Relaxed) != 0
    }

    /// The operations that are still in the log, oldest first, and how many were overwritten.
    /// To be called when the writer is done.
    pub(super) fn read(&self) -> (Vec<Operation>, u64) {
        let logged = self.logged();
        let lost = logged.saturating_sub(CAPACITY);
        let operations = (lost..logged).map(|number| {
            let entry = self.entry(number);
            Operation {
                start_ns: entry.start_ns.load(Ordering::Relaxed),
                duration_ns: entry.duration_ns.load(Ordering::Relaxed),
            }
        });
        (operations.collect(), lost)
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // SAFETY: this is the whole mapping that `map` made, and no reference into it outlives
        // `self`. Failure would leave the mapping, which is harmless.
        let _ = unsafe { munmap(self.memory.as_ptr().cast(), BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::{CAPACITY, Log};
    use crate::harness::neighbour::Operation;

    #[test]
    fn a_second_mapping_sees_what_the_first_logs() {
        let reader = Log::create().expect("shared memory");
        let writer = Log::open(&reader.path()).expect("openable while it lives");
        writer.push(Operation {
            start_ns: 5,
            duration_ns: 7,
        });
        assert_eq!(
            reader.read(),
            (
                vec![Operation {
                    start_ns: 5,
                    duration_ns: 7
                }],
                0
            )
        );
        assert!(!writer.stopped());
        reader.stop();
        assert!(writer.stopped());
    }

    #[test]
    fn the_newest_operations_are_kept_and_the_others_counted() {
        let log = Log::create().expect("shared memory");
        for start_ns in 0..CAPACITY + 3 {
            log.push(Operation {
                start_ns,
                duration_ns: 1,
            });
        }
        let (operations, lost) = log.read();
        assert_eq!((operations.len() as u64, lost), (CAPACITY, 3));
        assert_eq!(operations[0].start_ns, 3);
    }
}
