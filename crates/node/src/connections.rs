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
    /// Since when each is idle, and what tells it to give way, by its turn: the one that has been idle for longest comes first.
    by_turn: BTreeMap<u64, (Instant, Arc<Notify>)>,
    next: u64,
}

impl Idle {
    /// The one that has been idle for longest gives way, if that is long enough.
    fn ask(&mut self, now: Instant) {
        let oldest = self.by_turn.first_entry();
        let is_due = |since: Instant| now.duration_since(since) >= GRACE;
        if let Some(oldest) = oldest.filter(|oldest| is_due(oldest.get().0)) {
            oldest.remove().1.notify_one();
        }
    }

    /// One is idle from now on. Returns its turn.
    fn add(&mut self, gives_way: &Arc<Notify>) -> u64 {
        let turn = self.next;
        self.next += 1;
        self.by_turn
            .insert(turn, (Instant::now(), gives_way.clone()));
        turn
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
        let gives_way = Arc::default();
        let turn = self.idle().add(&gives_way);
        Connection {
            _place: place,
            of: self.clone(),
            gives_way,
            turn: Arc::new(Mutex::new(Some(turn))),
            stays: Arc::default(),
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
    of: Connections,
    gives_way: Arc<Notify>,
    /// Its turn, while it is idle.
    turn: Arc<Mutex<Option<u64>>>,
    /// From its next request on it gives way to no other.
    stays: Arc<AtomicBool>,
}

impl Connection {
    /// What is set when the connection is to give way to no other from now on.
    pub(crate) fn stays(&self) -> Arc<AtomicBool> {
        self.stays.clone()
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
            let under_way = self.asked();
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
                () = self.gives_way.notified() => if self.is_idle() {
                    return Ok(());
                },
            }
        }
    }

    /// A request has come.
    fn asked(&self) -> UnderWay {
        if let Some(turn) = lock(&self.turn).take() {
            self.of.idle().by_turn.remove(&turn);
        }
        UnderWay {
            of: self.of.clone(),
            gives_way: self.gives_way.clone(),
            turn: self.turn.clone(),
            stays: self.stays.clone(),
        }
    }

    fn is_idle(&self) -> bool {
        lock(&self.turn).is_some()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(turn) = lock(&self.turn).take() {
            self.of.idle().by_turn.remove(&turn);
        }
    }
}

fn lock(turn: &Mutex<Option<u64>>) -> MutexGuard<'_, Option<u64>> {
    turn.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A request of a connection, which is idle again once this is dropped.
struct UnderWay {
    of: Connections,
    gives_way: Arc<Notify>,
    turn: Arc<Mutex<Option<u64>>>,
    stays: Arc<AtomicBool>,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if self.stays.load(Ordering::Relaxed) {
            return;
        }
        let turn = self.of.idle().add(&self.gives_way);
        *lock(&self.turn) = Some(turn);
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
