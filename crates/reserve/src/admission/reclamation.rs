//! From the kill of a tenant to the end of its reclamation, in wall time.
//!
//! Ending a tenant runs under the tenant's own reservation, so that nobody else pays for it. What
//! is charged for it in advance, the reclamation budget `C`, is processor time; how long that
//! takes on the clock depends on the contract `(b, p)` and on the response time `R` of its budget.
//!
//! Let `C = n·b + r` with `0 < r ≤ b`. The tenant can have used up its budget just before it is
//! killed, so nothing runs until budget comes back. From then on the server is always ready, and
//! every period brings one whole budget, served within `R`; the last part of it, `r`, is served
//! within `R − (b − r)`, because `b − r` less to do is as much less to wait for at least. So the
//! end comes within
//!
//! ```text
//! W + n·p + R − (b − r)
//! ```
//!
//! of the kill, where `W` is the longest time until a budget has come back as a whole:
//!
//! * *deferrable:* `p − b`. Budgets come back at multiples of the period, and using one up takes
//!   `b` at least.
//! * *sporadic:* `p`, if one replenishment is tracked: what is used at an instant comes back a
//!   period later, and earlier pieces wait for the last. A tenant can cut its budget like that
//!   just before its end. If `S > 1` are tracked, pieces come back by then as well, but a piece
//!   that has to wait for the processor until the next one is due is joined with it from then on
//!   (SPR Alg. 3 lines 1 to 3), and comes back at the time of the later one. A piece waits `R − b`
//!   at most, there are `S − 1` gaps to cross, and all of them together are a period: so
//!   `p + min(p, (S − 1)(R − b))`.
//! * *hard constant-bandwidth:* `p − b`, with `R = p`: budgets come back at deadlines.
//!
//! A tenant could have cut its budget into as many pieces as are tracked, and a preemption may be paid
//! for each of them, in every period until its end. So when the end begins, what is pending becomes one
//! piece ([`while_ending`]): two are left, what there is and what comes back. `S` above is 2 at most.
//!
//! A sporadic budget that was used in one piece has `W = p − b` too. With that, this is the inverse of
//! the supply bound function of the explicit deadline periodic resource model (Easwaran, Anand and Lee, RTSS 2007), with `R` for its deadline.
//!
//! The rule of thumb `⌈C/b⌉ · p` is what remains of it if the response time is short.

use crate::config::Order;
use crate::contract::{Contract, Nanos, Policy};

/// Pieces that the budget of a tenant has at most while it ends: what is there, and what comes back.
const PIECES: u32 = 2;

/// The contract of a tenant from the begin of its end on: that of its life, with fewer replenishments
/// tracked. To be given to [`change_server`](crate::Scheduler::change_server) then, under fixed
/// priorities; [`reclaimed_within`] relies on it.
#[must_use]
pub fn while_ending(contract: &Contract) -> Contract {
    let pieces = contract.replenishments().min(PIECES);
    contract.with_replenishments(pieces).unwrap_or(*contract)
}

/// How often in a period a server that is always ready is dispatched because budget has come back.
pub(super) fn pieces(contract: &Contract, order: Order) -> u32 {
    match (order, contract.policy()) {
        (Order::FixedPriority, Policy::Sporadic) => while_ending(contract).replenishments(),
        (Order::FixedPriority, Policy::Deferrable) | (Order::EarliestDeadline, _) => 1,
    }
}

/// The longest time from the kill of a tenant until `reclaim > 0` nanoseconds of work were done
/// under its reservation, if `response` is the bound on its response time from the admission of
/// the whole set. `None`: more than a [`Nanos`].
///
/// The work is the only task of the server from the kill on, and does not block; its contract is that
/// [of an end](while_ending) from then on. What the tenant overran its budget by before (SPR Alg. 1)
/// is to be added to `reclaim`, as is what preemption costs the work ([`Loss`](super::Loss)).
///
/// ```
/// use leasehold_reserve::admission::reclaimed_within;
/// use leasehold_reserve::{Contract, Order, Policy};
///
/// // 5 ms of work at 2 ms in every 10 ms, which are served within 3 ms.
/// let contract = Contract::new(2_000_000, 10_000_000)?.with_policy(Policy::Deferrable);
/// let bound = reclaimed_within(&contract, Order::FixedPriority, 3_000_000, 5_000_000);
/// assert_eq!(bound, Some(30_000_000)); // 8 until there is budget, 2 · 10, 3 − (2 − 1)
/// # Ok::<(), leasehold_reserve::ContractError>(())
/// ```
#[must_use]
pub fn reclaimed_within(
    contract: &Contract,
    order: Order,
    response: Nanos,
    reclaim: Nanos,
) -> Option<Nanos> {
    let (budget, period) = (u128::from(contract.budget()), u128::from(contract.period()));
    let wait = match (order, contract.policy()) {
        (Order::FixedPriority, Policy::Sporadic) => {
            let gaps = u128::from(pieces(contract, order)) - 1;
            let wait = u128::from(response.saturating_sub(contract.budget()));
            period + period.min(gaps * wait)
        }
        (Order::FixedPriority, Policy::Deferrable) | (Order::EarliestDeadline, _) => {
            period - budget
        }
    };
    let whole = u128::from(reclaim.saturating_sub(1)) / budget;
    let rest = u128::from(reclaim.max(1)) - whole * budget;
    let last = u128::from(response).saturating_sub(budget - rest);
    Nanos::try_from(wait + whole * period + last).ok()
}
