//! The names that a tenant asked for, and the addresses that it was told: what it may connect to, and exchange datagrams with.

use crate::address::{Routes, Scope};
use crate::body::Half;
use crate::calling::Calling;
use crate::connect::Connecting;
use leasehold_exchange::{ADDRESS, CallError, Fields, ResponseHead};
use leasehold_lease::{Destination, DestinationHost, Outgoing as Lease, Protocol};
use std::cell::{Cell, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// The most names that are known of a tenant: those that it asked for last.
const NAMES: usize = 64;
/// The most addresses of one.
const ADDRESSES: usize = 16;
/// The most bytes of a name (RFC 1035 §2.3.4).
const NAME: usize = 253;

/// How long an address is taken for one of the public internet without asking the kernel again: each datagram is compared with
/// the lease.
const FRESH: Duration = Duration::from_secs(1);

/// An address that a tenant was told.
#[derive(Debug)]
struct Told {
    address: IpAddr,
    /// Until when it is public without asking again.
    public_until: Cell<Option<Instant>>,
}

impl Told {
    const fn new(address: IpAddr) -> Self {
        Self {
            address,
            public_until: Cell::new(None),
        }
    }

    fn scope(&self, routes: &Routes) -> Scope {
        let now = Instant::now();
        if self.public_until.get().is_some_and(|until| now < until) {
            return Scope::Public;
        }
        let scope = Scope::of(self.address, routes);
        let until = (scope == Scope::Public).then_some(now + FRESH);
        self.public_until.set(until);
        scope
    }
}

/// What a tenant was told: names, and the addresses of each.
#[derive(Debug)]
pub(crate) struct Names {
    known: RefCell<Vec<(String, Vec<Told>)>>,
    routes: Arc<Routes>,
}

impl Names {
    /// A tenant that was told nothing.
    pub(crate) const fn new(routes: Arc<Routes>) -> Self {
        Self {
            known: RefCell::new(Vec::new()),
            routes,
        }
    }

    /// The tenant was told these addresses for a name.
    fn tell(&self, name: String, addresses: Vec<IpAddr>) {
        let mut known = self.known.borrow_mut();
        known.retain(|(other, _)| *other != name);
        if known.len() == NAMES {
            known.remove(0);
        }
        known.push((name, addresses.into_iter().map(Told::new).collect()));
    }

    /// Whether a destination's name stands for an address, as far as the tenant was told.
    ///
    /// # Errors
    /// [`CallError::Denied`] if it was not told so, [`CallError::Prohibited`] if the name may not stand for it.
    fn stands_for(&self, destination: &Destination, address: IpAddr) -> Result<(), CallError> {
        let known = self.known.borrow();
        let told = known
            .iter()
            .filter(|(name, _)| destination.host.is(name))
            .flat_map(|(_, addresses)| addresses)
            .find(|told| told.address == address);
        let told = told.ok_or(CallError::Denied)?;
        match destination.takes_any_address() || told.scope(&self.routes) == Scope::Public {
            true => Ok(()),
            false => Err(CallError::Prohibited),
        }
    }

    /// Whether the lease allows a connection, or datagrams in either direction.
    ///
    /// # Errors
    /// Why it does not.
    pub(crate) fn allow(
        &self,
        lease: &Lease,
        protocol: Protocol,
        to: SocketAddr,
    ) -> Result<(), CallError> {
        let mut refusal = CallError::Denied;
        let of_this = |own: &&Destination| (own.protocol, own.port) == (protocol, to.port());
        for destination in lease.sockets().filter(of_this) {
            let stands = match destination.host {
                DestinationHost::Address(address) if address == to.ip() => Ok(()),
                DestinationHost::Address(_) => Err(CallError::Denied),
                DestinationHost::Name(_) | DestinationHost::Below(_) => {
                    self.stands_for(destination, to.ip())
                }
            };
            match stands {
                Ok(()) => return Ok(()),
                Err(CallError::Denied) => {}
                Err(error) => refusal = error,
            }
        }
        Err(refusal)
    }
}

/// Looks up a name for a guest.
///
/// # Errors
/// When the lease has no socket to it, or it has no address that a socket may be to.
pub(crate) async fn look_up(calling: &Calling, half: &Half, name: String) -> Result<(), CallError> {
    let Calling { lease, names, .. } = calling;
    let asked = name.strip_suffix('.').unwrap_or(&name);
    let own = || lease.sockets().filter(|own| own.host.is(asked));
    if own().next().is_none() {
        return Err(CallError::Denied);
    }
    if asked.len() > NAME {
        return Err(CallError::Lookup);
    }
    let Connecting {
        resolver, sockets, ..
    } = &calling.connecting;
    let found = resolver.look_up(asked, sockets);
    let found = timeout(Duration::from(lease.timeout), found).await;
    let found = found.map_err(|_| CallError::LookupTimeout)??.into_iter();
    let takes_any = own().any(Destination::takes_any_address);
    let allowed =
        found.filter(|found| takes_any || Scope::of(*found, &names.routes) == Scope::Public);
    let mut addresses: Vec<IpAddr> = allowed.take(ADDRESSES).collect();
    if addresses.is_empty() {
        return Err(CallError::Prohibited);
    }
    let mut half = half.half.borrow_mut();
    let mut fields = Fields::new(half.limits().head_bytes);
    // Sixteen addresses are less than the least limit; one that did not fit would be one that the guest is not told.
    addresses.retain(|address| fields.push(ADDRESS, address.to_string().as_bytes()).is_ok());
    names.tell(asked.to_owned(), addresses);
    let _ = half.respond(ResponseHead {
        status: 200,
        fields,
    });
    half.finish(None);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{NAMES, Names};
    use crate::address::Routes;
    use leasehold_exchange::CallError;
    use leasehold_lease::{LeaseFile, Outgoing, Protocol};
    use std::net::IpAddr;
    use std::path::Path;
    use std::sync::Arc;

    fn nothing() -> Names {
        Names::new(Arc::new(Routes::open().expect("a socket")))
    }

    fn lease(outgoing: &str) -> Outgoing {
        let text = format!(
            "[tenant.a]\ncomponent = \"a\"\nreclaim = {{ budget = \"1ms\" }}\noutgoing = {{ {outgoing} }}\n"
        );
        let file = LeaseFile::parse(&text, Path::new("lease.toml")).expect(&text);
        file.tenants[0].outgoing.clone().expect("stated")
    }

    #[test]
    fn a_tenant_connects_to_the_addresses_that_it_was_told_and_to_no_others() {
        let lease = lease(
            "allow = [\"tcp://db.example:5\", \"tcp://9.9.9.9:6\", \"http://web.example\", \"udp://9.9.9.9:7\"], \
             allow_private = [\"tcp://*.local.example:7\"]",
        );
        let names = nothing();
        let allow_by = |protocol, to: &str| {
            let to = to.parse().expect("an address");
            names.allow(&lease, protocol, to)
        };
        let allow = |to: &str| allow_by(Protocol::Tcp, to);
        assert_eq!(allow_by(Protocol::Udp, "9.9.9.9:7"), Ok(()));
        assert_eq!(allow_by(Protocol::Udp, "9.9.9.9:6"), Err(CallError::Denied));
        assert_eq!(allow("9.9.9.9:7"), Err(CallError::Denied));
        assert_eq!(allow("9.9.9.9:6"), Ok(()));
        assert_eq!(allow("9.9.9.9:5"), Err(CallError::Denied));
        assert_eq!(allow("8.8.8.8:5"), Err(CallError::Denied));
        let tell = |name: &str, address: &str| {
            let address: IpAddr = address.parse().expect("an address");
            names.tell(name.to_owned(), vec![address]);
        };
        tell("db.example", "8.8.8.8");
        assert_eq!(allow("8.8.8.8:5"), Ok(()));
        assert_eq!(allow("8.8.8.8:7"), Err(CallError::Denied));
        assert_eq!(allow("8.8.8.8:80"), Err(CallError::Denied));
        // Told by another's name server: no name leads within.
        tell("db.example", "127.0.0.1");
        assert_eq!(allow("127.0.0.1:5"), Err(CallError::Prohibited));
        assert_eq!(allow("8.8.8.8:5"), Err(CallError::Denied));
        tell("a.local.example", "10.0.0.1");
        assert_eq!(allow("10.0.0.1:7"), Ok(()));
    }

    #[test]
    fn what_is_known_of_a_tenant_is_bounded() {
        let names = nothing();
        for number in 0..2 * NAMES {
            names.tell(format!("{number}.example"), Vec::new());
            names.tell(format!("{number}.example"), Vec::new());
        }
        assert_eq!(names.known.borrow().len(), NAMES);
    }
}
