//! `leasehold run`: one program, under one lease.

use crate::admission::{Admission, Scheduling};
use crate::calibrate::profile_or_calibrate;
use crate::confinement::{self, Needs, Origin};
use crate::costs;
use crate::exit::Failure;
use crate::host_steps;
use crate::interrupt::{Interrupt, LOOK};
use crate::invoke::{self, Invocation};
use crate::leases::{self, Ends};
use crate::on_host::OnHost;
use crate::output::{self, plain, say, tell};
use crate::overhead::{HostSteps, HostTime};
use crate::refusals;
use crate::report;
use crate::requests::Prepared;
use crate::stores::Stores;
use leasehold_cell::preempt::Mechanism;
use leasehold_cell::profile::Profile;
use leasehold_cell::{
    CallError, Cell, CellConfig, Directory, DiskUse, Ended, Exit, Input, Outlines, Output,
    PendingCall, Program, ProgramError, StartError, StartRequest, Surroundings, TenantHandle, Val,
    WhenRealtime,
};
use leasehold_lease::{
    ByteSize, Cpu, DataSet, Disk, EnvVar, Files, Lease, LeaseFlags, Nanoseconds, PagingFlag,
    TenantSpec,
};
use leasehold_reserve::Order;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  leasehold run hello.wasm
  leasehold run --dir data --env LANG=C wordcount.wasm data/text
  leasehold run --budget 500us --memory 16MiB --report untrusted.wasm
  leasehold run --kill-after 50ms --report spin.wasm
  leasehold run --lease lease.toml --tenant thumbnailer
  leasehold run --invoke 'resize({width: 64, height: 48}, \"fit\")' plugin.wasm
  leasehold run --invoke add numbers.wasm 1 2

Options come before PROGRAM. SIGINT, SIGTERM and SIGHUP kill the program; the report follows.
TIME is a number and a unit, as 500us, 1.5ms or 2s; SIZE as 64KiB or 0.5GiB.

Exit codes: the program's own; 134 it trapped; 135 its memory failed: the swap file, or it wrote to
a data set; 137 it was killed by --kill-after or a signal; 65 it cannot run here; 66 a file or
directory is missing; 77 the lease does not pay for it; 78 the lease or the profile is wrong.")]
pub(crate) struct Arguments {
    /// The program (a preview 1 module or a preview 2 command component, .wasm or .wat) and its
    /// arguments. With --lease the lease names the program, and all of these are arguments.
    #[arg(trailing_var_arg = true, value_name = "PROGRAM [ARGUMENT]…")]
    command: Vec<String>,

    /// Take the tenant's lease from this file.
    #[arg(long, value_name = "FILE")]
    lease: Option<PathBuf>,

    /// Which tenant of the lease file [default: the only one].
    #[arg(long, value_name = "NAME", requires = "lease")]
    tenant: Option<String>,

    /// Reclamation budget: what taking everything back may cost [default: 50ms, and what all of
    /// --memory costs].
    #[arg(long, value_name = "TIME")]
    budget: Option<Nanoseconds>,

    /// Host memory that one pending host call may hold [default: 128KiB].
    #[arg(long, value_name = "SIZE")]
    call_bytes: Option<ByteSize>,

    /// Linear memory that is reserved, in total; without --paging also the limit [default: 1GiB].
    #[arg(long, value_name = "SIZE")]
    memory: Option<ByteSize>,

    /// More linear memory than is reserved, by paging:
    /// limit=SIZE,swap=FILE[,kind=hard|firm][,shared=NAME][,mappings=N] [default: none].
    #[arg(long, value_name = "KEY=VALUE,…")]
    paging: Option<PagingFlag>,

    /// Limit on the host's memory for the program: stacks, calls in flight, handles [default: as
    /// --memory, at least 128MiB and four times --stack].
    #[arg(long, value_name = "SIZE")]
    host_memory: Option<ByteSize>,

    /// Limit on the program's machine code and initial memory [default: 512MiB].
    #[arg(long, value_name = "SIZE")]
    code_memory: Option<ByteSize>,

    /// Stack of each program that it runs, 512KiB to 64MiB [default: 512KiB].
    #[arg(long, value_name = "SIZE", value_parser = LeaseFlags::stack)]
    stack: Option<ByteSize>,

    /// Limit on open files, set aside for a tenant with a directory [default: 128].
    #[arg(long, value_name = "N", value_parser = Files::open)]
    open_files: Option<u32>,

    /// Bytes that it may add to disks through its directories [default: 1GiB].
    #[arg(long, value_name = "SIZE")]
    disk_bytes: Option<ByteSize>,

    /// Files, directories and links that it may add to its directories [default: 10000].
    #[arg(long, value_name = "N", value_parser = Disk::files)]
    disk_files: Option<u32>,

    /// Limit on table elements, in total [default: 1000000].
    #[arg(long, value_name = "N", value_parser = LeaseFlags::table_elements)]
    table_elements: Option<u64>,

    /// Processor reservation: budget=TIME,period=TIME[,priority=N][,nonpreemptive=TIME]
    /// [,policy=NAME][,replenishments=N][,slice=TIME] [default: the background].
    #[arg(long, value_name = "KEY=VALUE,…")]
    cpu: Option<Cpu>,

    /// A directory that the program may use: HOST[::GUEST[::ro]]; may be repeated.
    #[arg(long = "dir", value_name = "DIR")]
    dirs: Vec<leasehold_lease::Directory>,

    /// Where the program's relative paths begin, as the program sees it: /DIR. Components learn it
    /// from wasi:cli, modules from the variable PWD.
    #[arg(long, value_name = "DIR", value_parser = guest_directory)]
    cwd: Option<String>,

    /// A data set that the program may map, if it pages: NAME=FILE; may be repeated.
    #[arg(long = "data", value_name = "DATA")]
    data: Vec<DataSet>,

    /// An environment variable: NAME=VALUE; may be repeated.
    #[arg(long = "env", value_name = "VAR")]
    env: Vec<EnvVar>,

    /// How the program is preempted: injected (compiled without checks) or epochs
    /// [default: injected].
    #[arg(
        long,
        value_name = "MECHANISM",
        env = "LEASEHOLD_PREEMPT",
        hide_env = true
    )]
    preempt: Option<Mechanism>,

    /// Kill the program after this time [default: never].
    #[arg(long, value_name = "TIME")]
    kill_after: Option<Nanoseconds>,

    /// Call an exported function instead of running the program, and print its results:
    /// NAME(VALUE, …) with values in WAVE, or NAME, with the arguments after PROGRAM.
    #[arg(long, value_name = "CALL")]
    invoke: Option<String>,

    /// Print what was charged, what reclamation was predicted to cost, and what it cost.
    #[arg(long)]
    report: bool,

    /// Print the report as one line of JSON, on standard error.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    confinement: confinement::Arguments,
}

/// A directory as a guest names it.
fn guest_directory(text: &str) -> Result<String, String> {
    match text.starts_with('/') && text.len() <= 4096 {
        true => Ok(text.to_owned()),
        false => Err(
            "found no path of a guest; allowed: one that starts with / and has at most 4096 bytes"
                .into(),
        ),
    }
}

pub(crate) fn main(arguments: Arguments, profile: Option<&Path>) -> Result<ExitCode, Failure> {
    let (mut tenant, of_cell) = tenant(&arguments)?;
    leases::starts_once(&tenant, "run");
    leases::check_directories(&tenant)?;
    let origin = match (&arguments.lease, &*arguments.dirs) {
        (Some(file), []) => Origin::File(file),
        _ => Origin::Flags,
    };
    let stores = Stores::open(std::slice::from_ref(&tenant), origin)?;
    let requests = Prepared::read(std::slice::from_ref(&tenant), origin)?;
    let (profile, path) = profile_or_calibrate(profile)?;
    if arguments.budget.is_none() && arguments.lease.is_none() {
        tenant.lease.reclaim.budget = leases::default_budget(&tenant.lease, &profile);
    }
    let code_cache = leasehold_cell::user_code_cache();
    let mechanism = arguments
        .preempt
        .unwrap_or_else(Mechanism::from_environment);
    let outlines = Outlines::here(code_cache.clone());
    let (ends, backtraces) = ends(&tenant, mechanism, &profile, &outlines)?;
    let bound = ends.bounds[0];
    let mut config = CellConfig::new(profile);
    config.code_cache = code_cache;
    config.backtraces = backtraces;
    config.realtime = WhenRealtime::ForKills;
    config.memory = leases::held_memory(std::slice::from_ref(&tenant), of_cell.memory);
    config.code = of_cell.code.map(|code| code.get());
    config.ends = ends.reservation.or(config.ends);
    config.preemption = mechanism;
    let confined = confinement::enter(
        arguments.confinement,
        &Needs {
            tenants: std::slice::from_ref(&tenant),
            reached: std::slice::from_ref(&tenant),
            origin,
            holds_memory: config.memory.is_some(),
            profile: path.as_deref(),
            control: &confinement::Control::default(),
        },
    )?;
    leases::tell_of_swap(config.memory.as_ref());
    let cell = Cell::start(config)?;
    let requests = requests.start(cell.own_core(), None)?;
    confinement::started()?;
    let lease = tenant.lease;
    let program = match arguments.invoke {
        None => load(&cell, &tenant.component, &tenant.lease)?,
        Some(_) => load_exports(&cell, &tenant.component, &tenant.lease)?,
    };
    let invocation = arguments.invoke.as_deref();
    let invocation = invocation.map(|text| Invocation::of(text, &program, &tenant.args));
    let invocation = invocation.transpose()?;
    let handle = cell
        .start_tenant(StartRequest {
            program: program.clone(),
            lease: tenant.lease,
            surroundings: Surroundings {
                cwd: arguments.cwd,
                outgoing: requests.of(&tenant),
                ..surroundings(&tenant, &stores)
            },
        })
        .map_err(failure)?;
    // Before, there is nothing to report: an interruption ends the process, whatever loads or waits.
    let interrupt = Interrupt::listen()?;

    let call = invocation
        .map(|invocation| invocation.begin(&handle))
        .transpose()?;
    let kill_after = arguments
        .kill_after
        .map(|time| Duration::from_nanos(time.get()));
    let (ended, results) = wait(&handle, call, kill_after, &interrupt)?;
    output::finish(ended.exit == Exit::Killed, &[]);
    if let Some(results) = results {
        tell!(part "{}", invoke::text(&program, &results)?);
    }

    let host = OnHost {
        realtime: cell.realtime(),
        confined: &confined,
    };
    let refused = refusals::line(&ended.refusals, &lease);
    match &ended.exit {
        Exit::Trap(message) => say!("leasehold: the program trapped: {}", plain(message)),
        Exit::Lease(message) => {
            let more = refused.as_ref().map(|line| format!("; {line}"));
            say!(
                "leasehold: the lease does not pay for it: {}{}",
                plain(message),
                more.unwrap_or_default()
            );
        }
        Exit::Memory(message) => say!("leasehold: {}", plain(message)),
        Exit::Code(_) | Exit::Killed => {}
    }
    if let (Some(line), false) = (&refused, matches!(ended.exit, Exit::Lease(_))) {
        say!("leasehold: {line}");
    }
    if arguments.json {
        let mut json = report::json(&tenant, &ended, &bound, &host);
        json["host_steps"] = host_steps::json(&cell.steps());
        json["end_costs"] = costs::json(&cell.costs());
        output::report!("{json}");
    } else if arguments.report {
        let steps = host_steps::text(&cell.steps());
        output::report!(part
            "{}{steps}{}",
            report::text(&tenant, &ended, &bound, &host),
            costs::text(&cell.costs())
        );
    }
    if let Exit::Lease(_) = ended.exit {
        return Ok(ExitCode::from(77));
    }
    Ok(ExitCode::from(low_byte(ended.exit.code())))
}

/// What of an exit code reaches the parent: its low byte, as everywhere; but 1 where a failure would look like success.
const fn low_byte(code: i32) -> u8 {
    match code as u8 {
        0 if code != 0 => 1,
        byte => byte,
    }
}

/// Waits until the tenant has ended: by itself, after the call if there is one, or killed after a time or by a signal.
/// Returns the results of the call, if it has any.
fn wait(
    tenant: &TenantHandle,
    mut call: Option<PendingCall>,
    kill_after: Option<Duration>,
    interrupt: &Interrupt,
) -> Result<(Ended, Option<Vec<Val>>), Failure> {
    let began = Instant::now();
    let (mut results, mut is_killed) = (None, false);
    loop {
        let left = kill_after.map(|time| time.saturating_sub(began.elapsed()));
        let is_late = left.is_some_and(|left| left.is_zero());
        if !is_killed && (is_late || interrupt.is_told()) {
            is_killed = true;
            tenant.kill();
        }
        let look = left
            .filter(|left| !left.is_zero())
            .map_or(LOOK, |left| left.min(LOOK));
        match call.take() {
            None => {
                if let Some(ended) = tenant.wait_for(look).map_err(failure)? {
                    return Ok((ended, results));
                }
            }
            Some(pending) => match pending.wait_for(look) {
                Ok(None) => call = Some(pending),
                Ok(Some(values)) => {
                    results = Some(values);
                    tenant.finish();
                }
                // The tenant's end reports how it ended.
                Err(CallError::Failed(_) | CallError::Ended) => {}
                Err(error) => return Err(Failure::Refused(format!("--invoke: {error}"))),
            },
        }
    }
}

/// How long the end of the only tenant of a cell takes at most, and whether its traps have a backtrace: there is no
/// other tenant that the walk over its stack could delay, and if its own end has no bound beside that, it has none.
///
/// # Errors
/// When its reservation promises nothing: then neither a start nor an end would come.
fn ends(
    tenant: &TenantSpec,
    mechanism: Mechanism,
    profile: &Profile,
    outlines: &Outlines,
) -> Result<(Ends, bool), Failure> {
    let preemption = HostTime::of_preemption(None, Some(profile));
    let fault = HostTime::of_fault(None, Some(profile));
    let tenants = std::slice::from_ref(tenant);
    let steps = HostSteps::of(mechanism, tenants, fault, Some(profile), outlines);
    if steps.no_backtraces().is_none()
        && let Ok(ends) = ends_with(tenant, &steps.clone().with_backtraces(), preemption)
        && ends.bounds.iter().all(|bound| bound.returned_ns.is_some())
    {
        return Ok((ends, true));
    }
    Ok((ends_with(tenant, &steps, preemption)?, false))
}

/// The same with these longest steps.
fn ends_with(
    tenant: &TenantSpec,
    steps: &HostSteps,
    preemption: HostTime,
) -> Result<Ends, Failure> {
    let tenants = std::slice::from_ref(tenant);
    let scheduling = Scheduling {
        order: Order::FixedPriority,
        overhead: preemption.overhead(),
        ends: None,
    };
    // Alone and without real-time priority: that others can be kept, or what the host takes, does not count.
    let admission = Admission::of(tenants, steps, scheduling);
    if let Some(useless) = admission.useless.first() {
        return Err(Failure::Refused(useless.text.clone()));
    }
    let order = Order::FixedPriority;
    Ok(Ends::of(tenants, steps, preemption, order))
}

/// What the cell of the tenant has, as the lease file says.
#[derive(Debug, Clone, Copy, Default)]
struct OfCell {
    /// The host's memory that it holds.
    memory: Option<ByteSize>,
    /// The limit on what programs take.
    code: Option<ByteSize>,
}

/// Returns the tenant to run: the flags over the lease file over the defaults; and its cell.
fn tenant(arguments: &Arguments) -> Result<(TenantSpec, OfCell), Failure> {
    let mut command = arguments.command.iter();
    let mut of_cell = OfCell::default();
    let mut tenant = match &arguments.lease {
        Some(path) => {
            let (tenant, cell) = from_file(path, arguments.tenant.as_deref())?;
            of_cell = cell;
            tenant
        }
        None => {
            let Some(program) = command.next() else {
                let message = "found no program; allowed: PROGRAM, or `--lease FILE`";
                return Err(Failure::Configuration(message.into()));
            };
            TenantSpec {
                name: TenantSpec::name_of(Path::new(program)),
                component: PathBuf::from(program),
                args: Vec::new(),
                env: Vec::new(),
                dirs: Vec::new(),
                config: Vec::new(),
                data: Vec::new(),
                keyvalue: None,
                outgoing: None,
                swap: None,
                http: None,
                restart: leasehold_lease::Restart::Never,
                lease: Lease::default(),
            }
        }
    };
    tenant.args.extend(command.cloned());
    tenant.env.extend(arguments.env.iter().cloned());
    let names_pwd = |env: &EnvVar| env.name == "PWD";
    if let Some(cwd) = &arguments.cwd
        && !tenant.env.iter().any(names_pwd)
    {
        tenant.env.push(EnvVar {
            name: "PWD".to_owned(),
            value: cwd.clone(),
        });
    }
    tenant.dirs.extend(arguments.dirs.iter().cloned());
    if let Some(twice) = leasehold_lease::Directory::twice(&tenant.dirs) {
        let guest = &twice.guest;
        return Err(Failure::Configuration(format!(
            "--dir: found two directories that would be {guest} to the program; allowed: one"
        )));
    }
    tenant.data.extend(arguments.data.iter().cloned());
    let flags = LeaseFlags {
        budget: arguments.budget,
        call_bytes: arguments.call_bytes,
        reserve: arguments.memory,
        paging: arguments.paging.as_ref().map(|flag| flag.paging),
        table_elements: arguments.table_elements,
        host_memory: arguments.host_memory,
        code_memory: arguments.code_memory,
        stack: arguments.stack,
        open_files: arguments.open_files,
        disk_bytes: arguments.disk_bytes,
        disk_files: arguments.disk_files,
        cpu: arguments.cpu,
    };
    tenant.lease = flags.over(tenant.lease);
    if let Some(flag) = &arguments.paging {
        tenant.swap = Some(flag.swap.clone());
    }
    let memory = &tenant.lease.memory;
    if let Some(paging) = memory.paging
        && paging.limit <= memory.reserve
    {
        return Err(Failure::Configuration(format!(
            "--memory, --paging: found a limit of {}; allowed: more than the reserve, which is {}",
            paging.limit, memory.reserve
        )));
    }
    if let (None, [data, ..]) = (memory.paging, &*tenant.data) {
        return Err(Failure::Configuration(format!(
            "--data: found {:?}; allowed: nothing, unless the tenant pages (--paging)",
            data.name
        )));
    }
    Ok((tenant, of_cell))
}

fn from_file(path: &Path, name: Option<&str>) -> Result<(TenantSpec, OfCell), Failure> {
    let file = leases::load(path)?;
    let names = || {
        const SHOWN: usize = 20;
        let shown = file.tenants.iter().take(SHOWN);
        let names: Vec<_> = shown.map(|tenant| tenant.name.as_str()).collect();
        match file.tenants.len().checked_sub(SHOWN) {
            None | Some(0) => names.join(", "),
            Some(more) => format!("{} and {more} more", names.join(", ")),
        }
    };
    let chosen = match name {
        Some(name) => file.tenants.iter().find(|tenant| tenant.name == name),
        None if file.tenants.len() == 1 => file.tenants.first(),
        None => {
            return Err(Failure::Configuration(format!(
                "{}: found several tenants; allowed: one, by --tenant NAME: {}",
                path.display(),
                names()
            )));
        }
    };
    let chosen = chosen.cloned().ok_or_else(|| {
        Failure::Configuration(format!(
            "{}: no tenant {:?}; there are: {}",
            path.display(),
            name.unwrap_or_default(),
            names()
        ))
    })?;
    leases::without_requests(path, &chosen)?;
    let of_cell = OfCell {
        memory: file.memory,
        code: file.code,
    };
    Ok((chosen, of_cell))
}

/// What a tenant has around it, with the streams of this process.
pub(crate) fn surroundings(tenant: &TenantSpec, stores: &Stores) -> Surroundings {
    let program = tenant
        .component
        .file_name()
        .unwrap_or(tenant.component.as_os_str());
    let mut args = vec![program.to_string_lossy().into_owned()];
    args.extend(tenant.args.iter().cloned());
    Surroundings {
        args,
        env: tenant
            .env
            .iter()
            .map(|var| (var.name.clone(), var.value.clone()))
            .collect(),
        config: tenant.config.iter().cloned().collect(),
        keyvalue: stores.of(tenant),
        outgoing: None,
        dirs: tenant
            .dirs
            .iter()
            .map(|directory| Directory {
                host: directory.host.clone(),
                guest: directory.guest.clone(),
                write: directory.write,
            })
            .collect(),
        data: tenant
            .data
            .iter()
            .map(|data| (data.name.clone(), data.file.clone()))
            .collect(),
        cwd: None,
        stdin: Input::Inherit,
        stdout: Output::Stdout,
        stderr: Output::Stderr,
        disk_use: DiskUse::default(),
    }
}

/// Loads a program for a tenant with this lease and says clearly why it cannot be run.
pub(crate) fn load(cell: &Cell, path: &Path, lease: &Lease) -> Result<Arc<Program>, Failure> {
    loaded(cell.load_for(path, lease), path)
}

/// The same of a program that answers requests.
pub(crate) fn load_handler(
    cell: &Cell,
    path: &Path,
    lease: &Lease,
) -> Result<Arc<Program>, Failure> {
    loaded(cell.load_handler(path, lease), path)
}

/// The same of a program of which a function is called.
fn load_exports(cell: &Cell, path: &Path, lease: &Lease) -> Result<Arc<Program>, Failure> {
    loaded(cell.load_exports(path, lease), path)
}

fn loaded(
    result: Result<Arc<Program>, ProgramError>,
    path: &Path,
) -> Result<Arc<Program>, Failure> {
    result.map_err(|error| unloaded(&error, path))
}

/// Why a program cannot be run.
pub(crate) fn unloaded(error: &ProgramError, path: &Path) -> Failure {
    match error {
        ProgramError::Read { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            Failure::Missing(format!("no such program: {}", path.display()))
        }
        ProgramError::Read { .. } => Failure::Missing(error.to_string()),
        error if error.is_of_host() => {
            Failure::Host(anyhow::anyhow!("{}: {error}", path.display()))
        }
        _ => Failure::Program(format!("{}: {error}", path.display())),
    }
}

pub(crate) fn failure(error: StartError) -> Failure {
    match error {
        StartError::Lease { .. } => Failure::Refused(error.to_string()),
        StartError::Processor(_) | StartError::Memory(_) | StartError::Full(_) => {
            Failure::Refused(error.to_string())
        }
        StartError::Surroundings(message) => Failure::Missing(message),
        StartError::TooLong(message) => Failure::Configuration(message),
        StartError::Program(_) => Failure::Program(error.to_string()),
        StartError::Killed | StartError::Late(_) | StartError::CellEnded => {
            Failure::Host(anyhow::Error::new(error))
        }
    }
}
