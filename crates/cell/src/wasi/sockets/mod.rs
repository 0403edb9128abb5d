//! `wasi:sockets` 0.2: connections over TCP and datagrams of UDP to where the lease allows, connections that come to where it
//! lets the program listen, and the addresses of names.
//!
//! A connection is a call ([`OutgoingCall`](super::outgoing::OutgoingCall)): the thread of calls to other hosts makes it,
//! after it has compared the address with the lease, and its bytes cross in the windows of an exchange. So is a socket for
//! datagrams, which cross as frames. A place among the
//! tenant's calls and the memory of the windows are charged before. A socket is one slot of the arena, without a destructor.
//!
//! Nowhere else a socket listens, and none that connects or sends datagrams has a port of its choice: that is refused
//! (`access-denied`).

mod access;
mod address;
mod bindings;
mod failure;
pub(crate) mod kinds;
mod lookup;
pub(crate) mod object;
mod streams;
mod tcp;
mod udp;

use super::imports::Outbound;
use super::outgoing::Refused;
use super::view::{OfGuest, Wasi};
use crate::guest::Guest;
use crate::steps::{mark, step};
use access::{confused, make, unpaid};
use bindings::instance_network;
use bindings::network::{self, ErrorCode};
use leasehold_exchange::CallKind;
use object::Object;
use wasmtime::Result;
use wasmtime::component::{Linker, Resource};
use wasmtime_wasi::p2::IoError;

impl Guest {
    /// The number of a call that is sent at once, and has no body or one that is written as the connection takes it.
    fn call(&mut self, outbound: &Outbound, kind: CallKind) -> Result<u64, Refused> {
        let number = self.calls().open(outbound)?;
        let call = self.calls().find(number);
        let sent = call.map_or(Err(Refused::Over), |call| call.send(outbound, kind));
        if let Err(why) = sent {
            self.calls().end(number);
            return Err(why);
        }
        Ok(number)
    }
}

impl Wasi<'_> {
    /// The bytes of a socket that are on their way in each direction at the most.
    fn window(&self) -> Result<u64, ErrorCode> {
        let outgoing = self.0.imports.outgoing.as_ref();
        let window = outgoing.map(|outbound| outbound.outlet.outbox().limits().window_bytes);
        window.map(u64::from).ok_or(ErrorCode::InvalidState)
    }

    /// A guest may ask for any window but none: it gets that of its lease.
    fn ask_for_window(&self, bytes: u64) -> Result<(), ErrorCode> {
        match bytes {
            0 => Err(ErrorCode::InvalidArgument),
            _ => Ok(()),
        }
    }
}

impl network::Host for Wasi<'_> {
    /// Not linked: the interface calls it unstable.
    fn network_error_code(&mut self, _: Resource<IoError>) -> Result<Option<ErrorCode>> {
        Ok(None)
    }
}

impl network::HostNetwork for Wasi<'_> {
    fn drop(&mut self, network: Resource<kinds::Network>) -> Result<()> {
        mark(step!("wasi:sockets/network", "[resource-drop]network"));
        match access::take(self.0, &network)? {
            Object::Network => Ok(()),
            _ => Err(confused()),
        }
    }
}

impl instance_network::Host for Wasi<'_> {
    fn instance_network(&mut self) -> Result<Resource<kinds::Network>> {
        mark(step!("wasi:sockets/instance-network", "instance-network"));
        make(self.0, Object::Network).map_err(unpaid)
    }
}

/// Links `wasi:sockets`.
///
/// # Errors
/// When a function is linked twice, which is a defect.
pub(super) fn link(linker: &mut Linker<Guest>) -> Result<()> {
    let l = linker;
    let options = network::LinkOptions::default();
    network::add_to_linker::<Guest, OfGuest>(l, &options, |guest| Wasi(guest))?;
    instance_network::add_to_linker::<Guest, OfGuest>(l, |guest| Wasi(guest))?;
    bindings::ip_name_lookup::add_to_linker::<Guest, OfGuest>(l, |guest| Wasi(guest))?;
    bindings::tcp::add_to_linker::<Guest, OfGuest>(l, |guest| Wasi(guest))?;
    bindings::tcp_create_socket::add_to_linker::<Guest, OfGuest>(l, |guest| Wasi(guest))?;
    bindings::udp::add_to_linker::<Guest, OfGuest>(l, |guest| Wasi(guest))?;
    bindings::udp_create_socket::add_to_linker::<Guest, OfGuest>(l, |guest| Wasi(guest))
}
