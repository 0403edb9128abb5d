//! How many requests a second a lease sustains, given the processor time of one.

use crate::exit::Failure;
use leasehold_lease::{LeaseFile, Nanoseconds, TenantSpec};
use leasehold_reserve::admission::Verdict;
use std::path::Path;
use std::str::FromStr;

/// The processor time of a request: of every tenant that answers requests, or of one of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RequestTime {
    tenant: Option<String>,
    time: Nanoseconds,
}

/// `TIME`, or `TENANT=TIME`.
impl FromStr for RequestTime {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (tenant, time) = match text.split_once('=') {
            Some((tenant, time)) => (Some(tenant.to_owned()), time),
            None => (None, text),
        };
        let time: Nanoseconds = time.parse().map_err(|error| format!("{error}"))?;
        Ok(Self { tenant, time })
    }
}

/// The stated times of requests.
#[derive(Debug, Default)]
pub(super) struct RequestTimes(Vec<RequestTime>);

impl RequestTimes {
    /// Checks that each named tenant is in the file and answers requests.
    ///
    /// # Errors
    /// When one is not, or does not.
    pub(super) fn of(
        stated: &[RequestTime],
        path: &Path,
        file: &LeaseFile,
    ) -> Result<Self, Failure> {
        for name in stated.iter().filter_map(|stated| stated.tenant.as_ref()) {
            let tenant = file.tenants.iter().find(|tenant| tenant.name == *name);
            let wrong = match tenant {
                Some(tenant) if tenant.http.is_some() => continue,
                Some(_) => "answers no requests: its lease has no `http`",
                None => "is not in the file",
            };
            return Err(Failure::Configuration(format!(
                "{}: --request-time: tenant {name:?} {wrong}",
                path.display()
            )));
        }
        Ok(Self(stated.to_vec()))
    }

    /// The time of a request of this tenant, if it answers requests and one is stated; what is
    /// stated for it goes before what is stated for all.
    pub(super) fn for_tenant(&self, tenant: &TenantSpec) -> Option<Nanoseconds> {
        tenant.http.as_ref()?;
        let own = |stated: &&RequestTime| stated.tenant.as_ref() == Some(&tenant.name);
        let all = |stated: &&RequestTime| stated.tenant.is_none();
        let stated = self.0.iter().rfind(own);
        let stated = stated.or_else(|| self.0.iter().rfind(all));
        Some(stated?.time)
    }
}

/// Requests a second, in thousandths, that fit into the useful part of a reservation's budgets:
/// what preemptions may take of a budget is left out. `None` if no part of it is promised to be
/// useful.
pub(super) fn sustained(
    verdict: &Verdict,
    period: Nanoseconds,
    request: Nanoseconds,
) -> Option<u64> {
    const THOUSANDTHS: u128 = 1_000;
    const SECOND: u128 = 1_000_000_000;
    let useful = verdict.loss.useful.filter(|_| verdict.schedulable())?;
    let demanded = u128::from(period.get()) * u128::from(request.get());
    let rate = u128::from(useful) * SECOND * THOUSANDTHS / demanded;
    Some(u64::try_from(rate).unwrap_or(u64::MAX))
}

/// The line of one tenant.
pub(super) fn line(tenant: &TenantSpec, request: Nanoseconds, sustained: Option<u64>) -> String {
    let name = &tenant.name;
    match sustained {
        Some(thousandths) => format!(
            "{name} sustains {:.1} requests a second that take {request} each, whatever the others do",
            thousandths as f64 / 1e3
        ),
        None if tenant.lease.cpu.is_none() => format!(
            "{name} is in the background: no rate of requests is promised to it; a `cpu` reservation would"
        ),
        None => format!(
            "{name} has no promise on a rate of requests, since no part of its budget is promised to be useful"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::{RequestTime, sustained};
    use leasehold_lease::Nanoseconds;
    use leasehold_reserve::admission::{Overhead, admit};
    use leasehold_reserve::{Contract, Order};

    fn ns(time: u64) -> Nanoseconds {
        Nanoseconds::new(time).expect("in range")
    }

    #[test]
    fn a_time_is_of_all_tenants_or_of_one() {
        let parsed = |text: &str| text.parse::<RequestTime>();
        let all = parsed("250us").expect("a time");
        assert_eq!((all.tenant, all.time), (None, ns(250_000)));
        let one = parsed("cart=1ms").expect("a time");
        assert_eq!(
            (one.tenant.as_deref(), one.time),
            (Some("cart"), ns(1_000_000))
        );
        for wrong in ["", "0ns", "cart=", "cart=soon"] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_preemptions_take_serves_no_request() {
        let contract = Contract::new(4_000_000, 20_000_000).expect("a contract");
        let rate = |per_preemption| {
            let report = admit(
                &[contract],
                Order::FixedPriority,
                Overhead { per_preemption },
            );
            sustained(&report.servers[0], ns(20_000_000), ns(250_000))
        };
        // 4 ms in every 20 ms are 200 ms in a second, 800 requests of 250 us.
        assert_eq!(rate(0), Some(800_000));
        // A dispatch and a stop in each period leave 3.8 ms.
        assert_eq!(rate(100_000), Some(760_000));
    }
}
