//! Timers against a sorted list, across nested tenants.

mod common;

use common::sized;
use leasehold_kernel::{ExecutionId, Kernel, Outcome, Selector, TenantId, Wake};
use leasehold_reclaim::{HeapBacking, Mode};
use proptest::prelude::{any, prop, proptest};

fn nested(kernel: &mut Kernel<HeapBacking>, levels: usize) -> Vec<TenantId> {
    let mut tenants = vec![kernel.admit(1_000_000, 0).expect("root")];
    for level in 1..levels {
        let parent = tenants[(level - 1) / 2];
        let child = kernel
            .tenant_create(parent, 100_000 >> level, 0)
            .expect("child");
        tenants.push(kernel.tenant_of(parent, child).expect("alive"));
    }
    tenants
}

/// A timer of the model: its tenant, its selector, when it fires, its period, how often it fired.
struct Timer(usize, Selector, Option<u64>, u64, u64);

proptest! {
    #[test]
    fn timers_fire_when_a_sorted_list_says(ops in prop::collection::vec(any::<(u8, u8, u16, u8)>(), 1..200)) {
        let mut kernel = sized(Mode::Grouped, 16 << 20, 8);
        let tenants = nested(&mut kernel, 7);
        let waiters: Vec<_> = (0..7u64).map(ExecutionId).collect();
        for (&tenant, &waiter) in tenants.iter().zip(&waiters) {
            kernel.register_execution(tenant, waiter).expect("registered");
        }
        let mut alive = [true; 7];
        let mut timers: Vec<Timer> = Vec::new();
        let mut announced = None;
        let mut now = 0u64;
        for (what, which, after, period) in ops {
            let owner = usize::from(which) % 7;
            let chosen = usize::from(which) % timers.len().max(1);
            match what % 8 {
                0 | 1 if alive[owner] => {
                    let timer = kernel.timer_create(tenants[owner]).expect("timer");
                    timers.push(Timer(owner, timer, None, 0, 0));
                }
                2..=4 if chosen < timers.len() => {
                    let Timer(owner, timer, deadline, every, _) = &mut timers[chosen];
                    let (after, period) = (u64::from(after % 500), u64::from(period % 64));
                    kernel.timer_set(tenants[*owner], *timer, now, after, period).expect("set");
                    *deadline = Some(now + after.max(10));
                    *every = if period == 0 { 0 } else { period.max(10) };
                }
                5 if chosen < timers.len() => {
                    let Timer(owner, timer, ..) = timers.swap_remove(chosen);
                    kernel.capability_drop(tenants[owner], timer).expect("dropped");
                }
                6 if chosen < timers.len() => {
                    let Timer(owner, timer, _, _, fired) = &mut timers[chosen];
                    let waited = kernel.timer_wait(tenants[*owner], waiters[*owner], *timer);
                    match core::mem::take(fired) {
                        0 => assert_eq!(waited, Ok(Outcome::Blocked)),
                        n => assert_eq!(waited, Ok(Outcome::Done(n))),
                    }
                    kernel.cancel_wait(waiters[*owner]);
                }
                7 if which % 16 == 0 => {
                    let dead = 1 + usize::from(after) % 6;
                    let ended = kernel.end(tenants[dead], &mut |_| {});
                    assert_eq!(ended.is_ok(), alive[dead]);
                    for tenant in dead..7 {
                        let parent = if tenant == dead { None } else { Some((tenant - 1) / 2) };
                        alive[tenant] &= tenant != dead && parent.is_none_or(|parent| alive[parent]);
                    }
                    timers.retain(|timer| alive[timer.0]);
                }
                _ => {
                    now += u64::from(after % 300);
                    let mut due = 0;
                    for Timer(_, _, deadline, period, fired) in &mut timers {
                        let Some(first) = deadline.filter(|&first| first <= now) else { continue };
                        due += 1;
                        let passed = (now - first).checked_div(*period).map_or(0, |n| n);
                        *fired += passed + 1;
                        *deadline = (*period > 0).then(|| first + (passed + 1) * *period);
                    }
                    assert_eq!(kernel.expire(tenants[0], now, u32::MAX), due);
                }
            }
            let earliest = timers.iter().filter_map(|timer| timer.2).min();
            assert_eq!(kernel.next_deadline(tenants[0]), earliest);
            if let Some((tenant, deadline)) = kernel.next_rearmed() {
                assert_eq!((tenant, deadline), (tenants[0], earliest));
                announced = earliest;
            }
            assert_eq!(announced, earliest, "every change is announced");
            assert_eq!(kernel.next_rearmed(), None, "and once");
        }
    }
}

#[test]
fn an_expiry_wakes_one_waiter_and_no_more_timers_than_asked_for_fire() {
    let mut kernel = sized(Mode::Grouped, 1 << 20, 8);
    let tenant = kernel.admit(1_000_000, 0).expect("admitted");
    let waiter = ExecutionId(1);
    kernel
        .register_execution(tenant, waiter)
        .expect("registered");
    let timers = [(); 3].map(|()| kernel.timer_create(tenant).expect("timer"));
    for (timer, after) in timers.into_iter().zip([30, 10, 20]) {
        kernel.timer_set(tenant, timer, 0, after, 0).expect("set");
    }
    assert_eq!(
        kernel.timer_wait(tenant, waiter, timers[1]),
        Ok(Outcome::Blocked)
    );
    assert_eq!(kernel.expire(tenant, 9, 8), 0);
    assert_eq!(kernel.expire(tenant, 100, 1), 1);
    assert_eq!(kernel.next_wake(), Some((waiter, Wake::Ready)));
    assert_eq!(
        kernel.timer_wait(tenant, waiter, timers[1]),
        Ok(Outcome::Done(1))
    );
    assert_eq!(kernel.next_deadline(tenant), Some(20));
    assert_eq!(kernel.expire(tenant, 100, 8), 2);
}

#[test]
fn each_tenants_timers_are_fired_and_announced_apart_from_all_others() {
    let mut kernel = sized(Mode::Grouped, 1 << 20, 8);
    let tenants = [(); 3].map(|()| kernel.admit(1_000_000, 0).expect("admitted"));
    for (tenant, after) in tenants.into_iter().zip([30, 10, 20]) {
        let timer = kernel.timer_create(tenant).expect("timer");
        kernel.timer_set(tenant, timer, 0, after, 0).expect("set");
    }
    kernel.end(tenants[0], &mut |_| {}).expect("ended");
    let mut announced: Vec<_> = std::iter::from_fn(|| kernel.next_rearmed()).collect();
    announced.sort_by_key(|&(_, deadline)| deadline);
    assert_eq!(
        announced,
        [(tenants[1], Some(10)), (tenants[2], Some(20))],
        "not the one that has ended"
    );
    assert_eq!(kernel.expire(tenants[2], 100, 8), 1);
    assert_eq!(kernel.next_rearmed(), Some((tenants[2], None)));
    assert_eq!(kernel.next_deadline(tenants[1]), Some(10), "still to fire");
}
