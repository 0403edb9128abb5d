//! Addresses, as the interface and as the host write them.

use super::bindings::network::{
    IpAddress, IpAddressFamily, IpSocketAddress, Ipv4SocketAddress, Ipv6SocketAddress,
};
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

/// Whether a socket of a family can connect to an address: one of that family and of one host, with a port.
pub(super) fn is_remote(family: IpAddressFamily, to: SocketAddr) -> bool {
    let is_of_family = match (family, to.ip()) {
        (IpAddressFamily::Ipv4, IpAddr::V4(of)) => !of.is_broadcast(),
        (IpAddressFamily::Ipv6, IpAddr::V6(of)) => of.to_ipv4_mapped().is_none(),
        _ => false,
    };
    is_of_family && to.port() > 0 && !to.ip().is_unspecified() && !to.ip().is_multicast()
}

#[cfg(test)]
mod tests {
    use super::{is_remote, of_guest, of_socket};
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
        let is = |family, text: &str| is_remote(family, text.parse().expect(text));
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
    }
}
