//! Addresses, as the interface and as the host write them.

use super::bindings::network::{
    IpAddress, IpAddressFamily, IpSocketAddress, Ipv4SocketAddress, Ipv6SocketAddress,
};
use leasehold_exchange::{ADDRESS, Fields, PEER};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// The host's notation of a socket's address.
pub(super) fn of_guest(address: IpSocketAddress) -> SocketAddr {
    match address {
        IpSocketAddress::Ipv4(of) => {
            let (a, b, c, d) = of.address;
            SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), of.port).into()
        }
        IpSocketAddress::Ipv6(of) => {
            let (a, b, c, d, e, f, g, h) = of.address;
            let address = Ipv6Addr::new(a, b, c, d, e, f, g, h);
            SocketAddrV6::new(address, of.port, of.flow_info, of.scope_id).into()
        }
    }
}

/// The guest's notation of a socket's address.
pub(super) fn of_socket(address: SocketAddr) -> IpSocketAddress {
    match address {
        SocketAddr::V4(of) => IpSocketAddress::Ipv4(Ipv4SocketAddress {
            port: of.port(),
            address: of.ip().octets().into(),
        }),
        SocketAddr::V6(of) => IpSocketAddress::Ipv6(Ipv6SocketAddress {
            port: of.port(),
            flow_info: of.flowinfo(),
            address: of.ip().segments().into(),
            scope_id: of.scope_id(),
        }),
    }
}

/// The guest's notation of an address.
pub(super) fn of_host(address: IpAddr) -> IpAddress {
    match address {
        IpAddr::V4(of) => IpAddress::Ipv4(of.octets().into()),
        IpAddr::V6(of) => IpAddress::Ipv6(of.segments().into()),
    }
}

/// This side's address, as the head of a call says it.
pub(super) fn local_address(fields: &Fields) -> Option<SocketAddr> {
    address_of(ADDRESS, fields)
}

/// The other side's.
pub(super) fn peer_address(fields: &Fields) -> Option<SocketAddr> {
    address_of(PEER, fields)
}

fn address_of(field: &str, fields: &Fields) -> Option<SocketAddr> {
    let (_, address) = fields.iter().find(|(name, _)| *name == field)?;
    std::str::from_utf8(address).ok()?.parse().ok()
}

/// Whether a socket of a family can have an address.
pub(super) fn is_of_family(family: IpAddressFamily, address: SocketAddr) -> bool {
    match (family, address.ip()) {
        (IpAddressFamily::Ipv4, IpAddr::V4(_)) => true,
        (IpAddressFamily::Ipv6, IpAddr::V6(of)) => of.to_ipv4_mapped().is_none(),
        _ => false,
    }
}

/// Whether datagrams can go to an address: one of the socket's family, with a port.
pub(super) fn is_remote(family: IpAddressFamily, to: SocketAddr) -> bool {
    is_of_family(family, to) && to.port() > 0 && !to.ip().is_unspecified()
}

/// Whether a socket of a family can connect to an address: a remote one of one host.
pub(super) fn is_of_one_host(family: IpAddressFamily, to: SocketAddr) -> bool {
    let is_broadcast = matches!(to.ip(), IpAddr::V4(of) if of.is_broadcast());
    is_remote(family, to) && !is_broadcast && !to.ip().is_multicast()
}

#[cfg(test)]
mod tests {
    use super::{is_of_one_host, is_remote, of_guest, of_socket};
    use crate::wasi::sockets::bindings::network::IpAddressFamily::{Ipv4, Ipv6};

    #[test]
    fn an_address_is_the_same_in_both_notations() {
        for text in ["1.2.3.4:5", "[1:2:3:4:5:6:7:8]:9", "[fe80::1%3]:9"] {
            let address = text.parse().expect(text);
            assert_eq!(of_guest(of_socket(address)), address);
        }
    }

    #[test]
    fn a_socket_connects_to_one_host_of_its_own_family() {
        let is = |family, text: &str| is_of_one_host(family, text.parse().expect(text));
        assert!(is(Ipv4, "127.0.0.1:1") && is(Ipv6, "[::1]:1"));
        for (family, text) in [
            (Ipv6, "127.0.0.1:1"),
            (Ipv4, "[::1]:1"),
            (Ipv4, "127.0.0.1:0"),
            (Ipv4, "0.0.0.0:1"),
            (Ipv4, "224.0.0.1:1"),
            (Ipv4, "255.255.255.255:1"),
            (Ipv6, "[::]:1"),
            (Ipv6, "[ff02::1]:1"),
            (Ipv6, "[::ffff:1.2.3.4]:1"),
        ] {
            assert!(!is(family, text), "{text}");
        }
        let many = "224.0.0.1:1".parse().expect("an address");
        assert!(is_remote(Ipv4, many) && !is_remote(Ipv6, many));
    }
}
