//! The authority of a URI without a user: a host, and perhaps a port.
//!
//! What a client sends and what a lease states are read by the same functions, so that a request cannot name a
//! host or a port in a notation that a lease does not have.

use crate::decimal::decimal;

/// A host, and perhaps a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Authority<'a> {
    /// A name that a lease could state, perhaps with the dot of the root at its end, or an address; one of IPv6
    /// is in brackets.
    pub host: &'a str,
    /// The port; none is also what nothing after the colon says (RFC 3986 §3.2.3).
    pub port: Option<u16>,
}

/// What is wrong with an authority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthorityFault {
    /// Its host: it is empty, has a user, is too long, or has characters that no name of a host has.
    Host,
    /// Its port, which is more than digits or more than 65535.
    Port,
}

impl<'a> Authority<'a> {
    /// Parses an authority. The characters `!$&'()*+,;=`, `~` and `%` are refused in names, although RFC 3986
    /// has them: no host is called so, and a comma is how intermediaries join two fields.
    ///
    /// # Errors
    /// The first part that is none.
    pub fn parse(text: &'a str) -> Result<Self, AuthorityFault> {
        let (host, port) = host_and_port(text);
        let name = host.strip_suffix('.').filter(|name| !name.ends_with(']'));
        if !is_host(name.unwrap_or(host)) {
            return Err(AuthorityFault::Host);
        }
        let port = match port.filter(|port| !port.is_empty()) {
            Some(port) => Some(decimal(port).ok_or(AuthorityFault::Port)?),
            None => None,
        };
        Ok(Self { host, port })
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

/// Whether `text` can be the name of a host, or an address without a port.
pub(crate) fn is_host(text: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let bracketed = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'));
    let address = bracketed.is_some_and(|text| text.parse::<std::net::Ipv6Addr>().is_ok());
    address || (1..=253).contains(&text.len()) && text.bytes().all(legal)
}

#[cfg(test)]
mod tests {
    use super::{Authority, AuthorityFault};

    #[test]
    fn an_authority_is_a_host_and_perhaps_a_port_of_digits() {
        for (text, host, port) in [
            ("a.example", "a.example", None),
            ("A_b-1.example.", "A_b-1.example.", None),
            ("a:", "a", None),
            ("a:0", "a", Some(0)),
            ("a:080", "a", Some(80)),
            ("a:65535", "a", Some(65535)),
            ("127.0.0.1:80", "127.0.0.1", Some(80)),
            ("[::1]", "[::1]", None),
            ("[::1]:80", "[::1]", Some(80)),
        ] {
            assert_eq!(
                Authority::parse(text),
                Ok(Authority { host, port }),
                "{text}"
            );
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
