//! `leasehold up`: the tenants of a lease file together on one cell, each inside its leases.

use crate::calibrate::profile_or_calibrate;
use crate::exit::Failure;
use crate::leases;
use crate::memory_admission::MemoryVerdict;
use crate::report::nanos;
use crate::run::{failure, load, surroundings};
use comfy_table::{CellAlignment, Table, presets};
use leasehold_cell::{
    Cell, CellConfig, Ended, Exit, Input, Output, Processor, Realtime, StartRequest, TenantHandle,
    flush_output,
};
use leasehold_lease::{LeaseFile, Nanoseconds, TenantSpec};
use leasehold_reserve::Contract;
use leasehold_reserve::admission::{Overhead, admit};
use serde_json::{Value, json};
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often the live table is drawn.
const REFRESH: Duration = Duration::from_millis(500);

/// How often tenants are looked at.
const LOOK: Duration = Duration::from_millis(20);

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  leasehold up leases.toml
  leasehold up leases.toml --for 10s --core 1
  leasehold up leases.toml --for 1s --json > report.json

Tenants with a `cpu` reservation run inside it; the others share what nobody has reserved. A set
that cannot be kept is not started (see `leasehold admit`), unless --unadmitted is given.
The tenants' own output goes to standard output; the table and the report to standard error.
Without --for it runs until every tenant has ended, or until interrupted: then all are killed.")]
pub(crate) struct Arguments {
    /// The tenants and their leases.
    #[arg(value_name = "LEASES")]
    leases: PathBuf,

    /// Kill whoever still runs after this time.
    #[arg(long = "for", value_name = "TIME")]
    time: Option<Nanoseconds>,

    /// The processor core to run on [default: wherever the system puts it].
    #[arg(long, value_name = "N")]
    core: Option<usize>,

    /// Start the tenants although the admission test does not pass: their reservations may be
    /// missed.
    #[arg(long)]
    unadmitted: bool,

    /// No live table.
    #[arg(long)]
    quiet: bool,

    /// The report as JSON, on standard output, instead of the tenants' output.
    #[arg(long)]
    json: bool,
}

/// One tenant, from its start to its end.
struct Running<'a> {
    spec: &'a TenantSpec,
    /// How long taking everything back from it takes at most, wall time.
    bound_ns: Option<u64>,
    handle: TenantHandle,
    /// What it had got when it was last looked at.
    processor: Option<Processor>,
    ended: Option<Ended>,
}

pub(crate) fn main(arguments: &Arguments, profile: Option<&Path>) -> Result<ExitCode, Failure> {
    let file = leases::load(&arguments.leases)?;
    let bounds = bounds(&file, arguments.unadmitted)?;
    let memory = MemoryVerdict::of(&file);
    if let (false, Some(why)) = (memory.fits(), memory.text()) {
        return Err(Failure::Refused(format!(
            "{}: {why}",
            arguments.leases.display()
        )));
    }
    for directory in file.tenants.iter().flat_map(|tenant| &tenant.dirs) {
        if !directory.host.is_dir() {
            let message = format!("no such directory: {}", directory.host.display());
            return Err(Failure::Missing(message));
        }
    }
    let mut config = CellConfig::new(profile_or_calibrate(profile)?);
    config.code_cache = leasehold_cell::user_code_cache();
    config.cpu = arguments.core;
    config.order = leases::order(file.order);
    config.realtime = true;
    config.admission = !arguments.unadmitted;
    let cell = Cell::start(config)?;
    if let Realtime::Refused(reason) = cell.realtime() {
        eprintln!(
            "leasehold: the system refused real-time priority ({reason}): reservations hold among \
             the tenants, but other programs of this host can delay them all"
        );
    }

    let interrupted = Arc::new(AtomicBool::new(false));
    let flag = interrupted.clone();
    ctrlc::set_handler(move || flag.store(true, Ordering::Relaxed))
        .map_err(|error| Failure::Host(error.into()))?;

    let mut tenants = start(&cell, &file, bounds, arguments.json)?;
    let began = Instant::now();
    for tenant in &tenants {
        tenant.handle.go();
    }
    let mut screen = Screen::new(arguments.quiet || arguments.json);
    let mut killed = false;
    while tenants.iter().any(|tenant| tenant.ended.is_none()) {
        for tenant in &mut tenants {
            tenant.look()?;
        }
        let late = arguments
            .time
            .is_some_and(|time| began.elapsed() >= Duration::from_nanos(time.get()));
        if !killed && (late || interrupted.load(Ordering::Relaxed)) {
            killed = true;
            for tenant in &tenants {
                tenant.handle.kill();
            }
        }
        screen.draw(&tenants, began.elapsed());
        std::thread::sleep(LOOK);
    }
    let elapsed = began.elapsed();
    flush_output();
    screen.clear();
    if arguments.json {
        println!("{}", report_json(&tenants, elapsed, &cell));
    } else {
        eprint!("{}", report(&tenants, elapsed));
    }
    let failed = tenants.iter().any(|tenant| match &tenant.ended {
        Some(Ended { exit, .. }) => match exit {
            Exit::Code(code) => *code != 0,
            Exit::Killed => false,
            Exit::Trap(_) | Exit::Lease(_) => true,
        },
        None => true,
    });
    Ok(ExitCode::from(u8::from(failed)))
}

/// How long taking everything back from each tenant takes at most, wall time under its own
/// reservation; `None` where nothing bounds it.
///
/// # Errors
/// When not every reservation can be kept, unless they are to be started all the same.
fn bounds(file: &LeaseFile, unadmitted: bool) -> Result<Vec<Option<u64>>, Failure> {
    let contracts: Vec<Option<Contract>> = file
        .tenants
        .iter()
        .map(|tenant| tenant.lease.cpu.map(leases::contract))
        .collect();
    let reserved: Vec<Contract> = contracts.iter().copied().flatten().collect();
    let order = leases::order(file.order);
    let report = admit(&reserved, order, Overhead { per_preemption: 0 });
    if !report.schedulable() && !unadmitted {
        return Err(Failure::Refused(
            "the processor reservations cannot all be kept: `leasehold admit` says why, \
             --unadmitted starts them all the same"
                .into(),
        ));
    }
    let mut verdicts = report.servers.iter();
    let bound = |(tenant, contract): (&TenantSpec, &Option<Contract>)| {
        let contract = contract.as_ref()?;
        let verdict = verdicts.next()?;
        verdict.reclaimed_within(contract, order, tenant.lease.reclaim.budget.get())
    };
    Ok(file.tenants.iter().zip(&contracts).map(bound).collect())
}

/// Starts all tenants, or none: those that were started end with the cell.
fn start<'a>(
    cell: &Cell,
    file: &'a LeaseFile,
    bounds: Vec<Option<u64>>,
    mute: bool,
) -> Result<Vec<Running<'a>>, Failure> {
    let mut running = Vec::with_capacity(file.tenants.len());
    for (spec, bound_ns) in file.tenants.iter().zip(bounds) {
        let mut surroundings = surroundings(spec);
        surroundings.stdin = Input::Empty;
        if mute {
            surroundings.stdout = Output::Discard;
        }
        let handle = cell
            .start_held(StartRequest {
                program: load(cell, &spec.component).map_err(|error| named(&spec.name, error))?,
                lease: spec.lease,
                surroundings,
                detailed: false,
            })
            .map_err(|error| named(&spec.name, failure(error)))?;
        running.push(Running {
            spec,
            bound_ns,
            handle,
            processor: None,
            ended: None,
        });
    }
    Ok(running)
}

/// The failure of one of several tenants.
fn named(name: &str, failure: Failure) -> Failure {
    let of = |message: String| format!("tenant.{name}: {message}");
    match failure {
        Failure::Program(message) => Failure::Program(of(message)),
        Failure::Missing(message) => Failure::Missing(of(message)),
        Failure::Refused(message) => Failure::Refused(of(message)),
        Failure::Configuration(message) => Failure::Configuration(of(message)),
        Failure::Host(error) => Failure::Host(error.context(format!("tenant.{name}"))),
    }
}

impl Running<'_> {
    fn look(&mut self) -> Result<(), Failure> {
        if self.ended.is_some() {
            return Ok(());
        }
        if let Some(processor) = self.handle.processor() {
            self.processor = Some(processor);
        }
        self.ended = self.handle.wait_for(Duration::ZERO).map_err(failure)?;
        Ok(())
    }

    fn state(&self) -> String {
        match &self.ended {
            None => match &self.processor {
                Some(processor) => processor.state.to_string(),
                None => "ending".into(),
            },
            Some(ended) => match &ended.exit {
                Exit::Code(code) => format!("exit {code}"),
                Exit::Trap(_) => "trapped".into(),
                Exit::Lease(_) => "out of lease".into(),
                Exit::Killed => "killed".into(),
            },
        }
    }

    fn row(&self, elapsed: Duration) -> Vec<String> {
        let mut row = vec![self.spec.name.clone(), self.state()];
        let Some(processor) = &self.processor else {
            row.extend(vec!["–".to_owned(); COLUMNS.len() - 2]);
            return row;
        };
        let share = |used: u64| format!("{:.1} %", used as f64 / elapsed.as_nanos() as f64 * 100.0);
        let supply = &processor.supply;
        row.extend(match &self.spec.lease.cpu {
            Some(cpu) => [
                format!("{} / {}", cpu.budget(), cpu.period()),
                cpu.priority().to_string(),
            ],
            None => ["background".to_owned(), "–".to_owned()],
        });
        row.extend([
            nanos(supply.used),
            share(supply.used),
            processor.budget_left_ns.map_or("–".into(), nanos),
            supply.replenishments.to_string(),
            supply.preemptions.to_string(),
            supply.depletions.to_string(),
            supply.misses.to_string(),
        ]);
        row
    }
}

const COLUMNS: [&str; 11] = [
    "tenant",
    "state",
    "reserved",
    "priority",
    "used",
    "share",
    "left",
    "replenished",
    "preempted",
    "depleted",
    "missed",
];

fn table(tenants: &[Running<'_>], elapsed: Duration) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(COLUMNS);
    for tenant in tenants {
        table.add_row(tenant.row(elapsed));
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// The live table, drawn over itself, if somebody looks.
struct Screen {
    drawn: Option<Instant>,
    lines: usize,
    live: bool,
}

impl Screen {
    fn new(quiet: bool) -> Self {
        Self {
            drawn: None,
            lines: 0,
            live: !quiet && std::io::stderr().is_terminal(),
        }
    }

    fn draw(&mut self, tenants: &[Running<'_>], elapsed: Duration) {
        if !self.live || self.drawn.is_some_and(|drawn| drawn.elapsed() < REFRESH) {
            return;
        }
        self.drawn = Some(Instant::now());
        self.clear();
        let text = format!(
            "{}\n{:.1} s\n",
            table(tenants, elapsed),
            elapsed.as_secs_f64()
        );
        self.lines = text.lines().count();
        let mut stderr = std::io::stderr().lock();
        // Nobody is told when nobody can see it.
        let _ = stderr.write_all(text.as_bytes());
    }

    fn clear(&mut self) {
        if self.lines > 0 {
            // Up to where the table began, and everything below it away.
            eprint!("\x1b[{}A\x1b[J", self.lines);
            self.lines = 0;
        }
    }
}

fn report(tenants: &[Running<'_>], elapsed: Duration) -> String {
    let mut ends = Table::new();
    ends.load_style(presets::UTF8_HORIZONTAL_ONLY);
    ends.set_header([
        "tenant",
        "reclaim budget",
        "predicted",
        "measured",
        "wall time",
        "bound",
    ]);
    for tenant in tenants {
        let Some(ended) = &tenant.ended else { continue };
        ends.add_row([
            tenant.spec.name.clone(),
            tenant.spec.lease.reclaim.budget.to_string(),
            nanos(ended.reclaimed.predicted_ns),
            nanos(ended.reclaimed.returned.cpu_ns),
            nanos(ended.reclaimed.returned.wall_ns),
            tenant.bound_ns.map_or("–".into(), nanos),
        ]);
    }
    for column in ends.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!(
        "{}\nafter {:.2} s; `missed`: times a reservation did not get its budget within a period\n\n\
         {ends}\ntaking everything back: processor time predicted (enforced) and measured, wall \
         time, and its bound under the tenant's own reservation\n",
        table(tenants, elapsed),
        elapsed.as_secs_f64(),
    )
}

fn report_json(tenants: &[Running<'_>], elapsed: Duration, cell: &Cell) -> Value {
    let tenants: Vec<_> = tenants
        .iter()
        .map(|tenant| {
            let supply = tenant.processor.as_ref().map(|processor| processor.supply);
            let reclaimed = tenant.ended.as_ref().map(|ended| ended.reclaimed);
            json!({
                "name": tenant.spec.name,
                "state": tenant.state(),
                "budget_ns": tenant.spec.lease.cpu.map(|cpu| cpu.budget().get()),
                "period_ns": tenant.spec.lease.cpu.map(|cpu| cpu.period().get()),
                "priority": tenant.spec.lease.cpu.map(|cpu| cpu.priority()),
                "used_ns": supply.map(|supply| supply.used),
                "replenishments": supply.map(|supply| supply.replenishments),
                "preemptions": supply.map(|supply| supply.preemptions),
                "depletions": supply.map(|supply| supply.depletions),
                "misses": supply.map(|supply| supply.misses),
                "overrun_max_ns": supply.map(|supply| supply.overrun_max),
                "reclaim_predicted_ns": reclaimed.map(|r| r.predicted_ns),
                "reclaim_cpu_ns": reclaimed.map(|r| r.returned.cpu_ns),
                "reclaim_wall_ns": reclaimed.map(|r| r.returned.wall_ns),
                "reclaim_bound_ns": tenant.bound_ns,
            })
        })
        .collect();
    json!({
        "elapsed_ns": elapsed.as_nanos() as u64,
        "realtime": matches!(cell.realtime(), Realtime::Granted),
        "tenants": tenants,
    })
}
