//! Connections of operators: as many as there are places, of which those without a request give way to new ones.
//!
//! A client that says nothing would otherwise hold its place until its head is due, and a kill would wait for that. What takes
//! long has [places](crate::api::LongPlaces) of its own, fewer than these; all else is answered at once. So a new connection is
//! soon accepted, whatever others do.

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::response::Response;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// How long a connection has been without a request before it gives way: a client has this long to write one, also while
/// others connect without a pause.
const GRACE: Duration = Duration::from_millis(50);
/// Between two looks at which one gives way, while there is no place. One gives way at each: a thousand in a second.
const LOOK: Duration = Duration::from_millis(1);

/// The connections of a socket.
#[derive(Debug, Clone)]
pub(crate) struct Connections {
    most: u32,
    places: Arc<Semaphore>,
    idle: Arc<Mutex<Idle>>,
}

/// Those on which no request is under way.
#[derive(Debug, Default)]
struct Idle {
    /// Each with the time from which on it is idle, by its turn: the one that has been idle for longest comes first.
    by_turn: BTreeMap<u64, (Instant, Arc<Turn>)>,
    next: u64,
}

/// A connection's turn to give way.
#[derive(Debug)]
struct Turn {
    of: Connections,
    /// Told when it is to give way.
    comes: Notify,
    /// Which it is, while the connection is idle.
    idle: Mutex<Option<u64>>,
    /// From the end of its present request on it gives way to no other.
    stays: AtomicBool,
}

impl Turn {
    /// The connection is idle from now on, unless it stays.
    fn begin(self: &Arc<Self>) {
        if self.stays.load(Ordering::Relaxed) {
            return;
        }
        let mut idle = self.of.idle();
        let turn = idle.next;
        idle.next += 1;
        idle.by_turn.insert(turn, (Instant::now(), self.clone()));
        *self.lock() = Some(turn);
    }

    /// It is idle no more.
    fn end(&self) {
        let mut idle = self.of.idle();
        if let Some(turn) = self.lock().take() {
            idle.by_turn.remove(&turn);
        }
    }

    fn is_idle(&self) -> bool {
        self.lock().is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Option<u64>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Idle {
    /// The one that has been idle for longest gives way, if that is long enough.
    fn ask(&mut self, now: Instant) {
        let oldest = self.by_turn.first_entry();
        let is_due = |since: Instant| now.duration_since(since) >= GRACE;
        if let Some(oldest) = oldest.filter(|oldest| is_due(oldest.get().0)) {
            oldest.remove().1.comes.notify_one();
        }
    }
}

impl Connections {
    /// None yet, of `most` at a time.
    pub(crate) fn new(most: u32) -> Self {
        Self {
            most,
            places: Arc::new(Semaphore::new(most as usize)),
            idle: Arc::default(),
        }
    }

    /// A place for a new connection.
    pub(crate) async fn enter(&self) -> Connection {
        let mut free = pin!(self.places.clone().acquire_owned());
        let place = loop {
            tokio::select! {
                biased;
                place = &mut free => break place.expect("never closed"),
                () = tokio::time::sleep(LOOK) => self.idle().ask(Instant::now()),
            }
        };
        let turn = Arc::new(Turn {
            of: self.clone(),
            comes: Notify::new(),
            idle: Mutex::default(),
            stays: AtomicBool::new(false),
        });
        turn.begin();
        Connection {
            _place: place,
            turn,
        }
    }

    /// Waits until all have gone.
    pub(crate) async fn gone(&self) {
        drop(self.places.acquire_many(self.most).await);
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection's place.
#[derive(Debug)]
pub(crate) struct Connection {
    _place: OwnedSemaphorePermit,
    turn: Arc<Turn>,
}

/// Whether a connection [gives way to no other](Self::set).
#[derive(Debug, Clone)]
pub(crate) struct Stays(Arc<Turn>);

impl Stays {
    /// From the end of its present request on it gives way to no other.
    pub(crate) fn set(&self) {
        self.0.stays.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.stays.load(Ordering::Relaxed)
    }
}

impl Connection {
    /// Whether it stays, whatever others come.
    pub(crate) fn stays(&self) -> Stays {
        Stays(self.turn.clone())
    }

    /// Answers the requests that come on it, until it is over or gives way.
    pub(crate) async fn converse(
        &self,
        builder: &http1::Builder,
        stream: impl AsyncRead + AsyncWrite + Unpin,
        routes: Router,
        prepare: impl Fn(&mut axum::http::Request<Incoming>),
    ) -> hyper::Result<()> {
        let routes = TowerToHyperService::new(routes);
        let service = service_fn(|mut request| {
            self.turn.end();
            let under_way = UnderWay(self.turn.clone());
            prepare(&mut request);
            let answer = routes.call(request);
            async move {
                let answer: Response = answer.await?;
                Ok::<_, Infallible>(answer.map(|body| Answer {
                    body,
                    _under_way: under_way,
                }))
            }
        });
        let mut conversation = pin!(builder.serve_connection(TokioIo::new(stream), service));
        loop {
            tokio::select! {
                ended = &mut conversation => return ended,
                // Unless a request has come meanwhile.
                () = self.turn.comes.notified() => if self.turn.is_idle() {
                    return Ok(());
                },
            }
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.turn.end();
    }
}

/// A request of a connection, which is idle again once this is dropped.
struct UnderWay(Arc<Turn>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.begin();
    }
}

/// The body of an answer.
struct Answer {
    body: Body,
    _under_way: UnderWay,
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
