//! Stock wasmtime, with which Leasehold is compared: programs on wasmtime and wasmtime-wasi as
//! `wasmtime run` has them, on a multi-threaded tokio runtime, with limits of the store's own and
//! epochs so that an endless loop can be ended.
//!
//! Ending a program is dropping the task that runs it, as an embedder does it: the abort, one turn
//! of the epoch that makes the guest yield, and then the drop of the store. No contract covers the
//! duration of the drop, which the comparison is about.

mod guest;
mod objects;

use std::num::NonZero;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use bytes::Bytes;
use tokio::runtime::{Builder, Runtime};
use tokio::task::AbortHandle;
use wasmparser::Parser;
use wasmtime::component::{Component, Linker as ComponentLinker};
use wasmtime::{
    Config, Engine, InstanceAllocationStrategy, InstancePre, Linker, Module,
    PoolingAllocationConfig, Store, StoreLimitsBuilder,
};
use wasmtime_wasi::p1;
use wasmtime_wasi::p2::bindings::CommandPre;
use wasmtime_wasi::p2::pipe::{MemoryInputPipe, MemoryOutputPipe};
use wasmtime_wasi::{FsPerms, I32Exit, WasiCtxBuilder, WasiView};

use crate::harness::affinity::pin;
use crate::harness::clock::monotonic_ns;
use guest::Guest;

/// Output that is kept of a program; writing more fails.
const OUTPUT_BYTES: usize = 16 << 20;
/// Entries of a resource table.
const TABLE_ENTRIES: usize = 20_000_000;
/// How often the epoch is turned until a guest that is to end has yielded. One turn does, unless
/// it falls between the guest's arming and its start.
const TURN: Duration = Duration::from_millis(1);
/// Programs that may run at once in the pooling variant; each slot reserves address space.
const POOL: u32 = 16;
/// Core instances, memories and tables of each.
const POOL_PARTS: u32 = 100;

/// How memories, tables and stacks of instances are allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Allocation {
    /// Mapped when needed and unmapped afterwards: wasmtime's default.
    OnDemand,
    /// From a pool made in advance, for many short-lived instances.
    Pooling,
}

/// The limits of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Bytes of each linear memory. (Stock wasmtime does not limit their sum.)
    pub memory_bytes: usize,
    /// Elements of each table.
    pub table_elements: usize,
}

/// How a program is started.
#[derive(Debug, Clone)]
pub(crate) struct Invocation {
    /// Arguments, the program's own name first.
    pub args: Vec<String>,
    /// Directories: that of the host, and its name for the guest, which may write.
    pub dirs: Vec<(PathBuf, String)>,
    /// Standard input.
    pub stdin: Bytes,
    /// Limits of its store.
    pub limits: Limits,
    /// Whether calls for files block its thread instead of using another one, like `wasmtime run`:
    /// faster, but the thread is unavailable to other programs meanwhile.
    pub blocking: bool,
}

/// An engine with its runtime and linkers.
pub(crate) struct Stock {
    engine: Engine,
    runtime: Runtime,
    modules: Linker<Guest>,
    components: ComponentLinker<Guest>,
}

/// A program, compiled and linked.
#[derive(Clone)]
pub(crate) struct Program(Linked);

#[derive(Clone)]
enum Linked {
    Module(InstancePre<Guest>),
    Component(CommandPre<Guest>),
}

impl Stock {
    /// Creates an engine whose guests run on processor `cpu` only, or on any, with as many threads
    /// as the caller may use processors.
    ///
    /// # Errors
    /// If the pool cannot be reserved, or there is no such processor.
    pub(crate) fn new(allocation: Allocation, limits: Limits, cpu: Option<usize>) -> Result<Self> {
        let threads = thread::available_parallelism().context("how many processors there are")?;
        Self::with_threads(allocation, limits, cpu, threads)
    }

    /// The same on so many `threads`. With one for each guest, no guest waits until another one
    /// yields: the host's scheduler shares the processor among them.
    ///
    /// # Errors
    /// As [`new`](Self::new), and if the host refuses the threads.
    pub(crate) fn with_threads(
        allocation: Allocation,
        limits: Limits,
        cpu: Option<usize>,
        threads: NonZero<usize>,
    ) -> Result<Self> {
        let mut config = Config::new();
        config.epoch_interruption(true);
        if allocation == Allocation::Pooling {
            config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool(limits)));
        }
        let engine = Engine::new(&config).map_err(failure)?;
        let mut modules = Linker::new(&engine);
        p1::add_to_linker_async(&mut modules, |guest: &mut Guest| &mut guest.wasi)
            .map_err(failure)?;
        let mut components = ComponentLinker::new(&engine);
        wasmtime_wasi::p2::add_to_linker_async(&mut components).map_err(failure)?;
        let mut builder = Builder::new_multi_thread();
        builder.enable_all().worker_threads(threads.get());
        if let Some(cpu) = cpu {
            // Tried here first: a thread of the runtime cannot report an error.
            thread::spawn(move || pin(cpu))
                .join()
                .map_err(|_| anyhow!("pinning panicked"))??;
            builder.on_thread_start(move || {
                if let Err(error) = pin(cpu) {
                    tracing::warn!("{error:#}");
                }
            });
        }
        let runtime = builder.build().context("starting the runtime")?;
        Ok(Self {
            engine,
            runtime,
            modules,
            components,
        })
    }

    /// Makes every running guest yield to the others, as an embedder with many tenants does
    /// periodically.
    pub(crate) fn turn(&self) {
        self.engine.increment_epoch();
    }

    /// Compiles and links a program: a WASI preview 1 command or a component with the world
    /// `wasi:cli/command`, binary or text. A module may import `leasehold_kernel` too, and gets
    /// what a plain embedder would offer: see `objects`.
    ///
    /// # Errors
    /// If it is neither, or imports what stock wasmtime does not have.
    pub(crate) fn load(&self, program: &[u8]) -> Result<Program> {
        let binary = wat::parse_bytes(program)?;
        Ok(Program(if Parser::is_component(&binary) {
            let component = Component::from_binary(&self.engine, &binary).map_err(failure)?;
            let linked = self
                .components
                .instantiate_pre(&component)
                .map_err(failure)?;
            Linked::Component(CommandPre::new(linked).map_err(failure)?)
        } else {
            let module = Module::from_binary(&self.engine, &binary).map_err(failure)?;
            let mut linker = self.modules.clone();
            objects::add_to_linker(&mut linker, &module).map_err(failure)?;
            Linked::Module(linker.instantiate_pre(&module).map_err(failure)?)
        }))
    }

    /// Starts a program.
    ///
    /// # Errors
    /// If a directory cannot be opened. What fails later is the [`Exit`] of the program.
    pub(crate) fn start(&self, program: &Program, invocation: Invocation) -> Result<Running> {
        let stamps = Arc::new(Stamps::default());
        stamps.started.store(monotonic_ns(), Ordering::Relaxed);
        let stdout = MemoryOutputPipe::new(OUTPUT_BYTES);
        let mut wasi = WasiCtxBuilder::new();
        wasi.args(&invocation.args)
            .allow_blocking_current_thread(invocation.blocking)
            .stdin(MemoryInputPipe::new(invocation.stdin))
            .stdout(stdout.clone());
        for (host, guest) in &invocation.dirs {
            wasi.preopened_dir(host, guest, FsPerms::ReadWrite)
                .map_err(failure)
                .with_context(|| format!("opening {}", host.display()))?;
        }
        let limits = StoreLimitsBuilder::new()
            .memory_size(invocation.limits.memory_bytes)
            .table_elements(invocation.limits.table_elements)
            .build();
        let mut guest = Guest {
            wasi: wasi.build_p1(),
            limits,
        };
        // Its default would keep a guest from as many objects as Leasehold lets it have.
        guest.ctx().table.set_max_capacity(TABLE_ENTRIES);

        let (ended, end) = channel();
        let exit = Arc::new(Mutex::new(None));
        let life = Life {
            engine: self.engine.clone(),
            program: program.clone(),
            stamps: Arc::clone(&stamps),
            exit: Arc::clone(&exit),
            ended,
        };
        let task = self.runtime.spawn(life.live(guest)).abort_handle();
        Ok(Running {
            engine: self.engine.clone(),
            stamps,
            stdout,
            exit,
            task,
            end,
        })
    }
}

/// A pool for programs with these limits.
fn pool(limits: Limits) -> PoolingAllocationConfig {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(POOL)
        .total_core_instances(POOL * POOL_PARTS)
        .max_core_instances_per_component(POOL_PARTS)
        .max_memories_per_component(POOL_PARTS)
        .max_tables_per_component(POOL_PARTS)
        .total_memories(POOL * POOL_PARTS)
        .total_tables(POOL * POOL_PARTS)
        .total_stacks(POOL)
        .max_memory_size(limits.memory_bytes)
        .table_elements(limits.table_elements);
    pool
}

/// The engine's errors are not those of the standard library; their text is all that a study
/// needs.
fn failure(error: wasmtime::Error) -> anyhow::Error {
    anyhow!("{error:#}")
}

/// One run of a program, as a task.
struct Life {
    engine: Engine,
    program: Program,
    stamps: Arc<Stamps>,
    exit: Arc<Mutex<Option<Exit>>>,
    ended: Sender<()>,
}

impl Life {
    /// Runs the program. If the task is aborted, what is alive of this is dropped in the reverse
    /// order of its making: the guest's fiber, `_stopped`, the store, `_dropped`, `ended`.
    async fn live(self, guest: Guest) {
        let Self {
            engine,
            program,
            stamps,
            exit,
            ended,
        } = self;
        let _ended = ended;
        let _dropped = StampWhenDropped {
            stamps: Arc::clone(&stamps),
            which: |s| &s.dropped,
        };
        let mut store = Store::new(&engine, guest);
        let _stopped = StampWhenDropped {
            stamps: Arc::clone(&stamps),
            which: |s| &s.stopped,
        };
        store.limiter(|guest| &mut guest.limits);
        store.set_epoch_deadline(1);
        store.epoch_deadline_async_yield_and_update(1);
        let result = match program.0 {
            Linked::Module(linked) => run_module(&linked, &mut store, &stamps).await,
            Linked::Component(linked) => run_component(&linked, &mut store, &stamps).await,
        };
        *exit.lock().unwrap_or_else(PoisonError::into_inner) = Some(match result {
            Ok(()) => Exit::Code(0),
            Err(error) => match error.downcast_ref::<I32Exit>() {
                Some(I32Exit(code)) => Exit::Code(*code),
                None => Exit::Failed(format!("{error:#}")),
            },
        });
    }
}

async fn run_module(
    linked: &InstancePre<Guest>,
    store: &mut Store<Guest>,
    stamps: &Stamps,
) -> wasmtime::Result<()> {
    let instance = linked.instantiate_async(&mut *store).await?;
    let start = instance.get_typed_func::<(), ()>(&mut *store, "_start")?;
    stamps.instantiated.store(monotonic_ns(), Ordering::Relaxed);
    start.call_async(store, ()).await
}

async fn run_component(
    linked: &CommandPre<Guest>,
    store: &mut Store<Guest>,
    stamps: &Stamps,
) -> wasmtime::Result<()> {
    let command = linked.instantiate_async(&mut *store).await?;
    stamps.instantiated.store(monotonic_ns(), Ordering::Relaxed);
    match command.wasi_cli_run().call_run(store).await? {
        Ok(()) => Ok(()),
        Err(()) => Err(I32Exit(1).into()),
    }
}

/// When what happened, on [`monotonic_ns`]; 0 for what has not.
#[derive(Default)]
struct Stamps {
    started: AtomicU64,
    instantiated: AtomicU64,
    stopped: AtomicU64,
    dropped: AtomicU64,
}

struct StampWhenDropped {
    stamps: Arc<Stamps>,
    which: fn(&Stamps) -> &AtomicU64,
}

impl Drop for StampWhenDropped {
    fn drop(&mut self) {
        (self.which)(&self.stamps).store(monotonic_ns(), Ordering::Relaxed);
    }
}

/// How a program ended by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Exit {
    /// With this code.
    Code(i32),
    /// By a trap, or because it could not be instantiated.
    Failed(String),
}

/// The instants of a program's life, on [`monotonic_ns`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Times {
    /// Its start was asked for.
    pub started_ns: u64,
    /// It was instantiated, and its first instruction next; `None` if it never got there.
    pub instantiated_ns: Option<u64>,
    /// It ran no more: its fiber was unwound.
    pub stopped_ns: u64,
    /// Its store was dropped: everything it had was given back.
    pub dropped_ns: u64,
}

/// When a program was told to end, and when it had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EndTimes {
    /// It was told to end, on [`monotonic_ns`].
    pub killed_ns: u64,
    /// The turns of its life.
    pub times: Times,
}

/// A program that was started. Dropping it kills it.
pub(crate) struct Running {
    engine: Engine,
    stamps: Arc<Stamps>,
    stdout: MemoryOutputPipe,
    exit: Arc<Mutex<Option<Exit>>>,
    task: AbortHandle,
    /// Nothing is ever sent: it closes when the task is gone.
    end: Receiver<()>,
}

impl Running {
    /// Everything written to standard output so far.
    pub(crate) fn output(&self) -> Vec<u8> {
        self.stdout.contents().to_vec()
    }

    /// Waits until standard output contains `text`.
    ///
    /// # Errors
    /// If the program ends before, or `patience` does.
    pub(crate) fn wait_for_output(&self, text: &str, patience: Duration) -> Result<()> {
        let begin = Instant::now();
        loop {
            // Queried before the output is read, so that the last output is not missed.
            let ended = self.end.try_recv() == Err(std::sync::mpsc::TryRecvError::Disconnected);
            let output = self.stdout.contents();
            if output
                .windows(text.len().max(1))
                .any(|part| part == text.as_bytes())
            {
                return Ok(());
            }
            if ended {
                bail!(
                    "the program ended without saying {text:?}: {:?}",
                    self.exit()
                );
            }
            if begin.elapsed() > patience {
                bail!("the program did not say {text:?} in {patience:?}");
            }
            thread::sleep(Duration::from_micros(200));
        }
    }

    /// Waits until the program has ended by itself and all it had is given back.
    ///
    /// # Errors
    /// If `patience` ends before; the program is then killed.
    pub(crate) fn wait(self, patience: Duration) -> Result<(Exit, Times)> {
        if self.end.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
            bail!("the program did not end in {patience:?}");
        }
        let exit = self.exit().context("the program ended without a result")?;
        Ok((exit, self.times()))
    }

    /// Ends the program and waits until all it had is given back.
    pub(crate) fn kill(self) -> EndTimes {
        let killed_ns = monotonic_ns();
        self.end();
        EndTimes {
            killed_ns,
            times: self.times(),
        }
    }

    fn end(&self) {
        self.task.abort();
        loop {
            self.engine.increment_epoch();
            if self.end.recv_timeout(TURN) == Err(RecvTimeoutError::Disconnected) {
                break;
            }
        }
    }

    fn exit(&self) -> Option<Exit> {
        self.exit
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The turns of its life; to be asked for when it is over.
    fn times(&self) -> Times {
        let stamp = |which: &AtomicU64| which.load(Ordering::Relaxed);
        Times {
            started_ns: stamp(&self.stamps.started),
            instantiated_ns: Some(stamp(&self.stamps.instantiated)).filter(|ns| *ns > 0),
            stopped_ns: stamp(&self.stamps.stopped),
            dropped_ns: stamp(&self.stamps.dropped),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::{Allocation, Exit, Invocation, Limits, Running, Stock};
    use std::time::Duration;

    const PATIENCE: Duration = Duration::from_secs(30);
    const LIMITS: Limits = Limits {
        memory_bytes: 1 << 20,
        table_elements: 1000,
    };

    /// Says `ready`, then does `body`.
    fn module(body: &str) -> String {
        format!(
            r#"(module
                (import "wasi_snapshot_preview1" "fd_write"
                    (func $write (param i32 i32 i32 i32) (result i32)))
                (import "wasi_snapshot_preview1" "poll_oneoff"
                    (func $poll (param i32 i32 i32 i32) (result i32)))
                (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
                (memory (export "memory") 1)
                (table $table 10 funcref)
                (data (i32.const 0) "\10\00\00\00\06\00\00\00")
                (data (i32.const 16) "ready\n")
                ;; A subscription to the monotonic clock in 10^12 ns.
                (data (i32.const 80) "\01\00\00\00\00\00\00\00\00\10\a5\d4\e8\00\00\00")
                (func (export "_start")
                    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))
                    {body}))"#
        )
    }

    const SPIN: &str = "(loop $again (br $again))";
    const SLEEP: &str =
        "(drop (call $poll (i32.const 64) (i32.const 128) (i32.const 1) (i32.const 12)))";

    fn start(stock: &Stock, text: &str) -> Running {
        let program = stock.load(text.as_bytes()).expect("a program");
        let invocation = Invocation {
            args: vec!["test".into()],
            dirs: Vec::new(),
            stdin: bytes::Bytes::new(),
            limits: LIMITS,
            blocking: false,
        };
        stock.start(&program, invocation).expect("started")
    }

    fn stocks() -> [Stock; 2] {
        [Allocation::OnDemand, Allocation::Pooling]
            .map(|allocation| Stock::new(allocation, LIMITS, Some(0)).expect("an engine"))
    }

    #[test]
    fn a_guest_that_loops_or_sleeps_can_be_killed() {
        for stock in stocks() {
            for body in [SPIN, SLEEP] {
                let running = start(&stock, &module(body));
                running.wait_for_output("ready", PATIENCE).expect("ready");
                let end = running.kill();
                let times = end.times;
                let instantiated = times.instantiated_ns.expect("it ran");
                assert!(times.started_ns <= instantiated && instantiated <= end.killed_ns);
                assert!(end.killed_ns <= times.stopped_ns && times.stopped_ns <= times.dropped_ns);
            }
        }
    }

    #[test]
    fn a_component_can_be_killed() {
        for stock in stocks() {
            let running = start(
                &stock,
                r#"(component
                    (core module $m
                        (func (export "run") (result i32) (loop $again (br $again)) unreachable))
                    (core instance $i (instantiate $m))
                    (func $run (result (result)) (canon lift (core func $i "run")))
                    (instance $run (export "run" (func $run)))
                    (export "wasi:cli/run@0.2.0" (instance $run)))"#,
            );
            assert!(
                running
                    .wait_for_output("x", Duration::from_millis(20))
                    .is_err()
            );
            let end = running.kill();
            assert!(end.times.dropped_ns > end.killed_ns);
        }
    }

    #[test]
    fn a_guest_that_ends_tells_its_code_or_its_trap() {
        for stock in stocks() {
            let code = start(&stock, &module("(call $exit (i32.const 7))")).wait(PATIENCE);
            assert_eq!(code.expect("ended").0, Exit::Code(7));
            let done = start(&stock, &module("")).wait(PATIENCE);
            assert_eq!(done.expect("ended").0, Exit::Code(0));
            let trap = start(&stock, &module("unreachable"))
                .wait(PATIENCE)
                .expect("ended")
                .0;
            assert!(
                matches!(&trap, Exit::Failed(why) if why.contains("unreachable")),
                "{trap:?}"
            );
        }
    }

    #[test]
    fn kernel_objects_are_entries_of_the_table() {
        let text = |calls: &str| {
            module(&format!("(call $exit (i32.wrap_i64 {calls}))")).replacen(
                "(import",
                r#"(import "leasehold_kernel" "semaphore_create"
                    (func $semaphore (param i32) (result i64)))
                (import "leasehold_kernel" "semaphore_try_down"
                    (func $down (param i32) (result i64)))
                (import "leasehold_kernel" "timer_create" (func $timer (result i64)))
                (import "leasehold_kernel" "timer_set"
                    (func $set (param i32 i64 i64) (result i64)))
                (import "leasehold_kernel" "task_start" (func $task (param i32 i32) (result i64)))
                (import"#,
                1,
            )
        };
        let semaphore = "(i32.wrap_i64 (call $semaphore (i32.const 1)))";
        let timer = "(i32.wrap_i64 (call $timer))";
        let week = "(i64.const 604800000000000) (i64.const 0)";
        for stock in stocks() {
            let code = |calls: &str| match start(&stock, &text(calls)).wait(PATIENCE) {
                Ok((Exit::Code(code), _)) => code,
                other => panic!("{calls}: {other:?}"),
            };
            assert_eq!(code(&format!("(call $down {semaphore})")), 0);
            assert_eq!(code(&format!("(call $set {timer} {week})")), 0);
            // Refused by numbers below zero, which exit codes cannot be.
            let refused = |calls: &str| code(&format!("(i64.sub (i64.const 0) {calls})"));
            assert_eq!(refused("(call $down (i32.const 77))"), 1);
            assert_eq!(refused(&format!("(call $down {timer})")), 1);
            assert_eq!(refused("(call $task (i32.const 0) (i32.const 0))"), 15);
        }
    }

    #[test]
    fn limits_hold() {
        // 1 MiB are 16 pages, of which it has one; the exit code is one more than what growing
        // answers, since it must not be negative.
        let grow = |grow: &str| module(&format!("(call $exit (i32.add (i32.const 1) {grow}))"));
        let table = "(table.grow $table (ref.null func) (i32.const {}))";
        for stock in stocks() {
            let code = |text: &str| start(&stock, text).wait(PATIENCE).expect("ended").0;
            assert_eq!(code(&grow("(memory.grow (i32.const 15))")), Exit::Code(2));
            assert_eq!(code(&grow("(memory.grow (i32.const 16))")), Exit::Code(0));
            assert_eq!(code(&grow(&table.replace("{}", "990"))), Exit::Code(11));
            assert_eq!(code(&grow(&table.replace("{}", "991"))), Exit::Code(0));
        }
    }

    #[test]
    fn what_is_no_program_is_refused() {
        let stock = Stock::new(Allocation::OnDemand, LIMITS, None).expect("an engine");
        for text in [
            "",
            "(module",
            "(component)",
            r#"(module (import "no" "such" (func)))"#,
        ] {
            assert!(stock.load(text.as_bytes()).is_err(), "{text:?}");
        }
        assert!(Stock::new(Allocation::OnDemand, LIMITS, Some(1 << 20)).is_err());
    }
}
