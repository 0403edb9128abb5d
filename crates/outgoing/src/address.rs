//! Which addresses a name may stand for.

mod own;

use leasehold_lease::Destination;
pub(crate) use own::Routes;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Where an address leads. Only [`Scope::of`] says it: the ranges and the addresses of this machine are asked together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// One host of the public internet, which is not this machine.
    Public,
    /// This machine, a private or local network, many hosts, or what is set aside.
    Within,
}

impl Scope {
    /// Returns where an address leads. Asks the kernel's routes about one of a public range; where the kernel does not say, the
    /// address is taken for one that leads within.
    pub(crate) fn of(address: IpAddr, routes: &Routes) -> Self {
        let is_own = |address| routes.is_own(address).unwrap_or(true);
        match is_public(address) && !routed(address).any(is_own) {
            true => Self::Public,
            false => Self::Within,
        }
    }
}

/// Whether the name of a destination may stand for an address.
pub(crate) fn may_stand_for(destination: &Destination, address: IpAddr, routes: &Routes) -> bool {
    destination.takes_any_address() || Scope::of(address, routes) == Scope::Public
}

/// The addresses that packets to this one may have: its own, and that of IPv4 that it has in itself.
fn routed(address: IpAddr) -> impl Iterator<Item = IpAddr> {
    let (itself, embedded) = match address {
        IpAddr::V4(_) => (Some(address), None),
        // The kernel makes it one of IPv4.
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => (None, embedded(v6)),
        IpAddr::V6(v6) => (Some(address), embedded(v6)),
    };
    itself.into_iter().chain(embedded.map(IpAddr::V4))
}

/// The address of IPv4 that one of IPv6 has in itself: mapped, translated (RFC 6052), or 6to4.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let (high, low) = match address.segments() {
        [0, 0, 0, 0, 0, 0xffff, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x2002, high, low, ..] => (high, low),
        _ => return None,
    };
    Some(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)))
}

/// Whether an address is of the ranges of single hosts of the public internet: not of this machine, of a private or
/// local network, of many hosts, or set aside.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let special = address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_documentation()
        // This network, and networks of carriers.
        || a == 0
        || (a == 100 && (64..128).contains(&b))
        // Of protocols, relays, and benchmarks.
        || (a, b, c) == (192, 0, 0)
        || (a, b, c) == (192, 88, 99)
        || (a == 198 && (18..20).contains(&b))
        // Multicast, reserved, broadcast.
        || a >= 224;
    !special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    // The address of IPv4 is what counts.
    if let Some(embedded) = embedded(address) {
        return is_public_v4(embedded);
    }
    match address.segments() {
        // Teredo, benchmarks, documentation.
        [0x2001, 0 | 2 | 0xdb8, ..] => false,
        [0x3fff, second, ..] if second < 0x1000 => false,
        // All that is public is in 2000::/3; the rest is local, multicast, or set aside.
        [first, ..] => (0x2000..0x4000).contains(&first),
    }
}

#[cfg(test)]
mod tests {
    use super::{Routes, Scope, is_public, routed};
    use std::net::IpAddr;

    #[test]
    fn an_address_that_has_one_of_ipv4_in_itself_leads_where_that_one_leads() {
        let routed = |text: &str| -> Vec<String> {
            let address: IpAddr = text.parse().expect(text);
            routed(address).map(|address| address.to_string()).collect()
        };
        assert_eq!(routed("8.8.8.8"), ["8.8.8.8"]);
        assert_eq!(routed("2606:4700::1111"), ["2606:4700::1111"]);
        assert_eq!(routed("::ffff:8.8.8.8"), ["8.8.8.8"]);
        assert_eq!(routed("64:ff9b::808:808"), ["64:ff9b::808:808", "8.8.8.8"]);
        assert_eq!(routed("2002:808:808::1"), ["2002:808:808::1", "8.8.8.8"]);
    }

    #[test]
    fn a_public_address_is_in_a_public_range_and_not_of_this_machine() {
        let routes = Routes::open().expect("a socket");
        let scope = |text: &str| Scope::of(text.parse().expect(text), &routes);
        assert_eq!(scope("8.8.8.8"), Scope::Public);
        for text in ["127.0.0.1", "10.0.0.1", "::1", "::ffff:127.0.0.1"] {
            assert_eq!(scope(text), Scope::Within, "{text}");
        }
    }

    #[test]
    fn addresses_of_this_machine_of_private_networks_and_of_many_hosts_are_not_public() {
        for text in [
            "0.0.0.0",
            "0.1.2.3",
            "10.1.2.3",
            "100.64.0.1",
            "127.0.0.1",
            "127.8.9.1",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.2.1",
            "192.168.0.1",
            "198.18.0.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "fc00::1",
            "fd12::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!is_public(text.parse().expect(text)), "{text}");
        }
        for text in [
            "1.1.1.1",
            "9.255.255.255",
            "100.63.0.1",
            "172.32.0.1",
            "193.0.0.1",
            "223.255.255.255",
            "2606:4700::1111",
            "2a00::1",
            "::ffff:1.1.1.1",
            "64:ff9b::101:101",
            "2002:101:101::",
        ] {
            assert!(is_public(text.parse().expect(text)), "{text}");
        }
    }
}
