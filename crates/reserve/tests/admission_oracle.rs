//! The admission test against an independent one: the crate `response-time-analysis`, whose
//! analyses follow proofs that were checked by machine (Bozhko and Brandenburg, ECRTS 2020).
//!
//! Eq. (1) is its analysis of fixed priorities with floating non-preemptive regions, where a
//! server is a task of cost `b` and period `p`, released with a jitter of `p − b` if it is
//! deferrable and delays others (SPR §III-G), and servers of the same priority count as
//! interfering.

use leasehold_reserve::admission::{fits, meets_deadlines, response_times};
use leasehold_reserve::simulate::SplitMix;
use leasehold_reserve::{Contract, Order, Policy, Priority};
use response_time_analysis::arrival::Sporadic;
use response_time_analysis::demand::RBF;
use response_time_analysis::time::{Duration, Service};
use response_time_analysis::wcet::Scalar;
use response_time_analysis::{edf, fixed_priority};

/// Sets compared with fixed priorities.
const SETS: u64 = 12_000;

/// The oracle gives up here: more than any period below. (In debug builds it tries every instant
/// as well, unless the limit is above 100,000.)
const LIMIT: u64 = 400_000;

/// 1 to 12 servers with periods of 10 to 100,000, of all magnitudes alike, which together use
/// about `load` thousandths of the processor.
fn random_set(random: &mut SplitMix, load: u64, policies: &[Policy]) -> Vec<Contract> {
    let servers = 1 + random.below(12);
    let server = |_| {
        let magnitude = 10 << random.below(14);
        let period = (magnitude + random.below(magnitude)).min(100_000);
        let share = 1 + random.below(2 * load / servers + 1);
        let budget = (period * share / 1_000).clamp(1, period);
        let region = match random.below(3) {
            0 => 0,
            _ => random.below(budget.min(1 + period / 20) + 1),
        };
        Contract::new(budget, period)
            .and_then(|contract| contract.with_nonpreemptive(region))
            .expect("a contract")
            // Few priorities, so that servers share them.
            .with_priority(Priority(random.below(8) as u8))
            .with_policy(policies[random.below(policies.len() as u64) as usize])
    };
    (0..servers).map(server).collect()
}

fn requests(contract: &Contract, jitter: u64) -> RBF<Sporadic, Scalar> {
    let arrivals = Sporadic::new(contract.period().into(), jitter.into());
    RBF::new(arrivals, Scalar::new(contract.budget().into()))
}

/// The oracle's response time of a server, if it is within the period.
fn by_oracle(contracts: &[Contract], index: usize) -> Option<u64> {
    let own = contracts[index];
    let interfering: Vec<_> = contracts
        .iter()
        .enumerate()
        .filter(|(other, c)| *other != index && c.priority() >= own.priority())
        .map(|(_, contract)| match contract.policy() {
            Policy::Sporadic => requests(contract, 0),
            Policy::Deferrable => requests(contract, contract.period() - contract.budget()),
        })
        .collect();
    let lower = contracts.iter().filter(|c| c.priority() < own.priority());
    let blocking = lower.map(Contract::nonpreemptive).max().unwrap_or(0);
    let analysed = fixed_priority::floating_nonpreemptive::TaskUnderAnalysis {
        rbf: &requests(&own, 0),
        blocking_bound: Service::from(blocking),
    };
    let limit = Duration::from(LIMIT);
    let found = fixed_priority::floating_nonpreemptive::dedicated_uniproc_rta(
        &analysed,
        &interfering,
        limit,
    );
    let response = found.ok().map(u64::from)?;
    (response <= own.period()).then_some(response)
}

#[test]
fn eq_1_equals_the_machine_checked_analysis_on_random_sets() {
    let (mut kept, mut broken) = (0, 0);
    for number in 0..SETS {
        let load = 200 + number % 700;
        let both = [Policy::Sporadic, Policy::Deferrable];
        let set = random_set(&mut SplitMix::new(number), load, &both);
        let expected: Vec<_> = (0..set.len()).map(|i| by_oracle(&set, i)).collect();
        assert_eq!(response_times(&set), expected, "set {number}: {set:?}");
        let all = expected.iter().all(Option::is_some);
        assert_eq!(fits(&set, Order::FixedPriority), all, "set {number}");
        kept += expected.iter().flatten().count();
        broken += expected
            .iter()
            .filter(|response| response.is_none())
            .count();
    }
    // The comparison means something only if both answers are common.
    assert!(
        kept > 30_000 && broken > 10_000,
        "{kept} kept, {broken} not"
    );
}

/// The oracle's response time under earliest deadline first with floating non-preemptive regions;
/// `None` if it gives up, because the processor is never idle for long.
fn by_deadline_oracle(contracts: &[Contract], index: usize) -> Option<u64> {
    let bounds: Vec<_> = contracts.iter().map(|c| requests(c, 0)).collect();
    let others: Vec<_> = (0..contracts.len())
        .filter(|other| *other != index)
        .map(|other| edf::floating_nonpreemptive::InterferingTask {
            rbf: &bounds[other],
            deadline: contracts[other].period().into(),
            // A segment of this length has begun, so that one less is to wait for.
            max_np_segment: Service::from(contracts[other].nonpreemptive() + 1),
        })
        .collect();
    let analysed = edf::floating_nonpreemptive::TaskUnderAnalysis {
        rbf: &bounds[index],
        deadline: contracts[index].period().into(),
    };
    let limit = Duration::from(LIMIT);
    edf::floating_nonpreemptive::dedicated_uniproc_rta(&analysed, &others, limit)
        .ok()
        .map(u64::from)
}

#[test]
fn servers_that_are_promised_their_deadlines_meet_them_by_the_oracle_too() {
    let mut compared = 0;
    for number in 0..3_000 {
        let load = 300 + number % 600;
        let set = random_set(&mut SplitMix::new(!number), load, &[Policy::Sporadic]);
        for (index, meets) in meets_deadlines(&set).into_iter().enumerate() {
            if meets && let Some(response) = by_deadline_oracle(&set, index) {
                compared += 1;
                let period = set[index].period();
                assert!(response <= period, "{index} of set {number}: {set:?}");
            }
        }
    }
    assert!(compared > 5_000, "{compared} compared");
}
