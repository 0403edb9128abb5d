//! The front of a node: HTTP over sockets on one I/O thread, and exchanges to a cell.
//!
//! Principles:
//!
//! 1. **One thread, and never the cell's core** where there is another.
//! 2. **A client gets no further than its limits.** Connections are counted for each listener and
//!    each source; a head, a handshake, a request and an idle connection each have a time.
//! 3. **A request that cannot be queued costs the cell nothing.** It is answered here.
//! 4. **The tenant pays.** The processor time of a connection is charged to the tenant that it is
//!    for.
//! 5. **A response is whole, or its connection is reset.** No failure looks like an end.
//!
//! # Map
//!
//! | concept | file |
//! |---|---|
//! | the I/O thread, its start and its end | `front`; why it cannot start: `error` |
//! | listeners and their sockets | `listening`; certificates: `tls` |
//! | connections: one and its socket, the limits on them, their counts, and which give way | `connection`, `socket`, `sources`, `tally`, `quiet` |
//! | a request, from its head to the head of its response | `service`; the head as it crosses: `request` |
//! | the tenant of a request | `routes`, `site` |
//! | responses: a guest's head or the front's own answer; the body | `reply`, `body` |
//! | what is wrong with a request's body | `upload` |
//! | what exchanges hold until their clients have taken everything | `place` |
//! | which tenant or client pays for the thread | `payer` |
//! | what is counted: ends and bytes, latencies | `usage`, `latency` |
//! | the access log, and traces across services | `access`, `trace` |

#![forbid(unsafe_code)]

mod access;
mod body;
mod connection;
mod error;
mod front;
mod latency;
mod listening;
mod payer;
mod place;
mod quiet;
mod reply;
mod request;
mod routes;
mod service;
mod site;
mod socket;
mod sources;
mod tally;
mod tls;
mod trace;
mod upload;
mod usage;

pub use access::{Outcome, Record};
pub use error::FrontError;
pub use front::{Drained, Front, Options};
pub use latency::{Distribution, Latency};
pub use listening::{Listening, Sockets};
pub use site::{Counts, Site, SiteSnapshot};
pub use tally::Connections;
pub use tls::check_certificates;
pub use trace::{Sampling, Trace};
