//! What the studies of processor reservations have in common: the alternatives they compare, the
//! machines they simulate, and the clock that counts cycles.

use leasehold_reserve::simulate::CostModel;
use leasehold_reserve::{Contract, Nanos, Policy, Priority, Shielding};

use crate::clock;
use crate::samples::Samples;

/// The two ways to handle timeouts that every study compares.
pub(crate) const SHIELDINGS: [Shielding; 2] = [Shielding::Eager, Shielding::Shielded];
/// The two ways to replenish budgets.
pub(crate) const POLICIES: [Policy; 2] = [Policy::Deferrable, Policy::Sporadic];

pub(crate) const MS: Nanos = 1_000_000;
pub(crate) const US: Nanos = 1_000;

/// As rows name it.
pub(crate) const fn shielding_name(shielding: Shielding) -> &'static str {
    match shielding {
        Shielding::Eager => "eager",
        Shielding::Shielded => "shielded",
    }
}

/// As rows name it.
pub(crate) const fn policy_name(policy: Policy) -> &'static str {
    match policy {
        Policy::Sporadic => "sporadic",
        Policy::Deferrable => "deferrable",
    }
}

/// A machine to simulate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Machine {
    /// The platform, as rows name it.
    pub(crate) platform: &'static str,
    pub(crate) costs: CostModel,
}

/// The machines that are simulated: a kernel that owns its timer, as SPR's prototype does, and a
/// cell in a virtual machine.
pub(crate) const MACHINES: [Machine; 2] = [
    Machine {
        platform: "simulator",
        costs: CostModel::BARE_METAL,
    },
    Machine {
        platform: "simulator-vm",
        costs: CostModel::VIRTUAL_MACHINE,
    },
];

/// A real cell, as rows name it.
pub(crate) const CELL: &str = "cell";

/// Where the attacks are played.
pub(crate) const PLATFORMS: [&str; 3] = [MACHINES[0].platform, MACHINES[1].platform, CELL];

/// What a reader must know of the simulated machines.
pub(crate) fn note_on_machines() -> String {
    let cost = |costs: CostModel| costs.preemption(1) as f64 / 1000.0;
    format!(
        "the real scheduler in virtual time; overheads are what it counts (reservations, timeouts, \
         replenishments) times a cost for each. simulator: a kernel that owns its timer, a \
         preemption takes {:.1} µs; simulator-vm: a cell in a virtual machine, {:.1} µs",
        cost(MACHINES[0].costs),
        cost(MACHINES[1].costs)
    )
}

/// A contract that a study knows to be valid.
///
/// # Panics
/// If it is not.
pub(crate) fn contract(
    budget: Nanos,
    period: Nanos,
    priority: u8,
    policy: Policy,
    replenishments: u32,
) -> Contract {
    Contract::new(budget, period)
        .and_then(|contract| contract.with_replenishments(replenishments))
        .expect("budgets of studies fit their periods")
        .with_priority(Priority(priority))
        .with_policy(policy)
}

/// The processor's time-stamp counter, which ticks at a constant rate whatever the processor does;
/// nanoseconds on processors that have none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cycles {
    /// What reading it twice takes.
    overhead: u64,
    per_nanosecond: f64,
}

impl Cycles {
    /// Finds out how fast it ticks and what reading it takes; some 20 ms.
    pub(crate) fn calibrate() -> Self {
        let (start, since) = (now(), clock::monotonic_ns());
        while clock::monotonic_ns() - since < 20_000_000 {}
        let (ticks, elapsed) = (now() - start, clock::monotonic_ns() - since);
        let readings: Samples = (0..1001)
            .map(|_| {
                let start = now();
                now() - start
            })
            .collect();
        Self {
            overhead: readings.p50().unwrap_or(0),
            per_nanosecond: ticks as f64 / elapsed as f64,
        }
    }

    /// Before what is timed.
    #[inline]
    pub(crate) fn start(&self) -> u64 {
        now()
    }

    /// Cycles since `start`, less what reading the counter takes.
    #[inline]
    pub(crate) fn stop(&self, start: u64) -> u64 {
        (now() - start).saturating_sub(self.overhead)
    }

    pub(crate) fn nanoseconds(&self, cycles: u64) -> u64 {
        (cycles as f64 / self.per_nanosecond).round() as u64
    }

    /// One line for a note.
    pub(crate) fn summary(&self) -> String {
        format!(
            "{:.2} cycles a nanosecond, less {} for reading it",
            self.per_nanosecond, self.overhead
        )
    }
}

/// The counter, once everything before it is done.
#[cfg(target_arch = "x86_64")]
#[inline]
fn now() -> u64 {
    // SAFETY: every x86-64 processor has both instructions; neither touches memory.
    unsafe {
        core::arch::x86_64::_mm_lfence();
        core::arch::x86_64::_rdtsc()
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn now() -> u64 {
    clock::monotonic_ns()
}
