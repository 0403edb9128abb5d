//! `leasehold admit`: whether the reservations of a lease file can be kept.

mod requests;

use crate::admission::{Admission, Scheduling};
use crate::calibrate::{self, profile_if_usable};
use crate::confinement::{Control, Origin};
use crate::exit::Failure;
use crate::hindrances::{Hindrances, Host, Start};
use crate::leases::{self, Ends};
use crate::memory_admission::MemoryVerdict;
use crate::overhead::{HostSteps, HostTime};
use crate::report::nanos;
use crate::requests::trust;
use crate::transit::{self, Transit};
use crate::useless::Useless;
use comfy_table::{CellAlignment, Table, presets};
use leasehold_cell::preempt::Mechanism;
use leasehold_cell::{Outlines, RealtimeLimit};
use leasehold_lease::{Cpu, LeaseFile, Nanoseconds, Order, TenantSpec};
use leasehold_reserve::Contract;
use leasehold_reserve::admission::{
    Headroom, Overhead, Report, Shortfall, Verdict, headroom, shortfall,
};
use requests::{RequestTime, RequestTimes};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// The number of tenants that do not fit for which advice is printed.
const ADVISED: usize = 10;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  leasehold admit leases.toml
  leasehold admit leases.toml --overhead 5us --json
  leasehold admit leases.toml --order earliest-deadline
  leasehold admit leases.toml --headroom thumbnailer
  leasehold admit leases.toml --request-time 250us --request-time cart=2ms

It tests the reservations of the processor and of memory, whatever the tenants do, and whether each
tenant can begin on this host: its program is a command or answers requests and imports only what is
offered, its lease pays for a start, its directories and data sets exist, and the host has the
memory, descriptors and mappings. Nothing is started. Only a start shows whether the functions of a
program are accepted, what its first instructions take, whether a key-value store can be opened,
whether the disk has room for a swap file, whether the addresses of listeners, and of tenants that
listen, are free, and whether another cell has the processor.
TIME is a number and a unit: 500us, 1.5ms, 2s.

Exit codes: 0 all of this holds; 1 something does not; 66 the lease file is missing; 78 it, or the
profile, is wrong.")]
pub(crate) struct Arguments {
    /// The lease file. All its tenants run on one processor.
    #[arg(value_name = "FILE")]
    leases: PathBuf,

    /// What one preemption takes from the preempted tenant [default: as calibrated on this host; 50us
    /// without a profile].
    #[arg(long, value_name = "TIME")]
    overhead: Option<Nanoseconds>,

    /// How long a fault of a tenant that pages may hold the processor [default: as calibrated on this
    /// host; 1ms without a profile].
    #[arg(long, value_name = "TIME")]
    fault: Option<Nanoseconds>,

    /// The order of servers: fixed-priority or earliest-deadline [default: that of the file].
    #[arg(long, value_name = "ORDER")]
    order: Option<Order>,

    /// Print also how much this tenant's reservation could change so that all still fit.
    #[arg(long, value_name = "TENANT")]
    headroom: Option<String>,

    /// Print also how many requests a second each lease sustains, if one takes this much processor
    /// time: its instance, its work and its end, as in the report of `leasehold serve`. For all
    /// tenants, or for one; may be repeated.
    #[arg(long, value_name = "[TENANT=]TIME")]
    request_time: Vec<RequestTime>,

    /// Print one line of JSON instead of a table.
    #[arg(long)]
    json: bool,
}

pub(crate) fn main(arguments: &Arguments, profile: Option<&Path>) -> Result<ExitCode, Failure> {
    let file = leases::load(&arguments.leases)?;
    // Below it, programs cannot even be looked at.
    leasehold_cell::raise_process_limits().map_err(Failure::Host)?;
    let order = arguments.order.unwrap_or(file.order);
    let place = calibrate::path(profile);
    let usable = profile_if_usable(profile);
    let profile = match (arguments.overhead, arguments.fault) {
        (Some(_), Some(_)) => None,
        _ => usable.clone(),
    };
    let overhead = HostTime::of_preemption(arguments.overhead, profile.as_ref());
    let fault = HostTime::of_fault(arguments.fault, profile.as_ref());
    let outlines = Arc::new(Outlines::default());
    let steps = HostSteps::of(
        Mechanism::from_environment(),
        &file.tenants,
        fault,
        profile.as_ref(),
        &outlines,
    );
    let set = Set::of(&file, (order, overhead), steps);
    let asked = match &arguments.headroom {
        Some(name) => Some((name.as_str(), set.place(name, &arguments.leases, &file)?)),
        None => None,
    };
    let requests = RequestTimes::of(&arguments.request_time, &arguments.leases, &file)?;
    let start = Start {
        leases: &arguments.leases,
        host: &Host::look(),
        profile: usable.as_ref(),
        profile_file: place.as_deref(),
        control: &Control::of_served(&arguments.leases, &file),
        outlines: &outlines,
        unreached: Vec::new(),
    };
    let mut outcome = Outcome::of(&file, set, overhead, requests, &start);
    if let Err(failure) = trust(&file.tenants, Origin::File(&arguments.leases)) {
        outcome.hindrances.add(None, failure);
    }
    outcome.headroom = asked.map(|(name, place)| {
        let contracts = &outcome.set.admission.contracts;
        let allowed = |contracts: &[Contract]| leases::stopped_by_host(contracts).is_none();
        let order = leases::order(order);
        let room = headroom(contracts, order, overhead.overhead(), place, allowed);
        (name, room)
    });
    let said = match arguments.json {
        true => format!("{}\n", outcome.json()),
        false => outcome.text(),
    };
    match std::io::stdout().lock().write_all(said.as_bytes()) {
        // Ten thousand rows invite `| head`.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            return Err(Failure::Host(error.into()));
        }
        _ => {}
    }
    Ok(match outcome.fits_all() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(1),
    })
}

/// The outcome for a lease file, as `leasehold admit --json` prints it.
pub(crate) fn json(
    file: &LeaseFile,
    overhead: HostTime,
    steps: HostSteps,
    start: &Start<'_>,
) -> Value {
    let set = Set::of(file, (file.order, overhead), steps);
    Outcome::of(file, set, overhead, RequestTimes::default(), start).json()
}

/// The reservations of a lease file, followed by the background contract.
struct Set {
    order: Order,
    admission: Admission,
    /// The tenants that the reservations belong to, in the file.
    tenants: Vec<usize>,
    /// How long a fault takes, if any tenant pages.
    fault: Option<HostTime>,
    /// The longest host steps of the tenants.
    steps: HostSteps,
}

impl Set {
    fn of(file: &LeaseFile, (order, overhead): (Order, HostTime), steps: HostSteps) -> Self {
        let scheduling = Scheduling {
            order: leases::order(order),
            overhead: overhead.overhead(),
            ends: None,
        };
        let places = file.tenants.iter().enumerate();
        let reserved = places.filter(|(_, tenant)| tenant.lease.cpu.is_some());
        let pages = |tenant: &TenantSpec| tenant.lease.memory.paging.is_some();
        Self {
            order,
            admission: Admission::of(&file.tenants, &steps, scheduling),
            tenants: reserved.map(|(place, _)| place).collect(),
            fault: file.tenants.iter().any(pages).then(|| steps.fault()),
            steps,
        }
    }

    /// Where the reservation of the tenant called `name` is.
    fn place(&self, name: &str, path: &Path, file: &LeaseFile) -> Result<usize, Failure> {
        let tenant = file.tenants.iter().position(|tenant| tenant.name == name);
        let wrong = |what| Failure::Configuration(format!("{}: {what}", path.display()));
        let tenant = tenant.ok_or_else(|| wrong(format!("--headroom: no tenant {name:?}")))?;
        let place = self.tenants.binary_search(&tenant);
        place.map_err(|_| {
            wrong(format!(
                "--headroom: tenant {name:?} has no processor reservation"
            ))
        })
    }

    /// Returns the values with which the first few reservations that do not fit would fit.
    fn shortfalls(&self, overhead: Overhead) -> Vec<(usize, Shortfall)> {
        let Admission {
            contracts, report, ..
        } = &self.admission;
        let verdicts = report.servers[..self.tenants.len()].iter().enumerate();
        let missing = verdicts.filter(|(_, verdict)| !verdict.schedulable());
        let order = leases::order(self.order);
        let told = |(place, _)| (place, shortfall(contracts, order, overhead, place));
        missing.take(ADVISED).map(told).collect()
    }
}

/// The result of the command.
struct Outcome<'a> {
    file: &'a LeaseFile,
    overhead: HostTime,
    set: Set,
    memory: MemoryVerdict,
    /// What requests on their way may hold.
    transit: Transit,
    shortfalls: Vec<(usize, Shortfall)>,
    headroom: Option<(&'a str, Headroom)>,
    /// What keeps the tenants from being started, the reservations apart.
    hindrances: Hindrances,
    /// The ends of the tenants.
    ends: Ends,
    /// The processor time of a request of each tenant, where it is stated.
    requests: RequestTimes,
}

impl<'a> Outcome<'a> {
    /// Tests the reservations of a file.
    fn of(
        file: &'a LeaseFile,
        set: Set,
        overhead: HostTime,
        requests: RequestTimes,
        start: &Start<'_>,
    ) -> Self {
        let order = leases::order(set.order);
        let available = transit::available(start.host.spare, file.memory);
        Self {
            file,
            overhead,
            memory: MemoryVerdict::of(file, start.outlines),
            transit: Transit::among(&file.tenants, available),
            hindrances: Hindrances::of(file, start),
            shortfalls: set.shortfalls(overhead.overhead()),
            headroom: None,
            ends: Ends::of(&file.tenants, &set.steps, overhead, order),
            set,
            requests,
        }
    }

    /// Whether the tenants are started, and everything is kept.
    fn fits_all(&self) -> bool {
        let reserved = self.schedulable() && self.memory.fits() && self.transit.fits();
        reserved && self.hindrances.is_empty()
    }

    /// The host's limit on a cell's thread, if the reservations may exceed it.
    fn host(&self) -> Option<RealtimeLimit> {
        self.set.admission.host
    }

    fn report(&self) -> &Report {
        &self.set.admission.report
    }

    fn useless(&self) -> &[Useless] {
        &self.set.admission.useless
    }

    /// Whether every reservation of the processor can be kept on this host.
    fn schedulable(&self) -> bool {
        self.fits() && self.host().is_none()
    }

    /// Whether every reservation of the processor can be kept, and promises something.
    fn fits(&self) -> bool {
        self.set.admission.fits()
    }

    /// Every tenant of the file, with its reservation if it has one.
    fn rows(&self) -> impl Iterator<Item = (&TenantSpec, Option<Row<'_>>)> {
        let mut next = 0;
        let tenants = self.file.tenants.iter().enumerate();
        tenants.map(move |(at, tenant)| {
            let row = tenant.lease.cpu.map(|cpu| {
                let (contract, verdict) = (
                    &self.set.admission.contracts[next],
                    &self.report().servers[next],
                );
                next += 1;
                let order = leases::order(self.set.order);
                let reclaim = tenant.lease.reclaim.budget.get();
                Row {
                    cpu,
                    verdict,
                    fits: verdict.schedulable()
                        && !self.useless().iter().any(|useless| useless.tenant == at),
                    reclaimed: verdict.reclaimed_within(contract, order, reclaim),
                }
            });
            (tenant, row)
        })
    }

    fn name(&self, place: usize) -> &str {
        &self.file.tenants[self.set.tenants[place]].name
    }

    fn text(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::UTF8_HORIZONTAL_ONLY);
        table.set_header([
            "tenant",
            "budget",
            "period",
            "priority",
            "share",
            "response",
            "slack",
            "useful",
            "reclaimed in",
            "fits",
        ]);
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        for (tenant, row) in self.rows() {
            let name = tenant.name.clone();
            match row {
                Some(row) => table.add_row(row.cells(name)),
                None => table.add_row([name, "background".to_owned()]),
            };
        }
        let mut text = format!("{table}\n{}\n", self.summary());
        for (place, shortfall) in &self.shortfalls {
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{}",
                advice(self.name(*place), shortfall, self.set.order)
            );
        }
        let (reserved, background) = self.report().servers.split_at(self.set.tenants.len());
        let silent = reserved.iter().filter(|verdict| !verdict.schedulable());
        let silent = silent.count() - self.shortfalls.len();
        if silent > 0 {
            let _ = writeln!(text, "{silent} more do not fit");
        }
        if let Some(fault) = self.set.fault {
            let _ = writeln!(
                text,
                "a fault of a tenant that pages holds the processor for {fault}: all responses allow \
                 for that"
            );
        }
        for (step, names) in self.longest_steps() {
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "the longest host step of {names}: {step}; all responses allow for that"
            );
        }
        if let Some(names) = self.unbounded() {
            let _ = writeln!(
                text,
                "nothing bounds how often {names} can be preempted: no time is promised to be \
                 useful, nor an end; a `nonpreemptive` would"
            );
        }
        for useless in self.useless().iter().take(ADVISED) {
            let _ = writeln!(text, "{}", useless.text);
        }
        if let Some(more @ 1..) = self.useless().len().checked_sub(ADVISED) {
            let _ = writeln!(text, "{more} more promise no useful time");
        }
        if !background.iter().all(Verdict::schedulable) {
            let _ = writeln!(
                text,
                "nothing is left for the host steps of background tenants"
            );
        }
        if let Some(limit) = self.host() {
            let _ = writeln!(text, "{limit}");
        }
        if let Some(bound) = self.ends.bounds.first() {
            let _ = writeln!(
                text,
                "nothing of a tenant runs any more {} after its kill, all of them killed at once",
                nanos(bound.effect_ns)
            );
        }
        let mut background = self.file.tenants.iter().zip(&self.ends.bounds);
        if let Some((_, bound)) = background.find(|(tenant, _)| tenant.lease.cpu.is_none()) {
            let _ = match self.ends.reservation.zip(bound.returned_ns) {
                Some((ends, most)) => writeln!(
                    text,
                    "ends in the background have {} in every {}: everything is returned within {}",
                    nanos(ends.budget()),
                    nanos(ends.period()),
                    nanos(most)
                ),
                None => writeln!(
                    text,
                    "the reservations leave no room for ends in the background: these have no bound"
                ),
            };
        }
        if let Some(memory) = self.memory.text() {
            let _ = writeln!(text, "{memory}");
        }
        if let Some(transit) = self.transit.text() {
            let _ = writeln!(text, "{transit}");
        }
        text.push_str(&self.hindrances.text());
        if let Some((name, room)) = &self.headroom {
            let _ = writeln!(text, "{}", possible(name, room));
        }
        for (tenant, row) in self.rows() {
            if let Some(request) = self.requests.for_tenant(tenant) {
                let sustained = row.and_then(|row| row.sustains(request));
                let _ = writeln!(text, "{}", requests::line(tenant, request, sustained));
            }
        }
        text
    }

    /// The tenants with a reservation that can be kept, and that nothing bounds the preemptions of; `None` if there are
    /// none.
    fn unbounded(&self) -> Option<String> {
        let is_it = |row: &Row<'_>| row.fits && row.verdict.loss.useful.is_none();
        let tenants = self
            .rows()
            .filter(|(_, row)| row.as_ref().is_some_and(is_it));
        let names: Vec<_> = tenants.map(|(tenant, _)| tenant.name.as_str()).collect();
        let first = names.first()?;
        Some(match names.len() - 1 {
            0 => (*first).to_owned(),
            more => format!("{first} and {more} more"),
        })
    }

    /// The longest host steps, each with the tenants that can reach it.
    fn longest_steps(&self) -> Vec<(String, String)> {
        let mut steps: Vec<(String, Vec<&str>)> = Vec::new();
        for tenant in &self.file.tenants {
            let longest = self.set.steps.longest(tenant);
            let step = format!(
                "{}, {}{}",
                longest.row.row().title(),
                nanos(longest.ns),
                match longest.is_of_program {
                    true => "",
                    false => " (any program: that of the lease cannot be read)",
                }
            );
            match steps.iter_mut().find(|(found, _)| *found == step) {
                Some((_, names)) => names.push(&tenant.name),
                None => steps.push((step, vec![&tenant.name])),
            }
        }
        let all = self.file.tenants.len();
        steps
            .into_iter()
            .map(|(step, names)| match names.len() {
                n if n == all => (step, "every tenant".to_owned()),
                n if n > ADVISED => (step, format!("{n} tenants")),
                _ => (step, names.join(", ")),
            })
            .collect()
    }

    /// The longest host step of a tenant, for programs.
    fn step_json(&self, tenant: &TenantSpec) -> Value {
        let longest = self.set.steps.longest(tenant);
        json!({
            "row": longest.row.row().title(),
            "longest_ns": longest.ns,
            "program": match longest.is_of_program {
                true => "read",
                false => "any",
            },
        })
    }

    fn summary(&self) -> String {
        let (reserved, all) = (self.set.tenants.len(), self.file.tenants.len());
        format!(
            "{verdict}: {reserved} reservations use {share} of the processor, {order}, {background} \
             in the background; a preemption takes {overhead}",
            verdict = match (self.fits(), self.host()) {
                (true, None) => "schedulable",
                (true, Some(_)) => "NOT schedulable on this host",
                (false, _) => "NOT schedulable",
            },
            share = percent(self.report().utilisation.millionths()),
            order = self.set.order,
            background = all - reserved,
            overhead = self.overhead,
        )
    }

    fn json(&self) -> Value {
        let tenants: Vec<_> = self
            .rows()
            .map(|(tenant, row)| {
                let request = self.requests.for_tenant(tenant);
                let sustained = request.and_then(|request| row.as_ref()?.sustains(request));
                let mut json = match row {
                    Some(row) => row.json(tenant, self.step_json(tenant)),
                    None => json!({
                        "step": self.step_json(tenant),
                        "name": tenant.name,
                        "reserved": false,
                        "schedulable": true,
                        "response_ns": null,
                    }),
                };
                json["request_ns"] = json!(request.map(Nanoseconds::get));
                json["sustained_requests_per_second_thousandths"] = json!(sustained);
                json
            })
            .collect();
        let advice = |(place, shortfall): &(usize, Shortfall)| {
            json!({
                "name": self.name(*place),
                "budget_ns": shortfall.budget,
                "period_ns": shortfall.period,
                "blocking_ns": shortfall.blocking,
                "others_thousandths": shortfall.others,
            })
        };
        let headroom = self.headroom.as_ref().map(|(name, room)| {
            json!({
                "name": name,
                "budget_ns": room.budget,
                "period_ns": room.period,
                "nonpreemptive_ns": room.nonpreemptive,
            })
        });
        json!({
            "schedulable": self.fits(),
            "host": self.host().map(|limit| json!({
                "most_ns": limit.most_ns(),
                "window_ns": limit.window_ns(),
            })),
            "order": self.set.order.to_string(),
            "utilisation_millionths": self.report().utilisation.millionths(),
            "overhead_ns": self.overhead.time().get(),
            "overhead_source": self.overhead.source(),
            "fault_ns": self.set.fault.map(|fault| fault.time().get()),
            "fault_source": self.set.fault.map(HostTime::source),
            "tenants": tenants,
            "would_fit": self.shortfalls.iter().map(advice).collect::<Vec<_>>(),
            "kill_effect_bound_ns": self.ends.bounds.first().map(|bound| bound.effect_ns),
            "ends": self.ends.reservation.map(|ends| {
                json!({
                    "budget_ns": ends.budget(),
                    "period_ns": ends.period(),
                    "nonpreemptive_ns": ends.nonpreemptive(),
                })
            }),
            "kill_bounds_ns": self.ends.bounds.iter().map(|bound| bound.returned_ns).collect::<Vec<_>>(),
            "headroom": headroom,
            "memory": self.memory.json(),
            "requests": self.transit.json(),
            "start": self.hindrances.json(),
        })
    }
}

/// The verdict on one reservation.
struct Row<'a> {
    cpu: Cpu,
    verdict: &'a Verdict,
    fits: bool,
    reclaimed: Option<u64>,
}

impl Row<'_> {
    /// Requests a second, in thousandths, of this much processor time each.
    fn sustains(&self, request: Nanoseconds) -> Option<u64> {
        requests::sustained(self.verdict, self.cpu.period(), request)
    }

    fn cells(&self, name: String) -> [String; 10] {
        let verdict = self.verdict;
        let or_none = |time: Option<u64>| time.map_or_else(|| "-".to_owned(), nanos);
        [
            name,
            self.cpu.budget().to_string(),
            self.cpu.period().to_string(),
            self.cpu.priority().to_string(),
            percent(verdict.utilisation.millionths()),
            or_none(verdict.response),
            or_none(verdict.slack),
            or_none(verdict.loss.useful),
            or_none(self.reclaimed),
            if self.fits { "yes" } else { "NO" }.to_owned(),
        ]
    }

    fn json(&self, tenant: &TenantSpec, step: Value) -> Value {
        let verdict = self.verdict;
        json!({
            "name": tenant.name,
            "reserved": true,
            "step": step,
            "schedulable": self.fits,
            "response_ns": verdict.response,
            "slack_ns": verdict.slack,
            "budget_ns": self.cpu.budget().get(),
            "period_ns": self.cpu.period().get(),
            "priority": self.cpu.priority(),
            "nonpreemptive_ns": self.cpu.nonpreemptive().map_or(0, Nanoseconds::get),
            "policy": self.cpu.policy().to_string(),
            "utilisation_millionths": verdict.utilisation.millionths(),
            "preemptions": verdict.loss.preemptions,
            "lost_ns": verdict.loss.lost,
            "useful_ns": verdict.loss.useful,
            "reclaim_ns": tenant.lease.reclaim.budget.get(),
            "reclaimed_ns": self.reclaimed,
        })
    }
}

/// Returns advice that makes the tenant called `name` fit; the values can be copied into a lease.
fn advice(name: &str, shortfall: &Shortfall, order: Order) -> String {
    let others = match order {
        Order::FixedPriority => "those of lower priority",
        Order::EarliestDeadline => "those of longer periods",
    };
    let changes = [
        stated(shortfall.budget).map(|time| format!("with a budget of at most {time}")),
        stated(shortfall.period).map(|time| format!("with a period of at least {time}")),
        match shortfall.blocking {
            Some(0) => Some(format!("if {others} had no non-preemptive regions")),
            longest => stated(longest)
                .map(|time| format!("if non-preemptive regions of {others} were at most {time}")),
        },
    ];
    let changes: Vec<_> = changes.into_iter().flatten().collect();
    if !changes.is_empty() {
        return format!("{name} does not fit; it would {}", changes.join(", or "));
    }
    let none = format!("{name} does not fit, and no change of its own would be enough");
    match shortfall.others {
        Some(part) => format!(
            "{none}; it would if all others had at most {} % of their budgets",
            f64::from(part) / 10.0
        ),
        None => format!("{none}, nor would smaller budgets of all others"),
    }
}

fn possible(name: &str, room: &Headroom) -> String {
    let or_none =
        |time: Option<u64>| stated(time).map_or_else(|| "none".to_owned(), |t| t.to_string());
    let region = match room.nonpreemptive {
        Some(0) => "none".to_owned(),
        longest => or_none(longest),
    };
    format!(
        "{name}, if nothing else changes: largest budget {}, shortest period {}, longest \
         non-preemptive region {region}",
        or_none(room.budget),
        or_none(room.period),
    )
}

/// A time as a lease can state it.
fn stated(time: Option<u64>) -> Option<Nanoseconds> {
    time.and_then(Nanoseconds::new)
}

fn percent(millionths: u64) -> String {
    format!("{:.2} %", millionths as f64 / 1e4)
}
