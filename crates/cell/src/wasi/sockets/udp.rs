//! `udp`: sockets that exchange datagrams with where the lease allows. None has a port of its choice.

use super::access::{confused, handle, make, take};
use super::address::{is_of_family, is_remote, local_address, of_guest, of_socket};
use super::bindings::network::{ErrorCode, IpAddressFamily, IpSocketAddress};
use super::bindings::udp::{self, IncomingDatagram, OutgoingDatagram};
use super::bindings::udp_create_socket;
use super::failure::{of_datagrams, refused};
use super::kinds;
use super::object::{Binding, Incoming, Object, Outgoing, Udp, UdpState};
use crate::guest::Guest;
use crate::steps::caps::{DATAGRAMS, RECEIVED, TRANSFER};
use crate::steps::{mark, step};
use crate::wasi::objects::Source;
use crate::wasi::outgoing::OutgoingCall;
use crate::wasi::poll::{subscribe, subscribe_to_socket};
use crate::wasi::rep;
use crate::wasi::view::Wasi;
use leasehold_exchange::{CallKind, Failure, Frame};
use leasehold_reclaim::Handle;
use std::net::SocketAddr;
use std::sync::Arc;
use wasmtime::component::Resource;
use wasmtime::error::Context as _;
use wasmtime::{Result, bail};
use wasmtime_wasi::p2::DynPollable;

type Socket = Resource<kinds::UdpSocket>;
type Received = Resource<kinds::IncomingDatagrams>;
type Sent = Resource<kinds::OutgoingDatagrams>;
type Network = Resource<kinds::Network>;

/// An answer of the interface.
type Answer<T> = Result<Result<T, ErrorCode>>;

/// The streams of a socket.
const STREAMS: u8 = 2;

fn find(guest: &Guest, socket: &Socket) -> Result<(Handle<Object>, Udp)> {
    let handle = handle(guest, socket)?;
    match rep::get(handle).context("unknown socket")? {
        Object::Udp(udp) => Ok((handle, udp)),
        _ => Err(confused()),
    }
}

fn incoming(guest: &Guest, stream: &Received) -> Result<(Handle<Object>, Incoming)> {
    let handle = handle(guest, stream)?;
    match rep::get(handle).context("unknown stream of datagrams")? {
        Object::Incoming(incoming) => Ok((handle, incoming)),
        _ => Err(confused()),
    }
}

fn outgoing(guest: &Guest, stream: &Sent) -> Result<(Handle<Object>, Outgoing)> {
    let handle = handle(guest, stream)?;
    match rep::get(handle).context("unknown stream of datagrams")? {
        Object::Outgoing(outgoing) => Ok((handle, outgoing)),
        _ => Err(confused()),
    }
}

/// The error of a socket whose call is over.
fn of_failure(failure: Failure) -> ErrorCode {
    match failure {
        Failure::Call(error) => of_datagrams(error),
        _ => ErrorCode::Unknown,
    }
}

/// Counts a stream of a socket as dropped.
fn drop_stream(socket: Handle<Object>) {
    if let Some(Object::Udp(mut udp)) = rep::get(socket) {
        udp.streams = udp.streams.saturating_sub(1);
        rep::put(socket, Object::Udp(udp));
    }
}

/// What came until now, as much as one call gets.
fn receive(
    call: &OutgoingCall,
    incoming: &mut Incoming,
    most: usize,
    largest: usize,
) -> Result<Vec<IncomingDatagram>, ErrorCode> {
    let mut datagrams = Vec::new();
    let mut bytes = 0;
    while datagrams.len() < most && bytes + largest <= RECEIVED.size() {
        match call.read_frame() {
            Ok(Some((Frame::Datagram(from), data))) => {
                // From before it had this peer.
                if incoming.peer.is_some_and(|peer| peer != from) {
                    continue;
                }
                bytes += data.len();
                datagrams.push(IncomingDatagram {
                    data,
                    remote_address: of_socket(from),
                });
            }
            Ok(Some((Frame::Failed(error), _))) if datagrams.is_empty() => {
                return Err(of_datagrams(error));
            }
            Ok(Some((Frame::Failed(error), _))) => {
                incoming.failed = Some(error);
                break;
            }
            Ok(Some((Frame::Peer(_) | Frame::HopLimit(_), _))) => {}
            Ok(None) => break,
            Err(failure) if datagrams.is_empty() => return Err(of_failure(failure)),
            Err(_) => break,
        }
    }
    Ok(datagrams)
}

impl Outgoing {
    /// Where a datagram goes.
    ///
    /// # Errors
    /// When it cannot be sent.
    fn destination(
        &self,
        datagram: &OutgoingDatagram,
        largest: usize,
    ) -> Result<SocketAddr, ErrorCode> {
        let to = match (self.peer, datagram.remote_address.map(of_guest)) {
            (Some(peer), None) => peer,
            (Some(peer), Some(to)) if to == peer => peer,
            (None, Some(to)) if is_remote(self.family, to) => to,
            _ => return Err(ErrorCode::InvalidArgument),
        };
        match datagram.data.len() > largest {
            true => Err(ErrorCode::DatagramTooLarge),
            false => Ok(to),
        }
    }

    /// Hands datagrams to the thread that sends them, as many as one call sends and there is room for, up to the first that
    /// cannot be sent; returns how many.
    ///
    /// # Errors
    /// When the first cannot be sent.
    fn send(
        &self,
        call: &OutgoingCall,
        datagrams: &[OutgoingDatagram],
        largest: usize,
    ) -> Result<usize, ErrorCode> {
        let (mut frames, mut bytes) = (Vec::with_capacity(datagrams.len()), 0);
        for datagram in datagrams {
            bytes += datagram.data.len();
            if !frames.is_empty() && bytes > TRANSFER.size() {
                break;
            }
            match self.destination(datagram, largest) {
                Ok(to) => frames.push((Frame::Datagram(to), &datagram.data[..])),
                Err(error) if frames.is_empty() => return Err(error),
                Err(_) => break,
            }
        }
        call.write_frames(&frames).map_err(|_| ErrorCode::Unknown)
    }
}

/// Hands a frame that is no datagram to the thread; whether there was room for it.
fn tell(call: &OutgoingCall, frame: Frame) -> bool {
    call.write_frames(&[(frame, &[])]) == Ok(1)
}

impl Wasi<'_> {
    /// The call that a socket is, unless it is not bound.
    fn bound(&mut self, udp: &Udp) -> Result<Option<(Binding, Arc<OutgoingCall>)>> {
        let UdpState::Bound(binding) = udp.state else {
            return Ok(None);
        };
        let call = self.0.calls().find(binding.call);
        Ok(Some((binding, call.context("a socket that is over")?)))
    }

    /// The most bytes of a datagram, and the call of a stream of them.
    fn datagrams(&mut self, call: u64) -> Result<(usize, Arc<OutgoingCall>)> {
        let call = self.0.calls().find(call).context("a socket that is over")?;
        let outbound = self.0.imports.outgoing.as_ref();
        Ok((outbound.map_or(0, OutgoingCall::datagram_bytes), call))
    }

    fn start_to_bind(&mut self, udp: &Udp, to: SocketAddr) -> Result<u64, ErrorCode> {
        match udp.state {
            UdpState::Unbound => {}
            UdpState::Binding(_) => return Err(ErrorCode::ConcurrencyConflict),
            UdpState::Bound(_) => return Err(ErrorCode::InvalidState),
        }
        if !is_of_family(udp.family, to) {
            return Err(ErrorCode::InvalidArgument);
        }
        let outbound = self.0.imports.outgoing.clone();
        let outbound = outbound.filter(|_| to.port() == 0);
        let outbound = outbound.ok_or(ErrorCode::AccessDenied)?;
        let hop_limit = udp.hop_limit;
        let call = self.0.call(&outbound, CallKind::Bind { to, hop_limit });
        call.map_err(refused)
    }

    /// The streams of a socket, if the lease pays for both.
    fn make_streams(
        &mut self,
        (socket, udp): (Handle<Object>, &Udp),
        call: u64,
    ) -> Result<(Received, Sent), ErrorCode> {
        let incoming = Object::Incoming(Incoming {
            socket,
            call,
            peer: udp.peer,
            failed: None,
        });
        let outgoing = Object::Outgoing(Outgoing {
            socket,
            call,
            family: udp.family,
            peer: udp.peer,
            permitted: None,
        });
        let incoming = make(self.0, incoming).map_err(|_| ErrorCode::OutOfMemory)?;
        match make(self.0, outgoing) {
            Ok(outgoing) => Ok((incoming, outgoing)),
            Err(_) => {
                let _ = take(self.0, &incoming);
                Err(ErrorCode::OutOfMemory)
            }
        }
    }
}

impl udp_create_socket::Host for Wasi<'_> {
    fn create_udp_socket(&mut self, family: IpAddressFamily) -> Answer<Socket> {
        mark(step!("wasi:sockets/udp-create-socket", "create-udp-socket"));
        if self.0.imports.outgoing.is_none() {
            return Ok(Err(ErrorCode::AccessDenied));
        }
        let made = make(self.0, Object::Udp(Udp::new(family)));
        Ok(made.map_err(|_| ErrorCode::OutOfMemory))
    }
}

impl udp::Host for Wasi<'_> {}

impl udp::HostUdpSocket for Wasi<'_> {
    fn start_bind(&mut self, socket: Socket, _: Network, to: IpSocketAddress) -> Answer<()> {
        mark(step!("wasi:sockets/udp", "[method]udp-socket.start-bind"));
        let (handle, mut udp) = find(self.0, &socket)?;
        Ok(self.start_to_bind(&udp, of_guest(to)).map(|call| {
            udp.state = UdpState::Binding(call);
            rep::put(handle, Object::Udp(udp));
        }))
    }

    fn finish_bind(&mut self, socket: Socket) -> Answer<()> {
        mark(step!("wasi:sockets/udp", "[method]udp-socket.finish-bind"));
        let (handle, mut udp) = find(self.0, &socket)?;
        let UdpState::Binding(number) = udp.state else {
            return Ok(Err(ErrorCode::NotInProgress));
        };
        let call = self.0.calls().find(number);
        let call = call.context("a socket that is over")?;
        let bound = match call.with_response(|_, fields| local_address(fields)) {
            Ok(None) => return Ok(Err(ErrorCode::WouldBlock)),
            Ok(Some(local)) => local.ok_or(ErrorCode::Unknown),
            Err(failure) => Err(match of_failure(failure) {
                ErrorCode::RemoteUnreachable => ErrorCode::AddressNotBindable,
                other => other,
            }),
        };
        udp.state = match bound {
            Ok(local) => UdpState::Bound(Binding {
                call: number,
                local,
            }),
            Err(_) => {
                self.0.calls().end(number);
                UdpState::Unbound
            }
        };
        rep::put(handle, Object::Udp(udp));
        Ok(bound.map(drop))
    }

    fn stream(
        &mut self,
        socket: Socket,
        peer: Option<IpSocketAddress>,
    ) -> Answer<(Received, Sent)> {
        mark(step!("wasi:sockets/udp", "[method]udp-socket.stream"));
        let (handle, mut udp) = find(self.0, &socket)?;
        if udp.streams > 0 {
            bail!("the streams of a socket for datagrams are not dropped yet");
        }
        let Some((binding, call)) = self.bound(&udp)? else {
            return Ok(Err(ErrorCode::InvalidState));
        };
        let peer = peer.map(of_guest);
        if peer.is_some_and(|peer| !is_remote(udp.family, peer)) {
            return Ok(Err(ErrorCode::InvalidArgument));
        }
        let is_known = udp.peer.is_none() && peer.is_none();
        if !is_known && !tell(&call, Frame::Peer(peer)) {
            return Ok(Err(ErrorCode::WouldBlock));
        }
        udp.peer = peer;
        let streams = self.make_streams((handle, &udp), binding.call);
        udp.streams = if streams.is_ok() { STREAMS } else { 0 };
        rep::put(handle, Object::Udp(udp));
        Ok(streams)
    }

    fn local_address(&mut self, socket: Socket) -> Answer<IpSocketAddress> {
        mark(step!(
            "wasi:sockets/udp",
            "[method]udp-socket.local-address"
        ));
        let (_, udp) = find(self.0, &socket)?;
        Ok(match udp.state {
            UdpState::Bound(binding) => Ok(of_socket(binding.local)),
            UdpState::Unbound | UdpState::Binding(_) => Err(ErrorCode::InvalidState),
        })
    }

    fn remote_address(&mut self, socket: Socket) -> Answer<IpSocketAddress> {
        mark(step!(
            "wasi:sockets/udp",
            "[method]udp-socket.remote-address"
        ));
        let (_, udp) = find(self.0, &socket)?;
        Ok(udp.peer.map(of_socket).ok_or(ErrorCode::InvalidState))
    }

    fn address_family(&mut self, socket: Socket) -> Result<IpAddressFamily> {
        mark(step!(
            "wasi:sockets/udp",
            "[method]udp-socket.address-family"
        ));
        let (_, udp) = find(self.0, &socket)?;
        Ok(udp.family)
    }

    fn unicast_hop_limit(&mut self, socket: Socket) -> Answer<u8> {
        mark(step!(
            "wasi:sockets/udp",
            "[method]udp-socket.unicast-hop-limit"
        ));
        let (_, udp) = find(self.0, &socket)?;
        Ok(Ok(udp.hop_limit))
    }

    fn set_unicast_hop_limit(&mut self, socket: Socket, value: u8) -> Answer<()> {
        mark(step!(
            "wasi:sockets/udp",
            "[method]udp-socket.set-unicast-hop-limit"
        ));
        let (handle, mut udp) = find(self.0, &socket)?;
        if value == 0 {
            return Ok(Err(ErrorCode::InvalidArgument));
        }
        if let UdpState::Binding(_) = udp.state {
            return Ok(Err(ErrorCode::ConcurrencyConflict));
        }
        if let Some((_, call)) = self.bound(&udp)?
            && !tell(&call, Frame::HopLimit(value))
        {
            return Ok(Err(ErrorCode::WouldBlock));
        }
        udp.hop_limit = value;
        rep::put(handle, Object::Udp(udp));
        Ok(Ok(()))
    }

    fn receive_buffer_size(&mut self, socket: Socket) -> Answer<u64> {
        mark(step!(
            "wasi:sockets/udp",
            "[method]udp-socket.receive-buffer-size"
        ));
        find(self.0, &socket)?;
        Ok(self.window())
    }

    fn set_receive_buffer_size(&mut self, socket: Socket, value: u64) -> Answer<()> {
        mark(step!(
            "wasi:sockets/udp",
            "[method]udp-socket.set-receive-buffer-size"
        ));
        find(self.0, &socket)?;
        Ok(self.ask_for_window(value))
    }

    fn send_buffer_size(&mut self, socket: Socket) -> Answer<u64> {
        mark(step!(
            "wasi:sockets/udp",
            "[method]udp-socket.send-buffer-size"
        ));
        find(self.0, &socket)?;
        Ok(self.window())
    }

    fn set_send_buffer_size(&mut self, socket: Socket, value: u64) -> Answer<()> {
        mark(step!(
            "wasi:sockets/udp",
            "[method]udp-socket.set-send-buffer-size"
        ));
        find(self.0, &socket)?;
        Ok(self.ask_for_window(value))
    }

    fn subscribe(&mut self, socket: Socket) -> Result<Resource<DynPollable>> {
        mark(step!("wasi:sockets/udp", "[method]udp-socket.subscribe"));
        let (handle, _) = find(self.0, &socket)?;
        subscribe_to_socket(self.0, handle)
    }

    fn drop(&mut self, socket: Socket) -> Result<()> {
        mark(step!("wasi:sockets/udp", "[resource-drop]udp-socket"));
        let (_, udp) = find(self.0, &socket)?;
        if udp.streams > 0 {
            bail!("a socket is dropped before its streams: resource has children");
        }
        take(self.0, &socket)?;
        if let Some(number) = udp.call() {
            self.0.calls().end(number);
        }
        Ok(())
    }
}

impl udp::HostIncomingDatagramStream for Wasi<'_> {
    fn receive(&mut self, stream: Received, most: u64) -> Answer<Vec<IncomingDatagram>> {
        mark(step!(
            "wasi:sockets/udp",
            "[method]incoming-datagram-stream.receive"
        ));
        let (handle, mut incoming) = incoming(self.0, &stream)?;
        let (largest, call) = self.datagrams(incoming.call)?;
        let before = incoming.failed.take();
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let received = match before {
            Some(error) => Err(of_datagrams(error)),
            None => receive(&call, &mut incoming, most.min(DATAGRAMS.size()), largest),
        };
        if incoming.failed != before {
            rep::put(handle, Object::Incoming(incoming));
        }
        Ok(received)
    }

    fn subscribe(&mut self, stream: Received) -> Result<Resource<DynPollable>> {
        mark(step!(
            "wasi:sockets/udp",
            "[method]incoming-datagram-stream.subscribe"
        ));
        let (_, incoming) = incoming(self.0, &stream)?;
        let source = match incoming.failed {
            Some(_) => Source::Deadline(0),
            None => Source::Datagram(incoming.call),
        };
        subscribe(self.0, source)
    }

    fn drop(&mut self, stream: Received) -> Result<()> {
        mark(step!(
            "wasi:sockets/udp",
            "[resource-drop]incoming-datagram-stream"
        ));
        let (_, incoming) = incoming(self.0, &stream)?;
        take(self.0, &stream)?;
        drop_stream(incoming.socket);
        Ok(())
    }
}

impl udp::HostOutgoingDatagramStream for Wasi<'_> {
    fn check_send(&mut self, stream: Sent) -> Answer<u64> {
        mark(step!(
            "wasi:sockets/udp",
            "[method]outgoing-datagram-stream.check-send"
        ));
        let (handle, mut outgoing) = outgoing(self.0, &stream)?;
        let (_, call) = self.datagrams(outgoing.call)?;
        let context = std::task::Context::from_waker(std::task::Waker::noop());
        let permitted = match call.poll_frame_room(&context).is_ready() {
            true => DATAGRAMS.most,
            false => 0,
        };
        outgoing.permitted = Some(permitted);
        rep::put(handle, Object::Outgoing(outgoing));
        Ok(Ok(permitted))
    }

    fn send(&mut self, stream: Sent, datagrams: Vec<OutgoingDatagram>) -> Answer<u64> {
        mark(step!(
            "wasi:sockets/udp",
            "[method]outgoing-datagram-stream.send"
        ));
        let (handle, mut outgoing) = outgoing(self.0, &stream)?;
        match outgoing.permitted.take() {
            None => bail!("unpermitted: must call check-send first"),
            Some(most) if datagrams.len() as u64 > most => {
                bail!("unpermitted: argument exceeds permitted size");
            }
            Some(_) => {}
        }
        rep::put(handle, Object::Outgoing(outgoing));
        let (largest, call) = self.datagrams(outgoing.call)?;
        let sent = outgoing.send(&call, &datagrams, largest);
        Ok(sent.map(|sent| sent as u64))
    }

    fn subscribe(&mut self, stream: Sent) -> Result<Resource<DynPollable>> {
        mark(step!(
            "wasi:sockets/udp",
            "[method]outgoing-datagram-stream.subscribe"
        ));
        let (_, outgoing) = outgoing(self.0, &stream)?;
        subscribe(self.0, Source::DatagramRoom(outgoing.call))
    }

    fn drop(&mut self, stream: Sent) -> Result<()> {
        mark(step!(
            "wasi:sockets/udp",
            "[resource-drop]outgoing-datagram-stream"
        ));
        let (_, outgoing) = outgoing(self.0, &stream)?;
        take(self.0, &stream)?;
        drop_stream(outgoing.socket);
        Ok(())
    }
}
