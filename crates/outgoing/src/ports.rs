//! The local ports of sockets. Those of connections are those that are there, and those that the kernel keeps for a minute of each that this side
//! has ended (TIME-WAIT, RFC 9293 §3.6.1).
//!
//! An address of this machine has some 28,000 for all connections to one destination. So that no tenant
//! takes them away from the others, it has at most as many of a destination as are left free there: a dynamic threshold
//! (Choudhury and Hahne, "Dynamic Queue Length Thresholds for Shared-Memory Packet Switches", 1998, with a factor of one). One
//! that makes and drops connections without end has half, the next half of the rest, and one that comes later finds some. All
//! of them have at most three eighths of the ports, since the kernel looks at every second one first, one after the other:
//! of those one in four is free.
//!
//! Datagrams and look-ups have local ports regardless of where they go, an address of this machine as many as above for all of
//! them. Either kind has three eighths of those, so that no look-up waits for a port that a tenant's socket has. The
//! threshold holds for half of them. The other half is for tenants that have few: each finds four there.

use leasehold_exchange::CallError;
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::Instant;

/// How long the kernel keeps the port of a connection that this side has ended.
const LEFT: Duration = Duration::from_secs(60);

/// How many local ports a host has for connections to one destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalPorts(u32);

impl Default for LocalPorts {
    /// As many as Linux has unless it is told otherwise.
    fn default() -> Self {
        Self(60_999 - 32_768 + 1)
    }
}

impl LocalPorts {
    /// Reads how many this host has; what it cannot read is the default.
    pub fn of_host() -> Self {
        let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
        text.ok()
            .and_then(|text| Self::of(&text))
            .unwrap_or_default()
    }

    /// Those of a text as that file has it: the first port and the last.
    pub fn of(text: &str) -> Option<Self> {
        let mut ports = text.split_whitespace().map(str::parse::<u16>);
        let (first, last) = (ports.next()?.ok()?, ports.next()?.ok()?);
        Some(Self(u32::from(last.checked_sub(first)?) + 1))
    }

    /// How many of them all tenants may have of one space, at least one.
    const fn shared(self) -> usize {
        let shared = self.0 as usize * 3 / 8;
        if shared > 1 { shared } else { 1 }
    }
}

/// How many local ports of datagrams, and of look-ups, a tenant may have whatever others have.
const FEW: usize = 4;

/// What local ports are told apart by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Space {
    /// Those of connections to one destination.
    Connections(SocketAddr),
    /// Those of sockets for datagrams that guests have.
    Datagrams(Family),
    /// Those of questions to name servers.
    LookUps(Family),
}

impl Space {
    /// Whether a tenant may have one more, with `own` of `used` ports in a space where there are `most` for tenants.
    const fn has_room(self, own: usize, used: usize, most: usize) -> bool {
        match self {
            Self::Connections(_) => own < most.saturating_sub(used),
            Self::Datagrams(_) | Self::LookUps(_) => {
                let is_modest = own < FEW && used < most;
                is_modest || own < (most / 2).saturating_sub(used)
            }
        }
    }
}

/// A version of the internet protocol: each has ports of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    pub(crate) const fn of(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(_) => Self::V4,
            SocketAddr::V6(_) => Self::V6,
        }
    }
}

/// The ports of one space.
#[derive(Debug, Default)]
struct Used {
    total: usize,
    by_tenant: HashMap<Rc<str>, usize>,
}

#[derive(Debug, Default)]
struct State {
    used: HashMap<Space, Used>,
    /// Those that are left behind, until the kernel has them back.
    left: VecDeque<(Instant, Space, Rc<str>)>,
}

impl State {
    fn give_back(&mut self, space: Space, tenant: &Rc<str>) {
        let Some(used) = self.used.get_mut(&space) else {
            return;
        };
        used.total = used.total.saturating_sub(1);
        if let Some(own) = used.by_tenant.get_mut(tenant) {
            *own = own.saturating_sub(1);
            if *own == 0 {
                used.by_tenant.remove(tenant);
            }
        }
        if used.total == 0 {
            self.used.remove(&space);
        }
    }

    fn expire(&mut self, now: Instant) {
        while let Some((_, space, tenant)) = self.left.pop_front_if(|(until, ..)| *until <= now) {
            self.give_back(space, &tenant);
        }
    }
}

/// The local ports of all sockets that the thread makes.
#[derive(Debug)]
pub(crate) struct Ports {
    shared: usize,
    state: RefCell<State>,
}

impl Ports {
    pub(crate) fn new(host: LocalPorts) -> Rc<Self> {
        Rc::new(Self {
            shared: host.shared(),
            state: RefCell::default(),
        })
    }

    /// Takes a port for a socket that a tenant is about to have. O(1), but for ports that the kernel has back.
    ///
    /// # Errors
    /// [`CallError::NoPort`] if it has as many of this space as are left free there.
    pub(crate) fn take(self: &Rc<Self>, tenant: &Rc<str>, space: Space) -> Result<Port, CallError> {
        let mut state = self.state.borrow_mut();
        state.expire(Instant::now());
        let used = state.used.entry(space).or_default();
        let own = used.by_tenant.get(tenant).copied().unwrap_or_default();
        if !space.has_room(own, used.total, self.shared) {
            return Err(CallError::NoPort);
        }
        used.by_tenant.insert(tenant.clone(), own + 1);
        used.total += 1;
        Ok(Port {
            ports: self.clone(),
            tenant: tenant.clone(),
            space,
            is_left: false,
        })
    }
}

/// The port of one socket.
#[derive(Debug)]
pub(crate) struct Port {
    ports: Rc<Ports>,
    tenant: Rc<str>,
    space: Space,
    is_left: bool,
}

impl Port {
    /// Says whether the kernel keeps it when the connection has gone: not that of one that was never made, or that the peer
    /// has ended first.
    pub(crate) const fn set_left(&mut self, is_left: bool) {
        self.is_left = is_left;
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        let mut state = self.ports.state.borrow_mut();
        match self.is_left {
            true => {
                let until = Instant::now() + LEFT;
                state
                    .left
                    .push_back((until, self.space, self.tenant.clone()));
            }
            false => state.give_back(self.space, &self.tenant),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{FEW, Family, LEFT, LocalPorts, Port, Ports, Space};
    use leasehold_exchange::CallError;
    use std::rc::Rc;
    use std::time::Duration;

    fn to(text: &str) -> Space {
        Space::Connections(text.parse().expect("an address"))
    }

    /// Makes and drops connections until one is refused; how many there were.
    fn flood(ports: &Rc<Ports>, tenant: &Rc<str>, to: Space) -> usize {
        let made = || -> Option<Port> {
            let mut port = ports.take(tenant, to).ok()?;
            port.set_left(true);
            Some(port)
        };
        std::iter::from_fn(made).map(drop).count()
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_drops_connections_without_end_leaves_ports_to_those_that_come_later() {
        let ports = Ports::new(LocalPorts::default());
        let shared = LocalPorts::default().shared();
        let here = to("10.0.0.1:80");
        let tenants: Vec<Rc<str>> = (0..8)
            .map(|number: u32| number.to_string().into())
            .collect();
        let had: Vec<usize> = tenants
            .iter()
            .map(|tenant| flood(&ports, tenant, here))
            .collect();
        assert_eq!(had[0], shared.div_ceil(2));
        assert!(had.iter().all(|had| *had > 30), "{had:?}");
        assert!(had.iter().sum::<usize>() < shared);
        // Elsewhere there are others.
        assert_eq!(
            flood(&ports, &tenants[0], to("10.0.0.1:81")),
            shared.div_ceil(2)
        );
        tokio::time::advance(LEFT - Duration::from_secs(1)).await;
        assert_eq!(flood(&ports, &tenants[0], here), 0);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(flood(&ports, &tenants[0], here), shared.div_ceil(2));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_never_made_or_was_ended_by_the_peer_has_no_port_afterwards() {
        let ports = Ports::new(LocalPorts(8));
        let tenant: Rc<str> = "a".into();
        let here = to("10.0.0.1:80");
        for _ in 0..100 {
            drop(ports.take(&tenant, here).expect("free"));
        }
        let two = [ports.take(&tenant, here), ports.take(&tenant, here)];
        assert!(two.iter().all(Result::is_ok), "of three");
        let third = ports.take(&tenant, here).map(drop);
        assert_eq!(third, Err(CallError::NoPort));
        drop(two);
        assert!(ports.take(&tenant, here).is_ok());
        assert!(ports.state.borrow().used.is_empty());
    }

    #[test]
    fn a_tenant_that_has_sockets_for_datagrams_without_end_leaves_a_few_to_each_other_one() {
        for (text, most) in [("32768 60999", 10_587), ("2000 10000", 3000)] {
            let ports = Ports::new(LocalPorts::of(text).expect("ports"));
            let tenants: Vec<Rc<str>> = (0..135)
                .map(|number: u32| number.to_string().into())
                .collect();
            for space in [Space::Datagrams(Family::V4), Space::LookUps(Family::V4)] {
                let take = |tenant| {
                    (0..63)
                        .map_while(|_| ports.take(tenant, space).ok())
                        .collect()
                };
                let had: Vec<Vec<Port>> = tenants.iter().map(take).collect();
                assert!(had.iter().all(|had| had.len() >= FEW), "{text}");
                let all: usize = had.iter().map(Vec::len).sum();
                assert!((most / 2 - 100..most).contains(&all), "{all} of {text}");
                // Those of the other version are others.
                assert!(
                    ports
                        .take(&tenants[0], Space::Datagrams(Family::V6))
                        .is_ok()
                );
                let again = ports.take(&tenants[0], space).map(drop);
                assert_eq!(again, Err(CallError::NoPort));
                drop(had);
                assert!(ports.take(&tenants[0], space).is_ok());
            }
            assert!(ports.state.borrow().used.is_empty());
        }
    }

    #[test]
    fn the_ports_of_a_host_are_those_from_the_first_to_the_last() {
        assert_eq!(
            LocalPorts::of("32768\t60999\n"),
            Some(LocalPorts::default())
        );
        assert_eq!(LocalPorts::of("5 5"), Some(LocalPorts(1)));
        for text in ["", "5", "6 5", "a b", "1 70000"] {
            assert_eq!(LocalPorts::of(text), None, "{text:?}");
        }
        assert!(LocalPorts::of_host().shared() >= 1);
    }
}
