//! What guests ask of other hosts, on one I/O thread: HTTP requests, connections over TCP, those that come to them,
//! datagrams of UDP, and the addresses of names.
//!
//! A tenant's calls come through an [`Outbox`](leasehold_exchange::Outbox): the cell has one half of each
//! exchange, this thread the other. Nothing else of the process connects to other hosts.
//!
//! Principles:
//!
//! 1. **What is not allowed is refused here.** A call goes to a destination of its tenant's lease,
//!    whatever the cell thinks of it. A connection, and each datagram, is to an address: that of a destination, or one that
//!    the tenant was told for a destination's name. Datagrams from elsewhere reach no tenant.
//! 2. **The address that was checked is the address that is used.** A name is looked up once for a
//!    connection; an address of this machine, of a private network, or of many hosts is left out
//!    unless the lease allows it. So a name that its owner points elsewhere leads to nothing within. Where tenants may listen
//!    was bound before the thread began.
//! 3. **Tenants share nothing**: connections, sessions of TLS and look-ups are a tenant's own.
//! 4. **The end of a tenant ends its calls**: tasks and connections of a tenant live in one set, which
//!    is dropped when its outbox is closed.
//! 5. **Tenants take turns**: each has an equal part of the thread while several want it, whatever their hosts send.
//! 6. **What is held is bounded**: a body, and what goes over a connection, crosses in the window of its exchange, a head
//!    has a limit, idle connections are few and do not stay, and what a dropped socket has left to send is waited for for
//!    a second. What the kernel keeps of sockets has a limit, too: buffers, and local ports.
//! 7. **What is computed in one poll is bounded**: what a host sends is read in slices, and the certificates that it shows are
//!    few, with few ways to connect them.
//!
//! # Map
//!
//! | concept | file |
//! |---|---|
//! | the thread, and an outbox for each start of a tenant | `outgoing`, `tenant`; why it cannot start: `error` |
//! | what the calls of a tenant share | `calling` |
//! | one call; a request, and its body | `call`, `body` |
//! | informational responses before the answer | `informational` |
//! | a connection over TCP, and what goes over it | `connection` |
//! | sockets that listen, and the connections that come to them | `listening` |
//! | a socket for datagrams | `datagrams` |
//! | what the kernel has of a connection, also after its end | `socket`; local ports of all sockets: `ports` |
//! | both directions of a socket, until the guest or its tenant is done | `carry` |
//! | looking up names for a guest, and the addresses that it was told | `names` |
//! | the span of a request, and the record of it | `sent` |
//! | connections of requests: looked up, checked, then made; idle ones | `connect`, `pool` |
//! | which addresses a name may stand for; which are this machine's | `address`, `address::own` |
//! | looking up names | `resolver`; messages of DNS: `dns` |
//! | certificates that are trusted; how many a host may show | `trust`, `certificates` |
//! | handshake messages of TLS that a host may send | `handshake` |
//! | which tenant pays for the thread | `payer` |
//!
//! ```no_run
//! # use leasehold_outgoing::OutgoingError;
//! use leasehold_outgoing::{Options, Outgoing, Trust};
//! # fn ask(lease: &leasehold_lease::Outgoing) -> Result<(), OutgoingError> {
//! // Files are read before the process is confined.
//! let trust = Trust::load([lease])?;
//! let outgoing = Outgoing::start(trust, Options::default())?;
//! // One for each start of a tenant; the cell sends calls into it.
//! let outbox = outgoing.open("shop", None, lease)?;
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod address;
mod body;
mod call;
mod calling;
mod carry;
mod certificates;
mod connect;
mod connection;
mod datagrams;
mod dns;
mod error;
mod handshake;
mod informational;
mod listening;
mod names;
mod outgoing;
mod payer;
mod pool;
mod ports;
mod resolver;
mod sent;
mod socket;
mod tenant;
mod trust;

pub use error::OutgoingError;
pub use listening::Bound;
pub use outgoing::{Options, Outgoing};
pub use ports::LocalPorts;
pub use resolver::Resolver;
pub use sent::{Observer, Sent};
pub use trust::Trust;
