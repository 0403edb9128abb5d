//! Measures the duration of the admission test by the number of servers and the difficulty of their
//! set.
//!
//! `cargo bench -p leasehold-reserve --bench admission`

use std::hint::black_box;
use std::time::Instant;

use leasehold_reserve::admission::{Overhead, admit, fits, headroom};
use leasehold_reserve::simulate::SplitMix;
use leasehold_reserve::{Contract, Order, Policy, Priority};

const OVERHEAD: Overhead = Overhead {
    per_preemption: 5_000,
};

/// `servers` that share `load` thousandths of the processor, the shorter its period, the higher
/// the priority. Periods of 10 ms to 10 s: eight different ones, or as many as servers.
fn set(servers: u64, load: u64, different: bool, policy: Policy) -> Vec<Contract> {
    let mut random = SplitMix::new(servers ^ load);
    let contract = |_| {
        let magnitude = random.below(8);
        let exact = 10_000_000 << magnitude;
        let period = match different {
            true => exact + random.below(exact),
            false => exact,
        };
        let budget = (period * load / 1_000 / servers).max(1);
        Contract::new(budget, period)
            .and_then(|contract| contract.with_nonpreemptive(budget / 10))
            .expect("a contract")
            .with_priority(Priority(255 - 30 * magnitude as u8))
            .with_policy(policy)
    };
    (0..servers).map(contract).collect()
}

fn milliseconds(what: impl FnOnce()) -> f64 {
    let start = Instant::now();
    what();
    start.elapsed().as_secs_f64() * 1e3
}

fn main() {
    println!("milliseconds; `kept`: servers whose contract can be kept");
    println!(
        "{:>8} {:>6} {:>9} {:>11} {:>18} {:>8} {:>9} {:>9} {:>9}",
        "servers", "load", "periods", "policy", "order", "kept", "admit", "fits", "headroom"
    );
    for servers in [100, 1_000, 10_000] {
        for (load, different, policy, order) in [
            (700, false, Policy::Sporadic, Order::FixedPriority),
            (700, true, Policy::Sporadic, Order::FixedPriority),
            (700, true, Policy::Deferrable, Order::FixedPriority),
            (950, true, Policy::Sporadic, Order::FixedPriority),
            (999, true, Policy::Sporadic, Order::FixedPriority),
            (1_200, true, Policy::Sporadic, Order::FixedPriority),
            (950, true, Policy::Sporadic, Order::EarliestDeadline),
        ] {
            let set = set(servers, load, different, policy);
            let mut kept = 0;
            let admit_ms = milliseconds(|| {
                let report = admit(&set, order, OVERHEAD);
                kept = report.servers.iter().filter(|s| s.schedulable()).count();
            });
            let fits_ms = milliseconds(|| {
                black_box(fits(&set, order));
            });
            let headroom_ms = milliseconds(|| {
                black_box(headroom(&set, order, OVERHEAD, 0, |_| true));
            });
            println!(
                "{servers:>8} {:>5.1}% {:>9} {:>11} {:>18} {kept:>8} {admit_ms:>9.2} {fits_ms:>9.2} {headroom_ms:>9.1}",
                load as f64 / 10.0,
                if different { "different" } else { "eight" },
                format!("{policy:?}").to_lowercase(),
                format!("{order:?}"),
            );
        }
    }
}
