//! A store of keys and values in one file, with a quota.
//!
//! Principles:
//!
//! 1. **An operation is one transaction.** It is done as a whole and on the disk when it returns, or
//!    nothing of it is done. A process that dies in the middle leaves the file as it was before.
//! 2. **The quota is exact**: keys and values, with [`ENTRY_BYTES`] for each pair, never come to
//!    more. The file is larger, since its pages are never full and are never written in place: it
//!    has at most [`FILE_FACTOR`] times the quota, and [`LEAST_FILE`] bytes. So there is always room
//!    to delete.
//! 3. **Memory is bounded** by what one operation reads and writes: nothing is cached but by the
//!    host.
//!
//! Operations block, on the disk and on other operations of the same store.
//!
//! # Map
//!
//! | concept | file |
//! |---|---|
//! | operations, each one transaction | `store` |
//! | the file, which has a bound | `file` |
//! | limits of keys and values | `limits` |
//! | what can go wrong | `error` |
//!
//! ```
//! use leasehold_keyvalue::{Store, StoreError};
//!
//! # let directory = tempfile::tempdir().unwrap();
//! let store = Store::open(&directory.path().join("cart.redb"), 1 << 20).unwrap();
//! store.set(&[("apples".into(), b"3".to_vec())]).unwrap();
//! assert_eq!(store.increment("apples", 2), Ok(5));
//! assert_eq!(store.get("apples"), Ok(Some(b"5".to_vec())));
//! let many = vec![("pears".into(), vec![0; 60 << 10]); 1];
//! let small = Store::open(&directory.path().join("small.redb"), 1 << 10).unwrap();
//! assert_eq!(small.set(&many), Err(StoreError::Quota));
//! ```

#![forbid(unsafe_code)]

mod error;
mod file;
mod limits;
mod store;

pub use error::{OpenError, StoreError};
pub use file::{FILE_FACTOR, LEAST_FILE};
pub use limits::{ENTRY_BYTES, KEY_BYTES, VALUE_BYTES};
pub use store::{Page, Pair, Store};
