//! Finds the lock of the Linux kernel that is taken at a call site: the object and the field.
//!
//! A tracer sees an address and a call chain. LockScope (Anjali and Swift, *Locked In, Leaked Out:
//! Measuring Isolation via Kernel Locks*) asks for the object that the lock is a member of, because
//! two workloads share that object (§4.2, table 4). Here the answer comes from the kernel's debug
//! information and its source, without compiling anything.
//!
//! # Principles
//! 1. **The debug information says where.** DWARF tells which functions are inlined at an address,
//!    and at which line each is called; nothing is guessed from names.
//! 2. **The source says which.** The argument of the lock function is read in the text, with the
//!    macros that the unit sees under the kernel's configuration.
//! 3. **Types come from the binary.** Members, offsets and the results of functions are those of
//!    the unit that the code is in, so two structures of one name are never confused.
//! 4. **Wrappers are found, not listed.** If the lock is a parameter, the caller's argument is
//!    followed.
//! 5. **Unknown locks are reported.** An expression that is not understood becomes
//!    [`Lock::Unknown`], with the reason, and is counted. Where the text chooses between locks at
//!    run time, the first is named.
//!
//! # Map
//! | concept | file |
//! |---|---|
//! | a kernel, its images and its source | `kernel`, `image`, `source` |
//! | from a call chain to the lock | `resolve`; its result: `site`; where a lock is: `origin` |
//! | a function: its text, its variables, its debug information | `body`, `scope`, `unit` |
//! | C, as far as it names locks | `lex`, `cursor`, `expr`, `ctype` |
//! | macros | `preprocess`, `expand`; those understood by their meaning: `intrinsic` |
//! | what can go wrong | `error` |
#![forbid(unsafe_code)]

mod body;
mod ctype;
mod cursor;
mod error;
mod expand;
mod expr;
mod image;
mod intrinsic;
mod kernel;
mod lex;
mod origin;
mod preprocess;
mod resolve;
mod scope;
mod site;
mod source;
mod unit;

pub use error::Error;
pub use kernel::{Code, Kernel, Paths};
pub use site::{Lock, Reason, Site};
