//! Tracks the work of other threads on files.
//!
//! Such work may hold locks of the kernel for as long as a disk or a large file takes: those of a
//! directory while it is read or a name in it goes, those of a file while it is written, made
//! smaller or removed. The cell's thread must not wait for them. So it changes names only while
//! there is no such work at all, and the contents of a file only while there is none on that file.
//! Work is counted from the request by the cell's thread until it is done or cancelled, so that
//! none begins while that thread changes something.
//!
//! File systems that may never answer ([`Class::Slow`]) are left out: nothing of theirs is done on the cell's
//! thread, and none of their locks is another's.

use super::class::Class;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Work that is under way, or waits.
static ALL: AtomicUsize = AtomicUsize::new(0);

/// Work on a file, until it is dropped.
#[derive(Debug)]
#[must_use = "it is counted until it is dropped"]
pub(crate) struct Elsewhere {
    class: Class,
    file: Option<Arc<AtomicUsize>>,
}

impl Elsewhere {
    /// Registers work on names, in a file system of this class.
    pub(crate) fn on_names(class: Class) -> Self {
        Self::on(class, None)
    }

    /// Registers work in a file system of this class, in the file's own count too.
    pub(super) fn on(class: Class, file: Option<Arc<AtomicUsize>>) -> Self {
        if class != Class::Slow {
            ALL.fetch_add(1, Ordering::AcqRel);
            if let Some(file) = &file {
                file.fetch_add(1, Ordering::AcqRel);
            }
        }
        Self { class, file }
    }

    /// Whether any work is registered.
    pub(super) fn is_any() -> bool {
        ALL.load(Ordering::Acquire) > 0
    }

    /// Wraps `work`: the registration ends when `work` is done or dropped.
    pub(crate) fn during<T>(self, work: impl FnOnce() -> T) -> impl FnOnce() -> T {
        move || {
            let _under_way = self;
            work()
        }
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        if self.class != Class::Slow {
            ALL.fetch_sub(1, Ordering::AcqRel);
            if let Some(file) = &self.file {
                file.fetch_sub(1, Ordering::AcqRel);
            }
        }
    }
}
