//! Connections, counted for a listener and for each source.

use crate::quiet::{Quiet, Rest};
use crate::tally::Refusal;
use leasehold_io_thread::Share;
use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;

/// The source of connections: an IPv4 address, or a /64 of IPv6, which is what one customer has.
fn source(address: IpAddr) -> u128 {
    match address.to_canonical() {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address) >> 64 << 64 | 1 << 32,
    }
}

/// The connections of one source.
struct Source {
    connections: u32,
    share: Rc<Share>,
}

impl Source {
    /// All sources together have one part of the thread, since a client may have thousands of them.
    fn new() -> Self {
        Self {
            connections: 0,
            share: Rc::new(Share::in_crowd()),
        }
    }
}

#[derive(Default)]
struct Counts {
    all: u32,
    sources: HashMap<u128, Source>,
}

/// The connections of one listener.
pub(crate) struct Sources {
    counts: RefCell<Counts>,
    quiet: Rc<Quiet>,
    most: u32,
    most_per_source: u32,
}

/// Of the places of a listener, the part that is kept for new connections while others are quiet.
const KEPT: u32 = 16;

impl Sources {
    pub(crate) fn new(most: u32, most_per_source: u32) -> Rc<Self> {
        Rc::new(Self {
            counts: RefCell::default(),
            quiet: Rc::default(),
            most,
            most_per_source,
        })
    }

    /// A place for a connection of this address, if there is one. While few are left, a quiet connection is told to
    /// give way.
    pub(crate) fn admit(self: &Rc<Self>, address: IpAddr) -> Result<Admitted, Refusal> {
        let source = source(address);
        let mut counts = self.counts.borrow_mut();
        let of_source = counts.sources.get(&source);
        if of_source.is_some_and(|source| source.connections >= self.most_per_source) {
            return Err(Refusal::Source);
        }
        if counts.all + self.most / KEPT >= self.most {
            self.quiet.give_way();
        }
        if counts.all >= self.most {
            return Err(Refusal::Listener);
        }
        let of_source = counts.sources.entry(source).or_insert_with(Source::new);
        of_source.connections += 1;
        let share = of_source.share.clone();
        counts.all += 1;
        Ok(Admitted {
            share,
            rest: Rest::new(self.quiet.clone(), source),
            sources: self.clone(),
            source,
        })
    }
}

/// The place of a connection; dropping it gives it back.
pub(crate) struct Admitted {
    sources: Rc<Sources>,
    source: u128,
    share: Rc<Share>,
    rest: Rc<Rest>,
}

impl Admitted {
    /// Whether the connection is quiet, which it is at first.
    pub(crate) const fn rest(&self) -> &Rc<Rest> {
        &self.rest
    }

    /// The share of the I/O thread that the connections of its source have before they have a
    /// tenant.
    pub(crate) const fn share(&self) -> &Rc<Share> {
        &self.share
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.rest.over();
        let mut counts = self.sources.counts.borrow_mut();
        counts.all -= 1;
        if let Some(of_source) = counts.sources.get_mut(&self.source) {
            of_source.connections -= 1;
            if of_source.connections == 0 {
                counts.sources.remove(&self.source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Sources;
    use crate::tally::Refusal;

    #[test]
    fn a_source_and_a_listener_have_no_more_connections_than_they_may() {
        let sources = Sources::new(3, 2);
        let admit = |text: &str| sources.admit(text.parse().expect("an address"));
        let first = admit("10.0.0.1").expect("free");
        let second = admit("::ffff:10.0.0.1").expect("free");
        assert_eq!(admit("10.0.0.1").err(), Some(Refusal::Source));
        let third = admit("2001:db8::1").expect("another source");
        assert_eq!(admit("10.0.0.2").err(), Some(Refusal::Listener));
        drop((first, third));
        let _fourth = admit("2001:db8::1").expect("free");
        let _fifth = admit("10.0.0.1").expect("free");
        drop(second);
        assert_eq!(sources.counts.borrow().sources.len(), 2);
    }

    #[test]
    fn the_addresses_of_one_network_are_one_source() {
        let sources = Sources::new(9, 1);
        let _one = sources
            .admit("2001:db8::1".parse().expect("an address"))
            .expect("free");
        assert!(
            sources
                .admit("2001:db8::2".parse().expect("an address"))
                .is_err()
        );
        assert!(
            sources
                .admit("2001:db8:0:1::2".parse().expect("an address"))
                .is_ok()
        );
    }
}
