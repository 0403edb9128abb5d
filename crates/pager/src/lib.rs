//! Memory reservations that shared pages cannot break: frames that are guaranteed to a tenant and
//! limit it, regardless of the tenants that share pages with it.
//!
//! The paper behind it, on shared-page management for memory reservations (cited as SPC), shows
//! that a reservation alone isolates private pages only: another tenant with the same page mapped
//! can cause its eviction, and a tenant that did nothing misses its deadline. It adds two
//! techniques, Shared-Page Conservation (SPC) and the Shared-Page Eviction Lock (SPEL). This crate
//! is their policy: `no_std`, single-threaded, free of clocks and of unsafe code. A [`Backend`]
//! carries out its decisions.
//!
//! # Principles
//! 1. **Frames are set aside before they are used.** A [reservation](Pager::reserve) takes its
//!    frames from the node's; at all times `free + owned + conserved = reservation`
//!    ([`Account`]). Pages beyond it make room in the same reservation (SPC §II-B).
//! 2. **Paging unmaps pages of the paging tenant only.** Evicting a shared page takes it from the
//!    evictor alone; the page's frame passes to the next sharer, which gives up the frame that it
//!    had [conserved](Account::conserved) for it (SPC §IV-A). Only private pages are written out.
//! 3. **Sharing is observed.** It is read from the page tables, not declared: a page is shared
//!    while two reservations have it mapped, and private again when one is left.
//! 4. **A lock pays for one copy.** [Locking](Pager::lock) an area makes it resident for good, and
//!    `(n−1)` of the `n` frames that its sharers had for each page unreserved (SPC §IV-B).
//!    [`choose`] tells for which areas that takes fewer frames (SPC §IV-C). Memory through which
//!    tenants communicate is [kept](Pager::pin_step) by one of them instead.
//! 5. **A request that cannot be met is refused and changes nothing.** A lack of frames, of swap
//!    space or of a lock's frames shows when something is [reserved](Pager::reserve),
//!    [attached](Pager::attach) or [unlocked](Pager::unlock), not at a fault ([`Refused`]).
//! 6. **A fault takes bounded time.** It allocates at most a block of 12 KiB, visits at most 256
//!    mappings and writes at most one [cluster](CLUSTER); lists are intrusive and their moves O(1).
//! 7. **The baselines are built in.** Reservations without shared-page management, and Linux's
//!    first-touch rule, can be had per area ([`Sharing`]), to measure against in the same build.
//!
//! # Map
//! | concept | file |
//! |---|---|
//! | memory reservation, hard | `reservation`; firm: `firm` |
//! | Shared-Page Conservation (SPC): ownership of a shared page, and passing it on | `conservation`; conserved-page list: `conserved_pages` |
//! | Shared-Page Eviction Lock (SPEL) | `eviction_lock` |
//! | the rule that picks one of them, and what it decides on | `rule`, `usage` |
//! | baselines: no management, first touch | `plain`, `first_touch` |
//! | areas, and their attachments to reservations | `area`, `attach`, `attachment` |
//! | names of pages: number, and area | `page` |
//! | page fault, and mapping ahead of it | `fault`, `ahead`; copy on write: `copy` |
//! | active and inactive list, ownership list | `lists`; room for their mappings: `mappings_needed`; second chance: `second_chance` |
//! | eviction, and writing out in clusters | `second_chance` (the victim), `evict`, `write_out` |
//! | pages that their creator keeps | `pin` |
//! | the beginning of a reservation, and its end, in steps | `begin`; `end` |
//! | frames of the node, and which reservation has them | `node_frames`, `frame`, `pager`; where one for a page comes from: `frame_source`; why a request is refused: `refused` |
//! | whether reservations fit together | [`admission`] |
//! | mechanism: page tables, frames, storage | `backend`; in memory, for tests: `memory_backend` |
//! | the invariant, counted anew | `audit` |
//! | simulator of periodic tasks | [`simulate`] |
//! | what these are made of | `table`, `sparse` |
//!
//! # Example
//! ```
//! use leasehold_pager::{Contract, Fault, MemoryBackend, PageNumber, Pager, Refused, Sharing};
//!
//! let mut pager = Pager::new(100, MemoryBackend::new(100));
//! let (camera, viewer) = (pager.reserve(&Contract::hard(10))?, pager.reserve(&Contract::hard(4))?);
//! let image = pager.create_area(8, Sharing::Conserve)?;
//! let (theirs, mine) = (pager.attach(camera, image)?, pager.attach(viewer, image)?);
//!
//! // The camera draws an image of eight pages; the viewer, which has four frames, looks at it.
//! for page in PageNumber::range(0..8) {
//!     assert_eq!(pager.fault(theirs, page)?, Fault::Zero);
//!     assert_eq!(pager.fault(mine, page)?, Fault::Minor);
//! }
//!
//! // The viewer had to evict four pages. The camera has lost none of them.
//! assert_eq!(pager.counts(viewer)?.unmapped, 4);
//! assert!(PageNumber::range(0..8).all(|page| pager.backend().is_mapped(theirs, page)));
//! assert_eq!(pager.account(camera)?.owned, 8);
//! assert_eq!(pager.account(viewer)?.conserved, 4);
//!
//! // A lock would keep all eight pages mapped for both: four frames do not suffice for that.
//! assert_eq!(pager.lock(image), Err(Refused::TooSmall { needed: 8, size: 4 }));
//! # Ok::<(), Refused>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod admission;
mod ahead;
mod area;
mod attach;
mod attachment;
mod audit;
mod backend;
mod begin;
mod conservation;
mod conserved_pages;
mod copy;
mod end;
mod evict;
mod eviction_lock;
mod fault;
mod firm;
mod first_touch;
mod frame;
mod frame_source;
mod lists;
mod mappings_needed;
mod memory_backend;
mod node_frames;
mod page;
mod pager;
mod pin;
mod plain;
mod refused;
mod reservation;
mod rule;
mod second_chance;
pub mod simulate;
mod sparse;
mod table;
mod usage;
mod write_out;

pub use area::Sharing;
pub use attachment::AttachmentId;
pub use audit::Violation;
pub use backend::{Backend, Held, StoreError, Writing};
pub use begin::Beginning;
pub use end::Ending;
pub use fault::Fault;
pub use frame::{Frame, PAGE};
pub use memory_backend::{MemoryBackend, Traffic};
pub use page::{AreaId, Page, PageNumber};
pub use pager::Pager;
pub use refused::Refused;
pub use reservation::{Account, Contract, Counts, Kind, ReservationId};
pub use rule::{Technique, choose};
pub use sparse::{Block, Sparse};
pub use usage::Usage;
pub use write_out::CLUSTER;
