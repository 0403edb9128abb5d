//! The guest interface as both of its sides see it: errors, rights, limits, results and functions;
//! `no_std`, without dependencies.
//!
//! The kernel and the cell on one side, guest programs on the other use these types and nothing of
//! their own, so that they cannot disagree. `docs/guest-abi.md` describes the functions.
//!
//! # Map
//!
//! | concept | file |
//! |---|---|
//! | why a call was refused | `errno` |
//! | the rights of a capability | `rights` |
//! | the functions that core modules import, by name | `function` |
//! | what a call returns: one `i64` | `answer`; of a message that was received: `received` |
//! | limits that both sides have buffers for | `limit` |
//!
//! ```
//! use leasehold_abi::{Errno, Rights, decode, encode};
//!
//! // A host answers a call of a core module with one `i64`, which the guest takes apart.
//! assert_eq!(decode(encode(Ok(7))), Ok(7));
//! assert_eq!(encode(Err(Errno::Budget)), -5);
//! assert_eq!(decode(-5), Err(Errno::Budget));
//!
//! assert!(Rights::ALL.contains(Rights::READ | Rights::GRANT));
//! ```
#![no_std]
#![forbid(unsafe_code)]

mod answer;
mod errno;
mod function;
mod limit;
mod received;
mod rights;

pub use answer::{decode, encode};
pub use errno::Errno;
pub use function::{FUNCTIONS, MODULE};
pub use limit::{ARGUMENT_BYTES, MESSAGE_CAPABILITIES};
pub use received::Received;
pub use rights::Rights;
