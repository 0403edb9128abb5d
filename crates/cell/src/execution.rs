//! One running program: a store, its fiber, and their charges.
//!
//! An execution is a future that owns everything the engine holds for the guest. Ending it, at
//! any instant, is dropping that future: the engine unwinds the fiber and frees the store, whose
//! linear memories and stack only go back to their pools ([`leasehold_slots::slot`], [`leasehold_slots::stack`]).

use crate::build_error::BuildError;
use crate::calls::lift_bytes::LiftBytes;
use crate::calls::{self, Answering, Current};
use crate::engine_parts::EngineParts;
use crate::exit::Exit;
use crate::fiber::{Fiber, GuestFuture, Returned};
use crate::guest::Guest;
use crate::host::fs::account::Account;
use crate::host::fs::preopen::Preopen;
use crate::host::preview1::state::{Environment, State};
use crate::host::yield_point::yield_point;
use crate::limiter::{Initial, Limiter};
use crate::linkers::Prepared;
use crate::local;
use crate::memory::{self, DataSet, Joining};
use crate::meter::Held;
use crate::outline::Limits;
use crate::program::{Code, Program};
use crate::steps::caps::TRAP_MESSAGE;
use crate::steps::watch::{self, Position};
use crate::steps::{mark, step};
use crate::surroundings::{Directory, Surroundings};
use crate::wasi::clocks::CellClock;
use crate::wasi::filesystem::files::FileSystem;
use crate::wasi::http::serve::answer;
use crate::wasi::imports::Imports;
use crate::wasi::log::LogRate;
use crate::wasi::stdio::Author;
use crate::wasi::table::TableCharge;
use crate::worker::Worker;
use leasehold_crossing::OutputTime;
use leasehold_kernel::{Errno, TenantId};
use leasehold_preempt::{self as preempt, Preemption};
use leasehold_reclaim::GroupId;
use leasehold_slots::address_range::PAGE;
use leasehold_slots::warm_room::Keeper;
use std::fmt::{self, Write as _};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use wasmtime::{Store, Trap};
use wasmtime_wasi::p1::WasiP1Ctx;
use wasmtime_wasi::{I32Exit, WasiCtxBuilder, WasiView as _};

/// An execution that has not ended by itself.
pub(crate) struct Running {
    /// The host call and step in which it was suspended.
    position: Position,
    fiber: Fiber<Guest, Exit>,
}

impl Running {
    /// Runs the execution until it ends, blocks, or is preempted.
    pub(crate) fn poll(
        &mut self,
        preemption: &Preemption,
        context: &mut Context<'_>,
    ) -> Poll<Finished> {
        watch::resume(self.position);
        let polled = self.fiber.poll(preemption, context);
        self.position = watch::suspend();
        polled.map(|(store, exit)| Finished { exit, store })
    }
}

/// A program that has ended by itself. Its store remains until the tenant's end, which was charged
/// for freeing it.
pub(crate) struct Finished {
    pub(crate) exit: Exit,
    store: Store<Guest>,
}

/// A program that will not run again. Dropping it frees its store.
pub(crate) enum StoppedProgram {
    /// It was stopped at an arbitrary point.
    Stopped(#[expect(dead_code, reason = "held to be dropped")] Running),
    /// It had ended by itself.
    Finished(#[expect(dead_code, reason = "held to be dropped")] Store<Guest>),
}

impl Finished {
    /// Splits it into its exit and its remaining store.
    pub(crate) fn into_parts(self) -> (Exit, StoppedProgram) {
        (self.exit, StoppedProgram::Finished(self.store))
    }
}

/// The parameters from which executions of a tenant's program are built.
#[derive(Clone)]
pub(crate) struct ExecutionTemplate {
    /// The program's.
    pub(crate) engine: Arc<EngineParts>,
    pub(crate) preemption: Rc<Preemption>,
    pub(crate) program: Arc<Program>,
    pub(crate) surroundings: Surroundings,
    pub(crate) limits: Limits,
    /// How fast the tenant may log, with its tasks and children.
    pub(crate) log_rate: Arc<LogRate>,
}

/// The group of the top-level tenant that `tenant` belongs to.
fn root_of(tenant: TenantId) -> Result<GroupId, Errno> {
    local::with(|local| {
        let group = local.kernel.group_of(tenant)?;
        local.kernel.groups().root_of(group).ok_or(Errno::Gone)
    })
}

/// The account of a top-level tenant.
fn account_of(root: GroupId) -> Result<Arc<Account>, Errno> {
    local::with(|local| local.files.get(&root).cloned()).ok_or(Errno::Gone)
}

impl ExecutionTemplate {
    /// Returns a copy with other arguments; the program's name stays.
    pub(crate) fn with_arguments(&self, args: Vec<String>) -> Self {
        let mut template = self.clone();
        template.surroundings.args.truncate(1);
        template.surroundings.args.extend(args);
        template
    }

    /// Charges `tenant` for an execution and builds it; it has not run yet. For the tasks and
    /// children of a guest, in its own host call; a top-level tenant is built in steps
    /// ([`crate::starting`]).
    ///
    /// # Errors
    /// When the lease does not pay for it, or a directory is missing. Charges made until then stay
    /// among the execution's holdings ([`local::Local::release_all`]).
    pub(crate) fn build(&self, tenant: TenantId, execution: u64) -> Result<Running, BuildError> {
        self.charge(tenant, execution)?;
        let mut env_builder = self.surround(tenant)?;
        while env_builder.open_next()? {}
        self.assemble(tenant, execution, env_builder.finish())
    }

    /// The same of an execution that answers requests, with the group of what its handles stand
    /// for.
    ///
    /// # Errors
    /// Like [`Self::build`].
    pub(crate) fn build_worker(
        &self,
        (tenant, execution): (TenantId, u64),
        arena: GroupId,
        worker: &Arc<Worker>,
    ) -> Result<Running, BuildError> {
        self.charge(tenant, execution)?;
        let mut env_builder = self.surround_author(tenant, worker.author())?;
        while env_builder.open_next()? {}
        let worker = Some((worker.clone(), arena));
        self.assemble_as(tenant, execution, env_builder.finish(), worker)
    }

    /// The keeper of the memories of such executions when those have ended, and the pages of each; `None` if their contents
    /// are not shown in them.
    pub(crate) fn kept_memory(&self, tenant: TenantId) -> Option<(Keeper, u64)> {
        let root = root_of(tenant).ok()?;
        let keeper = Keeper(account_of(root).ok()?.number());
        let is_shown = self.program.image().is_some() && !self.program.is_for_paging();
        let bytes = self.program.inventory().memory_bytes;
        is_shown.then_some((keeper, bytes.div_ceil(PAGE as u64)))
    }

    /// Gives the top-level tenant more of the frames that its lease was promised; true if it has all.
    ///
    /// # Errors
    /// When others have borrowed them and the disk fails.
    pub(crate) fn reserve_step(&self, tenant: TenantId) -> Result<bool, BuildError> {
        memory::reserve_step(root_of(tenant)?).map_err(BuildError::Memory)
    }

    /// Charges `tenant` for the initial holdings of an execution.
    ///
    /// # Errors
    /// When the lease does not pay for it. Charges made until then stay among the execution's
    /// holdings.
    pub(crate) fn charge(&self, tenant: TenantId, execution: u64) -> Result<(), Errno> {
        self.surroundings.check_strings()?;
        let outline = self.program.outline();
        let page = memory::page_class(root_of(tenant)?);
        local::with(|local| local.begin((tenant, execution), &outline, &self.limits, page))
    }

    /// Charges `tenant`, as a holding of `execution`, for what it shares while no execution uses that: pages that its end
    /// takes apart.
    ///
    /// # Errors
    /// As [`charge`](Self::charge).
    pub(crate) fn charge_area(&self, tenant: TenantId, execution: u64) -> Result<(), Errno> {
        match self.program.outline().image_pages {
            0 => Ok(()),
            pages => local::with(|local| local.hold(tenant, execution, Held::PagedPage, pages)),
        }
    }

    /// The least `memory.host` with which a tenant starts, KiB, and the bytes of it for calls.
    pub(crate) fn host_kib(&self) -> (u64, u64) {
        let kib = self.program.outline().host_kib(&self.limits);
        (kib, self.limits.call_bytes)
    }

    /// Attaches the initial memory of its program to a tenant that is not running yet, as a shared
    /// area.
    ///
    /// # Errors
    /// When its memory reservation is too small.
    pub(crate) fn share(&self, tenant: TenantId) -> Result<Option<Joining>, BuildError> {
        let shared = self
            .program
            .image()
            .filter(|_| self.program.is_for_paging());
        let Some(image) = shared else {
            return Ok(None);
        };
        let name = self.surroundings.args.first().map_or("", String::as_str);
        memory::join_image(root_of(tenant)?, image, name).map_err(BuildError::Memory)
    }

    /// The surroundings of an execution, without its directories. Copies arguments and variables.
    ///
    /// # Errors
    /// When the tenant has gone.
    pub(crate) fn surround(&self, tenant: TenantId) -> Result<EnvBuilder, Errno> {
        self.surround_author(tenant, &Author::default())
    }

    /// The same for an execution with this author of its output.
    fn surround_author(&self, tenant: TenantId, author: &Author) -> Result<EnvBuilder, Errno> {
        let account = account_of(root_of(tenant)?)?;
        let code = self.program.code();
        let output = (account.output_time(), author);
        Ok(EnvBuilder::of(&self.surroundings, code, output))
    }

    /// Makes the store of an execution that was [charged](Self::charge) for.
    ///
    /// # Errors
    /// When the lease does not pay for its table of descriptors, or the program does not fit.
    pub(crate) fn assemble(
        &self,
        tenant: TenantId,
        execution: u64,
        surrounded: Surrounded,
    ) -> Result<Running, BuildError> {
        self.assemble_as(tenant, execution, surrounded, None)
    }

    fn assemble_as(
        &self,
        tenant: TenantId,
        execution: u64,
        Surrounded {
            mut wasi,
            environment,
            preopens,
            data,
        }: Surrounded,
        worker: Option<(Arc<Worker>, GroupId)>,
    ) -> Result<Running, BuildError> {
        let inventory = *self.program.inventory();
        let call_bytes = self.limits.call_bytes;
        let root = root_of(tenant)?;
        let account = account_of(root)?;
        let keeper = Keeper(account.number());
        let imports = match self.program.code() {
            Code::Module(_) => Imports::none(),
            Code::Component(_) => {
                let identity = (tenant, execution);
                let none = Author::default();
                let author = worker.as_ref().map_or(&none, |(worker, _)| worker.author());
                let log = (&self.log_rate, author);
                Imports::of(&self.surroundings, identity, &account, log)
            }
        };
        let (table, preview1, files) = match self.program.code() {
            Code::Module(_) => {
                let identity = (tenant, execution);
                let state = State::new(identity, account, environment, preopens)?;
                let table = TableCharge::none(wasi.ctx().table);
                (table, Some(Box::new(state)), None)
            }
            Code::Component(_) => {
                let identity = (tenant, execution);
                let files = FileSystem::new(identity, account, preopens, call_bytes)?;
                let table = TableCharge::start(wasi.ctx().table, tenant, execution)?;
                (table, None, Some(Box::new(files)))
            }
        };
        let prepared = self.program.prepared_for(&self.engine.engine).cloned();
        let prepared = prepared.ok_or(Errno::Invalid)?;
        let mut limiter = Limiter::new(
            tenant,
            execution,
            root,
            self.program.image().cloned(),
            usize::try_from(inventory.instances)
                .unwrap_or(usize::MAX)
                .saturating_add(preempt::INSTANCES),
            Initial {
                memories: inventory.memories.saturating_add(inventory.heaps),
                memory_bytes: inventory.memory_bytes,
                tables: inventory.tables,
                table_elements: inventory.table_elements,
            },
        );
        if worker.is_some() && local::with(|local| local.kernel.group_of(tenant)) == Ok(root) {
            limiter.keep_for(keeper);
        }
        let pages = limiter.pages();
        let is_called = self.program.is_called();
        let mut guest = Guest::new(
            (tenant, execution),
            call_bytes,
            data,
            limiter,
            (table, wasi),
            preview1,
            files,
        );
        guest.imports = imports;
        guest.lifts = is_called.then(|| LiftBytes::new(call_bytes));
        guest.own_arena = worker.as_ref().map(|(_, arena)| *arena);
        let store = Store::new(&self.engine.engine, guest);
        let run = |mut store: Store<Guest>| -> GuestFuture<Guest, Exit> {
            match is_called {
                false => store.call_hook(|_, what| {
                    watch::hook(what);
                    Ok(())
                }),
                true => store.call_hook(|mut context, what| {
                    watch::hook(what);
                    calls::hook(&mut context, what);
                    Ok(())
                }),
            }
            store.limiter(|guest| &mut guest.limiter);
            store.set_hostcall_fuel(usize::try_from(call_bytes).unwrap_or(usize::MAX));
            store.set_max_component_handles(usize::try_from(self.handles()).unwrap_or(usize::MAX));
            match worker {
                Some((worker, _)) => Box::pin(run_handler(store, prepared, worker)),
                None if is_called => Box::pin(run_calls(store, prepared)),
                None => Box::pin(run(store, prepared)),
            }
        };
        let fiber = Fiber::new(&self.preemption, self.program.built(), store, run);
        Ok(Running {
            position: Position::start(
                self.program.reach().making_ns(),
                self.program.inventory().adapters > 0,
                pages.then_some(call_bytes),
            ),
            fiber: fiber.map_err(BuildError::Link)?,
        })
    }

    /// Component-model handles of an execution.
    fn handles(&self) -> u64 {
        self.program.outline().handles(&self.limits)
    }
}

/// The state that WASI offers to an execution, while its directories and data sets are being
/// opened.
pub(crate) struct EnvBuilder {
    wasi: WasiCtxBuilder,
    environment: Environment,
    preopens: Vec<Preopen>,
    /// Still to be opened, the next one last.
    dirs: Vec<Directory>,
    unopened: Vec<(String, PathBuf)>,
    data: Vec<DataSet>,
}

/// The opened surroundings of an execution.
pub(crate) struct Surrounded {
    wasi: WasiP1Ctx,
    environment: Environment,
    preopens: Vec<Preopen>,
    data: Vec<DataSet>,
}

impl EnvBuilder {
    fn of(
        surroundings: &Surroundings,
        code: &Code,
        (time, author): (&OutputTime, &Author),
    ) -> Self {
        let mut wasi = WasiCtxBuilder::new();
        let mut environment = Environment::default();
        let is_module = matches!(code, Code::Module(_));
        if is_module {
            environment = Environment {
                args: surroundings.args.clone(),
                env: surroundings.env.clone(),
                stdin: surroundings.stdin.clone(),
                stdout: surroundings.stdout.clone(),
                stderr: surroundings.stderr.clone(),
            };
        } else {
            wasi.args(&surroundings.args)
                .envs(&surroundings.env)
                .monotonic_clock(CellClock)
                .allow_tcp(false)
                .allow_udp(false)
                .allow_ip_name_lookup(false);
            if let Some(cwd) = &surroundings.cwd {
                wasi.initial_cwd(cwd);
            }
            surroundings.stdin.give(&mut wasi);
            surroundings.stdout.give_stdout(&mut wasi, time, author);
            surroundings.stderr.give_stderr(&mut wasi, time, author);
        }
        let dirs = surroundings.dirs.iter().rev().cloned().collect();
        let unopened = surroundings.data.iter().rev().cloned().collect();
        Self {
            wasi,
            environment,
            preopens: Vec::new(),
            dirs,
            unopened,
            data: Vec::new(),
        }
    }

    /// Opens the next directory or data set. Returns false if none is left.
    ///
    /// # Errors
    /// When it does not exist or cannot be opened.
    pub(crate) fn open_next(&mut self) -> Result<bool, BuildError> {
        let Some(Directory { host, guest, write }) = self.dirs.pop() else {
            return self.open_data();
        };
        match Preopen::open(&host, &guest, write) {
            Ok(preopen) => {
                self.preopens.push(preopen);
                Ok(true)
            }
            Err(errno) => Err(BuildError::Directory {
                path: host,
                source: errno.into(),
            }),
        }
    }

    fn open_data(&mut self) -> Result<bool, BuildError> {
        let Some((name, path)) = self.unopened.pop() else {
            return Ok(false);
        };
        match DataSet::open(&name, &path) {
            Ok(data) => {
                self.data.push(data);
                Ok(true)
            }
            Err(source) => Err(BuildError::Data { path, source }),
        }
    }

    /// Returns the opened surroundings; directories and data sets that were not opened are missing.
    pub(crate) fn finish(mut self) -> Surrounded {
        Surrounded {
            wasi: self.wasi.build_p1(),
            environment: self.environment,
            preopens: self.preopens,
            data: self.data,
        }
    }
}

async fn run(mut store: Store<Guest>, prepared: Prepared) -> Returned<Guest, Exit> {
    let copied = copy_image(&mut store.data_mut().limiter).await;
    let result = match (copied, prepared) {
        (Err(error), _) => Err(error),
        (Ok(()), Prepared::Module(module)) => run_module(&mut store, &module).await,
        (Ok(()), Prepared::Component(component)) => run_component(&mut store, &component).await,
        (Ok(()), Prepared::Exports(_) | Prepared::Handler(_)) => {
            Err(wasmtime::Error::msg("no command"))
        }
    };
    mark(step!("engine", "trap"));
    let exit = exit_after(result, &store);
    (store, exit)
}

/// The same of an execution that answers requests.
async fn run_handler(
    mut store: Store<Guest>,
    prepared: Prepared,
    worker: Arc<Worker>,
) -> Returned<Guest, Exit> {
    let copied = copy_image(&mut store.data_mut().limiter).await;
    let result = match (copied, prepared) {
        (Err(error), _) => Err(error),
        (Ok(()), Prepared::Handler(handler)) => answer(&mut store, &handler, &worker).await,
        (Ok(()), _) => Err(wasmtime::Error::msg("no handler of requests")),
    };
    mark(step!("engine", "trap"));
    let exit = exit_after(result.map(|()| 0), &store);
    (store, exit)
}

/// The same of a program whose exported functions are called.
async fn run_calls(mut store: Store<Guest>, prepared: Prepared) -> Returned<Guest, Exit> {
    let mut current = Current::default();
    let result = match make_instance(&mut store, prepared).await {
        Ok(instance) => calls::answer_calls(&mut store, instance, &mut current).await,
        Err(error) => Err(error),
    };
    mark(step!("engine", "trap"));
    let exit = exit_after(result, &store);
    current.failed(&exit);
    (store, exit)
}

async fn make_instance(
    store: &mut Store<Guest>,
    prepared: Prepared,
) -> wasmtime::Result<Answering> {
    copy_image(&mut store.data_mut().limiter).await?;
    match prepared {
        Prepared::Module(module) => calls::make_module(store, &module).await,
        Prepared::Exports(component) => {
            let instance = component.instantiate_async(&mut *store).await?;
            Ok(Answering::Component(instance))
        }
        Prepared::Component(_) | Prepared::Handler(_) => {
            Err(wasmtime::Error::msg("a command, or a handler of requests"))
        }
    }
}

fn exit_after(result: wasmtime::Result<i32>, store: &Store<Guest>) -> Exit {
    match result {
        Ok(code) => Exit::Code(code),
        Err(error) => exit_of(&error, &store.data().limiter),
    }
}

/// Copies the initial memory of a program that has none to share, a page at a step: each may be a fault.
async fn copy_image(limiter: &mut Limiter) -> wasmtime::Result<()> {
    while limiter.copy_image_page().map_err(wasmtime::Error::msg)? {
        mark(step!("cell", "fault"));
        yield_point().await;
        // The next action, if it is not another page.
        mark(step!("engine", "instantiate"));
    }
    Ok(())
}

async fn run_module(
    store: &mut Store<Guest>,
    module: &wasmtime::InstancePre<Guest>,
) -> wasmtime::Result<i32> {
    let instance = module.instantiate_async(&mut *store).await?;
    store.data_mut().limiter.started();
    let start = instance.get_typed_func::<(), ()>(&mut *store, "_start")?;
    start.call_async(&mut *store, ()).await?;
    Ok(0)
}

async fn run_component(
    store: &mut Store<Guest>,
    component: &wasmtime_wasi::p2::bindings::CommandPre<Guest>,
) -> wasmtime::Result<i32> {
    let command = component.instantiate_async(&mut *store).await?;
    store.data_mut().limiter.started();
    let result = command.wasi_cli_run().call_run(&mut *store).await?;
    Ok(i32::from(result.is_err()))
}

fn exit_of(error: &wasmtime::Error, limiter: &Limiter) -> Exit {
    let refused = limiter.refused();
    if let Some(I32Exit(code)) = error.downcast_ref() {
        return Exit::Code(*code);
    }
    if error.is::<wasmtime_wasi::ResourceTableError>() {
        return Exit::Lease("out of places or reclamation budget for another stream".into());
    }
    if let Some(errno) = error.downcast_ref::<Errno>() {
        return Exit::Lease(format!("{} ({errno})", message(error)));
    }
    // Nothing but exceptions is allocated for a guest by its instructions.
    let no_room = error.downcast_ref() == Some(&Trap::AllocationTooLarge);
    if let (true, Some(errno)) = (no_room, refused) {
        return Exit::Lease(format!("no memory for another exception: {errno}"));
    }
    // Something was refused before there was an instance: the program could not be instantiated.
    let is_trap = error.is::<Trap>() || limiter.has_started();
    if let (false, Some(errno)) = (is_trap, refused) {
        return Exit::Lease(format!("{}: {errno}", message(error)));
    }
    Exit::Trap(message(error))
}

/// Returns the text of an error, truncated to the cap.
fn message(error: &wasmtime::Error) -> String {
    let mut message = Bounded(String::new());
    // Writing stops at the cap.
    let _ = write!(message, "{error:#}");
    message.0
}

/// A string of at most [`TRAP_MESSAGE`] bytes.
struct Bounded(String);

impl fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = TRAP_MESSAGE.size() - self.0.len();
        if text.len() <= room {
            self.0.push_str(text);
            return Ok(());
        }
        self.0.push_str(&text[..text.floor_char_boundary(room)]);
        Err(fmt::Error)
    }
}
