//! The thread of calls to other hosts.

use crate::address::Routes;
use crate::calling::Calling;
use crate::connect::Connecting;
use crate::error::OutgoingError;
use crate::listening::{Addresses, Bound, Listeners};
use crate::names::Names;
use crate::payer::Payer;
use crate::pool::Pool;
use crate::ports::{LocalPorts, Ports};
use crate::resolver::Resolver;
use crate::sent::Observer;
use crate::socket::Sockets;
use crate::tenant::{LAST, serve};
use crate::trust::Trust;
use leasehold_exchange::{ExchangeLimits, Outbox, Outlet};
use leasehold_io_thread::{Begin, Metered, Urgency, keep_rounds, runtime};
use leasehold_lease::{ByteSize, Cpu, Outgoing as Lease};
use rustls::ClientConfig;
use std::io;
use std::rc::Rc;
use std::sync::{Arc, mpsc as std_mpsc};
use std::thread::JoinHandle;
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

/// How the thread is started.
#[derive(Default)]
pub struct Options {
    /// The cell's core, which the thread keeps off where it may run on another; it then runs
    /// before ordinary threads if the host allows that.
    pub core: Option<usize>,
    /// What the thread does before it sends: confine itself, for instance.
    pub begin: Option<Begin>,
    /// How names are looked up; `None`: as this host does.
    pub resolver: Option<Resolver>,
    /// The local ports that there are.
    pub ports: LocalPorts,
    /// The sockets of the addresses at which tenants may listen: those of all leases that come.
    pub bound: Bound,
    /// What gets the records of requests whose trace is recorded. With one, requests tell their hosts of the trace.
    pub observer: Option<Observer>,
}

/// A tenant that may send requests from now on.
struct Opened {
    tenant: String,
    cpu: Option<Cpu>,
    outbox: Arc<Outbox>,
    lease: Lease,
    tls: Option<Arc<ClientConfig>>,
}

/// The thread that sends requests of tenants to other hosts. Dropping it gives up what is under way.
pub struct Outgoing {
    trust: Trust,
    tenants: Option<mpsc::UnboundedSender<Opened>>,
    thread: Option<JoinHandle<()>>,
}

impl Outgoing {
    /// Starts the thread.
    ///
    /// # Errors
    /// When it cannot be started, or not begin as it should.
    pub fn start(trust: Trust, options: Options) -> Result<Self, OutgoingError> {
        let (tenants, opened) = mpsc::unbounded_channel();
        let (started, starting) = std_mpsc::channel();
        let routes = trust.routes();
        let run = move || {
            let resolver = Arc::new(options.resolver.clone().unwrap_or_else(Resolver::of_host));
            match runtime(options.core, Urgency::Guests, options.begin) {
                Ok(runtime) => {
                    let _ = started.send(Ok(()));
                    let local = tokio::task::LocalSet::new();
                    let shared = Shared {
                        resolver,
                        routes,
                        ports: Ports::new(options.ports),
                        addresses: Addresses::new(options.bound),
                        observer: options.observer,
                    };
                    local.block_on(&runtime, serve_all(opened, shared));
                }
                Err(error) => drop(started.send(Err(error))),
            }
        };
        let builder = std::thread::Builder::new().name("leasehold-out".to_owned());
        let thread = builder.spawn(run).map_err(OutgoingError::Thread)?;
        let gone = || Err(io::Error::other("the thread ended"));
        let begun = starting.recv().unwrap_or_else(|_| gone());
        begun.map_err(OutgoingError::Thread)?;
        Ok(Self {
            trust,
            tenants: Some(tenants),
            thread: Some(thread),
        })
    }

    /// The outbox of a tenant that starts, with its reservation of the processor if it has one. Its calls are sent until it is
    /// closed or its outlet is dropped.
    ///
    /// # Errors
    /// When its certificates were not read at the start, or the thread has ended.
    pub fn open(
        &self,
        tenant: &str,
        cpu: Option<&Cpu>,
        lease: &Lease,
    ) -> Result<Outlet, OutgoingError> {
        let tls = self.trust.of(lease)?;
        // Both are at most 16 MiB.
        let bytes = |size: ByteSize| u32::try_from(size.get()).unwrap_or(u32::MAX);
        let limits = ExchangeLimits {
            head_bytes: bytes(lease.head),
            window_bytes: bytes(lease.window),
        };
        let outbox = Outbox::new(limits, lease.concurrency).listening(lease.listen.clone());
        let outbox = Arc::new(outbox);
        let opened = Opened {
            tenant: tenant.to_owned(),
            cpu: cpu.copied(),
            outbox: outbox.clone(),
            lease: lease.clone(),
            tls,
        };
        let tenants = self.tenants.as_ref();
        match tenants.is_some_and(|tenants| tenants.send(opened).is_ok()) {
            true => Ok(Outlet::new(outbox)),
            false => Err(OutgoingError::Thread(io::Error::other("the thread ended"))),
        }
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.tenants = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What the calls of all tenants share.
struct Shared {
    resolver: Arc<Resolver>,
    routes: Arc<Routes>,
    ports: Rc<Ports>,
    addresses: Rc<Addresses>,
    observer: Option<Observer>,
}

/// Sends the calls of all tenants, until none can be opened any more; what is under way then is
/// dropped, but for what tenants that are over wrote last.
async fn serve_all(mut opened: mpsc::UnboundedReceiver<Opened>, shared: Shared) {
    tokio::task::spawn_local(keep_rounds());
    let mut tenants = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = tenants.join_next() => {}
            next = opened.recv() => {
                let Some(Opened { tenant, cpu, outbox, lease, tls }) = next else {
                    break;
                };
                let payer = Rc::new(Payer::new(outbox.clone(), cpu.as_ref()));
                let tenant: Rc<str> = tenant.into();
                let calling = Rc::new(Calling {
                    tenant: tenant.clone(),
                    observer: shared.observer.clone(),
                    lease,
                    connecting: Connecting {
                        resolver: shared.resolver.clone(),
                        routes: shared.routes.clone(),
                        tls,
                        payer: payer.clone(),
                        sockets: Sockets {
                            ports: shared.ports.clone(),
                            tenant,
                            window: outbox.limits().window_bytes,
                        },
                    },
                    pool: Pool::default(),
                    names: Names::new(shared.routes.clone()),
                    addresses: shared.addresses.clone(),
                    listeners: Listeners::default(),
                    over: Notify::new(),
                });
                let task = serve(outbox, calling);
                tenants.spawn_local(Metered::new(payer, task));
            }
        }
    }
    // Those that are over say their last words; the others are dropped.
    let rest = async { while tenants.join_next().await.is_some() {} };
    let _ = timeout(LAST, rest).await;
}
