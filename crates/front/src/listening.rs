//! Listeners: their sockets, made before the process is confined, and what is served on each.

use crate::access::Record;
use crate::connection;
use crate::error::FrontError;
use crate::payer::metered;
use crate::routes::Routes;
use crate::sources::Sources;
use crate::tally::Tally;
use crate::tls;
use crate::trace::Sampling;
use arc_swap::{ArcSwap, Guard};
use leasehold_exchange::Scheme;
use leasehold_io_thread::Share;
use leasehold_lease::Listener;
use rustix::net::sockopt;
use std::cell::Cell;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

/// How long no connection is accepted after the system had no resources for one.
const PAUSE: Duration = Duration::from_millis(50);

/// The least limit on heads, bytes: for requests that no route is for.
const LEAST_HEAD: u32 = 8192;

/// The buffers of a connection that the kernel is asked for, bytes in each direction. It takes at most
/// twice as much memory, of which nearly all may be bytes of the client if its segments are large.
const SOCKET_BYTES: usize = 128 * 1024;
/// How long bytes that were sent may wait for the client to take them, ms.
const UNHEARD_MS: u32 = 30_000;

/// What is called with each record.
pub(crate) type Log = Arc<dyn Fn(&Record) + Send + Sync>;

/// What is told of requests, and which of them are traced.
#[derive(Clone, Default)]
pub(crate) struct Watching {
    pub(crate) log: Option<Log>,
    pub(crate) sampling: Option<Sampling>,
}

/// How far a front is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// No connection is accepted yet: clients wait in the sockets' queues.
    Held,
    Serving,
    /// No connection is accepted, and what is under way is finished.
    Draining,
    /// What is under way is abandoned.
    Ended,
}

/// The sockets of all listeners, with their certificates.
pub struct Sockets(pub(crate) Vec<Socket>);

pub(crate) struct Socket {
    pub(crate) listener: Listener,
    pub(crate) socket: TcpListener,
    pub(crate) tls: Option<Arc<rustls::ServerConfig>>,
    pub(crate) tally: Arc<Tally>,
}

/// A listener and the address that it got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listening {
    /// Its name.
    pub name: String,
    /// Its address; where the lease file has port 0, with the port that the system chose.
    pub address: SocketAddr,
    /// Whether it speaks TLS.
    pub tls: bool,
}

/// Bounds what the kernel holds for each connection that is accepted here, which inherit it: without
/// that, what a client does not read takes megabytes, also after the connection was closed.
fn bound(socket: &TcpListener) -> io::Result<()> {
    sockopt::set_socket_send_buffer_size(socket, SOCKET_BYTES)?;
    sockopt::set_socket_recv_buffer_size(socket, SOCKET_BYTES)?;
    sockopt::set_tcp_user_timeout(socket, UNHEARD_MS)?;
    Ok(())
}

impl Sockets {
    /// Reads the certificates and opens the sockets. Nothing is accepted yet.
    ///
    /// # Errors
    /// When a certificate cannot be used, or an address cannot be listened on.
    pub fn open(listeners: &[Listener]) -> Result<Self, FrontError> {
        // All files are read before the first socket is there.
        let configurations: Vec<_> = listeners
            .iter()
            .map(tls::configuration)
            .collect::<Result<_, _>>()?;
        let open = |(listener, tls): (&Listener, Option<Arc<rustls::ServerConfig>>)| {
            let socket = TcpListener::bind(listener.address)
                .and_then(|socket| bound(&socket).map(|()| socket))
                .and_then(|socket| socket.set_nonblocking(true).map(|()| socket))
                .map_err(|source| FrontError::Address {
                    listener: listener.name.clone(),
                    address: listener.address,
                    source,
                })?;
            Ok(Socket {
                listener: listener.clone(),
                socket,
                tls,
                tally: Arc::default(),
            })
        };
        let sockets = listeners.iter().zip(configurations).map(open);
        Ok(Self(sockets.collect::<Result<_, _>>()?))
    }

    /// The listeners, in the order of the file.
    pub fn listening(&self) -> Vec<Listening> {
        let listening = |socket: &Socket| Listening {
            name: socket.listener.name.clone(),
            address: socket
                .socket
                .local_addr()
                .unwrap_or(socket.listener.address),
            tls: socket.tls.is_some(),
        };
        self.0.iter().map(listening).collect()
    }
}

/// What is served on one listener.
pub(crate) struct Served {
    name: Arc<str>,
    routes: Arc<ArcSwap<Routes>>,
    tls: Option<TlsAcceptor>,
    header_timeout: Duration,
    idle_timeout: Duration,
    watching: Watching,
    ids: Rc<Cell<u64>>,
    tally: Arc<Tally>,
}

impl Served {
    pub(crate) fn new(
        socket: &Socket,
        routes: Arc<ArcSwap<Routes>>,
        watching: Watching,
        ids: Rc<Cell<u64>>,
    ) -> Rc<Self> {
        Rc::new(Self {
            name: socket.listener.name.as_str().into(),
            routes,
            tls: socket.tls.clone().map(TlsAcceptor::from),
            header_timeout: socket.listener.header_timeout.into(),
            idle_timeout: socket.listener.idle_timeout.into(),
            watching,
            ids,
            tally: socket.tally.clone(),
        })
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The routes now; others may take their place at any time.
    pub(crate) fn routes(&self) -> Guard<Arc<Routes>> {
        self.routes.load()
    }

    pub(crate) const fn tls(&self) -> Option<&TlsAcceptor> {
        self.tls.as_ref()
    }

    pub(crate) const fn scheme(&self) -> Scheme {
        match self.tls {
            Some(_) => Scheme::Https,
            None => Scheme::Http,
        }
    }

    pub(crate) const fn header_timeout(&self) -> Duration {
        self.header_timeout
    }

    pub(crate) const fn idle_timeout(&self) -> Duration {
        self.idle_timeout
    }

    /// The largest head that any of its tenants takes.
    pub(crate) fn head_bytes(&self) -> u32 {
        self.routes().head_bytes().max(LEAST_HEAD)
    }

    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    pub(crate) fn log(&self) -> Option<Log> {
        self.watching.log.clone()
    }

    pub(crate) const fn sampling(&self) -> Option<Sampling> {
        self.watching.sampling
    }

    pub(crate) fn next_id(&self) -> u64 {
        self.ids.set(self.ids.get() + 1);
        self.ids.get()
    }
}

/// Connections that are accepted before the thread does something else.
const AT_ONCE: u32 = 4;

/// What pays for accepting connections, and closing those that are refused: a sixteenth of the thread, so that a
/// flood of them takes no more of it while there is something else to do.
pub(crate) fn accepting() -> Rc<Share> {
    Rc::new(Share::reserving(1, 16))
}

/// Accepts connections until the front drains. `open` counts those that are open, over all
/// listeners.
pub(crate) async fn accept(
    socket: tokio::net::TcpListener,
    served: Rc<Served>,
    sources: Rc<Sources>,
    open: Rc<Cell<usize>>,
    phase: watch::Receiver<Phase>,
) {
    let mut ending = phase.clone();
    for count in 1_u32.. {
        if count.is_multiple_of(AT_ONCE) {
            tokio::task::yield_now().await;
        }
        let accepted = tokio::select! {
            biased;
            _ = ending.wait_for(|phase| *phase != Phase::Serving) => return,
            accepted = socket.accept() => accepted,
        };
        let Ok((stream, remote)) = accepted else {
            // The client has gone already, or there are no descriptors: others will be closed.
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let admitted = match sources.admit(remote.ip()) {
            Ok(admitted) => admitted,
            Err(why) => {
                served.tally().refused(why);
                continue;
            }
        };
        let counted = Open::new(&open, &served);
        let source = admitted.share().clone();
        let connection = connection::serve(stream, remote, served.clone(), phase.clone(), admitted);
        tokio::task::spawn_local(metered(source, async move {
            let _counted = counted;
            connection.await;
        }));
    }
}

/// A connection that is open.
struct Open {
    all: Rc<Cell<usize>>,
    served: Rc<Served>,
}

impl Open {
    fn new(all: &Rc<Cell<usize>>, served: &Rc<Served>) -> Self {
        all.set(all.get() + 1);
        served.tally().admitted();
        Self {
            all: all.clone(),
            served: served.clone(),
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.all.set(self.all.get() - 1);
        self.served.tally().closed();
    }
}
