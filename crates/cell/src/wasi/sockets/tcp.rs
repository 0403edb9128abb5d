//! `tcp`: sockets that connect, and those that listen where the lease says so.
//!
//! A socket that listens has two calls: one that keeps it so, and one that waits for the next connection and then is that. So
//! a guest that accepts takes a connection that is there, and never waits in the call.

use super::access::{self, confused, handle, make};
use super::address::{
    is_of_family, is_of_one_host, local_address, of_guest, of_socket, peer_address,
};
use super::bindings::network::{ErrorCode, IpAddressFamily, IpSocketAddress};
use super::bindings::tcp::{self, ShutdownType};
use super::bindings::tcp_create_socket;
use super::failure::{of_connection, of_listening, refused};
use super::kinds;
use super::object::{Connection, Listening, Next, Object, Tcp, TcpState};
use super::streams;
use crate::clock;
use crate::guest::Guest;
use crate::steps::{mark, step};
use crate::wasi::outgoing::OutgoingCall;
use crate::wasi::poll::subscribe_to_socket;
use crate::wasi::rep;
use crate::wasi::table::TableCharge;
use crate::wasi::view::Wasi;
use leasehold_exchange::CallKind;
use leasehold_reclaim::Handle;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use wasmtime::component::Resource;
use wasmtime::error::Context as _;
use wasmtime::{Result, bail};
use wasmtime_wasi::p2::{DynInputStream, DynOutputStream, DynPollable};

type Socket = Resource<kinds::TcpSocket>;
type Network = Resource<kinds::Network>;
type Streams = (Resource<DynInputStream>, Resource<DynOutputStream>);

/// An answer of the interface.
type Answer<T> = Result<Result<T, ErrorCode>>;

/// After how long a socket that listens, with no place for its next connection, tries again.
const PAUSE_NS: u64 = 10_000_000;

/// The streams of a connection.
const STREAMS: u8 = 2;

/// The most that Linux takes of a time of keep-alive, and of a count.
const SECONDS_MOST: u64 = 32_767;
const COUNT_MOST: u32 = 127;

/// A time of keep-alive as Linux takes it: in seconds, at least one; `None` if it is none.
fn whole_seconds(ns: u64) -> Option<Duration> {
    let seconds = ns.div_ceil(1_000_000_000).min(SECONDS_MOST);
    (seconds > 0).then(|| Duration::from_secs(seconds))
}

fn duration_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn find(guest: &Guest, socket: &Socket) -> Result<(Handle<Object>, Tcp)> {
    let handle = handle(guest, socket)?;
    match rep::get(handle).context("unknown socket")? {
        Object::Tcp(tcp) => Ok((handle, tcp)),
        _ => Err(confused()),
    }
}

impl Wasi<'_> {
    /// Changes what a socket is to connect with.
    fn change(&mut self, socket: &Socket, change: impl FnOnce(&mut Tcp)) -> Answer<()> {
        let (handle, mut tcp) = find(self.0, socket)?;
        // What a connection was made with stays.
        if !tcp.is_new() {
            return Ok(Err(ErrorCode::NotSupported));
        }
        change(&mut tcp);
        rep::put(handle, Object::Tcp(tcp));
        Ok(Ok(()))
    }

    /// The connection of a socket.
    fn connection(&mut self, socket: &Socket) -> Answer<Connection> {
        let (_, tcp) = find(self.0, socket)?;
        Ok(match tcp.state {
            TcpState::Connected(connection) => Ok(connection),
            _ => Err(ErrorCode::InvalidState),
        })
    }

    /// The streams of a connection, if the lease has places for both.
    fn streams(&mut self, call: &Arc<OutgoingCall>, socket: Handle<Object>) -> Option<Streams> {
        let (input, output) = streams::of(call, socket);
        let (input, output): (DynInputStream, DynOutputStream) =
            (Box::new(input), Box::new(output));
        let input = TableCharge::put(self.0.charged_table(), input)?;
        let placed = TableCharge::put(self.0.charged_table(), output);
        let Some(output) = placed else {
            self.0.charged_table().delete(input).ok()?;
            return None;
        };
        Some((input, output))
    }

    fn start(&mut self, tcp: &Tcp, to: SocketAddr) -> Result<u64, ErrorCode> {
        match tcp.state {
            TcpState::Unconnected | TcpState::Bound(_) => {}
            TcpState::Connecting(..) | TcpState::Binding(_) | TcpState::Beginning(..) => {
                return Err(ErrorCode::ConcurrencyConflict);
            }
            TcpState::Connected(_) | TcpState::Closed | TcpState::Listening(_) => {
                return Err(ErrorCode::InvalidState);
            }
        }
        if !is_of_one_host(tcp.family, to) {
            return Err(ErrorCode::InvalidArgument);
        }
        // One that is bound can only listen: no connection has a port of the program's choice.
        if tcp.state != TcpState::Unconnected {
            return Err(ErrorCode::AccessDenied);
        }
        let options = tcp.options();
        self.ask(CallKind::Connect { to, options })
    }

    /// The number of a call that was sent.
    fn ask(&mut self, kind: CallKind) -> Result<u64, ErrorCode> {
        let outbound = self.0.imports.outgoing.clone();
        let outbound = outbound.ok_or(ErrorCode::AccessDenied)?;
        self.0.call(&outbound, kind).map_err(refused)
    }

    /// Waits for the next connection of a socket that listens, if there is a place for it. Otherwise it is tried again later:
    /// that other connections take all places is no error of the socket, nor is it ready then.
    fn expect(&mut self, (handle, mut tcp): (Handle<Object>, Tcp), mut listening: Listening) {
        let (at, options) = (listening.at, tcp.options());
        listening.next = match self.ask(CallKind::Accept { at, options }) {
            Ok(call) => Next::Call(call),
            Err(_) => Next::NotBefore(clock::monotonic_ns().saturating_add(PAUSE_NS)),
        };
        tcp.state = TcpState::Listening(listening);
        rep::put(handle, Object::Tcp(tcp));
    }

    /// The socket and the streams of a connection that came to a socket that listens.
    fn accepted(
        &mut self,
        listener: &Tcp,
        connection: Connection,
    ) -> Answer<(Socket, Resource<DynInputStream>, Resource<DynOutputStream>)> {
        let call = self.0.calls().find(connection.call);
        let call = call.context("a connection that is over")?;
        let tcp = Tcp {
            state: TcpState::Connected(connection),
            streams: STREAMS,
            ..*listener
        };
        let Ok(socket) = make(self.0, Object::Tcp(tcp)) else {
            return Ok(Err(ErrorCode::OutOfMemory));
        };
        let handle = handle(self.0, &socket)?;
        match self.streams(&call, handle) {
            Some((input, output)) => {
                call.accepted();
                Ok(Ok((socket, input, output)))
            }
            None => {
                access::take(self.0, &socket)?;
                Ok(Err(ErrorCode::OutOfMemory))
            }
        }
    }
}

impl tcp_create_socket::Host for Wasi<'_> {
    fn create_tcp_socket(&mut self, family: IpAddressFamily) -> Answer<Socket> {
        mark(step!("wasi:sockets/tcp-create-socket", "create-tcp-socket"));
        if self.0.imports.outgoing.is_none() {
            return Ok(Err(ErrorCode::AccessDenied));
        }
        let made = make(self.0, Object::Tcp(Tcp::new(family)));
        Ok(made.map_err(|_| ErrorCode::OutOfMemory))
    }
}

impl tcp::Host for Wasi<'_> {}

impl tcp::HostTcpSocket for Wasi<'_> {
    fn start_bind(&mut self, socket: Socket, _: Network, to: IpSocketAddress) -> Answer<()> {
        mark(step!("wasi:sockets/tcp", "[method]tcp-socket.start-bind"));
        let (handle, mut tcp) = find(self.0, &socket)?;
        let to = of_guest(to);
        match tcp.state {
            TcpState::Unconnected => {}
            TcpState::Connecting(..) | TcpState::Binding(_) | TcpState::Beginning(..) => {
                return Ok(Err(ErrorCode::ConcurrencyConflict));
            }
            _ => return Ok(Err(ErrorCode::InvalidState)),
        }
        if !is_of_family(tcp.family, to) {
            return Ok(Err(ErrorCode::InvalidArgument));
        }
        let outbound = self.0.imports.outgoing.as_ref();
        if !outbound.is_some_and(|outbound| outbound.outlet.outbox().may_listen(to)) {
            return Ok(Err(ErrorCode::AccessDenied));
        }
        tcp.state = TcpState::Binding(to);
        rep::put(handle, Object::Tcp(tcp));
        Ok(Ok(()))
    }

    fn finish_bind(&mut self, socket: Socket) -> Answer<()> {
        mark(step!("wasi:sockets/tcp", "[method]tcp-socket.finish-bind"));
        let (handle, mut tcp) = find(self.0, &socket)?;
        let TcpState::Binding(to) = tcp.state else {
            return Ok(Err(ErrorCode::NotInProgress));
        };
        tcp.state = TcpState::Bound(to);
        rep::put(handle, Object::Tcp(tcp));
        Ok(Ok(()))
    }

    fn start_connect(&mut self, socket: Socket, _: Network, to: IpSocketAddress) -> Answer<()> {
        mark(step!(
            "wasi:sockets/tcp",
            "[method]tcp-socket.start-connect"
        ));
        let (handle, mut tcp) = find(self.0, &socket)?;
        let to = of_guest(to);
        Ok(self.start(&tcp, to).map(|call| {
            tcp.state = TcpState::Connecting(call, to);
            rep::put(handle, Object::Tcp(tcp));
        }))
    }

    fn finish_connect(&mut self, socket: Socket) -> Answer<Streams> {
        mark(step!(
            "wasi:sockets/tcp",
            "[method]tcp-socket.finish-connect"
        ));
        let (handle, mut tcp) = find(self.0, &socket)?;
        let TcpState::Connecting(number, remote) = tcp.state else {
            return Ok(Err(ErrorCode::NotInProgress));
        };
        let call = self
            .0
            .calls()
            .find(number)
            .context("a connection that is over")?;
        let made = match call.with_response(|_, fields| local_address(fields)) {
            Ok(None) => return Ok(Err(ErrorCode::WouldBlock)),
            Ok(Some(local)) => local.ok_or(ErrorCode::Unknown),
            Err(failure) => Err(of_connection(failure)),
        };
        let streams = made.and_then(|local| {
            tcp.state = TcpState::Connected(Connection {
                call: number,
                local,
                remote,
            });
            tcp.streams = STREAMS;
            rep::put(handle, Object::Tcp(tcp));
            let streams = self.streams(&call, handle);
            streams.ok_or(ErrorCode::OutOfMemory)
        });
        if streams.is_err() {
            self.0.calls().end(number);
            tcp.state = TcpState::Closed;
            tcp.streams = 0;
            rep::put(handle, Object::Tcp(tcp));
        }
        Ok(streams)
    }

    fn start_listen(&mut self, socket: Socket) -> Answer<()> {
        mark(step!("wasi:sockets/tcp", "[method]tcp-socket.start-listen"));
        let (handle, mut tcp) = find(self.0, &socket)?;
        let at = match tcp.state {
            TcpState::Bound(at) => at,
            TcpState::Connecting(..) | TcpState::Binding(_) | TcpState::Beginning(..) => {
                return Ok(Err(ErrorCode::ConcurrencyConflict));
            }
            _ => return Ok(Err(ErrorCode::InvalidState)),
        };
        let kind = CallKind::Listen {
            at,
            backlog: tcp.backlog,
            hop_limit: tcp.hop_limit,
        };
        Ok(self.ask(kind).map(|call| {
            tcp.state = TcpState::Beginning(call, at);
            rep::put(handle, Object::Tcp(tcp));
        }))
    }

    fn finish_listen(&mut self, socket: Socket) -> Answer<()> {
        mark(step!(
            "wasi:sockets/tcp",
            "[method]tcp-socket.finish-listen"
        ));
        let (handle, mut tcp) = find(self.0, &socket)?;
        let TcpState::Beginning(number, at) = tcp.state else {
            return Ok(Err(ErrorCode::NotInProgress));
        };
        let call = self.0.calls().find(number);
        let call = call.context("a socket that is over")?;
        match call.with_response(|_, _| ()) {
            Ok(None) => Ok(Err(ErrorCode::WouldBlock)),
            Ok(Some(())) => {
                let listening = Listening {
                    call: number,
                    at,
                    next: Next::NotBefore(0),
                };
                self.expect((handle, tcp), listening);
                Ok(Ok(()))
            }
            Err(failure) => {
                self.0.calls().end(number);
                tcp.state = TcpState::Bound(at);
                rep::put(handle, Object::Tcp(tcp));
                Ok(Err(of_listening(failure)))
            }
        }
    }

    fn accept(
        &mut self,
        socket: Socket,
    ) -> Answer<(Socket, Resource<DynInputStream>, Resource<DynOutputStream>)> {
        mark(step!("wasi:sockets/tcp", "[method]tcp-socket.accept"));
        let (handle, tcp) = find(self.0, &socket)?;
        let TcpState::Listening(listening) = tcp.state else {
            return Ok(Err(ErrorCode::InvalidState));
        };
        let number = match listening.next {
            Next::Call(number) => number,
            Next::NotBefore(when) => {
                if when <= clock::monotonic_ns() {
                    self.expect((handle, tcp), listening);
                }
                return Ok(Err(ErrorCode::WouldBlock));
            }
        };
        let call = self.0.calls().find(number);
        let call = call.context("a socket that is over")?;
        let came = match call.with_response(|_, head| (local_address(head), peer_address(head))) {
            Ok(None) => return Ok(Err(ErrorCode::WouldBlock)),
            Ok(Some((Some(local), Some(remote)))) => Ok(Connection {
                call: number,
                local,
                remote,
            }),
            Ok(Some(_)) => Err(ErrorCode::Unknown),
            Err(failure) => Err(of_listening(failure)),
        };
        let accepted = match came {
            Ok(connection) => self.accepted(&tcp, connection)?,
            Err(error) => {
                self.0.calls().end(number);
                Err(error)
            }
        };
        // A connection for which the lease did not pay stays the next one.
        if accepted.is_ok() || came.is_err() {
            self.expect((handle, tcp), listening);
        }
        Ok(accepted)
    }

    fn local_address(&mut self, socket: Socket) -> Answer<IpSocketAddress> {
        mark(step!(
            "wasi:sockets/tcp",
            "[method]tcp-socket.local-address"
        ));
        let (_, tcp) = find(self.0, &socket)?;
        Ok(match tcp.state {
            TcpState::Connected(Connection { local: at, .. })
            | TcpState::Bound(at)
            | TcpState::Beginning(_, at)
            | TcpState::Listening(Listening { at, .. }) => Ok(of_socket(at)),
            TcpState::Unconnected
            | TcpState::Connecting(..)
            | TcpState::Closed
            | TcpState::Binding(_) => Err(ErrorCode::InvalidState),
        })
    }

    fn remote_address(&mut self, socket: Socket) -> Answer<IpSocketAddress> {
        mark(step!(
            "wasi:sockets/tcp",
            "[method]tcp-socket.remote-address"
        ));
        let connection = self.connection(&socket)?;
        Ok(connection.map(|connection| of_socket(connection.remote)))
    }

    fn is_listening(&mut self, socket: Socket) -> Result<bool> {
        mark(step!("wasi:sockets/tcp", "[method]tcp-socket.is-listening"));
        let (_, tcp) = find(self.0, &socket)?;
        Ok(matches!(tcp.state, TcpState::Listening(_)))
    }

    fn address_family(&mut self, socket: Socket) -> Result<IpAddressFamily> {
        mark(step!(
            "wasi:sockets/tcp",
            "[method]tcp-socket.address-family"
        ));
        let (_, tcp) = find(self.0, &socket)?;
        Ok(tcp.family)
    }

    fn set_listen_backlog_size(&mut self, socket: Socket, value: u64) -> Answer<()> {
        mark(step!(
            "wasi:sockets/tcp",
            "[method]tcp-socket.set-listen-backlog-size"
        ));
        let (handle, mut tcp) = find(self.0, &socket)?;
        if value == 0 {
            return Ok(Err(ErrorCode::InvalidArgument));
        }
        if !tcp.is_new() {
            return Ok(Err(match tcp.state {
                // What it listens with stays.
                TcpState::Beginning(..) | TcpState::Listening(_) => ErrorCode::NotSupported,
                _ => ErrorCode::InvalidState,
            }));
        }
        tcp.backlog = u32::try_from(value).unwrap_or(u32::MAX);
        rep::put(handle, Object::Tcp(tcp));
        Ok(Ok(()))
    }

    fn keep_alive_enabled(&mut self, socket: Socket) -> Answer<bool> {
        mark(step!(
            "wasi:sockets/tcp",
            "[method]tcp-socket.keep-alive-enabled"
        ));
        let (_, tcp) = find(self.0, &socket)?;
        Ok(Ok(tcp.is_keeping_alive))
    }

    fn set_keep_alive_enabled(&mut self, socket: Socket, value: bool) -> Answer<()> {
        mark(step!(
            "wasi:sockets/tcp",
            "[method]tcp-socket.set-keep-alive-enabled"
        ));
        self.change(&socket, |tcp| tcp.is_keeping_alive = value)
    }

    fn keep_alive_idle_time(&mut self, socket: Socket) -> Answer<u64> {
        mark(step!(
            "wasi:sockets/tcp",
            "[method]tcp-socket.keep-alive-idle-time"
        ));
        let (_, tcp) = find(self.0, &socket)?;
        Ok(Ok(duration_ns(tcp.keep_alive.idle)))
    }

    fn set_keep_alive_idle_time(&mut self, socket: Socket, value: u64) -> Answer<()> {
        mark(step!(
            "wasi:sockets/tcp",
            "[method]tcp-socket.set-keep-alive-idle-time"
        ));
        match whole_seconds(value) {
            Some(value) => self.change(&socket, |tcp| tcp.keep_alive.idle = value),
            None => Ok(Err(ErrorCode::InvalidArgument)),
        }
    }

    fn keep_alive_interval(&mut self, socket: Socket) -> Answer<u64> {
        mark(step!(
            "wasi:sockets/tcp",
            "[method]tcp-socket.keep-alive-interval"
        ));
        let (_, tcp) = find(self.0, &socket)?;
        Ok(Ok(duration_ns(tcp.keep_alive.interval)))
    }

    fn set_keep_alive_interval(&mut self, socket: Socket, value: u64) -> Answer<()> {
        mark(step!(
            "wasi:sockets/tcp",
            "[method]tcp-socket.set-keep-alive-interval"
        ));
        match whole_seconds(value) {
            Some(value) => self.change(&socket, |tcp| tcp.keep_alive.interval = value),
            None => Ok(Err(ErrorCode::InvalidArgument)),
        }
    }

    fn keep_alive_count(&mut self, socket: Socket) -> Answer<u32> {
        mark(step!(
            "wasi:sockets/tcp",
            "[method]tcp-socket.keep-alive-count"
        ));
        let (_, tcp) = find(self.0, &socket)?;
        Ok(Ok(tcp.keep_alive.count))
    }

    fn set_keep_alive_count(&mut self, socket: Socket, value: u32) -> Answer<()> {
        mark(step!(
            "wasi:sockets/tcp",
            "[method]tcp-socket.set-keep-alive-count"
        ));
        match value {
            0 => Ok(Err(ErrorCode::InvalidArgument)),
            _ => self.change(&socket, |tcp| tcp.keep_alive.count = value.min(COUNT_MOST)),
        }
    }

    fn hop_limit(&mut self, socket: Socket) -> Answer<u8> {
        mark(step!("wasi:sockets/tcp", "[method]tcp-socket.hop-limit"));
        let (_, tcp) = find(self.0, &socket)?;
        Ok(Ok(tcp.hop_limit))
    }

    fn set_hop_limit(&mut self, socket: Socket, value: u8) -> Answer<()> {
        mark(step!(
            "wasi:sockets/tcp",
            "[method]tcp-socket.set-hop-limit"
        ));
        match value {
            0 => Ok(Err(ErrorCode::InvalidArgument)),
            _ => self.change(&socket, |tcp| tcp.hop_limit = value),
        }
    }

    fn receive_buffer_size(&mut self, socket: Socket) -> Answer<u64> {
        mark(step!(
            "wasi:sockets/tcp",
            "[method]tcp-socket.receive-buffer-size"
        ));
        find(self.0, &socket)?;
        Ok(self.window())
    }

    fn set_receive_buffer_size(&mut self, socket: Socket, value: u64) -> Answer<()> {
        mark(step!(
            "wasi:sockets/tcp",
            "[method]tcp-socket.set-receive-buffer-size"
        ));
        find(self.0, &socket)?;
        Ok(self.ask_for_window(value))
    }

    fn send_buffer_size(&mut self, socket: Socket) -> Answer<u64> {
        mark(step!(
            "wasi:sockets/tcp",
            "[method]tcp-socket.send-buffer-size"
        ));
        find(self.0, &socket)?;
        Ok(self.window())
    }

    fn set_send_buffer_size(&mut self, socket: Socket, value: u64) -> Answer<()> {
        mark(step!(
            "wasi:sockets/tcp",
            "[method]tcp-socket.set-send-buffer-size"
        ));
        find(self.0, &socket)?;
        Ok(self.ask_for_window(value))
    }

    fn subscribe(&mut self, socket: Socket) -> Result<Resource<DynPollable>> {
        mark(step!("wasi:sockets/tcp", "[method]tcp-socket.subscribe"));
        let (handle, _) = find(self.0, &socket)?;
        subscribe_to_socket(self.0, handle)
    }

    fn shutdown(&mut self, socket: Socket, how: ShutdownType) -> Answer<()> {
        mark(step!("wasi:sockets/tcp", "[method]tcp-socket.shutdown"));
        let connection = match self.connection(&socket)? {
            Ok(connection) => connection,
            Err(error) => return Ok(Err(error)),
        };
        let call = self
            .0
            .calls()
            .find(connection.call)
            .context("a connection that is over")?;
        if how != ShutdownType::Send {
            call.close_read();
        }
        if how != ShutdownType::Receive {
            call.finish_body(None);
        }
        Ok(Ok(()))
    }

    fn drop(&mut self, socket: Socket) -> Result<()> {
        mark(step!("wasi:sockets/tcp", "[resource-drop]tcp-socket"));
        let (_, tcp) = find(self.0, &socket)?;
        if tcp.streams > 0 {
            bail!("a socket is dropped before its streams: resource has children");
        }
        access::take(self.0, &socket)?;
        for number in tcp.calls().into_iter().flatten() {
            self.0.calls().end(number);
        }
        Ok(())
    }
}
