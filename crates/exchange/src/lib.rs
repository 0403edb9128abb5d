//! An exchange of HTTP between an I/O thread and a cell: one request and its response.
//!
//! The I/O thread speaks HTTP with clients; a guest on the cell's thread answers. The two are kept
//! apart as if they were two processes: only plain bytes cross, and this crate knows neither an
//! HTTP library nor a wasm engine.
//! A request that a guest sends is the same exchange with the sides changed: the cell has the client's
//! half, and hands the other one to an I/O thread through an [`Outbox`]. So is a connection that it makes, whose bytes are
//! the bodies, a socket for datagrams, whose [`Frame`]s are, and the look-up of a name.
//!
//! Principles:
//!
//! 1. **Bounded before it is queued**: [`ExchangeLimits::held_bytes`] is the most host memory that
//!    an exchange ever holds. Heads are [`Fields`] with a limit; a body crosses in a ring.
//! 2. **Neither side waits for the other.** What is not there yet is polled with a waker, one for
//!    each side of each direction.
//! 3. **Each side learns how the other ended**: a [`ClientHalf`] that is dropped abandons the
//!    exchange, and a [`GuestHalf`] that is dropped before it finished fails it.
//! 4. **Little is freed at once.** A head is a few allocations, a body at most one for each 4 KiB
//!    of its window that it used; the half that is dropped last frees them.
//!
//! # Map
//!
//! | concept | file |
//! |---|---|
//! | one exchange: its two halves, what they share | `client`, `guest`, `shared` |
//! | heads, and fields in heads and trailers | `head`, `fields`; which may pass: `hop_by_hop`, `trailers` |
//! | what one exchange may hold | `limits` |
//! | exchanges that wait for a tenant, and the end at which it takes them | `lane`, `intake` |
//! | what a tenant asks of other hosts | `call`, `datagram`; on its way: `outbox`; how it ended: `call_error`, `call_outcome` |
//! | why there is no response | `failure` |
//! | how long an exchange waited, and was worked for | `timing` |
//! | the trace that a request belongs to | `trace` |
//!
//! ```
//! use leasehold_exchange::{ExchangeLimits, Fields, Lane, Read, RequestHead, ResponseHead, Scheme, exchange};
//! use std::sync::Arc;
//! use std::task::{Context, Poll, Waker};
//!
//! let limits = ExchangeLimits::default();
//! let head = RequestHead {
//!     method: "GET".into(),
//!     scheme: Scheme::Http,
//!     authority: "shop.example".into(),
//!     path_with_query: "/".into(),
//!     fields: Fields::new(limits.head_bytes),
//! };
//! let lane = Arc::new(Lane::new(16));
//! let (mut client, guest) = exchange(limits, head, 1);
//! client.finish_body(None);
//! lane.offer(guest).unwrap();
//!
//! // On the cell's thread:
//! let mut guest = lane.take().unwrap();
//! assert_eq!(guest.request().path_with_query, "/");
//! assert_eq!(guest.read(&mut [0; 16]), Read::End);
//! guest.respond(ResponseHead { status: 200, fields: Fields::new(limits.head_bytes) }).unwrap();
//! assert_eq!(guest.write(b"hello"), 5);
//! guest.finish(None);
//!
//! // On the I/O thread:
//! let mut context = Context::from_waker(Waker::noop());
//! let Poll::Ready(Ok(head)) = client.poll_response(&mut context) else { panic!() };
//! assert_eq!(head.status, 200);
//! assert_eq!(client.poll_read(&mut context, 16), Poll::Ready(Ok(Some(b"hello".to_vec()))));
//! assert_eq!(client.poll_read(&mut context, 16), Poll::Ready(Ok(None)));
//! ```

#![forbid(unsafe_code)]

mod call;
mod call_error;
mod call_outcome;
mod client;
mod datagram;
mod failure;
mod fields;
mod guest;
mod head;
mod hop_by_hop;
mod intake;
mod lane;
mod limits;
mod outbox;
mod shared;
mod timing;
mod trace;
mod trailers;

pub use call::{ADDRESS, Call, CallKind, CallTimeouts, ConnectionOptions, KeepAlive, PEER};
pub use call_error::CallError;
pub use call_outcome::CallOutcome;
pub use client::{ClientHalf, Closed};
pub use datagram::{Frame, datagram_bytes};
pub use failure::Failure;
pub use fields::{FIELD_BYTES, Fields, TooLong};
pub use guest::{GuestHalf, Read, Responded};
pub use head::{RequestHead, ResponseHead, Scheme, has_body};
pub use hop_by_hop::is_hop_by_hop;
pub use intake::Intake;
pub use lane::{Failed, Lane, NotTaken, UnderWay};
pub use limits::ExchangeLimits;
pub use outbox::{CallPlace, IDLE_CONNECTIONS, Outbox, Outlet};
pub use shared::exchange;
pub use timing::Timing;
pub use trace::{TRACEPARENT, TraceParent};
pub use trailers::may_be_trailer;
