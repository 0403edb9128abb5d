//! The HTTP requests that a command's tenants send: what is read before the process is confined, and the
//! thread that sends them.

use crate::confinement::Origin;
use crate::exit::Failure;
use crate::output::say;
use leasehold_cell::exchange::Outlet;
use leasehold_confine::Thread;
use leasehold_lease::TenantSpec;
use leasehold_outgoing::{LocalPorts, Observer, Options, Outgoing, OutgoingError, Resolver, Trust};
use std::sync::Arc;

/// What the thread needs of the host's files. Nothing, if no tenant sends requests.
pub(crate) struct Prepared(Option<(Trust, Resolver, LocalPorts)>);

/// The thread, if a tenant sends requests.
pub(crate) struct Requests(Option<Outgoing>);

impl Prepared {
    /// Reads which certificates are trusted and how names are looked up.
    ///
    /// # Errors
    /// When a file of certificates cannot be used, or the host has none.
    pub(crate) fn read(tenants: &[TenantSpec], origin: Origin<'_>) -> Result<Self, Failure> {
        let leases = || tenants.iter().filter_map(|tenant| tenant.outgoing.as_ref());
        if leases().next().is_none() {
            return Ok(Self(None));
        }
        let trust = Trust::load(leases()).map_err(|error| {
            let message = match origin {
                Origin::File(file) => format!("{}: outgoing: {error}", file.display()),
                Origin::Flags | Origin::Node => format!("outgoing: {error}"),
            };
            match error {
                OutgoingError::Certificates { .. } => Failure::Missing(message),
                _ => Failure::Configuration(message),
            }
        })?;
        Ok(Self(Some((
            trust,
            Resolver::of_host(),
            LocalPorts::of_host(),
        ))))
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
        let Some((trust, resolver, ports)) = self.0 else {
            return Ok(Requests(None));
        };
        let options = Options {
            core,
            begin: Some(Box::new(|| {
                leasehold_confine::narrow(Thread::Outgoing).map_err(std::io::Error::other)
            })),
            resolver: Some(resolver),
            ports,
            observer,
        };
        let thread = Outgoing::start(trust, options);
        let thread = thread.map_err(|error| Failure::Host(error.into()))?;
        Ok(Requests(Some(thread)))
    }
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
