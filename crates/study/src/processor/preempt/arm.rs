//! One way to run a guest: an engine that compiles for it, and the loop that runs it.

use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use leasehold_cell::clock::monotonic_ns;
use leasehold_cell::engine_config::engine_config;
use leasehold_cell::preempt::{Mechanism, Preemption};
use leasehold_cell::program::{Code, Program};
use leasehold_cell::slot::SlotPool;
use leasehold_cell::stack::StackPool;
use wasmtime::{Engine, Linker, Store};
use wasmtime_wasi::p1::{self, WasiP1Ctx};
use wasmtime_wasi::p2::pipe::{MemoryInputPipe, MemoryOutputPipe};
use wasmtime_wasi::{I32Exit, WasiCtxBuilder};

use super::guests::Guest;
use super::timer_path;
use crate::harness::clock::thread_cpu_ns;
use crate::harness::samples::Samples;

/// Fuel between two yields: about a millisecond of most guests.
const FUEL_QUANTUM: u64 = 1_000_000;

/// Bytes of memories and stacks that stay resident from one run to the next.
const WARM_SLOT: usize = 64 << 20;
const WARM_STACK: usize = 256 << 10;

/// Room for what a program prints.
const OUTPUT_BYTES: usize = 64 << 20;

/// How a guest is preempted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Not at all.
    None,
    /// Not at all, while a timer signals its thread every quantum, to a handler that reads the
    /// clock.
    Signal,
    /// By this mechanism of a cell.
    Cell(Mechanism),
    /// By the engine's fuel: every instruction counts.
    Fuel,
}

impl Way {
    pub(super) const ALL: [Way; 5] = [
        Way::None,
        Way::Signal,
        Way::Cell(Mechanism::Injected),
        Way::Cell(Mechanism::Epochs),
        Way::Fuel,
    ];

    /// The way for which guests are compiled that run like this.
    const fn compiled_for(self) -> Way {
        match self {
            // Without a preemption that rings, the guest is left alone.
            Way::None | Way::Signal => Way::Cell(Mechanism::Injected),
            Way::Cell(_) | Way::Fuel => self,
        }
    }

    /// Whether its latency can be told: from when a timer is due.
    pub(super) const fn is_timed(self) -> bool {
        matches!(self, Way::Cell(_) | Way::Signal)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Way::None => "none",
            Way::Signal => "signal",
            Way::Cell(Mechanism::Injected) => "injected",
            Way::Cell(_) => "epochs",
            Way::Fuel => "fuel",
        }
    }
}

/// One way, ready to run guests.
pub(super) struct Arm {
    way: Way,
    setting: Rc<Setting>,
}

/// The engine and runtime of the guests.
struct Setting {
    engine: Engine,
    linker: Linker<WasiP1Ctx>,
    slots: SlotPool,
    stacks: StackPool,
}

/// The measurements of one run.
pub(super) struct Ran {
    /// Processor time from before instantiation until the program had ended.
    pub(super) cpu_ns: u64,
    /// From each deadline until the guest's poll had returned, or, for [`Way::Signal`], until the
    /// handler ran.
    pub(super) latency_ns: Samples,
    /// How often the guest yielded.
    pub(super) yields: u64,
}

impl Arm {
    /// One for each way. Ways with equally compiled guests share all but the way, so that a guest
    /// is at the same addresses: the addresses alone can change its speed by some hundredths.
    pub(super) fn all() -> Result<Vec<Self>> {
        let mut arms: Vec<Self> = Vec::new();
        for way in Way::ALL {
            let alike = |arm: &&Self| arm.way.compiled_for() == way.compiled_for();
            let setting = match arms.iter().find(alike) {
                Some(arm) => arm.setting.clone(),
                None => Rc::new(Setting::new(way.compiled_for())?),
            };
            arms.push(Self { way, setting });
        }
        Ok(arms)
    }

    /// Returns the programs of all `arms` for a guest; arms with the same setting share the
    /// program.
    pub(super) fn compile_for(arms: &[Self], bytes: &[u8]) -> Result<Vec<Arc<Program>>> {
        let mut programs: Vec<Arc<Program>> = Vec::new();
        for arm in arms {
            let known = arms.iter().zip(&programs);
            let shared = known.filter(|(other, _)| Rc::ptr_eq(&other.setting, &arm.setting));
            programs.push(match shared.map(|(_, program)| program.clone()).next() {
                Some(program) => program,
                None => arm.compile(bytes)?,
            });
        }
        Ok(programs)
    }

    fn compile(&self, bytes: &[u8]) -> Result<Arc<Program>> {
        Ok(Arc::new(Program::from_bytes(&self.setting.engine, bytes)?))
    }

    /// Runs a guest to its end, a quantum at a time.
    pub(super) fn run(
        &self,
        guest: &Guest,
        program: &Arc<Program>,
        quantum: Duration,
    ) -> Result<Ran> {
        let Code::Module(module) = program.code() else {
            return Err(anyhow!("{} is not a module", guest.name));
        };
        // One at a time on a thread: it is the thread's alarm.
        let preemption = match self.way {
            Way::Cell(mechanism) => Some(Preemption::new(&self.setting.engine, mechanism)?),
            Way::None | Way::Signal | Way::Fuel => None,
        };
        let instance = self
            .setting
            .linker
            .instantiate_pre(module)
            .map_err(failure)?;
        let output = MemoryOutputPipe::new(OUTPUT_BYTES);
        let wasi = WasiCtxBuilder::new()
            .args(&guest.args)
            .stdin(MemoryInputPipe::new(guest.input.clone()))
            .stdout(output.clone())
            .build_p1();

        let began = thread_cpu_ns();
        let mut store = Store::new(&self.setting.engine, wasi);
        let context = match &preemption {
            Some(preemption) => Some(
                preemption
                    .arm(&mut store, program.guests())
                    .map_err(failure)?,
            ),
            None => None,
        };
        if self.way == Way::Fuel {
            store.set_fuel(u64::MAX).map_err(failure)?;
            store
                .fuel_async_yield_interval(Some(FUEL_QUANTUM))
                .map_err(failure)?;
        }
        let mut future = Box::pin(async move {
            let result: wasmtime::Result<()> = async {
                let instance = instance.instantiate_async(&mut store).await?;
                let start = instance.get_typed_func::<(), ()>(&mut store, "_start")?;
                start.call_async(&mut store, ()).await
            }
            .await;
            // The store must not go before the poll is over.
            (result, store)
        });
        let mut polls = Context::from_waker(Waker::noop());
        let quantum = quantum.as_nanos() as u64;
        let (mut latency_ns, mut yields) = (Samples::new(), 0);
        let mut run = || loop {
            let due = monotonic_ns() + quantum;
            if let Some(preemption) = &preemption {
                preemption.set_timer(Some(due));
            }
            let poll = {
                let _entered = preemption.as_ref().zip(context.as_ref()).map(
                    // SAFETY: the future owns the store, and gives it back when it ends.
                    |(preemption, context)| unsafe { preemption.enter(context) },
                );
                future.as_mut().poll(&mut polls)
            };
            let now = monotonic_ns();
            if let Poll::Ready(ended) = poll {
                break ended;
            }
            yields += 1;
            if preemption.as_ref().is_some_and(Preemption::take_fired) {
                latency_ns.record(now.saturating_sub(due));
            }
        };
        let (result, store) = if self.way == Way::Signal {
            let (ended, signals) = timer_path::during(quantum, run)?;
            latency_ns = signals;
            ended
        } else {
            run()
        };
        let cpu_ns = thread_cpu_ns() - began;
        drop(store);
        self.clean();
        if let Err(error) = result {
            let code = error.downcast_ref::<I32Exit>().map(|exit| exit.0);
            ensure!(code == Some(0), "{}: {error:#}", guest.name);
        }
        guest.check(&output.contents())?;
        Ok(Ran {
            cpu_ns,
            latency_ns,
            yields,
        })
    }

    /// Cleans what the run left, outside of what is timed.
    fn clean(&self) {
        while self.setting.slots.state().dirty + self.setting.stacks.state().dirty > 0 {
            self.setting.slots.clean_step(1 << 16);
            self.setting.stacks.clean_step(1 << 16);
        }
    }
}

impl Setting {
    fn new(compiled_for: Way) -> Result<Self> {
        let mut config = match compiled_for {
            Way::Cell(mechanism) => engine_config(mechanism),
            Way::None | Way::Signal | Way::Fuel => engine_config(Mechanism::Injected),
        };
        config.consume_fuel(compiled_for == Way::Fuel);
        let slots = SlotPool::new(4, WARM_SLOT)?;
        let stacks = StackPool::new(4, WARM_STACK)?;
        config.with_host_memory(Arc::new(slots.clone()));
        config.with_host_stack(Arc::new(stacks.clone()));
        let engine = Engine::new(&config).map_err(failure)?;
        let mut linker = Linker::new(&engine);
        p1::add_to_linker_async(&mut linker, |wasi: &mut WasiP1Ctx| wasi).map_err(failure)?;
        Ok(Self {
            engine,
            linker,
            slots,
            stacks,
        })
    }
}

/// The engine's errors are not those of the standard library.
fn failure(error: wasmtime::Error) -> anyhow::Error {
    anyhow!("{error:#}")
}
