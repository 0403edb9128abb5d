//! Memory reservations on stock Linux: carries out the decisions of [`leasehold_pager`] with memfd
//! and userfaultfd, in the faulting thread.
//!
//! # Principles
//! 1. **A page cache is a set of frames.** An area is an extent of a memfd, of which a cell has
//!    exactly one; a page of it that is in the page cache has a frame, and gives it back when it is
//!    punched out. Tenants see an area through shared mappings, so that a page that one of them
//!    evicts stays for the others (SPC §IV-A).
//! 2. **A page table is a cache of the policy.** A missing entry of a page that the policy has
//!    mapped is restored without asking the policy. So reference bits cost no kernel support:
//!    [taking](leasehold_pager::Backend::take_referenced) one removes the entry, and the next touch
//!    restores it.
//! 3. **Faults are resolved where they happen.** The signal handler of the faulting thread asks
//!    the policy and maps the page: no other thread, no lock, and an allocation only at the
//!    first touch among 512 pages. A fault inside the
//!    pager itself is a bug and aborts.
//! 4. **Nothing is written that was not written to.** Pages with a place in the swap file are
//!    mapped read-only until their first write, which traps once.
//! 5. **A copy is paid for before it is made.** A write to an area mapped [copy on
//!    write](Paging::attach_copied) takes a frame of the writer's reservation first. Read-only
//!    data is mapped this way too: no write can kill the process.
//! 6. **Storage is allocated before it is promised.** Every page of an area that may be written out
//!    has a place in the swap file from the start, on disk blocks that are allocated.
//! 7. **A range is free soon, its pages later.** [Retiring](Paging::retire_step) a reservation moves
//!    its page tables aside; [`Paging::end_step`] takes the frames back, both so many per step.
//! 8. **A node holds what it promises.** Unused frames are [held](Held) by a ballast of real
//!    memory: pages of the memfd that are zero and in no area. The first touch of one of them takes no
//!    page from the kernel.
//! 9. **Missing features of the kernel are reported by name** ([`Features`]).
//! 10. **Finite resources are divided before they are used.** A reservation may have a share of the
//!     kernel's mappings and of the places in the store ([`Limits`]); an attachment takes the most
//!     mappings that it can ever cause when it is made.
//! 11. **Any system call may fail.** A failure refuses a request of the tenant that it was made
//!     for, or denies it a page, and affects no other tenant. Resources that could not be given
//!     back stay unused until they can. Every call can be made to fail in tests (feature `faults`).
//!
//! One [`Paging`] belongs to one thread: the one that opened it is the one that may touch what is
//! attached. Faults of other threads at these addresses are not resolved.
//!
//! System calls that are given addresses of pages that are not mapped fail with `EFAULT`:
//! [`Paging::touch`] maps a buffer first.
//!
//! # Map
//! | concept | file |
//! |---|---|
//! | the door for a cell: reservations, areas, attachments | `paging`; policy and mechanism together: `engine` |
//! | a fault: the signal, its decision, what cannot be served | `signal`, `fault`, `refusal` |
//! | the policy's decisions, carried out | `backend`, writing pages out: `backend::write_out`; mapping ahead: `ahead`; calls that neighbours share: `batch` |
//! | putting pages into page tables, and protecting them | `userfault`; what is in them: `present` |
//! | areas: their memory, and where they are attached | `memory`, `page_file`, `extents`, `attached`, `holders` |
//! | which pages of an area are in memory: the door in and out | `cached` |
//! | copy on write | `copied` |
//! | what a suspended program waits for | `transfer`; a page that another thread reads: `fetch`; a cluster that one writes: `cluster_write` |
//! | secondary storage: the swap file and its places | `store`, `swap_file`, `swap_places` |
//! | frames that are held for the node | `hold`; which pages of the memfd they are: `prepared` |
//! | giving addresses back soon, contents later | `detach` |
//! | the host's own accesses | `host_access` |
//! | system calls on ranges of addresses | `span` |
//! | what the kernel offers, and why something is refused | `probe`, `error` |
//! | what these are made of | `bits` |
//!
//! # Example
//! ```
//! use leasehold_pager::{Contract, Ending, PAGE, Sharing};
//! use leasehold_pager_linux::{Options, Paging, SwapFile};
//! # use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
//!
//! # let directory = tempfile::tempdir_in(".")?;
//! # let path = directory.path().join("swap");
//! # // Some file systems have no direct input and output.
//! # if SwapFile::create(&path, 8).is_err() { return Ok(()); }
//! // A cell with 64 frames, and a swap file with room for 256 pages.
//! let swap = SwapFile::create(&path, 256)?;
//! let paging = Paging::open(Options { store: Some(Box::new(swap)), ..Options::new(64) })?;
//!
//! // A tenant with 8 frames and a memory of 100 pages.
//! let tenant = paging.reserve(&Contract::hard(8))?;
//! let memory = paging.create_area(100, Sharing::Conserve)?;
//! let page = PAGE as usize;
//! # let (nobodys, flags) = (ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE);
//! // SAFETY: the addresses are new, and the tenant's alone.
//! let start = unsafe {
//!     let start = mmap_anonymous(std::ptr::null_mut(), 100 * page, nobodys, flags)?.cast::<u8>();
//!     paging.attach_at(tenant, memory, start, 100)?;
//!     start
//! };
//! for number in 0..100 {
//!     // SAFETY: within those addresses.
//!     unsafe { start.add(number * page).write(number as u8) };
//! }
//! // SAFETY: as above.
//! assert!((0..100).all(|number| unsafe { start.add(number * page).read() } == number as u8));
//! let counts = paging.counts(tenant)?;
//! assert!(counts.evicted >= 92 && paging.account(tenant)?.owned <= 8);
//!
//! // The addresses are free at once, and its frames come back 16 pages at a time.
//! paging.retire(tenant)?;
//! while paging.end_step(tenant, 16)? == Ending::More {}
//! assert_eq!(paging.unreserved(), 64);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod ahead;
mod attached;
mod backend;
mod batch;
mod bits;
mod cached;
mod cluster_write;
mod copied;
mod detach;
mod engine;
mod error;
mod extents;
mod fault;
mod fetch;
mod hold;
mod holders;
mod host_access;
mod memory;
mod page_file;
mod paging;
mod prepared;
mod present;
mod probe;
mod refusal;
mod signal;
mod span;
mod store;
mod swap_file;
mod swap_places;
mod transfer;
mod userfault;

pub use error::Error;
pub use fault::FaultPhase;
pub use hold::{Held, Locking};
pub use holders::Limits;
pub use page_file::PAGE_FILE_BYTES;
pub use paging::{AT_ONCE, CopyOnWrite, Options, Paging};
pub use probe::{Features, Unsupported};
pub use refusal::{Answer, Denied, Reason};
pub use signal::Handlers;
pub use store::{Store, StoreFile};
pub use swap_file::{SwapFile, SwapFileError};
pub use transfer::{Awaited, Finished, Transfer, Transferred, Turn, Wait, Wanted};
