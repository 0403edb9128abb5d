//! The cell's own host layer: files, blocking calls, and WASI preview 1 on top of them.
//!
//! Principles:
//!
//! 1. **A call that cannot block stays on the cell's thread.** It makes the kernel's system calls and
//!    nothing else: no lock, no other thread, and a bounded number of bytes ([`fs::STEP`]) between two
//!    instants at which the guest can be preempted.
//! 2. **A call that could block waits on another thread.** It is first made in a form that does not
//!    wait (`RESOLVE_CACHED`, `RWF_NOWAIT`); if the kernel answers *would block*, it becomes a job
//!    of a thread that may block ([`io`]).
//! 3. **The kernel resolves paths**, beneath the directory of the lease (`RESOLVE_BENEATH`). No
//!    code of the cell walks a path.
//! 4. **A descriptor is charged and counted before it exists** ([`fs::account`]), and never closed on the
//!    cell's thread where that could take long ([`io::reaper`]).
//! 5. **All system calls are in one module** ([`linux`]), where tests make calls fail.

pub(crate) mod answer;
#[cfg(test)]
mod faults;
pub(crate) mod fs;
pub(crate) mod io;
pub(crate) mod linux;
mod page_batches;
pub(crate) mod preview1;
pub(crate) mod yield_point;
