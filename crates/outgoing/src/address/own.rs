//! Whether packets to an address stay on this machine: the kernel's own answer for exactly that address.
//!
//! The kernel looks the route up as it does for a packet (rtnetlink(7), `RTM_GETROUTE`): by the rules, in all of their tables. The
//! answer has the route's type. One of a single other host is unicast, and its device is not the loopback. All other types are
//! this machine's or of many hosts: local, anycast as the routers' address of a subnet (RFC 4291 §2.6.1), broadcast, multicast.
//!
//! Both families answer without the lock of the kernel's network configuration (`RTNL_FLAG_DOIT_UNLOCKED`), so no change of that
//! delays the thread.

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

/// Of `linux/netlink.h` and `linux/rtnetlink.h`.
const NLM_F_REQUEST: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
const RTN_UNICAST: u8 = 1;
const RTA_DST: u16 = 1;
const RTA_SRC: u16 = 2;
const RTA_OIF: u16 = 4;
const RTA_PREFSRC: u16 = 7;

/// The loopback's index in each network namespace (`LOOPBACK_IFINDEX`).
const LOOPBACK: u32 = 1;

/// Bytes of a message's header, and of the header of a route behind it.
const HEADER: usize = 16;
const ROUTE: usize = 12;
/// Where a message has its number.
const SEQUENCE: usize = 8;
/// Bytes of an attribute's length and type.
const ATTRIBUTE: usize = 4;

/// The most bytes of an answer: one route with its metrics has some 200.
const ANSWER: usize = 4096;

/// The kernel's routes, asked for by one caller at a time.
#[derive(Debug)]
pub(crate) struct Routes(Mutex<Socket>);

/// A socket that is made before the process is confined.
#[derive(Debug)]
struct Socket {
    descriptor: OwnedFd,
    /// The number of the last request, which its answer has as well.
    sequence: u32,
}

impl Routes {
    /// Opens a socket by which the kernel answers.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn open() -> Result<Self, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // The protocol of routes is 0.
        let descriptor = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        Ok(Self(Mutex::new(Socket {
            descriptor,
            sequence: 0,
        })))
    }

    /// Whether what is sent to an address comes to this machine, or to many hosts.
    ///
    /// # Errors
    /// The system's, if that is not known.
    pub(super) fn is_own(&self, address: IpAddr) -> Result<bool, Errno> {
        match self.is_kept(address) {
            // No packet leaves for it, and none comes to this machine.
            Err(
                Errno::NETUNREACH
                | Errno::HOSTUNREACH
                | Errno::ACCESS
                // This machine has no IPv6.
                | Errno::AFNOSUPPORT
                | Errno::OPNOTSUPP,
            ) => Ok(false),
            known => known,
        }
    }

    /// Asks twice, as a connection does: rules may depend on the source, which is that of the first answer.
    fn is_kept(&self, address: IpAddr) -> Result<bool, Errno> {
        let route = self.route(address, None)?;
        match route.source {
            Some(source) if !route.is_kept => Ok(self.route(address, Some(source))?.is_kept),
            _ => Ok(route.is_kept),
        }
    }

    fn route(&self, to: IpAddr, from: Option<IpAddr>) -> Result<Route, Errno> {
        let mut socket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        socket.ask(&mut request(to, from))
    }
}

impl Socket {
    /// Sends a request, and reads its answer: the kernel has it before the request returns.
    fn ask(&mut self, request: &mut [u8]) -> Result<Route, Errno> {
        self.sequence = self.sequence.wrapping_add(1);
        let sequence = self.sequence.to_ne_bytes();
        request[SEQUENCE..][..sequence.len()].copy_from_slice(&sequence);
        send(&self.descriptor, request, SendFlags::empty())?;
        loop {
            let mut answer = [0; ANSWER];
            let (_, length) = recv(&self.descriptor, &mut answer, RecvFlags::TRUNC)?;
            let answer = answer.get(..length).ok_or(Errno::MSGSIZE)?;
            // Another one is of a request that could not be read to its end.
            if field(answer, SEQUENCE) == Some(sequence) {
                return Route::of(answer).unwrap_or(Err(Errno::BADMSG));
            }
        }
    }
}

/// What matters of a route.
#[derive(Debug, PartialEq, Eq)]
struct Route {
    /// Whether it leads to another place than one other host.
    is_kept: bool,
    /// The source that the kernel would choose.
    source: Option<IpAddr>,
}

impl Route {
    /// Returns what an answer says; `None` if it is none.
    fn of(answer: &[u8]) -> Option<Result<Self, Errno>> {
        let length = u32::from_ne_bytes(field(answer, 0)?);
        let body = answer.get(HEADER..usize::try_from(length).ok()?)?;
        match u16::from_ne_bytes(field(answer, 4)?) {
            NLMSG_ERROR => {
                let error = i32::from_ne_bytes(field(body, 0)?);
                Some(Err(Errno::from_raw_os_error(error.checked_neg()?)))
            }
            RTM_NEWROUTE => {
                let kind = *body.get(7)?;
                let mut route = Self {
                    is_kept: kind != RTN_UNICAST,
                    source: None,
                };
                route.read(body.get(ROUTE..)?)?;
                Some(Ok(route))
            }
            _ => None,
        }
    }

    /// Reads the attributes; `None` if they are cut off.
    fn read(&mut self, mut attributes: &[u8]) -> Option<()> {
        while !attributes.is_empty() {
            let length = usize::from(u16::from_ne_bytes(field(attributes, 0)?));
            let value = attributes.get(ATTRIBUTE..length)?;
            match u16::from_ne_bytes(field(attributes, 2)?) {
                RTA_OIF => self.is_kept |= u32::from_ne_bytes(field(value, 0)?) == LOOPBACK,
                RTA_PREFSRC => self.source = Some(address(value)?),
                _ => {}
            }
            let next = length.next_multiple_of(ATTRIBUTE).min(attributes.len());
            attributes = &attributes[next..];
        }
        Some(())
    }
}

/// The bytes of a field at an offset.
fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => Some(Ipv4Addr::from(field::<4>(bytes, 0)?).into()),
        16 => Some(Ipv6Addr::from(field::<16>(bytes, 0)?).into()),
        _ => None,
    }
}

/// A request for the route to an address.
fn request(to: IpAddr, from: Option<IpAddr>) -> Vec<u8> {
    let octets = |address| match address {
        IpAddr::V4(address) => Ipv4Addr::octets(&address).to_vec(),
        IpAddr::V6(address) => Ipv6Addr::octets(&address).to_vec(),
    };
    let (to, from) = (octets(to), from.map(octets).unwrap_or_default());
    let family = match to.len() {
        4 => AddressFamily::INET,
        _ => AddressFamily::INET6,
    };
    // A family is one byte here, and the lengths are 32 or 128 bits.
    let bits = |octets: &[u8]| octets.len() as u8 * 8;
    let mut request = vec![0; HEADER + ROUTE];
    request[4..6].copy_from_slice(&RTM_GETROUTE.to_ne_bytes());
    request[6..8].copy_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    request[HEADER..][..3].copy_from_slice(&[family.as_raw() as u8, bits(&to), bits(&from)]);
    for (kind, octets) in [(RTA_DST, to), (RTA_SRC, from)] {
        if !octets.is_empty() {
            let length = (ATTRIBUTE + octets.len()) as u16;
            request.extend(length.to_ne_bytes());
            request.extend(kind.to_ne_bytes());
            request.extend(octets);
        }
    }
    let length = request.len() as u32;
    request[..4].copy_from_slice(&length.to_ne_bytes());
    request
}

#[cfg(test)]
mod tests {
    use super::{RTM_NEWROUTE, Route, Routes};
    use rustix::io::Errno;
    use std::net::IpAddr;
    use std::process::Command;

    fn is_own(text: &str) -> Result<bool, Errno> {
        let address: IpAddr = text.parse().expect(text);
        Routes::open().expect("a socket").is_own(address)
    }

    #[test]
    fn the_addresses_of_this_machine_are_those_that_the_kernel_has_routes_to_itself_for() {
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

    /// Routes of a network namespace, in which [`verdicts_in_a_namespace`] then runs.
    const NAMESPACE: &str = "set -e
        ip link set lo up
        ip link add v0 type veth peer name v1
        ip link set v0 up
        ip link set v1 up
        echo 1 > /proc/sys/net/ipv6/conf/all/forwarding
        ip -6 addr add 2a00:1450:1::5/64 dev v0 nodad
        ip addr add 9.9.9.1/24 dev v0
        ip addr add 9.9.9.2/24 dev v0
        ip route add default via 9.9.9.7
        ip -6 route add default dev v0
        ip route add local 5.5.5.5/32 dev lo table 100
        ip rule add to 5.5.5.5 lookup 100 pref 10
        ip -6 route add local 2a00:1450:3::3 dev lo table 100
        ip -6 rule add to 2a00:1450:3::3 lookup 100 pref 10
        ip route add local 6.6.6.6/32 dev lo table 101
        ip rule add from 9.9.9.1 lookup 101 pref 11
        ip route add local 5.6.0.0/16 dev lo
        ip -6 route add local 2a00:1450:4::/64 dev lo
        ip route add 7.7.7.7/32 dev lo
        ip route add prohibit 4.4.4.4/32
        \"$0\" --exact --ignored --nocapture address::own::tests::verdicts_in_a_namespace";

    #[test]
    fn no_table_rule_or_type_of_route_hides_an_address_of_this_machine() {
        let unshare = || {
            let mut unshare = Command::new("unshare");
            unshare.args(["--map-root-user", "--net", "sh", "-c"]);
            unshare
        };
        let probe = unshare()
            .arg("ip link add v0 type veth peer name v1")
            .output();
        if !probe.is_ok_and(|made| made.status.success()) {
            println!("not tested: this host makes no network namespace");
            return;
        }
        let test = std::env::current_exe().expect("this test");
        let ran = unshare().arg(NAMESPACE).arg(test).output().expect("a run");
        let said = String::from_utf8_lossy(&ran.stdout);
        let failed = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{said}{failed}");
        assert!(said.contains("1 passed"), "{said}");
    }

    #[test]
    #[ignore = "runs in the network namespace of another test"]
    fn verdicts_in_a_namespace() {
        for own in [
            "2a00:1450:1::5",
            // The subnet's anycast address of routers.
            "2a00:1450:1::",
            "9.9.9.1",
            "9.9.9.2",
            // Broadcast.
            "9.9.9.255",
            // By a rule for the destination.
            "5.5.5.5",
            "2a00:1450:3::3",
            // By a rule for the source.
            "6.6.6.6",
            // Of a range that is local by a route alone.
            "5.6.7.8",
            "2a00:1450:4::9",
            // By its device.
            "7.7.7.7",
        ] {
            assert_eq!(is_own(own), Ok(true), "{own}");
        }
        for other in [
            "2a00:1450:1::6",
            "2a00:1450:2::77",
            "9.9.9.7",
            "8.8.8.8",
            "4.4.4.4",
        ] {
            assert_eq!(is_own(other), Ok(false), "{other}");
        }
    }

    /// An answer with a route of this type, and these attributes.
    fn answer(kind: u8, attributes: &[u8]) -> Vec<u8> {
        let length = 28 + attributes.len() as u32;
        let mut answer = length.to_ne_bytes().to_vec();
        answer.extend(RTM_NEWROUTE.to_ne_bytes());
        answer.extend([0; 17]);
        answer.push(kind);
        answer.resize(28, 0);
        answer[23] = kind;
        answer.extend(attributes);
        answer
    }

    #[test]
    fn only_a_unicast_route_that_is_not_the_loopbacks_leads_to_another_host() {
        let device = |index: u8| {
            let mut attribute = [8u16.to_ne_bytes(), 4u16.to_ne_bytes()].concat();
            attribute.extend(u32::from(index).to_ne_bytes());
            attribute
        };
        for kind in 0..=u8::MAX {
            for index in [1, 2] {
                let route = Route::of(&answer(kind, &device(index)));
                let is_kept = route.expect("an answer").expect("a route").is_kept;
                assert_eq!(is_kept, (kind, index) != (1, 2), "{kind} {index}");
            }
        }
        // Whatever is cut off is no answer.
        let whole = answer(1, &device(2));
        for length in 0..whole.len() {
            assert_eq!(Route::of(&whole[..length]), None, "{length} bytes");
        }
        assert_eq!(Route::of(&answer(1, &[0; 4])), None);
    }
}
