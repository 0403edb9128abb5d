//! A connection: how long it may last, and the requests that are under way on it.

use crate::access::{Outcome, Record};
use crate::listening::{Log, Phase, Served};
use crate::payer::LocalExecutor;
use crate::place::{Place, Taken};
use crate::quiet::Rest;
use crate::service;
use crate::site::Site;
use crate::socket::Socket;
use crate::sources::Admitted;
use http::Version;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use leasehold_exchange::{Failure, Lane, UnderWay};
use leasehold_io_thread::Sliced;
use pin_project_lite::pin_project;
use rustix::net::sockopt;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};

/// How long after its deadline a request may still be under way, because its client does not read:
/// the connection is then closed.
const OVERDUE: Duration = Duration::from_millis(500);
/// How long a connection without a request stays open when the front drains, or it is to give way: for a request that was
/// on its way, and for the goodbye of HTTP/2.
const GOODBYE: Duration = Duration::from_millis(250);
/// Requests at a time on one connection of HTTP/2.
const STREAMS: u32 = 128;
/// The flow-control window of an HTTP/2 stream, bytes: what the host holds of the body of a request
/// whose tenant does not read.
const STREAM_WINDOW: u32 = 64 * 1024;
/// That of a connection has room for all its streams: a tenant that does not read stops its own
/// requests, and none that share the connection.
const CONNECTION_WINDOW: u32 = STREAMS * STREAM_WINDOW;
/// The least buffer of a connection that its library accepts, bytes.
const LEAST_BUFFER: usize = 8192;

/// The state of a connection.
pub(crate) struct Connection {
    remote: SocketAddr,
    header_timeout: Duration,
    idle_timeout: Duration,
    /// It was accepted, or its last request was over, at this time.
    quiet_since: Cell<Instant>,
    /// The first bytes since then.
    bytes_since: Cell<Option<Instant>>,
    has_served: Cell<bool>,
    is_http2: Cell<bool>,
    /// The body of a response may end where the connection does (RFC 9112 §6.3).
    ends_with_bodies: Cell<bool>,
    /// Since then the front drains, or the connection gives way.
    drains_since: Cell<Option<Instant>>,
    /// What was not sent is not to be sent any more.
    is_given_up: Cell<bool>,
    /// Closes it: a client leaves what others need the room of.
    hang_up: Arc<Notify>,
    /// The requests that are under way, and their deadlines.
    requests: RefCell<BTreeMap<u64, Option<Instant>>>,
    /// It is quiet while there are none.
    rest: Rc<Rest>,
}

impl Connection {
    fn new(remote: SocketAddr, served: &Served, rest: Rc<Rest>) -> Rc<Self> {
        Rc::new(Self {
            remote,
            header_timeout: served.header_timeout(),
            idle_timeout: served.idle_timeout(),
            quiet_since: Cell::new(Instant::now()),
            bytes_since: Cell::new(None),
            has_served: Cell::new(false),
            is_http2: Cell::new(false),
            ends_with_bodies: Cell::new(false),
            drains_since: Cell::new(None),
            is_given_up: Cell::new(false),
            hang_up: Arc::default(),
            requests: RefCell::default(),
            rest,
        })
    }

    pub(crate) const fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// What closes it.
    pub(crate) const fn hang_up(&self) -> &Arc<Notify> {
        &self.hang_up
    }

    /// When it is closed, if nothing changes. `None` while the requests that are under way have not
    /// reached a tenant.
    fn deadline(&self) -> Option<Instant> {
        let requests = self.requests.borrow();
        if !requests.is_empty() {
            return requests.values().flatten().min().map(|due| *due + OVERDUE);
        }
        let quiet = self.quiet_since.get();
        let goodbye = self
            .drains_since
            .get()
            .map(|since| since.max(quiet) + GOODBYE);
        let otherwise = Some(match self.bytes_since.get() {
            _ if !self.has_served.get() => quiet + self.header_timeout,
            // Frames of HTTP/2 may be about the connection only.
            Some(begun) if !self.is_http2.get() => begun + self.header_timeout,
            _ => quiet + self.idle_timeout,
        });
        otherwise.into_iter().chain(goodbye).min()
    }

    /// It is closed with requests under way: what the kernel still holds of them is forgotten.
    fn give_up(&self) {
        self.is_given_up.set(!self.requests.borrow().is_empty());
    }

    fn received(&self) {
        if self.bytes_since.get().is_none() && self.requests.borrow().is_empty() {
            self.bytes_since.set(Some(Instant::now()));
        }
    }

    fn begin(&self, id: u64, version: Version) {
        self.has_served.set(true);
        self.is_http2.set(version == Version::HTTP_2);
        self.ends_with_bodies.set(version < Version::HTTP_11);
        self.requests.borrow_mut().insert(id, None);
        self.rest.end();
    }

    fn end(&self, id: u64) {
        let mut requests = self.requests.borrow_mut();
        requests.remove(&id);
        if requests.is_empty() {
            self.quiet_since.set(Instant::now());
            self.bytes_since.set(None);
            self.rest.begin();
        }
    }
}

/// A request that is under way. Dropping it writes its record.
pub(crate) struct Ongoing {
    connection: Rc<Connection>,
    site: Option<Arc<Site>>,
    under_way: Option<UnderWay>,
    /// Its place in the host's memory, which the tenant's exchange has.
    place: Option<Arc<Place>>,
    log: Option<Log>,
    began: Instant,
    due: Cell<Option<Instant>>,
    /// It was decided then how it ended.
    ended_at: Option<Instant>,
    pub(crate) record: Record,
}

impl Ongoing {
    pub(crate) fn begin(
        connection: Rc<Connection>,
        log: Option<Log>,
        record: Record,
        version: Version,
    ) -> Self {
        connection.begin(record.id, version);
        Self {
            connection,
            site: None,
            under_way: None,
            place: None,
            log,
            began: Instant::now(),
            due: Cell::new(None),
            ended_at: None,
            record,
        }
    }

    /// It is for this tenant.
    pub(crate) fn routed(&mut self, site: &Arc<Site>) {
        self.record.tenant = Some(site.name().to_owned());
        self.site = Some(site.clone());
    }

    /// It goes through a lane.
    pub(crate) fn entered(&mut self, under_way: UnderWay) {
        self.under_way = Some(under_way);
    }

    /// Its exchange has a place in the host's memory, if there is one.
    /// Returns what keeps it for the guest's half.
    pub(crate) fn take_place(&mut self, site: &Site) -> Option<Arc<Taken>> {
        let hang_up = self.connection.hang_up();
        self.place = site.places().take(self.record.id, hang_up, Instant::now());
        self.place.as_ref().map(|place| place.kept())
    }

    /// The place of its exchange.
    pub(crate) const fn place(&self) -> Option<&Arc<Place>> {
        self.place.as_ref()
    }

    /// The front answers it, and there is no exchange: the client has as much time for the answer as it has for a head.
    pub(crate) fn replied(&mut self) {
        (self.under_way, self.place) = (None, None);
        self.due(Instant::now() + self.connection.header_timeout);
    }

    /// The lane that it went through.
    pub(crate) fn lane(&self) -> Option<Arc<Lane>> {
        self.under_way.as_ref().map(UnderWay::lane)
    }

    pub(crate) fn site(&self) -> Option<&Site> {
        self.site.as_deref()
    }

    /// It has to be over by then.
    pub(crate) fn due(&self, at: Instant) {
        let mut requests = self.connection.requests.borrow_mut();
        requests.insert(self.record.id, Some(at));
        self.due.set(Some(at));
    }

    pub(crate) fn is_http2(&self) -> bool {
        self.connection.is_http2.get()
    }

    /// The body of the response is cut off, and its connection is closed: by a reset where the end of the connection
    /// would be taken for that of the body.
    pub(crate) fn cut_off(&self) {
        if self.connection.ends_with_bodies.get() {
            self.connection.is_given_up.set(true);
        }
    }

    /// Decides how it ended, once: what comes later changes nothing of it. Until then, its client is said to
    /// have gone.
    pub(crate) fn ended(&mut self, outcome: Outcome, failure: Option<Failure>) {
        if self.ended_at.is_none() {
            self.record.outcome = outcome;
            self.record.failure = failure;
            self.ended_at = Some(Instant::now());
        }
    }
}

impl Drop for Ongoing {
    fn drop(&mut self) {
        // A client that does not read is there until its request is given up, as is one whose request the end of a
        // drain gives up.
        let is_due = self.due.get().is_some_and(|due| due <= Instant::now());
        let is_over = is_due || self.connection.is_given_up.get();
        self.ended(
            match is_over {
                true => Outcome::Timeout,
                false => Outcome::ClientGone,
            },
            self.record.failure,
        );
        let ended_at = self.ended_at.unwrap_or(self.began);
        self.record.elapsed = ended_at.duration_since(self.began);
        self.connection.end(self.record.id);
        if let Some(site) = &self.site {
            site.usage().ended(self.record.outcome, self.record.elapsed);
        }
        if let Some(log) = &self.log {
            log(&self.record);
        }
    }
}

/// Serves a connection to its end. Its place among the connections is given back then.
pub(crate) async fn serve(
    stream: TcpStream,
    remote: SocketAddr,
    served: Rc<Served>,
    phase: watch::Receiver<Phase>,
    admitted: Admitted,
) {
    let _ = stream.set_nodelay(true);
    let connection = Connection::new(remote, &served, admitted.rest().clone());
    let socket = Socket::new(stream);
    let closed = socket.closed();
    let stream = Observed {
        stream: Sliced::new(socket),
        connection: connection.clone(),
    };
    let connected = (connection, closed);
    let Some(tls) = served.tls() else {
        return speak(stream, Agreed::Nothing, connected, served, phase).await;
    };
    let handshake = tokio::time::timeout(served.header_timeout(), tls.accept(stream));
    let mut ending = phase.clone();
    tokio::select! {
        biased;
        accepted = handshake => match accepted {
            Ok(Ok(stream)) => {
                let agreed = Agreed::named(stream.get_ref().1.alpn_protocol());
                speak(stream, agreed, connected, served, phase).await;
            }
            _ => served.tally().handshake_failed(),
        },
        _ = ending.wait_for(|phase| *phase != Phase::Serving) => {}
        () = admitted.rest().comes() => {}
    }
}

/// Speaks HTTP on a connection until it ends, its client has gone from a request, its time is over, or the front ends.
async fn speak<S>(
    stream: S,
    agreed: Agreed,
    (connection, closed): (Rc<Connection>, impl Future<Output = ()>),
    served: Rc<Served>,
    mut phase: watch::Receiver<Phase>,
) where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let builder = builder(&served, agreed);
    let state = connection.clone();
    let service = service_fn(move |request| service::answer(served.clone(), &state, request));
    let mut http = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let mut armed = connection.deadline().unwrap_or_else(Instant::now);
    let mut timer = pin!(tokio::time::sleep_until(armed.into()));
    let hang_up = connection.hang_up().clone();
    let mut hung_up = pin!(hang_up.notified());
    let rest = connection.rest.clone();
    let mut gives_way = pin!(rest.comes());
    let (mut closed, mut is_closed) = (pin!(closed), false);
    let mut drains = false;
    loop {
        let mut changed = Box::pin(phase.changed());
        let stepped = poll_fn(|context| {
            if http.as_mut().poll(context).is_ready() {
                return Poll::Ready(Step::Over);
            }
            is_closed = is_closed || closed.as_mut().poll(context).is_ready();
            if is_closed && !connection.requests.borrow().is_empty() {
                return Poll::Ready(Step::Over);
            }
            if changed.as_mut().poll(context).is_ready() {
                return Poll::Ready(Step::Phase);
            }
            if hung_up.as_mut().poll(context).is_ready() {
                connection.is_given_up.set(true);
                return Poll::Ready(Step::Over);
            }
            while gives_way.as_mut().poll(context).is_ready() {
                // Unless a request has come meanwhile.
                if connection.requests.borrow().is_empty() {
                    return Poll::Ready(Step::GiveWay);
                }
                gives_way.set(rest.comes());
            }
            let deadline = connection.deadline();
            if let Some(earlier) = deadline.filter(|deadline| *deadline < armed) {
                armed = earlier;
                timer.as_mut().reset(armed.into());
            }
            while timer.as_mut().poll(context).is_ready() {
                let now = Instant::now();
                match connection.deadline() {
                    Some(deadline) if deadline <= now => {
                        connection.give_up();
                        return Poll::Ready(Step::Over);
                    }
                    Some(deadline) => armed = deadline,
                    None => armed = now + OVERDUE,
                }
                timer.as_mut().reset(armed.into());
            }
            Poll::Pending
        })
        .await;
        drop(changed);
        match stepped {
            Step::Over => return,
            Step::GiveWay => gives_way.set(rest.comes()),
            Step::Phase => match *phase.borrow_and_update() {
                Phase::Held | Phase::Serving => continue,
                Phase::Draining => {}
                Phase::Ended => {
                    connection.give_up();
                    return;
                }
            },
        }
        if !drains {
            drains = true;
            connection.drains_since.set(Some(Instant::now()));
            http.as_mut().graceful_shutdown();
        }
    }
}

enum Step {
    Over,
    GiveWay,
    Phase,
}

/// What the TLS handshake agreed on (ALPN).
#[derive(Clone, Copy)]
enum Agreed {
    /// The client's first bytes say which version it speaks.
    Nothing,
    Http1,
    Http2,
}

impl Agreed {
    fn named(protocol: Option<&[u8]>) -> Self {
        match protocol {
            Some(b"h2") => Self::Http2,
            Some(b"http/1.1") => Self::Http1,
            _ => Self::Nothing,
        }
    }
}

fn builder(served: &Served, agreed: Agreed) -> Builder<LocalExecutor> {
    let builder = Builder::new(LocalExecutor);
    let mut builder = match agreed {
        Agreed::Nothing => builder,
        Agreed::Http1 => builder.http1_only(),
        Agreed::Http2 => builder.http2_only(),
    };
    let head = served.head_bytes();
    builder
        .http1()
        .timer(TokioTimer::new())
        // The connection has a time of its own, which ends no request that is waited for.
        .header_read_timeout(None)
        .max_buf_size((head as usize).max(LEAST_BUFFER))
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(head)
        .max_concurrent_streams(STREAMS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(STREAM_WINDOW as usize);
    builder
}

pin_project! {
    /// A stream whose first bytes of a request are seen.
    struct Observed {
        #[pin]
        stream: Sliced<Socket>,
        connection: Rc<Connection>,
    }

    impl PinnedDrop for Observed {
        fn drop(this: Pin<&mut Self>) {
            if this.connection.is_given_up.get() {
                // It is reset. If that fails, the kernel forgets it after a while.
                let _ = sockopt::set_socket_linger(this.stream.get_ref(), Some(Duration::ZERO));
            }
        }
    }
}

impl AsyncRead for Observed {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.project();
        let before = buffer.filled().len();
        let result = this.stream.poll_read(context, buffer);
        if buffer.filled().len() > before {
            this.connection.received();
        }
        result
    }
}

impl AsyncWrite for Observed {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.project().stream.poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().stream.poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().stream.poll_shutdown(context)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.project().stream.poll_write_vectored(context, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
