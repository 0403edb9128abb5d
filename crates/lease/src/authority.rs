//! The authority of a URI without a user: a host, and perhaps a port.
//!
//! What a client sends and what a lease states are read by the same functions, so that a request cannot name a
//! host or a port in a notation that a lease does not have.

use crate::decimal::decimal;
use std::fmt;
use std::net::Ipv6Addr;

/// The host of an authority, in the one notation in which hosts are compared: in lower case, without the dot of the
/// root at the end of a name; an address of IPv6 is in brackets and in its shortest form.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Host(String);

impl Host {
    /// Parses a host without a port. The characters `!$&'()*+,;=`, `~` and `%` are refused in names, although RFC 3986 has them:
    /// no host is called so, and a comma is how intermediaries join two fields. A name has no empty label but the
    /// root's.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(address) = ipv6(text) {
            return Some(Self(format!("[{address}]")));
        }
        let name = text.strip_suffix('.').unwrap_or(text);
        let has_labels = name.split('.').all(|label| !label.is_empty());
        (is_name(name) && has_labels).then(|| Self(name.to_ascii_lowercase()))
    }

    /// The host as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A host, and perhaps a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authority {
    /// The host.
    pub host: Host,
    /// The port; none is also what nothing after the colon says (RFC 3986 §3.2.3).
    pub port: Option<u16>,
}

/// What is wrong with an authority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthorityFault {
    /// Its host: it is empty, has a user, is too long, or has characters or labels that no name of a host has.
    Host,
    /// Its port, which is more than digits or more than 65535.
    Port,
}

impl Authority {
    /// Parses an authority.
    ///
    /// # Errors
    /// The first part that is none.
    pub fn parse(text: &str) -> Result<Self, AuthorityFault> {
        let (host, port) = host_and_port(text);
        let host = Host::parse(host).ok_or(AuthorityFault::Host)?;
        let port = match port.filter(|port| !port.is_empty()) {
            Some(port) => Some(decimal(port).ok_or(AuthorityFault::Port)?),
            None => None,
        };
        Ok(Self { host, port })
    }

    /// The port that it stands for where none is stated.
    pub fn port_or(&self, default: u16) -> u16 {
        self.port.unwrap_or(default)
    }
}

/// Splits an authority where its port begins.
pub(crate) fn host_and_port(text: &str) -> (&str, Option<&str>) {
    let end_of_address = match text.starts_with('[') {
        true => text.find(']').map_or(0, |at| at + 1),
        false => 0,
    };
    match text[end_of_address..].find(':') {
        Some(at) => {
            let (host, port) = text.split_at(end_of_address + at);
            (host, port.get(1..))
        }
        None => (text, None),
    }
}

/// The address of IPv6 that is in brackets.
fn ipv6(text: &str) -> Option<Ipv6Addr> {
    let bare = text.strip_prefix('[')?.strip_suffix(']')?;
    bare.parse().ok()
}

/// Whether `text` has only characters of the name of a host, or is an address without a port.
pub(crate) fn is_host(text: &str) -> bool {
    ipv6(text).is_some() || is_name(text)
}

fn is_name(text: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    (1..=253).contains(&text.len()) && text.bytes().all(legal)
}

#[cfg(test)]
mod tests {
    use super::{Authority, AuthorityFault, Host};

    #[test]
    fn notations_of_one_host_are_equal() {
        for [one, other] in [
            ["a.example", "A.Example."],
            ["A_b-1", "a_B-1"],
            ["[::1]", "[0:0:0::0001]"],
            ["[fe80::A]", "[FE80::a]"],
        ] {
            let host = Host::parse(one).expect(one);
            assert_eq!(Some(&host), Host::parse(other).as_ref(), "{other}");
            assert_eq!(Host::parse(host.as_str()), Some(host), "{one}");
        }
    }

    #[test]
    fn an_authority_is_a_host_and_perhaps_a_port_of_digits() {
        for (text, host, port) in [
            ("a.example", "a.example", None),
            ("A_b-1.example.", "a_b-1.example", None),
            ("a:", "a", None),
            ("a:0", "a", Some(0)),
            ("a:080", "a", Some(80)),
            ("a:65535", "a", Some(65535)),
            ("127.0.0.1:80", "127.0.0.1", Some(80)),
            ("[::1]", "[::1]", None),
            ("[::1]:80", "[::1]", Some(80)),
        ] {
            let found = Authority::parse(text).expect(text);
            assert_eq!((found.host.as_str(), found.port), (host, port), "{text}");
        }
    }

    #[test]
    fn no_other_notation_names_a_host_or_a_port() {
        let long = "a".repeat(254);
        for host in [
            "",
            ".",
            ":80",
            "a,b",
            "[a]",
            "[a.example]:80",
            "[::1",
            "::1",
            "[::1]a",
            "[::1]]",
            "[::1].",
            "[v1.a]",
            "u@a",
            "a b",
            "%61",
            "a%2e",
            "a/b",
            "ü",
            "a\0",
            "a~",
            "a..",
            ".a",
            "a..b",
            "[fe80::1%25eth0]",
            &long,
        ] {
            assert_eq!(Authority::parse(host), Err(AuthorityFault::Host), "{host}");
        }
        for port in [
            "a:+80",
            "a:-1",
            "a: 80",
            "a:80:80",
            "a::80",
            "a:0x50",
            "a:8_0",
            "a:65536",
            "a:٣",
            "[::1]:+80",
        ] {
            assert_eq!(Authority::parse(port), Err(AuthorityFault::Port), "{port}");
        }
    }
}
