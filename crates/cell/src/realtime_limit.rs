//! The part of the processor that Linux grants real-time threads while other threads are ready.
//!
//! A cell with real-time priority stays below the limit by pausing background tenants
//! ([`crate::host_share`]). Larger reservations are refused: Linux would stop them in one piece,
//! for longer than most periods.

use leasehold_reserve::{Contract, Policy};
use std::fmt;
use std::sync::OnceLock;

/// The first version of Linux whose fair server takes time from real-time threads.
const FAIR_SERVER_SINCE: (u32, u32) = (6, 12);

/// The fair server's default time in each [`WINDOW`], ns. Only the host's administrator can read
/// the actual setting.
const FAIR_SERVER_NS: u64 = 50_000_000;

/// The margin that keeps the host from ever stopping the thread, thousandths of a window: its
/// windows begin at arbitrary times, and waking other threads takes time.
const MARGIN_THOUSANDTHS: u64 = 20;

/// The period of the fair server, ns.
const WINDOW: u64 = 1_000_000_000;

/// In every `window_ns` nanoseconds, real-time threads may run for `most_ns`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RealtimeLimit {
    most_ns: u64,
    window_ns: u64,
}

impl RealtimeLimit {
    /// Returns this host's limit; `None` if it has none, or does not report it. It is read once, by the first call, since
    /// a process that is confined cannot read it.
    pub fn of_host() -> Option<Self> {
        static HOST: OnceLock<Option<RealtimeLimit>> = OnceLock::new();
        *HOST.get_or_init(Self::read)
    }

    fn read() -> Option<Self> {
        let read = |name| std::fs::read_to_string(format!("/proc/sys/kernel/{name}"));
        let text = |name| read(name).unwrap_or_default();
        Self::parse(
            &text("osrelease"),
            &text("sched_rt_runtime_us"),
            &text("sched_rt_period_us"),
        )
    }

    fn parse(release: &str, runtime: &str, period: &str) -> Option<Self> {
        let throttling = Self::parse_throttling(runtime, period);
        let fair_server =
            (version(release)? >= FAIR_SERVER_SINCE).then(|| Self::leaving(FAIR_SERVER_NS, WINDOW));
        // The smaller share.
        [throttling, fair_server]
            .into_iter()
            .flatten()
            .min_by_key(|limit| limit.thousandths())
    }

    /// Parses the throttling of real-time threads of older kernels.
    fn parse_throttling(runtime: &str, period: &str) -> Option<Self> {
        // A runtime of -1 is no limit, and neither is the whole period.
        let runtime_ns = runtime.trim().parse::<u64>().ok()?.checked_mul(1000)?;
        let period_ns = period.trim().parse::<u64>().ok()?.checked_mul(1000)?;
        let taken = period_ns.checked_sub(runtime_ns)?;
        (taken > 0).then(|| Self::leaving(taken, period_ns))
    }

    /// The rest of a window from which the host takes `taken_ns`, less the margin.
    const fn leaving(taken_ns: u64, window_ns: u64) -> Self {
        let margin = window_ns / 1000 * MARGIN_THOUSANDTHS;
        Self {
            most_ns: window_ns.saturating_sub(taken_ns).saturating_sub(margin),
            window_ns,
        }
    }

    /// A limit of which everything is given, ns.
    #[cfg(test)]
    pub(crate) const fn new(most_ns: u64, window_ns: u64) -> Self {
        Self { most_ns, window_ns }
    }

    const fn thousandths(self) -> u64 {
        self.most_ns / (self.window_ns.div_ceil(1000))
    }

    /// How long real-time threads may run in each [window](Self::window_ns), ns.
    pub const fn most_ns(self) -> u64 {
        self.most_ns
    }

    /// The window, ns.
    pub const fn window_ns(self) -> u64 {
        self.window_ns
    }

    /// Whether a thread that serves these reservations is never stopped: their total demand in any
    /// window is within the limit. Background tenants are paused by the cell.
    pub fn allows(self, reserved: &[Contract]) -> bool {
        let reserved = reserved.iter().filter(|contract| !contract.is_background());
        let asked = reserved.map(|contract| self.asked_ns(contract));
        asked.fold(0, u64::saturating_add) <= self.most_ns
    }

    /// Returns the largest demand of a reservation in a window, ns: its request bound, less the
    /// part of the last budget that does not fit before the window ends.
    fn asked_ns(self, contract: &Contract) -> u64 {
        let (budget, period) = (contract.budget(), contract.period());
        let jitter = match contract.policy() {
            Policy::Sporadic => 0,
            Policy::Deferrable => period - budget,
        };
        let span = self.window_ns.saturating_add(jitter);
        let whole = (span / period).saturating_mul(budget);
        let asked = whole.saturating_add(budget.min(span % period));
        asked.min(self.window_ns)
    }
}

/// The first two numbers of a release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut number = || numbers.next()?.parse().ok();
    Some((number()?, number()?))
}

impl fmt::Display for RealtimeLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Linux takes the processor from real-time threads that leave others less than {} of {} ms, and \
             together the reservations may ask for more than the rest",
            (self.window_ns - self.most_ns) / 1_000_000,
            self.window_ns / 1_000_000
        )
    }
}

#[cfg(test)]
mod tests {
    use super::RealtimeLimit;
    use leasehold_reserve::{Contract, Policy};

    const MS: u64 = 1_000_000;

    fn contract(budget: u64, period: u64) -> Contract {
        Contract::new(budget * MS, period * MS).expect("a contract")
    }

    fn limit() -> RealtimeLimit {
        RealtimeLimit::parse("6.18.1-x", "-1", "1000000").expect("a limit")
    }

    #[test]
    fn a_host_that_takes_nothing_has_no_limit() {
        let old = "6.11.9";
        assert_eq!(RealtimeLimit::parse(old, "-1\n", "1000000\n"), None);
        assert_eq!(RealtimeLimit::parse(old, "1000000", "1000000"), None);
        assert_eq!(RealtimeLimit::parse("", "950000", "1000000"), None);
    }

    #[test]
    fn the_limit_is_the_smaller_of_what_throttling_and_the_fair_server_leave() {
        let most = |release, runtime| {
            let limit = RealtimeLimit::parse(release, runtime, "1000000\n");
            limit.map(RealtimeLimit::most_ns)
        };
        assert_eq!(most("5.10.0", "950000\n"), Some(930 * MS));
        assert_eq!(most("6.12.0\n", "-1\n"), Some(930 * MS));
        assert_eq!(most("6.12.0\n", "800000\n"), Some(780 * MS));
        assert_eq!(most("7.1-rc1\n", "990000\n"), Some(930 * MS));
    }

    #[test]
    fn reservations_that_leave_the_host_less_than_it_takes_are_not_allowed() {
        let allows = |reserved: &[Contract]| limit().allows(reserved);
        assert!(allows(&[]));
        assert!(allows(&[contract(45, 50), contract(3, 100)]));
        assert!(!allows(&[contract(45, 50), contract(4, 100)]));
        // One long budget, though a small share of the processor.
        assert!(allows(&[contract(930, 40_000)]));
        assert!(!allows(&[contract(931, 40_000)]));
        let several = [contract(500, 40_000), contract(500, 50_000)];
        assert!(!allows(&several));
        // Background tenants are not limited.
        assert!(allows(&[contract(930, 1000), Contract::background(MS)]));
    }

    #[test]
    fn a_deferrable_server_may_use_two_budgets_in_a_row() {
        let sporadic = contract(500, 1200);
        assert!(limit().allows(&[sporadic]));
        assert!(!limit().allows(&[sporadic.with_policy(Policy::Deferrable)]));
    }
}
