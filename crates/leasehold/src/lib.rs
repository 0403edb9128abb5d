//! Runs WebAssembly that is not trusted inside your own program, each under a **lease**: how long ending it may take,
//! which part of a processor is kept for it, and how much memory it has.
//!
//! A [`Host`] is one processor core's worth of tenants. A program is loaded for a lease in one of two forms, which say
//! what can be done with it:
//!
//! | loaded by | is a | started by | and then |
//! |---|---|---|---|
//! | [`Host::load`] | [`Command`], with an entry point | [`Host::run`] | runs, and ends: a [`Tenant`] |
//! | [`Host::load_plugin`] | [`Plugin`], with exported functions | [`Host::plug_in`] | answers [calls](Instance::call): an [`Instance`] |
//!
//! Principles:
//!
//! 1. **A small interface.** A started program can be called, observed, killed and waited for. The
//!    lease determines everything else.
//! 2. **A lease belongs to the program that was loaded for it**: the two cannot be mixed up.
//! 3. **Errors state what to change**, and [`Error`] states their origin: the host, the program,
//!    the lease, or the call.
//! 4. **The parts are usable alone.** [`reclaim`] and [`reserve`] are `no_std`, and know nothing of
//!    WebAssembly.
//!
//! # Map
//!
//! | concept | file |
//! |---|---|
//! | the host: tenants of one core | `host`; what its leases are charged by: `costs` |
//! | a program that was loaded for a lease | `program` |
//! | what a start is given | `start` |
//! | a tenant that runs; one whose functions are called | `tenant`, `instance` |
//! | values of calls: of Rust, as text | `value`, [`wave`] |
//! | errors, by their origin | `error` |
//!
//! A plug-in, called with values of Rust, and killed in the middle of an endless loop:
//!
//! ```
//! use leasehold::{CallError, Costs, Error, Exit, Host, Lease, Start};
//!
//! // Charges nothing; `Costs::measured` charges what things cost on this host.
//! let host = Host::new(Costs::none())?;
//! let plugin = host.compile_plugin(br#"(module
//!     (func (export "add") (param i32 i32) (result i32) (i32.add (local.get 0) (local.get 1)))
//!     (func (export "spin") (loop (br 0))))"#, &Lease::default())?;
//! let instance = host.plug_in(&plugin, Start::new())?;
//! let (sum,): (i32,) = instance.call("add", (1, 2))?;
//! assert_eq!(sum, 3);
//! let endless = instance.begin_call("spin", ())?;
//! instance.tenant().kill();
//! assert!(matches!(endless.wait::<()>(), Err(Error::Call(CallError::Ended))));
//! assert_eq!(instance.wait()?.exit, Exit::Killed);
//! # Ok::<(), Error>(())
//! ```
//!
//! Three programs in `examples` do more: `plugin_host` calls functions of components and charges for them, `restart`
//! starts what crashed again, and `kernel` has [`reclaim`] and [`reserve`] work together without `std`.
//!
//! Unlike `leasehold run`, the embedding program is not
//! [confined](https://docs.rs/leasehold-confine): it decides that itself.

mod costs;
mod error;
mod host;
mod instance;
mod program;
mod start;
mod tenant;
mod value;
pub mod wave;

pub use costs::Costs;
pub use error::Error;
pub use host::{Host, HostOptions};
pub use instance::{Instance, PendingResults};
pub use leasehold_cell::{
    CallError, Capture, Ended, Exit, ExportedFunction, FunctionError, ProgramError, StartError,
    Statement, Type, Val as Value,
};
pub use leasehold_lease::{ByteSize, Cpu, Lease, LeaseError, LeaseFile, Nanoseconds, TenantSpec};
pub use leasehold_reclaim as reclaim;
pub use leasehold_reserve as reserve;
pub use program::{Command, Plugin};
pub use start::Start;
pub use tenant::{Outcome, Tenant};
pub use value::{Arguments, FromValue, IntoValue, Results};
