//! `udp`: there is no socket of it, so no function has anything to work on.

use super::bindings::network::{ErrorCode, IpAddressFamily, IpSocketAddress};
use super::bindings::udp::{self, IncomingDatagram, OutgoingDatagram};
use super::bindings::udp_create_socket;
use super::kinds;
use crate::steps::{mark, step};
use crate::wasi::view::Wasi;
use wasmtime::Result;
use wasmtime::component::Resource;
use wasmtime_wasi::p2::DynPollable;

type Socket = Resource<kinds::UdpSocket>;
type Incoming = Resource<kinds::IncomingDatagrams>;
type Outgoing = Resource<kinds::OutgoingDatagrams>;
type Network = Resource<kinds::Network>;
type Answer<T> = Result<Result<T, ErrorCode>>;

/// The error of a handle, of which a guest has none.
fn none<T>() -> Result<T> {
    Err(wasmtime::Error::msg("unknown socket"))
}

impl udp_create_socket::Host for Wasi<'_> {
    fn create_udp_socket(&mut self, _: IpAddressFamily) -> Answer<Socket> {
        mark(step!("wasi:sockets/udp-create-socket", "create-udp-socket"));
        Ok(Err(ErrorCode::AccessDenied))
    }
}

impl udp::Host for Wasi<'_> {}

/// Functions without anything to work on.
macro_rules! functions {
    ($($row:literal $name:ident($($argument:ty),*) -> $answer:ty;)*) => {
        $(fn $name(&mut self, $(_: $argument),*) -> $answer {
            mark(step!("wasi:sockets/udp", $row));
            none()
        })*
    };
}

impl udp::HostUdpSocket for Wasi<'_> {
    functions! {
        "[method]udp-socket.start-bind" start_bind(Socket, Network, IpSocketAddress) -> Answer<()>;
        "[method]udp-socket.finish-bind" finish_bind(Socket) -> Answer<()>;
        "[method]udp-socket.stream" stream(Socket, Option<IpSocketAddress>) -> Answer<(Incoming, Outgoing)>;
        "[method]udp-socket.local-address" local_address(Socket) -> Answer<IpSocketAddress>;
        "[method]udp-socket.remote-address" remote_address(Socket) -> Answer<IpSocketAddress>;
        "[method]udp-socket.address-family" address_family(Socket) -> Result<IpAddressFamily>;
        "[method]udp-socket.unicast-hop-limit" unicast_hop_limit(Socket) -> Answer<u8>;
        "[method]udp-socket.set-unicast-hop-limit" set_unicast_hop_limit(Socket, u8) -> Answer<()>;
        "[method]udp-socket.receive-buffer-size" receive_buffer_size(Socket) -> Answer<u64>;
        "[method]udp-socket.set-receive-buffer-size" set_receive_buffer_size(Socket, u64) -> Answer<()>;
        "[method]udp-socket.send-buffer-size" send_buffer_size(Socket) -> Answer<u64>;
        "[method]udp-socket.set-send-buffer-size" set_send_buffer_size(Socket, u64) -> Answer<()>;
        "[method]udp-socket.subscribe" subscribe(Socket) -> Result<Resource<DynPollable>>;
        "[resource-drop]udp-socket" drop(Socket) -> Result<()>;
    }
}

impl udp::HostIncomingDatagramStream for Wasi<'_> {
    functions! {
        "[method]incoming-datagram-stream.receive" receive(Incoming, u64) -> Answer<Vec<IncomingDatagram>>;
        "[method]incoming-datagram-stream.subscribe" subscribe(Incoming) -> Result<Resource<DynPollable>>;
        "[resource-drop]incoming-datagram-stream" drop(Incoming) -> Result<()>;
    }
}

impl udp::HostOutgoingDatagramStream for Wasi<'_> {
    functions! {
        "[method]outgoing-datagram-stream.check-send" check_send(Outgoing) -> Answer<u64>;
        "[method]outgoing-datagram-stream.send" send(Outgoing, Vec<OutgoingDatagram>) -> Answer<u64>;
        "[method]outgoing-datagram-stream.subscribe" subscribe(Outgoing) -> Result<Resource<DynPollable>>;
        "[resource-drop]outgoing-datagram-stream" drop(Outgoing) -> Result<()>;
    }
}
