//! Measures the cost of decisions: a batch of replenishments (SPR table II), and an invocation of
//! the scheduler by the number of servers, priorities, tasks and attackers.
//!
//! `cargo bench -p leasehold-reserve --bench schedule`

use std::hint::black_box;
use std::time::Instant;

use leasehold_reserve::{
    Config, Contract, Nanos, Order, Policy, Priority, Scheduler, Shielding, SporadicAccount,
};

/// Accounts that are processed between two readings of the clock.
const BATCH: usize = 64;
const SAMPLES: usize = 20_000;

/// The time-stamp counter, or nanoseconds where there is none.
fn cycles() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has the instruction; it touches no memory.
    unsafe {
        core::arch::x86_64::_mm_lfence();
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        use std::sync::OnceLock;
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed().as_nanos() as u64
    }
}

/// An account whose queue is full: it suspended itself after every unit, `spacing` apart.
fn full(replenishments: u32, spacing: Nanos) -> SporadicAccount {
    let contract = Contract::new(u64::from(replenishments), 1_000_000)
        .and_then(|contract| contract.with_replenishments(replenishments))
        .expect("a valid contract");
    let mut account = SporadicAccount::new(&contract, 0);
    for i in 0..u64::from(replenishments) {
        let now = i * (spacing + 1);
        account.resume(now, now);
        account.charge(1);
        account.suspend(now + 1);
    }
    assert_eq!(account.replenishments().count(), replenishments as usize);
    account
}

/// Returns the average cost of `what` on fresh copies of an account, without the slowest hundredth
/// of the batches, which other work of the machine disturbed, and the cost in the worst batch.
fn batch(account: &SporadicAccount, mut what: impl FnMut(&mut SporadicAccount)) -> (f64, f64) {
    let mut accounts = vec![account.clone(); BATCH];
    let mut samples = Vec::with_capacity(SAMPLES);
    for _ in 0..SAMPLES {
        accounts.fill(account.clone());
        let start = cycles();
        for account in black_box(&mut accounts[..]) {
            what(account);
        }
        samples.push((cycles() - start) as f64 / BATCH as f64);
    }
    samples.sort_by(f64::total_cmp);
    let most = &samples[..SAMPLES * 99 / 100];
    let average = most.iter().sum::<f64>() / most.len() as f64;
    (average, samples[SAMPLES - 1])
}

fn batches() {
    println!("processing a full replenishment queue, cycles: average (worst batch of {BATCH})");
    println!("    S      all due   but the last   walked for Alg. 2   paper");
    for (replenishments, paper) in [(1, 52), (4, 61), (16, 95), (32, 159), (64, 0)] {
        let account = full(replenishments, 9);
        let end = 1_000_000 + 10 * u64::from(replenishments);
        let all = batch(&account, |account| {
            black_box(account.resume(end, end));
        });
        // The last entry was used from 10 (S - 1) on.
        let some = batch(&account, |account| {
            let now = end - 11;
            black_box(account.resume(now, now));
        });
        let dense = full(replenishments, 0);
        let walk = batch(&dense, |account| {
            black_box(account.depletion(1_000_000));
        });
        println!(
            "{replenishments:5} {:5.1} ({:5.0}) {:6.1} ({:5.0}) {:10.1} ({:5.0}) {paper:8}",
            all.0, all.1, some.0, some.1, walk.0, walk.1
        );
    }
}

/// A scheduler with `servers` of which `awake` wake up, run for a unit and sleep again, over and
/// over, spread over `priorities`; returns the median cost of an event and its decision in
/// nanoseconds, and what 99 of 100 take at most.
fn decisions(
    order: Order,
    policy: Policy,
    servers: u32,
    awake: u32,
    priorities: u32,
) -> (f64, f64) {
    let mut scheduler = Scheduler::new(Config {
        order,
        shielding: Shielding::Shielded,
        servers,
        tasks: servers,
        seed: 0,
    });
    let period = 1_000_000_000;
    let mut tasks = Vec::new();
    for i in 0..servers {
        let contract = Contract::new(period / u64::from(servers.max(2)) / 2, period)
            .expect("a valid contract")
            .with_priority(Priority((i % priorities) as u8))
            .with_policy(policy);
        let server = scheduler.add_server(&contract, 0).expect("there is room");
        let task = scheduler.add_task(server).expect("there is room");
        // The others sleep until long after the end.
        let until = if i < awake {
            u64::from(i) * 97 % 1_000_003
        } else {
            u64::MAX / 8 - u64::from(i)
        };
        scheduler.block(task, 0, Some(until)).expect("it exists");
        tasks.push(task);
    }
    let mut samples = Vec::new();
    let mut decision = scheduler.schedule(0);
    let mut now = 0;
    let rounds = 20_000;
    let mut ops = 0;
    while samples.len() < rounds {
        // The running task sleeps after 50 ns; otherwise the next timer fires.
        let start = Instant::now();
        for _ in 0..16 {
            if let Some(task) = decision.run {
                now += 50;
                scheduler
                    .block(task, now, Some(now + 500_000 + (ops * 7919) % 1_000_003))
                    .expect("it exists");
                decision = scheduler.schedule(now);
            } else {
                now = decision.timer.expect("a task sleeps");
                decision = scheduler.schedule(now);
            }
            ops += 1;
        }
        samples.push(start.elapsed().as_nanos() as f64 / 16.0);
    }
    samples.sort_by(f64::total_cmp);
    (samples[rounds / 2], samples[rounds * 99 / 100])
}

fn main() {
    batches();
    for (order, policy) in [
        (Order::FixedPriority, Policy::Sporadic),
        (Order::FixedPriority, Policy::Deferrable),
        (Order::EarliestDeadline, Policy::Sporadic),
    ] {
        println!("\none event and its decision, {order:?}, {policy:?}, ns: median (99 %)");
        println!("  servers, all awake at      1 priority    256 priorities, 8 awake of them");
        for servers in [1, 10, 100, 1_000, 10_000] {
            print!("{servers:9}               ");
            for (awake, priorities) in [(servers, 1), (servers, 256), (8, 256)] {
                let (median, tail) = decisions(order, policy, servers, awake, priorities);
                print!("   {median:5.0} ({tail:5.0})");
            }
            println!();
        }
    }
}
