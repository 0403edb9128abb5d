//! The guarantees of ends of tenants.

mod common;

use common::{costs, sized};
use leasehold_kernel::{Errno, ExecutionId, Kernel, Outcome, Rights, Selector, TenantId, Wake};
use leasehold_reclaim::{HeapBacking, Mode, Picos};

const BUDGET_NS: u64 = 1_000_000;
const MODES: [Mode; 2] = [Mode::Grouped, Mode::Individual];

type K = Kernel<HeapBacking>;

fn kernel(mode: Mode) -> K {
    sized(mode, 16 << 20, 64)
}

fn ignore(_: ExecutionId) {}

/// A client with a semaphore, and a service in another tree that was granted `links` waits.
fn foreign(kernel: &mut K, links: u32) -> (TenantId, Selector, TenantId, Selector) {
    let client = kernel.admit(BUDGET_NS, 0).expect("client");
    let service = kernel.admit(BUDGET_NS, 0).expect("service");
    let own = kernel.semaphore_create(client, 0).expect("semaphore");
    let theirs = kernel
        .connect(client, own, service, Rights::READ, links)
        .expect("connected");
    (client, own, service, theirs)
}

fn charged(kernel: &K, tenant: TenantId, class: &str) -> u64 {
    let statement = kernel.statement(tenant).expect("alive");
    statement
        .rows
        .iter()
        .find(|row| row.name == class)
        .map_or(0, |row| row.count)
}

fn left(kernel: &K, tenant: TenantId) -> Picos {
    kernel.statement(tenant).expect("alive").left
}

fn run(kernel: &mut K, tenant: TenantId, ids: core::ops::Range<u64>) -> Vec<ExecutionId> {
    ids.map(|id| {
        kernel
            .register_execution(tenant, ExecutionId(id))
            .expect("registered");
        ExecutionId(id)
    })
    .collect()
}

#[test]
fn ending_a_client_wakes_a_foreign_waiter_with_gone() {
    for mode in MODES {
        let mut kernel = kernel(mode);
        let (client, _, service, theirs) = foreign(&mut kernel, 1);
        let waiter = run(&mut kernel, service, 1..2)[0];
        assert_eq!(
            kernel.semaphore_down(service, waiter, theirs),
            Ok(Outcome::Blocked)
        );
        assert_eq!(kernel.next_wake(), None);
        kernel.end(client, &mut ignore).expect("ended");
        assert_eq!(kernel.next_wake(), Some((waiter, Wake::Gone)));
        assert_eq!(kernel.next_wake(), None);
        assert_eq!(
            kernel.semaphore_down(service, waiter, theirs),
            Err(Errno::Gone)
        );
    }
}

#[test]
fn ending_a_foreign_tenant_takes_it_out_of_the_queue() {
    for mode in MODES {
        let mut kernel = kernel(mode);
        let (client, own, service, theirs) = foreign(&mut kernel, 1);
        let before = run(&mut kernel, client, 1..2)[0];
        let waiter = run(&mut kernel, service, 2..3)[0];
        let after = run(&mut kernel, client, 3..4)[0];
        assert_eq!(
            kernel.semaphore_down(client, before, own),
            Ok(Outcome::Blocked)
        );
        assert_eq!(
            kernel.semaphore_down(service, waiter, theirs),
            Ok(Outcome::Blocked)
        );
        assert_eq!(
            kernel.semaphore_down(client, after, own),
            Ok(Outcome::Blocked)
        );
        assert_eq!(charged(&kernel, client, "scrub entry"), 3);
        let mut stopped = Vec::new();
        kernel
            .end(service, &mut |id| stopped.push(id))
            .expect("ended");
        assert_eq!(stopped, [waiter]);
        assert_eq!(charged(&kernel, client, "scrub entry"), 2);
        assert_eq!(charged(&kernel, client, "granted link"), 0);
        kernel.semaphore_up(client, own, 3).expect("up");
        assert_eq!(kernel.next_wake(), Some((before, Wake::Ready)));
        assert_eq!(kernel.next_wake(), Some((after, Wake::Ready)));
        assert_eq!(kernel.next_wake(), None);
    }
}

#[test]
fn a_hostile_service_cannot_spend_more_than_its_allowance() {
    for mode in MODES {
        let mut kernel = kernel(mode);
        let (client, _, service, theirs) = foreign(&mut kernel, 3);
        let waiters = run(&mut kernel, service, 0..10);
        let granted = left(&kernel, client);
        let mut blocked = 0;
        for &waiter in &waiters {
            match kernel.semaphore_down(service, waiter, theirs) {
                Ok(Outcome::Blocked) => blocked += 1,
                refused => assert_eq!(refused, Err(Errno::Allowance)),
            }
        }
        assert_eq!(blocked, 3);
        assert_eq!(charged(&kernel, client, "scrub entry"), 3);
        assert_eq!(charged(&kernel, client, "granted link"), 0);
        // What the first waits cost beyond the grant is memory for entries, paid once.
        let waiting = left(&kernel, client);
        assert!(
            granted.0 - waiting.0 < costs().model.scrub_ps,
            "{granted:?} before, {waiting:?} now"
        );
        for _ in 0..100 {
            for &waiter in &waiters {
                kernel.cancel_wait(waiter);
            }
            for &waiter in &waiters {
                let _ = kernel.semaphore_down(service, waiter, theirs);
            }
            assert_eq!(left(&kernel, client), waiting);
        }
        // It cannot pass on more than it has either.
        let other = kernel.admit(BUDGET_NS, 0).expect("accomplice");
        assert_eq!(
            kernel.connect(service, theirs, other, Rights::READ, 1),
            Err(Errno::Rights),
            "it was not granted GRANT"
        );
    }
}

#[test]
fn links_passed_on_are_taken_from_ones_own() {
    let mut kernel = kernel(Mode::Grouped);
    let client = kernel.admit(BUDGET_NS, 0).expect("client");
    let service = kernel.admit(BUDGET_NS, 0).expect("service");
    let worker = kernel.admit(BUDGET_NS, 0).expect("worker");
    let own = kernel.semaphore_create(client, 0).expect("semaphore");
    let all = Rights::READ | Rights::GRANT;
    let at_service = kernel
        .connect(client, own, service, all, 3)
        .expect("connected");
    let before = left(&kernel, client);
    assert_eq!(
        kernel.connect(service, at_service, worker, all, 4),
        Err(Errno::Allowance)
    );
    assert_eq!(left(&kernel, client), before);
    let at_worker = kernel
        .connect(service, at_service, worker, all, 2)
        .expect("connected");
    assert_eq!(charged(&kernel, client, "granted link"), 3);
    let workers = run(&mut kernel, worker, 0..3);
    assert_eq!(
        kernel.semaphore_down(worker, workers[0], at_worker),
        Ok(Outcome::Blocked)
    );
    assert_eq!(
        kernel.semaphore_down(worker, workers[1], at_worker),
        Ok(Outcome::Blocked)
    );
    assert_eq!(
        kernel.semaphore_down(worker, workers[2], at_worker),
        Err(Errno::Allowance)
    );
    assert_eq!(charged(&kernel, client, "granted link"), 1);
    // The worker's end brings its links back to the service, whose end gives them up.
    kernel.end(worker, &mut ignore).expect("ended");
    assert_eq!(charged(&kernel, client, "granted link"), 3);
    let servers = run(&mut kernel, service, 10..13);
    for &server in &servers {
        assert_eq!(
            kernel.semaphore_down(service, server, at_service),
            Ok(Outcome::Blocked)
        );
    }
    kernel.end(service, &mut ignore).expect("ended");
    assert_eq!(charged(&kernel, client, "granted link"), 0);
    assert_eq!(charged(&kernel, client, "scrub entry"), 0);
}

#[test]
fn a_revocation_gives_the_charge_of_all_granted_links_back() {
    let mut kernel = kernel(Mode::Grouped);
    let (client, own, service, theirs) = foreign(&mut kernel, 5);
    let waiters = run(&mut kernel, service, 0..3);
    for &waiter in &waiters[..2] {
        assert_eq!(
            kernel.semaphore_down(service, waiter, theirs),
            Ok(Outcome::Blocked)
        );
    }
    kernel.capability_revoke(client, own).expect("revoked");
    assert_eq!(charged(&kernel, client, "granted link"), 0);
    assert_eq!(
        kernel.semaphore_down(service, waiters[2], theirs),
        Err(Errno::Gone)
    );
    // Present waiters learn of it when they would be served, and others overtake them.
    let patient = run(&mut kernel, client, 9..10)[0];
    assert_eq!(
        kernel.semaphore_down(client, patient, own),
        Ok(Outcome::Blocked)
    );
    kernel.semaphore_up(client, own, 1).expect("up");
    assert_eq!(kernel.next_wake(), Some((waiters[0], Wake::Ready)));
    assert_eq!(
        kernel.semaphore_down(service, waiters[0], theirs),
        Err(Errno::Gone)
    );
    assert_eq!(kernel.next_wake(), Some((waiters[1], Wake::Ready)));
    assert_eq!(
        kernel.semaphore_down(service, waiters[1], theirs),
        Err(Errno::Gone)
    );
    assert_eq!(kernel.next_wake(), Some((patient, Wake::Ready)));
    assert_eq!(
        kernel.semaphore_down(client, patient, own),
        Ok(Outcome::Done(()))
    );
    assert_eq!(
        charged(&kernel, client, "scrub entry"),
        1,
        "the patient one's own"
    );
    assert_eq!(charged(&kernel, client, "granted link"), 0);
}

#[test]
fn a_wait_cancelled_while_the_objects_owner_ends_is_not_mistaken_for_the_next_one() {
    let mut kernel = kernel(Mode::Grouped);
    let (client, _, service, theirs) = foreign(&mut kernel, 1);
    let here = kernel.semaphore_create(service, 0).expect("semaphore");
    let [first, second] = run(&mut kernel, service, 1..3)[..] else {
        panic!("two")
    };
    assert_eq!(
        kernel.semaphore_down(service, first, theirs),
        Ok(Outcome::Blocked)
    );
    let mut end = kernel.begin_end(client).expect("alive");
    kernel.cancel_wait(first);
    assert_eq!(
        kernel.semaphore_down(service, first, here),
        Ok(Outcome::Blocked)
    );
    assert_eq!(
        kernel.semaphore_down(service, second, here),
        Ok(Outcome::Blocked)
    );
    while kernel.step_end(&mut end, &mut ignore, 1) != leasehold_reclaim::Progress::Done {}
    assert_eq!(kernel.next_wake(), None);
    kernel.semaphore_up(service, here, 2).expect("up");
    assert_eq!(kernel.next_wake(), Some((first, Wake::Ready)));
    assert_eq!(kernel.next_wake(), Some((second, Wake::Ready)));
}

#[test]
fn a_woken_execution_that_ends_passes_its_turn_on() {
    for mode in MODES {
        let mut kernel = kernel(mode);
        let owner = kernel.admit(BUDGET_NS, 0).expect("owner");
        let child = kernel.tenant_create(owner, 100_000, 0).expect("child");
        let tenant = kernel.tenant_of(owner, child).expect("alive");
        let own = kernel.semaphore_create(owner, 0).expect("semaphore");
        let theirs = kernel
            .tenant_grant(owner, child, own, Rights::READ, 0)
            .expect("granted");
        let first = run(&mut kernel, tenant, 1..2)[0];
        let second = run(&mut kernel, owner, 2..3)[0];
        assert_eq!(
            kernel.semaphore_down(tenant, first, theirs),
            Ok(Outcome::Blocked)
        );
        assert_eq!(
            kernel.semaphore_down(owner, second, own),
            Ok(Outcome::Blocked)
        );
        kernel.semaphore_up(owner, own, 1).expect("up");
        assert_eq!(kernel.next_wake(), Some((first, Wake::Ready)));
        kernel.end(tenant, &mut ignore).expect("ended");
        assert_eq!(kernel.next_wake(), Some((second, Wake::Ready)));
        assert_eq!(
            kernel.semaphore_down(owner, second, own),
            Ok(Outcome::Done(()))
        );
        assert_eq!(kernel.semaphore_try_down(owner, own), Err(Errno::Empty));
    }
}

/// Creates `n` objects of each class, all in use: timers armed, capabilities derived.
fn fill(kernel: &mut K, tenant: TenantId, n: u32) {
    let semaphore = kernel.semaphore_create(tenant, 1).expect("semaphore");
    for _ in 0..n {
        let timer = kernel.timer_create(tenant).expect("timer");
        kernel.timer_set(tenant, timer, 0, 1_000, 500).expect("set");
        kernel
            .capability_derive(tenant, semaphore, Rights::READ)
            .expect("derived");
        kernel.channel_create(tenant, 64).expect("channel");
        kernel.region_create(tenant, 64).expect("region");
        kernel.task_create(tenant).expect("task");
        kernel.semaphore_create(tenant, 0).expect("semaphore");
    }
    for _ in 0..n.min(1_000) {
        kernel.tenant_create(tenant, 1_000, 0).expect("child");
    }
}

#[test]
fn ending_a_tenant_takes_the_same_number_of_steps_for_10_objects_of_each_class_and_for_20_000() {
    let steps = |n: u32| {
        let mut kernel = sized(Mode::Grouped, 512 << 20, 8);
        let tenant = kernel.admit(1_000_000_000, 0).expect("admitted");
        run(&mut kernel, tenant, 0..3);
        fill(&mut kernel, tenant, n);
        kernel.end(tenant, &mut ignore).expect("ended").steps
    };
    assert_eq!(steps(10), steps(20_000));
    assert_eq!(steps(10), 3 + 2, "three executions, mark and release");
}

#[test]
fn ending_a_tenant_with_a_million_timers_takes_as_many_steps_as_with_10() {
    let steps = |n: u32| {
        let mut kernel = sized(Mode::Grouped, 1 << 30, 8);
        let tenant = kernel.admit(1_000_000_000, 0).expect("admitted");
        for deadline in 0..u64::from(n) {
            let timer = kernel.timer_create(tenant).expect("timer");
            kernel
                .timer_set(tenant, timer, 0, deadline * 7919 % 1_000_003, 0)
                .expect("set");
        }
        assert_eq!(kernel.next_deadline(tenant), Some(10), "the floor");
        let steps = kernel.end(tenant, &mut ignore).expect("ended").steps;
        assert_eq!(kernel.next_rearmed(), None, "nothing is left to schedule");
        assert_eq!(kernel.expire(tenant, u64::MAX, u32::MAX), 0);
        steps
    };
    assert_eq!(steps(10), steps(1_000_000));
}

#[test]
fn ended_one_by_one_every_object_is_visited() {
    let mut kernel = sized(Mode::Individual, 512 << 20, 8);
    let tenant = kernel.admit(1_000_000_000, 0).expect("admitted");
    fill(&mut kernel, tenant, 100);
    let outcome = kernel.end(tenant, &mut ignore).expect("ended");
    assert!(outcome.objects >= 700, "{outcome:?}");
    assert_eq!(kernel.next_rearmed(), None);
}

#[test]
fn a_child_that_ends_gives_its_lease_back_and_can_still_be_asked_how() {
    for mode in MODES {
        let mut kernel = kernel(mode);
        let parent = kernel.admit(BUDGET_NS, 1_000).expect("parent");
        let waiter = run(&mut kernel, parent, 1..2)[0];
        let child = kernel.tenant_create(parent, 100_000, 600).expect("child");
        assert_eq!(kernel.tenant_create(parent, 1_000, 401), Err(Errno::Memory));
        let tenant = kernel.tenant_of(parent, child).expect("alive");
        run(&mut kernel, tenant, 2..3);
        assert_eq!(
            kernel.tenant_wait(parent, waiter, child),
            Ok(Outcome::Blocked)
        );
        assert_eq!(kernel.capability_drop(parent, child), Err(Errno::Busy));
        kernel.execution_finished(ExecutionId(2), 42);
        assert_eq!(kernel.next_wake(), Some((waiter, Wake::Ready)));
        assert_eq!(
            kernel.tenant_wait(parent, waiter, child),
            Ok(Outcome::Done(42))
        );
        let tenant = kernel.tenant_end(parent, child).expect("may");
        kernel.end(tenant, &mut ignore).expect("ended");
        assert_eq!(kernel.memory(parent).map(|memory| memory.used), Ok(0));
        assert_eq!(
            kernel.tenant_wait(parent, waiter, child),
            Ok(Outcome::Done(42))
        );
        assert_eq!(kernel.tenant_end(parent, child), Err(Errno::Gone));
        assert_eq!(kernel.capability_drop(parent, child), Ok(()));
    }
}

#[test]
fn no_task_waits_for_a_child_that_ended_without_exiting() {
    let mut kernel = kernel(Mode::Grouped);
    let parent = kernel.admit(BUDGET_NS, 0).expect("parent");
    let waiter = run(&mut kernel, parent, 1..2)[0];
    let child = kernel.tenant_create(parent, 100_000, 0).expect("child");
    let tenant = kernel.tenant_of(parent, child).expect("alive");
    assert_eq!(
        kernel.tenant_wait(parent, waiter, child),
        Ok(Outcome::Blocked)
    );
    kernel.end(tenant, &mut ignore).expect("ended");
    assert_eq!(kernel.next_wake(), Some((waiter, Wake::Ready)));
    assert_eq!(kernel.tenant_wait(parent, waiter, child), Err(Errno::Gone));
}

#[test]
fn every_execution_of_a_tree_is_stopped_once() {
    for mode in MODES {
        let mut kernel = kernel(mode);
        let mut tenant = kernel.admit(BUDGET_NS * 1_000, 0).expect("root");
        let root = tenant;
        for depth in 0..10u64 {
            run(&mut kernel, tenant, depth * 2..depth * 2 + 2);
            let child = kernel.tenant_create(tenant, BUDGET_NS * (900 - depth * 90), 0);
            tenant = kernel
                .tenant_of(tenant, child.expect("child"))
                .expect("alive");
        }
        let mut stopped = Vec::new();
        kernel
            .end(root, &mut |id: ExecutionId| stopped.push(id.0))
            .expect("ended");
        stopped.sort_unstable();
        assert_eq!(stopped, (0..20).collect::<Vec<_>>());
        assert_eq!(kernel.group_of(tenant), Err(Errno::Gone));
        // Their numbers are free again.
        let next = kernel.admit(BUDGET_NS, 0).expect("next");
        run(&mut kernel, next, 0..20);
    }
}

#[test]
fn a_call_that_wakes_an_urgent_task_can_be_told_from_one_that_does_not() {
    let mut kernel = sized(Mode::Grouped, 1 << 20, 8);
    let tenant = kernel.admit(1_000_000, 0).expect("admitted");
    run(&mut kernel, tenant, 1..4);
    kernel.set_urgency(ExecutionId(2), 7);
    kernel.set_urgency(ExecutionId(3), 4);
    let semaphore = kernel.semaphore_create(tenant, 0).expect("created");
    for waiter in 1..4 {
        let waited = kernel.semaphore_down(tenant, ExecutionId(waiter), semaphore);
        assert_eq!(waited, Ok(Outcome::Blocked));
    }
    for (up, urgency) in [(1, 0), (2, 7)] {
        assert_eq!(kernel.most_urgent_wake(), None);
        kernel.semaphore_up(tenant, semaphore, up).expect("up");
        assert_eq!(kernel.most_urgent_wake(), Some(urgency), "of {up} woken");
        while kernel.next_wake().is_some() {}
    }
    assert_eq!(kernel.most_urgent_wake(), None);
}
