//! Every system call of the pools fails at every place: what another user has stays as it is, a range on which
//! a call failed has no other user before it is clean, and none is lost for good.

use leasehold_door::Call;
use leasehold_door::faults::{Plan, arm, disarm, met};
use leasehold_slots::contents::Contents;
use leasehold_slots::engine::Wanted;
use leasehold_slots::range_pool::{Claim, PoolState, Retried};
use leasehold_slots::slot::SlotPool;
use leasehold_slots::stack::StackPool;
use leasehold_slots::warm_room::Keeper;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use wasmtime::{LinearMemory, MemoryCreator, MemoryType, StackCreator, StackMemory};

/// A plan is the whole process's, and so is one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

const PAGE: usize = 4096;
const SLOTS: usize = 3;

/// Runs `f` with each call failing once, with each of its errors, then with all calls from each on failing.
fn each_call_fails(mut f: impl FnMut(Plan)) {
    let mut failed = 0;
    for failures in [1, 2, u64::MAX] {
        for after in 0.. {
            let Some(kind) = meets(after, &mut f) else {
                break;
            };
            for errno in kind.errnos() {
                f(Plan {
                    after,
                    failures,
                    errno: errno.raw_os_error(),
                    only: None,
                });
                failed += 1;
            }
        }
    }
    assert!(failed > 60, "{failed}");
}

/// Which call comes after so many.
fn meets(after: u64, f: &mut impl FnMut(Plan)) -> Option<Call> {
    MET.set(None);
    f(Plan {
        after,
        failures: 1,
        errno: Call::Map.errnos()[0].raw_os_error(),
        only: None,
    });
    MET.get()
}

thread_local! {
    static MET: std::cell::Cell<Option<Call>> = const { std::cell::Cell::new(None) };
}

fn end_of_failures() {
    MET.set(met());
    disarm();
}

fn memory(pool: &SlotPool, pages: usize) -> Result<Box<dyn LinearMemory>, String> {
    let ty = MemoryType::new(0, None);
    pool.new_memory(ty, pages * PAGE, None, None, 0)
}

/// The bytes of a memory, which it alone has.
fn bytes(memory: &mut dyn LinearMemory) -> &mut [u8] {
    // SAFETY: the memory's own, accessible and initialised, for as long as it is borrowed.
    unsafe { std::slice::from_raw_parts_mut(memory.as_ptr(), memory.byte_size()) }
}

fn stack_bytes(stack: &mut dyn StackMemory) -> &mut [u8] {
    let range = stack.range();
    // SAFETY: the stack's own, accessible and initialised, for as long as it is borrowed.
    unsafe { std::slice::from_raw_parts_mut(stack.top().sub(range.len()), range.len()) }
}

/// What one user does: calls may be refused, but what it was given is right.
fn use_slots(pool: &SlotPool) {
    for (pages, more) in [(700, 100), (2, 600), (0, 3), (9, 0)] {
        let Ok(mut memory) = memory(pool, pages) else {
            continue;
        };
        assert_eq!(memory.byte_size(), pages * PAGE);
        assert!(bytes(&mut *memory).iter().all(|&byte| byte == 0));
        bytes(&mut *memory).fill(7);
        if memory.grow_to((pages + more) * PAGE).is_ok() {
            assert!(
                bytes(&mut *memory)[pages * PAGE..]
                    .iter()
                    .all(|&byte| byte == 0)
            );
            bytes(&mut *memory).fill(7);
        }
        drop(memory);
        while pool.clean_step(64).remaining > 0 {}
    }
}

fn use_stacks(pool: &StackPool) {
    for _ in 0..3 {
        let Ok(mut stack) = pool.new_stack(PAGE, true) else {
            continue;
        };
        assert!(stack_bytes(&mut *stack).iter().all(|&byte| byte == 0));
        stack_bytes(&mut *stack).fill(7);
        drop(stack);
        while pool.clean_step(64).remaining > 0 {}
    }
}

fn clean_again(mut retry: impl FnMut() -> Retried) {
    while retry() == Retried::Stepped {}
    assert_eq!(retry(), Retried::Empty, "nothing fails any more");
}

fn all_clean(state: PoolState, clean: usize) {
    let taken = 1;
    let expected = PoolState {
        clean,
        taken,
        ..PoolState::default()
    };
    assert_eq!(state, expected);
}

#[test]
fn any_call_for_a_slot_may_fail_and_no_slot_is_lost_or_dirty_for_its_next_user() {
    let _alone = alone();
    each_call_fails(|plan| {
        let pool = SlotPool::new(SLOTS, 2 * PAGE).expect("addresses");
        let mut neighbour = memory(&pool, 5).expect("a slot");
        bytes(&mut *neighbour).fill(9);
        arm(plan);
        use_slots(&pool);
        end_of_failures();
        assert!(bytes(&mut *neighbour).iter().all(|&byte| byte == 9));
        clean_again(|| pool.retry(64));
        all_clean(pool.state(), SLOTS - 1);
        let mut all: Vec<_> = (1..SLOTS)
            .map(|_| memory(&pool, 900).expect("a slot"))
            .collect();
        for memory in &mut all {
            assert!(
                bytes(&mut **memory).iter().all(|&byte| byte == 0),
                "{plan:?}"
            );
        }
    });
}

/// Contents of so many pages that are all the same, from page 2 of a memory on.
fn contents(pages: usize, byte: u8) -> Contents {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = File::from(memfd_create("contents", flags).expect("a file"));
    file.write_all_at(&vec![byte; pages * PAGE], 0)
        .expect("written");
    let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW;
    fcntl_add_seals(&file, seals).expect("sealed");
    Contents::new(Arc::new(file), 2, pages).expect("sealed")
}

#[test]
fn any_call_for_a_kept_slot_may_fail_and_its_next_user_finds_what_was_made() {
    const KEEPER: Keeper = Keeper(1);
    const SHOWN: usize = 600;
    let _alone = alone();
    let shown = contents(SHOWN, 3);
    let kept = |pool: &SlotPool| {
        let wanted = Wanted {
            is_64: false,
            minimum: (SHOWN + 20) * PAGE,
            reserved: None,
            guard: 0,
        };
        pool.new_memory_showing(wanted, Some((&shown, Some(KEEPER))))
    };
    let is_as_made = |memory: &mut dyn LinearMemory| {
        let (below, rest) = bytes(memory).split_at(2 * PAGE);
        let (inside, above) = rest.split_at(SHOWN * PAGE);
        let zero = |part: &[u8]| part.iter().all(|&byte| byte == 0);
        zero(below) && inside.iter().all(|&byte| byte == 3) && zero(above)
    };
    each_call_fails(|plan| {
        let pool = SlotPool::new(SLOTS, 500 * PAGE).expect("addresses");
        let mut neighbour = kept(&pool).expect("a slot");
        bytes(&mut *neighbour).fill(9);
        arm(plan);
        for more in [0, 700, 0] {
            let Ok(mut memory) = kept(&pool) else {
                continue;
            };
            assert!(is_as_made(&mut *memory), "{plan:?}");
            bytes(&mut *memory).fill(7);
            if memory.grow_to((SHOWN + 20 + more) * PAGE).is_ok() {
                bytes(&mut *memory).fill(7);
            }
            drop(memory);
            while pool.clean_step(64).remaining > 0 {}
        }
        end_of_failures();
        assert!(bytes(&mut *neighbour).iter().all(|&byte| byte == 9));
        while pool.clean_step(64).remaining > 0 {}
        clean_again(|| pool.retry(64));
        let mut claim = Claim::default();
        pool.cool(KEEPER, 0, &mut claim);
        while !claim.is_empty() {
            pool.clean_claimed(&mut claim, 64);
        }
        all_clean(pool.state(), SLOTS - 1);
        for _ in 1..SLOTS {
            let mut memory = memory(&pool, 900).expect("a slot");
            assert!(
                bytes(&mut *memory).iter().all(|&byte| byte == 0),
                "{plan:?}"
            );
        }
    });
}

#[test]
fn any_call_for_a_stack_may_fail_and_no_stack_is_lost_or_dirty_for_its_next_user() {
    let _alone = alone();
    each_call_fails(|plan| {
        let pool = StackPool::new(2, 4 * PAGE).expect("addresses");
        let mut neighbour = pool.new_stack(PAGE, true).expect("a stack");
        stack_bytes(&mut *neighbour).fill(9);
        arm(plan);
        use_stacks(&pool);
        end_of_failures();
        assert!(stack_bytes(&mut *neighbour).iter().all(|&byte| byte == 9));
        clean_again(|| pool.retry(64));
        all_clean(pool.state(), 1);
        let mut stack = pool.new_stack(PAGE, true).expect("a stack");
        assert!(
            stack_bytes(&mut *stack).iter().all(|&byte| byte == 0),
            "{plan:?}"
        );
    });
}

#[test]
fn a_pool_whose_addresses_cannot_be_reserved_is_refused_and_the_next_one_is_made() {
    let _alone = alone();
    for errno in Call::Map.errnos() {
        arm(Plan {
            after: 0,
            failures: u64::MAX,
            errno: errno.raw_os_error(),
            only: Some(Call::Map),
        });
        assert!(SlotPool::new(SLOTS, 0).is_err());
        assert!(StackPool::new(2, 0).is_err());
        assert_eq!(disarm(), 2);
        assert!(SlotPool::new(SLOTS, 0).is_ok());
    }
}
