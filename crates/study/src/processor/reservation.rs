//! The common part of the studies of processor reservations: the compared alternatives and the
//! simulated machines.

use leasehold_reserve::simulate::CostModel;
use leasehold_reserve::{Contract, Nanos, Policy, Priority, Shielding};
use serde_json::Value;

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

/// The text of a platform in rows: whether it is simulated, and if so, which machine.
pub(crate) fn platform_keys(platform: &str) -> [(&'static str, Value); 2] {
    let machine = match platform {
        CELL => None,
        _ if platform == MACHINES[0].platform => Some("bare"),
        _ => Some("vm"),
    };
    let kind = machine.map_or(CELL, |_| MACHINES[0].platform);
    [("platform", kind.into()), ("machine", machine.into())]
}

/// Notes for the reader on the simulated machines.
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

#[cfg(test)]
mod tests {
    use super::{CELL, PLATFORMS, platform_keys};
    use serde_json::{Value, json};

    #[test]
    fn a_row_is_of_the_simulator_and_a_machine_or_of_a_cell() {
        let told = PLATFORMS.map(|platform| platform_keys(platform).map(|(_, value)| value));
        assert_eq!(told[0], [json!("simulator"), json!("bare")]);
        assert_eq!(told[1], [json!("simulator"), json!("vm")]);
        assert_eq!(told[2], [json!(CELL), Value::Null]);
    }
}
