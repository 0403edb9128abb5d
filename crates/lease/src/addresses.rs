//! Addresses of this host at which something listens: each belongs to one thing of a node.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

/// Addresses that are taken. One for all of a host's addresses is each of them, and that of IPv6 may be those of IPv4 as well.
#[derive(Debug, Clone, Default)]
pub struct Addresses(HashMap<u16, Vec<IpAddr>>);

impl Addresses {
    /// Takes an address, unless a socket that listens at one of those before would be in the way. Port 0 is a free one. O(n) in
    /// the addresses with the same port.
    pub fn take(&mut self, address: SocketAddr) -> bool {
        if address.port() == 0 {
            return true;
        }
        let taken = self.0.entry(address.port()).or_default();
        let is_free = !taken.iter().any(|taken| overlap(*taken, address.ip()));
        if is_free {
            taken.push(address.ip());
        }
        is_free
    }
}

fn overlap(one: IpAddr, other: IpAddr) -> bool {
    let is_for_both = |ip: IpAddr| ip.is_ipv6() && ip.is_unspecified();
    let is_of_one_family = one.is_ipv4() == other.is_ipv4();
    one == other
        || is_for_both(one)
        || is_for_both(other)
        || is_of_one_family && (one.is_unspecified() || other.is_unspecified())
}

#[cfg(test)]
mod tests {
    use super::Addresses;

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
            ("0.0.0.0:0", "0.0.0.0:0", true),
        ] {
            for [first, second] in [[one, other], [other, one]] {
                let mut addresses = Addresses::default();
                assert!(addresses.take(first.parse().expect(first)));
                let taken = addresses.take(second.parse().expect(second));
                assert_eq!(taken, is_free, "{first} and {second}");
            }
        }
    }
}
