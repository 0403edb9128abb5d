//! Guests that check their own results, preempted at random instants and ended in mid-run.
//!
//! Six fibers take turns on one thread. Each runs jobs whose results are known, among them jobs
//! that end in a trap, jobs that keep every vector register and many general ones busy, tail calls
//! with arguments on the stack, host calls that wait and host calls that do not, and bulk
//! operations. Every turn is cut off 3 to 43 microseconds after it began.

use crate::GuestContext;
use crate::clock::monotonic_ns;
use crate::testing::{Program, engine_config};
use crate::{Mechanism, Preemption, can_suspend, suspend};
use leasehold_reserve::simulate::SplitMix;
use leasehold_slots::slot::SlotPool;
use leasehold_slots::stack::StackPool;
use leasehold_wasm::code::Code;
use leasehold_wasm::exceptions::catch_in_every_frame;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use wasmtime::{Caller, Engine, Instance, Linker, Module, Store, Trap};

const GUEST: &str = include_str!("stress.wat");

/// Returns `Pending` once.
#[derive(Default)]
struct OneTurn(bool);

impl Future for OneTurn {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

/// The expected result of a job.
#[derive(Debug, PartialEq)]
enum Outcome {
    Value(i64),
    Trap(Trap),
}

struct Job {
    function: &'static str,
    expected: fn(i64) -> Outcome,
}

/// The same computations as in the guest.
mod expected {
    use super::Outcome;
    use wasmtime::Trap;

    pub(super) fn product(seed: i64) -> Outcome {
        const N: usize = 24;
        let cell = |i: usize, salt: i64| (((i as i64) * 7 + seed + salt) % 17) as f64 * 0.5;
        let a: Vec<f64> = (0..N * N).map(|i| cell(i, 0)).collect();
        let b: Vec<f64> = (0..N * N).map(|i| cell(i, 3)).collect();
        let mut sum = 0.0;
        for i in 0..N {
            for j in 0..N {
                let mut dot = 0.0;
                for k in 0..N {
                    dot += a[i * N + k] * b[k * N + j];
                }
                sum += dot * (1 + (i ^ j)) as f64;
            }
        }
        Outcome::Value((sum * 4.0) as i64)
    }

    pub(super) fn memory(seed: i64) -> Outcome {
        let mut x = seed | 1;
        let mut words = vec![0i64; 4096];
        for word in &mut words {
            x ^= x << 13;
            x ^= ((x as u64) >> 7) as i64;
            x ^= x << 17;
            *word = x;
        }
        let mut sum = 0i64;
        for word in &words {
            sum = sum.rotate_left(5).wrapping_add(*word);
        }
        Outcome::Value(sum)
    }

    fn fibonacci(n: i64) -> i64 {
        if n < 2 {
            n
        } else {
            fibonacci(n - 1) + fibonacci(n - 2)
        }
    }

    pub(super) fn recursion(seed: i64) -> Outcome {
        Outcome::Value(fibonacci(12 + seed % 7))
    }

    pub(super) fn waits(seed: i64) -> Outcome {
        Outcome::Value((0..10).map(|i| (seed + i) * 3).sum())
    }

    pub(super) fn calls(seed: i64) -> Outcome {
        let mut sum = seed;
        for i in 0..2000 {
            sum = sum.wrapping_mul(31).wrapping_add(i + 1);
        }
        Outcome::Value(sum)
    }

    pub(super) fn vectors(seed: i64) -> Outcome {
        let start = seed as i32;
        let mut lanes: Vec<[i32; 4]> = (0..12)
            .map(|v| [start.wrapping_add(v); 4].map(|x| x.wrapping_mul(2 * v + 1)))
            .collect();
        for _ in 0..3000 {
            for v in 0..12 {
                let next = lanes[(v + 1) % 12];
                for (lane, next) in lanes[v].iter_mut().zip(next) {
                    *lane = lane.wrapping_mul(1_103_515_245) ^ next;
                }
            }
        }
        let sum = lanes
            .iter()
            .fold([0i32; 4], |sum, v| {
                std::array::from_fn(|lane| sum[lane].wrapping_add(v[lane]))
            })
            .iter()
            .fold(0i64, |sum, lane| sum * 31 + i64::from(*lane));
        Outcome::Value(sum)
    }

    pub(super) fn integers(seed: i64) -> Outcome {
        let mut x: Vec<i64> = (0..14).map(|i| seed + i).collect();
        for _ in 0..2000 {
            for i in 0..14 {
                x[i] = x[i]
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(x[(i + 1) % 14])
                    .rotate_left(i as u32 + 1);
            }
        }
        Outcome::Value(x.iter().fold(0, |sum, x| sum ^ x))
    }

    pub(super) fn tail_calls(seed: i64) -> Outcome {
        let n = 4000;
        let mut x: Vec<i64> = (0..12).map(|i| seed + i).collect();
        for _ in 0..n {
            let first = x[0].wrapping_add(x[11]);
            x.rotate_left(1);
            x[11] = first;
        }
        Outcome::Value(x.iter().enumerate().fold(0i64, |sum, (i, x)| {
            sum.wrapping_add(x.wrapping_mul(i as i64 + 1))
        }))
    }

    pub(super) fn bulk(seed: i64) -> Outcome {
        Outcome::Value((seed & 255) * 200_000)
    }

    pub(super) fn atomics(seed: i64) -> Outcome {
        let (mut word, mut sum) = (seed, 0i64);
        let add = |sum: i64, old: i64| sum.wrapping_mul(31).wrapping_add(old);
        for n in 0..2000i64 {
            sum = add(sum, word);
            word ^= n.wrapping_mul(0x9E37_79B9_7F4A_7C15_u64 as i64);
            let old = word;
            word = word.wrapping_add(sum);
            sum = add(sum, old);
            sum = add(sum, (word >> 16) & 0xffff);
            word = sum.rotate_left(7);
        }
        Outcome::Value(sum.wrapping_add(word))
    }

    pub(super) fn tables(seed: i64) -> Outcome {
        Outcome::Value((0..600).map(|i| (seed + i) % 2 * 2 + 1).sum())
    }

    pub(super) fn exceptions(seed: i64) -> Outcome {
        let mut sum = 0i64;
        for i in 0..5 {
            let (mut value, mut count) = (seed + i, 0);
            for n in (4..=40).step_by(4) {
                value = value.wrapping_mul(31).wrapping_add(n);
                count += 1;
            }
            sum = sum.wrapping_mul(7).wrapping_add(value ^ count);
        }
        Outcome::Value(sum)
    }

    pub(super) fn out_of_bounds(_: i64) -> Outcome {
        Outcome::Trap(Trap::MemoryOutOfBounds)
    }

    pub(super) fn divide(_: i64) -> Outcome {
        Outcome::Trap(Trap::IntegerDivisionByZero)
    }

    pub(super) fn unreachable(_: i64) -> Outcome {
        Outcome::Trap(Trap::UnreachableCodeReached)
    }

    pub(super) fn overflow(_: i64) -> Outcome {
        Outcome::Trap(Trap::StackOverflow)
    }
}

const JOBS: [Job; 16] = [
    Job {
        function: "product",
        expected: expected::product,
    },
    Job {
        function: "memory",
        expected: expected::memory,
    },
    Job {
        function: "recursion",
        expected: expected::recursion,
    },
    Job {
        function: "waits",
        expected: expected::waits,
    },
    Job {
        function: "calls",
        expected: expected::calls,
    },
    Job {
        function: "vectors",
        expected: expected::vectors,
    },
    Job {
        function: "integers",
        expected: expected::integers,
    },
    Job {
        function: "tail_calls",
        expected: expected::tail_calls,
    },
    Job {
        function: "bulk",
        expected: expected::bulk,
    },
    Job {
        function: "atomics",
        expected: expected::atomics,
    },
    Job {
        function: "tables",
        expected: expected::tables,
    },
    Job {
        function: "exceptions",
        expected: expected::exceptions,
    },
    Job {
        function: "out_of_bounds",
        expected: expected::out_of_bounds,
    },
    Job {
        function: "divide",
        expected: expected::divide,
    },
    Job {
        function: "unreachable",
        expected: expected::unreachable,
    },
    Job {
        function: "overflow",
        expected: expected::overflow,
    },
];

/// A future that owns its store, and what the mechanism knows of it.
struct Guest<T> {
    context: GuestContext,
    future: Pin<Box<dyn Future<Output = (T, Store<()>)>>>,
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
    fn new(mechanism: Mechanism) -> Self {
        let mut config = engine_config(mechanism);
        let slots = SlotPool::new(16, 1 << 20).expect("address space");
        let stacks = StackPool::new(16, 1 << 16).expect("address space");
        config.with_host_memory(Arc::new(slots.clone()));
        config.with_host_stack(Arc::new(stacks.clone()));
        let engine = Engine::new(&config).expect("a valid configuration");
        let mut linker = Linker::new(&engine);
        linker
            .func_wrap_async("host", "wait", |_: Caller<'_, ()>, (x,): (i64,)| {
                Box::new(async move {
                    OneTurn::default().await;
                    x * 3
                })
            })
            .expect("linked once");
        linker
            .func_wrap("host", "next", |x: i64| x + 1)
            .expect("linked once");
        let wasm = wat::parse_str(GUEST).expect("valid");
        let wasm = catch_in_every_frame(&wasm).expect("well-formed");
        let module = Module::new(&engine, wasm).expect("valid");
        let code = Code::Module(module);
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

    /// Cleans what guests that were ended have left.
    fn clean(&self) {
        while self.slots.state().dirty + self.stacks.state().dirty > 0 {
            self.slots.clean_step(1 << 16);
            self.stacks.clean_step(1 << 16);
        }
    }

    /// A guest that does this with its instance.
    fn guest<T: 'static>(
        &self,
        body: impl AsyncFnOnce(&mut Store<()>, Instance) -> T + 'static,
    ) -> Guest<T> {
        let mut store = Store::new(&self.engine, ());
        let context = self
            .preemption
            .arm(&mut store, &self.program)
            .expect("instantiated");
        let Code::Module(module) = self.program.code() else {
            unreachable!("made from a module")
        };
        let instance = self
            .linker
            .instantiate_pre(module)
            .expect("everything is linked");
        let future = Box::pin(async move {
            let instance = instance
                .instantiate_async(&mut store)
                .await
                .expect("it fits");
            let result = body(&mut store, instance).await;
            (result, store)
        });
        Guest { context, future }
    }

    /// A guest that runs jobs for ever.
    fn worker(&self, mut random: SplitMix) -> Guest<()> {
        self.guest(async move |store, instance| {
            loop {
                let job = &JOBS[random.below(JOBS.len() as u64) as usize];
                let seed = random.below(1000) as i64;
                let outcome = run(store, &instance, job.function, seed).await;
                assert_eq!(outcome, (job.expected)(seed), "{}({seed})", job.function);
            }
        })
    }

    fn poll<T>(&self, guest: &mut Guest<T>) -> Poll<T> {
        let polled = {
            // SAFETY: the future owns the store and gives it back when it ends, its stacks are the
            // pool's, and no host call runs another guest.
            let _entered = unsafe { self.preemption.enter(&guest.context) };
            let mut context = Context::from_waker(Waker::noop());
            guest.future.as_mut().poll(&mut context)
        };
        polled.map(|(result, _store)| result)
    }
}

async fn run(store: &mut Store<()>, instance: &Instance, function: &str, seed: i64) -> Outcome {
    let function = instance
        .get_typed_func::<i64, i64>(&mut *store, function)
        .expect("exported");
    match function.call_async(store, seed).await {
        Ok(value) => Outcome::Value(value),
        Err(error) => Outcome::Trap(*error.downcast_ref().expect("a trap, not an error")),
    }
}

/// Runs the guests until `preemptions` turns were cut off; returns how many were ended in mid-run.
fn preempt_and_kill(mechanism: Mechanism, preemptions: u64) -> u64 {
    let host = Host::new(mechanism);
    let mut random = SplitMix::new(0x5DEE_CE66_D1CE_4E5B);
    let mut guests: Vec<_> = (0..6).map(|i| host.worker(SplitMix::new(i + 1))).collect();
    let (mut preempted, mut killed) = (0, 0);
    while preempted < preemptions {
        let chosen = random.below(6) as usize;
        let length = 3_000 + random.below(40_000);
        host.preemption.set_timer(Some(monotonic_ns() + length));
        assert!(host.poll(&mut guests[chosen]).is_pending());
        preempted += u64::from(host.preemption.take_fired());
        if random.below(64) == 0 {
            // In the middle of whatever it is doing.
            let seed = random.bits();
            guests[chosen] = host.worker(SplitMix::new(seed));
            killed += 1;
        }
        host.clean();
    }
    killed
}

#[test]
fn an_injected_yield_changes_no_result_wherever_it_comes() {
    assert_eq!(
        Mechanism::Injected.or_fallback(engine_config),
        Mechanism::Injected,
        "this host has what it needs"
    );
    assert!(preempt_and_kill(Mechanism::Injected, 120_000) > 1_000);
}

#[test]
fn an_epoch_yield_changes_no_result_wherever_it_comes() {
    assert!(preempt_and_kill(Mechanism::Epochs, 20_000) > 100);
}

/// Guests that [`suspend_guest`] has suspended.
static SUSPENDED: AtomicU64 = AtomicU64::new(0);

/// Does what the handler of a fault does, wherever the signal comes.
extern "C" fn suspend_guest(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: this is the handler, and the context is its own; nothing runs between the two calls.
    unsafe {
        if can_suspend(context) {
            suspend(context);
            SUSPENDED.fetch_add(1, Relaxed);
        }
    }
}

#[test]
fn a_guest_that_a_handler_suspends_goes_on_where_it_was_interrupted() {
    // SAFETY: all-zero is a valid value, the handler has the signature that `SA_SIGINFO` promises, and no other test
    // uses the signal.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = suspend_guest as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        assert_eq!(
            libc::sigaction(libc::SIGUSR2, &action, std::ptr::null_mut()),
            0
        );
    }
    let host = Host::new(Mechanism::Injected);
    let mut random = SplitMix::new(11);
    let mut guests: Vec<_> = (0..6).map(|i| host.worker(SplitMix::new(i + 1))).collect();
    // SAFETY: it has no preconditions.
    let this = unsafe { libc::pthread_self() };
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                // SAFETY: the thread lives until the scope is over.
                unsafe { libc::pthread_kill(this, libc::SIGUSR2) };
                std::thread::sleep(Duration::from_micros(20));
            }
        });
        while SUSPENDED.load(Relaxed) < 20_000 {
            let chosen = random.below(6) as usize;
            assert!(host.poll(&mut guests[chosen]).is_pending());
            if random.below(64) == 0 {
                guests[chosen] = host.worker(SplitMix::new(random.bits()));
            }
            host.clean();
        }
        is_over.store(true, Relaxed);
    });
}

/// A host whose function `next` is this one, and a guest of it that is to run `function`.
fn host_and_guest(
    function: &'static str,
    next: impl Fn(i64) -> i64 + Send + Sync + 'static,
) -> (Host, Guest<i64>) {
    let mut host = Host::new(Mechanism::Injected);
    host.linker.allow_shadowing(true);
    host.linker
        .func_wrap("host", "next", next)
        .expect("shadows");
    let guest =
        host.guest(
            async move |store, instance| match run(store, &instance, function, 7).await {
                Outcome::Value(value) => value,
                Outcome::Trap(trap) => panic!("{function}: {trap}"),
            },
        );
    (host, guest)
}

#[test]
fn a_guest_yields_when_the_host_call_returns_during_which_the_alarm_rang() {
    // As if it had rung there: `request` sends the signal to its own thread.
    let (host, mut guest) = host_and_guest("calls", |x| {
        super::request();
        x + 1
    });
    let mut yields = 0;
    let value = loop {
        host.preemption.set_timer(None);
        if let Poll::Ready(value) = host.poll(&mut guest) {
            break value;
        }
        assert!(host.preemption.take_fired());
        yields += 1;
    };
    assert_eq!(yields, 2000, "once for each call");
    assert_eq!(Outcome::Value(value), expected::calls(7));
}

#[test]
fn an_alarm_that_was_taken_during_a_host_call_does_not_stop_the_guest() {
    let (host, mut guest) = host_and_guest("calls", |x| {
        super::request();
        // The executor would do this when it learns the reason.
        super::alarm::take_request();
        x + 1
    });
    assert!(host.poll(&mut guest).is_ready());
}

/// The guest runs for ever; it has to yield time and again.
fn yields_time_and_again(host: &Host, guest: &mut Guest<i64>) {
    for _ in 0..500 {
        host.preemption.set_timer(Some(monotonic_ns() + 50_000));
        assert!(host.poll(guest).is_pending());
        assert!(host.preemption.take_fired());
    }
}

#[test]
fn a_guest_that_is_in_host_calls_all_the_time_yields() {
    // As long as a large step of a host call, so that the guest is hardly ever in its own code.
    let (host, mut guest) = host_and_guest("calls_for_ever", |x| {
        let end = monotonic_ns() + 20_000;
        while monotonic_ns() < end {
            std::hint::spin_loop();
        }
        x
    });
    yields_time_and_again(&host, &mut guest);
}

#[test]
fn a_guest_that_is_in_bulk_instructions_all_the_time_yields() {
    let (host, mut guest) = host_and_guest("fills_for_ever", |x| x);
    yields_time_and_again(&host, &mut guest);
}

#[test]
fn a_guest_that_is_ended_during_a_call_whose_return_was_changed_is_gone() {
    for _ in 0..200 {
        let (host, mut guest) = host_and_guest("calls", |x| {
            super::request();
            x + 1
        });
        host.preemption.set_timer(None);
        assert!(host.poll(&mut guest).is_pending());
        drop(guest);
    }
}
