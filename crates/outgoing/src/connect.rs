//! Connections: the address is looked up and checked, and then connected to.

use crate::address::{Routes, may_stand_for};
use crate::body::RequestBody;
use crate::payer::Payer;
use crate::pool::Connection;
use crate::resolver::Resolver;
use crate::socket::{Socket, Sockets};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use leasehold_exchange::CallError;
use leasehold_io_thread::{Metered, Sliced};
use leasehold_lease::{Destination, DestinationHost};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::cell::Cell;
use std::error::Error as _;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

/// The least buffer that the HTTP library takes.
const BUFFER: usize = 8 << 10;

/// The most fields of a response.
const FIELDS: usize = 256;

/// Where a request goes: a scheme, the host as it names it, and a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Target {
    pub(crate) is_https: bool,
    /// In lower case, an IPv6 address in brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// What connections of a tenant are made with.
pub(crate) struct Connecting {
    pub(crate) resolver: Arc<Resolver>,
    pub(crate) routes: Arc<Routes>,
    pub(crate) tls: Option<Arc<ClientConfig>>,
    pub(crate) payer: Rc<Payer>,
    pub(crate) sockets: Sockets,
}

impl Connecting {
    /// A new connection to a target, which is a destination of the lease.
    pub(crate) async fn connect(
        &self,
        target: &Target,
        destination: &Destination,
    ) -> Result<Connection, CallError> {
        let stream = self.reach(target, destination).await?;
        let stream = Sliced::new(stream);
        if !target.is_https {
            return self.speak(stream).await;
        }
        let config = self.tls.clone().ok_or(CallError::Tls)?;
        let bare = target.host.trim_matches(['[', ']']);
        let name = ServerName::try_from(bare.to_owned()).map_err(|_| CallError::Malformed)?;
        let connected = TlsConnector::from(config).connect(name, stream).await;
        self.speak(connected.map_err(|error| tls_error(&error))?)
            .await
    }

    /// A stream to the first address that answers, of those that may be connected to.
    async fn reach(&self, target: &Target, destination: &Destination) -> Result<Socket, CallError> {
        let addresses = self.addresses(target, destination).await?;
        let mut found = CallError::Prohibited;
        for address in addresses {
            if !may_stand_for(destination, address, &self.routes) {
                continue;
            }
            let to = SocketAddr::new(address, target.port);
            match self.sockets.connect(to, None).await {
                Ok(socket) => return Ok(socket),
                Err(error @ (CallError::Refused | CallError::NoPort)) => found = error,
                Err(_) if found == CallError::Prohibited => found = CallError::Unreachable,
                Err(_) => {}
            }
        }
        Err(found)
    }

    /// The addresses of the target, of one look-up.
    async fn addresses(
        &self,
        target: &Target,
        destination: &Destination,
    ) -> Result<Vec<IpAddr>, CallError> {
        match destination.host {
            DestinationHost::Address(address) => Ok(vec![address]),
            DestinationHost::Name(_) | DestinationHost::Below(_) => {
                self.resolver.look_up(&target.host, &self.sockets).await
            }
        }
    }

    async fn speak(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    ) -> Result<Connection, CallError> {
        let buffer = BUFFER.max(self.payer.outbox().limits().head_bytes as usize);
        let shaken = http1::Builder::new()
            .max_buf_size(buffer)
            .max_headers(FIELDS)
            .handshake::<_, RequestBody>(TokioIo::new(stream))
            .await;
        let (sender, connection) = shaken.map_err(|_| CallError::Terminated)?;
        let failure = Rc::new(Cell::new(None));
        let failing = Rc::clone(&failure);
        let task = Metered::new(self.payer.clone(), async move {
            if let Err(error) = connection.await {
                failing.set(Some(response_error(&error)));
            }
        });
        let task = tokio::task::spawn_local(task);
        Ok(Connection::new(sender, task.abort_handle(), failure))
    }
}

/// Why there is no connection.
pub(crate) fn unreached(error: &io::Error) -> CallError {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => CallError::Refused,
        io::ErrorKind::AddrNotAvailable => CallError::NoPort,
        _ => CallError::Unreachable,
    }
}

/// Whether the host has broken the rules of TLS.
fn is_of_tls(error: &io::Error) -> bool {
    let inner = error.get_ref();
    inner.is_some_and(|inner| inner.is::<rustls::Error>())
}

/// What has gone wrong on a connection.
pub(crate) fn response_error(error: &hyper::Error) -> CallError {
    // A request that was not sent yet has the error of its connection behind its own.
    let mut causes = std::iter::successors(error.source(), |cause| (*cause).source());
    if causes.any(|cause| cause.downcast_ref().is_some_and(is_of_tls)) {
        return CallError::Tls;
    }
    if error.is_parse_too_large() {
        CallError::HeadSize
    } else if error.is_parse() {
        CallError::Protocol
    } else if error.is_user() {
        CallError::Malformed
    } else {
        CallError::Terminated
    }
}

fn tls_error(error: &io::Error) -> CallError {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    match inner {
        Some(rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented) => {
            CallError::Certificate
        }
        Some(_) => CallError::Tls,
        None => CallError::Terminated,
    }
}
