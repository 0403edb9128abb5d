//! Response times under fixed priorities: SPR eq. (1).

use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::interference::{Interference, Line};
use super::request_bound::RequestBound;
use crate::contract::{Contract, Nanos, PERIOD_MAX, Policy};

/// Terms of request bounds that one analysis evaluates at most: a second or two. Ordinary sets of
/// 10,000 servers need a hundredth to a quarter of it; a set that is full to the last millionth can
/// need any number, for which an admission must not wait.
const EFFORT: u64 = 1 << 29;

/// The part of it that is spent on one of many analyses for one answer.
pub(crate) const MANY: u64 = 64;

/// Returns for every contract, in the given order, the least `R` with
///
/// ```text
/// I + b + Σ RBF_h(R) + Σ s_h ≤ R    (SPR eq. 1)
/// ```
///
/// if there is one with `R ≤ p`; then its server gets its budget within `R` of every replenishment,
/// regardless of the others. `I` is the longest non-preemptive region and
/// [step](Contract::longest_step) of a server of lower priority: one step may begin as its region
/// ends. The first sum is over all *other* servers of the same *or* a higher priority, the second
/// over these and the server itself.
///
/// *Departure:* the paper sums over `σ_h > σ` only. Its runqueue, and ours, are first in, first
/// out within a priority, so that servers of the same priority delay each other as well, each by
/// its request bound at most.
///
/// *Beyond the paper:* `s`, the longest non-preemptible step. A step that begins at the end of a
/// budget exceeds it. The overrun is subtracted from the next budget, so that in any window a
/// server takes at most one step more than its request bound.
///
/// The result is the least solution. If the set needs more effort than is spent on one analysis, it
/// is another solution within the period, or `None` if none is known.
///
/// Cost: one search for all sporadic servers of a priority, since each counts itself once within
/// its period, which makes their right-hand sides the same: `I` and the request bounds of this
/// priority and above. One more search for each deferrable server. A search takes a handful of
/// steps, each of which costs the number of different periods. Where one ended, the next one
/// begins: see `Level::respond`.
#[must_use]
pub fn response_times(contracts: &[Contract]) -> Vec<Option<Nanos>> {
    respond_within(contracts, Effort(EFFORT))
}

fn respond_within(contracts: &[Contract], mut effort: Effort) -> Vec<Option<Nanos>> {
    let mut responses = vec![None; contracts.len()];
    let mut least = 0;
    visit_levels(contracts, |level| {
        least = level.respond(contracts, least, &mut effort, &mut responses);
        true
    });
    responses
}

/// Whether every contract has a response time within its period. As a rule much cheaper than
/// [`response_times`]: most servers are decided by a straight line. Callers with a hundred
/// queries pass a `part` of the effort; a set that needs more does not fit.
#[must_use]
pub(crate) fn all_respond(contracts: &[Contract], part: u64) -> bool {
    let mut effort = Effort(EFFORT / part);
    let mut all = true;
    let mut least = 0;
    visit_levels(contracts, |level| {
        all = level.all_respond(contracts, &mut least, &mut effort);
        all
    });
    all
}

/// One server against the others in eq. (1), for the analysis of possible changes.
#[derive(Debug)]
pub(crate) struct Alone {
    interference: Interference,
    /// `I`, the longest non-preemptive region and step of a lower priority, and the longest step.
    pub(crate) blocking: Nanos,
    pub(crate) blocking_step: Nanos,
    /// The steps of this priority and above.
    pub(crate) steps: Nanos,
}

impl Alone {
    /// The server at `index`; cost: `n log n`.
    pub(crate) fn among(contracts: &[Contract], index: usize) -> Self {
        let own = contracts[index].priority();
        let mut interference = Interference::default();
        let (mut blocking, mut blocking_step, mut steps) = (0, 0, 0_u64);
        for (other, contract) in contracts.iter().enumerate() {
            if contract.priority() < own {
                blocking = blocking.max(contract.blocks());
                blocking_step = blocking_step.max(contract.longest_step());
                continue;
            }
            steps = steps.saturating_add(contract.longest_step());
            if other != index {
                interference.add(RequestBound::of(contract));
            }
        }
        Self {
            interference,
            blocking,
            blocking_step,
            steps,
        }
    }

    /// The response time of `own` nanoseconds, blocking and steps included, without regard to a
    /// period.
    pub(crate) fn response(&self, own: Nanos) -> Option<Nanos> {
        let mut effort = Effort(EFFORT / MANY);
        self.search(own)
            .least(0, PERIOD_MAX, &mut effort)
            .solution()
    }

    /// Whether `own` nanoseconds, blocking and steps included, are served within `period`.
    pub(crate) fn fits(&self, own: Nanos, period: Nanos) -> bool {
        let mut effort = Effort(EFFORT / MANY);
        self.search(own)
            .any(0, period, &mut effort)
            .solution()
            .is_some()
    }

    fn search(&self, own: Nanos) -> Search<'_> {
        Search {
            own,
            interference: &self.interference,
            apart: None,
            line: self.interference.line(),
        }
    }
}

/// The servers of one priority.
struct Level<'a> {
    sporadic: Vec<usize>,
    /// The largest budget first.
    deferrable: Vec<usize>,
    /// Request bounds of all servers of this priority and above.
    interference: &'a Interference,
    /// The longest non-preemptive region and step below, and all steps of this priority and above.
    blocking: Nanos,
}

impl Level<'_> {
    /// Finds the response times of this priority. Nothing below `begin` can be one; what is
    /// returned is the same for the next priority.
    ///
    /// The right-hand side of a server contains those of all above it: their request bounds are
    /// part of it, and a region and a step that they may have to wait for are either those that it may
    /// have to wait for too, or those of a server of its priority: that region is at most a budget of
    /// that one, and its step is part of it as well.
    ///
    /// Among deferrable servers, whatever solves the equation of one with a smaller budget `b′`
    /// is not below the solution `R` of one with `b ≥ b′`: up to `b`, both budgets have been
    /// requested and are more; beyond, the first server counts itself twice, so that its
    /// right-hand side is the common one less `b`, and that of the second less at most `b′`.
    fn respond(
        &self,
        contracts: &[Contract],
        begin: Nanos,
        effort: &mut Effort,
        responses: &mut [Option<Nanos>],
    ) -> Nanos {
        let mut next = begin;
        let periods = self.sporadic.iter().map(|&index| contracts[index].period());
        if let Some(longest) = periods.max() {
            let found = self.common().least(begin, longest, effort);
            next = next.max(found.reached());
            for &index in &self.sporadic {
                let within = |response: &Nanos| *response <= contracts[index].period();
                responses[index] = found.solution().filter(within);
            }
        }
        let mut begin = begin;
        for &index in &self.deferrable {
            let contract = &contracts[index];
            let found = self.of(contract).least(begin, contract.period(), effort);
            begin = begin.max(found.reached());
            responses[index] = found.solution();
        }
        next.max(begin)
    }

    /// As [`Self::respond`], but only whether all have a response time; each is looked for only if
    /// a straight line does not show it.
    fn all_respond(&self, contracts: &[Contract], begin: &mut Nanos, effort: &mut Effort) -> bool {
        let mut responds = |search: Search<'_>, begin: &mut Nanos, limit| {
            let found = search.any(*begin, limit, effort);
            *begin = found.reached().max(*begin);
            found.solution().is_some()
        };
        let (mut common, mut apart) = (*begin, *begin);
        let periods = self.sporadic.iter().map(|&index| contracts[index].period());
        let all = periods
            .min()
            .is_none_or(|least| responds(self.common(), &mut common, least))
            && self.deferrable.iter().all(|&index| {
                let contract = &contracts[index];
                responds(self.of(contract), &mut apart, contract.period())
            });
        *begin = common.max(apart);
        all
    }

    /// The search for all sporadic servers of this priority.
    fn common(&self) -> Search<'_> {
        Search {
            own: self.blocking,
            interference: self.interference,
            apart: None,
            line: self.interference.line(),
        }
    }

    /// The search for one server of this priority.
    fn of(&self, contract: &Contract) -> Search<'_> {
        let bound = RequestBound::of(contract);
        Search {
            own: contract.budget().saturating_add(self.blocking),
            interference: self.interference,
            apart: Some(bound),
            line: self.interference.line().without(&bound),
        }
    }
}

/// Visits priorities from the highest down, until `visit` says that it has seen enough.
fn visit_levels(contracts: &[Contract], mut visit: impl FnMut(&Level<'_>) -> bool) {
    let mut order: Vec<usize> = (0..contracts.len()).collect();
    order.sort_by_key(|&index| Reverse(contracts[index].priority()));
    let levels: Vec<&[usize]> = order
        .chunk_by(|&a, &b| contracts[a].priority() == contracts[b].priority())
        .collect();

    // The longest region and step of each level and those below it.
    let mut below = vec![0; levels.len() + 1];
    for (place, level) in levels.iter().enumerate().rev() {
        let regions = level.iter().map(|&index| contracts[index].blocks());
        below[place] = below[place + 1].max(regions.max().unwrap_or(0));
    }

    let mut interference = Interference::default();
    let mut steps = 0_u64;
    for (place, servers) in levels.into_iter().enumerate() {
        for &index in servers {
            interference.add(RequestBound::of(&contracts[index]));
            steps = steps.saturating_add(contracts[index].longest_step());
        }
        let (sporadic, mut deferrable): (Vec<usize>, Vec<usize>) = servers
            .iter()
            .partition(|&&index| contracts[index].policy() == Policy::Sporadic);
        deferrable.sort_unstable_by_key(|&index| Reverse(contracts[index].budget()));
        let level = Level {
            sporadic,
            deferrable,
            interference: &interference,
            blocking: below[place + 1].saturating_add(steps),
        };
        if !visit(&level) {
            return;
        }
    }
}

/// How many more terms may be evaluated.
struct Effort(u64);

impl Effort {
    fn spend(&mut self, terms: u64) -> bool {
        let affordable = self.0 >= terms;
        self.0 = self.0.saturating_sub(terms);
        affordable
    }
}

/// The search for an `x` with `own + Σ RBF(x) ≤ x`.
struct Search<'a> {
    own: Nanos,
    interference: &'a Interference,
    /// A bound that is part of `interference` and does not count.
    apart: Option<RequestBound>,
    /// Without `apart`.
    line: Line,
}

/// Where a search ended.
enum Found {
    /// The least solution.
    Least(Nanos),
    /// Some solution.
    Sufficient(Nanos),
    /// None within the limit, nor below this.
    None(Nanos),
}

impl Found {
    fn solution(&self) -> Option<Nanos> {
        match *self {
            Self::Least(x) | Self::Sufficient(x) => Some(x),
            Self::None(_) => None,
        }
    }

    /// No solution is below this.
    fn reached(&self) -> Nanos {
        match *self {
            Self::Least(x) | Self::None(x) => x,
            Self::Sufficient(_) => 0,
        }
    }
}

impl Search<'_> {
    /// Iterates from below, which ends at the least solution: the left-hand side grows with `x`,
    /// and no `x` passed by is a solution. Nothing below `begin` may be one.
    fn least(&self, begin: Nanos, limit: Nanos, effort: &mut Effort) -> Found {
        let Some(line) = self.line.least(self.own) else {
            return Found::None(begin);
        };
        let mut x = begin.max(line).max(self.own);
        while x <= limit {
            if !effort.spend(self.interference.terms()) {
                return match self.line.sufficient(self.own) {
                    Some(x) if x <= limit => Found::Sufficient(x),
                    _ => Found::None(x),
                };
            }
            let next = self.demand(x);
            if next <= x {
                return Found::Least(x);
            }
            x = next;
        }
        Found::None(x)
    }

    /// Any solution within `limit`, without iterating if the upper line shows one.
    fn any(&self, begin: Nanos, limit: Nanos, effort: &mut Effort) -> Found {
        match self.line.sufficient(self.own) {
            Some(x) if x <= limit => Found::Sufficient(x),
            _ => self.least(begin, limit, effort),
        }
    }

    /// `own + Σ RBF(x)`; saturates, and then exceeds every limit.
    fn demand(&self, x: Nanos) -> Nanos {
        let apart = self.apart.map_or(0, |bound| bound.within(x));
        let others = self.interference.within(x) - apart;
        others.saturating_add(self.own)
    }
}

#[cfg(test)]
mod tests {
    use super::{Effort, all_respond, respond_within, response_times};
    use crate::contract::{Contract, Policy, Priority};
    use alloc::vec::Vec;
    use proptest::prelude::{
        Just, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest,
    };

    fn contract(budget: u64, period: u64, priority: u8) -> Contract {
        Contract::new(budget, period)
            .unwrap()
            .with_priority(Priority(priority))
    }

    #[test]
    fn response_times_of_a_set_worked_out_by_hand() {
        let set = [contract(1, 4, 9), contract(2, 6, 8), contract(3, 13, 7)];
        assert_eq!(response_times(&set), [Some(1), Some(3), Some(10)]);
        // A region of 2 below delays all servers above by 2, and no other one: 1 + 2, 2 + 1 + 2.
        let last = contract(3, 13, 7).with_nonpreemptive(2).unwrap();
        assert_eq!(
            response_times(&[set[0], set[1], last]),
            [Some(3), Some(6), Some(10)]
        );
    }

    #[test]
    fn a_step_delays_those_above_once_and_those_below_beyond_the_budget() {
        let set = [contract(1, 4, 9), contract(2, 8, 8), contract(3, 20, 7)];
        assert_eq!(response_times(&set), [Some(1), Some(3), Some(7)]);
        // 1 + 2; then 2 + 2 · 1 + 2; then 3 + 3 · 1 + 2 · 2 + 2.
        let paging = [set[0], set[1].with_longest_step(2), set[2]];
        assert_eq!(response_times(&paging), [Some(3), Some(6), Some(12)]);
        // In the background it delays every server, as a step of a server without priority would.
        let background = [set[0], set[1], set[2], Contract::background(2)];
        assert_eq!(
            response_times(&background)[..3],
            [Some(3), Some(6), Some(12)]
        );
        let lowest = [contract(3, 20, 0), Contract::background(2)];
        assert_eq!(response_times(&lowest)[0], Some(6));
    }

    #[test]
    fn a_deferrable_server_delays_those_below_by_two_budgets_in_a_row() {
        let sporadic = contract(4, 10, 9);
        let deferrable = sporadic.with_policy(Policy::Deferrable);
        let below = contract(3, 20, 8);
        assert_eq!(response_times(&[sporadic, below]), [Some(4), Some(7)]);
        assert_eq!(response_times(&[deferrable, below]), [Some(4), Some(11)]);
    }

    #[test]
    fn servers_of_one_priority_delay_each_other() {
        let set = [contract(2, 10, 5), contract(3, 10, 5), contract(4, 10, 5)];
        assert_eq!(response_times(&set), [Some(9); 3]);
    }

    #[test]
    fn the_task_set_of_the_papers_examples_does_not_pass() {
        // SPR Table I: utilisation 1.0.
        let set = [
            contract(10, 30, 3),
            contract(20, 40, 2),
            contract(10, 60, 1),
        ];
        assert_eq!(response_times(&set), [Some(10), Some(30), None]);
        assert!(!all_respond(&set, 1));
    }

    /// Eq. (1) tried out instant by instant.
    fn by_trial(contracts: &[Contract]) -> Vec<Option<u64>> {
        let response =
            |i: usize| (1..=contracts[i].period()).find(|&x| demand(contracts, i, x) <= x);
        (0..contracts.len()).map(response).collect()
    }

    fn sets() -> impl Strategy<Value = Vec<Contract>> {
        let step = prop_oneof![3 => Just(0_u64), 1 => 1..9_u64];
        let server = (
            1..12_u64,
            0..120_u64,
            0..4_u8,
            any::<bool>(),
            0..12_u64,
            step,
        );
        let server = server.prop_map(|(budget, more, priority, deferrable, region, step)| {
            let policy = if deferrable {
                Policy::Deferrable
            } else {
                Policy::Sporadic
            };
            contract(budget, budget + more, priority)
                .with_policy(policy)
                .with_nonpreemptive(region.min(budget))
                .unwrap()
                .with_longest_step(step)
        });
        proptest::collection::vec(server, 1..9)
    }

    /// The left-hand side of eq. (1) at `x`.
    fn demand(contracts: &[Contract], i: usize, x: u64) -> u64 {
        let own = contracts[i];
        let below = contracts.iter().filter(|c| c.priority() < own.priority());
        let longest = |c: &Contract| c.nonpreemptive() + c.longest_step();
        let blocking = below.map(longest).max().unwrap_or(0);
        let above = contracts.iter().filter(|c| c.priority() >= own.priority());
        let steps: u64 = above.map(Contract::longest_step).sum();
        let requests = contracts.iter().enumerate().map(|(h, c)| {
            let late = match c.policy() {
                Policy::Sporadic => 0,
                Policy::Deferrable => c.period() - c.budget(),
            };
            let counts = h != i && c.priority() >= own.priority();
            u64::from(counts) * (x + late).div_ceil(c.period()) * c.budget()
        });
        blocking + steps + own.budget() + requests.sum::<u64>()
    }

    proptest! {
        #[test]
        fn with_too_little_effort_a_response_time_is_larger_or_not_found(
            set in sets(),
            effort in 0..30_u64,
        ) {
            let exact = by_trial(&set);
            for (i, found) in respond_within(&set, Effort(effort)).into_iter().enumerate() {
                if let Some(found) = found {
                    prop_assert!(exact[i].is_some_and(|least| least <= found));
                    prop_assert!(demand(&set, i, found) <= found && found <= set[i].period());
                }
            }
        }

        #[test]
        fn the_least_solution_of_eq_1_is_found(set in sets()) {
            let expected = by_trial(&set);
            prop_assert_eq!(all_respond(&set, 1), expected.iter().all(Option::is_some));
            prop_assert_eq!(response_times(&set), expected);
        }
    }
}
