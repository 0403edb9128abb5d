//! What requests on their way may hold of the host's memory, beside what the host has.

use leasehold_exchange::ExchangeLimits;
use leasehold_lease::{ByteSize, Http, Outgoing, TenantSpec};
use serde_json::{Value, json};

/// What a connection to another host takes of memory beside its request: the buffers of TLS and of HTTP in both
/// directions, bytes. A stated ceiling, not calibrated.
const CONNECTION: u64 = 128 << 10;

/// The connections of a tenant to other hosts that stay open without a request.
const IDLE: u64 = 8;

/// The most that all requests of some tenants hold at a time, between clients and guests and between guests and other
/// hosts, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Transit {
    bytes: u64,
    /// What the host has for it; `None` where that is not known.
    available: Option<u64>,
}

impl Transit {
    /// The requests of these tenants, on a host that has so much available for them.
    pub(crate) fn among(tenants: &[TenantSpec], available: Option<u64>) -> Self {
        Self {
            bytes: tenants.iter().map(bytes).sum(),
            available,
        }
    }

    /// Whether the host has as much.
    pub(crate) fn fits(self) -> bool {
        self.available
            .is_none_or(|available| self.bytes <= available)
    }

    /// For people; `None` if there are no requests.
    pub(crate) fn text(self) -> Option<String> {
        if self.bytes == 0 {
            return None;
        }
        let needed = mebibytes(self.bytes);
        Some(match self.available {
            None => format!("requests on their way hold at most {needed}"),
            Some(available) if self.fits() => format!(
                "requests on their way hold at most {needed}, of {} that this host has available",
                mebibytes(available)
            ),
            Some(available) => format!(
                "requests on their way may hold {needed}, and this host has {} available: less of `http.concurrency`, \
                 `queue`, `head`, `window` or of `outgoing.concurrency` would fit",
                mebibytes(available)
            ),
        })
    }

    /// For programs.
    pub(crate) fn json(self) -> Value {
        json!({
            "fits": self.fits(),
            "held_bytes": self.bytes,
            "available_bytes": self.available,
        })
    }
}

/// What a host that can spare so much has available beside the memory that the cell holds, in bytes.
pub(crate) fn available(spare: Option<u64>, held: Option<ByteSize>) -> Option<u64> {
    let held = held.map_or(0, ByteSize::get);
    Some(spare?.saturating_sub(held))
}

/// The most that the requests of a tenant hold at a time, bytes.
pub(crate) fn bytes(tenant: &TenantSpec) -> u64 {
    let received = tenant.http.as_ref().map_or(0, received);
    received + tenant.outgoing.as_ref().map_or(0, sent)
}

fn received(http: &Http) -> u64 {
    held(http.head, http.window) * u64::from(http.concurrency + http.queue)
}

fn sent(outgoing: &Outgoing) -> u64 {
    let request = held(outgoing.head, outgoing.window) + CONNECTION;
    // Those that wait to be accepted: the kernel holds one more than it is told, with twice the window of what they sent.
    let waiting = outgoing.listen.len() as u64 * u64::from(outgoing.concurrency + 1);
    let sent = waiting * 2 * outgoing.window.get();
    request * u64::from(outgoing.concurrency) + IDLE * CONNECTION + sent
}

fn held(head: ByteSize, window: ByteSize) -> u64 {
    // Both are at most 16 MiB.
    let bytes = |size: ByteSize| u32::try_from(size.get()).unwrap_or(u32::MAX);
    let limits = ExchangeLimits {
        head_bytes: bytes(head),
        window_bytes: bytes(window),
    };
    limits.held_bytes()
}

/// A size for people.
pub(crate) fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::{CONNECTION, IDLE, Transit, bytes};
    use leasehold_exchange::ExchangeLimits;
    use leasehold_lease::LeaseFile;
    use std::path::Path;

    fn tenants(table: &str) -> Vec<leasehold_lease::TenantSpec> {
        let text = format!(
            "[listener.main]\naddress = \"127.0.0.1:1\"\n[tenant.a]\ncomponent = \"a\"\nreclaim = {{ budget = \"1ms\" }}\n{table}\n"
        );
        let file = LeaseFile::parse(&text, Path::new("leases.toml")).expect("a lease file");
        file.tenants
    }

    #[test]
    fn what_waits_counts_as_what_is_under_way_and_a_sent_request_has_a_connection() {
        let held = ExchangeLimits::default().held_bytes();
        let http = "http = { routes = [\"/*\"], concurrency = 3, queue = 7, head = \"16KiB\", window = \"64KiB\" }";
        assert_eq!(bytes(&tenants(http)[0]), 10 * held);
        let outgoing = "outgoing = { allow = [\"http://x.example\"], concurrency = 2, head = \"16KiB\", window = \"64KiB\" }";
        assert_eq!(
            bytes(&tenants(outgoing)[0]),
            2 * (held + CONNECTION) + IDLE * CONNECTION
        );
        let listen = "outgoing = { listen = [\"127.0.0.1:2\", \"127.0.0.1:3\"], concurrency = 2, head = \"16KiB\", window = \"64KiB\" }";
        assert_eq!(
            bytes(&tenants(listen)[0]),
            2 * (held + CONNECTION) + IDLE * CONNECTION + 2 * 3 * 2 * (64 << 10)
        );
        assert_eq!(bytes(&tenants("")[0]), 0);
    }

    #[test]
    fn more_than_the_host_has_does_not_fit_and_the_text_says_what_would() {
        let some = tenants("http = { routes = [\"/*\"] }");
        let needed = bytes(&some[0]);
        assert!(Transit::among(&some, Some(needed)).fits());
        let short = Transit::among(&some, Some(needed - 1));
        assert!(!short.fits());
        assert!(short.text().expect("text").contains("http.concurrency"));
        assert!(Transit::among(&some, None).fits());
        assert_eq!(Transit::among(&tenants(""), Some(0)).text(), None);
    }
}
