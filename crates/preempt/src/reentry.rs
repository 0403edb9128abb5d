//! Guests that the host calls again before a host call has returned, preempted and ended there.
//!
//! The canonical ABI calls `cabi_realloc` while a host call returns a list, a function after the
//! return, and destructors. A caught return happens only after these calls.

use crate::GuestContext;
use crate::clock::monotonic_ns;
use crate::testing::{Program, engine_config};
use crate::{Mechanism, Preemption};
use leasehold_reserve::simulate::SplitMix;
use leasehold_slots::slot::SlotPool;
use leasehold_slots::stack::StackPool;
use leasehold_wasm::code::Code;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use wasmtime::component::{Component, Linker};
use wasmtime::{Engine, Store, StoreContextMut, Trap};

const GUEST: &str = include_str!("reentry.wat");

/// The actions of `cabi_realloc` and the others, as in `reentry.wat`.
mod mode {
    pub(super) const WORK: i32 = 0;
    pub(super) const LOOP: i32 = 1;
    pub(super) const TRAP: i32 = 2;
    pub(super) const OVERFLOW: i32 = 3;
    pub(super) const OVERFLOW_DEEP: i32 = 4;
    pub(super) const LOOP_AFTER_RETURN: i32 = 5;
    pub(super) const LOOP_IN_DESTRUCTOR: i32 = 6;
    pub(super) const THROW: i32 = 7;
}

/// The outcome of a run.
type Outcome = Result<i64, Trap>;

/// A future that owns its store, and what the mechanism knows of its guest.
struct Guest {
    context: GuestContext,
    future: Pin<Box<dyn Future<Output = Outcome>>>,
}

struct Host {
    engine: Engine,
    linker: Linker<()>,
    program: Arc<Program>,
    preemption: Preemption,
    slots: SlotPool,
    stacks: StackPool,
}

impl Host {
    /// A host that calls `before` in each call of a guest, before it returns the bytes.
    fn new(mechanism: Mechanism, before: impl Fn() + Send + Sync + 'static) -> Self {
        let mut config = engine_config(mechanism);
        let slots = SlotPool::new(8, 1 << 20).expect("address space");
        let stacks = StackPool::new(8, 1 << 16).expect("address space");
        config.with_host_memory(Arc::new(slots.clone()));
        config.with_host_stack(Arc::new(stacks.clone()));
        let engine = Engine::new(&config).expect("a valid configuration");
        let mut linker = Linker::new(&engine);
        linker
            .root()
            .func_wrap("bytes", move |_: StoreContextMut<'_, ()>, (n,): (u32,)| {
                before();
                Ok((Vec::from_iter((0..n).map(|i| (i * 7) as u8)),))
            })
            .expect("linked once");
        let component = Component::new(&engine, GUEST).expect("valid");
        let code = Code::Component(component);
        let program = Program::new(code);
        let preemption = Preemption::new(&engine, mechanism).expect("a timer");
        Self {
            engine,
            linker,
            program: Arc::new(program),
            preemption,
            slots,
            stacks,
        }
    }

    fn guest(&self, mode: i32, seed: i64) -> Guest {
        let mut store = Store::new(&self.engine, ());
        let context = self
            .preemption
            .arm(&mut store, &self.program)
            .expect("instantiated");
        let Code::Component(component) = self.program.code() else {
            unreachable!("made from a component")
        };
        let instance = self
            .linker
            .instantiate_pre(component)
            .expect("everything is linked");
        let future = Box::pin(async move {
            let instance = instance.instantiate_async(&mut store).await;
            let run = instance
                .expect("it fits")
                .get_typed_func::<(i32, i64), (i64,)>(&mut store, "run")
                .expect("exported");
            let result = run.call_async(&mut store, (mode, seed)).await;
            result
                .map(|(value,)| value)
                .map_err(|error| *error.downcast_ref().expect("a trap, not an error"))
        });
        Guest { context, future }
    }

    fn poll(&self, guest: &mut Guest) -> Poll<Outcome> {
        // SAFETY: the future owns the store, its stacks are the pool's, and no host call runs
        // another guest.
        let _entered = unsafe { self.preemption.enter(&guest.context) };
        let mut context = Context::from_waker(Waker::noop());
        guest.future.as_mut().poll(&mut context)
    }

    /// Runs a guest to its end, in turns of `length` ns.
    fn run(&self, mut guest: Guest, mut length: impl FnMut() -> u64) -> (Outcome, u64) {
        let mut turns = 0;
        loop {
            turns += 1;
            self.preemption.set_timer(Some(monotonic_ns() + length()));
            if let Poll::Ready(outcome) = self.poll(&mut guest) {
                return (outcome, turns);
            }
        }
    }

    /// Cleans what guests that were ended have left.
    fn clean(&self) {
        while self.slots.state().dirty + self.stacks.state().dirty > 0 {
            self.slots.clean_step(1 << 16);
            self.stacks.clean_step(1 << 16);
        }
    }
}

/// Runs `test` on a thread of its own, and fails if it does not come back: a yield was lost.
fn in_time(test: impl FnOnce() + Send + 'static) {
    let (done, is_done) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        test();
        let _ = done.send(());
    });
    let waited = is_done.recv_timeout(Duration::from_secs(60));
    if waited == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
        panic!("a guest never yielded");
    }
    thread.join().expect("the test passes");
}

/// Both mechanisms, where this host has them.
const MECHANISMS: [Mechanism; 2] = [Mechanism::Injected, Mechanism::Epochs];

#[test]
fn a_caught_return_that_never_comes_loses_no_yield() {
    for mechanism in MECHANISMS {
        for mode in [mode::LOOP, mode::LOOP_AFTER_RETURN] {
            in_time(move || {
                // The alarm rings once, in the host call; the guest loops before that returns.
                let once = AtomicBool::new(true);
                let host = Host::new(mechanism, move || {
                    if once.swap(false, Relaxed) {
                        super::request();
                    }
                });
                let mut guest = host.guest(mode, 3);
                host.preemption.set_timer(None);
                assert!(host.poll(&mut guest).is_pending());
                assert!(host.preemption.take_fired());
                for _ in 0..100 {
                    host.preemption.set_timer(Some(monotonic_ns() + 20_000));
                    assert!(host.poll(&mut guest).is_pending());
                    assert!(host.preemption.take_fired());
                }
            });
        }
    }
}

#[test]
fn a_guest_that_loops_wherever_the_host_or_the_engine_calls_it_yields() {
    for mechanism in MECHANISMS {
        for mode in [
            mode::LOOP,
            mode::LOOP_AFTER_RETURN,
            mode::LOOP_IN_DESTRUCTOR,
        ] {
            in_time(move || {
                let host = Host::new(mechanism, || {});
                let mut guest = host.guest(mode, 3);
                for _ in 0..200 {
                    host.preemption.set_timer(Some(monotonic_ns() + 20_000));
                    assert!(host.poll(&mut guest).is_pending());
                    assert!(host.preemption.take_fired());
                }
            });
        }
    }
}

#[test]
fn a_guest_that_is_ended_inside_a_call_of_the_hosts_is_gone() {
    for mechanism in MECHANISMS {
        in_time(move || {
            let host = Host::new(mechanism, || {
                super::request();
            });
            for length in (1..200).map(|n| n * 317) {
                for mode in [
                    mode::LOOP,
                    mode::LOOP_AFTER_RETURN,
                    mode::LOOP_IN_DESTRUCTOR,
                ] {
                    let mut guest = host.guest(mode, 3);
                    host.preemption.set_timer(Some(monotonic_ns() + length));
                    assert!(host.poll(&mut guest).is_pending());
                    drop(guest);
                    host.clean();
                    let stacks = host.stacks.state();
                    assert_eq!((stacks.taken, stacks.dirty), (0, 0));
                }
            }
        });
    }
}

#[test]
fn a_yield_inside_a_call_of_the_hosts_changes_no_result() {
    for mechanism in MECHANISMS {
        in_time(move || {
            let host = Host::new(mechanism, || {});
            let expected: Vec<_> = (0..4)
                .map(|seed| host.run(host.guest(mode::WORK, seed), || 1 << 40).0)
                .collect();
            let (mut random, mut preempted) = (SplitMix::new(1), 0);
            while preempted < 3_000 {
                let seed = random.below(4);
                let (outcome, turns) = host.run(host.guest(mode::WORK, seed as i64), || {
                    random.between(3_000, 43_000)
                });
                assert_eq!(outcome, expected[seed as usize], "seed {seed}");
                preempted += turns - 1;
                host.clean();
            }
        });
    }
}

#[test]
fn a_trap_inside_a_call_of_the_hosts_ends_the_guest_with_that_trap() {
    let host = Host::new(Mechanism::Injected, || {
        super::request();
    });
    let outcomes = [mode::TRAP, mode::OVERFLOW].map(|mode| {
        host.run(host.guest(mode, 1), || 10_000)
            .0
            .expect_err("it traps")
    });
    assert_eq!(
        outcomes,
        [Trap::UnreachableCodeReached, Trap::StackOverflow]
    );
}

#[test]
fn an_exception_out_of_a_call_of_the_hosts_ends_that_call_and_loses_no_yield() {
    for mechanism in MECHANISMS {
        in_time(move || {
            // The return is caught that never comes.
            let host = Host::new(mechanism, || {
                super::request();
            });
            for length in (1..200).map(|n| n * 317) {
                let (outcome, _) = host.run(host.guest(mode::THROW, 1), || length);
                assert_eq!(outcome, Ok(11), "{mechanism:?}");
                host.clean();
            }
        });
    }
}

#[test]
fn a_guest_on_top_of_a_guest_has_a_stack_of_its_own() {
    let called = Arc::new(AtomicBool::new(false));
    let host = {
        let called = called.clone();
        Host::new(Mechanism::Injected, move || called.store(true, Relaxed))
    };
    let calls_at = |depth: i64| {
        called.store(false, Relaxed);
        let (outcome, _) = host.run(host.guest(mode::OVERFLOW_DEEP, depth), || 1 << 40);
        assert_eq!(outcome, Err(Trap::StackOverflow));
        host.clean();
        called.load(Relaxed)
    };
    // From the greatest depth at which the outer guest itself does not overflow.
    let (mut calls, mut overflows) = (0, 1 << 20);
    while overflows - calls > 1 {
        let middle = i64::midpoint(calls, overflows);
        if calls_at(middle) {
            calls = middle;
        } else {
            overflows = middle;
        }
    }
    assert!(calls > 1_000, "{calls}");
}
