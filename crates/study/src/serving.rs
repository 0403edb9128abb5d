//! Studies of tenants that answer requests, and what they share.
//!
//! | question | file |
//! |---|---|
//! | the cost of a request | `serve` |
//! | requests beyond what a lease pays for | `overload` |
//! | requests beside hostile tenants | `noisy` |
//! | the first request | `cold` |
//! | shared: rounds of a fixed length; a node's control interface | `rounds`, `control` |

pub(crate) mod cold;
mod control;
pub(crate) mod noisy;
pub(crate) mod overload;
pub(crate) mod rounds;
pub(crate) mod serve;
