//! Leases: the contract of a tenant, read from `lease.toml` or from the flags of `leasehold run`.
//!
//! A lease limits the cost of a tenant: how long taking everything back from it may take
//! (`reclaim`, the reclamation budget of BRR §III), how much memory it may use (`memory`), and how
//! much processor time is kept for it (`cpu`, the reservation of SPR §II). This crate turns text
//! into a [`Lease`] that every other part can trust; it admits nothing and charges nothing itself.
//!
//! Principles:
//!
//! 1. **Nothing is parsed and ignored.** A key that no part of the system acts on is an error.
//! 2. **A value that exists is in range.** Zero, negative and absurd quantities cannot be
//!    constructed, so that no user checks them again.
//! 3. **A quantity carries its unit.** `"500us"` is a budget, `500` is an error that asks for one.
//! 4. **One error, complete.** The first fault in the file is reported with file, line, key, what
//!    was found and what is allowed.
//! 5. **Text is hostile.** No input panics, and work and memory are bounded by its length, which
//!    is bounded too ([`LeaseFile::MAX_BYTES`], [`LeaseFile::MAX_TENANTS`]).
//!
//! # Map
//!
//! | concept | file |
//! |---|---|
//! | the contract of one tenant | `lease` |
//! | its reservations: processor, memory | `cpu`, `memory`; the order of dispatch: `order` |
//! | its limits: files, additions to a disk | `files`, `disk` |
//! | what it is connected to: requests, other hosts, a store | `http`, `outgoing`, `keyvalue` |
//! | a tenant: program, arguments, directories, lease | `tenant`, `restart`; as a workload for simulation: `workload` |
//! | an address at which clients reach tenants | `listener`; host and port: `authority` |
//! | addresses at which a socket can listen, each of which belongs to one thing | `addresses` |
//! | `lease.toml` | `file`; a value with its key and place: `node`; a fault: `error` |
//! | the same as flags | `flags`, `flag_error` |
//! | quantities with units | `quantity`, `decimal`; of time and memory: `nanoseconds`, `byte_size` |
//! | the door for files that operators name | `regular_file` |
//!
//! ```
//! use std::path::Path;
//! use leasehold_lease::LeaseFile;
//!
//! let text = r#"
//! [tenant.thumbnailer]
//! component = "thumbnailer.wasm"
//! reclaim = { budget = "500us" }
//! memory = { reserve = "16MiB" }
//! "#;
//! let file = LeaseFile::parse(text, Path::new("etc/lease.toml"))?;
//! let tenant = &file.tenants[0];
//! assert_eq!(tenant.component, Path::new("etc/thumbnailer.wasm"));
//! assert_eq!(tenant.lease.reclaim.budget.get(), 500_000);
//!
//! let refused = LeaseFile::parse(&text.replace("500us", "500"), Path::new("etc/lease.toml"));
//! assert_eq!(
//!     refused.unwrap_err().to_string(),
//!     "etc/lease.toml:4:22: tenant.thumbnailer.reclaim.budget: found \"500\" (no unit); \
//!      allowed: a time with its unit (ns, us, ms, s), more than zero and at most 3600s, \
//!      such as \"500us\"",
//! );
//! # Ok::<(), leasehold_lease::LeaseError>(())
//! ```

mod addresses;
mod authority;
mod byte_size;
mod cpu;
mod decimal;
mod disk;
mod error;
mod file;
mod files;
mod flag_error;
mod flags;
mod http;
mod keyvalue;
mod lease;
mod listener;
mod memory;
mod nanoseconds;
mod node;
mod order;
mod outgoing;
mod quantity;
mod regular_file;
mod restart;
mod tenant;
mod workload;

pub use addresses::{Addresses, Families, ListenAddress, ListenAddressError};
pub use authority::{Authority, AuthorityFault, Host};
pub use byte_size::ByteSize;
pub use cpu::{Cpu, CpuFault, Policy};
pub use decimal::decimal;
pub use disk::Disk;
pub use error::LeaseError;
pub use file::LeaseFile;
pub use files::Files;
pub use flag_error::FlagError;
pub use flags::LeaseFlags;
pub use http::{Fresh, Http, Route};
pub use keyvalue::KeyValue;
pub use lease::{Lease, Reclaim};
pub use listener::{Certificate, Listener};
pub use memory::{Memory, MemoryKind, Paging, PagingFlag, SharedPages};
pub use nanoseconds::Nanoseconds;
pub use order::Order;
pub use outgoing::{Destination, DestinationHost, Outgoing, Protocol};
pub use quantity::{QuantityError, QuantityFault};
pub use regular_file::{RegularFile, RegularFileError};
pub use restart::Restart;
pub use tenant::{DataSet, Directory, EnvVar, STRINGS_BYTES, STRINGS_MOST, TenantSpec};
pub use workload::{Activity, Workload};
