//! The wall time from the kill of a tenant to the end of its reclamation.
//!
//! The end of a tenant runs under its own reservation, so that no other tenant pays for it. Its
//! charge, the reclamation budget `C`, is processor time. The wall time depends on the contract
//! `(b, p)` and on the response time `R` of its budget.
//!
//! Let `C = n·b + r` with `0 < r ≤ b`. The tenant can have used up its budget just before it is
//! killed, so nothing runs until budget comes back. From then on the server is always ready, and
//! every period brings one whole budget, served within `R`; the last part, `r`, is served within `R
//! − (b − r)`, because `b − r` less work shortens the response time by at least as much. So the end
//! comes within
//!
//! ```text
//! W + n·p + R − (b − r)
//! ```
//!
//! of the kill, where `W` is the longest time until a whole budget is replenished:
//!
//! * *deferrable:* `p − b`. Budgets are replenished at multiples of the period, and depleting one
//!   takes at least `b`.
//! * *sporadic:* `p`, if one replenishment is tracked: budget used at an instant is replenished a
//!   period later, and earlier pieces wait for the last. A tenant can fragment its budget like that
//!   just before its end. If `S > 1` are tracked, pieces are replenished by then as well. But a
//!   piece that waits for the processor until the next one is due is merged with it (SPR Alg. 3
//!   lines 1 to 3), and is replenished at the later time. A piece waits `R − b` at most, there are
//!   `S − 1` gaps to cross, and all of them together are a period: so `p + min(p, (S − 1)(R − b))`.
//! * *hard constant-bandwidth:* `p − b`, with `R = p`: budgets come back at deadlines.
//!
//! A tenant could have fragmented its budget into as many pieces as are tracked, and pay a
//! preemption for each of them in every period until its end. So when the end begins, the pending
//! replenishments are merged into one ([`while_ending`]). Two pieces are left: the available one
//! and the pending one. `S` above is therefore at most 2.
//!
//! A sporadic budget that was used in one piece has `W = p − b` too. With that, this is the inverse of the
//! supply bound function of the explicit deadline periodic resource model (Easwaran, Anand and Lee, RTSS 2007),
//! with `R` for its deadline.
//!
//! For short response times it approaches the rule of thumb `⌈C/b⌉ · p`.

use crate::config::Order;
use crate::contract::{Contract, Nanos, Policy};

/// The most pieces of a tenant's budget while it ends: the available one and the pending one.
const PIECES: u32 = 2;

/// Returns the contract of an ending tenant: its own, with fewer tracked replenishments. Under
/// fixed priorities the caller passes their number to
/// [`join_replenishments`](crate::Scheduler::join_replenishments) when the end begins;
/// [`reclaimed_within`] relies on that.
#[must_use]
pub fn while_ending(contract: &Contract) -> Contract {
    let pieces = contract.replenishments().min(PIECES);
    contract.with_replenishments(pieces).unwrap_or(*contract)
}

/// Returns how often in a period an always ready server is dispatched because of a replenishment.
pub(super) fn pieces(contract: &Contract, order: Order) -> u32 {
    match (order, contract.policy()) {
        (Order::FixedPriority, Policy::Sporadic) => while_ending(contract).replenishments(),
        (Order::FixedPriority, Policy::Deferrable) | (Order::EarliestDeadline, _) => 1,
    }
}

/// Returns the longest time from the kill of a tenant until `reclaim > 0` nanoseconds of work are
/// done under its reservation, if `response` is the bound on its response time from the admission
/// of the whole set. `None`: more than a [`Nanos`].
///
/// The work is the only task of the server from the kill on, and does not block; its contract is
/// that [of an end](while_ending) from then on. The caller adds to `reclaim` the tenant's earlier
/// overrun (SPR Alg. 1) and the cost of preemptions ([`Loss`](super::Loss)).
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
