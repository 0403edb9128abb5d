//! `leasehold simulate`: plays the processor reservations of a lease file in virtual time.

use crate::exit::Failure;
use crate::leases;
use crate::output::say;
use crate::report::nanos;
use comfy_table::{CellAlignment, Table, presets};
use leasehold_lease::{Activity, Cpu, LeaseFile, Nanoseconds, Order, TenantSpec, Workload};
use leasehold_reserve::simulate::{
    Behaviour, CostModel, ServerIndex, ServerTally, SetUpError, Simulation, Sink, Tally, Trace,
    write_chrome_trace,
};
use leasehold_reserve::{Config, Nanos, Shielding, Supply};
use leasehold_study::lanes::Lanes;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;

/// Time slices of background tenants, unless they state one: as in a cell.
const BACKGROUND_SLICE: Nanos = leasehold_cell::BACKGROUND_SLICE.as_nanos() as Nanos;
/// The most periods of one reservation, and the most jobs of one tenant's tasks together, in a
/// simulation: some seconds of real time.
const REPETITIONS: u64 = 10_000_000;
/// Most events that a trace keeps: some 100 MB.
const TRACED: usize = 2_000_000;
/// Most tenants of a picture, and most whose budgets are traced: each is looked at whenever the
/// scheduler decides.
const LANES: usize = 100;
/// Periods of the longest reservation that a picture shows, unless told otherwise.
const SHOWN_PERIODS: Nanos = 4;
/// The time that a picture shows without any reservation.
const SHOWN: Nanos = 100_000_000;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  leasehold simulate leases.toml
  leasehold simulate leases.toml --for 1s --workload thumbnailer:run=1ms,sleep=3ms
  leasehold simulate leases.toml --workload web:execution=500us,gap=2ms,gap_max=20ms,tasks=4
  leasehold simulate leases.toml --svg schedule.svg --window 20ms
  leasehold simulate leases.toml --trace schedule.json
  leasehold simulate leases.toml --eager --json
  leasehold simulate leases.toml --costs bare --cost switch=1us

The scheduler is that of a cell; what tenants do and what scheduling takes are models. Nothing is
started. The same input gives the same output.
TIME is a number and a unit: 500us, 1.5ms, 2s.

Exit codes: 0; 66 the lease file is missing; 78 it is wrong, or has more tenants than the picture
has room for.")]
pub(crate) struct Arguments {
    /// The lease file. All its tenants run on one processor.
    #[arg(value_name = "FILE")]
    leases: PathBuf,

    /// How much virtual time to simulate.
    #[arg(long = "for", value_name = "TIME", default_value = "10s")]
    time: Nanoseconds,

    /// What a tenant does, instead of what the file says: NAME:busy, NAME:run=TIME,sleep=TIME,
    /// NAME:execution=TIME,period=TIME or NAME:execution=TIME,gap=TIME; may be repeated.
    #[arg(long, value_name = "NAME:WORKLOAD")]
    workload: Vec<TenantWorkload>,

    /// Use the eager scheduler, which attacks exploit: without shield and non-preemptive regions.
    #[arg(long)]
    eager: bool,

    /// The order of servers: fixed-priority or earliest-deadline [default: that of the file].
    #[arg(long, value_name = "ORDER")]
    order: Option<Order>,

    /// What scheduling takes: vm (a cell in a virtual machine), bare (a kernel that owns its
    /// timer) or free.
    #[arg(long, value_name = "MACHINE", default_value = "vm")]
    costs: Machine,

    /// One cost of the machine: interrupt, handler, call, decision, reservation, timeout,
    /// replenishment, arm or switch; 0 is allowed; may be repeated.
    #[arg(long, value_name = "COST=TIME")]
    cost: Vec<Cost>,

    /// Draw the schedule, with a lane for each tenant.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// How much of the schedule to draw [default: four of the longest periods].
    #[arg(long, value_name = "TIME", requires = "svg")]
    window: Option<Nanoseconds>,

    /// From when on to draw the schedule [default: 0s].
    #[arg(long, value_name = "TIME", requires = "svg")]
    from: Option<Nanoseconds>,

    /// Write a trace for ui.perfetto.dev and chrome://tracing.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// Print one line of JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// The behaviour of the tenant of a name.
#[derive(Debug, Clone)]
struct TenantWorkload {
    tenant: String,
    workload: Workload,
}

impl FromStr for TenantWorkload {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (tenant, workload) = text
            .split_once(':')
            .ok_or("allowed: NAME:WORKLOAD, such as web:busy")?;
        let workload = workload
            .parse()
            .map_err(|error: leasehold_lease::FlagError| error.to_string())?;
        Ok(Self {
            tenant: tenant.to_owned(),
            workload,
        })
    }
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Machine {
    Vm,
    Bare,
    Free,
}

impl Machine {
    const fn costs(self) -> CostModel {
        match self {
            Self::Vm => CostModel::VIRTUAL_MACHINE,
            Self::Bare => CostModel::BARE_METAL,
            Self::Free => CostModel::FREE,
        }
    }
}

/// One cost and what it is set to.
#[derive(Debug, Clone)]
struct Cost {
    name: String,
    time: Nanos,
}

impl FromStr for Cost {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, time) = text.split_once('=').ok_or("allowed: COST=TIME")?;
        let mut costs = CostModel::FREE;
        if cost_of(&mut costs, name).is_none() {
            return Err(
                "allowed: interrupt, handler, call, decision, reservation, timeout, \
                 replenishment, arm, switch"
                    .into(),
            );
        }
        let time = match time {
            "0" => 0,
            time => time
                .parse()
                .map(Nanoseconds::get)
                .map_err(|error: leasehold_lease::QuantityError| error.to_string())?,
        };
        let name = name.to_owned();
        Ok(Self { name, time })
    }
}

fn cost_of<'a>(costs: &'a mut CostModel, name: &str) -> Option<&'a mut Nanos> {
    Some(match name {
        "interrupt" => &mut costs.interrupt,
        "handler" => &mut costs.handler,
        "call" => &mut costs.call,
        "decision" => &mut costs.decision,
        "reservation" => &mut costs.reservation,
        "timeout" => &mut costs.timeout,
        "replenishment" => &mut costs.replenishment,
        "arm" => &mut costs.arm,
        "switch" => &mut costs.switch,
        _ => return None,
    })
}

pub(crate) fn main(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let file = leases::load(&arguments.leases)?;
    let scene = Scene::of(arguments, &file)?;
    let wants_trace = arguments.svg.is_some() || arguments.trace.is_some();
    let played = if wants_trace {
        let trace = Trace::new(TRACED, file.tenants.len() <= LANES);
        let (played, (tally, trace)) = scene.play((Tally::new(), trace))?;
        scene.write_pictures(arguments, &trace)?;
        Played { tally, ..played }
    } else {
        let (played, tally) = scene.play(Tally::new())?;
        Played { tally, ..played }
    };
    let said = match arguments.json {
        true => format!("{}\n", scene.json(&played)),
        false => scene.text(&played),
    };
    match std::io::stdout().lock().write_all(said.as_bytes()) {
        // Ten thousand rows invite `| head`.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::Host(error.into())),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// The simulated scene.
struct Scene<'a> {
    file: &'a LeaseFile,
    workloads: BTreeMap<&'a str, Workload>,
    order: Order,
    shielding: Shielding,
    costs: CostModel,
    end: Nanos,
}

/// The result of a simulation.
struct Played {
    /// When it ended: an overhead that began before the end that was asked for is finished.
    ended: Nanos,
    tally: Tally,
    supplies: Vec<Supply>,
}

impl<'a> Scene<'a> {
    fn of(arguments: &'a Arguments, file: &'a LeaseFile) -> Result<Self, Failure> {
        let mut workloads: BTreeMap<&str, Workload> = file
            .workloads
            .iter()
            .map(|(name, workload)| (name.as_str(), *workload))
            .collect();
        for TenantWorkload { tenant, workload } in &arguments.workload {
            if file.tenant(tenant).is_none() {
                let path = arguments.leases.display();
                let message = format!("{path}: no tenant {tenant:?}, which --workload names");
                return Err(Failure::Configuration(message));
            }
            workloads.insert(tenant, *workload);
        }
        let mut costs = arguments.costs.costs();
        for Cost { name, time } in &arguments.cost {
            if let Some(cost) = cost_of(&mut costs, name) {
                *cost = *time;
            }
        }
        if arguments.svg.is_some() && file.tenants.len() > LANES {
            let message = format!("a picture has room for {LANES} tenants");
            return Err(Failure::Configuration(message));
        }
        for tenant in &file.tenants {
            let workload = workloads.get(tenant.name.as_str()).copied();
            let repetitions = [
                periods(tenant.lease.cpu, arguments.time.get()),
                jobs(workload.unwrap_or_default(), arguments.time.get()),
            ];
            for (count, what) in repetitions.into_iter().zip(["periods", "jobs"]) {
                if count > REPETITIONS {
                    return Err(Failure::Configuration(format!(
                        "{}: tenant {:?} has {count} {what} in {} of virtual time; at most \
                         {REPETITIONS} are simulated",
                        arguments.leases.display(),
                        tenant.name,
                        nanos(arguments.time.get()),
                    )));
                }
            }
        }
        Ok(Self {
            file,
            workloads,
            order: arguments.order.unwrap_or(file.order),
            shielding: match arguments.eager {
                true => Shielding::Eager,
                false => Shielding::Shielded,
            },
            costs,
            end: arguments.time.get(),
        })
    }

    fn workload(&self, tenant: &TenantSpec) -> Workload {
        let stated = self.workloads.get(tenant.name.as_str());
        stated.copied().unwrap_or_default()
    }

    /// Simulates it, told to `sink`; the tally of what is returned first is still empty.
    fn play<S: Sink>(&self, sink: S) -> Result<(Played, S), Failure> {
        let tasks = |tenant| u32::from(self.workload(tenant).tasks);
        let config = Config {
            order: leases::order(self.order),
            shielding: self.shielding,
            servers: self.file.tenants.len() as u32,
            tasks: self.file.tenants.iter().map(tasks).sum(),
            seed: 0,
        };
        let mut simulation = Simulation::new(config, self.costs, sink);
        let host = |error: SetUpError| Failure::Host(error.into());
        let mut servers = Vec::new();
        for tenant in &self.file.tenants {
            let server = match tenant.lease.cpu {
                Some(cpu) => simulation.server(&leases::contract(cpu)),
                None => simulation.background(BACKGROUND_SLICE),
            };
            let server = server.map_err(host)?;
            let workload = self.workload(tenant);
            for number in 0..workload.tasks {
                let behaviour = behaviour(workload.activity, number);
                simulation.task(server, behaviour).map_err(host)?;
            }
            servers.push(server);
        }
        let stalled = |error| Failure::Host(anyhow::Error::new(error));
        simulation.run_until(self.end).map_err(stalled)?;
        let supply = |server: &ServerIndex| simulation.supply(*server);
        let played = Played {
            ended: simulation.now(),
            tally: Tally::new(),
            supplies: servers.iter().map(supply).collect(),
        };
        Ok((played, simulation.into_sink()))
    }

    fn names(&self) -> Vec<&'a str> {
        let tenants = self.file.tenants.iter();
        tenants.map(|tenant| tenant.name.as_str()).collect()
    }

    fn write_pictures(&self, arguments: &Arguments, trace: &Trace) -> Result<(), Failure> {
        if trace.dropped() > 0 {
            say!(
                "leasehold: the trace has the first {} events; {} more were left out",
                trace.events().len(),
                trace.dropped()
            );
        }
        let names = self.names();
        if let Some(path) = &arguments.svg {
            let start = arguments.from.map_or(0, Nanoseconds::get).min(self.end);
            let length = arguments
                .window
                .map_or_else(|| self.shown(), Nanoseconds::get);
            let svg = Lanes {
                title: &self.title(&arguments.leases),
                trace,
                names: &names,
                window: start..start.saturating_add(length).min(self.end),
            }
            .to_svg()?;
            write(path, &svg)?;
        }
        if let Some(path) = &arguments.trace {
            let mut text = String::new();
            write_chrome_trace(trace, &names, &mut text)
                .map_err(|error| Failure::Host(error.into()))?;
            write(path, &text)?;
        }
        Ok(())
    }

    /// The part of the schedule that a picture shows by default.
    fn shown(&self) -> Nanos {
        let reservations = self
            .file
            .tenants
            .iter()
            .filter_map(|tenant| tenant.lease.cpu);
        let longest = reservations.map(|cpu| cpu.period().get()).max();
        longest.map_or(SHOWN, |period| SHOWN_PERIODS * period)
    }

    fn title(&self, path: &Path) -> String {
        let name = path.file_name().unwrap_or(path.as_os_str());
        format!(
            "{}, {}, {}",
            name.to_string_lossy(),
            self.order,
            self.shielding_name()
        )
    }

    const fn shielding_name(&self) -> &'static str {
        match self.shielding {
            Shielding::Eager => "eager",
            Shielding::Shielded => "shielded",
        }
    }

    fn rows<'b>(
        &'b self,
        played: &'b Played,
    ) -> impl Iterator<Item = (&'b TenantSpec, &'b ServerTally, &'b Supply)> {
        let tenants = self.file.tenants.iter().zip(&played.supplies);
        tenants.enumerate().map(|(place, (tenant, supply))| {
            let tally = played.tally.server(ServerIndex::new(place as u32));
            (tenant, tally, supply)
        })
    }

    fn text(&self, played: &Played) -> String {
        let mut table = Table::new();
        table.load_style(presets::UTF8_HORIZONTAL_ONLY);
        table.set_header([
            "tenant",
            "does",
            "reservation",
            "used",
            "share",
            "per period\nleast",
            "per period\naverage",
            "preempted",
            "depleted",
            "replenished",
            "timer\ninterrupts",
            "missed",
            "worst\nwake-up",
        ]);
        for column in table.column_iter_mut().skip(2) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        for (tenant, tally, supply) in self.rows(played) {
            let or_none = |time: Option<Nanos>| time.map_or_else(|| "-".to_owned(), nanos);
            table.add_row([
                tenant.name.clone(),
                self.workload(tenant).to_string(),
                tenant.lease.cpu.map_or_else(
                    || "background".to_owned(),
                    |cpu| format!("{} in {}", cpu.budget(), cpu.period()),
                ),
                nanos(tally.used()),
                format!("{:.2} %", 100.0 * tally.used() as f64 / played.ended as f64),
                or_none(tally.least_used()),
                or_none(tally.mean_used().map(|mean| mean.round() as Nanos)),
                tally.preemptions().to_string(),
                supply.depletions.to_string(),
                supply.replenishments.to_string(),
                tally.timer_interrupts().to_string(),
                tally.misses().to_string(),
                or_none(tally.worst_wakeup()),
            ]);
        }
        format!("{table}\n{}\n", self.summary(played))
    }

    fn summary(&self, played: &Played) -> String {
        let tally = &played.tally;
        format!(
            "{end} of virtual time, {order}, {shielding}: {decisions} decisions{touched}; {timers} timer \
             interrupts, {unnecessary} of them unnecessary",
            end = nanos(played.ended),
            order = self.order,
            shielding = self.shielding_name(),
            decisions = tally.decisions(),
            touched = tally
                .most_touched()
                .map_or_else(String::new, |most| format!(
                    ", each touched at most {most} reservations"
                )),
            timers = tally.timer_interrupts(),
            unnecessary = tally.unnecessary_interrupts(),
        )
    }

    fn json(&self, played: &Played) -> Value {
        let tally = &played.tally;
        let tenants: Vec<Value> = self
            .rows(played)
            .map(|(tenant, tally, supply)| {
                json!({
                    "name": tenant.name,
                    "reserved": tenant.lease.cpu.is_some(),
                    "workload": self.workload(tenant).to_string(),
                    "used_ns": tally.used(),
                    "work_ns": tally.work(),
                    "overhead_ns": tally.overhead(),
                    "interference_ns": tally.interference(),
                    "periods": tally.windows(),
                    "period_used_ns_min": tally.least_used(),
                    "period_used_ns_avg": tally.mean_used(),
                    "preemptions": tally.preemptions(),
                    "depletions": supply.depletions,
                    "replenishments": supply.replenishments,
                    "overrun_ns_max": supply.overrun_max,
                    "timer_interrupts": tally.timer_interrupts(),
                    "activations": tally.activations(),
                    "misses": tally.misses(),
                    "wakeup_ns_max": tally.worst_wakeup(),
                    "response_ns_max": tally.worst_response(),
                })
            })
            .collect();
        json!({
            "for_ns": self.end,
            "simulated_ns": played.ended,
            "order": self.order.to_string(),
            "policy": self.shielding_name(),
            "decisions": tally.decisions(),
            "touched_max": tally.most_touched(),
            "timer_interrupts": tally.timer_interrupts(),
            "unnecessary_timer_interrupts": tally.unnecessary_interrupts(),
            "tenants": tenants,
        })
    }
}

/// How many periods a reservation has in so much time.
fn periods(cpu: Option<Cpu>, time: Nanos) -> u64 {
    cpu.map_or(0, |cpu| time / cpu.period().get())
}

/// How often the tasks of a workload begin to work in so much time, on average; waiting events are
/// kept, so that they count whether or not they are served.
fn jobs(workload: Workload, time: Nanos) -> u64 {
    let between = match workload.activity {
        Activity::Busy => return 0,
        Activity::Alternating { run, sleep } => run.get().saturating_add(sleep.get()),
        Activity::Periodic { period, .. } => period.get(),
        Activity::Sporadic { gap, gap_max, .. } => gap.get().midpoint(gap_max.get()),
    };
    (time / between.max(1)).saturating_mul(workload.tasks.into())
}

/// What a task does; `number` is that of the task in its tenant, so that those of a tenant that
/// wait for random events do not all wait for the same.
fn behaviour(activity: Activity, number: u8) -> Behaviour {
    match activity {
        Activity::Busy => Behaviour::Busy,
        Activity::Alternating { run, sleep } => Behaviour::Alternating {
            run: run.get(),
            sleep: sleep.get(),
        },
        Activity::Periodic {
            execution,
            period,
            phase,
        } => Behaviour::Periodic {
            phase: phase.map_or(0, Nanoseconds::get),
            period: period.get(),
            execution: execution.get(),
        },
        Activity::Sporadic {
            execution,
            execution_max,
            gap,
            gap_max,
            seed,
        } => Behaviour::Sporadic {
            seed: u64::from(seed) << 8 | u64::from(number),
            least_gap: gap.get(),
            greatest_gap: gap_max.get(),
            least_execution: execution.get(),
            greatest_execution: execution_max.get(),
        },
    }
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|error| {
        Failure::Host(anyhow::Error::new(error).context(path.display().to_string()))
    })
}
