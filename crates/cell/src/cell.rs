//! A cell, from the controller's side: starts tenants, ends them, and reports how they ended.
//!
//! The cell itself runs on a thread of its own ([`crate::executor`]); this is the handle that
//! other threads hold.

use crate::built::Built;
use crate::calls::{self, Call, CallError, ExportedFunction, PendingCall};
use crate::clock::monotonic_ns;
use crate::code_space::CodeSpace;
use crate::command::{Command, Connect, StartRequest};
use crate::compiler::Compiler;
use crate::config::CellConfig;
use crate::control_share::{ControlKind, ControlUse};
use crate::dispatch::{self, Processor, Promised, claim};
use crate::donor;
use crate::drift::{ClassCosts, PresentPrices, Prices};
use crate::ended::Ended;
use crate::engine_config::engine_config;
use crate::engine_parts::EngineParts;
use crate::engines::Engines;
use crate::executor::Executor;
use crate::heap;
use crate::host::fs::limit;
use crate::host::io::Io;
use crate::local;
use crate::mappings::{self, Mappings};
use crate::memory::{self, HeldFrames, MemoryUse, SharedUse};
use crate::own_core::{self, NoOwnCore, OwnCore};
use crate::pools::Pools;
use crate::process_limits;
use crate::program::{Entry, Program, ProgramError, Purpose};
use crate::programs;
use crate::promises::{Promises, Unkept};
use crate::realtime::{self, Realtime, WhenRealtime};
use crate::realtime_limit::RealtimeLimit;
use crate::serving::{Service, Serving};
use crate::start_error::StartError;
use crate::starting::Client;
use crate::steps::{RowBounds, RowId, StepSamples, StepUse, watch};
use leasehold_crossing::{Donation, Inbox, Message, Urgency};
use leasehold_door::pass;
use leasehold_exchange::Intake;
use leasehold_kernel::Errno;
use leasehold_lease::Lease;
use leasehold_preempt::{Companion, Preemption};
use leasehold_reclaim::Statement;
use leasehold_slots::stack_class::StackClass;
use leasehold_wasm::artifact::{CodeCache, Digest};
use leasehold_wasm::compile_threads;
use leasehold_wasm::own_module::own_module;
use leasehold_wasm::toolchain::Toolchain;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use wasmtime::Engine;
use wasmtime::component::Val;

/// A running cell. Dropping it ends its tenants and its thread.
pub struct Cell {
    engine: Engine,
    engines: Arc<Engines>,
    inbox: Arc<Inbox<Command>>,
    thread: Option<JoinHandle<()>>,
    next_key: AtomicU64,
    code_cache: Option<Arc<CodeCache>>,
    compiler: Option<Arc<Compiler>>,
    code: Arc<CodeSpace>,
    realtime: Realtime,
    /// What kills ask for.
    donation: Arc<Donation>,
    donor: Option<JoinHandle<()>>,
    own_core: Option<usize>,
    /// The reservations that are promised; `None` without an admission test.
    promises: Option<Promises>,
    bounds: Arc<RowBounds>,
    prices: Arc<PresentPrices>,
    held: Option<HeldFrames>,
    /// The mappings that the cell's pools may take; dropped when its thread has ended.
    _mappings: Mappings,
    io: Arc<Io>,
}

/// A tenant in a cell. Dropping the handle leaves the tenant running.
#[allow(missing_debug_implementations)]
pub struct TenantHandle {
    key: u64,
    /// Bytes that one of its calls may hold.
    call_bytes: u64,
    inbox: Arc<Inbox<Command>>,
    donation: Arc<Donation>,
    ended: Receiver<Ended>,
}

/// A tenant that is being started. Dropping it lets the start go on.
#[allow(missing_debug_implementations)]
pub struct PendingStart {
    handle: TenantHandle,
    started: Receiver<Result<(), StartError>>,
}

/// Ends a tenant that any thread may wait for meanwhile, whatever it is doing, its start included.
#[derive(Clone)]
#[allow(missing_debug_implementations)]
pub struct Killer {
    key: u64,
    inbox: Arc<Inbox<Command>>,
    donation: Arc<Donation>,
}

impl Killer {
    /// Ends the tenant, whatever it is doing. Idempotent; does not wait. The clock of the end, and of
    /// what bounds it ([`KillDelay`](crate::KillDelay)), starts here.
    pub fn kill(&self) {
        let (key, asked_ns) = (self.key, monotonic_ns());
        self.donation.ask(|urgency| {
            let command = Command::Kill {
                key,
                asked_ns,
                urgency,
            };
            let message = Message::Command(command);
            self.inbox.put(message, Urgency::CONTROL);
        });
    }
}

impl PendingStart {
    /// Waits for at most `patience`, and returns the tenant, or why it is not started.
    ///
    /// # Errors
    /// Itself, if neither is known by then.
    pub fn wait_for(self, patience: Duration) -> Result<Result<TenantHandle, StartError>, Self> {
        match self.started.recv_timeout(patience) {
            Ok(started) => Ok(started.map(|()| self.handle)),
            Err(RecvTimeoutError::Timeout) => Err(self),
            Err(RecvTimeoutError::Disconnected) => Ok(Err(StartError::CellEnded)),
        }
    }

    /// Returns what ends the tenant, while it is started and afterwards.
    pub fn killer(&self) -> Killer {
        self.handle.killer()
    }

    /// Waits until the tenant has been started.
    ///
    /// # Errors
    /// When its lease does not pay for its start, its surroundings are not there, or the cell has
    /// ended first.
    pub fn wait(self) -> Result<TenantHandle, StartError> {
        self.started.recv().map_err(|_| StartError::CellEnded)??;
        Ok(self.handle)
    }
}

impl Command {
    pub(crate) const fn kind(&self) -> ControlKind {
        match self {
            Self::Start { .. } => ControlKind::Start,
            Self::Go(_) => ControlKind::Go,
            Self::Kill { .. } => ControlKind::Kill,
            Self::Call(..) | Self::FinishCalls(_) => ControlKind::Call,
            Self::Statement(..) => ControlKind::Statement,
            Self::Processors(..) => ControlKind::Processors,
            Self::Memory(..) | Self::Shared(_) => ControlKind::Memory,
            Self::Connect(_) => ControlKind::Connect,
            Self::Steps(_) | Self::Samples(_) | Self::Costs(_) => ControlKind::Steps,
            Self::Control(_) => ControlKind::Control,
            Self::Shutdown => ControlKind::Shutdown,
        }
    }
}

impl Cell {
    /// Starts a cell.
    ///
    /// # Errors
    /// When the host refuses a thread, address space, or the engine.
    pub fn start(mut config: CellConfig) -> anyhow::Result<Self> {
        process_limits::raise()?;
        // Before the first engine, which may compile.
        compile_threads::start()?;
        let cache = config.code_cache.as_deref();
        config.preemption = config
            .preemption
            .or_fallback_with(engine_config, &|engine, text| {
                own_module(engine, text, cache)
            });
        heap::make_predictable();
        limit::raise();
        let places = mappings::MEMORY * config.max_memories as u64;
        let mappings = Mappings::claim(places)
            .map_err(|error| anyhow::anyhow!("{} memories: {error}", config.max_memories))?;
        let pools = Pools::new(config.max_memories)?;
        let engines = Engines::new(
            (config.preemption, config.backtraces),
            pools.clone(),
            config.max_memories,
            config.code_cache.clone(),
        );
        let engines = Arc::new(engines);
        let default = engines.get_or_make(StackClass::SMALLEST)?;
        let (engine, companion) = (default.engine.clone(), default.companion.clone());
        let inbox = Arc::new(Inbox::new());
        let donation = Arc::new(Donation::default());
        let (ready, started) = channel();
        let (place, placed) = channel();
        let (give_io, given_io) = channel();
        let ends_fit = Arc::new(AtomicBool::new(true));
        let bounds =
            Arc::new(RowBounds::calibrated(&config.profile).preempted_by(engines.mechanism()));
        let prices = Arc::<PresentPrices>::default();
        let thread = {
            let (inbox, donation) = (inbox.clone(), donation.clone());
            let shared = (ends_fit.clone(), bounds.clone(), prices.clone());
            let config = config.clone();
            pass(leasehold_door::Call::StartThread)?;
            std::thread::Builder::new()
                .name("leasehold-cell".into())
                .spawn(move || {
                    let _recipient = donation.receive();
                    let (realtime, own_core) = take_place(&config, &place);
                    let lacks_core = realtime == Realtime::Granted && own_core.is_none();
                    if config.needs_own_core && lacks_core {
                        let _ = ready.send(Err(NoOwnCore.into()));
                    } else if let Ok(io) = given_io.recv() {
                        run(
                            &config,
                            companion,
                            inbox,
                            (pools, io),
                            shared,
                            realtime,
                            &ready,
                        );
                    }
                })?
        };
        let Placement { core, own_core } = placed
            .recv()
            .map_err(|_| anyhow::anyhow!("the cell's thread ended at once"))?;
        let io = Arc::new(Io::start(core)?);
        let _ = give_io.send(io.clone());
        let begun = started
            .recv()
            .map_err(|_| anyhow::anyhow!("the cell's thread ended at once"))
            .flatten();
        // Without a cell no thread of it is left.
        let (realtime, held) = begun.inspect_err(|_| io.stop())?;
        let (realtime, donor) = match config.realtime {
            WhenRealtime::ForKills => donor::start(&donation),
            WhenRealtime::Never | WhenRealtime::Always => (realtime, None),
        };
        let overhead = dispatch::overhead(&config);
        // Without real-time priority the host may take any amount of time.
        let limit = (realtime == Realtime::Granted).then(RealtimeLimit::of_host);
        let promises = config.admission.then(|| {
            let promises = Promises::new(config.order, overhead, config.ends, ends_fit);
            promises.with_limit(limit.flatten())
        });
        Ok(Self {
            engine,
            engines,
            inbox,
            thread: Some(thread),
            next_key: AtomicU64::new(1),
            code_cache: config.code_cache,
            compiler: config.compiler,
            code: CodeSpace::new(config.code),
            realtime,
            donation,
            donor,
            own_core,
            promises,
            bounds,
            prices,
            held,
            _mappings: mappings,
            io,
        })
    }

    /// Whether the cell's thread runs before all ordinary threads of the host.
    pub fn realtime(&self) -> &Realtime {
        &self.realtime
    }

    /// The core that the cell's thread is pinned to and that no other real-time cell of its network
    /// namespace uses. `None` without real-time priority, or if every core that it may run on
    /// belongs to another cell. In the latter case the cells wait for each other, and neither can
    /// keep a reservation.
    pub fn own_core(&self) -> Option<usize> {
        self.own_core
    }

    /// The host memory that the cell really held when it started; `None` if it was configured to
    /// hold none.
    pub fn held(&self) -> Option<&HeldFrames> {
        self.held.as_ref()
    }

    /// How long host steps may be for tenants that are admitted now.
    pub fn row_bounds(&self) -> &Arc<RowBounds> {
        &self.bounds
    }

    /// The prices of tenants that are admitted now.
    pub fn prices(&self) -> &Arc<PresentPrices> {
        &self.prices
    }

    /// The engine that compiles programs for this cell.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Reads, checks and compiles a program, on the calling thread; from the cache if it was
    /// compiled before.
    ///
    /// # Errors
    /// Any [`ProgramError`].
    pub fn load(&self, path: &Path) -> Result<Arc<Program>, ProgramError> {
        let parts = self.engine_of_class(StackClass::SMALLEST)?;
        let built = self.built(path, Purpose::COMMAND, parts)?;
        self.house(built, u64::MAX)
    }

    /// The digest of the program in a file, as a [program](Program::digest) has it that was loaded from there. With a
    /// cache of compiled programs the file is read only if it was changed since it was read before.
    ///
    /// # Errors
    /// When the file cannot be read, or is longer than a program may be.
    pub fn digest(&self, path: &Path) -> Result<Digest, ProgramError> {
        match &self.code_cache {
            Some(cache) => cache.digest(path),
            None => Digest::read(path),
        }
    }

    /// As [`Cell::load`], for a tenant with this lease: the initial contents of its memory are
    /// apart from the code if the lease lets the tenant share them with others, and its stack is
    /// as large as the lease says.
    ///
    /// # Errors
    /// Any [`ProgramError`].
    pub fn load_for(&self, path: &Path, lease: &Lease) -> Result<Arc<Program>, ProgramError> {
        self.load_as(Entry::Command, path, lease)
    }

    /// As [`Cell::compile`], for a tenant with this lease.
    ///
    /// # Errors
    /// Any [`ProgramError`].
    pub fn compile_for(&self, bytes: &[u8], lease: &Lease) -> Result<Arc<Program>, ProgramError> {
        self.compile_as(Entry::Command, bytes, lease)
    }

    /// As [`Cell::load_for`], a program whose exported functions are [called](TenantHandle::call), instead of one
    /// that is run.
    ///
    /// # Errors
    /// Any [`ProgramError`].
    pub fn load_exports(&self, path: &Path, lease: &Lease) -> Result<Arc<Program>, ProgramError> {
        self.load_as(Entry::Exports, path, lease)
    }

    /// As [`Cell::load_exports`], from memory.
    ///
    /// # Errors
    /// Any [`ProgramError`].
    pub fn compile_exports(
        &self,
        bytes: &[u8],
        lease: &Lease,
    ) -> Result<Arc<Program>, ProgramError> {
        self.compile_as(Entry::Exports, bytes, lease)
    }

    /// As [`Cell::load_for`], a component that answers HTTP requests: it exports
    /// `wasi:http/incoming-handler`.
    ///
    /// # Errors
    /// Any [`ProgramError`].
    pub fn load_handler(&self, path: &Path, lease: &Lease) -> Result<Arc<Program>, ProgramError> {
        self.load_as(Entry::Handler, path, lease)
    }

    /// As [`Cell::load_handler`], from memory.
    ///
    /// # Errors
    /// Any [`ProgramError`].
    pub fn compile_handler(
        &self,
        bytes: &[u8],
        lease: &Lease,
    ) -> Result<Arc<Program>, ProgramError> {
        self.compile_as(Entry::Handler, bytes, lease)
    }

    fn load_as(
        &self,
        entry: Entry,
        path: &Path,
        lease: &Lease,
    ) -> Result<Arc<Program>, ProgramError> {
        let parts = self.engine_for(lease)?;
        let built = self.built(path, Purpose::under(lease, entry), parts)?;
        self.house(built, lease.memory.code.get())
    }

    fn compile_as(
        &self,
        entry: Entry,
        bytes: &[u8],
        lease: &Lease,
    ) -> Result<Arc<Program>, ProgramError> {
        let parts = self.engine_for(lease)?;
        let built = Built::from_bytes(Purpose::under(lease, entry), &parts.engine, bytes)?;
        let built = built.prepared(&parts.linkers)?;
        self.house(Arc::new(built), lease.memory.code.get())
    }

    /// What the program in a file is built to, with its imports resolved: what a tenant has already, if one has it.
    fn built(
        &self,
        path: &Path,
        purpose: Purpose,
        parts: &EngineParts,
    ) -> Result<Arc<Built>, ProgramError> {
        let tools = Toolchain {
            engine: &parts.engine,
            cache: self.code_cache.as_deref(),
            compiler: self
                .compiler
                .as_deref()
                .map(|it| it.for_engines(self.engines.mechanism())),
        };
        parts.in_use.get_or_build(self.digest(path)?, purpose, || {
            Built::load(purpose, &tools, path)?.prepared(&parts.linkers)
        })
    }

    /// A program whose memory is taken from what the cell has for programs: no more of it than `allowed`, bytes.
    fn house(&self, built: Arc<Built>, allowed: u64) -> Result<Arc<Program>, ProgramError> {
        Program::housed(built, &self.code, allowed).map(Arc::new)
    }

    /// The engine of a program that this cell loaded.
    fn engine_of(&self, program: &Program) -> Result<Arc<EngineParts>, StartError> {
        let parts = self.engines.get(program.stack());
        let own = parts.filter(|parts| program.prepared_for(&parts.engine).is_some());
        let other = || StartError::Program("another cell loaded it".to_owned());
        own.cloned().ok_or_else(other)
    }

    /// The engine whose guests have the stack that a lease grants.
    fn engine_for(&self, lease: &Lease) -> Result<&EngineParts, ProgramError> {
        self.engine_of_class(StackClass::of(lease))
    }

    fn engine_of_class(&self, class: StackClass) -> Result<&EngineParts, ProgramError> {
        let parts = self.engines.get_or_make(class);
        let failed = |error| ProgramError::Engine(wasmtime::format_err!("{error:#}"));
        parts.map(|parts| &**parts).map_err(failed)
    }

    /// Checks and compiles a program, on the calling thread.
    ///
    /// # Errors
    /// Any [`ProgramError`].
    pub fn compile(&self, bytes: &[u8]) -> Result<Arc<Program>, ProgramError> {
        let parts = self.engine_of_class(StackClass::SMALLEST)?;
        let built = Built::from_bytes(Purpose::COMMAND, &parts.engine, bytes)?;
        let built = built.prepared(&parts.linkers)?;
        self.house(Arc::new(built), u64::MAX)
    }

    /// Starts a tenant, and waits until that has succeeded ([`Cell::begin`]).
    ///
    /// # Errors
    /// When its reservation cannot be kept, its lease does not pay for its start, or its
    /// surroundings are not there.
    pub fn start_tenant(&self, request: StartRequest) -> Result<TenantHandle, StartError> {
        self.begin(request)?.wait()
    }

    /// Admits a tenant that does not run until [`TenantHandle::go`], so that its
    /// [connections](Cell::connect) exist from its first instruction on.
    ///
    /// # Errors
    /// Like [`Cell::start_tenant`].
    pub fn start_held(&self, request: StartRequest) -> Result<TenantHandle, StartError> {
        self.begin_held(request)?.wait()
    }

    /// Begins to start a tenant as [`Cell::start_held`] does, and does not wait for it, as [`Cell::begin`] does not.
    ///
    /// # Errors
    /// When its reservation cannot be kept.
    pub fn begin_held(&self, request: StartRequest) -> Result<PendingStart, StartError> {
        self.admit(request, true, None)
    }

    /// Begins to start a tenant. The admission test runs on the calling thread. Building the
    /// program is the tenant's own work, some 100 µs: it consumes the tenant's budget, or, without
    /// a reservation, background time. Many tenants with small budgets therefore start sooner when
    /// they are begun together.
    ///
    /// # Errors
    /// When its reservation cannot be kept.
    pub fn begin(&self, request: StartRequest) -> Result<PendingStart, StartError> {
        self.admit(request, false, None)
    }

    /// Starts a tenant that answers the HTTP requests which `intake` takes in, with a program of
    /// [`Cell::load_handler`]. Executions for requests are built, and run, in the tenant's own processor time;
    /// the tenant ends when it is killed, and closes the lane then. So does a start that is refused, unless the
    /// caller has a clone of `intake`.
    ///
    /// # Errors
    /// Like [`Cell::start_tenant`], and when the lease does not pay for one execution.
    pub fn start_serving(
        &self,
        request: StartRequest,
        intake: Intake,
        serving: Serving,
    ) -> Result<TenantHandle, StartError> {
        self.begin_serving(request, intake, serving)?.wait()
    }

    /// Begins to start a tenant as [`Cell::start_serving`] does, and does not wait for it, as [`Cell::begin`] does
    /// not.
    ///
    /// # Errors
    /// When its reservation cannot be kept.
    pub fn begin_serving(
        &self,
        request: StartRequest,
        intake: Intake,
        serving: Serving,
    ) -> Result<PendingStart, StartError> {
        serving.check()?;
        let service = Service { intake, serving };
        self.admit(request, false, Some(service))
    }

    fn admit(
        &self,
        request: StartRequest,
        held: bool,
        service: Option<Service>,
    ) -> Result<PendingStart, StartError> {
        let key = self.next_key.fetch_add(1, Ordering::Relaxed);
        let call_bytes = request.program.call_bytes(&request.lease);
        check_entry(&request, service.is_some())?;
        let (started_sender, started) = channel();
        let (ended_sender, ended) = channel();
        request.surroundings.check_lengths()?;
        check_paging(&request)?;
        check_stack(&request)?;
        let engine = self.engine_of(&request.program)?;
        request.surroundings.stdout.prepare();
        request.surroundings.stderr.prepare();
        let promised = self.promise(&request)?;
        let outlet = request.surroundings.outgoing.as_ref();
        let parts = limit::Parts {
            has_dirs: !request.surroundings.dirs.is_empty(),
            data_sets: request.surroundings.data.len(),
            has_store: request.surroundings.keyvalue.is_some(),
            has_image: service.is_some() || request.lease.memory.paging.is_some(),
            calls: outlet.map_or(0, |outlet| outlet.outbox().concurrency()),
            addresses: outlet.map_or(0, |outlet| outlet.outbox().addresses()),
        };
        let demand = limit::Demand::of_tenant(&request.lease, parts);
        let files = demand
            .map(limit::Promise::make)
            .transpose()
            .map_err(|refused| StartError::Full(refused.to_string()))?;
        let client = Client {
            started: started_sender,
            ended: ended_sender,
            held,
            service,
        };
        self.send(Command::Start {
            key,
            request: Box::new(request),
            engine,
            promised,
            files,
            client,
        });
        let inbox = self.inbox.clone();
        Ok(PendingStart {
            handle: TenantHandle {
                key,
                call_bytes,
                inbox,
                donation: self.donation.clone(),
                ended,
            },
            started,
        })
    }

    /// Looks whether the reservation for ends can be kept beside the tenants that are left, when some have gone. A start
    /// does so, too. Costs an admission test.
    pub fn reconsider_ends(&self) {
        if let Some(promises) = &self.promises {
            promises.reconsider_ends();
        }
    }

    /// The reservation of a lease, if it has one and it can be kept.
    fn promise(&self, request: &StartRequest) -> Result<Option<Promised>, StartError> {
        let lease = &request.lease;
        let (_, longest_step_ns) = self.longest_step(&request.program, lease);
        let claim = claim(lease, longest_step_ns);
        let promise = match &self.promises {
            None => None,
            Some(promises) => Some(promises.make(claim).map_err(|unkept| {
                StartError::Processor(match (unkept, lease.cpu) {
                    (Unkept::Host(limit), _) => limit.to_string(),
                    (Unkept::Together, cpu) => format!(
                        "{} beside the reservations of the other tenants, or theirs beside it",
                        match cpu {
                            Some(_) => "it cannot be kept, with what the tenant's own host steps and faults take,",
                            None => "its longest host step would hold the processor for too long",
                        }
                    ),
                })
            })?),
        };
        let contract = lease.cpu.map(|_| claim);
        Ok(Some(Promised { contract, promise }))
    }

    /// Makes a channel in `client`'s group and gives both tenants a capability to it. Of the
    /// client's budget, `service` can use `links` links at the most.
    ///
    /// Returns the selectors of the client and of the service.
    ///
    /// # Errors
    /// The kernel's, when one of the leases does not pay for it or a tenant has ended.
    pub fn connect(
        &self,
        client: &TenantHandle,
        service: &TenantHandle,
        capacity: u32,
        links: u32,
    ) -> Result<(u32, u32), Errno> {
        let (reply, answer) = channel();
        let connect = Connect {
            client: client.key,
            service: service.key,
            capacity,
            links,
            reply,
        };
        self.send(Command::Connect(Box::new(connect)));
        answer.recv().unwrap_or(Err(Errno::Gone))
    }

    /// Returns the processor time that tenants have received so far; `None` for tenants that have
    /// ended. Only groups of 64 tenants are read at the same instant, because a longer command
    /// would delay reservations.
    pub fn processors<'a>(
        &self,
        tenants: impl IntoIterator<Item = &'a TenantHandle>,
    ) -> Vec<Option<Processor>> {
        const AT_ONCE: usize = 64;
        let keys: Vec<u64> = tenants.into_iter().map(|tenant| tenant.key).collect();
        let some = keys.chunks(AT_ONCE);
        some.flat_map(|keys| processors(&self.inbox, keys.to_vec()))
            .collect()
    }

    /// Returns the time that the controller's commands have taken of the cell's thread so far, by
    /// kind, without this command. Empty if the cell has ended.
    pub fn control(&self) -> Vec<(ControlKind, ControlUse)> {
        let (reply, answer) = channel();
        self.send(Command::Control(reply));
        answer.recv().unwrap_or_default()
    }

    /// Returns the observed host steps so far: each row that had any, how many exceeded the row's
    /// time, and the longest. Empty if the cell has ended.
    pub fn steps(&self) -> Vec<StepUse> {
        let (reply, answer) = channel();
        self.send(Command::Steps(reply));
        answer.recv().unwrap_or_default()
    }

    /// Returns the costs of ends so far beside their charges, and the present prices of new leases.
    /// Empty if the cell has ended.
    pub fn costs(&self) -> Vec<ClassCosts> {
        let (reply, answer) = channel();
        self.send(Command::Costs(reply));
        answer.recv().unwrap_or_default()
    }

    /// Returns the durations of host steps since the last such call, if the cell keeps them
    /// ([`CellConfig::sample_steps`]): the first few thousand of each row.
    pub fn take_step_samples(&self) -> Vec<StepSamples> {
        let (reply, answer) = channel();
        self.send(Command::Samples(reply));
        answer.recv().unwrap_or_default()
    }

    /// The longest host step that a tenant with this program and lease can reach on this host, ns.
    pub fn longest_step(&self, program: &Program, lease: &Lease) -> (RowId, u64) {
        let reach = program.reach();
        reach.longest_under(&self.bounds, lease)
    }

    /// Returns the areas that paging tenants share now, and how they use them. The call is also an
    /// observation for areas whose policy the paper's rule picks (SPC §IV-C).
    pub fn shared(&self) -> Vec<SharedUse> {
        let (reply, answer) = channel();
        self.send(Command::Shared(reply));
        answer.recv().unwrap_or_default()
    }

    fn send(&self, command: Command) {
        self.inbox.put(Message::Command(command), Urgency::CONTROL);
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        self.send(Command::Shutdown);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the cell's thread panicked");
        }
        if let Some(donor) = self.donor.take() {
            let _ = donor.join();
        }
        self.io.stop();
    }
}

impl TenantHandle {
    /// Lets a held tenant run.
    pub fn go(&self) {
        self.send(Command::Go(self.key));
    }

    /// Queues a call of a function of the tenant's program, and does not wait for the result.
    ///
    /// # Errors
    /// When the function does not take the arguments, or they are too large. The [`PendingCall`]
    /// reports whether the tenant answers.
    pub fn call(
        &self,
        function: &ExportedFunction,
        arguments: Vec<Val>,
    ) -> Result<PendingCall, CallError> {
        let (call, pending) = Call::new(function.clone(), arguments, self.call_bytes)?;
        self.send(Command::Call(self.key, Box::new(call)));
        Ok(pending)
    }

    /// Announces that no more calls follow: when the queued calls are answered, the tenant ends
    /// with code 0.
    pub fn finish(&self) {
        self.send(Command::FinishCalls(self.key));
    }

    /// Returns what ends the tenant, for another thread.
    pub fn killer(&self) -> Killer {
        Killer {
            key: self.key,
            inbox: self.inbox.clone(),
            donation: self.donation.clone(),
        }
    }

    /// Ends the tenant, as [`Killer::kill`] does.
    pub fn kill(&self) {
        self.killer().kill();
    }

    /// Waits until the tenant has ended and everything was taken back from it.
    ///
    /// # Errors
    /// When the cell has ended first.
    pub fn wait(&self) -> Result<Ended, StartError> {
        self.ended.recv().map_err(|_| StartError::CellEnded)
    }

    /// Waits for at most `timeout`; `None` if the tenant is still there.
    ///
    /// # Errors
    /// When the cell has ended.
    pub fn wait_for(&self, timeout: Duration) -> Result<Option<Ended>, StartError> {
        match self.ended.recv_timeout(timeout) {
            Ok(ended) => Ok(Some(ended)),
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => Ok(None),
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => Err(StartError::CellEnded),
        }
    }

    /// The tenant's account now; `None` if it has ended.
    pub fn statement(&self) -> Option<Statement> {
        let (reply, answer) = channel();
        self.send(Command::Statement(self.key, reply));
        answer.recv().ok().flatten()
    }

    /// Returns the processor time that the tenant has received so far; `None` if it has ended.
    pub fn processor(&self) -> Option<Processor> {
        processors(&self.inbox, vec![self.key]).pop().flatten()
    }

    /// How the tenant uses its memory; `None` if it has ended.
    pub fn memory(&self) -> Option<MemoryUse> {
        let (reply, answer) = channel();
        self.send(Command::Memory(self.key, reply));
        answer.recv().ok().flatten()
    }

    fn send(&self, command: Command) {
        self.inbox.put(Message::Command(command), Urgency::CONTROL);
    }
}

/// Checks that a program was compiled in the form that this tenant needs. If the tenant pages, no
/// step may touch more pages than admission counts, because each page may have to be fetched from
/// the disk. Otherwise the program brings its own image.
fn check_paging(request: &StartRequest) -> Result<(), StartError> {
    let (program, lease) = (&request.program, &request.lease);
    let pages = lease.memory.paging.is_some();
    if pages != program.is_for_paging() && (pages || program.image().is_some()) {
        return Err(StartError::Program(
            "it was compiled for another lease, of which only one pages: `Cell::load_for` compiles \
             for a lease"
                .to_owned(),
        ));
    }
    if !pages || !program.is_component() {
        return Ok(());
    }
    request.surroundings.check_paged(lease)
}

/// Checks that a program which answers requests gets some, and no other does.
fn check_entry(request: &StartRequest, serves: bool) -> Result<(), StartError> {
    match (request.program.is_handler(), serves) {
        (true, false) => Err(StartError::Program(
            "it was loaded to answer requests: `Cell::start_serving` starts it".to_owned(),
        )),
        (false, true) => Err(StartError::Program(
            "it was not loaded to answer requests: `Cell::load_handler` does".to_owned(),
        )),
        _ => Ok(()),
    }
}

/// Whether a program was compiled for the stack of this tenant.
fn check_stack(request: &StartRequest) -> Result<(), StartError> {
    let (has, wanted) = (request.program.stack(), StackClass::of(&request.lease));
    match has == wanted {
        true => Ok(()),
        false => Err(StartError::Program(format!(
            "it was compiled for a stack of {} bytes, and the lease has one of {}: `Cell::load_for` \
             compiles for a lease",
            has.guest_bytes(),
            wanted.guest_bytes()
        ))),
    }
}

fn processors(inbox: &Inbox<Command>, keys: Vec<u64>) -> Vec<Option<Processor>> {
    let count = keys.len();
    let (reply, answer) = channel();
    let command = Command::Processors(keys, reply);
    inbox.put(Message::Command(command), Urgency::CONTROL);
    answer.recv().unwrap_or_else(|_| vec![None; count])
}

fn run(
    config: &CellConfig,
    default: Companion,
    inbox: Arc<Inbox<Command>>,
    (pools, io): (Pools, Arc<Io>),
    (ends_fit, bounds, prices): (Arc<AtomicBool>, Arc<RowBounds>, Arc<PresentPrices>),
    realtime: Realtime,
    ready: &Sender<anyhow::Result<(Realtime, Option<HeldFrames>)>>,
) {
    let mut local = local::Local::new(config, io);
    local.prices = Prices::told_as(prices);
    local::enter(local);
    watch::enter(bounds, config.profile.added_ns());
    if config.sample_steps {
        watch::sample();
    }
    let executor = memory::enter(config.memory.as_ref(), &config.profile, config.max_memories)
        .and_then(|()| {
            Preemption::with_companion(default, watch::PREEMPTION)
                .map_err(|error| anyhow::anyhow!("a timer for the cell: {error}"))
        })
        .and_then(|preemption| {
            let is_realtime = realtime == Realtime::Granted;
            Executor::new(config, inbox, pools, preemption, is_realtime, ends_fit)
        })
        .and_then(|executor| {
            let held = memory::held();
            // All privileged set-up is done: from here on the thread works for guests.
            if realtime == Realtime::Granted
                && let Realtime::Refused(reason) = realtime::ask()
            {
                anyhow::bail!("real-time priority, which was granted before: {reason}");
            }
            leasehold_confine::narrow(leasehold_confine::Thread::Cell)?;
            Ok((executor, held))
        });
    match executor {
        Ok((mut executor, held)) => {
            // The controller may have gone.
            let _ = ready.send(Ok((realtime, held)));
            executor.run();
        }
        Err(error) => {
            let _ = ready.send(Err(error));
        }
    }
    memory::leave();
    local::leave();
    programs::leave();
    calls::leave();
}

/// Sets the core that the configuration requests, finds out about the priority, and reports the core that the cell's
/// other threads avoid.
fn take_place(config: &CellConfig, place: &Sender<Placement>) -> (Realtime, Option<OwnCore>) {
    if let Some(cpu) = config.cpu
        && let Err(error) = own_core::bind(cpu)
    {
        tracing::warn!(cpu, %error, "the cell's thread is not pinned");
    }
    let realtime = match config.realtime {
        WhenRealtime::Always => realtime::may_have(),
        WhenRealtime::Never | WhenRealtime::ForKills => Realtime::NotAsked,
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let own = match (realtime == Realtime::Granted, config.cpu) {
        (true, Some(core)) => OwnCore::take_this(core),
        (true, None) => OwnCore::take(),
        (false, _) => None,
    };
    let own_core = own.as_ref().map(|own| own.core);
    // On a single core, the other threads cannot avoid it.
    let core = config.cpu.or(own_core.filter(|_| cores > 1));
    let _ = place.send(Placement { core, own_core });
    (realtime, own)
}

/// Where a cell's thread runs.
struct Placement {
    /// The core that it is pinned to, if any.
    core: Option<usize>,
    /// The same core, if no other cell is pinned to it.
    own_core: Option<usize>,
}
