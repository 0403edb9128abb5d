//! Whether an address is this machine's own, as the kernel's routes have it.
//!
//! A datagram socket that is connected to the address shows it; no packet is sent. It has a descriptor and a local port for as
//! long as that takes.

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrAny, SocketFlags, SocketType, bind, connect, getsockname, socket_with,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

/// The port of the discard protocol: which one is asked for makes no difference.
const PORT: u16 = 9;

/// Whether what is sent to an address comes to this machine.
///
/// # Errors
/// The system's, if that is not known.
pub(super) fn is_own(address: IpAddr) -> Result<bool, Errno> {
    match address {
        IpAddr::V4(address) => is_own_v4(address),
        IpAddr::V6(address) => is_own_v6(address),
    }
}

/// Asks for a route from 127.0.0.1, which leads to this machine alone. The source that the kernel chooses would not show it:
/// that of a second address of a network is the first one.
fn is_own_v4(address: Ipv4Addr) -> Result<bool, Errno> {
    let socket = socket(AddressFamily::INET)?;
    bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    let routed = connect(&socket, &SocketAddr::from((address, PORT)));
    drop(socket);
    match routed {
        Ok(()) => can_be_bound(address),
        Err(error) if is_elsewhere(error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether a socket can have an address of IPv4 as its own. The route alone is no answer where `route_localnet` is set, nor is
/// this one where `ip_nonlocal_bind` is; where both are, each address counts as this machine's.
fn can_be_bound(address: Ipv4Addr) -> Result<bool, Errno> {
    let socket = socket(AddressFamily::INET)?;
    match bind(&socket, &SocketAddr::from((address, 0))) {
        Ok(()) => Ok(true),
        Err(Errno::ADDRNOTAVAIL) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Asks which source the kernel chooses: an address of IPv6 itself exactly if an interface has it (RFC 6724 §5, rule 1).
fn is_own_v6(address: Ipv6Addr) -> Result<bool, Errno> {
    let asked = socket(AddressFamily::INET6).and_then(|socket| {
        connect(&socket, &SocketAddr::from((address, PORT)))?;
        getsockname(&socket)
    });
    match asked {
        Ok(source) => is_of(source, address),
        Err(error) if is_elsewhere(error) => Ok(false),
        Err(error) => Err(error),
    }
}

fn is_of(source: SocketAddrAny, address: Ipv6Addr) -> Result<bool, Errno> {
    Ok(SocketAddr::try_from(source)?.ip() == address)
}

fn socket(family: AddressFamily) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(family, SocketType::DGRAM, flags, None)
}

/// Whether there is no route, not even to this machine.
const fn is_elsewhere(error: Errno) -> bool {
    matches!(
        error,
        // The route from 127.0.0.1 leaves this machine, or what goes there is dropped.
        Errno::INVAL
            | Errno::NETUNREACH
            | Errno::HOSTUNREACH
            // This machine has no address of IPv6, or not even the protocol.
            | Errno::ADDRNOTAVAIL
            | Errno::AFNOSUPPORT
    )
}

#[cfg(test)]
mod tests {
    use super::is_own;

    #[test]
    fn the_addresses_of_this_machine_are_those_that_the_kernel_has_routes_to_itself_for() {
        let is_own = |text: &str| is_own(text.parse().expect(text));
        for own in ["127.0.0.1", "127.0.0.2", "::1"] {
            // A host without IPv6 has no such address.
            let known = is_own(own);
            assert!(
                known == Ok(true) || own == "::1" && known == Ok(false),
                "{own}: {known:?}"
            );
        }
        for other in [
            "203.0.113.77",
            "8.8.8.8",
            "2001:db8:7::7",
            "2606:4700::1111",
        ] {
            assert_eq!(is_own(other), Ok(false), "{other}");
        }
    }
}
