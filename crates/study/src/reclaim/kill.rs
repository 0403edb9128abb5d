//! `kill`: does a kill keep its bound in wall time, for every behaviour of the tenant and of its
//! neighbours?
//!
//! Hostile guests, and the attacks on the border, are killed at random instants: with a reservation and in the
//! background, alone and beside neighbours that never give the processor away. The clock starts in
//! [`TenantHandle::kill`](leasehold_cell::TenantHandle::kill) and stops when everything was returned. The bound
//! is that of [`kill_bound`], for the tenant's own reservation or for the cell's reservation for ends.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use leasehold_cell::profile::Profile;
use leasehold_cell::steps::CEILING_NS;
use leasehold_cell::{
    Cell, CellConfig, Ended, Exit, Input, KillDelay, Lease, Output, Program, StartError,
    StartRequest, Surroundings, TenantHandle, WhenRealtime, claim, kill_bound,
    reservation_for_ends,
};
use leasehold_lease::{Cpu, Nanoseconds};
use leasehold_reserve::admission::{Overhead, Report as Admission, admit};
use leasehold_reserve::{Contract, Order};
use serde_json::Value;

use crate::harness::experiment::{Options, Study};
use crate::harness::plot::{Axis, Figure, Marks, Panel, Series};
use crate::harness::progress::Progress;
use crate::harness::random::Random;
use crate::harness::report::{Finding, Report, Row, row};
use crate::harness::samples::{Samples, Spread};
use crate::harness::taken::Taken;
use crate::harness::unit::Unit;
use crate::reclaim::deadline::draw::{self, Draw, Guests};

/// The study; see the [module](self).
pub(crate) struct Kill;

/// Kills of one step of progress.
const BATCH: u64 = 50;
/// The sequence starts here, so that a run draws what the run before it drew.
const SEED: u64 = 0x6b69_6c6c_6564_2121;
/// Of so many ends, one may be later than its bound.
const ENDS_PER_VIOLATION: f64 = 10_000.0;
/// A kill that has had no effect by then is lost.
const LOST: Duration = Duration::from_secs(60);
/// One kill in so many is that of an attack on the border.
const ATTACKS: u64 = 3;
/// Reclamation budget of an attack.
const ATTACK_BUDGET_NS: u64 = 20_000_000;
/// The reservation of a tenant that has one. Without a region, neither the preemptions by its
/// neighbour nor its end would be bounded.
const RESERVED: &str = "budget=2ms,period=10ms,priority=10,nonpreemptive=500us";
/// The reservation of the busy neighbour.
const NEIGHBOUR: &str = "budget=3ms,period=10ms,priority=100";
const SPIN: &[u8] =
    b"(module (memory (export \"memory\") 1) (func (export \"_start\") (loop $l (br $l))))";

impl Study for Kill {
    fn name(&self) -> &'static str {
        "kill"
    }

    fn paper(&self) -> &'static str {
        "BRR §III"
    }

    fn about(&self) -> &'static str {
        "Kills of hostile guests at random instants, with a reservation and in the background, alone \
         and beside busy neighbours: from the kill until everything is returned, and its bound."
    }

    fn run(&self, options: &Options) -> Result<Report> {
        let kills: u64 = if options.quick { 100 } else { 25_000 };
        let profile: Profile = serde_json::from_value(Value::Object(options.profile.clone()))
            .context("the calibration profile")?;
        let directory = tempfile::tempdir().context("making a directory for the guests")?;
        let mut progress = Progress::new(self.name(), 4 * kills / BATCH);
        let mut report = Report::new(self, options);
        let mut tallies = Vec::new();
        let mut guests = BTreeMap::new();
        for (reserved, busy) in [(true, false), (true, true), (false, false), (false, true)] {
            let case = Case {
                reserved,
                busy,
                profile: &profile,
            };
            let tally = case.run(kills, options, &mut guests, directory.path(), &mut progress)?;
            report.rows.push(tally.row(case.name()));
            tallies.push((case.name(), tally));
        }
        let of_guests = guests.iter().map(|(name, tally)| tally.row(name));
        report.rows.extend(of_guests);
        let sum =
            |of: fn(&Tally) -> u64| tallies.iter().map(|(_, tally)| of(tally)).sum::<u64>() as f64;
        let all = sum(|tally| tally.kills);
        report.findings = vec![
            Finding::at_most(
                "kills that had no effect",
                Unit::Count,
                Some(sum(|t| t.lost)),
                0.0,
            ),
            Finding::at_most(
                "ends that were later than their bound",
                Unit::Count,
                Some(sum(|tally| tally.late)),
                all / ENDS_PER_VIOLATION,
            ),
            Finding::at_most(
                "ends that were later though no host step was longer than its row and the host took less",
                Unit::Count,
                Some(sum(|tally| tally.unexplained)),
                0.0,
            ),
        ];
        report.notes.push(format!(
            "seed {SEED:#x}; one kill at a time; reserved: {RESERVED}; busy: a spinning guest with \
             {NEIGHBOUR} and one in the background; wall time, with whatever the host does meanwhile; \
             a row for each guest, of all cases together"
        ));
        report.figure = figure(&tallies);
        Ok(report)
    }
}

/// How tenants are killed.
struct Case<'a> {
    reserved: bool,
    busy: bool,
    profile: &'a Profile,
}

impl Case<'_> {
    fn name(&self) -> &'static str {
        match (self.reserved, self.busy) {
            (true, false) => "reserved, alone",
            (true, true) => "reserved, busy",
            (false, false) => "background, alone",
            (false, true) => "background, busy",
        }
    }

    fn run(
        &self,
        kills: u64,
        options: &Options,
        of_guests: &mut BTreeMap<String, Tally>,
        directory: &Path,
        progress: &mut Progress,
    ) -> Result<Tally> {
        let mut config = CellConfig::new(self.profile.clone());
        config.code_cache = leasehold_cell::user_code_cache();
        config.realtime = WhenRealtime::Always;
        config.ends = self.ends()?;
        let cell = Cell::start(config)?;
        let guests = Guests::load(&cell, &options.guests_dir, directory)?;
        let attacks = attacks(&cell, &options.guests_dir.join("attacks"))?;
        let spin = cell.compile(SPIN)?;
        let mut neighbours = Vec::new();
        if self.busy {
            for cpu in [Some(cpu(NEIGHBOUR)?), None] {
                let lease = Lease {
                    cpu,
                    ..Lease::default()
                };
                neighbours.push(cell.start_tenant(request(spin.clone(), lease, "neighbour"))?);
            }
        }
        let mut random = Random::new(SEED);
        let mut tally = Tally::default();
        while tally.kills < kills {
            let Draw {
                mut request, after, ..
            } = match random.below(ATTACKS) {
                0 => attack(&attacks, &mut random),
                _ => guests.draw(&mut random),
            };
            request.lease.cpu = self.reserved.then(|| cpu(RESERVED)).transpose()?;
            request.surroundings.stdout = Output::Discard;
            request.surroundings.stderr = Output::Discard;
            let bound = self.bound(&cell, &request)?;
            let name = request
                .surroundings
                .args
                .first()
                .cloned()
                .unwrap_or_default();
            let before = exceeded(&cell);
            let tenant = match cell.start_tenant(request) {
                Ok(tenant) => tenant,
                Err(StartError::Lease { .. }) => continue,
                Err(error) => return Err(error.into()),
            };
            let taken_before = Taken::so_far();
            thread::sleep(after);
            tenant.kill();
            let ended = tenant.wait_for(LOST)?;
            let circumstances = Circumstances {
                step: exceeded(&cell) > before,
                taken: Taken::so_far() - taken_before,
            };
            tally.judge(ended.as_ref(), bound, &circumstances);
            let of_guest = of_guests.entry(name.clone()).or_default();
            let late = of_guest.late;
            of_guest.judge(ended.as_ref(), bound, &circumstances);
            match ended {
                None => tracing::warn!(name, "a kill was lost"),
                Some(ended) if of_guest.late > late => tracing::warn!(
                    name,
                    returned = ended.reclaimed.returned.wall_ns,
                    bound,
                    circumstances.step,
                    circumstances.taken.stolen_ns,
                    circumstances.taken.waited_ns,
                    "later than its bound"
                ),
                Some(_) => {}
            }
            if tally.kills % BATCH == 0 {
                progress.step();
            }
        }
        end(neighbours)?;
        Ok(tally)
    }

    fn overhead(&self) -> Overhead {
        let measured = self.profile.preemption.as_ref();
        Overhead {
            per_preemption: measured.map_or(0, |costs| costs.per_preemption_ns()),
        }
    }

    /// The reservation for ends in the background, as `leasehold up` chooses it, with steps at the
    /// ceiling: any guest may come.
    fn ends(&self) -> Result<Option<Contract>> {
        let mut others = vec![Contract::background(CEILING_NS)];
        if self.busy {
            let neighbour = leasehold_cell::contract(&cpu(NEIGHBOUR)?);
            others.insert(0, neighbour.with_longest_step(CEILING_NS));
        }
        let order = Order::FixedPriority;
        Ok(reservation_for_ends(
            &others,
            CEILING_NS,
            order,
            self.overhead(),
        ))
    }

    /// The bound on the end of a tenant beside the neighbours.
    fn bound(&self, cell: &Cell, request: &StartRequest) -> Result<u64> {
        let (order, lease) = (Order::FixedPriority, &request.lease);
        let (_, step_ns) = cell.longest_step(&request.program, lease);
        let overhead = self.overhead();
        let delay = KillDelay {
            longest_step_ns: step_ns,
            preemption_ns: overhead.per_preemption,
            kills: 1,
            kill_ns: self.profile.kill_ns(),
            host_ns: self.profile.added_ns(),
        };
        let supplier = match self.reserved {
            true => Some(claim(lease, step_ns)),
            false => self.ends()?,
        };
        let Some(supplier) = supplier else {
            return Ok(UNBOUNDED_NS);
        };
        let mut contracts = vec![supplier];
        if self.busy {
            contracts.push(leasehold_cell::contract(&cpu(NEIGHBOUR)?).with_longest_step(step_ns));
        }
        if self.busy || !self.reserved {
            contracts.push(Contract::background(step_ns));
        }
        let Admission { servers, .. } = admit(&contracts, order, overhead);
        let supply = (&contracts[0], &servers[0]);
        let reclaim = lease.reclaim.budget.get();
        // In the background there is none where a step is longer than what is reserved for ends.
        Ok(kill_bound(&delay, order, supply, reclaim).unwrap_or(UNBOUNDED_NS))
    }
}

/// Stands for no bound: every end is later, so that the claim does not hold.
const UNBOUNDED_NS: u64 = 1;

fn cpu(text: &str) -> Result<Cpu> {
    text.parse()
        .map_err(|error| anyhow::anyhow!("{text}: {error}"))
}

fn request(program: Arc<Program>, lease: Lease, name: &str) -> StartRequest {
    StartRequest {
        program,
        lease,
        surroundings: Surroundings {
            args: vec![name.to_owned()],
            stdin: Input::Empty,
            stdout: Output::Discard,
            stderr: Output::Discard,
            ..Surroundings::default()
        },
    }
}

/// The attacks on the border, compiled.
fn attacks(cell: &Cell, directory: &Path) -> Result<Vec<(String, Arc<Program>)>> {
    let entries = fs::read_dir(directory)
        .with_context(|| format!("{} (guests/build makes it)", directory.display()))?;
    let mut paths = Vec::new();
    for entry in entries {
        paths.push(entry?.path());
    }
    paths.sort();
    let named = |path: &std::path::PathBuf| {
        let name = path.file_stem().unwrap_or_default();
        let program = cell
            .load(path)
            .with_context(|| path.display().to_string())?;
        Ok((name.to_string_lossy().into_owned(), program))
    };
    let attacks: Result<Vec<_>> = paths.iter().map(named).collect();
    let attacks = attacks?;
    ensure!(!attacks.is_empty(), "no attack in {}", directory.display());
    Ok(attacks)
}

fn attack(attacks: &[(String, Arc<Program>)], random: &mut Random) -> Draw {
    let (name, program) = random.of(attacks);
    let mut lease = Lease::default();
    if let Some(budget) = Nanoseconds::new(ATTACK_BUDGET_NS) {
        lease.reclaim.budget = budget;
    }
    Draw {
        kind: draw::names().len(),
        request: request(program.clone(), lease, name),
        after: Duration::from_nanos(random.below(3_000_000)),
    }
}

/// How many host steps were longer than their rows, for sure or perhaps.
fn exceeded(cell: &Cell) -> u64 {
    let steps = cell.steps();
    steps
        .iter()
        .map(|step| step.exceeded + step.disturbed)
        .sum()
}

fn end(tenants: Vec<TenantHandle>) -> Result<()> {
    for tenant in tenants {
        tenant.kill();
        tenant.wait()?;
    }
    Ok(())
}

/// The history of a tenant from its start to its end.
struct Circumstances {
    /// A host step was longer than its row, or may have been.
    step: bool,
    taken: Taken,
}

/// The results for the kills of one case, or of one guest.
#[derive(Default)]
struct Tally {
    kills: u64,
    ended_first: u64,
    lost: u64,
    late: u64,
    /// Of these, as many as what the host took explains.
    by_host: u64,
    /// Of these, as many as neither that nor a step that was longer than its row explains.
    unexplained: u64,
    effect_ns: Samples,
    reusable_ns: Samples,
    returned_ns: Samples,
    bound_ns: Samples,
    /// Thousandths of the bound that were used.
    used: Samples,
}

impl Tally {
    /// Counts a kill, whose tenant has not `ended` if it had no effect.
    fn judge(&mut self, ended: Option<&Ended>, bound: u64, circumstances: &Circumstances) {
        let Some(ended) = ended else {
            self.lost += 1;
            return;
        };
        self.kills += 1;
        if ended.exit != Exit::Killed {
            // Its end was asked for by itself; the clock has started then.
            self.ended_first += 1;
        }
        let reclaimed = &ended.reclaimed;
        let returned = reclaimed.returned.wall_ns;
        if returned > bound {
            self.late += 1;
            let host = circumstances.taken.explains(returned - bound);
            self.by_host += u64::from(host);
            self.unexplained += u64::from(!circumstances.step && !host);
        }
        self.effect_ns.record(reclaimed.effect_ns);
        self.reusable_ns.record(reclaimed.reusable.wall_ns);
        self.returned_ns.record(returned);
        self.bound_ns.record(bound);
        self.used
            .record(returned.saturating_mul(1000) / bound.max(1));
    }

    /// The row of a case, or of a guest in all of them.
    fn row(&self, of: &str) -> Row {
        row([
            ("case", of.into()),
            ("kills", self.kills.into()),
            ("ended_first", self.ended_first.into()),
            ("lost", self.lost.into()),
            ("late", self.late.into()),
            ("late_by_host", self.by_host.into()),
            ("effect_ns_p50", self.effect_ns.p50().into()),
            ("effect_ns_max", self.effect_ns.max().into()),
            ("reusable_ns_p50", self.reusable_ns.p50().into()),
            ("reusable_ns_max", self.reusable_ns.max().into()),
            ("returned_ns_p50", self.returned_ns.p50().into()),
            ("returned_ns_max", self.returned_ns.max().into()),
            ("bound_ns_p50", self.bound_ns.p50().into()),
            (
                "used_ratio_max",
                self.used.max().map(|used| used as f64 / 1000.0).into(),
            ),
        ])
    }
}

fn figure(tallies: &[(&'static str, Tally)]) -> Figure {
    let point = |value: Option<u64>| {
        let value = value? as f64;
        Some(Spread {
            median: value,
            p5: value,
            p95: value,
        })
    };
    let series = |name: &str, of: fn(&Tally) -> Option<u64>| Series {
        name: name.to_owned(),
        points: tallies
            .iter()
            .enumerate()
            .filter_map(|(at, (_, tally))| Some(((at + 1) as f64, point(of(tally))?)))
            .collect(),
    };
    Figure {
        title: "From the kill until everything is returned".to_owned(),
        panels: vec![Panel {
            y: Axis::logarithmic("wall time", Unit::Nanoseconds),
            marks: Marks::Curves {
                x: Axis::logarithmic("case, in the order of the table", Unit::Count),
                series: vec![
                    series("effect, latest", |tally| tally.effect_ns.max()),
                    series("returned, median", |tally| tally.returned_ns.p50()),
                    series("returned, latest", |tally| tally.returned_ns.max()),
                    series("bound, median", |tally| tally.bound_ns.p50()),
                ],
            },
        }],
    }
}
