//! Studies of tenants that answer requests, and what they share.
//!
//! | question | file |
//! |---|---|
//! | the cost of a request | `serve` |
//! | requests beyond what a lease pays for | `overload` |
//! | requests beside hostile tenants | `noisy` |
//! | shared: rounds of a fixed length | `rounds` |

pub(crate) mod noisy;
pub(crate) mod overload;
pub(crate) mod rounds;
pub(crate) mod serve;
