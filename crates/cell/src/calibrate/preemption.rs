//! Measures the cost of one preemption on this host: the `O^pre` of SPR eq. (2).
//!
//! The paper counts three parts, which are measured as follows:
//! * The timer interrupt: from the timer's expiry until the guest's poll has returned. This is
//!   the host's timer path, the signal, the yield, and the exit from the fiber.
//! * The invocation of the scheduler: a decision between two servers, with the largest
//!   replenishment queue full and everything due.
//! * The context switch: arming the timer and entering a fiber.
//!
//! Each is measured on the code of the cell, on a thread with real-time priority where the host
//! grants it.

use super::effort::Effort;
use crate::clock::monotonic_ns;
use crate::engine_config::engine_config;
use crate::fiber::{Fiber, Returned};
use crate::pools::Pools;
use crate::profile::{Latency, PreemptionCosts};
use crate::program::{Code, Program};
use crate::realtime::{self, Realtime};
use anyhow::{Context as _, Result, anyhow, bail};
use leasehold_preempt::{Mechanism, Preemption};
use leasehold_reserve::{Config, Contract, Order, Priority, Scheduler, Shielding};
use leasehold_slots::stack_class::StackClass;
use std::cell::Cell;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use wasmtime::{Caller, Engine, InstancePre, Linker, Store};

/// How long a guest runs before it is interrupted, ns: long enough to reach its loop again, and for
/// the timer to need programming by the host.
const QUANTUM_NS: u64 = 150_000;

/// The bytes that a guest has touched before it is interrupted: more than a core's own caches hold.
const TOUCHED: usize = 4 << 20;

/// The largest replenishment queue that a lease can have.
const QUEUE: u32 = leasehold_lease::Cpu::MAX_REPLENISHMENTS as u32;

/// Samples of each part.
fn samples(effort: Effort) -> usize {
    match effort {
        Effort::Quick => 100,
        Effort::Full => 2000,
    }
}

/// Measures what one preemption takes with this mechanism, on a thread of its own.
///
/// # Errors
/// When the host refuses a timer, or a guest of the measurement does not run.
pub(super) fn preemption(effort: Effort, mechanism: Mechanism) -> Result<PreemptionCosts> {
    let mechanism = mechanism.or_fallback(engine_config);
    std::thread::Builder::new()
        .name("calibrate".into())
        .spawn(move || {
            let realtime = realtime::ask() == Realtime::Granted;
            let bench = Bench::new(mechanism)?;
            Ok(PreemptionCosts {
                mechanism: mechanism.name().to_owned(),
                realtime,
                interrupt: bench.interrupts(samples(effort))?,
                decision: decisions(samples(effort) / 4)?,
                switch: bench.switches(samples(effort))?,
            })
        })
        .context("a thread")?
        .join()
        .map_err(|_| anyhow!("measuring preemption panicked"))?
}

/// Runs through a page of memory at a time, for ever.
const STREAM: &str = r#"(module
  (memory (export "memory") 64)
  (func (export "_start") (local $at i32)
    (loop $next
      (i64.store (local.get $at) (i64.add (i64.load (local.get $at)) (i64.const 1)))
      (local.set $at (i32.and (i32.add (local.get $at) (i32.const 64)) (i32.const 0x3fffff)))
      (br $next))))"#;

/// Records that it has the processor, and yields, in an endless loop, by calls of WASI, since
/// programs may import nothing else.
const YIELDER: &str = r#"(module
  (import "wasi_snapshot_preview1" "sched_yield" (func $yield (result i32)))
  (memory (export "memory") 1)
  (func (export "_start") (loop $next (drop (call $yield)) (br $next))))"#;

thread_local! {
    /// When a guest of the measurement had the processor last, ns.
    static HERE: Cell<u64> = const { Cell::new(0) };
}

struct Bench {
    engine: Engine,
    mechanism: Mechanism,
    linker: Linker<()>,
    // Behind the engine, which gives back to them.
    _pools: Pools,
}

/// A guest that runs for ever.
struct Endless(Fiber<(), wasmtime::Result<()>>);

impl Endless {
    /// Runs the guest until it yields.
    fn poll(&mut self, preemption: &Preemption) -> Result<()> {
        let mut context = Context::from_waker(Waker::noop());
        match self.0.poll(preemption, &mut context) {
            Poll::Pending => Ok(()),
            Poll::Ready((_, Ok(()))) => bail!("a guest of the measurement ended"),
            Poll::Ready((_, Err(error))) => bail!("a guest of the measurement: {error:#}"),
        }
    }
}

async fn run(
    mut store: Store<()>,
    instance: InstancePre<()>,
) -> Returned<(), wasmtime::Result<()>> {
    let result = call(&mut store, &instance).await;
    (store, result)
}

async fn call(store: &mut Store<()>, instance: &InstancePre<()>) -> wasmtime::Result<()> {
    let instance = instance.instantiate_async(&mut *store).await?;
    let start = instance.get_typed_func::<(), ()>(&mut *store, "_start")?;
    start.call_async(&mut *store, ()).await
}

impl Bench {
    fn new(mechanism: Mechanism) -> Result<Self> {
        let pools = Pools::new(4)?;
        let mut config = engine_config(mechanism);
        pools.configure(&mut config, StackClass::SMALLEST)?;
        let engine = Engine::new(&config).map_err(|error| anyhow!("the wasm engine: {error:#}"))?;
        let mut linker = Linker::new(&engine);
        linker
            .func_wrap_async(
                "wasi_snapshot_preview1",
                "sched_yield",
                |_: Caller<'_, ()>, ()| {
                    HERE.set(monotonic_ns());
                    Box::new(async {
                        OneTurn(false).await;
                        0
                    })
                },
            )
            .map_err(|error| anyhow!("a host function: {error:#}"))?;
        Ok(Self {
            engine,
            mechanism,
            linker,
            _pools: pools,
        })
    }

    fn endless(&self, preemption: &Preemption, text: &str) -> Result<Endless> {
        let program = Arc::new(Program::from_bytes(&self.engine, text.as_bytes())?);
        let Code::Module(module) = program.code() else {
            bail!("a guest of the measurement is not a module");
        };
        let instance = self
            .linker
            .instantiate_pre(module)
            .map_err(|error| anyhow!("{error:#}"))?;
        let store = Store::new(&self.engine, ());
        let fiber = Fiber::new(preemption, program.built(), store, |store| {
            Box::pin(run(store, instance))
        });
        Ok(Endless(fiber.map_err(|error| anyhow!("{error:#}"))?))
    }

    /// From the timer's expiry until the guest's poll has returned.
    fn interrupts(&self, samples: usize) -> Result<Latency> {
        let preemption = Preemption::new(&self.engine, self.mechanism)?;
        let mut guest = self.endless(&preemption, STREAM)?;
        let mut late = Vec::with_capacity(samples);
        // The first ones compile, fault, and fill the caches.
        for sample in 0..samples + samples / 10 {
            let due = monotonic_ns() + QUANTUM_NS;
            preemption.set_timer(Some(due));
            guest.poll(&preemption)?;
            let now = monotonic_ns();
            if preemption.take_fired() && sample >= samples / 10 {
                late.push(now.saturating_sub(due));
            }
        }
        Ok(Latency::of(late))
    }

    /// Measures the time from a decision until the chosen guest runs: arming the timer and entering
    /// the fiber. The timer is set to an instant before all others of the kernel, which then has to
    /// program the hardware. In a virtual machine that takes fifty times as long as a system call
    /// that only records a later instant.
    fn switches(&self, samples: usize) -> Result<Latency> {
        let preemption = Preemption::new(&self.engine, self.mechanism)?;
        let mut guest = self.endless(&preemption, YIELDER)?;
        guest.poll(&preemption)?;
        let mut cold = Cold::new();
        let took = (0..samples)
            .map(|_| {
                cold.touch();
                let began = monotonic_ns();
                let due = began + QUANTUM_NS;
                preemption.set_timer(Some(due));
                guest.poll(&preemption)?;
                // The next one finds a timer that is not set, as after a guest that has blocked.
                while !preemption.take_fired() {
                    std::hint::spin_loop();
                }
                Ok(HERE.get().saturating_sub(began))
            })
            .collect::<Result<_>>()?;
        Ok(Latency::of(took))
    }
}

/// Returns `Pending` once.
struct OneTurn(bool);

impl Future for OneTurn {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        match std::mem::replace(&mut self.0, true) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}

/// Memory that is run through to leave nothing else in a core's own caches.
struct Cold(Vec<u64>);

impl Cold {
    fn new() -> Self {
        Self(vec![1; TOUCHED / size_of::<u64>()])
    }

    fn touch(&mut self) {
        for word in self.0.iter_mut().step_by(8) {
            *word = word.wrapping_add(1);
        }
        std::hint::black_box(&self.0);
    }
}

/// An invocation of the scheduler in which a server with a full queue of replenishments, all due,
/// preempts another one; with nothing of it in the caches.
fn decisions(samples: usize) -> Result<Latency> {
    const SLICE: u64 = 2;
    let budget = u64::from(QUEUE) * SLICE;
    let period = budget * 1000;
    let contract = |priority| {
        Contract::new(budget, period)
            .and_then(|contract| contract.with_replenishments(QUEUE))
            .map(|contract| contract.with_priority(Priority(priority)))
    };
    let mut scheduler = Scheduler::new(Config {
        order: Order::FixedPriority,
        shielding: Shielding::Shielded,
        servers: 2,
        tasks: 2,
        seed: 0,
    });
    let mut now = 0;
    let add = |scheduler: &mut Scheduler, priority| -> Result<_> {
        let server = scheduler.add_server(&contract(priority)?, 0)?;
        let task = scheduler.add_task(server)?;
        Ok((server, task))
    };
    let (high, preempting) = add(&mut scheduler, 2)?;
    let (_, preempted) = add(&mut scheduler, 1)?;
    scheduler.wake(preempted, now)?;
    let mut cold = Cold::new();
    let mut took = Vec::with_capacity(samples);
    for _ in 0..samples {
        // It uses its budget slice by slice, each to come back at a time of its own.
        for _ in 0..QUEUE - 1 {
            scheduler.wake(preempting, now)?;
            scheduler.schedule(now);
            now += SLICE;
            scheduler.block(preempting, now, None)?;
            scheduler.schedule(now);
            now += 3 * SLICE;
        }
        if scheduler.replenishments(high)?.count() < QUEUE as usize / 2 {
            bail!("the replenishment queue of the measurement is not full");
        }
        now += 2 * period;
        scheduler.schedule(now);
        now += SLICE;
        cold.touch();
        let began = monotonic_ns();
        scheduler.wake(preempting, now)?;
        let decision = scheduler.schedule(now);
        took.push(monotonic_ns() - began);
        if decision.run != Some(preempting) {
            bail!("the server of the measurement did not preempt");
        }
        now += SLICE;
        scheduler.block(preempting, now, None)?;
        scheduler.schedule(now);
        now += 2 * period;
    }
    Ok(Latency::of(took))
}

#[cfg(test)]
mod tests {
    use super::{Effort, preemption};
    use leasehold_preempt::Mechanism;

    #[test]
    fn every_part_of_a_preemption_is_measured_by_either_mechanism() {
        for mechanism in [Mechanism::Injected, Mechanism::Epochs] {
            let costs = preemption(Effort::Quick, mechanism).expect("measured");
            for part in [costs.interrupt, costs.decision, costs.switch] {
                assert!(part.p50_ns > 0 && part.p50_ns <= part.p99_ns, "{costs:?}");
            }
            let sum = costs.interrupt.p99_ns + costs.decision.p99_ns + costs.switch.p99_ns;
            assert_eq!(costs.per_preemption_ns(), sum);
        }
    }
}
