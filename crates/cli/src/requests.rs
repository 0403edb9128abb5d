//! What a command's tenants ask of other hosts, and the connections that come to them: what is read and bound before the
//! process is confined, and the thread that does it.

use crate::confinement::Origin;
use crate::exit::Failure;
use crate::output::say;
use leasehold_cell::exchange::Outlet;
use leasehold_confine::Thread;
use leasehold_lease::TenantSpec;
use leasehold_outgoing::{
    Bound, LocalPorts, Observer, Options, Outgoing, OutgoingError, Resolver, Trust,
};
use std::sync::Arc;

/// What the thread needs of the host. Nothing, if no tenant needs it.
pub(crate) struct Prepared(Option<Ready>);

struct Ready {
    trust: Trust,
    resolver: Resolver,
    ports: LocalPorts,
    bound: Bound,
}

/// The thread, if a tenant sends requests.
pub(crate) struct Requests(Option<Outgoing>);

impl Prepared {
    /// Reads which certificates are trusted and how names are looked up, and binds the sockets that tenants may listen on.
    ///
    /// # Errors
    /// Those of [`trust`]; when an address is not free.
    pub(crate) fn read(tenants: &[TenantSpec], origin: Origin<'_>) -> Result<Self, Failure> {
        let Some(trust) = trust(tenants, origin)? else {
            return Ok(Self(None));
        };
        Ok(Self(Some(Ready {
            trust,
            resolver: Resolver::of_host(),
            ports: LocalPorts::of_host(),
            bound: Bound::open(leases(tenants)).map_err(|error| failed(&error, origin))?,
        })))
    }

    /// Reads and binds what one more tenant needs.
    ///
    /// # Errors
    /// As [`Prepared::read`]. Then nothing is bound for it.
    pub(crate) fn add(&mut self, tenant: &TenantSpec, origin: Origin<'_>) -> Result<(), Failure> {
        let Some(lease) = &tenant.outgoing else {
            return Ok(());
        };
        let Some(ready) = &mut self.0 else {
            *self = Self::read(std::slice::from_ref(tenant), origin)?;
            return Ok(());
        };
        let added = ready.trust.add(lease).and_then(|()| ready.bound.add(lease));
        added.map_err(|error| failed(&error, origin))
    }

    /// Starts the thread, which keeps off `core`, and tells the observer, if there is one, of requests that are traced.
    ///
    /// # Errors
    /// When it cannot be started or confined.
    pub(crate) fn start(
        self,
        core: Option<usize>,
        observer: Option<Observer>,
    ) -> Result<Requests, Failure> {
        let Some(ready) = self.0 else {
            return Ok(Requests(None));
        };
        let options = Options {
            core,
            begin: Some(Box::new(|| {
                leasehold_confine::narrow(Thread::Outgoing).map_err(std::io::Error::other)
            })),
            resolver: Some(ready.resolver),
            ports: ready.ports,
            bound: ready.bound,
            observer,
        };
        let thread = Outgoing::start(ready.trust, options);
        let thread = thread.map_err(|error| Failure::Host(error.into()))?;
        Ok(Requests(Some(thread)))
    }
}

fn leases(tenants: &[TenantSpec]) -> impl Iterator<Item = &leasehold_lease::Outgoing> {
    tenants.iter().filter_map(|tenant| tenant.outgoing.as_ref())
}

fn failed(error: &OutgoingError, origin: Origin<'_>) -> Failure {
    let message = match origin {
        Origin::File(file) => format!("{}: {error}", file.display()),
        Origin::Flags | Origin::Node => error.to_string(),
    };
    match error {
        OutgoingError::Certificates { .. } => Failure::Missing(message),
        OutgoingError::Address { .. } => Failure::Host(anyhow::anyhow!(message)),
        _ => Failure::Configuration(message),
    }
}

/// Reads which certificates are trusted; `None` if no tenant asks other hosts, or listens.
///
/// # Errors
/// When a file of certificates cannot be used, or the host has none.
pub(crate) fn trust(tenants: &[TenantSpec], origin: Origin<'_>) -> Result<Option<Trust>, Failure> {
    if leases(tenants).next().is_none() {
        return Ok(None);
    }
    let trust = Trust::load(leases(tenants));
    trust.map(Some).map_err(|error| failed(&error, origin))
}

impl Requests {
    /// Where the requests of one start of a tenant go.
    pub(crate) fn of(&self, tenant: &TenantSpec) -> Option<Arc<Outlet>> {
        let opened = self.0.as_ref()?.open(
            &tenant.name,
            tenant.lease.cpu.as_ref(),
            tenant.outgoing.as_ref()?,
        );
        match opened {
            Ok(outlet) => Some(Arc::new(outlet)),
            Err(error) => {
                say!("leasehold: {}: no requests: {error}", tenant.name);
                None
            }
        }
    }
}
