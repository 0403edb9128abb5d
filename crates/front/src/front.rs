//! The I/O thread of a front.

use crate::error::FrontError;
use crate::listening::{self, Listening, Log, Phase, Served, Sockets, Watching, accept};
use crate::payer::metered;
use crate::routes::Routes;
use crate::site::Site;
use crate::sources::Sources;
use crate::tally::{Connections, Tally};
use crate::trace::Sampling;
use arc_swap::ArcSwap;
use leasehold_io_thread::{Begin, Urgency, keep_rounds, runtime};
use leasehold_lease::Http;
use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// How often a front that drains looks whether its connections are over.
const LOOK: Duration = Duration::from_millis(5);
/// How long abandoned connections are waited for.
const LAST: Duration = Duration::from_secs(1);

/// How a front is started.
#[derive(Default)]
pub struct Options {
    /// The cell's core, which the thread keeps off where it may run on another; it then runs before
    /// ordinary threads if the host allows that.
    pub core: Option<usize>,
    /// What is called with the record of each request, on the I/O thread: it must not block.
    pub log: Option<Log>,
    /// Which requests are traced; with `None` what clients say of traces goes through.
    pub sampling: Option<Sampling>,
    /// What the thread does before it serves: confine itself, for instance.
    pub begin: Option<Begin>,
}

/// How a front ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// Connections whose requests were abandoned.
    pub abandoned: usize,
}

/// A front: one I/O thread that serves all listeners. Dropping it abandons what is under way.
pub struct Front {
    phase: watch::Sender<Phase>,
    /// When what is under way is abandoned.
    until: Arc<Mutex<Option<Instant>>>,
    listening: Vec<Listening>,
    tallies: Vec<Arc<Tally>>,
    /// The routes of each listener.
    routes: Vec<Arc<ArcSwap<Routes>>>,
    thread: Option<JoinHandle<Drained>>,
}

impl Front {
    /// Starts the thread that will serve these tenants on these sockets, from [`Front::serve`] on.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn start(
        sockets: Sockets,
        sites: &[(Arc<Site>, Http)],
        options: Options,
    ) -> Result<Self, FrontError> {
        let (phase, receiver) = watch::channel(Phase::Held);
        let until = Arc::new(Mutex::new(None));
        let listening = sockets.listening();
        let tallies = sockets.0.iter().map(|socket| socket.tally.clone());
        let tallies = tallies.collect();
        let of = |listening: &Listening| {
            Arc::new(ArcSwap::from_pointee(Routes::of(&listening.name, sites)))
        };
        let routes: Vec<_> = listening.iter().map(of).collect();
        let (started, starting) = mpsc::channel();
        let thread = {
            let (until, routes) = (until.clone(), routes.clone());
            let run = move || {
                let (runtime, watching) = match begin(options) {
                    Ok(begun) => {
                        let _ = started.send(Ok(()));
                        begun
                    }
                    Err(error) => {
                        let _ = started.send(Err(error));
                        return Drained { abandoned: 0 };
                    }
                };
                let local = tokio::task::LocalSet::new();
                local.block_on(&runtime, serve(sockets, routes, watching, receiver, &until))
            };
            let builder = std::thread::Builder::new().name("leasehold-front".to_owned());
            builder.spawn(run).map_err(FrontError::Thread)?
        };
        let gone = || Err(io::Error::other("the thread ended"));
        starting
            .recv()
            .unwrap_or_else(|_| gone())
            .map_err(FrontError::Thread)?;
        Ok(Self {
            phase,
            until,
            listening,
            tallies,
            routes,
            thread: Some(thread),
        })
    }

    /// Accepts connections from now on.
    pub fn serve(&self) {
        self.phase.send_if_modified(|phase| {
            let held = *phase == Phase::Held;
            if held {
                *phase = Phase::Serving;
            }
            held
        });
    }

    /// From now on requests go to these tenants. Those that are under way go on.
    pub fn set_sites(&self, sites: &[(Arc<Site>, Http)]) {
        for (listening, routes) in self.listening.iter().zip(&self.routes) {
            routes.store(Arc::new(Routes::of(&listening.name, sites)));
        }
    }

    /// The listeners and their addresses.
    pub fn listening(&self) -> &[Listening] {
        &self.listening
    }

    /// The connections of each listener so far, in the order of [`Front::listening`].
    pub fn connections(&self) -> Vec<Connections> {
        self.tallies.iter().map(|tally| tally.read()).collect()
    }

    /// Accepts no connection from now on, finishes the requests that are under way, and abandons
    /// those that are not over after `grace`. Does not wait.
    pub fn drain(&self, grace: Duration) {
        let mut until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        *until = Some(Instant::now() + grace);
        drop(until);
        self.phase.send_if_modified(|phase| {
            let drains = matches!(phase, Phase::Held | Phase::Serving);
            if drains {
                *phase = Phase::Draining;
            }
            drains
        });
    }

    /// Whether it has ended.
    pub fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits until it has drained.
    pub fn wait(mut self) -> Drained {
        self.join()
    }

    fn join(&mut self) -> Drained {
        let drained = self.thread.take().and_then(|thread| thread.join().ok());
        drained.unwrap_or(Drained { abandoned: 0 })
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.drain(Duration::ZERO);
        self.join();
    }
}

/// What the thread does before it serves.
fn begin(options: Options) -> io::Result<(tokio::runtime::Runtime, Watching)> {
    let runtime = runtime(options.core, Urgency::Guests, options.begin)?;
    let watching = Watching {
        log: options.log,
        sampling: options.sampling,
    };
    Ok((runtime, watching))
}

async fn serve(
    sockets: Sockets,
    routes: Vec<Arc<ArcSwap<Routes>>>,
    watching: Watching,
    mut phase: watch::Receiver<Phase>,
    until: &Mutex<Option<Instant>>,
) -> Drained {
    // A sender that has gone says the end.
    let held = phase.wait_for(|phase| *phase != Phase::Held).await;
    if held.is_err() {
        return Drained { abandoned: 0 };
    }
    drop(held);
    tokio::task::spawn_local(keep_rounds());
    let open = Rc::new(Cell::new(0));
    let ids = Rc::new(Cell::new(0));
    // The receivers of the connections: the last phase is sent from here.
    let (connections, of_connections) = watch::channel(Phase::Serving);
    for (socket, routes) in sockets.0.into_iter().zip(routes) {
        let served = Served::new(&socket, routes, watching.clone(), ids.clone());
        let sources = Sources::new(socket.listener.connections, socket.listener.per_source);
        let Ok(socket) = tokio::net::TcpListener::from_std(socket.socket) else {
            continue;
        };
        let accepting = accept(
            socket,
            served,
            sources,
            open.clone(),
            of_connections.clone(),
        );
        tokio::task::spawn_local(metered(listening::accepting(), accepting));
    }
    // A sender that has gone says the same.
    let _ = phase.wait_for(|phase| *phase != Phase::Serving).await;
    connections.send_replace(Phase::Draining);
    let end = || {
        let until = *until.lock().unwrap_or_else(PoisonError::into_inner);
        until.unwrap_or_else(Instant::now)
    };
    tokio::task::yield_now().await;
    while open.get() > 0 && Instant::now() < end() {
        tokio::time::sleep(LOOK).await;
    }
    let abandoned = open.get();
    connections.send_replace(Phase::Ended);
    let last = Instant::now() + LAST;
    while open.get() > 0 && Instant::now() < last {
        tokio::time::sleep(LOOK).await;
    }
    Drained { abandoned }
}
