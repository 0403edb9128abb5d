//! Addresses of this host at which something listens: each belongs to one thing of a node.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

use thiserror::Error;

use crate::error::LeaseError;
use crate::node::Node;

/// An address and a port at which a socket of a host can listen; port 0 is any free one.
///
/// It has one notation: it is not IPv4-mapped and has no scope, so two of them are equal if their sockets are at one address.
/// Whether the host has the address is for the system to say.
///
/// ```
/// use leasehold_lease::{ListenAddress, ListenAddressError};
///
/// let address: ListenAddress = "[::1]:7070".parse()?;
/// assert_eq!(address.get().port(), 7070);
/// let mapped = "[::ffff:127.0.0.1]:7070".parse::<ListenAddress>().unwrap_err();
/// assert_eq!(
///     mapped.to_string(),
///     "found an IPv4-mapped address; allowed: the IPv4 form, \"127.0.0.1:7070\"",
/// );
/// # Ok::<(), ListenAddressError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ListenAddress(SocketAddr);

impl ListenAddress {
    /// Returns the address as sockets take it.
    pub const fn get(self) -> SocketAddr {
        self.0
    }

    /// Parses the value of a key; `allowed` is what the key says to text that is no address.
    pub(crate) fn parse(node: &Node<'_>, allowed: &str) -> Result<Self, LeaseError> {
        let stated: SocketAddr = node.keyword(allowed, |text| text.parse().ok())?;
        Self::try_from(stated).map_err(|error| node.refused_for(error.found(), &error.allowed()))
    }
}

impl TryFrom<SocketAddr> for ListenAddress {
    type Error = ListenAddressError;

    fn try_from(address: SocketAddr) -> Result<Self, ListenAddressError> {
        let plain = address.ip().to_canonical();
        if plain.is_multicast() {
            return Err(ListenAddressError::Multicast);
        }
        if plain == Ipv4Addr::BROADCAST {
            return Err(ListenAddressError::Broadcast);
        }
        match address {
            SocketAddr::V6(_) if plain.is_ipv4() => Err(ListenAddressError::Mapped {
                plain: SocketAddr::new(plain, address.port()),
            }),
            SocketAddr::V6(of) if of.ip().is_unicast_link_local() => {
                Err(ListenAddressError::LinkLocal)
            }
            // The system ignores it at an address that is not link-local.
            SocketAddr::V6(of) if of.scope_id() != 0 => Err(ListenAddressError::Scoped),
            _ => Ok(Self(address)),
        }
    }
}

impl FromStr for ListenAddress {
    type Err = ListenAddressError;

    fn from_str(text: &str) -> Result<Self, ListenAddressError> {
        let stated: SocketAddr = text.parse().map_err(|_| ListenAddressError::Malformed)?;
        Self::try_from(stated)
    }
}

/// The reason why no socket is to listen at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("found {}; allowed: {}", self.found(), self.allowed())]
#[non_exhaustive]
pub enum ListenAddressError {
    /// The text is not an IP address and a port.
    Malformed,
    /// The address is an IPv4 address in the notation of IPv6, which sockets that are for IPv6 only do not take.
    Mapped {
        /// Its IPv4 form.
        plain: SocketAddr,
    },
    /// The address is that of a group of hosts.
    Multicast,
    /// The address is that of all hosts of a network.
    Broadcast,
    /// The address is one of IPv6 that only an interface makes complete.
    LinkLocal,
    /// The address is not link-local and names an interface.
    Scoped,
}

impl ListenAddressError {
    /// Returns what the address is.
    const fn found(self) -> &'static str {
        match self {
            Self::Malformed => "no address and port",
            Self::Mapped { .. } => "an IPv4-mapped address",
            Self::Multicast => "a multicast address",
            Self::Broadcast => "the broadcast address",
            Self::LinkLocal => "a link-local address of IPv6",
            Self::Scoped => "an address with a scope",
        }
    }

    /// Returns what can be stated in its place.
    fn allowed(self) -> String {
        match self {
            Self::Mapped { plain } => format!("the IPv4 form, \"{plain}\""),
            _ => "an address of this host and a port, such as \"127.0.0.1:8080\" or \"[::]:8080\""
                .to_owned(),
        }
    }
}

/// The families of the clients that come to a socket at `[::]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Families {
    /// IPv6 and IPv4: a socket of the host, for a listener or the page.
    Both,
    /// IPv6: a socket of a tenant, which is `IPV6_V6ONLY` as `wasi:sockets` has it.
    Own,
}

/// The addresses that are taken.
#[derive(Debug, Clone, Default)]
pub struct Addresses(HashMap<u16, Vec<Socket>>);

type Socket = (IpAddr, Families);

impl Addresses {
    /// Returns whether a socket can listen at the address beside those that listen at the ones that are taken. O(n) in the
    /// addresses with the same port.
    pub fn is_free(&self, address: ListenAddress, families: Families) -> bool {
        let own = (address.get().ip(), families);
        let taken = self.0.get(&address.get().port());
        !taken.is_some_and(|taken| taken.iter().any(|taken| overlap(*taken, own)))
    }

    /// Takes an address, unless a socket that listens at one of those before would be in the way. Port 0 is a free one. O(n) in
    /// the addresses with the same port.
    pub fn take(&mut self, address: ListenAddress, families: Families) -> bool {
        let is_free = self.is_free(address, families);
        if let (true, 1..) = (is_free, address.get().port()) {
            let taken = self.0.entry(address.get().port()).or_default();
            taken.push((address.get().ip(), families));
        }
        is_free
    }
}

fn overlap(one: Socket, other: Socket) -> bool {
    one.0 == other.0 || is_for_all(one, other.0) || is_for_all(other, one.0)
}

/// Whether the socket is for all addresses of the family of `address`.
fn is_for_all((own, families): Socket, address: IpAddr) -> bool {
    let is_family = own.is_ipv4() == address.is_ipv4();
    own.is_unspecified() && (is_family || own.is_ipv6() && families == Families::Both)
}

#[cfg(test)]
mod tests {
    use super::Families::{self, Both, Own};
    use super::{Addresses, ListenAddress, ListenAddressError};
    use rustix::net::{self, AddressFamily, SocketType, sockopt};
    use std::io;
    use std::net::{SocketAddr, TcpListener};

    /// Whether the second address is free beside the first.
    fn are_beside(first: (&str, Families), second: (&str, Families)) -> bool {
        let mut addresses = Addresses::default();
        let address = |text: &str| text.parse::<ListenAddress>().expect(text);
        assert!(addresses.take(address(first.0), first.1));
        addresses.take(address(second.0), second.1)
    }

    #[test]
    fn one_of_two_addresses_that_a_socket_could_have_both_is_taken() {
        for (one, other, is_free) in [
            ("127.0.0.1:7", "127.0.0.1:7", false),
            ("127.0.0.1:7", "127.0.0.1:8", true),
            ("127.0.0.1:7", "127.0.0.2:7", true),
            ("127.0.0.1:7", "0.0.0.0:7", false),
            ("[::1]:7", "[::]:7", false),
            ("[::1]:7", "127.0.0.1:7", true),
            ("[::1]:7", "0.0.0.0:7", true),
            ("127.0.0.1:7", "[::]:7", false),
            ("0.0.0.0:7", "[::]:7", false),
            ("0.0.0.0:0", "0.0.0.0:0", true),
        ] {
            for [first, second] in [[one, other], [other, one]] {
                let found = are_beside((first, Both), (second, Both));
                assert_eq!(found, is_free, "{first} and {second}");
            }
        }
    }

    #[test]
    fn a_socket_for_ipv6_only_is_in_the_way_of_that_family() {
        for (of_tenant, of_other, is_free) in [
            ("[::]:7", "0.0.0.0:7", true),
            ("[::]:7", "127.0.0.1:7", true),
            ("[::]:7", "[::1]:7", false),
            ("[::]:7", "[::]:7", false),
            ("0.0.0.0:7", "127.0.0.1:7", false),
        ] {
            for families in [Both, Own] {
                let (own, other) = ((of_tenant, Own), (of_other, families));
                assert_eq!(are_beside(own, other), is_free, "{own:?} and {other:?}");
                assert_eq!(are_beside(other, own), is_free, "{other:?} and {own:?}");
            }
        }
        assert!(!are_beside(("0.0.0.0:7", Own), ("[::]:7", Both)));
    }

    /// Compares the rule with the system's, at sockets that are bound as those of listeners and of tenants are.
    #[test]
    fn two_addresses_are_free_beside_each_other_where_the_system_has_both() {
        let all = ["0.0.0.0", "127.0.0.1", "127.0.0.2", "[::]", "[::1]"];
        let sockets = || all.iter().flat_map(|ip| [(*ip, Both), (*ip, Own)]);
        // A host may have no IPv6, or may have it apart from IPv4.
        if listen("[::1]:0", Own).is_err() || !is_dual() {
            return;
        }
        for first in sockets() {
            for second in sockets() {
                let [one, other] = [first, second].map(|(ip, _)| format!("{ip}:7"));
                let is_free = are_beside((&one, first.1), (&other, second.1));
                // Another program may have one of the ports.
                let has_both = (0..8).any(|_| has_both(first, second));
                assert_eq!(is_free, has_both, "{first:?} and {second:?}");
            }
        }
    }

    fn is_dual() -> bool {
        let stated = std::fs::read_to_string("/proc/sys/net/ipv6/bindv6only");
        stated.is_ok_and(|stated| stated.trim() == "0")
    }

    fn has_both(first: (&str, Families), second: (&str, Families)) -> bool {
        let own = listen(&format!("{}:0", first.0), first.1).expect("a socket");
        let port = own.local_addr().expect("an address").port();
        listen(&format!("{}:{port}", second.0), second.1).is_ok()
    }

    fn listen(address: &str, families: Families) -> io::Result<TcpListener> {
        let address: SocketAddr = address.parse().expect(address);
        if address.is_ipv4() || families == Both {
            return TcpListener::bind(address);
        }
        let socket = net::socket(AddressFamily::INET6, SocketType::STREAM, None)?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        sockopt::set_ipv6_v6only(&socket, true)?;
        net::bind(&socket, &address)?;
        net::listen(&socket, 1)?;
        Ok(socket.into())
    }

    #[test]
    fn text_that_is_no_address_with_a_port_is_refused() {
        for text in ["", "localhost:7", "127.0.0.1", "::1:7", "127.0.0.1:65536"] {
            let refused = text.parse::<ListenAddress>();
            assert_eq!(refused, Err(ListenAddressError::Malformed), "{text:?}");
        }
    }
}
