//! The second line of defence of a process that runs untrusted WebAssembly.
//!
//! The first line is the engine: a guest reaches only its own memory and the host's interfaces. If
//! that line breaks, this crate limits the *process*, by means of the kernel alone. It is
//! independent of cells and leases.
//!
//! 1. **Confinement only grows.** Nothing here can be taken back by the process.
//! 2. **No thread is forgotten.** [`enter`] refuses a process that has more than one thread; every
//!    later thread inherits what its creator had, and [narrows](narrow) itself to its
//!    [kind](Thread) before it does anything for a guest.
//! 3. **Lists name allowed calls, not forbidden ones.** A system call that is on no list fails with
//!    `EPERM`: an unforeseen call is an error for one tenant and not the end of all of them. Calls
//!    that only an intruder makes ([`FATAL`]) end the process.
//! 4. **The restrictions in force are reported** ([`InForce`]), not assumed: Landlock's depend on
//!    the kernel's version; without any other one, [`enter`] fails.
//!
//! [`owned`] is about the other direction: which files of the user a process may trust. [`ForkServer`] has work done in
//! processes of their own, which have even less.
//!
//! # Map
//!
//! | concept | file |
//! |---|---|
//! | the door: entering once, narrowing each thread | `process` |
//! | system calls that each kind of thread may make | `calls`; as filters of the kernel: `filter` |
//! | files that are reached by name | `places` |
//! | privileges and visibility of the process; its resource limits | `privileges`, `limits` |
//! | which files of the user may be trusted | [`owned`] |
//! | work in processes of their own: the door; the server that makes them; how a copy of a process is made; what is sent | `fork_server`; `server`; `fork`; `packet` |
//! | tests of the lists: a denied call ends the process, with its name | `trapped` |
//!
//! ```no_run
//! use leasehold_confine::{Locking, Mode, Place, Places, Thread, enter, narrow};
//!
//! let places = Places {
//!     tenants: vec![Place::write("/srv/data")],
//!     controller: vec![Place::read("/srv/programs/thumbnail.wasm")],
//!     start: vec![Place::read("/proc")],
//!     ..Places::default()
//! };
//! // First in `main`, before any other thread exists.
//! let in_force = enter(Mode::Enforce, places, Locking::Never)?;
//! std::thread::spawn(|| {
//!     // Whatever takes privileges comes first: real-time priority, timers, files of its own.
//!     narrow(Thread::Cell).expect("once, and after enter");
//!     // Here guests run.
//! });
//! narrow(Thread::Controller)?;
//! println!("{in_force}");
//! # Ok::<(), leasehold_confine::ConfineError>(())
//! ```

mod calls;
mod filter;
mod fork_server;
mod limits;
pub mod owned;
mod places;
mod privileges;
mod process;
mod trapped;

pub use calls::{FATAL, Thread};
pub use filter::FilterError;
pub use fork_server::{Ended, ForkServer, JobError, Limits, MAX_PACKET_BYTES, Packet};
pub use places::{Access, FilesInForce, Place, Places};
pub use privileges::{Locking, ObeysPermissions, locks_without_limit};
pub use process::{ConfineError, InForce, Mode, enter, in_force, is_confined, narrow};
