//! The cell of a lease file: what is checked and admitted before any tenant is there.

use crate::admission::{Admission, Scheduling};
use crate::calibrate::profile_or_calibrate;
use crate::confinement::{self, Control, Needs, Origin};
use crate::exit::Failure;
use crate::hindrances::Host;
use crate::leases::{self, Ends};
use crate::memory_admission::MemoryVerdict;
use crate::notify::Notify;
use crate::output::say;
use crate::overhead::{HostSteps, HostTime};
use crate::rules::Rules;
use crate::transit::{self, Transit};
use leasehold_cell::preempt::Mechanism;
use leasehold_cell::{
    Cell, CellConfig, Compiler, NoOwnCore, Outlines, Realtime, RealtimeLimit, WhenRealtime,
};
use leasehold_confine::InForce;
use leasehold_io_thread::{Urgency, shorten_waits};
use leasehold_lease::{LeaseFile, Nanoseconds, Order, TenantSpec};
use std::path::Path;
use std::sync::Arc;

/// How the cell of a lease file is started.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct CellOptions {
    /// Pin the cell to this processor [default: wherever the system puts it].
    #[arg(long, value_name = "N")]
    core: Option<usize>,

    /// Start the tenants although the admission test refuses them: they may miss budgets.
    #[arg(long)]
    unadmitted: bool,

    /// Name the functions on the stack of a trap. The walk takes up to 4.4 ms in which no other tenant
    /// runs; admission allows for it.
    #[arg(long)]
    backtraces: bool,

    /// What one preemption takes from the preempted tenant [default: as calibrated].
    #[arg(long, value_name = "TIME")]
    overhead: Option<Nanoseconds>,

    /// How tenants are preempted: injected (compiled without checks) or epochs
    /// [default: injected].
    #[arg(
        long,
        value_name = "MECHANISM",
        env = "LEASEHOLD_PREEMPT",
        hide_env = true
    )]
    preempt: Option<Mechanism>,

    #[command(flatten)]
    confinement: confinement::Arguments,
}

/// A cell that no tenant has been started on.
pub(crate) struct Opened<T> {
    pub(crate) cell: Cell,
    pub(crate) admitted: Admitted,
    pub(crate) confined: InForce,
    pub(crate) notify: Notify,
    /// What decides whether tenants that come later can be kept.
    pub(crate) rules: Rules,
    /// What was started beside it.
    pub(crate) beside: T,
}

/// The outcome of the admission test for the file.
pub(crate) struct Admitted {
    pub(crate) order: Order,
    pub(crate) overhead: HostTime,
    pub(crate) schedulable: bool,
    /// The part of the processor that is reserved.
    pub(crate) utilization: f64,
    /// The host's limit on a cell's thread, if the reservations may exceed it.
    host: Option<RealtimeLimit>,
    /// Why the tenants are not started.
    refusal: Option<String>,
    /// How long the ends of the tenants take at most, and what is reserved for them.
    pub(crate) ends: Ends,
}

impl CellOptions {
    /// Checks the tenants of `file`, which was read from `leases`, confines the process to what the `reached` tenants
    /// need, and starts the cell. `start_beside` starts threads that need more than the controller will have.
    ///
    /// # Errors
    /// When something of the file cannot be kept, or the host refuses something.
    pub(crate) fn open<T>(
        &self,
        (leases, file): (&Path, &LeaseFile),
        reached: &[TenantSpec],
        profile: Option<&Path>,
        control: &Control,
        start_beside: impl FnOnce(&Cell) -> Result<T, Failure>,
    ) -> Result<Opened<T>, Failure> {
        leases::check_size(leases, file).map_err(Failure::Configuration)?;
        let code_cache = leasehold_cell::user_code_cache();
        let outlines = Outlines::here(code_cache.clone());
        let verdict = MemoryVerdict::of(file, &outlines);
        if let (false, Some(why)) = (verdict.fits(), verdict.text()) {
            return Err(Failure::Refused(format!("{}: {why}", leases.display())));
        }
        let host = Host::look();
        if let Some(held) = leases::held_memory(&file.tenants, file.memory) {
            held.check(host.spare)
                .map_err(|unheld| Failure::from(&unheld))?;
        }
        let available = transit::available(host.spare, file.memory);
        let transit = Transit::among(&file.tenants, available);
        if let (false, false, Some(why)) = (transit.fits(), self.unadmitted, transit.text()) {
            return Err(Failure::Refused(format!(
                "{}: {why}; --unadmitted starts the tenants all the same",
                leases.display()
            )));
        }
        for tenant in &file.tenants {
            leases::check_directories(tenant)?;
        }
        let (profile, path) = profile_or_calibrate(profile)?;
        let overhead = HostTime::of_preemption(self.overhead, Some(&profile));
        let fault = HostTime::of_fault(None, Some(&profile));
        let mut steps = HostSteps::of(
            self.preempt.unwrap_or_default(),
            &file.tenants,
            fault,
            Some(&profile),
            &outlines,
        );
        if self.backtraces {
            if let Some(reason) = steps.no_backtraces() {
                let file = leases.display();
                return Err(Failure::Refused(format!("{file}: --backtraces: {reason}")));
            }
            steps = steps.with_backtraces();
        }
        let admitted = Admitted::of(file, overhead, &steps);
        if let (Some(why), false) = (&admitted.refusal, self.unadmitted) {
            return Err(Failure::Refused(format!(
                "{}: {why}: `leasehold admit` says why, --unadmitted starts them all the same",
                leases.display()
            )));
        }
        let mut config = CellConfig::new(profile.clone());
        config.code_cache = code_cache;
        if let Some(mechanism) = self.preempt {
            config.preemption = mechanism;
        }
        config.backtraces = self.backtraces;
        config.cpu = self.core;
        config.order = leases::order(file.order);
        config.memory = leases::held_memory(&file.tenants, file.memory);
        config.code = file.code.map(|code| code.get());
        config.realtime = WhenRealtime::Always;
        config.admission = !self.unadmitted;
        config.needs_own_core = !self.unadmitted;
        config.ends = admitted.ends.reservation.or(config.ends);
        let notify = Notify::connect();
        // It is confined by itself, and to less.
        let compiler = Compiler::start(self.confinement.mode()).map_err(confinement::failed)?;
        let compiler = Arc::new(compiler);
        let mut rules = Rules {
            leases: leases.to_owned(),
            profile,
            overhead,
            backtraces: self.backtraces,
            mechanism: self.preempt.unwrap_or_default(),
            unadmitted: self.unadmitted,
            order: leases::order(file.order),
            memory: file.memory,
            held: leases::held_memory(&file.tenants, file.memory),
            host,
            profile_file: path.clone(),
            control: control.clone(),
            ends: admitted.ends.reservation,
            connections: file.listeners.iter().map(|it| it.connections).collect(),
            reached: reached.to_vec(),
            raised: None,
            prices: Arc::default(),
            outlines: Arc::new(Outlines::by(compiler.clone())),
        };
        config.compiler = Some(compiler);
        let confined = confinement::enter(
            self.confinement,
            &Needs {
                tenants: &file.tenants,
                reached,
                origin: Origin::File(leases),
                holds_memory: config.memory.is_some(),
                profile: path.as_deref(),
                control,
            },
        )?;
        leases::tell_of_swap(config.memory.as_ref());
        let cell = Cell::start(config).map_err(|error| match error.is::<NoOwnCore>() {
            true => Failure::Refused(format!(
                "{error}; --unadmitted starts the tenants all the same"
            )),
            false => error.into(),
        })?;
        rules.raised = Some(cell.row_bounds().clone());
        rules.prices = cell.prices().clone();
        if cell.own_core().is_some() {
            shorten_waits(Urgency::Operators);
        }
        let beside = start_beside(&cell)?;
        confinement::started()?;
        match cell.realtime() {
            Realtime::Refused(reason) => say!(
                "leasehold: the system refused real-time priority ({reason}): reservations hold among \
                 the tenants, but other programs of this host can delay them all"
            ),
            Realtime::Granted => {
                if cell.own_core().is_none() {
                    say!("leasehold: {NoOwnCore}");
                }
                // Or it would not be here without --unadmitted.
                if let Some(limit) = admitted.host {
                    say!(
                        "leasehold: {limit}: the reservations will be missed where others want the processor"
                    );
                }
            }
            Realtime::NotAsked | Realtime::ForKills => {}
        }
        Ok(Opened {
            cell,
            admitted,
            confined,
            notify,
            rules,
            beside,
        })
    }
}

impl Admitted {
    /// The time from its kill after which nothing of a tenant runs, ns.
    pub(crate) fn effect_ns(&self) -> u64 {
        self.ends.bounds.first().map_or(0, |bound| bound.effect_ns)
    }

    fn of(file: &LeaseFile, overhead: HostTime, steps: &HostSteps) -> Self {
        let order = leases::order(file.order);
        let scheduling = Scheduling {
            order,
            overhead: overhead.overhead(),
            ends: None,
        };
        let admission = Admission::of(&file.tenants, steps, scheduling);
        let ends = Ends::of(&file.tenants, steps, overhead, order);
        Self {
            order: file.order,
            overhead,
            schedulable: admission.report.schedulable(),
            utilization: admission.report.utilisation.millionths() as f64 / 1e6,
            refusal: admission.refusal(),
            host: admission.host,
            ends,
        }
    }
}
