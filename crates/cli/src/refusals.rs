//! One line with the refusals of a lease, printed at the end.

use crate::report::nanos;
use leasehold_cell::{Refusal, Reservation};
use leasehold_lease::Lease;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// A size that is at least so many bytes, as a lease states it.
fn size(bytes: u64) -> String {
    match bytes {
        MIB.. => format!("{}MiB", bytes.div_ceil(MIB)),
        _ => format!("{}KiB", bytes.div_ceil(KIB)),
    }
}

/// The size of so many bytes.
fn exactly(bytes: u64) -> String {
    match (bytes % MIB, bytes % KIB) {
        (0, _) => format!("{}MiB", bytes / MIB),
        (_, 0) => format!("{}KiB", bytes / KIB),
        _ => format!("{bytes}B"),
    }
}

/// A time that is at least so many nanoseconds, as a lease states it.
fn time(ns: u64) -> String {
    match ns {
        1_000_000.. => format!("{}ms", ns.div_ceil(1_000_000)),
        _ => format!("{}us", ns.div_ceil(1_000)),
    }
}

/// Returns a reservation's name in flags and leases, its value in the lease, and the value that
/// it took at least.
fn described(refusal: &Refusal, lease: &Lease) -> (&'static str, String, String) {
    let bytes = |bytes: u64| (exactly(bytes), size(refusal.enough));
    let (name, (is, enough)) = match refusal.reservation {
        Reservation::Budget => {
            let is = nanos(lease.reclaim.budget.get()).replace(' ', "");
            ("--budget", (is, time(refusal.enough)))
        }
        Reservation::Memory if lease.memory.paging.is_some() => {
            ("--paging limit", bytes(lease.memory.limit().get()))
        }
        Reservation::Memory => ("--memory", bytes(lease.memory.limit().get())),
        Reservation::HostMemory => ("--host-memory", bytes(lease.memory.host_limit().get())),
        Reservation::DiskBytes => ("--disk-bytes", bytes(lease.disk.bytes.get())),
        Reservation::TableElements => {
            let is = lease.memory.table_elements.to_string();
            ("--table-elements", (is, refusal.enough.to_string()))
        }
        Reservation::OpenFiles => {
            let is = lease.files.open.to_string();
            ("--open-files", (is, refusal.enough.to_string()))
        }
        Reservation::DiskFiles => {
            let is = lease.disk.files.to_string();
            ("--disk-files", (is, refusal.enough.to_string()))
        }
        Reservation::Mappings => {
            let is = lease.memory.paging.map_or(0, |paging| paging.mappings);
            (
                "--paging mappings",
                (is.to_string(), refusal.enough.to_string()),
            )
        }
    };
    (name, is, enough)
}

/// One line that says which reservations refused how much, and what it took at least; `None` if
/// nothing was refused.
pub(crate) fn line(refusals: &[Refusal], lease: &Lease) -> Option<String> {
    let parts: Vec<String> = refusals
        .iter()
        .map(|refusal| {
            let (name, is, enough) = described(refusal, lease);
            let times = match refusal.times {
                1 => "once".to_owned(),
                times => format!("{times} times"),
            };
            format!("{times} by {name} {is}, where it took at least {enough} at first")
        })
        .collect();
    (!parts.is_empty()).then(|| {
        format!(
            "the lease refused the program something: {}",
            parts.join("; ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::line;
    use leasehold_cell::{Refusal, Reservation};
    use leasehold_lease::{ByteSize, Lease};

    #[test]
    fn a_line_names_what_to_change_and_to_what() {
        let refusal = |reservation, times, enough| Refusal {
            reservation,
            times,
            enough,
        };
        let lease = Lease::default();
        assert_eq!(line(&[], &lease), None);
        let refusals = [
            refusal(Reservation::Budget, 1, 61_000_001),
            refusal(Reservation::Memory, 3, (1 << 30) + 1),
            refusal(Reservation::OpenFiles, 2, 129),
        ];
        let mut tiny = Lease::default();
        tiny.disk.bytes = ByteSize::new(1).expect("in range");
        let refused = [refusal(Reservation::DiskBytes, 1, 8192)];
        assert_eq!(
            line(&refused, &tiny).expect("a line"),
            "the lease refused the program something: \
             once by --disk-bytes 1B, where it took at least 8KiB at first"
        );
        assert_eq!(
            line(&refusals, &lease).expect("a line"),
            "the lease refused the program something: \
             once by --budget 50.00ms, where it took at least 62ms at first; \
             3 times by --memory 1024MiB, where it took at least 1025MiB at first; \
             2 times by --open-files 128, where it took at least 129 at first"
        );
    }
}
