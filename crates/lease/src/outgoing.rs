//! `[tenant.NAME.outgoing]`: which hosts a tenant may send HTTP requests and datagrams and connect to, at which addresses it may
//! listen, and within what limits.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use crate::addresses::{Addresses, Families, ListenAddress};
use crate::authority::{host_and_port, is_host};
use crate::byte_size::ByteSize;
use crate::decimal::decimal;
use crate::error::LeaseError;
use crate::http::{WINDOW, size};
use crate::listener::parse_timeout;
use crate::nanoseconds::Nanoseconds;
use crate::node::Node;

const KEYS: &str = "allow, allow_private, listen, concurrency, timeout, head, window, ca";
const ALLOW: &str = "1 to 64 destinations, such as [\"https://api.example\"], in `allow` and `allow_private`, or addresses in \
                     `listen`";
const LISTEN: &str = "an array of 1 to 16 addresses, such as [\"127.0.0.1:7000\"]";
const LISTENED: &str = "an address and a port, such as \"127.0.0.1:7000\" or \"[::]:7000\", which nothing else of the file has";
const DESTINATIONS: &str = "an array of destinations, such as [\"https://api.example\"]";
const DESTINATION: &str = "http://, https://, tcp:// or udp://, a host, an address or \"*.\" and a domain, and a port, \
                           which tcp:// and udp:// have to state: \"https://*.example\", \"tcp://db.example:5432\"";
const CONCURRENCY: &str = "a whole number from 1 to 64";
const HEAD: &str = "a size from 1KiB to 16KiB";
const CA: &str = "a path, not empty, without NUL";
const CA_UNUSED: &str = "nothing, unless a destination is https";

/// The requests and datagrams that a tenant may send, and the connections that it may make and accept: its `outgoing` table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    /// Where to; empty only if it listens.
    pub allow: Vec<Destination>,
    /// Addresses of this host at which it may listen, of TCP: at most 16, each a [`ListenAddress`], which nothing else of the
    /// file has.
    pub listen: Vec<SocketAddr>,
    /// How many requests, connections, sockets and look-ups it may have under way at a time.
    pub concurrency: u32,
    /// How long a request may take, from its start to the end of its response; a look-up; and a connection to be made.
    pub timeout: Nanoseconds,
    /// The most bytes of a head, in each direction.
    pub head: ByteSize,
    /// The most bytes of a body, of a connection or of datagrams that are on their way, in each direction; the largest datagram
    /// has half of it, less 32 bytes.
    pub window: ByteSize,
    /// A file of certificates that are trusted in place of the host's. A relative path in a lease
    /// file is relative to the directory of the file, and has been resolved against it here.
    pub ca: Option<PathBuf>,
}

/// How a destination is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// HTTP in plain text, which the host speaks for the guest.
    Http,
    /// HTTP over TLS, which the host speaks for the guest.
    Https,
    /// Whatever the guest speaks over a TCP connection.
    Tcp,
    /// Whatever the guest sends in datagrams of UDP, and gets in such.
    Udp,
}

impl Protocol {
    const ALL: [Self; 4] = [Self::Http, Self::Https, Self::Tcp, Self::Udp];

    /// HTTP, over TLS or in plain text.
    pub const fn http(is_https: bool) -> Self {
        match is_https {
            true => Self::Https,
            false => Self::Http,
        }
    }

    /// The port of a destination that states none, if it may.
    const fn port(self) -> Option<u16> {
        match self {
            Self::Http => Some(Destination::port_of(false)),
            Self::Https => Some(Destination::port_of(true)),
            Self::Tcp | Self::Udp => None,
        }
    }

    const fn scheme(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// A destination that a tenant may send requests or datagrams to, or connect to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Destination {
    /// How it is spoken to.
    pub protocol: Protocol,
    /// The host.
    pub host: DestinationHost,
    /// The port.
    pub port: u16,
    /// Whether a name may stand for an address of this machine or of a private network.
    pub is_private: bool,
}

/// The host of a destination.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum DestinationHost {
    /// A name, in lower case.
    Name(String),
    /// All names below a domain, which is in lower case.
    Below(String),
    /// An address.
    Address(IpAddr),
}

impl DestinationHost {
    /// Reads a host as requests name it; an IPv6 address is in brackets.
    fn named(text: &str) -> Option<Self> {
        if let Some(address) = address(text) {
            return Some(Self::Address(address));
        }
        let is_name =
            |text: &str| is_host(text) && !text.starts_with('[') && !text.starts_with('.');
        if let Some(domain) = text.strip_prefix("*.") {
            return is_name(domain).then(|| Self::Below(domain.to_ascii_lowercase()));
        }
        is_name(text).then(|| Self::Name(text.to_ascii_lowercase()))
    }

    /// Whether it is the host that a request or a look-up names, which is in lower case and has brackets around an address
    /// of IPv6.
    pub fn is(&self, host: &str) -> bool {
        match self {
            Self::Name(name) => name == host,
            Self::Below(domain) => {
                let above = host.strip_suffix(domain.as_str());
                let below = above.and_then(|above| above.strip_suffix('.'));
                below.is_some_and(|below| !below.is_empty()) && address(host).is_none()
            }
            Self::Address(own) => address(host) == Some(*own),
        }
    }
}

/// The address that a host is, with brackets around one of IPv6.
fn address(host: &str) -> Option<IpAddr> {
    let bare = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    match bare {
        Some(bare) => bare.parse().ok().map(IpAddr::V6),
        None => host.parse().ok().map(IpAddr::V4),
    }
}

impl Destination {
    /// The port of HTTP, over TLS or in plain text.
    pub const fn port_of(is_https: bool) -> u16 {
        match is_https {
            true => 443,
            false => 80,
        }
    }

    fn named(text: &str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        let mut protocols = Protocol::ALL.into_iter();
        let protocol = protocols.find(|protocol| protocol.scheme() == scheme)?;
        let (host, port) = host_and_port(rest);
        let port = match port {
            None => protocol.port()?,
            Some(text) => decimal(text)?,
        };
        let host = DestinationHost::named(host)?;
        (port > 0).then_some(Self {
            protocol,
            host,
            port,
            is_private: false,
        })
    }

    /// Whether any address may be connected to, whatever the host's name stands for.
    pub fn takes_any_address(&self) -> bool {
        self.is_private || matches!(self.host, DestinationHost::Address(_))
    }
}

/// The destination as a lease file states it.
impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.protocol.scheme())?;
        match &self.host {
            DestinationHost::Name(name) => f.write_str(name)?,
            DestinationHost::Below(domain) => write!(f, "*.{domain}")?,
            DestinationHost::Address(IpAddr::V4(address)) => write!(f, "{address}")?,
            DestinationHost::Address(IpAddr::V6(address)) => write!(f, "[{address}]")?,
        }
        match self.protocol.port() == Some(self.port) {
            true => Ok(()),
            false => write!(f, ":{}", self.port),
        }
    }
}

impl Outgoing {
    const DESTINATIONS: RangeInclusive<usize> = 1..=64;
    const ADDRESSES: RangeInclusive<usize> = 1..=16;
    const CONCURRENCY: u32 = 8;
    const TIMEOUT: Nanoseconds = Nanoseconds::new(30_000_000_000).expect("in range");
    const HEAD: ByteSize = ByteSize::new(16 << 10).expect("in range");
    const WINDOW: ByteSize = ByteSize::new(64 << 10).expect("in range");

    /// `taken` has the addresses that the tables before have.
    pub(crate) fn parse(
        node: &Node<'_>,
        base: &Path,
        taken: &mut Addresses,
    ) -> Result<Self, LeaseError> {
        let mut outgoing = Self {
            allow: Vec::new(),
            listen: Vec::new(),
            concurrency: Self::CONCURRENCY,
            timeout: Self::TIMEOUT,
            head: Self::HEAD,
            window: Self::WINDOW,
            ca: None,
        };
        let mut ca = None;
        for entry in node.entries()? {
            match entry.name() {
                "allow" => parse_destinations(&entry, false, &mut outgoing.allow)?,
                "allow_private" => parse_destinations(&entry, true, &mut outgoing.allow)?,
                "listen" => outgoing.listen = parse_addresses(&entry, taken)?,
                // The range is of 32 bits.
                "concurrency" => outgoing.concurrency = entry.integer(1..=64, CONCURRENCY)? as u32,
                "timeout" => outgoing.timeout = parse_timeout(&entry)?,
                "head" => outgoing.head = size(&entry, 1 << 10..=16 << 10, HEAD)?,
                "window" => outgoing.window = size(&entry, 4 << 10..=16 << 20, WINDOW)?,
                "ca" => {
                    let is_path = |text: &str| !text.is_empty() && !text.contains('\0');
                    outgoing.ca = Some(base.join(entry.string(CA, is_path)?));
                    ca = Some(entry);
                }
                _ => return Err(entry.unknown(KEYS)),
            }
        }
        if let (Some(ca), false) = (&ca, outgoing.is_https()) {
            return Err(ca.refused(CA_UNUSED));
        }
        if outgoing.allow.is_empty() {
            return match outgoing.listen.is_empty() {
                true => Err(node.missing("allow", ALLOW)),
                false => Ok(outgoing),
            };
        }
        if !Self::DESTINATIONS.contains(&outgoing.allow.len()) {
            let found = format!("{} destinations", outgoing.allow.len());
            return Err(node.refused_as(found, ALLOW));
        }
        Ok(outgoing)
    }

    /// The destination of a request to this host, which is in lower case and has brackets around an
    /// address of IPv6; `None` if the tenant may not send it. One that takes any address is preferred.
    pub fn destination(&self, protocol: Protocol, host: &str, port: u16) -> Option<&Destination> {
        let own = self.allow.iter().filter(|destination| {
            (destination.protocol, destination.port) == (protocol, port)
                && destination.host.is(host)
        });
        own.max_by_key(|destination| destination.takes_any_address())
    }

    /// The destinations of the tenant's sockets: those to which it speaks something of its own.
    pub fn sockets(&self) -> impl Iterator<Item = &Destination> {
        let own = self.allow.iter();
        own.filter(|destination| matches!(destination.protocol, Protocol::Tcp | Protocol::Udp))
    }

    /// Whether a destination is reached over TLS.
    pub fn is_https(&self) -> bool {
        let mut own = self.allow.iter();
        own.any(|destination| destination.protocol == Protocol::Https)
    }

    /// The ports that are connected to, and that of look-ups if it has names.
    pub fn ports(&self) -> impl Iterator<Item = u16> {
        let looks_up = self
            .allow
            .iter()
            .any(|destination| !matches!(destination.host, DestinationHost::Address(_)));
        let own = self.allow.iter().map(|destination| destination.port);
        own.chain(looks_up.then_some(53))
    }
}

fn parse_destinations(
    node: &Node<'_>,
    is_private: bool,
    into: &mut Vec<Destination>,
) -> Result<(), LeaseError> {
    for element in node.elements(DESTINATIONS)? {
        let mut destination = element.keyword(DESTINATION, Destination::named)?;
        destination.is_private = is_private;
        into.push(destination);
    }
    Ok(())
}

fn parse_addresses(node: &Node<'_>, taken: &mut Addresses) -> Result<Vec<SocketAddr>, LeaseError> {
    let mut addresses = Vec::new();
    for element in node.elements(LISTEN)? {
        let address = ListenAddress::parse(&element, LISTENED)?;
        if address.get().port() == 0 || !taken.take(address, Families::Own) {
            return Err(element.refused(LISTENED));
        }
        addresses.push(address.get());
    }
    match Outgoing::ADDRESSES.contains(&addresses.len()) {
        true => Ok(addresses),
        false => Err(node.refused_as(format!("{} addresses", addresses.len()), LISTEN)),
    }
}

#[cfg(test)]
mod tests {
    use super::Protocol::{self, Http, Https, Tcp, Udp};
    use super::{Destination, Outgoing};

    fn outgoing(allow: &[&str]) -> Outgoing {
        Outgoing {
            allow: allow
                .iter()
                .map(|text| Destination::named(text).expect(text))
                .collect(),
            listen: Vec::new(),
            concurrency: 1,
            timeout: Outgoing::TIMEOUT,
            head: Outgoing::HEAD,
            window: Outgoing::WINDOW,
            ca: None,
        }
    }

    #[test]
    fn a_destination_is_displayed_as_it_was_stated() {
        for text in [
            "http://a.example",
            "https://*.example:8443",
            "http://127.0.0.1:80",
            "https://[::1]:9",
            "http://[fe80::1]",
            "tcp://*.db.example:80",
            "udp://[::1]:53",
        ] {
            let shown = Destination::named(text).expect(text).to_string();
            let stated = match text.strip_prefix("http:") {
                Some(_) => text.trim_end_matches(":80"),
                None => text,
            };
            assert_eq!(shown, stated);
        }
        for text in [
            "",
            "a.example",
            "ftp://a",
            "tcp://a",
            "udp://a",
            "tcp://a:",
            "tcp://*:1",
            "http://",
            "http://*",
            "http://*.",
            "http://a/",
            "http://a:0",
            "http://a:70000",
            "http://a:",
            "http://a:+80",
            "http://u@a",
            "http://a.*",
            "http://[::1",
            "http://::1",
            "http://ü",
            "http://.a",
        ] {
            assert_eq!(Destination::named(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_request_goes_to_no_host_scheme_or_port_that_is_not_stated() {
        let own = outgoing(&[
            "https://api.example",
            "http://*.b.example:81",
            "http://10.0.0.1",
            "http://[::1]",
            "tcp://db.example:5432",
        ]);
        let is_allowed = |protocol: Protocol, host, port| {
            let destination = own.destination(protocol, host, port);
            destination.is_some()
        };
        assert!(is_allowed(Https, "api.example", 443) && is_allowed(Http, "x.y.b.example", 81));
        assert!(is_allowed(Http, "10.0.0.1", 80) && is_allowed(Http, "[0:0::1]", 80));
        assert!(is_allowed(Tcp, "db.example", 5432));
        for (protocol, host, port) in [
            (Http, "api.example", 443),
            (Https, "api.example", 444),
            (Https, "api.example.", 443),
            (Https, "x.api.example", 443),
            (Tcp, "api.example", 443),
            (Http, "db.example", 5432),
            (Udp, "db.example", 5432),
            (Https, "db.example", 5432),
            (Http, "b.example", 81),
            (Http, ".b.example", 81),
            (Http, "xb.example", 81),
            (Http, "10.0.0.01", 80),
            (Http, "::1", 80),
        ] {
            assert!(!is_allowed(protocol, host, port), "{host}:{port}");
        }
    }
}
