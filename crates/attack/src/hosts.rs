//! Other hosts, for an attacker that asks them: a thread that answers whatever is asked, without a network.

use crate::sockets::LISTENED;
use leasehold_cell::exchange::{
    ADDRESS, Call, CallKind, ExchangeLimits, Fields, Frame, GuestHalf, Outbox, Outlet, PEER, Read,
    ResponseHead,
};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

/// How many requests, connections, sockets and look-ups an attacker may have under way.
const CONCURRENCY: u32 = 16;

/// The pause between two turns of the thread.
const PAUSE: Duration = Duration::from_millis(1);

/// The most bytes of a datagram, and of a write.
const PART: usize = 16 << 10;

/// Where an attacker's calls go. The thread that answers them ends when the tenant does.
pub(crate) fn outlet() -> Arc<Outlet> {
    let outbox = Outbox::new(ExchangeLimits::default(), CONCURRENCY);
    let outbox = Arc::new(outbox.listening(vec![LISTENED.into()]));
    let answering = outbox.clone();
    thread::spawn(move || answer(&answering));
    Arc::new(Outlet::new(outbox))
}

/// Answers calls until the outbox is closed.
fn answer(outbox: &Outbox) {
    let mut open: Vec<(Host, GuestHalf)> = Vec::new();
    loop {
        let mut context = Context::from_waker(Waker::noop());
        match outbox.poll_take(&mut context) {
            Poll::Ready(None) => return,
            Poll::Ready(Some(call)) => open.push(begin(call)),
            Poll::Pending => {
                open.retain_mut(|(host, half)| host.take_turn(half));
                thread::sleep(PAUSE);
            }
        }
    }
}

/// How a host treats what it is sent, and what it sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Host {
    /// Sends bytes without end, and reads nothing.
    Floods,
    /// Sends datagrams without end, and reads nothing.
    FloodsDatagrams,
    /// Reads everything, and sends nothing.
    Listens,
    /// Neither reads nor sends.
    Silent,
    /// It has said everything.
    Over,
}

impl Host {
    /// The host at a port.
    const fn at(port: u16) -> Self {
        match port % 3 {
            0 => Self::Floods,
            1 => Self::Listens,
            _ => Self::Silent,
        }
    }

    /// Reads and sends what can be now; whether the guest has not given it up.
    fn take_turn(self, half: &mut GuestHalf) -> bool {
        let part = [7; PART];
        match self {
            Self::Floods => while half.write(&part) > 0 {},
            Self::FloodsDatagrams => {
                let from = Frame::Datagram(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 3));
                while half.write_frame(from, &part[..PART / 16]) {}
            }
            Self::Listens => {
                let mut read = [0; PART];
                while let Read::Bytes(_) = half.read(&mut read) {}
            }
            Self::Silent | Self::Over => {}
        }
        self != Self::Over && !half.is_abandoned()
    }
}

/// Gives the head of the answer; how it goes on.
fn begin(call: Call) -> (Host, GuestHalf) {
    let Call { mut half, kind } = call;
    let mut fields = Fields::new(half.limits().head_bytes);
    // What has no room in a head is left out.
    let mut say = |name: &str, value: String| fields.push(name, value.as_bytes()).is_ok();
    let host = match kind {
        CallKind::Request { .. } => {
            while say("x", "1234567".to_owned()) {}
            Host::Floods
        }
        CallKind::Connect { to, .. } => {
            say(ADDRESS, "10.1.2.3:4".to_owned());
            Host::at(to.port())
        }
        CallKind::Listen { at, .. } => {
            say(ADDRESS, at.to_string());
            Host::Silent
        }
        CallKind::Accept { at, .. } => {
            say(ADDRESS, at.to_string());
            say(PEER, "10.0.0.1:3".to_owned());
            Host::Floods
        }
        CallKind::Bind { .. } => {
            say(ADDRESS, "10.1.2.3:4".to_owned());
            Host::FloodsDatagrams
        }
        CallKind::LookUp { .. } => {
            for number in 0..16 {
                say(ADDRESS, format!("10.0.0.{number}"));
            }
            Host::Over
        }
    };
    let head = ResponseHead {
        status: 200,
        fields,
    };
    let is_told = half.respond(head).is_ok();
    if host == Host::Over && is_told {
        half.finish(None);
    }
    (host, half)
}

#[cfg(test)]
mod tests {
    use super::{Host, outlet};
    use leasehold_cell::exchange::{Call, CallKind, RequestHead, exchange};
    use std::task::{Context, Waker};
    use std::time::{Duration, Instant};

    #[test]
    fn whatever_is_asked_is_answered_and_the_host_of_a_port_is_always_the_same() {
        let outlet = outlet();
        let (name, hop_limit) = ("a".to_owned(), 1);
        let to = "10.0.0.1:3".parse().expect("an address");
        for kind in [CallKind::LookUp { name }, CallKind::Bind { to, hop_limit }] {
            let limits = outlet.outbox().limits();
            let (mut client, half) = exchange(limits, RequestHead::empty(), 1);
            outlet.outbox().send(Call { half, kind }).expect("taken");
            let until = Instant::now() + Duration::from_secs(20);
            let mut context = Context::from_waker(Waker::noop());
            while client.poll_response(&mut context).is_pending() {
                assert!(Instant::now() < until, "no answer");
                std::thread::yield_now();
            }
            assert!(client.head().is_some());
        }
        assert_eq!(
            [1, 2, 3].map(Host::at),
            [Host::Listens, Host::Silent, Host::Floods]
        );
    }
}
